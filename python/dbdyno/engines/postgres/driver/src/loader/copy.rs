//! A COPY of one chunk over a blocking connection.

use bytes::BytesMut;
use dyno_model::poll::is_readable;
use dyno_model::{Error, Result};
use postgres_protocol::message::frontend;

use super::binary::{HEADER, TRAILER};
use super::table::{Chunk, Sum, Table};
use crate::client::Client;
use crate::server_error::ServerError;
use crate::wire::Wire;

/// Size of one `CopyData` message.
const MESSAGE_BYTES: usize = 128 * 1024;

/// Copies the chunk by `sql`; `sent`: rows and bytes of each message. An error leaves the connection at an open
/// COPY: it is of no further use.
pub fn copy(
    client: &mut Client,
    sql: &str,
    table: &Table,
    chunk: &Chunk,
    mut sent: impl FnMut(u64, u64),
) -> Result<Sum> {
    let mut query = BytesMut::new();
    frontend::query(sql, &mut query).map_err(|e| Error::Spec(e.to_string()))?;
    client.send(&query)?;
    until(client, b'G')?;
    let mut out = Vec::with_capacity(MESSAGE_BYTES + 8 * 1024);
    begin(&mut out);
    out.extend(HEADER);
    let (mut rows, mut bytes) = (0, 0);
    let mut sum = table.generate(chunk, &mut out, |out, sum| {
        if out.len() >= MESSAGE_BYTES {
            bytes += out.len() as u64;
            send(client, out)?;
            sent(sum.rows - rows, out.len() as u64);
            rows = sum.rows;
            begin(out);
        }
        Ok(())
    })?;
    out.extend(TRAILER);
    sum.bytes = bytes + out.len() as u64;
    send(client, &mut out)?;
    sent(sum.rows - rows, out.len() as u64);
    client.send(&[b'c', 0, 0, 0, 4])?;
    until(client, b'Z')?;
    Ok(sum)
}

/// A `CopyData` message whose length is not known yet.
fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.extend([b'd', 0, 0, 0, 0]);
}

/// A server that has refused would read all the rest and drop it: asked for before each message.
fn send(client: &mut Client, out: &mut [u8]) -> Result<()> {
    let length = (out.len() - 1) as u32;
    out[1..5].copy_from_slice(&length.to_be_bytes());
    if matches!(client.wire, Wire::Plain(_)) && is_readable(client.fd()) {
        let message = client.receive()?;
        if message.tag == b'E' {
            return Err(ServerError::parse(message.body).into_session_error());
        }
    }
    // What the server sent before it closed is the reason, not the broken pipe.
    client.send(out).or_else(|e| until(client, b'Z').and(Err(e)))
}

/// Reads up to a message of that kind. In answer to a query that fails there is ReadyForQuery alone.
fn until(client: &mut Client, wanted: u8) -> Result<()> {
    loop {
        let message = client.receive()?;
        match message.tag {
            b'E' => return Err(ServerError::parse(message.body).into_session_error()),
            b'Z' if wanted != b'Z' => {
                return Err(Error::Spec("the statement is no COPY FROM STDIN".to_owned()));
            }
            tag if tag == wanted => return Ok(()),
            _ => {}
        }
    }
}
