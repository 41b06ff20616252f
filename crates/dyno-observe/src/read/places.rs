//! Directories of the server, and the devices that they are on: rows of the table `places`.
//!
//! A directory is opened without reading it (`O_PATH`), within the root directory of the server's main process: links in
//! a container then lead where they lead the server (`openat2(2)`, `RESOLVE_IN_ROOT`). The number of its mount
//! (`fdinfo`) names the line of `mountinfo`. Where that is not permitted, the longest mount point that the path begins
//! with names it, and the status is `assumed`: a link on the way would lead elsewhere.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use dyno_model::{Bracket, Table, raw};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, major, makedev, open, openat2};
use serde::Deserialize;

use crate::read::block::{Devices, Stack};
use crate::read::mountinfo::{self, Entry};
use crate::status::Status;

/// Longest path (`PATH_MAX`) and label.
const LONGEST: usize = 4096;
const LONGEST_LABEL: usize = 200;
/// Most directories, and paths of each that are tried.
const MOST: usize = 64;
const MOST_PATHS: usize = 4;
/// File systems on directories of others (overlay) end somewhere.
const DEEPEST: usize = 4;
/// A directory that does not exist yet will be where its parent is; the server makes at most so many.
const MISSING: usize = 2;

/// Status of a device that a mount point names, as the directory itself may not be looked at.
const ASSUMED: &str = "assumed";

/// A directory of the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceSpec {
    /// Name of its contents in the engine's words: data, WAL, ...
    pub place: String,
    /// Its path, or several of which the first that can be reached counts: absolute as the server sees it, else
    /// relative to the working directory of its main process.
    pub paths: Vec<String>,
}

impl PlaceSpec {
    /// # Errors
    /// The first that is too long, too many or no text.
    pub fn check(all: &[Self]) -> Result<(), String> {
        if all.len() > MOST {
            return Err(format!("places: at most {MOST}, not {}", all.len()));
        }
        let fits =
            |text: &str, most| !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control);
        for place in all {
            if !fits(&place.place, LONGEST_LABEL) {
                return Err("places: a label that is empty, too long or no text".to_owned());
            }
            if place.paths.len() > MOST_PATHS || !place.paths.iter().all(|p| fits(p, LONGEST)) {
                return Err(format!("places: {}: no paths, or too long ones", place.place));
            }
        }
        Ok(())
    }
}

/// A directory with a device of its file system.
#[derive(Debug, Clone)]
pub struct Place {
    label: String,
    path: String,
    filesystem: Option<String>,
    stack: Option<Stack>,
    status: String,
}

/// All directories of the server, looked for once.
#[derive(Debug)]
pub struct Places {
    bracket: Bracket,
    places: Vec<Place>,
}

impl Places {
    /// Looks for the directories of the server with this main process.
    pub fn look(specs: &[PlaceSpec], main_pid: Option<i64>) -> Self {
        let devices = Devices::below("/");
        let (bracket, places) = Bracket::around(|| {
            let world = World::of(main_pid);
            specs.iter().flat_map(|spec| world.find(spec, &devices)).collect()
        });
        Self { bracket, places }
    }

    /// Directories of a server whose files are not seen from here.
    pub fn unseen(specs: &[PlaceSpec], status: Status) -> Self {
        let (bracket, places) = Bracket::around(|| specs.iter().map(|spec| unknown(spec, status)).collect());
        Self { bracket, places }
    }

