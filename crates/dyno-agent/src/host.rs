//! The host and this program, for a client's first request.

use std::fs;
use std::io;

use dyno_model::proc::cpu_list;
use rustix::param::{clock_ticks_per_second, page_size};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Changed when a client of before would misunderstand.
pub const PROTOCOL: u32 = 1;
pub const PRODUCT: &str = env!("CARGO_PKG_VERSION");

/// Returns the program and the host that answer.
///
/// # Errors
/// Where the program cannot be read again.
pub fn hello() -> io::Result<Value> {
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    Ok(json!({
        "product": PRODUCT,
        "protocol": PROTOCOL,
        "hash": hash()?,
        "uid": rustix::process::getuid().as_raw(),
        "pid": std::process::id(),
        "hostname": line("/proc/sys/kernel/hostname"),
        "boot_id": line("/proc/sys/kernel/random/boot_id"),
        "machine_id": line("/etc/machine-id"),
        "kernel": line("/proc/sys/kernel/osrelease"),
        "arch": std::env::consts::ARCH,
        "cpus": number(libc::_SC_NPROCESSORS_ONLN),
        "affinity": affinity(),
        "ns_per_tick": 1_000_000_000 / clock_ticks_per_second().max(1),
        "page_bytes": page_size(),
    }))
}

fn number(name: libc::c_int) -> i64 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(name) as i64 }
}

/// Returns the SHA-256 of the running program, also if its file has been removed since.
fn hash() -> io::Result<String> {
    let digest = Sha256::digest(fs::read("/proc/self/exe")?);
    Ok(digest
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

/// Returns the CPUs that it may run on, or None if they are unknown.
fn affinity() -> Option<Vec<u32>> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let ranges = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    cpu_list(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_itself_and_its_host() {
        let answer = hello().unwrap();
        assert_eq!(answer["hash"].as_str().unwrap().len(), 64);
        let affinity = answer["affinity"].as_array().unwrap().len() as i64;
        assert!(affinity >= 1 && affinity <= number(libc::_SC_NPROCESSORS_CONF));
        assert_eq!(answer["boot_id"].as_str().unwrap().len(), 36);
    }
}
