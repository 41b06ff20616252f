//! The connected sessions and their waits, queried over a connection of its own.

use std::time::Duration;

use dyno_model::{
    ActivityProbe, ActivityRow, BLOCKED_NUMBERS, BLOCKED_TEXTS, BlockedRow, Breaker, Error, Result, TaskId,
};
use serde::Deserialize;

use crate::client::{Client, ROW_BYTES, column_names, values};
use crate::target::TargetSpec;
use crate::tls::TlsSetup;

/// Runs one query over and over and maps its columns by name: `pid`, `helper`, `state`, `wait_class`,
/// `wait_event`, `query_id`, `leader_pid`, `chosen` (NULL is false). A server that does not answer within the target's
/// `connect_timeout_ms` is lost.
pub struct Activity {
    client: Client,
    /// Time limit of a sample.
    limit: Duration,
    breaker: Breaker,
    sql: String,
    /// Which field each column of the result is.
    fields: Vec<Field>,
    blocking: Option<Blocking>,
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.client.terminate();
    }
}

/// The question who waits for a lock, and whom for.
struct Blocking {
    sql: String,
    /// Wait classes of sessions that make it worth asking.
    classes: Vec<String>,
    /// Place of each column of the result.
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
enum Place {
    Number(usize),
    Text(usize),
}

/// That question as it is asked: columns as in [`BlockedRow`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockingSpec {
    sql: String,
    classes: Vec<String>,
}

/// The server whose activity is sampled, and the query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivitySpec {
    target: TargetSpec,
    /// Makes its session, before anything else; `{pid}` stands for the process that the start-up named. None behind
    /// a pooler, where another process answers.
    #[serde(default)]
    setup: Option<String>,
    sql: String,
    #[serde(default)]
    blocking: Option<BlockingSpec>,
}

impl ActivitySpec {
    /// # Errors
    /// As [`Activity::connect`].
    pub fn connect(&self) -> Result<Activity> {
        let mut activity = Activity::connect(&self.target, self.setup.as_deref(), &self.sql)?;
        activity.blocking = self.blocking.as_ref().map(|b| b.prepared(&mut activity.client));
        Ok(activity)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Pid,
    Helper,
    State,
    WaitClass,
    WaitEvent,
    QueryId,
    LeaderPid,
    Chosen,
}

// What a sample takes in memory has a limit that reckons with rows of this size.
const _: () = assert!(size_of::<ActivityRow>() <= ROW_BYTES && size_of::<BlockedRow>() <= ROW_BYTES);

const PREPARED: &str = "dbdyno_activity";
const BLOCKING: &str = "dbdyno_blocking";

impl BlockingSpec {
    /// Not asked before it is needed: a mistake in it shows then.
    fn prepared(&self, client: &mut Client) -> Blocking {
        Blocking {
            sql: prepared(client, BLOCKING, &self.sql),
            classes: self.classes.clone(),
            places: Vec::new(),
        }
    }
}

/// How to run `sql` from now on: planning would be a third of a sample's cost on the server; a pooler may refuse.
fn prepared(client: &mut Client, name: &str, sql: &str) -> String {
    match client.simple_query(&format!("prepare {name} as {sql}")) {
        Ok(_) => format!("execute {name}"),
        Err(_) => sql.to_owned(),
    }
}

fn place(name: &str) -> Result<Place> {
    let number = BLOCKED_NUMBERS.iter().position(|n| *n == name).map(Place::Number);
    let text = || BLOCKED_TEXTS.iter().position(|n| *n == name).map(Place::Text);
    number
        .or_else(text)
        .ok_or_else(|| Error::Spec(format!("query of blocked sessions: unknown column {name}")))
}

impl Activity {
    /// Connects, runs `setup`, and `sql` once to see that it fits.
    ///
    /// # Errors
    /// As [`Client::connect`]; [`Error::Server`] where `sql` fails; [`Error::Spec`] where it has no column
    /// `pid` or one of an unknown name.
    pub fn connect(target: &TargetSpec, setup: Option<&str>, sql: &str) -> Result<Self> {
        let breaker = Breaker::default();
        let tls = target.tls.as_ref().map(TlsSetup::new).transpose()?;
        let mut client = Client::connect(target, tls.as_ref(), &breaker)?;
        let limit = target.connect_timeout();
        client.set_timeout(Some(limit))?;
        if let Some((setup, pid)) = setup.zip(client.backend_pid) {
            client.simple_query(&setup.replace("{pid}", &pid.to_string()))?;
        }
        let columns = client.simple_query(sql)?.columns;
        let fields = columns
            .iter()
            .map(|name| field(name))
            .collect::<Result<Vec<_>>>()?;
        if !fields.contains(&Field::Pid) {
            return Err(Error::Spec("activity query: no column pid".to_owned()));
        }
        let sql = prepared(&mut client, PREPARED, sql);
        Ok(Self {
            client,
            limit,
            breaker,
            sql,
            fields,
            blocking: None,
        })
    }