    /// Names of all devices whose counters are to be read.
    pub fn devices(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for stack in self.places.iter().filter_map(|p| p.stack.as_ref()) {
            for name in [&stack.device].into_iter().chain(&stack.disks) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }

    /// Returns the table `places`.
    pub fn table(&self) -> Table {
        let places = || self.places.iter();
        let stacks = || places().map(|p| p.stack.as_ref());
        let below = |s: Option<&Stack>| s.filter(|s| !s.disks.is_empty()).map(|s| s.disks.join(", "));
        raw::Places {
            before_ns: places().map(|_| self.bracket.before_ns).collect(),
            after_ns: places().map(|_| self.bracket.after_ns).collect(),
            place: places().map(|p| &p.label).collect(),
            path: places().map(|p| &p.path).collect(),
            filesystem: places().map(|p| p.filesystem.as_ref()).collect(),
            device: stacks().map(|s| s.map(|s| &s.device)).collect(),
            layers: stacks().map(|s| s.and_then(|s| s.layers.as_ref())).collect(),
            below: stacks().map(below).collect(),
            status: places().map(|p| &p.status).collect(),
        }
        .into()
    }
}

/// The server's view of the file tree.
struct World {
    /// Its root directory, or None if we have the same.
    root: Option<OwnedFd>,
    /// Working directory of its main process, as it sees it.
    directory: Option<PathBuf>,
    mounts: String,
    /// Its root directory cannot be reached.
    closed: bool,
}

impl World {
    fn of(main_pid: Option<i64>) -> Self {
        let ours = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let Some(pid) = main_pid else {
            return Self {
                root: None,
                directory: None,
                mounts: ours,
                closed: false,
            };
        };
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).ok();
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        // Numbers of mounts are unique on the machine: equal ones are one tree.
        let same = first_mount(&mounts).is_some() && first_mount(&mounts) == first_mount(&ours);
        let root = open(
            format!("/proc/{pid}/root"),
            OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY,
            Mode::empty(),
        );
        let closed = root.is_err() && !same;
        Self {
            root: root.ok(),
            directory,
            mounts,
            closed,
        }
    }

    fn find(&self, spec: &PlaceSpec, devices: &Devices) -> Vec<Place> {
        let mut failed = Status::NotPermitted; // without a path that can be tried
        let mut assumed = None;
        for path in &spec.paths {
            let Some(path) = self.absolute(Path::new(path)) else {
                continue;
            };
            let (found, shown) = (self.open(&path), path.to_string_lossy().into_owned());
            match found.and_then(|fd| self.located(&fd, devices)) {
                Ok((filesystem, stacks, status)) => {
                    return rows(spec, &shown, filesystem.as_ref(), stacks, &status);
                }
                Err(error) => failed = Status::from_error(&error),
            }
            if failed == Status::NotPermitted {
                let by_name = self.assumed(&path, devices);
                assumed =
                    by_name.map(|(kind, stacks, status)| rows(spec, &shown, Some(&kind), stacks, &status));
            }
        }
        assumed.unwrap_or_else(|| vec![unknown(spec, failed)])
    }

    /// Returns type of the file system, its devices and the status of a directory that may not be looked at.
    fn assumed(&self, path: &Path, devices: &Devices) -> Option<(String, Vec<Stack>, String)> {
        if path.components().any(|c| c == Component::ParentDir) {
            return None;
        }
        let around = mountinfo::entries(&self.mounts).filter(|mount| path.starts_with(mount.point()));
        let mount = around.max_by_key(|mount| mount.point().len())?; // the last one of equals hides the others
        let (major, minor) = mount.numbers()?;
        let number = makedev(major, minor);
        let (stacks, status) = on_mount(&mount, number, devices, &upper_directory, DEEPEST);
        let status = if stacks.is_empty() {
            status
        } else {
            ASSUMED.to_owned()
        };
        Some((mount.filesystem.to_owned(), stacks, status))
    }

    /// Returns a path of the server as an absolute one, or None if its working directory is unknown.
    fn absolute(&self, path: &Path) -> Option<PathBuf> {
        let joined = match &self.directory {
            Some(directory) => directory.join(path),
            None => path.to_owned(),
        };
        // without `.`: to look at that of a directory takes a right that looking at the directory does not
        joined.is_absolute().then(|| joined.components().collect())
    }

    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut path = path;
        for _ in 0..MISSING {
            match self.open_existing(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
            path = path.parent().unwrap_or(path);
        }
        self.open_existing(path)
    }

