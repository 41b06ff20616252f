//! A session against a server played by hand over a socket pair: what no real server can be made to do on
//! time.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dyno_model::poll::wait_for;
use dyno_model::{CallEnd, Error, Progress, Result, Session, Start, Traffic};
use rustix::event::PollFlags;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use socket2::Socket;

use crate::client::Client;
use crate::messages::{error, message, ready};
use crate::plan::{Plan, Protocol, SessionSpec, StatementSpec};
use crate::session::PgSession;
use crate::target::{TlsSpec, Verify};
use crate::tls::{TlsSetup, TlsStream};
use crate::wire::Wire;

fn plan(params: &[&str]) -> Arc<Plan> {
    plan_of(params, false)
}

fn plan_of(params: &[&str], pipeline: bool) -> Arc<Plan> {
    let statement = |p: &&str| StatementSpec {
        sql: String::new(),
        params: vec![Some((*p).to_owned())],
    };
    let call = params.iter().map(statement).collect();
    let spec = SessionSpec {
        count: 1,
        setup: Vec::new(),
        call,
        protocol: Protocol::Prepared,
        pipeline,
        warm: Vec::new(),
        pause_ms: 0,
        warm_calls: 0,
    };
    Arc::new(Plan::new(spec).unwrap())
}

fn pair() -> (Arc<Socket>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(Socket::from(OwnedFd::from(ours))), theirs)
}

/// A session in non-blocking mode, and the server's end.
fn plain(params: &[&str]) -> (PgSession, UnixStream) {
    let (ours, theirs) = pair();
    let mut session = PgSession::new(Client::new(Wire::Plain(ours)), plan(params));
    session.set_blocking(false).unwrap();
    (session, theirs)
}

/// Waits as the driver does.
fn wait(session: &PgSession, events: PollFlags) {
    assert!(
        wait_for(session.fd(), events, Some(20_000_000_000)),
        "nothing happened in 20 s"
    );
}

fn carry_on(session: &mut PgSession, mut progress: Progress) -> Result<CallEnd> {
    let mut buffer = vec![0; 4096];
    loop {
        match progress {
            Progress::Done(end) => return Ok(end),
            Progress::Read => wait(session, PollFlags::IN),
            Progress::Write => wait(session, PollFlags::OUT),
            Progress::Sleep(_) => unreachable!("these sessions do not pause"),
        }
        progress = session.advance(&mut buffer)?;
    }
}

#[test]
fn last_words_and_the_end_that_came_together_lose_the_session() {
    let (mut session, mut server) = plain(&["1"]);
    assert_eq!(session.begin(Start::default()), Ok(Progress::Read));
    let notice = message(b'N', b"VWARNING\0C57P02\0Mterminating because of crash\0\0");
    server.write_all(&notice).unwrap();
    drop(server);
    // One edge for both: the end must be found behind the notice.
    let Err(Error::Lost(words)) = session.advance(&mut [0; 4096]) else {
        panic!("not lost")
    };
    assert!(words.contains("terminating because of crash (57P02)"), "{words}");
}

#[test]
fn a_server_that_left_between_two_calls_is_heard_out() {
    let (mut session, mut server) = plain(&["1"]);
    session.begin(Start::default()).unwrap();
    server.write_all(&ready(b'I')).unwrap();
    assert_eq!(session.advance(&mut [0; 4096]), Ok(Progress::Done(CallEnd::Ok)));
    server.write_all(&error("FATAL", "57P01")).unwrap();
    drop(server);
    assert_eq!(
        session.begin(Start::default()),
        Err(Error::Lost("words (57P01)".into()))
    );
}

#[test]
fn what_follows_ready_in_one_read_is_not_lost() {
    let (mut session, mut server) = plain(&["1"]);
    session.begin(Start::default()).unwrap();
    let status = message(b'S', b"application_name\0other\0");
    let (head, tail) = status.split_at(7);
    server.write_all(&[&ready(b'I'), head].concat()).unwrap();
    assert_eq!(session.advance(&mut [0; 4096]), Ok(Progress::Done(CallEnd::Ok)));
    session.begin(Start::default()).unwrap();
    server.write_all(&[tail, &ready(b'I')].concat()).unwrap();
    assert_eq!(session.advance(&mut [0; 4096]), Ok(Progress::Done(CallEnd::Ok)));
}

