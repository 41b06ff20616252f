//! `/proc/PID/mountinfo`: proc(5). Only mounts of control groups.

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// 1 or 2.
    pub version: i64,
    /// The group that is mounted, as a path in its hierarchy.
    pub root: String,
    /// Where.
    pub point: String,
    /// v1: the controllers (and `name=...`) of the hierarchy; v2: empty.
    pub controllers: Vec<String>,
}

/// All control-group mounts, in the order of the text. Lines of another form are passed over: the file
/// describes all mounts of the machine, and most are none of ours.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    // Any number of optional fields before the lone dash; it cannot occur earlier, blanks are escaped.
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (unescape(left.next()?), unescape(left.next()?));
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => return None,
    };
    let options = if version == 1 { right.next_back()? } else { "" };
    let controllers = options
        .split(',')
        .filter(|o| !matches!(*o, "" | "rw" | "ro"))
        .map(str::to_owned);
    Some(Mount {
        version,
        root,
        point,
        controllers: controllers.collect(),
    })
}

/// Undoes the kernel's `\040` for blank, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'\\')
            .then(|| octal(bytes.get(at + 1..at + 4)?))
            .flatten();
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let value = digits.iter().try_fold(0_u32, |v, d| {
        (b'0'..=b'7').contains(d).then(|| v * 8 + u32::from(d - b'0'))
    })?;
    u8::try_from(value).ok()
}
