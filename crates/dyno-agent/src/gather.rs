//! Files, links, directories and facts of files, many in one request: what `/proc` and `/sys` say of a host.
//!
//! Files that may hold secrets are refused to everybody, and so are all that are not below `/proc` and `/sys`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::statfs;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pattern::{MOST_PATHS, expanded, is_pattern};
use crate::reply::Reply;

/// Longest body: further files have EFBIG.
const MOST_BYTES: usize = 256 << 20;
const TREES: [&str; 2] = ["/proc", "/sys"];
const FILES: [&str; 4] = [
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/machine-id",
    "/etc/hostname",
];
/// Environments and memory hold passwords; the pipes of the kernel's log and trace would be emptied.
const REFUSED: [&str; 8] = [
    "environ",
    "mem",
    "auxv",
    "kcore",
    "kmsg",
    "kallsyms",
    "trace_pipe",
    "trace_pipe_raw",
];

/// The requested paths.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wanted {
    read: Vec<String>,
    link: Vec<String>,
    list: Vec<String>,
    stat: Vec<String>,
    limit: usize,
    most: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            link: Vec::new(),
            list: Vec::new(),
            stat: Vec::new(),
            limit: 65_536,
            most: 100_000,
        }
    }
}

/// Returns all requested files, links, lists and attributes.
pub fn gather(wanted: &Wanted) -> Reply {
    let mut body = Vec::new();
    let read = |path: &Path| match read(path, wanted.limit, MOST_BYTES.saturating_sub(body.len())) {
        Ok((mut bytes, whole)) => {
            let length = bytes.len();
            body.append(&mut bytes);
            json!([path.to_string_lossy(), length, whole, null])
        }
        Err(e) => json!([path.to_string_lossy(), 0, false, error_value(&e)]),
    };
    let value = json!({
        "read": each(&wanted.read, wanted.most, read),
        "link": each(&wanted.link, wanted.most, |path| pair(path, link(path))),
        "list": each(&wanted.list, wanted.most, |path| pair(path, list(path))),
        "stat": each(&wanted.stat, wanted.most, |path| pair(path, stat(path))),
    });
    Reply { value, body }
}

fn each(patterns: &[String], most: usize, mut entry: impl FnMut(&Path) -> Value) -> Vec<Value> {
    let may_look = |directory: &Path| allowed(directory).is_ok();
    let paths = patterns.iter().flat_map(|pattern| {
        if is_pattern(pattern) {
            expanded(pattern, may_look)
        } else {
            vec![PathBuf::from(pattern)]
        }
    });
    paths
        .take(most.min(MOST_PATHS))
        .map(|path| entry(&path))
        .collect()
}

fn pair(path: &Path, value: io::Result<Value>) -> Value {
    match value {
        Ok(value) => json!([path.to_string_lossy(), value, null]),
        Err(e) => json!([path.to_string_lossy(), null, error_value(&e)]),
    }
}

fn error_value(error: &io::Error) -> Value {
    json!([error.raw_os_error().unwrap_or(libc::EACCES), error.to_string()])
}

fn below(path: &Path) -> bool {
    TREES.iter().any(|tree| path.starts_with(tree))
}

/// Resolves `path`, and checks that the result may be read.
fn allowed(path: &Path) -> io::Result<PathBuf> {
    if FILES.iter().any(|file| path == Path::new(file)) {
        return Ok(path.to_owned());
    }
    if !may(path) {
        return Err(refused());
    }
    let real = fs::canonicalize(path)?;
    if may(&real) { Ok(real) } else { Err(refused()) }
}

/// Returns whether a path may be read.
fn may(path: &Path) -> bool {
    let fits = |c: Component| c != Component::ParentDir && REFUSED.iter().all(|r| c.as_os_str() != *r);
    below(path) && path.components().all(fits)
}

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "not a path that this agent reads",
    )
}

