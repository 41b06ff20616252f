//! Names of frames: functions and their source files.

use std::collections::HashMap;
use std::fs::File;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use object::{Object as _, ObjectSymbol, ReadCache, SymbolKind};

use crate::objects::Object;

/// What is known of a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Name {
    /// `None`: no symbol.
    pub function: Option<String>,
    /// Source file of the function, as its debug information or its symbol table names it.
    pub source: Option<String>,
}

/// The names at `addresses` of an object, in their order.
pub fn names(object: &Object, addresses: &[u64]) -> Vec<Name> {
    let mut names = vec![Name::default(); addresses.len()];
    let Some(path) = object.readable() else {
        return names;
    };
    let symbolizer = Symbolizer::builder().enable_inlined_fns(false).build();
    let source = Source::Elf(Elf::new(path));
    let look_up = |at: &[u64]| {
        symbolizer
            .symbolize(&source, Input::VirtOffset(at))
            .unwrap_or_default()
    };
    let files = object.file().map(sources).unwrap_or_default();
    let mut starts = vec![None; addresses.len()];
    for (number, found) in look_up(addresses).iter().enumerate() {
        if let Symbolized::Sym(symbol) = found {
            names[number].function = Some(symbol.name.to_string());
            names[number].source = files.get(&symbol.addr).cloned();
            starts[number] = Some(symbol.addr);
        }
    }
    // of the function, not of what was put into it at the very address
    let functions: Vec<u64> = starts.iter().flatten().copied().collect();
    let mut begins = look_up(&functions).into_iter();
    for (number, _) in starts.iter().enumerate().filter(|(_, s)| s.is_some()) {
        let Some(begin) = begins.next() else { break };
        let code = begin.as_sym().and_then(|s| s.code_info.as_ref());
        if let Some(code) = code {
            names[number].source = Some(code.to_path().to_string_lossy().into_owned());
        }
    }
    names
}

/// Source files by function: a symbol table names the file before its static functions. Linkers put the
/// functions of a file together, so one that is between two of the same file is of it, too.
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

/// The pure part: functions by address, with the file where it is told.
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
        let found = between(vec![
            (1, None),
            (2, of("a.c")),
            (3, None),
            (4, of("a.c")),
            (5, None),
            (6, of("b.c")),
            (7, None),
        ]);
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort();
        let expected = [(2, "a.c"), (3, "a.c"), (4, "a.c"), (6, "b.c")];
        assert_eq!(found, expected.map(|(a, f)| (a, f.to_owned())));
    }
}