/// Returns the bytes that the server has received so far.
fn received(server: &mut UnixStream) -> Vec<u8> {
    let mut buffer = vec![0; 65536];
    let n = server.read(&mut buffer).unwrap();
    buffer[..n].to_vec()
}

#[test]
fn after_an_error_the_rest_is_left_out_and_a_failed_transaction_rolled_back() {
    let (mut session, mut server) = plain(&["1", "2", "3"]);
    let buffer = &mut [0; 4096];
    session.begin(Start::default()).unwrap();
    assert_eq!(received(&mut server)[0], b'B');
    server.write_all(&ready(b'T')).unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Read));
    assert_eq!(received(&mut server)[0], b'B');
    server
        .write_all(&[error("ERROR", "40001"), ready(b'E')].concat())
        .unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Read));
    assert_eq!(received(&mut server), b"Q\0\0\0\x0dROLLBACK\0");
    server
        .write_all(&[message(b'C', b"ROLLBACK\0"), ready(b'I')].concat())
        .unwrap();
    let failed = CallEnd::Failed {
        code: *b"40001",
        message: "words".into(),
    };
    assert_eq!(session.advance(buffer), Ok(Progress::Done(failed)));
    // Without a transaction there is nothing to roll back.
    session.begin(Start::default()).unwrap();
    assert_eq!(received(&mut server)[0], b'B');
    server
        .write_all(&[error("ERROR", "22012"), ready(b'I')].concat())
        .unwrap();
    let failed = CallEnd::Failed {
        code: *b"22012",
        message: "words".into(),
    };
    assert_eq!(session.advance(buffer), Ok(Progress::Done(failed)));
}

/// A pipelined session of three statements, and the server's end.
fn pipelined() -> (PgSession, UnixStream) {
    let (ours, theirs) = pair();
    let plan = plan_of(&["1", "2", "3"], true);
    let mut session = PgSession::new(Client::new(Wire::Plain(ours)), plan);
    session.set_blocking(false).unwrap();
    (session, theirs)
}

#[test]
fn a_pipeline_is_one_message_and_ends_with_its_last_ready() {
    let (mut session, mut server) = pipelined();
    let buffer = &mut [0; 4096];
    for call in 1..=2 {
        assert_eq!(session.begin(Start::default()), Ok(Progress::Read));
        let sent = received(&mut server);
        assert_eq!(sent, plan(&["1", "2", "3"]).messages.concat());
        // One alone, then two in one piece, the last of them cut.
        server.write_all(&ready(b'I')).unwrap();
        assert_eq!(session.advance(buffer), Ok(Progress::Read));
        let rest = [ready(b'I'), ready(b'I')].concat();
        server.write_all(&rest[..9]).unwrap();
        assert_eq!(session.advance(buffer), Ok(Progress::Read));
        server.write_all(&rest[9..]).unwrap();
        assert_eq!(session.advance(buffer), Ok(Progress::Done(CallEnd::Ok)));
        assert_eq!(session.round_trips(), Some(call));
        let traffic = Traffic {
            sent: call * sent.len() as u64,
            received: call * 3 * ready(b'I').len() as u64,
        };
        assert_eq!(session.traffic(), Some(traffic));
    }
}

#[test]
fn a_failed_statement_of_a_pipeline_fails_the_call_and_the_others_are_waited_for() {
    let (mut session, mut server) = pipelined();
    let buffer = &mut [0; 4096];
    let failed = |code: &[u8; 5]| CallEnd::Failed {
        code: *code,
        message: "words".into(),
    };
    session.begin(Start::default()).unwrap();
    let answers = [error("ERROR", "22012"), ready(b'I'), ready(b'I')].concat();
    server.write_all(&answers).unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Read));
    server.write_all(&ready(b'I')).unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Done(failed(b"22012"))));
    // Within a transaction the others fail, too; the first error is the call's, and all is rolled back.
    session.begin(Start::default()).unwrap();
    received(&mut server);
    let (first, later) = (error("ERROR", "40001"), error("ERROR", "25P02"));
    let answers = [
        &first[..],
        &ready(b'E'),
        &later,
        &ready(b'E'),
        &later,
        &ready(b'E'),
    ]
    .concat();
    server.write_all(&answers).unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Read));
    assert_eq!(received(&mut server), b"Q\0\0\0\x0dROLLBACK\0");
    server.write_all(&ready(b'I')).unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Done(failed(b"40001"))));
    assert_eq!(session.round_trips(), Some(3));
    session.begin(Start::default()).unwrap();
    server
        .write_all(&[ready(b'I'), ready(b'I'), ready(b'I')].concat())
        .unwrap();
    assert_eq!(session.advance(buffer), Ok(Progress::Done(CallEnd::Ok)));
}

