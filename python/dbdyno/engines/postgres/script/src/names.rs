//! Names of variables, and what a session knows of them.

use std::collections::HashMap;

use crate::{Rng, Value};

/// Variables that are set without being given (PostgreSQL documentation, "pgbench", Automatic Variables).
pub const AUTOMATIC: [&str; 4] = ["client_id", "random_seed", "default_seed", "scale"];

/// The place of a variable in a session's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// The names of the variables of all scripts of a run, each with its place.
#[derive(Clone, Debug, Default)]
pub struct Names {
    slots: HashMap<Box<str>, Slot>,
    names: Vec<Box<str>>,
}

impl Names {
    /// The place of this variable; a new one gets the next place.
    pub fn slot(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.find(name) {
            return slot;
        }
        let slot = Slot(self.names.len() as u32);
        self.slots.insert(name.into(), slot);
        self.names.push(name.into());
        slot
    }

    /// The place of a variable that some script uses or sets.
    pub fn find(&self, name: &str) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    /// The places of all variables whose names begin with one of these.
    pub fn beginning<'a>(&'a self, prefixes: &'a Prefixes) -> impl Iterator<Item = Slot> + 'a {
        let each = self.slots.iter();
        each.filter(move |(name, _)| prefixes.begin(name))
            .map(|(_, &slot)| slot)
    }

    /// The name of the variable at this place.
    pub fn name(&self, slot: Slot) -> &str {
        &self.names[slot.0 as usize]
    }

    /// How many variables there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no variable yet.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Prefixes of the names of results (`\gset PREFIX`).
#[derive(Clone, Debug, Default)]
pub struct Prefixes(Vec<String>);

impl Prefixes {
    /// Sorts them, and leaves out those that begin with another one.
    pub fn new(mut all: Vec<String>) -> Self {
        all.sort_unstable();
        all.dedup_by(|next, before| next.starts_with(&**before));
        Self(all)
    }

    /// Whether one of them begins this name. None begins another, so only the last one up to the name can.
    pub fn begin(&self, name: &str) -> bool {
        let after = self.0.partition_point(|prefix| &**prefix <= name);
        after > 0 && name.starts_with(&self.0[after - 1])
    }
}

/// The variables of one session by their place, and its random numbers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// By slot; `None`: not set.
    pub values: Vec<Option<Value>>,
    /// The session's generator.
    pub rng: Rng,
    /// Arguments of `debug()`, at most 100 lines; showing them removes them.
    pub notes: Vec<String>,
}

impl Frame {
    /// A frame for these names, nothing set.
    pub fn new(names: &Names, rng: Rng) -> Self {
        Self {
            values: vec![None; names.len()],
            rng,
            notes: Vec::new(),
        }
    }

    /// The value of a variable; `None`: not set.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&Value> {
        self.values.get(slot.0 as usize).and_then(Option::as_ref)
    }

    /// Gives a variable a value.
    #[inline]
    pub fn set(&mut self, slot: Slot, value: Value) {
        match self.values.get_mut(slot.0 as usize) {
            Some(place) => *place = Some(value),
            None => self.add(slot, value),
        }
    }

    #[cold]
    fn add(&mut self, slot: Slot, value: Value) {
        self.values.resize(slot.0 as usize, None);
        self.values.push(Some(value));
    }
}

/// Whether a variable may have this name: letters, digits and underscores, no digit first.
pub fn is_name(name: &str) -> bool {
    name.bytes().next().is_some_and(starts_name) && name.bytes().all(continues_name)
}

/// Whether a variable's name may begin with this byte.
pub(crate) fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

/// Whether a variable's name may go on with this byte.
pub(crate) fn continues_name(byte: u8) -> bool {
    starts_name(byte) || byte.is_ascii_digit()
}
