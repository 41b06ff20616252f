//! What a reader of sleeping tasks' stacks sees of the trace's program.

use aya::maps::{MapData, RingBuf};
use dyno_observe::{Names, Status};

use crate::layout::{Asleep, Control, Plain, Slot, Woken};
use crate::memory::Shared;

/// Stacks of sleeps as they come, and what is known of all of them.
pub struct Stacks {
    pub(crate) ring: RingBuf<MapData>,
    pub(crate) control: Shared<Control>,
    pub(crate) slots: Shared<Slot>,
    /// Of labels.
    pub names: Names,
    /// Why a label is not known where it is not.
    pub unread: Status,
    /// Status of statements' ids.
    pub statements: String,
}

/// Something of a sleep that was chosen.
pub enum Event {
    /// It began.
    Asleep(Box<Asleep>),
    /// It ended.
    Woken(Box<Woken>),
}

impl Stacks {
    /// The next event; `None`: no more for now.
    pub fn take(&mut self) -> Option<Event> {
        loop {
            let item = self.ring.next()?;
            if let Some(asleep) = copied(&item) {
                return Some(Event::Asleep(asleep));
            }
            if let Some(woken) = copied(&item) {
                return Some(Event::Woken(woken));
            }
        }
    }

    /// From now on a stack is to stand for so much time asleep, in 2^10 ns.
    pub fn pace(&self, every: f64) {
        let control = self.control.at(0);
        // SAFETY: mapped and aligned; the program only reads this field.
        unsafe { (&raw mut (*control).every).write_volatile((every * every) as u64) };
    }

    /// Stacks and ends of sleeps that found no room.
    pub fn left_out(&self) -> u64 {
        self.control.read(0).lost_stacks
    }

    /// Whether the sleep of task `tid` that began then has not ended; `own`: number of its slot.
    pub fn under_way(&self, own: u32, tid: u32, began_ns: u64) -> bool {
        let slot = self.slots.read(own as usize);
        slot.tid == tid && slot.sampled_ns == began_ns
    }
}

/// A copy of a record, if it is one of these.
fn copied<T: Plain>(bytes: &[u8]) -> Option<Box<T>> {
    // SAFETY: any bytes are a value, and there are enough; they need not be aligned.
    (bytes.len() == size_of::<T>()).then(|| Box::new(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }))
}
