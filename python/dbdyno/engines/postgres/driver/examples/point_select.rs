//! The hot path alone, for callgrind and for comparing with pgbench:
//!
//! ```text
//! point_select host=/run/x port=5432 user=u database=d sessions=8 threads=2 calls=10000 \
//!     sql='select abalance from pgbench_accounts where aid = $1' param=1
//! ```
//! or, in pgbench's language, `script='\set aid random(1, 100000) ...'` in place of `sql`. `calls` (of each session) or `seconds`; `rate=1000` (calls per second that become due, Poisson); `protocol=extended`, `pipeline=yes`, `validation='select 1'`. Prints one line of JSON: calls, seconds, rate, own CPU of the
//! measured part, and CPU per call in microseconds.

use std::collections::HashMap;
use std::time::Duration;

use dyno_drive::{ArrivalKind, ArrivalSpec, Load, Phases, Spec};
use dyno_engine_postgres::{
    AuthSpec, FileSpec, LoadSpec, Postgres, Protocol, ScriptLoadSpec, ScriptSessionSpec, ScriptedPostgres,
    ScriptsSpec, SessionSpec, StatementSpec, TargetSpec, TcpSpec,
};
use dyno_model::{Column, Engine, Table, now_ns};

const SQL: &str = "select abalance from pgbench_accounts where aid = $1";

struct Args {
    values: HashMap<String, String>,
    params: Vec<Option<String>>,
}

impl Args {
    fn parse() -> Self {
        let mut args = Self {
            values: HashMap::new(),
            params: Vec::new(),
        };
        for arg in std::env::args().skip(1) {
            let (key, value) = arg.split_once('=').expect("arguments are key=value");
            match key {
                "param" => args.params.push(Some(value.to_owned())),
                _ => drop(args.values.insert(key.to_owned(), value.to_owned())),
            }
        }
        args
    }

    fn text(&self, key: &str, default: &str) -> String {
        self.values
            .get(key)
            .map_or_else(|| default.to_owned(), Clone::clone)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.values.get(key).map(|v| v.parse().expect("a whole number"))
    }
}

fn protocol(args: &Args) -> Protocol {
    match args.text("protocol", "prepared").as_str() {
        "prepared" => Protocol::Prepared,
        "extended" => Protocol::Extended,
        "simple" => Protocol::Simple,
        other => panic!("no protocol {other}"),
    }
}

fn target(args: &Args) -> TargetSpec {
    TargetSpec {
        host: args.text("host", "/tmp"),
        port: args.number("port").unwrap_or(5432) as u16,
        user: args.text("user", "postgres"),
        password: args.values.get("password").cloned(),
        database: args.text("database", "postgres"),
        tls: None,
        application_name: "point_select".to_owned(),
        connect_timeout_ms: 10_000,
        auth: AuthSpec::default(),
        peer_uid: None,
        tcp: TcpSpec::default(),
    }
}

fn scripts(args: &Args, text: &str) -> ScriptLoadSpec {
    let file = FileSpec {
        name: "script".to_owned(),
        text: text.to_owned(),
        weight: 1,
    };
    let session = ScriptSessionSpec {
        count: args.number("sessions").unwrap_or(1) as usize,
        setup: Vec::new(),
        protocol: protocol(args),
        validation: args.values.get("validation").cloned(),
        warm: Vec::new(),
        pause_ms: 0,
    };
    ScriptLoadSpec {
        target: target(args),
        scripts: ScriptsSpec {
            files: vec![file],
            variables: [("scale".to_owned(), args.text("scale", "1"))].into(),
            max_tries: 1,
            reconnect: false,
            allow_shell: false,
            seed: 1,
            first_client: 0,
        },
        sessions: vec![session],
        probe: None,
    }
}

fn spec(args: &Args) -> LoadSpec {
    let statement = StatementSpec {
        sql: args.text("sql", SQL),
        params: args.params.clone(),
    };
    let validation = args.values.get("validation").map(|sql| StatementSpec {
        sql: sql.clone(),
        params: Vec::new(),
    });
    let call = validation.into_iter().chain([statement]).collect();
    let count = args.number("sessions").unwrap_or(1) as usize;
    let session = SessionSpec {
        count,
        setup: Vec::new(),
        call,
        protocol: protocol(args),
        pipeline: args.text("pipeline", "no") == "yes",
        warm: Vec::new(),
        pause_ms: 0,
        warm_calls: 1,
    };
    LoadSpec {
        target: target(args),
        sessions: vec![session],
        probe: None,
    }
}

fn arrivals(rate: u64) -> ArrivalSpec {
    ArrivalSpec {
        kind: ArrivalKind::Poisson,
        rate: vec![(1.0, rate as f64, rate as f64)],
        seed: 1,
        latency_limit_us: None,
        part: None,
    }
}

fn wait<E: Engine>(load: &Load<E>) {
    while !load
        .wait(Duration::from_secs(3600))
        .unwrap_or_else(|f| panic!("{}", f.error))
    {}
}

/// User and system CPU seconds of this process.
fn cpu_s() -> (f64, f64) {
    // SAFETY: the structure is valid for writing.
    let usage = unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

fn sum(table: &Table, name: &str) -> i64 {
    match table.columns.iter().find(|(n, _)| *n == name) {
        Some((_, Column::I64(values))) => values.iter().flatten().sum(),
        _ => 0,
    }
}

fn main() {
    let args = Args::parse();
    match args.values.get("script") {
        Some(text) => {
            let engine = ScriptedPostgres::new(scripts(&args, text));
            run(&args, engine.unwrap_or_else(|e| panic!("{e}")));
        }
        None => run(&args, Postgres::new(spec(&args)).expect("the specification")),
    }
}

fn run<E: Engine>(args: &Args, engine: E) {
    let drive = Spec {
        threads: args.number("threads").map(|n| n as usize),
        max_calls: args.number("calls"),
        arrivals: args.number("rate").map(arrivals),
        ..Spec::default()
    };
    let load = Load::new(engine, drive);
    load.connect().expect("connect");
    wait(&load);
    let before = cpu_s();
    let start = now_ns();
    let seconds = args.number("seconds").unwrap_or(3600) as i64;
    load.start(start, start, start + seconds * 1_000_000_000)
        .expect("start");
    wait(&load);
    let (wall, after) = ((now_ns() - start) as f64 / 1e9, cpu_s());
    load.finish().expect("finish");
    wait(&load);
    let tables = load.tables().expect("tables");
    let (calls, errors) = (sum(&tables[0], "calls"), sum(&tables[0], "errors"));
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    let per_call = (user + system) * 1e6 / calls as f64;
    println!(
        "{{\"calls\": {calls}, \"errors\": {errors}, \"seconds\": {wall:.6}, \"rate\": {:.1}, \"user_s\": {user:.6}, \
         \"system_s\": {system:.6}, \"cpu_us_per_call\": {per_call:.4}, \"lags\": [{}]}}",
        calls as f64 / wall,
        lags(&tables)
    );
}

/// `[ns, count]` of paced calls for each bucket of the time from due to start.
fn lags(tables: &[Table]) -> String {
    let Some(found) = tables.iter().find(|t| t.name == "lag_histogram") else {
        return String::new();
    };
    let column = |name: &str| match found.columns.iter().find(|(n, _)| *n == name) {
        Some((_, Column::I64(values))) => values.iter().flatten().collect(),
        _ => Vec::new(),
    };
    let both = column("high_ns").into_iter().zip(column("count"));
    let each: Vec<_> = both.map(|(ns, count)| format!("[{ns}, {count}]")).collect();
    each.join(", ")
}
