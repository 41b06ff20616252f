//! Bytes of what is sent in a call (PostgreSQL documentation, "Message Formats").

/// Bind to the unnamed portal (parameters and results as text), Execute without a row limit, Sync.
/// No Describe: nobody reads the column names.
pub fn bind_execute_sync(name: &str, params: &[Option<String>]) -> Vec<u8> {
    let mut bind = vec![0];
    bind.extend_from_slice(name.as_bytes());
    bind.push(0);
    bind.extend_from_slice(&0_u16.to_be_bytes());
    bind.extend_from_slice(&(params.len() as u16).to_be_bytes());
    for param in params {
        let text = param.as_deref();
        bind.extend_from_slice(&text.map_or(-1, |t| t.len() as i32).to_be_bytes());
        bind.extend_from_slice(text.unwrap_or_default().as_bytes());
    }
    bind.extend_from_slice(&0_u16.to_be_bytes());
    [message(b'B', &bind), message(b'E', &[0; 5]), message(b'S', &[])].concat()
}

/// Parse of the unnamed statement, the types of its parameters left to the server.
pub fn parse(sql: &str) -> Vec<u8> {
    message(
        b'P',
        &[b"\0", sql.as_bytes(), b"\0", &0_u16.to_be_bytes()].concat(),
    )
}

/// Query: a text of statements.
pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), b"\0"].concat())
}

/// Type, length, body.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag][..], &length, body].concat()
}

/// The server's ReadyForQuery.
#[cfg(test)]
pub fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// The server's ErrorResponse.
#[cfg(test)]
pub fn error(severity: &str, code: &str) -> Vec<u8> {
    message(
        b'E',
        format!("S{severity}\0V{severity}\0C{code}\0Mwords\0\0").as_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use postgres_protocol::{IsNull, message::frontend};
    use proptest::prelude::*;

    /// By hand from the PostgreSQL documentation, "Message Formats": Bind, Execute, Sync.
    #[test]
    fn golden_bytes_of_a_call() {
        let expected = [
            &b"B\x00\x00\x00\x16\x00d0\x00\x00\x00\x00\x02\x00\x00\x00\x0264"[..],
            &b"\xff\xff\xff\xff\x00\x00"[..],
            &b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"[..],
            &b"S\x00\x00\x00\x04"[..],
        ];
        let mut expected = expected.concat();
        expected[4] = 4 + 1 + 3 + 2 + 2 + (4 + 2) + 4 + 2;
        assert_eq!(bind_execute_sync("d0", &[Some("64".into()), None]), expected);
    }

    proptest! {
        /// The same bytes as an independent implementation makes.
        #[test]
        fn as_postgres_protocol_has_it(params in prop::collection::vec(prop::option::of(".{0,40}"), 0..6)) {
            let mut bytes = BytesMut::new();
            let value = |p: &Option<String>, out: &mut BytesMut| {
                out.extend_from_slice(p.as_deref().unwrap_or_default().as_bytes());
                Ok(if p.is_some() { IsNull::No } else { IsNull::Yes })
            };
            let bound = frontend::bind("", "d7", [], &params, value, std::iter::empty::<i16>(), &mut bytes);
            prop_assert!(bound.is_ok());
            frontend::execute("", 0, &mut bytes).unwrap();
            frontend::sync(&mut bytes);
            prop_assert_eq!(bind_execute_sync("d7", &params), bytes.to_vec());
        }
    }

    /// By hand from the same page: Parse and Query.
    #[test]
    fn golden_bytes_of_texts() {
        assert_eq!(parse("select 1"), b"P\x00\x00\x00\x10\x00select 1\x00\x00\x00");
        assert_eq!(query("select 1"), b"Q\x00\x00\x00\x0dselect 1\x00");
    }

    proptest! {
        #[test]
        fn texts_as_postgres_protocol_has_them(sql in "[^\\x00]{0,40}") {
            let (mut parsed, mut queried) = (BytesMut::new(), BytesMut::new());
            frontend::parse("", &sql, [], &mut parsed).unwrap();
            frontend::query(&sql, &mut queried).unwrap();
            prop_assert_eq!(parse(&sql), parsed.to_vec());
            prop_assert_eq!(query(&sql), queried.to_vec());
        }
    }
}
