//! Names of frames: functions and their source files.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use object::{Object as _, ObjectSymbol, ReadCache, SymbolKind};

/// Names of a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Name {
    /// None if there is no symbol.
    pub function: Option<String>,
    /// Source file of the function, as its debug information or its symbol table names it.
    pub source: Option<String>,
}

/// Names of an object's addresses.
#[derive(Debug, Default)]
pub struct Names {
    known: Mutex<HashMap<u64, Name>>,
    /// Source files by function, as its symbol table names them.
    files: OnceLock<HashMap<u64, String>>,
}

impl Names {
    /// Returns the names at `addresses` of the object `file`, in their order.
    pub fn at(&self, file: Option<&File>, addresses: &[u64]) -> Vec<Name> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<u64> = addresses
            .iter()
            .filter(|a| !known.contains_key(a))
            .copied()
            .collect();
        if let Some(file) = file
            && !missing.is_empty()
        {
            let names = look_up(file, &self.files, &missing);
            known.extend(missing.into_iter().zip(names));
        }
        let name = |address| known.get(address).cloned().unwrap_or_default();
        addresses.iter().map(name).collect()
    }
}

fn look_up(file: &File, files: &OnceLock<HashMap<u64, String>>, addresses: &[u64]) -> Vec<Name> {
    let (answer, answered) = channel();
    let request = Request {
        // the descriptor is open for as long as the object is there, whatever became of the file's path
        path: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
        addresses: addresses.to_vec(),
        answer,
    };
    let sent = symbolizer()
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send(request);
    let symbols = sent.ok().and_then(|()| answered.recv().ok());
    let files = files.get_or_init(|| sources(file));
    let name = |symbol: Symbol| {
        let source = symbol.source.or_else(|| files.get(&symbol.start?).cloned());
        let function = symbol.function;
        Name { function, source }
    };
    symbols.map_or_else(
        || vec![Name::default(); addresses.len()],
        |symbols| symbols.into_iter().map(name).collect(),
    )
}

/// A question to the thread that owns the symbolizer, whose cache is expensive and cannot be shared.
struct Request {
    path: PathBuf,
    addresses: Vec<u64>,
    answer: Sender<Vec<Symbol>>,
}

#[derive(Clone, Default)]
struct Symbol {
    function: Option<String>,
    /// First address of the function.
    start: Option<u64>,
    source: Option<String>,
}

fn symbolizer() -> &'static Mutex<Sender<Request>> {
    static SYMBOLIZER: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    SYMBOLIZER.get_or_init(|| {
        let (ask, asked) = channel::<Request>();
        let answer = move || {
            let symbolizer = Symbolizer::builder().enable_inlined_fns(false).build();
            for request in asked {
                let symbol = symbolized(&symbolizer, request.path, &request.addresses);
                let _ = request.answer.send(symbol);
            }
        };
        let _ = thread::Builder::new()
            .name("dbdyno-names".to_owned())
            .spawn(answer);
        Mutex::new(ask)
    })
}

fn symbolized(symbolizer: &Symbolizer, path: PathBuf, addresses: &[u64]) -> Vec<Symbol> {
    let source = Source::Elf(Elf::new(path));
    let look_up = |at: &[u64]| {
        let symbol = symbolizer.symbolize(&source, Input::VirtOffset(at));
        symbol.unwrap_or_default()
    };
    let mut all = vec![Symbol::default(); addresses.len()];
    for (named, at) in all.iter_mut().zip(look_up(addresses)) {
        if let Symbolized::Sym(symbol) = at {
            named.function = Some(symbol.name.to_string());
            named.start = Some(symbol.addr);
        }
    }
    // of the function, not of what was put into it at the very address
    let starts: Vec<u64> = all.iter().filter_map(|f| f.start).collect();
    for (symbol, begin) in all.iter_mut().filter(|f| f.start.is_some()).zip(look_up(&starts)) {
        let code = begin.as_sym().and_then(|s| s.code_info.as_ref());
        symbol.source = code.map(|c| c.to_path().to_string_lossy().into_owned());
    }
    all
}

/// Returns source files by address of function. A symbol table names the file before its static functions. Linkers put
/// the functions of a file together, so one between two of the same file belongs to that file, too.
fn sources(file: &File) -> HashMap<u64, String> {
    let cache = ReadCache::new(file);
    let Ok(elf) = object::File::parse(&cache) else {
        return HashMap::new();
    };
    let mut current = None;
    let mut functions: Vec<(u64, Option<String>)> = Vec::new();
    for symbol in elf.symbols() {
        match symbol.kind() {
            SymbolKind::File => current = symbol.name().ok().filter(|n| !n.is_empty()),
            SymbolKind::Text if symbol.address() != 0 => {
                let of = current.filter(|_| symbol.is_local()).map(str::to_owned);
                functions.push((symbol.address(), of));
            }
            _ => {}
        }
    }
    functions.sort();
    between(functions)
}

/// Returns source files by address of function, for functions in order of address with their file if the table names
/// it. Pure.
fn between(functions: Vec<(u64, Option<String>)>) -> HashMap<u64, String> {
    let mut known = HashMap::new();
    let mut pending = Vec::new();
    let mut last: Option<String> = None;
    for (address, file) in functions {
        let Some(file) = file else {
            pending.push(address);
            continue;
        };
        if last.as_ref() == Some(&file) {
            known.extend(pending.drain(..).map(|a| (a, file.clone())));
        }
        pending.clear();
        known.insert(address, file.clone());
        last = Some(file);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_between_two_of_a_file_is_of_that_file() {
        let of = |file: &str| Some(file.to_owned());
        let files = between(vec![
            (1, None),
            (2, of("a.c")),
            (3, None),
            (4, of("a.c")),
            (5, None),
            (6, of("b.c")),
            (7, None),
        ]);
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort();
        let expected = [(2, "a.c"), (3, "a.c"), (4, "a.c"), (6, "b.c")];
        assert_eq!(files, expected.map(|(a, f)| (a, f.to_owned())));
    }
}
