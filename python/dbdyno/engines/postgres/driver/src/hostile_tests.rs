//! Whatever a server sends, the driver neither panics nor hangs nor believes it. `PROPTEST_CASES=100000 cargo test
//! hostile` tries longer.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use dyno_model::{Breaker, Error};
use proptest::prelude::*;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use crate::client::{Client, column_names, values};
use crate::messages::message;
use crate::server_error::ServerError;
use crate::target::TargetSpec;
use crate::wire::Wire;
use crate::x509;

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

/// Lengths that lie: huge, negative, one too many; bodies that are cut off.
fn lengths() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![
        any::<[u8; 4]>(),
        prop::sample::select(&[0_i32, 1, 3, 4, 5, -1, -2, i32::MIN, i32::MAX, 0x3fff_ffff][..])
            .prop_map(i32::to_be_bytes),
        (0_i32..80).prop_map(i32::to_be_bytes),
    ]
}

fn odd_message() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop_oneof![4 => prop::sample::select(&b"RKSZENDTAv"[..]), 1 => any::<u8>()];
    (tag, lengths(), bytes(60)).prop_map(|(tag, length, body)| [&[tag][..], &length, &body].concat())
}

fn authentication() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![4 => prop::sample::select(&[0_u32, 3, 5, 7, 10, 11, 12][..]), 1 => any::<u32>()];
    let data = prop_oneof![
        bytes(40),
        Just(b"SCRAM-SHA-256\0\0".to_vec()),
        Just(b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0".to_vec()),
        Just(b"r=x,s=AAAA,i=4294967295".to_vec()),
    ];
    (code, data).prop_map(|(code, data)| message(b'R', &[&code.to_be_bytes()[..], &data].concat()))
}

/// Generates the server's side of a start-up, plausible or not.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let real = (prop::sample::select(&b"KSZEN"[..]), bytes(40)).prop_map(|(tag, body)| message(tag, &body));
    let part = prop_oneof![3 => authentication(), 3 => real, 1 => odd_message(), 1 => bytes(40)];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A socket of its own; the directory's name is what a target calls a host.
fn listener() -> (PathBuf, UnixListener) {
    let number = NEXT.fetch_add(1, Relaxed);
    let directory = std::env::temp_dir().join(format!("dyno-hostile-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).unwrap();
    (directory, listener)
}

fn target(host: &std::path::Path) -> TargetSpec {
    let spec = serde_json::json!({
        "host": host, "port": 5432, "user": "u", "password": "hush-secret", "database": "d",
        "connect_timeout_ms": 20_000, "auth": {"methods": ["scram-sha-256"], "channel_binding": "prefer"}
    });
    serde_json::from_value(spec).unwrap()
}

/// How connecting ends where `answer` is all that the server says; and what it got.
fn connect(answer: &[u8]) -> (Result<(), Error>, Vec<u8>) {
    let (directory, listener) = listener();
    let target = target(&directory);
    let done = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut line, _): (UnixStream, _) = listener.accept().unwrap();
            let mut got = vec![0; 4096];
            let n = line.read(&mut got).unwrap_or(0);
            got.truncate(n);
            // It may have enough before everything is sent.
            let _ = line.write_all(answer);
            let _ = line.shutdown(std::net::Shutdown::Write);
            let _ = line.read_to_end(&mut got);
            got
        });
        let made = Client::connect(&target, None, &Breaker::default()).map(drop);
        (made, server.join().unwrap())
    });
    std::fs::remove_dir_all(directory).unwrap();
    done
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|w| w == part)
}

proptest! {
    #[test]
    fn an_error_of_any_bytes_is_read(body in bytes(300)) {
        let error = ServerError::parse(&body);
        let kept = error.message.len();
        prop_assert!(kept <= 3 * body.len() + 2 * body.len());
        let _ = (error.clone().into_session_error(), error.into_connect_error());
    }

    #[test]
    fn names_and_values_of_any_bytes_are_read(body in bytes(300), length in lengths()) {
        let _ = column_names(&body);
        let given: usize = values(&body).flatten().map(<[u8]>::len).sum();
        prop_assert!(given <= body.len());
        let row = [&[0, 1][..], &length, &body].concat();
        let given: usize = values(&row).flatten().map(<[u8]>::len).sum();
        prop_assert!(given <= body.len() + 2);
        prop_assert!(column_names(&row).len() <= row.len());
    }

    #[test]
    fn a_certificate_of_any_bytes_is_read(der in bytes(200)) {
        let _ = (x509::common_name(&der), x509::validity(&der), x509::end_point(&der), x509::public_key(&der));
        let _ = x509::has_alternative_names(&der);
    }

    #[test]
    fn a_certificate_with_changed_bytes_is_read(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut der = certificate();
        for (place, byte) in changes {
            let place = place.index(der.len());
            der[place] = byte;
        }
        for der in [&der[..], &der[..cut.index(der.len())]] {
            let _ = (x509::common_name(der), x509::validity(der), x509::end_point(der), x509::public_key(der));
        }
    }

    #[test]
    fn a_start_up_of_any_bytes_ends_and_gives_no_password_away(answer in conversation()) {
        let began = Instant::now();
        let (made, got) = connect(&answer);
        prop_assert!(made.is_err(), "without SCRAM nobody is let in");
        prop_assert!(!contains(&got, b"hush-secret") && !contains(&got, b"md5"));
        let printed = format!("{made:?}");
        prop_assert!(!printed.contains("hush-secret"));
        prop_assert!(began.elapsed() < Duration::from_secs(19));
    }
}

