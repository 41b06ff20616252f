//! The tables `profile_samples`, `profile_stacks`, `profile_frames`.

use std::collections::BTreeMap;

use dyno_model::{Column, Table};
use dyno_observe::{Status, Texts};

use crate::book::{Book, Place};
use crate::kallsyms::Kallsyms;
use crate::labels::Labels;
use crate::symbols;

/// A task of the server that nobody told us of.
const OTHER: &str = "other";

/// All three.
pub fn tables(book: &Book, kernel: Option<&Kallsyms>, labels: &Labels) -> Vec<Table> {
    vec![
        samples(book, labels),
        stacks("profile_stacks", book),
        frames("profile_frames", book, kernel),
    ]
}

fn samples(book: &Book, labels: &Labels) -> Table {
    let rows = || book.rows.iter();
    let lives = || rows().map(|r| &book.lives[r.life as usize]);
    let text = |texts: Texts| Column::Coded(texts.into());
    let role = |who: Option<&dyno_observe::task::Who>| who.map_or(OTHER.to_owned(), |w| w.role.to_string());
    let mut roles = Texts::default();
    lives().for_each(|l| roles.push(Some(&role(l.who.as_ref()))));
    let mut columns = vec![
        ("t_ns", Column::known(rows().map(|r| r.t_ns))),
        ("cpu", Column::known(rows().map(|r| i64::from(r.cpu)))),
        (
            "session",
            Column::I64(lives().map(|l| l.who.as_ref()?.session).collect()),
        ),
        ("pid", Column::known(lives().map(|l| i64::from(l.pid)))),
        ("tid", Column::known(lives().map(|l| i64::from(l.tid)))),
        ("role", text(roles)),
        (
            "mode",
            text(
                rows()
                    .map(|r| Some(if r.kernel { "kernel" } else { "user" }))
                    .collect(),
            ),
        ),
    ];
    columns.extend(labelled(book, labels));
    columns.extend([
        ("stack", Column::known(rows().map(|r| i64::from(r.stack)))),
        ("cut", Column::Bool(rows().map(|r| r.cut).collect())),
    ]);
    Table::new("profile_samples", columns)
}

/// Wait events and statements.
fn labelled(book: &Book, labels: &Labels) -> [(&'static str, Column); 5] {
    let unknown = labels.refusal().map_or(Status::Lost, |r| r.status).as_str();
    let (queries, _) = labels.statements();
    let mut texts: [Texts; 4] = Default::default();
    let [classes, events, statuses, query_statuses] = &mut texts;
    let mut ids = Vec::new();
    for row in &book.rows {
        let code = row.label.and_then(|l| l.code);
        let name = code.and_then(|code| labels.names.of(code));
        classes.push(name.as_ref().map(|(class, _)| &**class));
        events.push(name.as_ref().map(|(_, event)| &**event));
        statuses.push(Some(if code.is_some() {
            Status::Ok.as_str()
        } else {
            unknown
        }));
        ids.push(row.label.map(|l| l.query as i64).filter(|id| *id != 0));
        let lost = row.label.is_none() && queries == Status::Ok.as_str();
        query_statuses.push(Some(if lost { Status::Lost.as_str() } else { &queries }));
    }
    let [classes, events, statuses, query_statuses] = texts.map(|t| Column::Coded(t.into()));
    [
        ("wait_class", classes),
        ("wait_event", events),
        ("label_status", statuses),
        ("query_id", Column::I64(ids)),
        ("query_status", query_statuses),
    ]
}

/// The frames of each stack.
pub fn stacks(table: &'static str, book: &Book) -> Table {
    let (mut stack, mut position, mut frame) = (Vec::new(), Vec::new(), Vec::new());
    for (number, frames) in book.stacks.all.iter().enumerate() {
        for (at, value) in frames.iter().enumerate() {
            stack.push(number as i64);
            position.push(at as i64);
            frame.push(i64::from(*value));
        }
    }
    Table::new(
        table,
        vec![
            ("stack", Column::known(stack)),
            ("position", Column::known(position)),
            ("frame", Column::known(frame)),
        ],
    )
}

/// What the table says of one frame.
#[derive(Default, Clone)]
struct Frame {
    function: Option<String>,
    module: String,
    path: Option<String>,
    address: Option<i64>,
    source: Option<String>,
    kernel: bool,
}

/// What each frame is.
pub fn frames(table: &'static str, book: &Book, kernel: Option<&Kallsyms>) -> Table {
    let mut frames = vec![Frame::default(); book.frames.all.len()];
    let mut of_objects: BTreeMap<usize, Vec<(usize, u64)>> = BTreeMap::new();
    for (number, &(place, address)) in book.frames.all.iter().enumerate() {
        match place {
            Place::Kernel => frames[number] = of_kernel(kernel, address),
            Place::Object(object) => of_objects.entry(object).or_default().push((number, address)),
            Place::Unknown => "unknown".clone_into(&mut frames[number].module),
        }
    }
    for (object, wanted) in of_objects {
        let object = book.objects.get(object);
        let addresses: Vec<u64> = wanted.iter().map(|(_, address)| *address).collect();
        for ((number, address), name) in wanted.into_iter().zip(symbols::names(object, &addresses)) {
            frames[number] = Frame {
                function: name.function,
                module: object.module.clone(),
                path: object.path.clone(),
                address: Some(address as i64),
                source: name.source,
                kernel: false,
            };
        }
    }
    written(table, &frames)
}

/// Without symbols neither its name is known nor where it is: addresses of the kernel are a secret.
fn of_kernel(kernel: Option<&Kallsyms>, address: u64) -> Frame {
    let symbol = kernel.and_then(|k| k.find(address));
    let module = symbol.as_ref().and_then(|s| s.module);
    Frame {
        function: symbol.as_ref().map(|s| s.name.to_owned()),
        module: module.map_or("kernel".to_owned(), |m| format!("kernel:{m}")),
        address: symbol.map(|s| s.offset as i64),
        kernel: true,
        ..Frame::default()
    }
}

fn written(table: &'static str, frames: &[Frame]) -> Table {
    let text =
        |of: fn(&Frame) -> Option<&str>| Column::Coded(frames.iter().map(of).collect::<Texts>().into());
    Table::new(
        table,
        vec![
            ("frame", Column::known(0..frames.len() as i64)),
            ("function", text(|f| f.function.as_deref())),
            ("module", text(|f| Some(&f.module))),
            ("path", text(|f| f.path.as_deref())),
            ("address", Column::I64(frames.iter().map(|f| f.address).collect())),
            ("source", text(|f| f.source.as_deref())),
            ("kind", text(|f| Some(if f.kernel { "kernel" } else { "user" }))),
        ],
    )
}
