//! Names of the codes of a wait event word.

use std::borrow::Cow;
use std::collections::HashMap;

/// Class of the two codes that are no wait event of any server: a process that is stopped, whatever it waits for.
const STOPPED: &str = "Stopped";
/// Code of a process stopped by a signal or a tracer.
pub const SIGNALLED: u32 = u32::MAX - 1;
/// Code of a process whose control group is frozen.
pub const FROZEN: u32 = u32::MAX - 2;

/// Wait classes and events by code. The top byte of a code is its class, the low 16 bits number the event
/// within; 0 is no wait event.
#[derive(Debug, Clone, Default)]
pub struct Names {
    events: HashMap<u32, (String, String)>,
    classes: HashMap<u32, String>,
}

impl Names {
    /// Returns the names of `events` (code, wait class, wait event), and of `classes` (top byte, wait class) for codes
    /// without a name.
    pub fn new(events: &[(u32, String, String)], classes: &[(u32, String)]) -> Self {
        Self {
            events: events
                .iter()
                .map(|(code, class, event)| (*code, (class.clone(), event.clone())))
                .collect(),
            classes: classes.iter().cloned().collect(),
        }
    }

    /// Returns wait class and wait event, or None for no wait event. A code without a name gets its number as its
    /// name.
    pub fn name(&self, code: u32) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
        if code == 0 {
            return None;
        }
        let stopped = match code {
            SIGNALLED => Some("Signal"),
            FROZEN => Some("Frozen"),
            _ => None,
        };
        if let Some(event) = stopped {
            return Some((Cow::from(STOPPED), Cow::from(event)));
        }
        if let Some((class, event)) = self.events.get(&code) {
            return Some((Cow::from(class), Cow::from(event)));
        }
        let top = code >> 24;
        let class = self.classes.get(&top);
        let class = class.map_or_else(|| Cow::from(format!("#{top}")), Cow::from);
        Some((class, Cow::from(format!("#{}", code & 0xffff))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        Names::new(
            &[(0x0600_0000, "Network".into(), "Read".into())],
            &[(6, "Network".into()), (1, "Latch".into())],
        )
    }

    #[test]
    fn zero_is_no_wait_event_and_what_has_no_name_keeps_its_number() {
        let names = names();
        let text = |code| names.name(code).map(|(c, e)| format!("{c}/{e}"));
        assert_eq!(text(0), None);
        assert_eq!(text(SIGNALLED).as_deref(), Some("Stopped/Signal"));
        assert_eq!(text(FROZEN).as_deref(), Some("Stopped/Frozen"));
        assert_eq!(text(0x0600_0000).as_deref(), Some("Network/Read"));
        assert_eq!(text(0x0600_0001).as_deref(), Some("Network/#1"));
        assert_eq!(text(0x0100_0041).as_deref(), Some("Latch/#65"));
        assert_eq!(text(0x0c00_ffff).as_deref(), Some("#12/#65535"));
    }

    proptest! {
        #[test]
        fn every_code_but_zero_is_some_event(code in 1_u32..) {
            prop_assert!(names().name(code).is_some_and(|(c, e)| !c.is_empty() && !e.is_empty()));
        }
    }
}
