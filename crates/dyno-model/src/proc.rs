//! Texts of proc(5) and sysfs that several crates read.

use std::ops::Range;
use std::str::{SplitAsciiWhitespace, from_utf8};

/// Range of the task's name in a line of `/proc/PID/stat` (`proc_pid_stat(5)`). The name may hold any bytes,
/// parentheses too, and what follows holds none: the first one opens it, the last one closes it.
pub fn stat_name(line: &[u8]) -> Option<Range<usize>> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    (open < close).then_some(open + 1..close)
}

/// Fields of a line of `/proc/PID/stat`, from the third on.
pub fn stat_fields(line: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let name = stat_name(line)?;
    Some(from_utf8(&line[name.end + 1..]).ok()?.split_ascii_whitespace())
}

/// Returns the numbers of a list such as `0-3,8` (cpuset(7), "List format"), or None if it is malformed.
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_last_parenthesis() {
        for name in [&b"sh"[..], b"", b"a) S (b", b")\n(", b"\xff\xfe \x80"] {
            let line = [b"4711 (", name, b") D 17\n"].concat();
            assert_eq!(stat_name(&line).map(|range| &line[range]), Some(name));
            assert_eq!(stat_fields(&line).unwrap().collect::<Vec<_>>(), ["D", "17"]);
        }
        for line in [&b"4711 sh D 17"[..], b"", b") 1 ("] {
            assert!(stat_fields(line).is_none());
        }
    }

    #[test]
    fn lists_of_cpus_have_ranges() {
        assert_eq!(cpu_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpu_list("\t0\n"), Some(vec![0]));
        assert_eq!((cpu_list(""), cpu_list("0-x")), (None, None));
    }
}
