//! A job prepared for one session: placeholders filled in, the program found, texts as the system takes them.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::spawn::Program;
use crate::protocol::{Hello, Job};

/// Where programs are looked for without PATH (execvp(3)).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A job of a session.
#[derive(Debug)]
pub struct Prepared {
    /// The measured program.
    pub program: Program,
    /// The program to run before it.
    pub prepare: Option<Program>,
    /// The program to run after it that checks its result.
    pub verify: Option<Program>,
    /// The program to run at last.
    pub conclude: Option<Program>,
    /// Standard input.
    pub input: Option<PathBuf>,
    /// File whose size is the work.
    pub work_file: Option<PathBuf>,
    /// The job as it was planned.
    pub job: Job,
}

impl Prepared {
    /// # Errors
    /// Words for a job that cannot be one: no program, or a NUL in a text.
    pub fn new(job: &Job, hello: &Hello) -> Result<Self, String> {
        let fill = |text: &str| {
            text.replace("{session}", &hello.session.to_string())
                .replace("{job}", &job.name)
        };
        let directory = job.directory.as_deref().map(fill);
        let env = environment(job, hello, &fill);
        let program = |argv: &[String]| {
            let argv: Vec<_> = argv.iter().map(|word| fill(word)).collect();
            program(&argv, &env, directory.as_deref())
        };
        let optional = |argv: &[String]| (!argv.is_empty()).then(|| program(argv)).transpose();
        let below = |path: &str| {
            directory
                .as_deref()
                .map_or_else(PathBuf::new, PathBuf::from)
                .join(fill(path))
        };
        Ok(Self {
            program: program(&job.argv)?,
            prepare: optional(&job.prepare)?,
            verify: optional(&job.verify)?,
            conclude: optional(&job.conclude)?,
            input: job.input.as_deref().map(below),
            work_file: job.work_file.as_deref().map(below),
            job: job.clone(),
        })
    }
}

/// Environment: our own variables, the job's, and those by which its processes are recognized.
fn environment(job: &Job, hello: &Hello, fill: &impl Fn(&str) -> String) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inherited = std::env::vars_os().map(|(name, value)| {
        let bytes = |text: std::ffi::OsString| text.as_bytes().to_vec();
        (bytes(name), bytes(value))
    });
    let mut all: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = inherited.collect();
    let given = job.env.iter().map(|(name, value)| (name.clone(), fill(value)));
    let ours = [
        ("DBDYNO_SESSION".to_owned(), hello.session.to_string()),
        ("DBDYNO_RUN".to_owned(), hello.run.clone()),
    ];
    all.extend(
        given
            .chain(ours)
            .map(|(name, value)| (name.into_bytes(), value.into_bytes())),
    );
    all.into_iter().collect()
}

fn program(argv: &[String], env: &[(Vec<u8>, Vec<u8>)], directory: Option<&str>) -> Result<Program, String> {
    let name = argv
        .first()
        .filter(|name| !name.is_empty())
        .ok_or("a command without a program")?;
    let path = env
        .iter()
        .find(|(name, _)| name == b"PATH")
        .map(|(_, value)| value.as_slice());
    let path = path.map_or_else(|| DEFAULT_PATH.into(), String::from_utf8_lossy);
    let file = locate(name, &path, directory.unwrap_or("."));
    let texts = |all: &[String]| {
        all.iter()
            .map(|word| text(word.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
    };
    let entries = env
        .iter()
        .map(|(name, value)| text(&[name, b"=".as_slice(), value].concat()));
    Ok(Program {
        path: text(file.as_os_str().as_bytes())?,
        argv: texts(argv)?,
        env: entries.collect::<Result<_, _>>()?,
        directory: directory.map(|d| text(d.as_bytes())).transpose()?,
    })
}

fn text(bytes: &[u8]) -> Result<CString, String> {
    CString::new(bytes).map_err(|_| "a NUL character in a command, its directory or environment".to_owned())
}

/// Locates a program as execvp(3) does, from the command's directory. Returns the name itself if there is none.
fn locate(name: &str, path: &str, directory: &str) -> PathBuf {
    if name.contains('/') {
        return name.into();
    }
    let places = path
        .split(':')
        .map(|place| if place.is_empty() { "." } else { place });
    let mut candidates = places.map(|place| Path::new(place).join(name));
    candidates
        .find(|candidate| is_program(&Path::new(directory).join(candidate)))
        .unwrap_or_else(|| name.into())
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(argv: &[&str]) -> Job {
        Job {
            name: "build".into(),
            argv: argv.iter().map(ToString::to_string).collect(),
            ..Job::default()
        }
    }

    fn hello() -> Hello {
        Hello {
            session: 7,
            ..Hello::default()
        }
    }

    #[test]
    fn placeholders_are_filled_in_and_the_program_is_found() {
        let prepared = Prepared::new(&job(&["sh", "{session}-{job}", "{other}"]), &hello()).unwrap();
        let words: Vec<_> = prepared
            .program
            .argv
            .iter()
            .map(|w| w.to_str().unwrap())
            .collect();
        assert_eq!(words, ["sh", "7-build", "{other}"]);
        assert!(prepared.program.path.to_str().unwrap().ends_with("/sh"));
        let env: Vec<_> = prepared.program.env.iter().map(|w| w.to_str().unwrap()).collect();
        assert!(env.contains(&"DBDYNO_SESSION=7"));
    }

    #[test]
    fn what_cannot_be_a_command_is_refused() {
        for argv in [&[][..], &[""], &["a\0b"], &["echo", "\0"]] {
            assert!(Prepared::new(&job(argv), &hello()).is_err(), "{argv:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_keeps_its_name() {
        let prepared = Prepared::new(&job(&["no-such-program"]), &hello()).unwrap();
        assert_eq!(prepared.program.path.to_str(), Ok("no-such-program"));
    }
}
