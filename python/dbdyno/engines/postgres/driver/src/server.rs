//! The server of a load: connecting to it, probing, cancelling; the same for every kind of session.

use std::collections::HashMap;
use std::time::Duration;

use dyno_model::{Breaker, Counter, Error, Reading, Result};

use crate::client::{Client, Rows};
use crate::plan::{CounterSpec, ProbeSpec};
use crate::startup;
use crate::target::TargetSpec;
use crate::tls::TlsSetup;

/// A probe is a matter of milliseconds; a server that takes longer than this is given up on.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of setting up a session; warming may take as long as a call.
pub(crate) const SETUP_TIMEOUT: Duration = Duration::from_secs(60);

/// A server, with the probe of its sessions' counters.
pub(crate) struct Server {
    target: TargetSpec,
    tls: Option<TlsSetup>,
    breaker: Breaker,
    probe: Option<ProbeSpec>,
    pub counters: Vec<Counter>,
}

impl Server {
    /// Reads certificates; connects nothing yet.
    ///
    /// # Errors
    /// [`Error::Tls`].
    pub fn new(target: TargetSpec, probe: Option<ProbeSpec>) -> Result<Self> {
        let tls = target.tls.as_ref().map(TlsSetup::new).transpose()?;
        let columns = probe.iter().flat_map(|p| &p.columns);
        let counters = columns.map(CounterSpec::counter).collect();
        Ok(Self {
            target,
            tls,
            breaker: Breaker::default(),
            probe,
            counters,
        })
    }

    /// Connects a session for the first time.
    pub fn connect(&self) -> Result<Client> {
        self.connect_again(&self.breaker.child()?)
    }

    /// Connects the session that has this breaker once more.
    pub fn connect_again(&self, breaker: &Breaker) -> Result<Client> {
        Client::connect(&self.target, self.tls.as_ref(), breaker)
    }

    /// Returns `Aborted` if all was broken off: what a connection complains of then is not the reason.
    pub fn reason(&self, error: Error) -> Error {
        if self.breaker.is_broken() {
            Error::Aborted
        } else {
            error
        }
    }

    /// Reads each counter.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub fn probe(&self, client: &mut Client) -> Result<Vec<Reading>> {
        let Some(probe) = &self.probe else {
            return Ok(Vec::new());
        };
        client.set_timeout(Some(PROBE_TIMEOUT))?;
        let flushed = probe.flush.iter().try_for_each(|sql| client.execute(sql));
        let rows = flushed.and_then(|()| client.simple_query(&probe.read));
        client.set_timeout(None)?;
        Ok(readings(&self.counters, &rows?))
    }

    /// Readings without values after a probe that failed.
    pub fn unknown(&self, error: &Error) -> Vec<Reading> {
        vec![Reading::unknown(status(error)); self.counters.len()]
    }

    /// Asks the server to cancel what the session with `key` is at.
    ///
    /// # Errors
    /// When it does not take the request.
    pub fn cancel(&self, key: &[u8]) -> Result<()> {
        startup::cancel(&self.target, self.tls.as_ref(), key)
    }

    pub fn abort(&self) {
        self.breaker.abort();
    }
}

/// The first row's values, by name of the column.
fn readings(counters: &[Counter], rows: &Rows) -> Vec<Reading> {
    let first = rows.rows.first().map_or(&[][..], Vec::as_slice);
    let by_name: HashMap<&str, &Option<String>> =
        rows.columns.iter().map(String::as_str).zip(first).collect();
    let read = |counter: &Counter| {
        let text = by_name.get(counter.name.as_str()).and_then(|v| v.as_deref());
        match text.and_then(|t| t.parse().ok()) {
            Some(value) => Reading {
                value: Some(value),
                status: "ok",
            },
            None => Reading::unknown("not supported"),
        }
    };
    counters.iter().map(read).collect()
}

/// Why a probe has no values (`model/sources/source.py`, Status).
fn status(error: &Error) -> &'static str {
    match error.code() {
        Some("42501") => "not permitted",
        // Syntax error or access rule violation (no such function, column, view); feature not supported.
        Some(code) if code.starts_with("42") || code.starts_with("0A") => "not supported",
        _ => "lost",
    }
}
