//! PostgreSQL as an engine of the driver.

use std::sync::Arc;

use dyno_model::{CallEnd, Counter, Engine, Error, Reading, Result, count_sessions};

use crate::plan::{LoadSpec, Plan};
use crate::server::{SETUP_TIMEOUT, Server};
use crate::server_error::refusal;
use crate::session::PgSession;

const BUFFER_BYTES: usize = 64 * 1024;

/// Makes sessions on one server.
pub struct Postgres {
    server: Server,
    /// The plan of each session.
    plans: Vec<Arc<Plan>>,
}

impl Postgres {
    /// Checks the specification and reads certificates; connects nothing yet.
    ///
    /// # Errors
    /// [`Error::Spec`], [`Error::Tls`].
    pub fn new(spec: LoadSpec) -> Result<Self> {
        count_sessions(spec.sessions.iter().map(|group| group.count))?;
        let mut plans = Vec::new();
        for group in spec.sessions {
            let count = group.count;
            let plan = Arc::new(Plan::new(group)?);
            plans.extend(std::iter::repeat_n(plan, count));
        }
        let server = Server::new(spec.target, spec.probe)?;
        Ok(Self { server, plans })
    }
}

impl Engine for Postgres {
    type Session = PgSession;

    fn sessions(&self) -> usize {
        self.plans.len()
    }

    fn connect(&self, session: usize) -> Result<PgSession> {
        let client = self.server.connect()?;
        Ok(PgSession::new(client, self.plans[session].clone()))
    }

    fn prepare(&self, session: usize, connection: &mut PgSession) -> Result<()> {
        prepare(&self.plans[session], connection).map_err(|e| self.server.reason(e))
    }

    fn counters(&self) -> &[Counter] {
        &self.server.counters
    }

    fn probe(&self, connection: &mut PgSession) -> Vec<Reading> {
        connection.probe(&self.server)
    }

    fn close(&self, connection: PgSession) {
        connection.client.close();
    }

    fn cancel(&self, connection: &PgSession) -> Result<()> {
        self.server.cancel(&connection.client.key)
    }

    fn abort(&self) {
        self.server.abort();
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
        client.set_timeout(None)
    })?;
    warm(plan, session)?;
    session.with_client(|client| client.execute_after(plan.spec.pause_ms, &plan.spec.warm))
}

/// Makes calls that are not counted. One that fails here would fail again, so its error is reported now.
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
