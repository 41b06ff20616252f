//! From a connected socket to a session that is ready: TLS, start-up, authentication.

use bytes::BytesMut;
use dyno_model::{Error, Result};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

use crate::breaker::Breaker;
use crate::client::{Client, lost};
use crate::frame::Message;
use crate::server_error::ServerError;
use crate::socket;
use crate::target::TargetSpec;
use crate::tls::{TlsSetup, TlsStream};
use crate::wire::Wire;

/// A client of `target` that is ready for queries.
pub fn connect(target: &TargetSpec, tls: Option<&TlsSetup>, breaker: &Breaker) -> Result<Client> {
    let mut wire = Wire::Plain(socket::connect(target, breaker)?);
    if let Some(setup) = tls {
        wire = encrypt(wire, setup)?;
    }
    let mut client = Client::new(wire);
    client.send(&startup_message(target)?)?;
    while !authenticated(&mut client, target)? {}
    finish(&mut client)?;
    client.set_timeout(None)?;
    Ok(client)
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

/// SSLRequest: one byte says whether the server will.
fn encrypt(mut wire: Wire, setup: &TlsSetup) -> Result<Wire> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    wire.send_all(&request).map_err(|e| lost(&e))?;
    let mut answer = [0];
    match wire.recv(&mut answer).map_err(|e| lost(&e))? {
        0 => Err(Error::Lost(
            "the server closed the connection when asked for TLS".to_owned(),
        )),
        _ if answer == *b"S" => Ok(Wire::Tls(Box::new(TlsStream::connect(
            setup,
            wire.socket().clone(),
        )?))),
        _ => Err(Error::Tls(
            "the server does not support TLS; connect with sslmode=disable".to_owned(),
        )),
    }
}

/// Answers one request for authentication; true when the server is content.
fn authenticated(client: &mut Client, target: &TargetSpec) -> Result<bool> {
    let (code, data) = next_request(client)?;
    let mut answer = BytesMut::new();
    match code {
        0 => return Ok(true),
        3 => frontend::password_message(password(target)?.as_bytes(), &mut answer),
        5 => {
            let salt = data
                .try_into()
                .map_err(|_| Error::Protocol("md5 salt is not four bytes".to_owned()))?;
            let hash = md5_hash(target.user.as_bytes(), password(target)?.as_bytes(), salt);
            frontend::password_message(hash.as_bytes(), &mut answer)
        }
        10 => return scram(client, target, &data).map(|()| false),
        other => {
            return Err(refused(format!(
                "the server asks for {}, which is not supported",
                method(other)
            )));
        }
    }
    .map_err(|e| Error::Spec(e.to_string()))?;
    client.send(&answer)?;
    Ok(false)
}

fn method(code: u32) -> String {
    match code {
        2 => "Kerberos V5".to_owned(),
        7 | 8 => "GSSAPI".to_owned(),
        9 => "SSPI".to_owned(),
        other => format!("authentication method {other}"),
    }
}

/// SCRAM-SHA-256 (RFC 5802, 7677), without channel binding.
fn scram(client: &mut Client, target: &TargetSpec, mechanisms: &[u8]) -> Result<()> {
    if !mechanisms
        .split(|&b| b == 0)
        .any(|m| m == SCRAM_SHA_256.as_bytes())
    {
        let offered = String::from_utf8_lossy(mechanisms).replace('\0', " ");
        return Err(refused(format!(
            "the server offers {offered}: SCRAM-SHA-256 is not among them"
        )));
    }
    let mut scram = ScramSha256::new(password(target)?.as_bytes(), ChannelBinding::unsupported());
    let mut answer = BytesMut::new();
    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut answer).map_err(sasl)?;
    client.send(&answer)?;
    scram.update(&expect(client, 11)?).map_err(sasl)?;
    answer.clear();
    frontend::sasl_response(scram.message(), &mut answer).map_err(sasl)?;
    client.send(&answer)?;
    scram.finish(&expect(client, 12)?).map_err(sasl)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn sasl(error: std::io::Error) -> Error {
    refused(format!("SCRAM: {error}"))
}

fn refused(message: String) -> Error {
    Error::Authentication {
        sqlstate: None,
        message,
    }
}

fn password(target: &TargetSpec) -> Result<&str> {
    target.password.as_deref().ok_or_else(|| {
        refused(format!(
            "the server asks for the password of user {:?}, and none was given",
            target.user
        ))
    })
}

fn expect(client: &mut Client, wanted: u32) -> Result<Vec<u8>> {
    match next_request(client)? {
        (code, data) if code == wanted => Ok(data),
        (code, _) => Err(Error::Protocol(format!(
            "authentication request {code} where {wanted} was due"
        ))),
    }
}

/// The next AuthenticationXXX: its code and data.
fn next_request(client: &mut Client) -> Result<(u32, Vec<u8>)> {
    loop {
        let Message { tag, body } = client.receive()?;
        match (tag, body.split_first_chunk()) {
            (b'R', Some((code, data))) => return Ok((u32::from_be_bytes(*code), data.to_vec())),
            (b'E', _) => return Err(ServerError::parse(body).into_connect_error()),
            // A notice, or the server's offer of an older protocol minor.
            (b'N' | b'v', _) => {}
            (other, _) => return Err(unexpected(other)),
        }
    }
}

/// Parameters and the process id, until the server is ready.
fn finish(client: &mut Client) -> Result<()> {
    loop {
        let Message { tag, body } = client.receive()?;
        match tag {
            b'Z' => return Ok(()),
            b'K' => {
                let pid = body.first_chunk().map(|b| i64::from(u32::from_be_bytes(*b)));
                client.backend_pid = pid;
            }
            b'E' => return Err(ServerError::parse(body).into_connect_error()),
            b'S' | b'N' => {}
            other => return Err(unexpected(other)),
        }
    }
}

fn unexpected(tag: u8) -> Error {
    Error::Protocol(format!(
        "message {:?} while connecting: this is not a PostgreSQL server",
        char::from(tag)
    ))
}
