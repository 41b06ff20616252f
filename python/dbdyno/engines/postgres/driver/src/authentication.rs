//! Authentication, only by methods that the target allows (PostgreSQL documentation,
//! "SASL Authentication"; libpq's `require_auth` and `channel_binding`).

use bytes::BytesMut;
use dyno_model::{Error, Result};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;

use crate::client::Client;
use crate::frame::Message;
use crate::server_error::ServerError;
use crate::target::{AuthSpec, Binding, Method, TargetSpec};
use crate::wire::Wire;

/// Answers the server's requests until it is content.
pub fn authenticate(client: &mut Client, target: &TargetSpec) -> Result<()> {
    let mut shown = Shown::Nothing;
    loop {
        let (code, data) = next_request(client)?;
        shown = match code {
            0 => return content(&target.auth, shown),
            3 => cleartext(client, target)?,
            5 => md5(client, target, &data)?,
            10 => scram(client, target, &data)?,
            other => return Err(refused(format!("the server asks for {}", unknown(other)))),
        }
    }
}

/// Whether credentials were sent to the server, and bound to the TLS channel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Unbound,
    Bound,
}

/// Checks, when the server lets us in, that it asked for no less than is required.
fn content(auth: &AuthSpec, shown: Shown) -> Result<()> {
    if auth.channel_binding == Binding::Require && shown != Shown::Bound {
        return Err(unbound("the server let us in without it"));
    }
    if shown == Shown::Nothing {
        return allowed(auth, Method::None);
    }
    Ok(())
}

fn cleartext(client: &mut Client, target: &TargetSpec) -> Result<Shown> {
    let mut answer = BytesMut::new();
    let password = password(target, Method::Password)?;
    frontend::password_message(password.as_bytes(), &mut answer).map_err(spec)?;
    client.send(&answer)?;
    Ok(Shown::Unbound)
}

fn md5(client: &mut Client, target: &TargetSpec, salt: &[u8]) -> Result<Shown> {
    let password = password(target, Method::Md5)?;
    let salt = salt
        .try_into()
        .map_err(|_| Error::Protocol("md5 salt is not four bytes".to_owned()))?;
    let hash = md5_hash(target.user.as_bytes(), password.as_bytes(), salt);
    let mut answer = BytesMut::new();
    frontend::password_message(hash.as_bytes(), &mut answer).map_err(spec)?;
    client.send(&answer)?;
    Ok(Shown::Unbound)
}

/// SCRAM-SHA-256 (RFC 5802, 7677), bound to the TLS channel (RFC 5929) where the server can.
fn scram(client: &mut Client, target: &TargetSpec, mechanisms: &[u8]) -> Result<Shown> {
    allowed(&target.auth, Method::Scram)?;
    let (name, binding) = mechanism(&client.wire, target.auth.channel_binding, mechanisms)?;
    let mut scram = ScramSha256::new(password(target, Method::Scram)?.as_bytes(), binding);
    let mut answer = BytesMut::new();
    frontend::sasl_initial_response(name, scram.message(), &mut answer).map_err(spec)?;
    client.send(&answer)?;
    scram.update(&expect(client, 11)?).map_err(sasl)?;
    answer.clear();
    frontend::sasl_response(scram.message(), &mut answer).map_err(spec)?;
    client.send(&answer)?;
    scram.finish(&expect(client, 12)?).map_err(sasl)?;
    Ok(if name == SCRAM_SHA_256_PLUS {
        Shown::Bound
    } else {
        Shown::Unbound
    })
}

