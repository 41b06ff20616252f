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
    pub(crate) malformed: u64,
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
            self.malformed += 1;
        }
    }

    /// From now on a stack is to stand for so much time asleep, in 2^10 ns.
    pub fn pace(&self, every: f64) {
        let control = self.control.at(0);
        // SAFETY: mapped and aligned; the program only reads these fields.
        unsafe {
            (&raw mut (*control).every).write_volatile((every * every) as u64);
            (&raw mut (*control).every_ns).write_volatile((every * 1024.0) as u64);
        }
    }

    /// Stacks and ends of sleeps that found no room so far, and about how much sleep they stood for, nanoseconds.
    pub fn lost(&self) -> (u64, u64) {
        let control = self.control.read(0);
        (control.lost_stacks, control.lost_asleep_ns)
    }

    /// Records that are none of these.
    pub fn malformed(&self) -> u64 {
        self.malformed
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
