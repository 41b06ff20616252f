//! Which task has which slot; slots given out, read and taken back.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use aya::maps::{MapData, Queue};

use crate::account::adds_up;
use crate::layout::{Calls, Control, Places, Plain, Slot, TIDS, UNREAD, Wait, first_index};
use crate::memory::Shared;
use crate::statements::Statement;

/// Slot 0 means none.
pub(crate) const FEWEST_SLOTS: u32 = 2;
/// The program numbers slots with 16 bits.
pub(crate) const MOST_SLOTS: u32 = u16::MAX as u32;
/// How often a slot is read anew when the program wrote it meanwhile.
pub(crate) const TRIES: usize = 100;

/// The maps of a loaded program.
#[derive(Debug)]
pub struct Book {
    pub control: Shared<Control>,
    pub places: Shared<Places>,
    pub slots: Shared<Slot>,
    pub calls: Shared<Calls>,
    pub vacant: Vacant,
}

/// Numbers of free slots: both we and the program (for newborn processes) take from it.
pub struct Vacant(Queue<MapData, u32>);

impl std::fmt::Debug for Vacant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vacant")
    }
}

impl Vacant {
    /// Fills the queue with the numbers of all slots but 0, which means none.
    ///
    /// # Errors
    /// In words.
    pub fn new(mut queue: Queue<MapData, u32>, slots: u32) -> Result<Self, String> {
        for number in 1..slots {
            queue
                .push(number, 0)
                .map_err(|e| format!("filling the list of slots: {e}"))?;
        }
        Ok(Self(queue))
    }

    fn take(&mut self) -> Option<usize> {
        self.0.pop(0).ok().map(|n| n as usize)
    }

    fn give_back(&mut self, number: usize) {
        // there is room: it came from there
        let _ = self.0.push(number as u32, 0);
    }
}

/// A task to be watched.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer {
    pub tid: u32,
    pub tgid: u32,
    /// Address of the pointer to its wait event word; 0: it has none.
    pub word: u64,
    /// Where the id of its statement is.
    pub statement: Statement,
    pub now_ns: u64,
}

impl Book {
    /// The slot of a task that is watched and has not ended.
    pub fn find(&self, tid: u32) -> Option<usize> {
        let number = self.place(tid)?.load(Ordering::Acquire);
        (number != 0).then_some(usize::from(number))
    }

    /// A slot for a task that has none. `None`: all are taken.
    pub fn take(&mut self, newcomer: Newcomer) -> Option<usize> {
        self.place(newcomer.tid)?;
        let number = self.vacant.take()?;
        let mut slot = Slot::zeroed();
        slot.tid = newcomer.tid;
        slot.tgid = newcomer.tgid;
        slot.word = newcomer.word;
        slot.query = newcomer.statement.variable;
        slot.query_at = newcomer.statement.at;
        slot.idle = newcomer.statement.idle;
        slot.taken = 1;
        slot.own = number as u32;
        slot.first_ns = newcomer.now_ns;
        slot.since_ns = newcomer.now_ns;
        slot.seed_label = UNREAD;
        // always there: labels that find no room are added to it
        slot.waits[first_index(UNREAD)] = Wait {
            label: UNREAD,
            used: 1,
            ..Wait::default()
        };
        self.slots.write(number, slot);
        if self.calls.len() > number {
            self.calls.write(number, Calls::zeroed());
        }
        self.place(newcomer.tid)?.store(number as u16, Ordering::Release);
        Some(number)
    }

    /// What a task was doing when it was first watched, read after [`Book::take`]: used only if the program
    /// has seen no event of it yet.
    pub fn seed(&self, number: usize, label: u32, query: u64, blocked: bool) {
        let slot = self.slots.at(number);
        // SAFETY: mapped and aligned; the program reads these fields and never writes them.
        unsafe {
            (&raw mut (*slot).seed_query).write_volatile(query);
            (&raw mut (*slot).seed_label).write_volatile(label);
            (&raw mut (*slot).seed_blocked).write_volatile(u32::from(blocked));
        }
    }

    /// A copy of a slot that was whole. `None`: it changed each time we looked.
    pub fn read(&self, number: usize) -> Option<Slot> {
        (0..TRIES).find_map(|_| {
            let before = self.sequence(number);
            let slot = self.slots.read(number);
            fence(Ordering::Acquire);
            let whole = before.is_multiple_of(2) && self.sequence(number) == before && adds_up(&slot);
            if !whole {
                std::hint::spin_loop();
            }
            whole.then_some(slot)
        })
    }

    /// Numbers of all slots in use.
    pub fn used(&self) -> impl Iterator<Item = usize> + '_ {
        (1..self.slots.len()).filter(|&n| self.tid(n) != 0)
    }

    /// Takes a slot back whose task has ended and whose sums were read.
    pub fn release(&mut self, number: usize) {
        let tid = self.tid(number);
        if let Some(place) = self.place(tid) {
            let _ = place.compare_exchange(number as u16, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.slots.write(number, Slot::zeroed());
        if self.calls.len() > number {
            self.calls.write(number, Calls::zeroed());
        }
        self.vacant.give_back(number);
    }

    /// As it was at first. The program is attached to nothing.
    pub fn clear(&mut self) {
        let used: Vec<usize> = self.used().collect();
        for number in used {
            self.release(number);
        }
        self.control.write(0, Control::zeroed());
    }

    /// How many newborn processes found no slot.
    pub fn lost(&self) -> u64 {
        self.control.read(0).lost
    }

    /// From now on processes born of `main_tgid` (0: nobody's) are watched; `word` as in [`Newcomer`].
    pub fn children_of(&self, main_tgid: u32, word: u64, statement: Statement) {
        let control = self.control.at(0);
        // SAFETY: mapped and aligned; the program only reads these fields.
        unsafe {
            (&raw mut (*control).query_at).write_volatile(statement.at);
            (&raw mut (*control).idle).write_volatile(statement.idle);
            (&raw mut (*control).query).write_volatile(statement.variable);
            (&raw mut (*control).word).write_volatile(word);
            (&raw mut (*control).main_tgid).write_volatile(main_tgid);
        }
    }

    fn tid(&self, number: usize) -> u32 {
        // SAFETY: mapped and aligned.
        unsafe { (&raw const (*self.slots.at(number)).tid).read_volatile() }
    }

    fn sequence(&self, number: usize) -> u32 {
        // SAFETY: mapped and aligned.
        let seq = unsafe { AtomicU32::from_ptr(&raw mut (*self.slots.at(number)).seq) };
        seq.load(Ordering::Acquire)
    }

    fn place(&self, tid: u32) -> Option<&AtomicU16> {
        let block = tid as usize / TIDS;
        if block >= self.places.len() {
            return None;
        }
        let places = self.places.at(block);
        // SAFETY: mapped and aligned; 16 bits are read and written at once.
        Some(unsafe { AtomicU16::from_ptr(&raw mut (*places).slot[tid as usize % TIDS]) })
    }
}
