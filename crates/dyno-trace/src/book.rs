//! The slot of each task: slots are given out, read and taken back.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use aya::maps::{MapData, Queue};
use dyno_bpf::{MappedArray, Plain, Statement, UNREAD};

use crate::account::adds_up;
use crate::layout::{Calls, Control, Places, Slot, TIDS, Wait, doing, first_index};

/// Slot 0 means none.
pub(crate) const FEWEST_SLOTS: u32 = 2;
/// The program numbers slots with 16 bits.
pub(crate) const MOST_SLOTS: u32 = u16::MAX as u32;
/// Number of times a slot is read while the program writes it meanwhile.
pub(crate) const TRIES: usize = 100;
/// The program writes a slot for microseconds after it was looked up; a hypervisor may stop it in between.
const GRACE_NS: u64 = 1_000_000_000;

/// The maps of a loaded program.
#[derive(Debug)]
pub struct Book {
    pub control: MappedArray<Control>,
    pub places: MappedArray<Places>,
    pub slots: MappedArray<Slot>,
    pub calls: MappedArray<Calls>,
    pub vacant: Vacant,
    pub retired: Retired,
}

/// Slots of tasks whose end the program did not see, and the time since when no task has their numbers. The program
/// may still be writing them.
#[derive(Debug, Default)]
pub struct Retired(Vec<(usize, u64)>);

impl Retired {
    fn add(&mut self, number: usize, now_ns: u64) {
        self.0.push((number, now_ns));
    }

    /// Takes out the slots that no program can be writing any more.
    fn safe(&mut self, now_ns: u64) -> Vec<usize> {
        let (safe, kept) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(_, since_ns)| now_ns.saturating_sub(*since_ns) >= GRACE_NS);
        self.0 = kept;
        safe.into_iter().map(|(number, _): (usize, u64)| number).collect()
    }
}

/// Numbers of free slots. The program takes from it, too, for newborn processes.
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
    /// Describes why the queue cannot be filled.
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
pub struct NewTask {
    pub tid: u32,
    pub tgid: u32,
    /// Address of the pointer to its wait event word, or 0 if it has none.
    pub word: u64,
    /// Location of the id of its statement.
    pub statement: Statement,
    pub now_ns: u64,
}

impl Book {
    /// Returns the slot of a task that is watched and has not ended.
    pub fn find(&self, tid: u32) -> Option<usize> {
        let number = self.place(tid)?.load(Ordering::Acquire);
        (number != 0).then_some(usize::from(number))
    }

    /// Gives a slot to a task that has none. Returns its number, or None if all are taken.
    pub fn take(&mut self, new_task: NewTask) -> Option<usize> {
        self.place(new_task.tid)?;
        let number = self.vacant.take()?;
        let mut slot = Slot::zeroed();
        slot.tid = new_task.tid;
        slot.tgid = new_task.tgid;
        slot.word = new_task.word;
        slot.query = new_task.statement.variable;
        slot.query_at = new_task.statement.at;
        slot.idle = new_task.statement.idle;
        slot.taken = 1;
        slot.own = number as u32;
        slot.first_ns = new_task.now_ns;
        slot.since_ns = new_task.now_ns;
        slot.seed_label = UNREAD;
        // always there: labels that find no room are added to it
        slot.waits[first_index(UNREAD)] = Wait {
            label: UNREAD,
            used: 1,
            ..Wait::default()
        };
        self.slots.write(number, slot);
        if self.calls.entries() > number {
            self.calls.write(number, Calls::zeroed());
        }
        self.place(new_task.tid)?.store(number as u16, Ordering::Release);
        Some(number)
    }

    /// Sets the state of a task when it was first watched, read after [`Book::take`]. It is used only until the
    /// program has seen an event of the task.
    pub fn seed(&self, number: usize, label: u32, query: u64, blocked: bool) {
        let slot = self.slots.at(number);
        // SAFETY: mapped and aligned; the program reads these fields and never writes them.
        unsafe {
            (&raw mut (*slot).seed_query).write_volatile(query);
            (&raw mut (*slot).seed_label).write_volatile(label);
            (&raw mut (*slot).seed_blocked).write_volatile(u32::from(blocked));
        }
    }

