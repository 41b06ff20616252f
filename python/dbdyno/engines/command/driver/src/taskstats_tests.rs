use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;

use super::*;
use crate::netlink::attribute;

#[test]
fn attributes_come_back_as_they_were_written() {
    let mut bytes = attribute(7, b"abc");
    bytes.extend(attribute(9, b""));
    assert_eq!(attributes(&bytes), (vec![(7, &b"abc"[..]), (9, &b""[..])], true));
    assert_eq!(attributes(&bytes[..6]), (vec![], false));
}

#[test]
fn a_structure_whose_task_lies_elsewhere_is_not_read() {
    let mut stats = stats(77);
    stats.resize(400, 0);
    stats[144..152].copy_from_slice(&5_u64.to_ne_bytes());
    assert_eq!(Exit::parse(&stats, 78, 0), None);
    assert_eq!(Exit::parse(&stats[..300], 77, 0), None);
    assert_eq!(
        Exit::parse(&stats, 77, 9000).map(|e| e.task(None).life_ns),
        Some((4000, 9000))
    );
}

fn stats(tid: u32) -> Vec<u8> {
    let mut stats = vec![0; SHORTEST];
    stats[..2].copy_from_slice(&NAMES_THE_PROCESS.to_ne_bytes());
    stats[128..132].copy_from_slice(&tid.to_ne_bytes());
    stats[368..372].copy_from_slice(&tid.to_ne_bytes());
    stats
}

/// A message of the kernel about one task.
fn message(tid: u32, stats: &[u8]) -> Vec<u8> {
    let mut inner = attribute(TID, &tid.to_ne_bytes());
    inner.extend(attribute(STATS, stats));
    let body = attribute(AGGREGATE_OF_TASK, &inner);
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.resize(HEADER, 0);
    message.extend(body);
    message
}

fn read(datagram: &[u8]) -> (bool, Vec<i64>) {
    let mut reader = Reader::default();
    let whole = reader.read(datagram).is_some();
    (whole, reader.exits.iter().map(|e| e.tid).collect())
}