#[test]
fn copy_from_within_a_function_loses_the_session_instead_of_hanging() {
    let (mut session, mut server) = plain(&["1"]);
    session.begin(Start::default()).unwrap();
    server.write_all(&message(b'G', &[0, 0, 0])).unwrap();
    let Err(Error::Lost(words)) = session.advance(&mut [0; 4096]) else {
        panic!("not lost")
    };
    assert!(words.contains("COPY"), "{words}");
}

const OF_TODAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tls.pem");
const OF_VERSION_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/version1.pem");

/// Shows the certificate of one file and signs with the key of another, as a relay that has not the right one.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn tls_server(
    socket: UnixStream,
    certificate: &str,
    key: &str,
    version: &'static SupportedProtocolVersion,
) -> StreamOwned<ServerConnection, UnixStream> {
    let certificate = CertificateDer::from_pem_file(certificate).unwrap();
    let key = any_supported_type(&PrivateKeyDer::from_pem_file(key).unwrap()).unwrap();
    let shown = Shows(Arc::new(CertifiedKey::new(vec![certificate], key)));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), socket)
}

/// Even `sslmode=require`, which trusts any certificate: SCRAM binds to the one that is shown.
#[test]
fn a_server_without_the_key_of_its_certificate_is_refused() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (certificate, key, good) in [
            (OF_TODAY, OF_TODAY, true),
            (OF_VERSION_1, OF_VERSION_1, true),
            (OF_TODAY, OF_VERSION_1, false),
            (OF_VERSION_1, OF_TODAY, false),
        ] {
            let (ours, theirs) = pair();
            let server = std::thread::spawn(move || {
                let mut stream = tls_server(theirs, certificate, key, version);
                let _ = stream.read(&mut [0]);
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            let met = TlsStream::connect(&unverified(), ours, deadline).map(drop);
            match met {
                Ok(()) => assert!(good),
                Err(Error::Tls(words)) => {
                    assert!(!good && words.contains("does not have the key"), "{words}");
                }
                Err(other) => panic!("{other}"),
            }
            server.join().unwrap();
        }
    }
}

/// A server that speaks TLS, takes its time, reads `expected` bytes and says that it is ready.
fn slow_tls_server(socket: UnixStream, expected: usize) {
    let mut stream = tls_server(socket, OF_TODAY, OF_TODAY, &rustls::version::TLS13);
    let mut hello = [0; 1];
    stream.read_exact(&mut hello).unwrap();
    // Meanwhile the session fills the socket.
    std::thread::sleep(Duration::from_millis(100));
    let mut rest = vec![0; expected - 1];
    stream.read_exact(&mut rest).unwrap();
    stream.write_all(&ready(b'I')).unwrap();
    stream.flush().unwrap();
    // Keeps the line open until the session has read it.
    let _ = stream.read(&mut hello);
}

fn unverified() -> TlsSetup {
    TlsSetup::new(&TlsSpec {
        verify: Verify::None,
        root_cert: None,
        cert: None,
        key: None,
        server_name: "x".into(),
        crls: Vec::new(),
        versions: Vec::new(),
        sni: true,
        direct: false,
    })
    .unwrap()
}

#[test]
fn what_tls_holds_back_while_the_socket_is_full_is_sent_in_the_end() {
    let setup = unverified();
    for size in [10, 30_000, 60_000, 200_000] {
        let (ours, theirs) = pair();
        ours.set_send_buffer_size(4096).unwrap();
        let plan = plan(&["x".repeat(size).as_str()]);
        let expected = plan.messages[0].len();
        let server = std::thread::spawn(move || slow_tls_server(theirs, expected));
        let stream = TlsStream::connect(&setup, ours, Instant::now() + Duration::from_secs(60)).unwrap();
        let mut session = PgSession::new(Client::new(Wire::Tls(Box::new(stream))), plan);
        session.set_blocking(false).unwrap();
        let begun = session.begin(Start::default()).unwrap();
        assert_eq!(carry_on(&mut session, begun), Ok(CallEnd::Ok), "size {size}");
        drop(session);
        server.join().unwrap();
    }
}
