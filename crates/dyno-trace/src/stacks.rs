//! Reads the stacks of sleeping tasks that the trace's program takes.

use aya::maps::{MapData, RingBuf};
use dyno_bpf::{MappedArray, Plain, SleepEvent, SleepStacks};
use dyno_observe::{Names, Status};

use crate::layout::{Control, Slot};

/// The program's ring of stacks, and the parts of its memory that their reader needs.
pub struct Stacks {
    pub ring: RingBuf<MapData>,
    pub control: MappedArray<Control>,
    pub slots: MappedArray<Slot>,
    pub malformed: u64,
    pub names: Names,
    /// Status of labels that could not be read.
    pub unread: Status,
    /// Status of statements' ids.
    pub statements: String,
}

impl SleepStacks for Stacks {
    fn take(&mut self) -> Option<SleepEvent> {
        loop {
            let item = self.ring.next()?;
            if let Some(asleep) = copied(&item) {
                return Some(SleepEvent::Asleep(asleep));
            }
            if let Some(woken) = copied(&item) {
                return Some(SleepEvent::Woken(woken));
            }
            self.malformed += 1;
        }
    }

    fn pace(&self, every: f64) {
        let control = self.control.at(0);
        // SAFETY: mapped and aligned; the program only reads these fields.
        unsafe {
            (&raw mut (*control).every).write_volatile((every * every) as u64);
            (&raw mut (*control).every_ns).write_volatile((every * 1024.0) as u64);
        }
    }

    fn lost(&self) -> (u64, u64) {
        let control = self.control.read(0);
        (control.lost_stacks, control.lost_asleep_ns)
    }

    fn malformed(&self) -> u64 {
        self.malformed
    }

    fn under_way(&self, own: u32, tid: u32, began_ns: u64) -> bool {
        let slot = self.slots.read(own as usize);
        slot.tid == tid && slot.sampled_ns == began_ns
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn unread(&self) -> Status {
        self.unread
    }

    fn statements(&self) -> &str {
        &self.statements
    }
}

/// Returns a copy of a record, or None if it is of another type: records differ in length.
fn copied<T: Plain>(bytes: &[u8]) -> Option<Box<T>> {
    // SAFETY: any bytes are a value, and there are enough; they need not be aligned.
    (bytes.len() == size_of::<T>()).then(|| Box::new(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }))
}