#[test]
fn messages_that_are_cut_off_or_of_wrong_lengths_are_counted() {
    let mut two = message(7, &stats(7));
    let one = two.len();
    two.extend(message(8, &stats(8)));
    assert_eq!(read(&two), (true, vec![7, 8]));
    assert_eq!(read(&two[..two.len() - 4]), (false, vec![7]));
    assert_eq!(read(&[]), (false, vec![]));
    assert_eq!(read(&two[..HEADER - 1]), (false, vec![]));
    for length in [0, HEADER as u32 - 1, u32::MAX] {
        let mut wrong = two.clone();
        wrong[one..one + 4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(read(&wrong), (false, vec![7]), "length {length}");
    }
    assert_eq!(read(&message(9, &stats(7))), (false, vec![]), "of another task");
    assert_eq!(read(&message(7, &stats(7)[..300])), (false, vec![]), "short");
}

#[test]
fn statistics_that_do_not_name_the_process_are_not_supported() {
    let mut old = stats(7);
    old[..2].copy_from_slice(&10_u16.to_ne_bytes());
    let mut reader = Reader::default();
    assert_eq!(reader.read(&message(7, &old[..328])), Some(()));
    assert_eq!((reader.exits.len(), reader.outdated), (0, Some(10)));
    let losses = Losses {
        outdated: reader.outdated,
        ..Losses::default()
    };
    assert_eq!(losses.state().map(|s| s.0), Some("not supported"));
}

#[test]
fn nothing_lost_is_no_state_and_each_loss_is_one() {
    assert_eq!(Losses::default().state(), None);
    let some = Losses {
        dropped: 3,
        malformed: 2,
        ..Losses::default()
    };
    let (status, reason) = some.state().unwrap();
    assert_eq!(status, "limited");
    assert!(
        reason.starts_with("3 messages") && reason.contains("; 2 messages"),
        "{reason}"
    );
    let broken = Losses {
        broken: Some("gone".to_owned()),
        ..some
    };
    assert_eq!(broken.state().unwrap().0, "lost");
}

/// Returns the messages that a socket with this much room receives after `before`; `None` if that is not permitted.
fn received_after(room: usize, before: impl FnOnce(&OwnedFd)) -> Option<Received> {
    let socket = match subscribe(room) {
        Ok(socket) => socket,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    before(&socket);
    let (received, stop) = (Mutex::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| listen(&socket, &received, &stop));
        thread::sleep(std::time::Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
    });
    Some(received.into_inner().unwrap())
}

/// Tasks that end at once.
fn ends(count: usize) {
    for _ in 0..count {
        thread::spawn(|| {}).join().unwrap();
    }
}

#[test]
fn ends_that_find_no_room_are_counted() {
    let Some(received) = received_after(4096, |_| ends(64)) else {
        return;
    };
    let (taken, losses) = (received.exits.len() as u64, received.losses);
    assert!(
        losses.dropped > 0 && taken + losses.dropped >= 64,
        "{taken}, {losses:?}"
    );
    assert_eq!(losses.state().unwrap().0, "limited");
    let roomy = received_after(BUFFER, |_| ends(64)).unwrap();
    assert!(roomy.exits.len() >= 64);
    assert_eq!(roomy.losses, Losses::default());
}

/// A new socket may take the address of a closed one, which the kernel still sends to.
#[test]
fn statistics_for_a_closed_socket_do_not_hinder_the_next() {
    if let Err(error) = subscribe(BUFFER) {
        eprintln!("skipped: {error}");
        return;
    }
    let stop = AtomicBool::new(false);
    let failed: Vec<io::Error> = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    ends(1);
                }
            });
        }
        let failed = (0..500).filter_map(|_| subscribe(BUFFER).err()).collect();
        stop.store(true, Ordering::Relaxed);
        failed
    });
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn messages_of_other_processes_are_not_believed() {
    const FORGED: u32 = 0x7000_0001;
    let forge = |socket: &OwnedFd| {
        // SAFETY: plain calls on descriptors and structures of this function.
        unsafe {
            let mut ours: libc::sockaddr_nl = zeroed();
            let mut size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            libc::getsockname(socket.as_raw_fd(), (&raw mut ours).cast(), &raw mut size);
            let other = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC);
            let forged = message(FORGED, &stats(FORGED));
            let sent = libc::sendto(
                other,
                forged.as_ptr().cast(),
                forged.len(),
                0,
                (&raw const ours).cast(),
                size,
            );
            assert_eq!(sent, forged.len() as isize, "{}", io::Error::last_os_error());
            libc::close(other);
        }
        ends(1);
    };
    let Some(received) = received_after(BUFFER, forge) else {
        return;
    };
    assert!(!received.exits.is_empty());
    assert!(received.exits.iter().all(|e| e.tid != i64::from(FORGED)));
}

#[test]
fn a_message_longer_than_its_room_is_cut() {
    let Ok(socket) = subscribe(BUFFER) else { return };
    ends(1);
    assert_eq!(receive(&socket, &mut [0; 64]).unwrap(), Message::Cut);
}

#[test]
fn a_child_that_lives_a_moment_is_told_of_where_that_is_permitted() {
    let listener = match Listener::open() {
        Ok(listener) => listener,
        Err((status, detail)) => {
            assert!(matches!(status, "not permitted" | "not supported"), "{detail}");
            return;
        }
    };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = i64::from(child.id());
    child.wait().unwrap();
    let mut met = Vec::new();
    for _ in 0..200 {
        met.extend(listener.take().into_iter().filter(|e| e.pid == pid));
        if !met.is_empty() {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(20));
    }
    let exit = met[0];
    assert_eq!((exit.tid, exit.parent), (pid, i64::from(std::process::id())));
    assert!(exit.last && exit.slices > 0 && exit.lived_ns >= exit.run_ns + exit.runq_ns);
}
