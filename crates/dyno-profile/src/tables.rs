//! The tables `profile_samples`, `profile_stacks`, `profile_frames`.

use std::collections::BTreeMap;

use dyno_model::{NullableTexts, Table, raw};
use dyno_observe::Status;
use dyno_observe::task::Who;

use crate::book::{Book, Place, Row};
use crate::kallsyms::Kallsyms;
use crate::labels::Labels;

/// Role of a task of the server that the watch has not registered.
const OTHER: &str = "other";

/// Returns all three tables.
pub fn tables(book: &Book, kernel: Option<&Kallsyms>, labels: &Labels) -> Vec<Table> {
    let [stack, position, frame] = stacks(book);
    let stacks = raw::ProfileStacks {
        stack,
        position,
        frame,
    };
    vec![
        samples(book, labels).into(),
        stacks.into(),
        frames(book, kernel).into(),
    ]
}

fn samples(book: &Book, labels: &Labels) -> raw::ProfileSamples {
    let rows = || book.rows.iter();
    let lives = || rows().map(|r| &book.lives[r.life as usize]);
    let role = |who: Option<&Who>| who.map_or(OTHER.to_owned(), |w| w.role.to_string());
    let code = |row: &Row| row.label.and_then(|l| l.code);
    let unknown = labels.refusal().map_or(Status::Lost, |r| r.status).as_str();
    let (queries, _) = labels.statements();
    let (mut classes, mut events) = (NullableTexts::default(), NullableTexts::default());
    for row in rows() {
        let name = code(row).and_then(|code| labels.names.name(code));
        classes.push(name.as_ref().map(|(class, _)| &**class));
        events.push(name.as_ref().map(|(_, event)| &**event));
    }
    let query_status = |row: &Row| {
        let lost = row.label.is_none() && queries == Status::Ok.as_str();
        Some(if lost { Status::Lost.as_str() } else { &queries })
    };
    raw::ProfileSamples {
        t_ns: rows().map(|r| r.t_ns).collect(),
        cpu: rows().map(|r| i64::from(r.cpu)).collect(),
        session: lives().map(|l| l.who.as_ref()?.session).collect(),
        pid: lives().map(|l| i64::from(l.pid)).collect(),
        tid: lives().map(|l| i64::from(l.tid)).collect(),
        role: lives().map(|l| role(l.who.as_ref())).collect(),
        mode: rows().map(|r| mode(r.kernel)).collect(),
        wait_class: classes,
        wait_event: events,
        label_status: rows()
            .map(|r| code(r).map_or(unknown, |_| Status::Ok.as_str()))
            .collect(),
        query_id: rows()
            .map(|r| r.label.map(|l| l.query as i64).filter(|id| *id != 0))
            .collect(),
        query_status: rows().map(query_status).collect(),
        stack: rows().map(|r| i64::from(r.stack)).collect(),
        cut: rows().map(|r| r.cut).collect(),
    }
}

fn mode(kernel: bool) -> &'static str {
    if kernel { "kernel" } else { "user" }
}

/// Returns the columns `stack`, `position` and `frame`: the frames of each stack.
pub fn stacks(book: &Book) -> [Vec<i64>; 3] {
    let (mut stack, mut position, mut frame) = (Vec::new(), Vec::new(), Vec::new());
    for (number, frames) in book.stacks.all.iter().enumerate() {
        for (at, value) in frames.iter().enumerate() {
            stack.push(number as i64);
            position.push(at as i64);
            frame.push(i64::from(*value));
        }
    }
    [stack, position, frame]
}

/// A row of the frames.
#[derive(Default, Clone)]
struct Frame {
    function: Option<String>,
    module: String,
    path: Option<String>,
    address: Option<i64>,
    source: Option<String>,
    kernel: bool,
}

/// Returns the row of each frame.
pub fn frames(book: &Book, kernel: Option<&Kallsyms>) -> raw::ProfileFrames {
    let mut frames = vec![Frame::default(); book.frames.all.len()];
    let mut by_object: BTreeMap<usize, Vec<(usize, u64)>> = BTreeMap::new();
    for (number, &(place, address)) in book.frames.all.iter().enumerate() {
        match place {
            Place::Kernel => frames[number] = kernel_frame(kernel, address),
            Place::Object(object) => by_object.entry(object).or_default().push((number, address)),
            Place::Unknown => "unknown".clone_into(&mut frames[number].module),
        }
    }
    for (object, wanted) in by_object {
        let object = book.objects.get(object);
        let addresses: Vec<u64> = wanted.iter().map(|(_, address)| *address).collect();
        for ((number, address), name) in wanted.into_iter().zip(object.names(&addresses)) {
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
    frame_rows(&frames)
}

/// Returns the row of a kernel's frame. Without symbols it has neither name nor address, as addresses of the kernel
/// are secret.
fn kernel_frame(kernel: Option<&Kallsyms>, address: u64) -> Frame {
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

fn frame_rows(frames: &[Frame]) -> raw::ProfileFrames {
    raw::ProfileFrames {
        frame: (0..frames.len() as i64).collect(),
        function: frames.iter().map(|f| f.function.as_deref()).collect(),
        module: frames.iter().map(|f| Some(&f.module)).collect(),
        path: frames.iter().map(|f| f.path.as_deref()).collect(),
        address: frames.iter().map(|f| f.address).collect(),
        source: frames.iter().map(|f| f.source.as_deref()).collect(),
        kind: frames.iter().map(|f| mode(f.kernel)).collect(),
    }
}
