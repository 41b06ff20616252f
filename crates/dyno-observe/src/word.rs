//! The wait event word of a server's process, read from its memory (`process_vm_readv(2)`): a variable of
//! the program points at a 32-bit word that says what the process waits for. Nothing is asked of the server.

pub mod elf;
pub mod names;
pub(crate) mod state;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{LazyLock, Mutex, PoisonError};

use object::read::ReadCache;
use rustix::param::page_size;
use rustix::process::geteuid;
use serde::Deserialize;

use self::elf::Linked;
use crate::read::stat;
use crate::status::{Refusal, Status};

/// Key of a symbol: device, inode, size and time of change of its program, and its name.
type Place = (u64, u64, u64, i64, String);
/// Symbols found before, since each window of an observation searches again, and a program may have 20,000 symbols.
static FOUND: LazyLock<Mutex<HashMap<Place, Linked>>> = LazyLock::new(Mutex::default);

/// Specification of the wait event word. The JSON form is in `docs/core.md`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WordSpec {
    /// Name of the program for messages.
    pub program: String,
    /// A pointer variable of the program.
    pub symbol: String,
    /// (code, wait class, wait event).
    #[serde(default)]
    pub names: Vec<(u32, String, String)>,
    /// (top byte of a code, wait class), for codes without a name.
    #[serde(default)]
    pub classes: Vec<(u32, String)>,
    /// Codes of waits for the client.
    #[serde(default)]
    pub client: Vec<u32>,
    /// Location of the id of the statement that a process executes.
    #[serde(default)]
    pub statement: Option<StatementSpec>,
}

/// Location of the id of the statement that a process executes, or executed last.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum StatementSpec {
    /// In memory.
    At {
        /// A pointer variable of the program, to a process's own entry of the activity view.
        symbol: String,
        /// Offset of the id (64 bits) in the entry, bytes.
        offset: u32,
        /// Code of a wait for the next statement.
        idle: u32,
    },
    /// The id must not be read.
    Refused {
        /// (status, reason and cure).
        refused: (String, String),
    },
}

/// Returns the 64 bits at `offset` from the target of a pointer variable of `program`, which process `pid` runs.
///
/// # Errors
/// As [`WordFinder::address`]; not permitted to read its memory; lost where the pointer leads nowhere.
pub fn read_behind(pid: i64, program: &str, symbol: &str, offset: u64) -> Result<u64, Refusal> {
    let variable = WordFinder::new(program, symbol).address(pid)?;
    behind(pid, variable, offset).map_err(|e| refusal(pid, &e, Right::Read))
}

/// Returns the 64 bits at `offset` from the target of the pointer variable at an address.
///
/// # Errors
/// The operating system's error.
pub fn behind(pid: i64, variable: u64, offset: u64) -> io::Result<u64> {
    read_u64(pid, read_u64(pid, variable)?.wrapping_add(offset))
}

fn read_u64(pid: i64, at: u64) -> io::Result<u64> {
    let mut value = 0_u64;
    let (to, from) = (ours(&raw mut value), theirs(at, 8));
    // SAFETY: `to` names a variable of ours of 8 bytes; `from` is checked by the kernel.
    let n = unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const to, 1, &raw const from, 1, 0) };
    match n {
        8 => Ok(value),
        -1 => Err(io::Error::last_os_error()),
        _ => Err(nowhere()),
    }
}

/// Finds the pointer variable in processes. Processes forked from one have it at one address, so a program
/// is read once, and a process's mappings once for each server.
#[derive(Debug)]
pub struct WordFinder {
    program: String,
    symbol: String,
    programs: HashMap<File, Result<Linked, Refusal>>,
    addresses: HashMap<(File, i64), u64>,
}

/// Device and inode.
type File = (u64, u64);

impl WordFinder {
    /// Returns a finder of the variable `symbol` of `program`.
    pub fn new(program: &str, symbol: &str) -> Self {
        Self {
            program: program.to_owned(),
            symbol: symbol.to_owned(),
            programs: HashMap::new(),
            addresses: HashMap::new(),
        }
    }