    fn open_existing(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if self.closed || path.components().any(|c| c == Component::ParentDir) {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let Some(root) = &self.root else {
            return Ok(open(path, flags, Mode::empty())?);
        };
        match openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // Linux before 5.6: links with absolute paths lead astray in containers alone
            Err(rustix::io::Errno::NOSYS) => {
                let inside = Path::new("/proc/self/fd").join(root.as_raw_fd().to_string());
                let relative = path.strip_prefix("/").unwrap_or(path);
                Ok(open(inside.join(relative), flags, Mode::empty())?)
            }
            opened => Ok(opened?),
        }
    }

    /// Returns type of the file system, its devices and the status of an open directory.
    fn located(&self, fd: &OwnedFd, devices: &Devices) -> io::Result<(Option<String>, Vec<Stack>, String)> {
        let number = fstat(fd)?.st_dev;
        let id = mount_id(fd)?;
        let Some(mount) = mountinfo::entries(&self.mounts).find(|e| e.id == id) else {
            let stacks = devices.name(number).map(|name| devices.stack(&name));
            let status = if stacks.is_some() {
                Status::Ok
            } else {
                Status::NotHere
            };
            return Ok((None, stacks.into_iter().collect(), status.as_str().to_owned()));
        };
        let (stacks, status) = on_mount(&mount, number, devices, &upper_directory, DEEPEST);
        Ok((Some(mount.filesystem.to_owned()), stacks, status))
    }
}

/// Returns the numbers and mounts of a directory of ours that an overlay writes to.
fn upper_directory(path: &str) -> Option<(u64, String, String)> {
    let fd = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    Some((fstat(&fd).ok()?.st_dev, mount_id(&fd).ok()?, mounts))
}

/// Number of a directory's device, of its mount, and all mounts.
type Upper<'a> = &'a dyn Fn(&str) -> Option<(u64, String, String)>;

/// Returns the devices of a file system, and the status: `ok`, or why there are none. `number` is that of a file on it.
fn on_mount(
    mount: &Entry,
    number: u64,
    devices: &Devices,
    upper: Upper,
    depth: usize,
) -> (Vec<Stack>, String) {
    let kind = mount.filesystem;
    if kind == "overlay" {
        let found = mount.option("upperdir").filter(|_| depth > 0);
        if let Some((number, id, mounts)) = found.and_then(|path| upper(&path))
            && let Some(below) = mountinfo::entries(&mounts).find(|e| e.id == id)
        {
            return on_mount(&below, number, devices, upper, depth - 1);
        }
        return (Vec::new(), no_device(kind));
    }
    let name = if major(number) == 0 {
        devices.of_source(&mount.source()) // btrfs and the like: the number is of the subvolume alone
    } else {
        devices.name(number)
    };
    let Some(name) = name else {
        return (Vec::new(), no_device(kind));
    };
    let all = if kind == "btrfs" {
        devices.together(&name)
    } else {
        vec![name]
    };
    let stacks = all.iter().map(|name| devices.stack(name)).collect();
    (stacks, Status::Ok.as_str().to_owned())
}

fn unknown(spec: &PlaceSpec, status: Status) -> Place {
    Place {
        label: spec.place.clone(),
        path: spec.paths.last().cloned().unwrap_or_default(),
        filesystem: None,
        stack: None,
        status: status.as_str().to_owned(),
    }
}

fn no_device(kind: &str) -> String {
    format!("no device: {kind}")
}

fn rows(
    spec: &PlaceSpec,
    path: &str,
    filesystem: Option<&String>,
    stacks: Vec<Stack>,
    status: &str,
) -> Vec<Place> {
    let row = |stack| Place {
        label: spec.place.clone(),
        path: path.to_owned(),
        filesystem: filesystem.cloned(),
        stack,
        status: status.to_owned(),
    };
    if stacks.is_empty() {
        return vec![row(None)];
    }
    stacks.into_iter().map(|stack| row(Some(stack))).collect()
}

fn first_mount(mounts: &str) -> Option<&str> {
    mountinfo::entries(mounts).next().map(|e| e.id)
}

/// Returns the number of the mount that an open file is on: `proc_pid_fdinfo(5)`.
fn mount_id(fd: &OwnedFd) -> io::Result<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    Ok(id.unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