/// The contents, and whether these are all.
fn read(path: &Path, limit: usize, room: usize) -> io::Result<(Vec<u8>, bool)> {
    let real = allowed(path)?;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(real)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let limit = limit.min(MOST_BYTES);
    let mut bytes = Vec::new();
    file.take(limit.min(room) as u64 + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() <= limit;
    bytes.truncate(limit);
    if bytes.len() > room {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok((bytes, whole))
}

/// Returns the target of a link. The link's directory must be one that may be read, the target need not.
fn link(path: &Path) -> io::Result<Value> {
    let name = path.file_name().ok_or_else(refused)?;
    let directory = allowed(path.parent().ok_or_else(refused)?)?;
    let target = fs::read_link(directory.join(name))?;
    Ok(target.to_string_lossy().into())
}

fn list(path: &Path) -> io::Result<Value> {
    let entries = fs::read_dir(allowed(path)?)?;
    let names: io::Result<Vec<String>> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect();
    let mut names = names?;
    names.sort_unstable();
    Ok(names.into())
}

fn stat(path: &Path) -> io::Result<Value> {
    let about = fs::metadata(path)?;
    let (kind, bytes, available) = filesystem(path)?;
    let device = about.dev();
    Ok(json!({
        "mode": about.mode(),
        "uid": about.uid(),
        "gid": about.gid(),
        "size": about.size(),
        "device": [libc::major(device), libc::minor(device)],
        "inode": about.ino(),
        "mtime_ns": about.mtime() * 1_000_000_000 + about.mtime_nsec(),
        "filesystem": kind,
        "fs_bytes": bytes,
        "fs_available_bytes": available,
    }))
}

/// Returns (type, bytes, bytes available to users).
#[allow(clippy::unnecessary_cast, clippy::cast_lossless, clippy::useless_conversion)] // types differ by C library
pub fn filesystem(path: &Path) -> io::Result<(i64, u64, u64)> {
    let about = statfs(path)?;
    let block = about.f_bsize as u64;
    Ok((
        about.f_type as i64,
        about.f_blocks as u64 * block,
        about.f_bavail as u64 * block,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(wanted: Value, part: &str) -> Vec<Value> {
        let wanted: Wanted = serde_json::from_value(wanted).unwrap();
        let answer = gather(&wanted);
        answer.value[part].as_array().unwrap().clone()
    }

    #[test]
    fn a_limit_without_bounds_is_none() {
        let wanted = json!({"read": ["/proc/self/stat"], "limit": usize::MAX, "most": usize::MAX});
        let rows = entries(wanted, "read");
        assert!(rows[0][1].as_u64() > Some(0) && rows[0][2] == true);
    }

    fn error_of(path: &str) -> i64 {
        let rows = entries(json!({"read": [path]}), "read");
        rows[0][3][0].as_i64().unwrap()
    }

    #[test]
    fn secrets_and_what_is_not_the_kernels_are_refused() {
        for path in [
            "/etc/passwd",
            "/proc/../etc/passwd",
            "/proc/self/root/etc/passwd",
            "/proc/self/cwd/Cargo.toml",
            "/proc/self/exe",
            "/proc/self/environ",
            "/proc/thread-self/environ",
            "/proc/self/mem",
            "/proc/kcore",
            "etc/os-release",
        ] {
            assert_eq!(error_of(path), i64::from(libc::EACCES), "{path}");
        }
        assert_eq!(error_of("/proc/nothing"), i64::from(libc::ENOENT));
        assert_eq!(error_of("/proc/self"), i64::from(libc::EISDIR));
        assert_eq!(
            entries(json!({"list": ["/proc/self/root/*"]}), "list"),
            [Value::Null; 0]
        );
        assert_eq!(entries(json!({"list": ["/home"]}), "list")[0][2][0], libc::EACCES);
    }

    #[test]
    fn files_links_and_facts_come_in_one_answer() {
        let wanted = json!({"read": ["/proc/self/stat", "/proc/self/nothing*", "/proc/self/stat?"],
            "link": ["/proc/self/exe"], "list": ["/proc/self/task"], "stat": ["/"], "limit": 8});
        let wanted: Wanted = serde_json::from_value(wanted).unwrap();
        let answer = gather(&wanted);
        assert_eq!(
            answer.value["read"][0],
            json!(["/proc/self/stat", 8, false, null])
        );
        assert_eq!(answer.value["read"][1][0], "/proc/self/statm");
        assert_eq!(answer.body.len(), 16);
        let exe = std::env::current_exe().unwrap();
        assert_eq!(answer.value["link"][0][1], exe.to_str().unwrap());
        assert!(!answer.value["list"][0][1].as_array().unwrap().is_empty());
        assert!(answer.value["stat"][0][1]["fs_bytes"].as_u64().is_some());
    }
}
