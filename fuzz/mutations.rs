//! The seeds of a fuzz target and mutations of them as an ordinary test: the same ones each time. Crates take this file in by
//! its path. `PROPTEST_CASES` does not count: `make fuzz` tries longer.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// A number of four bytes, as lengths are.
    Number(Index, u32),
    /// The same bytes once more.
    Repeat(Index, usize),
    Cut(Index),
    Append(Vec<u8>),
}

/// Calls `target` with all its seeds, then with `count` mutations of them.
pub fn try_all(name: &str, count: u32, target: fn(&[u8])) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "fuzz/seeds/{name} has no seed");
    for seed in &seeds {
        target(seed);
    }
    let config = Config {
        cases: count,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mutated = (select(seeds.clone()), prop::collection::vec(edit(seeds), 0..6));
    let result = TestRunner::new_with_rng(config, rng).run(&mutated, |(seed, edits)| {
        target(&edited(seed, &edits));
        Ok(())
    });
    if let Err(TestError::Fail(why, (seed, edits))) = result {
        panic!("{why}: b\"{}\"", edited(seed, &edits).escape_ascii());
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = crate_folder
        .ancestors()
        .map(|above| above.join("fuzz/seeds").join(name));
    let folder = folders.find(|folder| folder.is_dir()).expect("a folder of seeds");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort(); // the order of a folder differs by file system
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn edit(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Edit> {
    let place = any::<Index>;
    let number = prop_oneof![
        0..40_u32,
        select(&[u32::MAX, 1 << 31, i32::MAX as u32, 1 << 16][..]),
        any::<u32>()
    ];
    prop_oneof![
        3 => (place(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        1 => (place(), 1..20_usize).prop_map(|(at, size)| Edit::Remove(at, size)),
        2 => (place(), number).prop_map(|(at, number)| Edit::Number(at, number)),
        1 => (place(), 1..60_usize).prop_map(|(at, size)| Edit::Repeat(at, size)),
        1 => place().prop_map(Edit::Cut),
        1 => select(seeds).prop_map(Edit::Append),
    ]
}

fn edited(seed: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    edits.iter().fold(seed, |mut bytes, edit| {
        apply(edit, &mut bytes);
        bytes
    })
}

fn apply(edit: &Edit, bytes: &mut Vec<u8>) {
    let len = bytes.len();
    let range = |at: &Index, size: usize| {
        let at = at.index(len + 1);
        at..len.min(at + size)
    };
    match edit {
        Edit::Set(at, byte) => bytes[range(at, 1)].fill(*byte),
        Edit::Insert(at, new) => drop(bytes.splice(range(at, 0), new.iter().copied())),
        Edit::Remove(at, size) => drop(bytes.drain(range(at, *size))),
        Edit::Number(at, number) => {
            let place = &mut bytes[range(at, 4)];
            place.copy_from_slice(&number.to_be_bytes()[..place.len()]);
        }
        Edit::Repeat(at, size) => {
            let again = bytes[range(at, *size)].to_vec();
            bytes.splice(range(at, 0), again);
        }
        Edit::Cut(at) => bytes.truncate(at.index(len + 1)),
        Edit::Append(new) => bytes.extend_from_slice(new),
    }
}
