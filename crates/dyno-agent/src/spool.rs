//! Keeps what a watch has read until it is requested: in a file of this host without a name, packed. Where there is no
//! room, in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dyno_model::Table;
use dyno_observe::Status;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::json;

use crate::frames;
use crate::gather::filesystem;
use crate::reply::Reply;

/// So much of a disk is left to others.
const LEFT_BYTES: u64 = 512 << 20;
/// Bytes that are kept in memory if no disk has room.
const MOST_BYTES: usize = 128 << 20;
/// Types of file systems in memory: tmpfs, ramfs.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Tables, packed: a frame, compressed with zlib.
enum Part {
    On { offset: u64, length: usize },
    Here(Vec<u8>),
}

/// Packed tables in the order in which they came.
pub struct Spool {
    file: Option<File>,
    directory: PathBuf,
    end: u64,
    parts: Vec<Part>,
    here_bytes: usize,
    /// Why the disk has no more of it.
    trouble: Option<String>,
    left_bytes: u64,
}

impl Spool {
    /// Returns a spool in `TMPDIR`, `/var/tmp` or `/tmp`, the first on a disk with room.
    pub fn new() -> Self {
        let given = std::env::var_os("TMPDIR")
            .filter(|d| !d.is_empty())
            .map(PathBuf::from);
        let usual = ["/var/tmp", "/tmp"].map(PathBuf::from);
        let mut refused = Vec::new();
        for directory in given.into_iter().chain(usual) {
            match opened(&directory) {
                Ok(file) => return Self::on(file, directory, LEFT_BYTES),
                Err(why) => refused.push(format!("{}: {why}", directory.display())),
            }
        }
        Self {
            file: None,
            trouble: Some(refused.join("; ")),
            ..Self::on_nothing()
        }
    }

    fn on(file: File, directory: PathBuf, left_bytes: u64) -> Self {
        Self {
            file: Some(file),
            directory,
            left_bytes,
            ..Self::on_nothing()
        }
    }

    fn on_nothing() -> Self {
        Self {
            file: None,
            directory: PathBuf::new(),
            end: 0,
            parts: Vec::new(),
            here_bytes: 0,
            trouble: None,
            left_bytes: 0,
        }
    }

    /// Keeps tables. Returns false if there is no room for more.
    pub fn keep(&mut self, tables: &[Table]) -> bool {
        let part = self.written(packed(tables));
        if let Part::Here(bytes) = &part {
            self.here_bytes += bytes.len();
        }
        self.parts.push(part);
        self.here_bytes < MOST_BYTES
    }