/// How a question ends, and how many bytes were taken, where the server says `beginning` and then the same for ever.
fn flooded(
    beginning: &[u8],
    again: &[u8],
    ask: impl FnOnce(&mut Client) -> Result<(), Error>,
) -> (Result<(), Error>, usize) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut taken = 0;
            let again = again.repeat(64 * 1024 / again.len() + 1);
            let _ = theirs.write_all(beginning);
            while theirs.write_all(&again).is_ok() {
                taken += again.len();
            }
            taken
        });
        let mut client = Client::new(Wire::Plain(Arc::new(OwnedFd::from(ours).into())));
        let done = ask(&mut client);
        // After an answer that was too large there is no other.
        if matches!(&done, Err(Error::Lost(words)) if words.contains("MiB")) {
            assert!(matches!(client.simple_query("select 1"), Err(Error::Lost(_))));
        }
        drop(client);
        (done, server.join().unwrap())
    })
}

#[test]
fn an_answer_has_a_limit_of_all_its_rows_together() {
    let nulls = [&600_u16.to_be_bytes()[..], &[0xff; 4 * 600]].concat();
    let text = [&b"\0\x01\0\x01\0\0"[..], &vec![b'x'; 65_536]].concat();
    for row in [&b"\0\0"[..], &nulls, &text] {
        let (done, taken) = flooded(&message(b'T', b"\0\0"), &message(b'D', row), |client| {
            client.simple_query("select everything").map(drop)
        });
        let words = done.unwrap_err().to_string();
        assert!(
            words.contains("64 MiB") && words.contains("select everything"),
            "{words}"
        );
        assert!(taken < 66 << 20, "{taken}");
    }
}

#[test]
fn floods_of_what_is_not_kept_end_in_time() {
    let notice = message(b'N', b"SNOTICE\0C00000\0Mwords\0\0");
    let notification = message(b'A', b"\0\0\0\x01channel\0words\0");
    let parameter = message(b'S', b"name\0value\0");
    let row = message(b'D', b"\0\x01\0\0\0\x01x");
    for again in [notice, notification, parameter, row] {
        let (done, _) = flooded(b"", &again, |client| {
            client.set_timeout(Some(Duration::from_millis(50)))?;
            client.execute("select everything")
        });
        let words = done.unwrap_err().to_string();
        assert!(words.contains("did not answer in time"), "{words}");
    }
}

fn certificate() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tls.pem");
    CertificateDer::from_pem_file(path).unwrap().to_vec()
}

/// `openssl x509 -in testdata/tls.pem -noout -dates`.
#[test]
fn a_real_certificate_has_dates_and_an_end_point() {
    let der = certificate();
    assert_eq!(x509::validity(&der), Some((1_795_227_566, 4_948_827_566)));
    assert_eq!(x509::end_point(&der), Some(Sha256::digest(&der).to_vec()));
}

/// A signature's algorithm decides about the hash (RFC 5929, 4.1); Ed25519 has none.
#[test]
fn the_end_point_is_hashed_as_the_signature_is() {
    let with = |algorithm: &[u8]| {
        let mut inner = vec![0x30, 0x00, 0x30, algorithm.len() as u8];
        inner.extend(algorithm);
        let der = [&[0x30, inner.len() as u8][..], &inner].concat();
        x509::end_point(&der).map(|hash| hash.len())
    };
    let rsa = |last: u8| {
        with(&[
            0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last, 0x05, 0x00,
        ])
    };
    let sizes: Vec<_> = [4, 5, 11, 12, 13, 14].into_iter().map(rsa).collect();
    assert_eq!(sizes, [32, 32, 32, 48, 64, 28].map(Some));
    assert_eq!(
        rsa(10),
        Some(32),
        "RSA-PSS whose parameters are left out is SHA-1's"
    );
    assert_eq!(with(&[0x06, 0x03, 0x2b, 0x65, 0x70]), None, "Ed25519");
    let pss_384 = [
        &[
            0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x11, 0xa0, 0x0f, 0x30,
            0x0d,
        ][..],
        &[
            0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00,
        ],
    ];
    assert_eq!(with(&pss_384.concat()), Some(48));
}
