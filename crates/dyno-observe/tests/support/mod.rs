//! Common to the tests of whole watches: processes of ours, a scripted server, columns of tables.

#![allow(dead_code, missing_docs, unused_imports)] // each test file uses its part

pub use std::process::{Child, Command};
pub use std::thread::sleep;
pub use std::time::Duration;

pub use dyno_model::{ActivityProbe, ActivityRow, Column, Error, Result, Table, TaskId, now_ns};
pub use dyno_observe::{GroupSpec, Probe, Spec, Watch};

pub const MS: i64 = 1_000_000;

pub fn spec() -> Spec {
    Spec {
        os: true,
        sample_hz: 50.0,
        sample_budget: 1.0,
        seed: 1,
        task_interval_ns: 50 * MS,
        host: true,
        ..Spec::default()
    }
}

pub struct Sleeper(Child);

impl Sleeper {
    pub fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    /// Never asleep.
    pub fn spinning() -> Self {
        Self(
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap(),
        )
    }

    pub fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }

    pub fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks `script` for the rows of each sample.
pub struct Scripted<F>(pub F);

impl<F: FnMut(&mut Vec<ActivityRow>) -> Result<()> + Send> ActivityProbe for Scripted<F> {
    fn sample(&mut self, rows: &mut Vec<ActivityRow>) -> Result<()> {
        rows.clear();
        (self.0)(rows)
    }
}

#[allow(clippy::unnecessary_wraps)] // what a watch takes
pub fn scripted(
    script: impl FnMut(&mut Vec<ActivityRow>) -> Result<()> + Send + 'static,
) -> Result<Option<Probe>> {
    Ok(Some(Probe {
        ask: Box::new(Scripted(script)),
        backend: None,
        break_off: Box::new(|| {}),
    }))
}

pub fn backend(pid: i64) -> ActivityRow {
    ActivityRow {
        pid,
        state: Some("active".to_owned()),
        ..ActivityRow::default()
    }
}

pub fn table(watch: &Watch, name: &str) -> Table {
    watch.tables().into_iter().find(|t| t.name == name).unwrap()
}

pub fn column<'t>(table: &'t Table, name: &str) -> &'t Column {
    &table.columns.iter().find(|(n, _)| *n == name).unwrap().1
}

pub fn numbers(table: &Table, name: &str) -> Vec<Option<i64>> {
    let Column::I64(values) = column(table, name) else {
        panic!("{name} is not i64")
    };
    values.iter().collect()
}

pub fn texts(table: &Table, name: &str) -> Vec<String> {
    match column(table, name) {
        Column::Str(values) => values.iter().map(|v| v.unwrap_or_default().to_owned()).collect(),
        _ => panic!("{name} is not str"),
    }
}

/// Runs a watch over a window that begins soon, to its end.
pub fn run(spec: Spec, probe: Result<Option<Probe>>, window_ms: i64) -> (Watch, i64, i64) {
    let watch = Watch::new(spec, probe).unwrap();
    let t0 = now_ns() + 50 * MS;
    let t1 = t0 + window_ms * MS;
    watch.start(t0, t1).unwrap();
    sleep(Duration::from_nanos((t1 - now_ns()).max(0) as u64) + Duration::from_millis(30));
    watch.stop();
    (watch, t0, t1)
}
