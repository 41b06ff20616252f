//! PostgreSQL as an engine of the driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dyno_model::{CallEnd, Counter, Engine, Error, Reading, Result};

use crate::breaker::Breaker;
use crate::client::{Client, Rows};
use crate::plan::{CounterSpec, LoadSpec, Plan, ProbeSpec};
use crate::server_error::refusal;
use crate::session::PgSession;
use crate::startup;
use crate::target::TargetSpec;
use crate::tls::TlsSetup;

/// A probe is a matter of milliseconds; a server that takes longer than this is given up on.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// So is what makes a session; warming may take as long as a call.
const SETUP_TIMEOUT: Duration = Duration::from_secs(60);
const BUFFER_BYTES: usize = 64 * 1024;

/// Makes sessions on one server.
pub struct Postgres {
    target: TargetSpec,
    tls: Option<TlsSetup>,
    breaker: Breaker,
    /// Of each session.
    plans: Vec<Arc<Plan>>,
    probe: Option<ProbeSpec>,
    counters: Vec<Counter>,
}

impl Postgres {
    /// Checks the specification and reads certificates; connects nothing yet.
    ///
    /// # Errors
    /// [`Error::Spec`], [`Error::Tls`].
    pub fn new(spec: LoadSpec) -> Result<Self> {
        let mut plans = Vec::new();
        for group in spec.sessions {
            let count = group.count;
            let plan = Arc::new(Plan::new(group)?);
            plans.extend(std::iter::repeat_n(plan, count));
        }
        if plans.is_empty() {
            return Err(Error::Spec("no sessions".to_owned()));
        }
        let tls = spec.target.tls.as_ref().map(TlsSetup::new).transpose()?;
        let counters = spec
            .probe
            .iter()
            .flat_map(|p| &p.columns)
            .map(CounterSpec::counter)
            .collect();
        let breaker = Breaker::default();
        Ok(Self {
            target: spec.target,
            tls,
            breaker,
            plans,
            probe: spec.probe,
            counters,
        })
    }

    fn read(&self, client: &mut Client, probe: &ProbeSpec) -> Result<Vec<Reading>> {
        client.set_timeout(Some(PROBE_TIMEOUT))?;
        let flushed = probe.flush.iter().try_for_each(|sql| client.execute(sql));
        let rows = flushed.and_then(|()| client.simple_query(&probe.read));
        client.set_timeout(None)?;
        Ok(readings(&self.counters, &rows?))
    }
}

impl Engine for Postgres {
    type Session = PgSession;

    fn sessions(&self) -> usize {
        self.plans.len()
    }

    fn connect(&self, session: usize) -> Result<PgSession> {
        let client = Client::connect(&self.target, self.tls.as_ref(), &self.breaker)?;
        Ok(PgSession::new(client, self.plans[session].clone()))
    }

    fn prepare(&self, session: usize, connection: &mut PgSession) -> Result<()> {
        let prepared = prepare(&self.plans[session], connection);
        prepared.map_err(|e| {
            if self.breaker.is_broken() {
                Error::Aborted
            } else {
                e
            }
        })
    }

    fn counters(&self) -> &[Counter] {
        &self.counters
    }

    fn probe(&self, connection: &mut PgSession) -> Vec<Reading> {
        let Some(probe) = &self.probe else {
            return Vec::new();
        };
        connection
            .with_client(|client| self.read(client, probe))
            .unwrap_or_else(|e| vec![Reading::unknown(status(&e)); self.counters.len()])
    }

    fn close(&self, connection: PgSession) {
        connection.into_client().close();
    }

    fn cancel(&self, connection: &PgSession) -> Result<()> {
        startup::cancel(&self.target, self.tls.as_ref(), connection.key())
    }

    fn abort(&self) {
        self.breaker.abort();
    }
}

fn prepare(plan: &Plan, session: &mut PgSession) -> Result<()> {
    session.with_client(|client| {
        client.set_timeout(Some(SETUP_TIMEOUT))?;
        for sql in &plan.spec.setup {
            client.execute(sql)?;
        }
        // Where nothing is kept prepared this is a check: parsed once, with the same refusals.
        for (i, statement) in plan.spec.call.iter().enumerate() {
            client.prepare(&plan.prepared_name(i), &statement.sql, statement.params.len())?;
        }
        client.set_timeout(None)?;
        plan.spec.warm.iter().try_for_each(|sql| client.execute(sql))
    })?;
    warm(plan, session)
}

/// Calls that are not counted; one that fails will fail again, so it is said now.
fn warm(plan: &Plan, session: &mut PgSession) -> Result<()> {
    if plan.spec.warm_calls == 0 {
        return Ok(());
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    for _ in 0..plan.spec.warm_calls {
        if let CallEnd::Failed { code, message } = session.call(&mut buffer)? {
            return Err(Error::Server {
                code: String::from_utf8_lossy(&code).into_owned(),
                refusal: refusal(code),
                message,
                position: None,
            });
        }
    }
    Ok(())
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

/// Why a probe has no values (`model/source.py`, Status).
fn status(error: &Error) -> &'static str {
    match error.code() {
        Some("42501") => "not permitted",
        // Syntax error or access rule violation (no such function, column, view); feature not supported.
        Some(code) if code.starts_with("42") || code.starts_with("0A") => "not supported",
        _ => "lost",
    }
}
