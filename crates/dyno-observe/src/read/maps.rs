//! `/proc/PID/maps`: `proc_pid_maps(5)`.

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'t> {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Whether its code may be executed.
    pub is_executable: bool,
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// Device numbers as the kernel prints them.
    pub device: &'t str,
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// Path of the file, or another name in brackets; may hold blanks.
    pub path: &'t str,
}

/// Mappings in `text`, by address. Lines of another form are passed over.
pub fn parse(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(line)
}

/// `start-end perms offset dev inode path`, the path after any number of blanks.
fn line(line: &str) -> Option<Mapping<'_>> {
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        is_executable: permissions.as_bytes().get(2) == Some(&b'x'),
        offset: hex(words.next()?)?,
        device: words.next()?,
        inode: words.next()?.parse().ok()?,
        path: words.next().unwrap_or("").trim_start(),
    })
}
