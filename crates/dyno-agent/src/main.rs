//! `dbdyno-agent`: dbdyno's driver and observers on another host, over standard input and output. See the README.

mod frames;
mod gather;
mod handles;
mod host;
mod host_ops;
mod live_ops;
mod outbox;
mod pattern;
mod reply;
mod serve;
mod spool;
mod spooled;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd};
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dyno_model::poll::is_readable;
use rustix::thread::set_name;
use serve::Conversation;

const SILENCE: Duration = Duration::from_secs(10);
/// Time that loads have to end. Their connections are broken by then, but cancelling takes time.
const END: Duration = Duration::from_secs(5);
const NO_FRAME: i32 = 2;
const SILENT: i32 = 3;
const SIGNALS: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--version"] {
        println!("dbdyno-agent {} protocol {}", host::PRODUCT, host::PROTOCOL);
        return;
    }
    let mut silence = SILENCE;
    for option in arguments.chunks(2) {
        match (&*option[0], option.get(1).and_then(|text| seconds(text))) {
            ("--silence-s", Some(given)) => silence = given,
            ("--live-s", Some(given)) => spooled::set_live(given),
            _ => {
                say("usage: dbdyno-agent [--version | --silence-s SECONDS | --live-s SECONDS]");
                exit(NO_FRAME);
            }
        }
    }
    serve(silence);
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn serve(silence: Duration) {
    // as ps and top show it: started by its descriptor, it would be called after that
    let _ = set_name(c"dbdyno-agent");
    let signals = blocked();
    // SAFETY: the descriptors are this process's own, and nobody else uses them.
    let (input, output) = unsafe { (File::from_raw_fd(0), File::from_raw_fd(1)) };
    let all = match Conversation::new(Box::new(output)) {
        Ok(all) => all,
        Err(e) => {
            say(&format!("dbdyno-agent: cannot start a thread: {e}"));
            exit(1);
        }
    };
    ended_by(&all, move |all| {
        all.wait_for_silence(silence, || is_readable(std::io::stdin().as_fd()));
        say(&format!(
            "dbdyno-agent: nothing came for {} s",
            silence.as_secs_f64()
        ));
        SILENT
    });
    ended_by(&all, move |_| {
        let mut signal = 0;
        // SAFETY: both are valid; the signals are blocked in all threads.
        unsafe { libc::sigwait(&raw const signals, &raw mut signal) };
        128 + signal
    });
    let status = match all.serve(input) {
        Ok(()) => 0,
        Err(e) => {
            say(&format!("dbdyno-agent: {e}"));
            NO_FRAME
        }
    };
    end(&all, status);
}

/// Writes to standard error, which is closed if a connection was lost.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// A thread that ends the process, if its reason comes. Without it the end of the input ends it.
fn ended_by(all: &Arc<Conversation>, reason: impl FnOnce(&Conversation) -> i32 + Send + 'static) {
    let all = Arc::clone(all);
    let spawned = thread::Builder::new().spawn(move || {
        let status = reason(&all);
        end(&all, status);
    });
    if let Err(e) = spawned {
        say(&format!("dbdyno-agent: cannot start a thread: {e}"));
        exit(1);
    }
}

/// No session stays connected.
fn end(all: &Conversation, status: i32) -> ! {
    all.handles.end(END);
    exit(status);
}

/// SIGHUP, SIGINT and SIGTERM, blocked in this thread and those that it starts.
fn blocked() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset; the other calls take it as it is.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}
