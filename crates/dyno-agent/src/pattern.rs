//! Paths with `*` and `?` within components.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether it has wildcards.
pub fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?'])
}

/// The paths that exist, sorted. `may_look`: whether a directory may be listed.
pub fn expanded(pattern: &str, may_look: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for component in pattern.split('/').filter(|c| !c.is_empty()) {
        found = if is_pattern(component) {
            let directories = found.iter().filter(|directory| may_look(directory));
            directories.flat_map(|d| matching(d, component)).collect()
        } else {
            found.iter().map(|path| path.join(component)).collect()
        };
    }
    found.retain(|path| fs::symlink_metadata(path).is_ok());
    found
}

fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name())
        .filter(|name| matches(pattern.as_bytes(), name.as_bytes()))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|name| directory.join(name)).collect()
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|n| matches(rest, &name[n..])),
        ([b'?', pattern @ ..], [_, name @ ..]) => matches(pattern, name),
        ([a, pattern @ ..], [b, name @ ..]) => a == b && matches(pattern, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_characters_of_a_name() {
        let fits = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(fits("cpu*", "cpu12") && fits("cpu?", "cpu1") && fits("*", "") && fits("a*b*c", "abbc"));
        assert!(!fits("cpu?", "cpu12") && !fits("cpu", "cpu1") && !fits("a*b", "abc"));
    }

    #[test]
    fn a_pattern_has_the_paths_that_exist() {
        let found = expanded("/proc/self/ta*/*/sta?", |_| true);
        assert!(!found.is_empty() && found.iter().all(|path| path.ends_with("stat")));
        assert!(expanded("/proc/self/ta*/*/sta?", |_| false).is_empty());
    }
}