    /// Returns the address of the pointer variable in process `pid`.
    ///
    /// # Errors
    /// Not permitted, not supported (the program has no such symbol), vanished, or lost.
    pub fn address(&mut self, pid: i64) -> Result<u64, Refusal> {
        let exe = format!("/proc/{pid}/exe");
        let refused = |e: io::Error| refusal(pid, &e, Right::Look);
        let metadata = fs::metadata(&exe).map_err(refused)?;
        let file = (metadata.dev(), metadata.ino());
        let text = fs::read(format!("/proc/{pid}/stat")).map_err(refused)?;
        let text = String::from_utf8_lossy(&text);
        // where its code begins: tells servers of one program apart
        let code = stat::start_code(&text).map_err(|e| Refusal::new(Status::Lost, e.to_string()))?;
        if let Some(&address) = self.addresses.get(&(file, code)) {
            return Ok(address);
        }
        let linked = match self.programs.get(&file) {
            Some(known) => known.clone(),
            None => self.linked(pid, &exe),
        };
        // no other process cures a program without the symbol; all other refusals are this process's own
        if linked
            .as_ref()
            .err()
            .is_none_or(|r| r.status == Status::NotSupported)
        {
            self.programs.insert(file, linked.clone());
        }
        let address = self.loaded(pid, &exe, file.1, linked?)?;
        self.addresses.insert((file, code), address);
        Ok(address)
    }

    /// Returns the symbol of the process's program. The program is opened through the process, so that it is the right
    /// one also in a container or after an upgrade.
    fn linked(&self, pid: i64, exe: &str) -> Result<Linked, Refusal> {
        let file = fs::File::open(exe).map_err(|e| refusal(pid, &e, Right::Look))?;
        let key = file
            .metadata()
            .map(|m| (m.dev(), m.ino(), m.size(), m.mtime_nsec(), self.symbol.clone()));
        let known = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(linked) = key.as_ref().ok().and_then(|key| known().get(key).copied()) {
            return Ok(linked);
        }
        let cache = ReadCache::new(file);
        let none = || {
            format!(
                "{} has no symbol {}: it is stripped, or {} is another version",
                path(exe),
                self.symbol,
                self.program
            )
        };
        match elf::symbol(&cache, &self.symbol) {
            Ok(Some(linked)) => {
                if let Ok(key) = key {
                    known().insert(key, linked);
                }
                Ok(linked)
            }
            Ok(None) => Err(Refusal::new(Status::NotSupported, none())),
            Err(e) => Err(Refusal::new(Status::NotSupported, format!("{}: {e}", path(exe)))),
        }
    }

    fn loaded(&self, pid: i64, exe: &str, inode: u64, linked: Linked) -> Result<u64, Refusal> {
        let maps = fs::read(format!("/proc/{pid}/maps")).map_err(|e| refusal(pid, &e, Right::Look))?;
        let maps = String::from_utf8_lossy(&maps);
        elf::first_mapping(&maps, &path(exe), inode)
            .and_then(|mapping| elf::loaded(linked, mapping.start, mapping.offset, page_size() as u64))
            .ok_or_else(|| {
                let detail = format!("process {pid}: where {} is loaded cannot be told", self.program);
                Refusal::new(Status::Lost, detail)
            })
    }
}

/// Returns the target of the link, as `/proc/PID/maps` writes it, too.
fn path(exe: &str) -> String {
    fs::read_link(exe).map_or_else(|_| exe.to_owned(), |p| p.to_string_lossy().into_owned())
}

/// The word of one process. One system call a read: it brings the pointer and, from where the pointer led
/// last time, the word; so a pointer that has moved (a backend that starts or ends) is noticed at once.
#[derive(Debug, Clone)]
pub struct Word {
    pid: libc::pid_t,
    variable: u64,
    target: u64,
}

/// A pointer that moves faster than we read is not followed further.
const FOLLOW: usize = 3;

impl Word {
    /// Returns the word of process `pid`, whose pointer variable is at `variable`.
    pub fn new(pid: i64, variable: u64) -> Self {
        Self {
            pid: pid as libc::pid_t,
            variable,
            target: 0,
        }
    }

