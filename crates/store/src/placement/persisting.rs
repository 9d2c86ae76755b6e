//! Fragments that wait for a device, in groups that share a commit.

use forebay_media::bytes::{Entry, ImageMarks};
use forebay_media::hot::Location;
use forebay_media::warm::{Target, Writer};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, OnceLock};

/// One fragment that waits; its segment is pinned.
pub(crate) struct Waiting {
    pub(crate) number: u64,
    pub(crate) entry: Entry,
    pub(crate) from: Location,
    /// The marks of its event in its image.
    pub(crate) marks: ImageMarks,
    /// Position in the shadows of the opening of its run: the device has it before the put is answered.
    pub(crate) run: u64,
    /// Position of what was decided of its event before: the device has it before it has anything of the event. 0 where
    /// nothing was.
    pub(crate) standing: u64,
    pub(crate) answer: Answer,
}

/// The outcome for one fragment: persisted, or why not.
pub(crate) type Answer = Arc<OnceLock<std::result::Result<(), String>>>;

#[derive(Default)]
pub(crate) struct Group {
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) next: u64,
    pub(crate) leading: bool,
}

impl Group {
    /// What goes next, by key. One image has a key once: a second put of it waits for the next group.
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        self.waiting.sort_by(|a, b| a.entry.key.as_bytes().cmp(b.entry.key.as_bytes()));
        let (mut next, mut later): (Vec<Waiting>, Vec<Waiting>) = (Vec::new(), Vec::new());
        for waiting in self.waiting.drain(..) {
            let again = next.last().is_some_and(|last| last.entry.key == waiting.entry.key);
            // The sort keeps the order of one key: the version that was put first is written first.
            debug_assert!(
                !again || next.last().is_some_and(|last| last.number < waiting.number),
                "in order of arrival"
            );
            if again { later.push(waiting) } else { next.push(waiting) }
        }
        self.waiting = later;
        next
    }
}

// Two locks, so that puts can join the next group while this one is written: `group` is held for a moment, `writer` over the
// commit, and never one under the other.
/// The queue before the device.
#[derive(Default)]
pub(crate) struct Persisting {
    pub(crate) group: Mutex<Group>,
    pub(crate) changed: Condvar,
    pub(crate) writer: Mutex<Vec<(Target, Writer)>>,
}

impl Persisting {
    /// Its writers are given back; nothing is under way.
    pub(crate) fn close(&self) {
        self.writer.lock().clear();
    }
}