/// The best of the offered mechanisms, as libpq chooses.
fn mechanism(wire: &Wire, wanted: Binding, offered: &[u8]) -> Result<(&'static str, ChannelBinding)> {
    let offers = |name: &str| offered.split(|&b| b == 0).any(|m| m == name.as_bytes());
    let end_point = match wire {
        Wire::Plain(_) => None,
        Wire::Tls(tls) => tls.end_point(),
    };
    if offers(SCRAM_SHA_256_PLUS) {
        match end_point {
            Some(hash) if wanted != Binding::Disable => {
                return Ok((SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash)));
            }
            None if matches!(wire, Wire::Plain(_)) => {
                return Err(refused(
                    "the server offers SCRAM-SHA-256-PLUS over a connection without TLS".to_owned(),
                ));
            }
            _ => {}
        }
    }
    if wanted == Binding::Require {
        return Err(unbound(if offers(SCRAM_SHA_256_PLUS) {
            "the server's certificate has no hash to bind to"
        } else {
            "the server does not offer it here"
        }));
    }
    if !offers(SCRAM_SHA_256) {
        let offered = String::from_utf8_lossy(offered).replace('\0', " ");
        let offered: String = offered.chars().take(80).collect();
        return Err(refused(format!(
            "the server offers {}: SCRAM-SHA-256 is not among them",
            offered.trim()
        )));
    }
    // "We could, but the server does not offer it": a server that did will notice.
    let could = wanted == Binding::Prefer && !offers(SCRAM_SHA_256_PLUS) && matches!(wire, Wire::Tls(_));
    let binding = if could {
        ChannelBinding::unrequested()
    } else {
        ChannelBinding::unsupported()
    };
    Ok((SCRAM_SHA_256, binding))
}

/// The password, to be shown by `method`.
fn password(target: &TargetSpec, method: Method) -> Result<&str> {
    allowed(&target.auth, method)?;
    if method != Method::Scram && target.auth.channel_binding == Binding::Require {
        return Err(unbound(&format!("the server asks for {}", request(method))));
    }
    target.password.as_deref().ok_or_else(|| {
        refused(format!(
            "the server asks for the password of user {:?}, and none was given",
            target.user
        ))
    })
}

fn allowed(auth: &AuthSpec, method: Method) -> Result<()> {
    match &auth.methods {
        Some(methods) if !methods.contains(&method) => {
            let names: Vec<_> = methods.iter().map(|m| name(*m)).collect();
            let only = if names.is_empty() {
                "no method that the driver supports".to_owned()
            } else {
                names.join(", ")
            };
            Err(refused(format!(
                "the server asks for {}; allowed by require_auth, or by what the first connection met: {only}; is \
                 there a proxy in between?",
                request(method)
            )))
        }
        _ => Ok(()),
    }
}

fn name(method: Method) -> &'static str {
    match method {
        Method::None => "none",
        Method::Password => "password",
        Method::Md5 => "md5",
        Method::Scram => "scram-sha-256",
    }
}

fn request(method: Method) -> &'static str {
    match method {
        Method::None => "no authentication",
        Method::Password => "the password in clear text",
        Method::Md5 => "the MD5 hash of the password",
        Method::Scram => "SASL authentication",
    }
}

fn unknown(code: u32) -> String {
    match code {
        2 => "Kerberos V5, which is not supported".to_owned(),
        7 | 8 => "GSSAPI, which is not supported".to_owned(),
        9 => "SSPI, which is not supported".to_owned(),
        other => format!("authentication method {other}, which is not supported"),
    }
}

fn unbound(why: &str) -> Error {
    refused(format!(
        "channel binding (SCRAM-SHA-256-PLUS) is required by channel_binding, or because the first connection used \
         it: {why}; is there a proxy in between?"
    ))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn sasl(error: std::io::Error) -> Error {
    refused(format!("SCRAM: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn spec(error: std::io::Error) -> Error {
    Error::Spec(error.to_string())
}

fn refused(message: String) -> Error {
    Error::Authentication { code: None, message }
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

/// The error of a message that belongs to no start-up.
pub fn unexpected(tag: u8) -> Error {
    Error::Protocol(format!(
        "message {:?} while connecting: this is not a PostgreSQL server",
        char::from(tag)
    ))
}