    /// Returns the current word.
    ///
    /// # Errors
    /// The operating system's ([`refusal`] says what it means); `InvalidData` where the pointer is null or
    /// leads nowhere.
    pub fn read(&mut self) -> io::Result<u32> {
        for _ in 0..FOLLOW {
            let (read, pointer, word) = self.read_both()?;
            if pointer == self.target && pointer != 0 {
                return if read == 12 { Ok(word) } else { Err(nowhere()) };
            }
            self.target = pointer;
            if pointer == 0 {
                break;
            }
        }
        Err(nowhere())
    }

    /// Returns the number of bytes read (8 or 12), the pointer and the word.
    fn read_both(&self) -> io::Result<(usize, u64, u32)> {
        let (mut pointer, mut word) = (0_u64, 0_u32);
        let to = [ours(&raw mut pointer), ours(&raw mut word)];
        let from = [theirs(self.variable, 8), theirs(self.target, 4)];
        // SAFETY: `to` names two variables of ours of 8 and 4 bytes; `from` is checked by the kernel.
        let n = unsafe { libc::process_vm_readv(self.pid, to.as_ptr(), 2, from.as_ptr(), 2, 0) };
        match usize::try_from(n) {
            Ok(n) if n >= 8 => Ok((n, pointer, word)),
            Ok(_) => Err(nowhere()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

fn nowhere() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

fn ours<T>(variable: *mut T) -> libc::iovec {
    libc::iovec {
        iov_base: variable.cast(),
        iov_len: size_of::<T>(),
    }
}

fn theirs(address: u64, bytes: usize) -> libc::iovec {
    libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes,
    }
}

/// Access to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Look where its program is (`PTRACE_MODE_READ`: Yama does not limit it).
    Look,
    /// Read its memory (`PTRACE_MODE_ATTACH`: ptrace(2), "Ptrace access mode checking").
    Read,
}

/// Returns why process `pid` refused, and the cure.
pub fn refusal(pid: i64, error: &io::Error, right: Right) -> Refusal {
    let status = Status::from_error(error);
    if status == Status::NotSupported {
        return Refusal::new(
            status,
            "this kernel has no process_vm_readv (CONFIG_CROSS_MEMORY_ATTACH)",
        );
    }
    if status != Status::NotPermitted {
        return Refusal::new(status, format!("process {pid}: {error}"));
    }
    let theirs = fs::read(format!("/proc/{pid}/status")).ok(); // with its name, which may be no text
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let ours = geteuid().as_raw();
    let theirs = theirs.and_then(|t| uid(&String::from_utf8_lossy(&t)));
    let scope = scope.and_then(|s| s.trim().parse().ok()).unwrap_or(0);
    Refusal::new(status, cure(right, ours, theirs, scope))
}

/// Returns the cure by our uid, that of the process if known, and `kernel.yama.ptrace_scope` (Documentation/admin-
/// guide/LSM/Yama.rst). Pure half of [`refusal`].
pub fn cure(right: Right, ours: u32, theirs: Option<u32>, scope: u32) -> String {
    let same = theirs.is_none_or(|t| t == ours);
    if right == Right::Read && same && scope > 0 {
        let but = if scope < 3 {
            ", or give dbdyno CAP_SYS_PTRACE"
        } else {
            " (3 stays until the next boot)"
        };
        return format!("kernel.yama.ptrace_scope is {scope}: set it to 0 with sysctl{but}");
    }
    if right == Right::Read && theirs == Some(ours) {
        return "the server's processes have our uid, but are not dumpable, or a seccomp filter forbids \
                process_vm_readv: give dbdyno CAP_SYS_PTRACE"
            .to_owned();
    }
    let who = theirs.map_or_else(String::new, |t| format!(" (uid {t}; we are uid {ours})"));
    format!("run dbdyno as the server's user{who}, or give it CAP_SYS_PTRACE")
}

/// Returns the real uid of a process: `Uid:` of `/proc/PID/status`.
fn uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}
