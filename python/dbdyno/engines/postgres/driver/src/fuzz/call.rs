//! A whole session's calls: the bytes are what the server answers.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dyno_model::{CallEnd, Error, Progress, Result, Session, Start};
use socket2::Socket;

use super::{messages, specs};
use crate::client::Client;
use crate::plan::{self, Protocol, SessionSpec, StatementSpec};
use crate::script::ScriptSession;
use crate::script::plan::Plan;
use crate::session::PgSession;
use crate::wire::Wire;

/// Codes of failures that no server sent.
const OWN: [u8; 5] = *b"-----";

/// Makes calls. The first byte chooses the session, the second the size of the pieces in which the rest arrives as the
/// server's answer. Byte by byte and in those pieces the result is the same; each request is answered once; the end of a call
/// agrees with its answer.
pub fn call(data: &[u8]) {
    let [kind, size, stream @ ..] = data else {
        return;
    };
    let (single, answers) = by_bytes(*kind, stream);
    let pieces = answers
        .iter()
        .flat_map(|answer| answer.chunks(usize::from(*size).max(1)));
    let mut split = Conversation::new(*kind);
    let end = pieces.map(|piece| split.feed(piece)).find(Result::is_err);
    split.lost = end.unwrap_or(Ok(())).err();
    split.close();
    assert_eq!(split.ends, single.ends);
    assert_eq!(split.lost, single.lost);
    assert_eq!(split.session.round_trips(), single.session.round_trips());
    assert_eq!(split.sent, single.sent);
}

/// The conversation byte by byte, and the stream cut behind each answer.
fn by_bytes(kind: u8, stream: &[u8]) -> (Conversation, Vec<&[u8]>) {
    let mut single = Conversation::new(kind);
    let (mut answers, mut begin, mut of_call) = (Vec::new(), 0, 0);
    for (i, byte) in stream.chunks(1).enumerate() {
        let (trips, calls) = (single.session.round_trips(), single.ends.len());
        if let Err(error) = single.feed(byte) {
            single.lost = Some(error);
            break;
        }
        if single.session.round_trips() != trips {
            answers.push(&stream[begin..=i]);
            begin = i + 1;
        }
        if single.ends.len() > calls {
            check_call(&single, &stream[of_call..=i], &stream[..=i]);
            of_call = i + 1;
        }
    }
    answers.push(&stream[begin..]);
    single.close();
    (single, answers)
}

/// The call that has just ended, by its answer and by all that the server has sent so far.
fn check_call(conversation: &Conversation, answer: &[u8], all: &[u8]) {
    let Some((end, notices)) = conversation.ends.last() else {
        return;
    };
    let count = |tag| messages(answer).filter(|(t, _)| *t == tag).count();
    let words = (count(b'N') > 0).then(|| format!("the server sent {} notices meanwhile", count(b'N')));
    assert_eq!(notices, &words);
    match end {
        CallEnd::Ok => assert!(conversation.kind_of_scripts || count(b'E') == 0),
        CallEnd::Failed { code, .. } => assert!(*code == OWN || count(b'E') > 0),
        CallEnd::NotMade => panic!("no call is late"),
    }
    // A status that is missing is no answer.
    let ready: Vec<_> = messages(all).filter(|(tag, _)| *tag == b'Z').collect();
    if ready.iter().all(|(_, body)| !body.is_empty()) {
        assert_eq!(conversation.requests, ready.len());
    }
}

/// A session in non-blocking mode, and the server's end.
struct Conversation {
    session: Box<dyn Session>,
    kind_of_scripts: bool,
    server: UnixStream,
    sent: Vec<u8>,
    /// Sync and Query messages up to the end of the last call: each asks for one ReadyForQuery.
    requests: usize,
    /// The end of each call, and the remark about it.
    ends: Vec<(CallEnd, Option<String>)>,
    lost: Option<Error>,
}