    /// Returns a consistent copy of a slot, or None if it changed at each try.
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

    /// Returns the numbers of slots whose task the program has seen end.
    pub fn ended(&self) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: mapped and aligned.
        let state = |n: usize| unsafe { (&raw const (*self.slots.at(n)).doing).read_volatile() };
        self.used().filter(move |&n| state(n) == doing::ENDED)
    }

    /// Returns the numbers of all slots in use.
    pub fn used(&self) -> impl Iterator<Item = usize> + '_ {
        (1..self.slots.entries()).filter(|&n| self.tid(n) != 0)
    }

    /// Takes a slot back whose sums were read and whose task's end the program has seen, so that it does not write the
    /// slot any more.
    pub fn release(&mut self, number: usize) {
        let tid = self.tid(number);
        if let Some(place) = self.place(tid) {
            let _ = place.compare_exchange(number as u16, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.slots.write(number, Slot::zeroed());
        if self.calls.entries() > number {
            self.calls.write(number, Calls::zeroed());
        }
        self.vacant.give_back(number);
    }

    /// Takes a slot back whose sums were read and whose task has ended unseen. It is given to another task only after
    /// [`GRACE_NS`].
    pub fn retire(&mut self, number: usize, now_ns: u64) {
        if let Some(place) = self.place(self.tid(number)) {
            let _ = place.compare_exchange(number as u16, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        // SAFETY: mapped and aligned; the program writes this field of newborn tasks alone.
        unsafe { (&raw mut (*self.slots.at(number)).tid).write_volatile(0) };
        self.retired.add(number, now_ns);
    }

    /// Makes slots free that were retired long enough ago.
    pub fn free_retired(&mut self, now_ns: u64) {
        for number in self.retired.safe(now_ns) {
            self.release(number);
        }
    }

    /// Resets the maps to their first state while the program is attached to nothing.
    pub fn clear(&mut self) {
        let used: Vec<usize> = self.used().collect();
        for number in used {
            self.release(number);
        }
        self.free_retired(u64::MAX);
        self.control.write(0, Control::zeroed());
    }

    /// Returns the number of newborn processes that found no slot.
    pub fn lost(&self) -> u64 {
        self.control.read(0).lost
    }

    /// Returns the number of newborn processes that found a slot.
    pub fn born(&self) -> u64 {
        self.control.read(0).born
    }

    /// Watches processes born of `main_tgid` from now on (0 for none). `word` is as in [`NewTask`].
    pub fn watch_children(&self, main_tgid: u32, word: u64, statement: Statement) {
        let control = self.control.at(0);
        // SAFETY: mapped and aligned; the program only reads these fields.
        unsafe {
            (&raw mut (*control).query_at).write_volatile(statement.at);
            (&raw mut (*control).idle).write_volatile(statement.idle);
            (&raw mut (*control).query).write_volatile(statement.variable);
            (&raw mut (*control).word).write_volatile(word);
            // last: with it the program uses the others
            AtomicU32::from_ptr(&raw mut (*control).main_tgid).store(main_tgid, Ordering::Release);
        }
    }

    #[cfg(test)]
    pub fn place_of(&self, tid: u32) -> &AtomicU16 {
        self.place(tid).expect("a number that there can be")
    }

    fn tid(&self, number: usize) -> u32 {
        // SAFETY: mapped and aligned.
        let tid = unsafe { AtomicU32::from_ptr(&raw mut (*self.slots.at(number)).tid) };
        tid.load(Ordering::Acquire)
    }

    fn sequence(&self, number: usize) -> u32 {
        // SAFETY: mapped and aligned.
        let seq = unsafe { AtomicU32::from_ptr(&raw mut (*self.slots.at(number)).seq) };
        seq.load(Ordering::Acquire)
    }

    fn place(&self, tid: u32) -> Option<&AtomicU16> {
        let block = tid as usize / TIDS;
        if block >= self.places.entries() {
            return None;
        }
        let places = self.places.at(block);
        // SAFETY: mapped and aligned; 16 bits are read and written at once.
        Some(unsafe { AtomicU16::from_ptr(&raw mut (*places).slot[tid as usize % TIDS]) })
    }
}