    /// How many times tables were kept.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the part that was kept under this number.
    ///
    /// # Errors
    /// The disk's error.
    pub fn part(&self, number: usize) -> io::Result<Vec<u8>> {
        match (&self.parts[number], &self.file) {
            (Part::Here(bytes), _) => Ok(bytes.clone()),
            (&Part::On { offset, length }, Some(file)) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// (status, detail) of the data source "samples on disk".
    pub fn status(&self) -> (&'static str, String) {
        match &self.trouble {
            None => (Status::Ok.as_str(), self.directory.display().to_string()),
            Some(why) if self.here_bytes < MOST_BYTES => {
                (Status::Lost.as_str(), format!("kept in memory: {why}"))
            }
            Some(why) => (
                Status::Lost.as_str(),
                format!("broken off: {} MB in memory; {why}", self.here_bytes >> 20),
            ),
        }
    }

    /// On the disk if it can be; once it cannot, nothing is tried any more.
    fn written(&mut self, bytes: Vec<u8>) -> Part {
        let Some(file) = self.file.as_ref().filter(|_| self.trouble.is_none()) else {
            return Part::Here(bytes);
        };
        let (offset, length) = (self.end, bytes.len());
        let wrote = room(&self.directory, self.left_bytes).and_then(|()| file.write_all_at(&bytes, offset));
        if let Err(error) = wrote {
            let _ = file.set_len(offset); // what came of it only takes room
            self.trouble = Some(format!("{}: {error}", self.directory.display()));
            return Part::Here(bytes);
        }
        self.end += length as u64;
        Part::On { offset, length }
    }
}

/// Returns tables as they go over the wire: compressed, as they repeat themselves.
pub fn packed(tables: &[Table]) -> Vec<u8> {
    let Reply { value, body } = Reply::tables(tables);
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    let start = frames::start(&json!({"tables": value}), &body);
    // writing to memory does not fail; what is too long for a frame is too long for an answer, too
    let _ = start
        .and_then(|start| packed.write_all(&start))
        .and_then(|()| packed.write_all(&body));
    packed.finish().unwrap_or_default()
}

fn opened(directory: &Path) -> io::Result<File> {
    room(directory, LEFT_BYTES)?;
    let (kind, ..) = filesystem(directory)?;
    if MEMORY.contains(&kind) {
        return Err(io::Error::other("is memory (tmpfs)"));
    }
    unnamed(directory)
}

/// A file that nobody else can open, and that is gone with its last descriptor.
fn unnamed(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
    unnamed.or_else(|_| {
        let path = directory.join(format!(
            "dbdyno-spool.{}.{}",
            std::process::id(),
            dyno_model::now_ns()
        ));
        let file = options.create_new(true).open(&path)?;
        fs::remove_file(path)?;
        Ok(file)
    })
}

fn room(directory: &Path, left_bytes: u64) -> io::Result<()> {
    let (_, _, available) = filesystem(directory)?;
    if available < left_bytes {
        let (mib, needed) = (available >> 20, left_bytes >> 20);
        return Err(io::Error::other(format!("{mib} MiB free, {needed} needed")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dyno_model::Column;
    use flate2::read::ZlibDecoder;

    use super::*;

    fn table(first: i64) -> Table {
        Table::new("host", vec![("value", Column::known(first..first + 3))])
    }

    fn values(part: &[u8]) -> Vec<u8> {
        let frame = frames::read(&mut ZlibDecoder::new(part)).unwrap().unwrap();
        assert_eq!(frame.header["tables"][0][0], "host");
        frame.body.chunks(8).map(|value| value[0]).collect()
    }

    fn links(file: &File) -> u64 {
        use std::os::unix::fs::MetadataExt;
        file.metadata().unwrap().nlink()
    }

    #[test]
    fn tables_come_back_in_their_order_from_a_file_without_a_name() {
        let directory = std::env::current_dir().unwrap();
        let mut spool = Spool::on(unnamed(&directory).unwrap(), directory, 0);
        assert!(spool.keep(&[table(1)]) && spool.keep(&[table(7)]));
        assert_eq!(values(&spool.part(0).unwrap()), [1, 2, 3]);
        assert_eq!(values(&spool.part(1).unwrap()), [7, 8, 9]);
        assert_eq!((spool.status().0, spool.here_bytes), ("ok", 0));
        assert_eq!(links(spool.file.as_ref().unwrap()), 0);
    }

    #[test]
    fn a_full_disk_is_said_and_memory_keeps_the_rest() {
        let full = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/full")
            .unwrap();
        for (file, left, sign) in [
            (full, 0, "No space left"),
            (
                unnamed(&std::env::current_dir().unwrap()).unwrap(),
                u64::MAX,
                "MiB free",
            ),
        ] {
            let mut spool = Spool::on(file, PathBuf::from("/"), left);
            assert!(spool.keep(&[table(1)]) && spool.keep(&[table(7)]));
            assert_eq!(spool.parts(), 2);
            assert_eq!(values(&spool.part(1).unwrap()), [7, 8, 9]);
            let (status, detail) = spool.status();
            assert_eq!(status, "lost");
            assert!(detail.contains(sign), "{detail}");
        }
    }
}
