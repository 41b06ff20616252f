//! Which directories are the control groups of a process: `/proc/PID/cgroup` (cgroups(7)) laid over the
//! mounts. Both texts are as *we* see them, so a group outside of what is mounted here is not found.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::read::mountinfo::{self, Mount};

/// A recorded tree may hold anything in place of the kernel's two texts.
const MOST_BYTES: u64 = 64 << 20;
/// `PATH_MAX`: the kernel shows no longer path of a group.
const LONGEST_PATH: usize = 4096;

/// A group a process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// 1 or 2.
    pub version: i64,
    /// Its directory.
    pub path: String,
}

/// The groups of one process in the hierarchies of `controllers` (v1) and in v2, innermost first in each
/// hierarchy, up to the mount; v1 before v2. Pure: nobody looks whether the directories are there.
pub fn locate(cgroup: &str, mountinfo: &str, controllers: &[&str]) -> Vec<Group> {
    let mounts = mountinfo::parse(mountinfo);
    let mut groups: Vec<Group> = Vec::new();
    for (version, of, path) in memberships(cgroup, controllers) {
        let Some((mount, inside)) = best_mount(&mounts, version, of, path) else {
            continue;
        };
        for path in upwards(&mount.point, inside) {
            let group = Group { version, path };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups
}

/// The groups of one process whose quotas hold it, innermost first up to the mount: those of the v1 hierarchy of
/// `cpu` where there is one, else those of v2. Empty where they are outside of what is mounted here. Pure.
pub fn throttling(cgroup: &str, mountinfo: &str) -> Vec<Group> {
    let version = memberships(cgroup, &["cpu"])
        .first()
        .map(|&(version, ..)| version);
    let mut groups = locate(cgroup, mountinfo, &["cpu"]);
    groups.retain(|group| Some(group.version) == version);
    groups
}

/// The groups of process `pid` (`None`: ourselves) that exist and hold one of `files` (none given: any): v1
/// directories of `controllers`, and v2 directories. `root` is where the machine's tree begins: `/`, or a recorded one.
///
/// # Errors
/// When one of the two texts cannot be read.
pub fn find(
    root: &Path,
    pid: Option<i64>,
    controllers: &[&str],
    files: &[&str],
) -> std::io::Result<Vec<Group>> {
    let who = pid.map_or_else(|| "self".to_owned(), |p| p.to_string());
    let cgroup = read_text(&root.join("proc").join(who).join("cgroup"))?;
    let mountinfo = read_text(&root.join("proc/self/mountinfo"))?;
    let mut groups = locate(&cgroup, &mountinfo, controllers);
    for group in &mut groups {
        group.path = under(root, &group.path).to_string_lossy().into_owned();
    }
    let holds = |g: &Group, file: &str| Path::new(&g.path).join(file).exists();
    groups.retain(|g| Path::new(&g.path).is_dir() && (files.is_empty() || files.iter().any(|f| holds(g, f))));
    Ok(groups)
}

/// Returns the text of a file, in which paths may be any bytes. Neither waits for the writer of a pipe nor reads
/// without end.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut bytes = Vec::new();
    if !file.metadata()?.is_file() || file.take(MOST_BYTES + 1).read_to_end(&mut bytes)? as u64 > MOST_BYTES {
        let words = format!("{} is no file of the kernel's", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the same with v1 groups of `controllers`, or those with CPU figures if it is None.
///
/// # Errors
/// As [`find`].
pub fn find_for(
    root: &Path,
    pid: Option<i64>,
    controllers: Option<&[String]>,
) -> std::io::Result<Vec<Group>> {
    match controllers {
        None => find(root, pid, &["cpu", "cpuacct"], &["cpu.stat", "cpuacct.usage"]),
        Some(names) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            find(root, pid, &names, &[])
        }
    }
}

fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Returns (version, controllers, path) of the lines `id:controllers:path`, v1 first.
fn memberships<'a>(cgroup: &'a str, controllers: &[&str]) -> Vec<(i64, &'a str, &'a str)> {
    let lines = || {
        cgroup
            .lines()
            .filter_map(|l| l.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok())
            .filter(|[_, path]: &[&str; 2]| path.len() <= LONGEST_PATH)
    };
    let v1 = lines().filter(|[of, _]: &[&str; 2]| of.split(',').any(|c| controllers.contains(&c)));
    let v2 = lines().filter(|[of, _]: &[&str; 2]| of.is_empty());
    v1.map(|[of, path]| (1, of, path))
        .chain(v2.map(|[of, path]| (2, of, path)))
        .collect()
}

/// Returns the mount that shows `path` and most of its ancestors, and the rest of the path inside the mount.
fn best_mount<'m, 'p>(
    mounts: &'m [Mount],
    version: i64,
    of: &str,
    path: &'p str,
) -> Option<(&'m Mount, &'p str)> {
    mounts
        .iter()
        .filter(|m| {
            m.version == version
                && (version == 2 || of.split(',').all(|c| m.controllers.iter().any(|o| o == c)))
        })
        .filter_map(|m| inside(&m.root, path).map(|rest| (m, rest)))
        .min_by_key(|(m, _)| m.root.len())
}

/// Returns the rest of `path` below `root`, or None if it is not below, or outside of our cgroup namespace.
fn inside<'p>(root: &str, path: &'p str) -> Option<&'p str> {
    if path.split('/').chain(root.split('/')).any(|part| part == "..") {
        return None;
    }
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn upwards(point: &str, inside: &str) -> Vec<String> {
    let parts: Vec<&str> = inside.split('/').filter(|p| !p.is_empty()).collect();
    let point = point.trim_end_matches('/');
    let deepest_first = (0..=parts.len()).rev();
    deepest_first
        .map(|n| {
            parts[..n]
                .iter()
                .fold(point.to_owned(), |path, part| path + "/" + part)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "28 24 0:25 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      29 24 0:26 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n";
    const V2: &str = "30 24 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn paths(cgroup: &str, mounts: &str) -> Vec<String> {
        throttling(cgroup, mounts)
            .into_iter()
            .map(|group| group.path)
            .collect()
    }

    #[test]
    fn quotas_are_those_of_the_hierarchy_of_the_cpu_controller() {
        let hybrid = "3:memory:/m\n2:cpu,cpuacct:/a/b\n0::/elsewhere\n";
        let above = [
            "/sys/fs/cgroup/cpu/a/b",
            "/sys/fs/cgroup/cpu/a",
            "/sys/fs/cgroup/cpu",
        ];
        assert_eq!(paths(hybrid, V1), above);
        assert_eq!(paths("0::/a\n", V2), ["/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_here_is_none() {
        assert!(paths("0::/../other\n", V2).is_empty(), "of another namespace");
        assert!(
            paths("2:cpu,cpuacct:/a\n0::/a\n", V2).is_empty(),
            "v1 has the quotas"
        );
        assert!(paths("", V2).is_empty());
    }
}
