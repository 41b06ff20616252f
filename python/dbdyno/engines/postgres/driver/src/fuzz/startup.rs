//! Start-up and authentication: the bytes are what the server answers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::messages;
use crate::client::Client;
use crate::frame::HEADER;
use crate::startup;
use crate::target::{AuthSpec, Binding, Method, TargetSpec, TcpSpec};
use crate::wire::Wire;

const PASSWORD: &str = "hush-secret";
/// Bytes that fit into the socket between the two.
const MOST_BYTES: usize = 64 * 1024;

/// Runs a start-up. The first byte chooses what the server may ask for, the rest is what it sends before it closes. The client
/// sends no more than is asked for, and accepts no less; it keeps the parameters of the session, and leaves what follows them.
pub fn startup(data: &[u8]) {
    let [choice, stream @ ..] = data else {
        return;
    };
    if stream.len() > MOST_BYTES {
        return;
    }
    let target = target(*choice);
    let (mut client, result, sent) = connect(&target, stream);
    let allows = |method| {
        target
            .auth
            .methods
            .as_ref()
            .is_none_or(|all| all.contains(&method))
    };
    let bound = target.auth.channel_binding == Binding::Require;
    let length = sent.first_chunk().map_or(0, |n| u32::from_be_bytes(*n) as usize);
    assert_eq!(
        sent.get(4..8),
        Some(&196_608_u32.to_be_bytes()[..]),
        "protocol 3.0"
    );
    let answers: Vec<_> = messages(&sent[length..]).collect();
    assert!(answers.iter().all(|(tag, _)| *tag == b'p'));
    let has = |bytes: &[u8]| bytes.windows(PASSWORD.len()).any(|w| w == PASSWORD.as_bytes());
    assert!(!has(&sent) || (allows(Method::Password) && !bound));
    let is_hash = |body: &[u8]| body.starts_with(b"md5");
    assert!(!answers.iter().any(|(_, body)| is_hash(body)) || (allows(Method::Md5) && !bound));
    // The server may say it itself.
    assert!(has(stream) || !has(format!("{result:?}").as_bytes()));
    if result.is_err() {
        return;
    }
    assert!(!bound, "there is no TLS to bind to");
    // SCRAM cannot succeed: the server does not know our nonce.
    assert!(
        [Method::None, Method::Password, Method::Md5]
            .into_iter()
            .any(allows)
    );
    let all: Vec<_> = messages(stream).collect();
    let end = 1 + all
        .iter()
        .position(|(tag, _)| *tag == b'Z')
        .expect("the server was ready");
    let asked = all[..end]
        .iter()
        .filter(|(tag, body)| *tag == b'R' && **body != [0; 4]);
    assert_eq!(asked.count(), answers.len());
    let key = all[..end]
        .iter()
        .rev()
        .find(|(tag, _)| *tag == b'K')
        .map(|(_, body)| *body);
    assert_eq!(client.key, key.unwrap_or_default());
    let pid = key.and_then(<[u8]>::first_chunk);
    assert_eq!(
        client.backend_pid,
        pid.map(|pid| i64::from(u32::from_be_bytes(*pid)))
    );
    let taken: usize = all[..end].iter().map(|(_, body)| HEADER + body.len()).sum();
    let mut rest = client.take_rest();
    while let Ok(n @ 1..) = client.wire.recv(&mut [0; 4096]) {
        rest.resize(rest.len() + n, 0);
    }
    assert_eq!(rest.len(), stream.len() - taken);
}

/// How the start-up ends where the server says all of `stream` at once, and what it got.
fn connect(target: &TargetSpec, stream: &[u8]) -> (Client, dyno_model::Result<()>, Vec<u8>) {
    let (ours, mut server) = UnixStream::pair().expect("a pair of sockets");
    server.write_all(stream).expect("room for all");
    server.shutdown(Shutdown::Write).expect("a socket");
    let mut client = Client::new(Wire::Plain(Arc::new(OwnedFd::from(ours).into())));
    let result = startup::start(&mut client, target);
    client.wire.socket().shutdown(Shutdown::Write).expect("a socket");
    let mut sent = Vec::new();
    server.read_to_end(&mut sent).expect("what was sent");
    (client, result, sent)
}

fn target(choice: u8) -> TargetSpec {
    let methods = match choice % 6 {
        0 => None,
        1 => Some(vec![Method::None]),
        2 => Some(vec![Method::Password]),
        3 => Some(vec![Method::Md5]),
        4 => Some(vec![Method::Scram]),
        _ => Some(vec![Method::Password, Method::Scram]),
    };
    let channel_binding = match choice / 6 % 3 {
        0 => Binding::Prefer,
        1 => Binding::Disable,
        _ => Binding::Require,
    };
    TargetSpec {
        host: "/".to_owned(),
        port: 5432,
        user: "u".to_owned(),
        password: (choice < 128).then(|| PASSWORD.to_owned()),
        database: "d".to_owned(),
        tls: None,
        application_name: "a".to_owned(),
        connect_timeout_ms: 10_000,
        auth: AuthSpec {
            methods,
            channel_binding,
        },
        peer_uid: None,
        tcp: TcpSpec::default(),
    }
}
