//! `/proc/PID/mountinfo`: proc(5).

/// One mounted hierarchy of control groups.
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
    entries(text).filter_map(mount).collect()
}

/// One line: a mount of any file system, still with the kernel's escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number of the mount, unique on the machine.
    pub id: &'a str,
    /// Number of the device: `major:minor`.
    number: &'a str,
    root: &'a str,
    point: &'a str,
    /// Type of the file system.
    pub filesystem: &'a str,
    source: &'a str,
    options: &'a str,
}

impl Entry<'_> {
    /// Major and minor number of the device, or of a file system without one.
    pub fn numbers(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.number.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// Returns the mount point.
    pub fn point(&self) -> String {
        unescape(self.point)
    }

    /// Source of the file system: a device, or whatever its type calls so.
    pub fn source(&self) -> String {
        unescape(self.source)
    }

    /// Value of an option `name=value` of the file system.
    pub fn option(&self, name: &str) -> Option<String> {
        let mut values = self.options.split(',').filter_map(|o| o.split_once('='));
        values
            .find(|(key, _)| *key == name)
            .map(|(_, value)| unescape(value))
    }
}

/// All mounts, in the order of the text. Lines of another form are passed over.
pub fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    text.lines().filter_map(entry)
}

fn entry(line: &str) -> Option<Entry<'_>> {
    // Any number of optional fields before the lone dash; it cannot occur earlier, blanks are escaped.
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?;
    let mut left = left.skip(1);
    let number = left.next()?;
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    Some(Entry {
        id,
        number,
        root,
        point,
        filesystem: right.next()?,
        source: right.next().unwrap_or_default(),
        options: right.next_back().unwrap_or_default(),
    })
}

fn mount(entry: Entry) -> Option<Mount> {
    let version = match entry.filesystem {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => return None,
    };
    let options = if version == 1 { entry.options } else { "" };
    let controllers = options
        .split(',')
        .filter(|o| !matches!(*o, "" | "rw" | "ro"))
        .map(str::to_owned);
    Some(Mount {
        version,
        root: unescape(entry.root),
        point: unescape(entry.point),
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