impl Conversation {
    fn new(kind: u8) -> Self {
        let (ours, server) = UnixStream::pair().expect("a pair of sockets");
        let client = Client::new(Wire::Plain(Arc::new(Socket::from(OwnedFd::from(ours)))));
        let kind_of_scripts = kind % 8 >= 4;
        let session: Box<dyn Session> = if kind_of_scripts {
            Box::new(ScriptSession::new(client, scripts(kind % 8), 0, None))
        } else {
            Box::new(PgSession::new(client, statements(kind % 8)))
        };
        server.set_nonblocking(true).expect("a socket");
        let mut new = Self {
            session,
            kind_of_scripts,
            server,
            sent: Vec::new(),
            requests: 0,
            ends: Vec::new(),
            lost: None,
        };
        new.session.set_blocking(false).expect("a socket");
        new.begin().expect("a server that listens");
        new
    }

    fn begin(&mut self) -> Result<()> {
        let progress = self.session.begin(Start::default())?;
        assert_eq!(progress, Progress::Read);
        Ok(())
    }

    /// Hands the session a piece of what the server sends. This is the one place that knows of the socket between them.
    fn feed(&mut self, piece: &[u8]) -> Result<()> {
        self.server.write_all(piece).expect("room for a short piece");
        let trips = self.session.round_trips();
        let progress = self.session.advance(&mut [0; 4096])?;
        if self.session.round_trips() != trips {
            self.receive();
        }
        match progress {
            Progress::Read => Ok(()),
            Progress::Done(end) => {
                self.receive();
                self.ends.push((end, self.session.remark()));
                self.requests = requests(&self.sent);
                self.begin()
            }
            Progress::Write | Progress::Sleep(_) => {
                panic!("{progress:?}: requests are short and none pauses")
            }
        }
    }

    /// Takes the requests that the session has sent.
    fn receive(&mut self) {
        // WouldBlock: that was all.
        let _ = self.server.read_to_end(&mut self.sent);
    }

    /// The server leaves, unless the session was lost before.
    fn close(&mut self) {
        self.receive();
        requests(&self.sent);
        if self.lost.is_none() {
            self.server.shutdown(std::net::Shutdown::Write).expect("a socket");
            let end = self.session.advance(&mut [0; 4096]);
            assert!(matches!(end, Err(Error::Lost(_))), "{end:?}");
            self.lost = end.err();
        }
    }
}

/// Sync and Query messages among what was sent, which must be whole messages.
fn requests(sent: &[u8]) -> usize {
    let all: Vec<_> = messages(sent).collect();
    assert_eq!(
        all.iter().map(|(_, body)| 5 + body.len()).sum::<usize>(),
        sent.len()
    );
    assert!(all.iter().all(|(tag, _)| b"PCBDESQ".contains(tag)));
    all.iter().filter(|(tag, _)| b"SQ".contains(tag)).count()
}

fn statements(kind: u8) -> Arc<plan::Plan> {
    let (count, protocol, pipeline) = match kind {
        0 => (1, Protocol::Prepared, false),
        1 => (3, Protocol::Extended, false),
        2 => (3, Protocol::Prepared, true),
        _ => (2, Protocol::Simple, false),
    };
    let statement = StatementSpec {
        sql: "select 1".to_owned(),
        params: Vec::new(),
    };
    let spec = SessionSpec {
        count: 1,
        setup: Vec::new(),
        call: vec![statement; count],
        protocol,
        pipeline,
        warm_calls: 0,
        warm: Vec::new(),
        pause_ms: 0,
    };
    Arc::new(plan::Plan::new(spec).expect("a plan"))
}

fn scripts(kind: u8) -> Arc<Plan> {
    let (text, protocol) = match kind {
        4 => ("select 1 as x \\gset p_\nselect :p_x;", Protocol::Prepared),
        5 => (
            "select 1 as x\\; select 2 as y \\aset\n\\if :y = 2\nselect :x;\n\\endif",
            Protocol::Simple,
        ),
        6 => (
            "\\set a random(1, 9)\nbegin;\n\\startpipeline\nselect :a;\nselect 2;\n\\syncpipeline\nselect 3;\n\\endpipeline\nend;",
            Protocol::Extended,
        ),
        _ => ("begin;\nupdate t set a = a + 1;\ncommit;", Protocol::Prepared),
    };
    let (mut scripts, mut session) = specs(text, &[("y", "0")], protocol);
    scripts.max_tries = 2;
    session.validation = (kind == 7).then(|| "select 1".to_owned());
    Arc::new(Plan::new(scripts, session).expect("a plan"))
}
