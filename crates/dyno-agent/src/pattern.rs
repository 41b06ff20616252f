//! Paths with `*` and `?` within components.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// More paths than that are not looked for.
pub const MOST_PATHS: usize = 100_000;

/// Whether it has wildcards.
pub fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?'])
}

/// Returns the paths that exist, sorted. `may_look` returns whether a directory may be listed.
pub fn expanded(pattern: &str, may_look: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for component in pattern.split('/').filter(|c| !c.is_empty()) {
        paths = if is_pattern(component) {
            let directories = paths.iter().filter(|directory| may_look(directory));
            let all = directories.flat_map(|d| matching(d, component));
            all.take(MOST_PATHS).collect()
        } else {
            paths.iter().map(|path| path.join(component)).collect()
        };
    }
    paths.retain(|path| fs::symlink_metadata(path).is_ok());
    paths
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

/// In the product of both lengths at most: only the last `*` is ever tried with more characters.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_characters_of_a_name() {
        let fits = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(fits("cpu*", "cpu12") && fits("cpu?", "cpu1") && fits("*", "") && fits("a*b*c", "abbc"));
        assert!(fits("*ab", "aab") && fits("a*", "a") && fits("**", "x") && !fits("*ab", "aba"));
        assert!(!fits(&"*a".repeat(60), &"a".repeat(59)), "and ends");
        assert!(!fits("cpu?", "cpu12") && !fits("cpu", "cpu1") && !fits("a*b", "abc"));
    }

    #[test]
    fn a_pattern_has_the_paths_that_exist() {
        let paths = expanded("/proc/self/ta*/*/sta?", |_| true);
        assert!(!paths.is_empty() && paths.iter().all(|path| path.ends_with("stat")));
        assert!(expanded("/proc/self/ta*/*/sta?", |_| false).is_empty());
    }
}