    /// Process of this very connection, which the query is to leave out.
    pub fn backend(&self) -> Option<TaskId> {
        self.client.backend_pid.map(TaskId::main)
    }

    /// Breaks off a sample that is under way, from another thread.
    pub fn breaker(&self) -> Breaker {
        self.breaker.clone()
    }
}

fn field(name: &str) -> Result<Field> {
    Ok(match name {
        "pid" => Field::Pid,
        "helper" => Field::Helper,
        "state" => Field::State,
        "wait_class" => Field::WaitClass,
        "wait_event" => Field::WaitEvent,
        "query_id" => Field::QueryId,
        "leader_pid" => Field::LeaderPid,
        "chosen" => Field::Chosen,
        other => return Err(Error::Spec(format!("activity query: unknown column {other}"))),
    })
}

impl ActivityProbe for Activity {
    /// Rows and their texts are written over in place: a sample allocates only what grew.
    fn sample(&mut self, rows: &mut Vec<ActivityRow>) -> Result<()> {
        let Self {
            client, sql, fields, ..
        } = self;
        client.set_timeout(Some(self.limit))?;
        let mut count = 0;
        let mut fits = true;
        client.query(sql, |message| match message.tag {
            b'T' => fits = column_names(message.body).len() == fields.len(),
            b'D' => {
                if count == rows.len() {
                    rows.push(ActivityRow::default());
                }
                fill(&mut rows[count], fields, message.body);
                count += 1;
            }
            _ => {}
        })?;
        rows.truncate(count);
        if fits {
            Ok(())
        } else {
            Err(Error::Protocol("activity query: its columns changed".to_owned()))
        }
    }

    fn waits_for_lock(&self, row: &ActivityRow) -> bool {
        let class = row.wait_class.as_ref();
        class
            .zip(self.blocking.as_ref())
            .is_some_and(|(class, b)| b.classes.contains(class))
    }

    fn blocked(&mut self, rows: &mut Vec<BlockedRow>) -> Result<()> {
        rows.clear();
        let Some(Blocking { sql, places, .. }) = &mut self.blocking else {
            return Ok(());
        };
        self.client.set_timeout(Some(self.limit))?;
        let mut named = Ok(());
        self.client.query(sql, |message| match message.tag {
            b'T' => match column_names(message.body).iter().map(|n| place(n)).collect() {
                Ok(read) => *places = read,
                Err(error) => named = Err(error),
            },
            b'D' => rows.push(blocked_row(places, message.body)),
            _ => {}
        })?;
        named
    }
}

fn blocked_row(places: &[Place], body: &[u8]) -> BlockedRow {
    let mut row = BlockedRow::default();
    for (place, value) in places.iter().zip(values(body)) {
        match *place {
            Place::Number(n) => row.numbers[n] = number(value),
            Place::Text(n) => put(&mut row.texts[n], value),
        }
    }
    row
}

fn fill(row: &mut ActivityRow, fields: &[Field], body: &[u8]) {
    for (field, value) in fields.iter().zip(values(body)) {
        match field {
            Field::Pid => row.pid = number(value).unwrap_or_default(),
            Field::Helper => put(&mut row.helper, value),
            Field::State => put(&mut row.state, value),
            Field::WaitClass => put(&mut row.wait_class, value),
            Field::WaitEvent => put(&mut row.wait_event, value),
            Field::QueryId => row.query_id = number(value),
            Field::LeaderPid => row.leader_pid = number(value),
            Field::Chosen => row.chosen = Some(value == Some(b"t")),
        }
    }
}

fn number(value: Option<&[u8]>) -> Option<i64> {
    std::str::from_utf8(value?).ok()?.parse().ok()
}

/// Writes over the text that is there.
fn put(place: &mut Option<String>, value: Option<&[u8]>) {
    match value.map(String::from_utf8_lossy) {
        None => *place = None,
        Some(text) => {
            let place = place.get_or_insert_default();
            place.clear();
            place.push_str(&text);
        }
    }
}
