//! Scripts as an engine of the driver.

use std::sync::Arc;

use dyno_model::{Counter, Engine, Reading, Result, Table, count_sessions, raw};

use crate::client::Client;
use crate::plan::Protocol;
use crate::script::commands;
use crate::script::plan::Plan;
use crate::script::session::ScriptSession;
use crate::script::spec::ScriptLoadSpec;
use crate::server::{SETUP_TIMEOUT, Server};

/// Undefined schema, table, column, function, object: the script itself may create them.
const NOT_YET: [&str; 5] = ["3F000", "42P01", "42703", "42883", "42704"];

/// Makes sessions that run scripts.
pub struct ScriptedPostgres {
    server: Arc<Server>,
    /// The plan of each session.
    plans: Vec<Arc<Plan>>,
}

impl ScriptedPostgres {
    /// Checks the specification, reads scripts and certificates; connects nothing yet.
    ///
    /// # Errors
    /// [`Spec`](dyno_model::Error::Spec), [`Tls`](dyno_model::Error::Tls).
    pub fn new(spec: ScriptLoadSpec) -> Result<Self> {
        count_sessions(spec.sessions.iter().map(|group| group.count))?;
        let mut plans = Vec::new();
        for group in spec.sessions {
            let count = group.count;
            let plan = Arc::new(Plan::new(spec.scripts.clone(), group)?);
            plans.extend(std::iter::repeat_n(plan, count));
        }
        let server = Arc::new(Server::new(spec.target, spec.probe)?);
        Ok(Self { server, plans })
    }
}

impl Engine for ScriptedPostgres {
    type Session = ScriptSession;

    fn sessions(&self) -> usize {
        self.plans.len()
    }

    fn connect(&self, session: usize) -> Result<ScriptSession> {
        let client = self.server.connect()?;
        let (plan, server) = (self.plans[session].clone(), Some(self.server.clone()));
        Ok(ScriptSession::new(client, plan, session, server))
    }

    fn prepare(&self, session: usize, connection: &mut ScriptSession) -> Result<()> {
        prepare(&self.plans[session], connection).map_err(|e| self.server.reason(e))
    }

    fn counters(&self) -> &[Counter] {
        &self.server.counters
    }

    fn probe(&self, connection: &mut ScriptSession) -> Vec<Reading> {
        connection.probe(&self.server)
    }

    fn scripts(&self) -> Vec<(String, u64)> {
        let files = &self.plans[0].scripts.files;
        files.iter().map(|f| (f.name.clone(), f.weight)).collect()
    }

    fn tables(&self, sessions: &[ScriptSession]) -> Vec<Table> {
        let Some(first) = sessions.first() else {
            return Vec::new();
        };
        let mut tables = vec![commands::table(
            first.machine.plan(),
            sessions.iter().map(|s| s.machine.tallies()),
        )];
        if first.machine.plan().scripts.reconnect {
            tables.push(reconnects(sessions));
        }
        tables
    }

    fn close(&self, connection: ScriptSession) {
        connection.client.close();
    }

    fn cancel(&self, connection: &ScriptSession) -> Result<()> {
        self.server.cancel(&connection.client.key)
    }

    fn abort(&self) {
        self.server.abort();
    }
}

fn reconnects(sessions: &[ScriptSession]) -> Table {
    let connections = raw::ScriptConnections {
        session: (0..sessions.len() as i64).collect(),
        connections: sessions.iter().map(|s| s.machine.reconnects.0 as i64).collect(),
        connect_ns: sessions.iter().map(|s| s.machine.reconnects.1).collect(),
    };
    connections.into()
}

fn prepare(plan: &Plan, session: &mut ScriptSession) -> Result<()> {
    let mut known = Vec::new();
    session.with_client(|client| {
        client.set_timeout(Some(SETUP_TIMEOUT))?;
        plan.session
            .setup
            .iter()
            .try_for_each(|sql| client.execute(sql))?;
        if plan.session.protocol != Protocol::Simple {
            known = parse(plan, client)?;
        }
        client.set_timeout(None)?;
        client.execute_after(plan.session.pause_ms, &plan.session.warm)
    })?;
    if plan.session.protocol == Protocol::Prepared {
        for statement in known {
            session.machine.prepared(statement);
        }
    }
    Ok(())
}

/// Parses statements in advance, and returns those that the server has now. One whose table does not exist yet is parsed at its
/// first use; any other mistake is reported now.
fn parse(plan: &Plan, client: &mut Client) -> Result<Vec<usize>> {
    let mut known = Vec::new();
    for (i, statement) in plan.statements.iter().enumerate() {
        match client.prepare(&statement.name, &statement.text, statement.slots.len()) {
            Ok(()) => known.push(i),
            Err(e) if e.code().is_some_and(|code| NOT_YET.contains(&code)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(known)
}
