//! Block devices in sysfs: what lies on what. `Documentation/ABI/stable/sysfs-block`, `sysfs-devices-system-…`: a
//! device is a folder of `/sys/dev/block` and `/sys/class/block`; `slaves` has the devices that one of dm, md or bcache
//! lies on, `partition` is there for a partition, whose disk is the folder around it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Longest name of a device (`DISK_NAME_LEN` is 32), and longest file that is read.
const LONGEST_NAME: usize = 64;
const LONGEST_FILE: usize = 4096;
/// Bounds of a stack of devices. Real ones have four or five layers, and some dozens of disks.
const DEEPEST: usize = 16;
const MOST_DEVICES: usize = 256;

/// The devices of a machine, below `/` or a recorded tree.
#[derive(Debug, Clone)]
pub struct Devices {
    root: PathBuf,
}

/// A device with all that it lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Name by the kernel, as in `/proc/diskstats`.
    pub device: String,
    /// The stack in words, from the top; None for a plain disk.
    pub layers: Option<String>,
    /// The disks at the bottom, or none if it is one itself.
    pub disks: Vec<String>,
}

impl Devices {
    /// Devices below this root directory.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the name of a device by its number.
    pub fn name(&self, number: u64) -> Option<String> {
        let (major, minor) = (major(number), minor(number));
        let link = fs::read_link(self.root.join(format!("sys/dev/block/{major}:{minor}")));
        if let Some(name) = link.ok().as_deref().and_then(Path::file_name) {
            return named(name.to_str()?);
        }
        // no sysfs: the kernel's table has the numbers, too
        let table = fs::read_to_string(self.root.join("proc/diskstats")).ok()?;
        let mut lines = table.lines().map(str::split_ascii_whitespace);
        lines.find_map(|mut words| {
            let number = words.next()?.parse() == Ok(major) && words.next()?.parse() == Ok(minor);
            number.then(|| named(words.next()?)).flatten()
        })
    }

    /// Returns the name of the device of a path in `/dev`. One of LVM and the like is found by its name in
    /// `/dev/mapper`.
    pub fn of_source(&self, source: &str) -> Option<String> {
        let path = Path::new(source.strip_prefix("/dev/")?);
        if let Ok(about) = fs::metadata(self.root.join("dev").join(path))
            && about.mode() & libc::S_IFMT == libc::S_IFBLK
        {
            return self.name(about.rdev());
        }
        let name = named(path.file_name()?.to_str()?)?;
        if self.folder(&name).exists() {
            return Some(name);
        }
        let all = fs::read_dir(self.root.join("sys/class/block")).ok()?;
        let mut names = all.flatten().take(MOST_DEVICES * DEEPEST);
        names.find_map(|entry| {
            let device = named(entry.file_name().to_str()?)?;
            (self.text(&device, "dm/name")? == name).then_some(device)
        })
    }

    /// Returns the devices of a file system of several (btrfs), by one of them; this one first.
    pub fn together(&self, device: &str) -> Vec<String> {
        let mut devices = vec![device.to_owned()];
        let file_systems = fs::read_dir(self.root.join("sys/fs/btrfs")).into_iter().flatten();
        for file_system in file_systems.flatten().take(MOST_DEVICES) {
            let names = names_in(&file_system.path().join("devices"));
            if names.iter().any(|name| name == device) {
                devices.extend(names.into_iter().filter(|name| name != device));
                break;
            }
        }
        devices
    }

    /// Returns the device with all that it lies on.
    pub fn stack(&self, device: &str) -> Stack {
        let mut stack = Stack {
            device: device.to_owned(),
            layers: None,
            disks: Vec::new(),
        };
        let words = self.descend(device, &mut Vec::new(), &mut stack.disks, &mut 0);
        stack.disks.retain(|disk| disk != device);
        stack.layers = Some(words).filter(|words| words != device);
        stack
    }

    /// Returns the layers in words, and adds the disks at the bottom. A device that lies on itself, as no kernel makes
    /// it, ends the descent.
    fn descend(
        &self,
        device: &str,
        above: &mut Vec<String>,
        disks: &mut Vec<String>,
        count: &mut usize,
    ) -> String {
        let mapped = self.text(device, "dm/name");
        let words = mapped.map_or_else(|| device.to_owned(), |name| format!("{device} ({name})"));
        *count += 1;
        above.push(device.to_owned());
        let mut lower = self.lower(device);
        lower.retain(|name| !above.contains(name));
        let bottom = lower.is_empty() || above.len() >= DEEPEST || *count >= MOST_DEVICES;
        if bottom && !disks.iter().any(|disk| disk == device) {
            disks.push(device.to_owned());
        }
        let below = if bottom { &[][..] } else { &lower };
        let parts: Vec<String> = below
            .iter()
            .map(|name| self.descend(name, above, disks, count))
            .collect();
        above.pop();
        match parts.as_slice() {
            [] => words,
            [one] => format!("{words} on {one}"),
            _ => format!("{words} on ({})", parts.join(", ")),
        }
    }

    /// Returns the devices directly below one.
    fn lower(&self, device: &str) -> Vec<String> {
        let folder = self.folder(device);
        if folder.join("partition").exists() {
            let link = fs::read_link(&folder).unwrap_or_default();
            let disk = link.parent().and_then(Path::file_name);
            return disk.and_then(|name| named(name.to_str()?)).into_iter().collect();
        }
        let slaves = names_in(&folder.join("slaves"));
        if !slaves.is_empty() {
            return slaves;
        }
        self.text(device, "loop/backing_file")
            .and_then(|file| {
                let number = fs::metadata(self.root.join(file.strip_prefix('/')?)).ok()?.dev();
                self.name(number).filter(|_| major(number) != 0)
            })
            .into_iter()
            .collect()
    }

    /// Returns whether the kernel counts flushes of a device: it does where its queue has requests (`blk-mq`), not for
    /// partitions (iostats.rst, field 16), nor for drivers like dm and md that pass on what they get.
    pub fn counts_flushes(&self, device: &str) -> bool {
        self.folder(device).join("mq").exists()
    }

    /// Names in sysfs have `!` where the device's own has `/`.
    fn folder(&self, device: &str) -> PathBuf {
        self.root.join("sys/class/block").join(device.replace('/', "!"))
    }

    /// Returns the first line of a small file of a device.
    fn text(&self, device: &str, file: &str) -> Option<String> {
        let text = fs::read(self.folder(device).join(file)).ok()?;
        let text = std::str::from_utf8(text.get(..text.len().min(LONGEST_FILE))?).ok()?;
        let line = text.lines().next()?;
        (!line.is_empty() && !line.chars().any(char::is_control)).then(|| line.to_owned())
    }
}

/// Returns the names in a folder of links, sorted; no more than there is room for.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries
        .take(MOST_DEVICES)
        .filter_map(|e| named(e.file_name().to_str()?));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// Returns the kernel's name of a device for its name in sysfs, or None for what is none.
fn named(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_graphic() && c != ',';
    (!name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits)).then(|| name.replace('!', "/"))
}
