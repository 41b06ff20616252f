//! From a connected socket to a session that is ready: TLS, start-up, authentication.

use std::time::Instant;

use bytes::BytesMut;
use dyno_model::{Breaker, Error, Result};
use postgres_protocol::message::frontend;

use crate::authentication::{authenticate, unexpected};
use crate::client::Client;
use crate::collector::LONGEST_IN_STARTUP;
use crate::frame::{LONGEST_HELD, Message};
use crate::server_error::ServerError;
use crate::socket::{self, lost};
use crate::target::TargetSpec;
use crate::tls::{TlsSetup, TlsStream};
use crate::wire::Wire;

/// A request to cancel is a favour: the server that does not even take it is left alone.
const CANCEL_MS: u64 = 1000;
const CANCEL_REQUEST: [u8; 4] = 80_877_102_u32.to_be_bytes();

impl Client {
    /// Connects and authenticates.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Tls`], [`Error::Authentication`], [`Error::Server`] (no such
    /// database, too many connections, ...), [`Error::Aborted`].
    pub fn connect(target: &TargetSpec, tls: Option<&TlsSetup>, breaker: &Breaker) -> Result<Self> {
        let client = connect(target, tls, breaker);
        // What a broken-off connection complains of is not the reason.
        client.map_err(|e| if breaker.is_broken() { Error::Aborted } else { e })
    }
}

/// A client of `target` that is ready for queries, by the target's time limit.
fn connect(target: &TargetSpec, tls: Option<&TlsSetup>, breaker: &Breaker) -> Result<Client> {
    let deadline = Instant::now() + target.connect_timeout();
    let mut wire = Wire::Plain(socket::connect(target, deadline, breaker)?);
    if let Some(setup) = tls {
        wire = encrypt(wire, setup, deadline)?;
    }
    let mut client = Client::new(wire);
    client.breaker = breaker.clone();
    client.set_deadline(Some(deadline))?;
    start(&mut client, target)?;
    // The time limit was that of connecting; calls have none.
    client.set_timeout(None)?;
    Ok(client)
}

/// Start-up over a connected stream: from the first message until the server is ready.
pub(crate) fn start(client: &mut Client, target: &TargetSpec) -> Result<()> {
    // A server that is none must not make us hold much before it has shown who it is.
    client.set_longest(LONGEST_IN_STARTUP);
    client.send(&startup_message(target)?)?;
    authenticate(client, target)?;
    finish(client)?;
    client.set_longest(LONGEST_HELD);
    Ok(())
}

/// Asks the server to cancel what the session with `key` is at, on a connection of its own, as encrypted as
/// that one.
pub fn cancel(target: &TargetSpec, tls: Option<&TlsSetup>, key: &[u8]) -> Result<()> {
    let target = TargetSpec {
        connect_timeout_ms: CANCEL_MS,
        ..target.clone()
    };
    let deadline = Instant::now() + target.connect_timeout();
    let mut wire = Wire::Plain(socket::connect(&target, deadline, &Breaker::default())?);
    if let Some(setup) = tls {
        wire = encrypt(wire, setup, deadline)?;
    }
    let mut request = ((key.len() + 8) as u32).to_be_bytes().to_vec();
    request.extend(CANCEL_REQUEST);
    request.extend(key);
    wire.send_all(&request).map_err(|e| lost(&e))
}

fn startup_message(target: &TargetSpec) -> Result<BytesMut> {
    let parameters = [
        ("user", target.user.as_str()),
        ("database", target.database.as_str()),
        ("application_name", target.application_name.as_str()),
        ("client_encoding", "UTF8"),
    ];
    let mut bytes = BytesMut::new();
    frontend::startup_message(parameters, &mut bytes).map_err(|e| Error::Spec(e.to_string()))?;
    Ok(bytes)
}

/// SSLRequest: one byte says whether the server will. What it sends behind that byte is no TLS record: refused
/// in the handshake, so nothing is smuggled in before it.
fn encrypt(mut wire: Wire, setup: &TlsSetup, deadline: Instant) -> Result<Wire> {
    if !setup.direct {
        let mut request = BytesMut::new();
        frontend::ssl_request(&mut request);
        wire.send_all(&request).map_err(|e| lost(&e))?;
        let mut answer = [0];
        let armed = socket::arm(wire.socket(), deadline);
        match armed
            .and_then(|()| wire.recv(&mut answer))
            .map_err(|e| lost(&e))?
        {
            0 => {
                return Err(Error::Lost(
                    "the server closed the connection when asked for TLS".to_owned(),
                ));
            }
            _ if answer == *b"S" => {}
            _ if answer == *b"N" => {
                return Err(Error::Tls(
                    "the server does not support TLS on this connection, although the first one used it: does a proxy in \
                     between remove it?"
                        .to_owned(),
                ));
            }
            _ => return Err(unexpected(answer[0])),
        }
    }
    let stream = TlsStream::connect(setup, wire.socket().clone(), deadline)?;
    Ok(Wire::Tls(Box::new(stream)))
}

/// Parameters and the process id, until the server is ready.
fn finish(client: &mut Client) -> Result<()> {
    loop {
        let Message { tag, body } = client.receive()?;
        match tag {
            b'Z' => return Ok(()),
            b'K' => {
                let key = body.to_vec();
                let pid = body.first_chunk().map(|b| i64::from(u32::from_be_bytes(*b)));
                (client.backend_pid, client.key) = (pid, key);
            }
            b'E' => return Err(ServerError::parse(body).into_connect_error()),
            b'S' | b'N' => {}
            other => return Err(unexpected(other)),
        }
    }
}
