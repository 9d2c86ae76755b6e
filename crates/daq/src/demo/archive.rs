//! The demo's archive: accepted events are kept for a while, on the warm level once they went down, and
//! released in the order in which they were accepted.
//!
//! ```text
//! final: accept ─▶ custody (bytes bounded) ─▶ one event of ten is read back whole, verified ─▶ release
//! ```
//!
//! Without a warm level there is no custody: the filters release what they accepted.
//!
//! *On failure*: bytes that do not verify end the demo with `Corrupt`, as those that a filter reads.

use super::filter;
use super::shared::DemoShared;
use crate::limits::{ARCHIVE_WAIT, READ_BACK_EVERY};
use crate::threads::Together;
use forebay_core::{Level, Primary, Result};
use forebay_store::Sources;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Accepted events that wait for their release. What is in it is in the store: it is bounded by both levels.
#[derive(Default)]
pub(crate) struct Custody {
    state: Mutex<ArchiveState>,
}

#[derive(Default)]
struct ArchiveState {
    events: VecDeque<(Primary, u64)>,
    bytes: u64,
    /// Nothing comes any more.
    closed: bool,
}

/// What there is to do.
enum Next {
    Release(Primary),
    Wait,
    End,
}

impl Custody {
    /// An event of this many bytes was accepted.
    pub(crate) fn push(&self, primary: Primary, bytes: u64) {
        let mut state = self.state.lock();
        // Filters end before custody is closed: an event that came later would never be released.
        debug_assert!(!state.closed, "an event was accepted after the last filter had ended");
        state.bytes += bytes;
        state.events.push_back((primary, bytes));
    }

    /// All events have been accepted that ever will be: what is kept is released.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    fn next(&self, bytes_kept: u64) -> Next {
        let mut state = self.state.lock();
        // Kept for a while, so that accepted events reach the warm level before they are released.
        if state.bytes <= bytes_kept && !state.closed {
            return Next::Wait;
        }
        match state.events.pop_front() {
            Some((primary, bytes)) => {
                state.bytes -= bytes;
                Next::Release(primary)
            }
            None if state.closed => Next::End,
            None => Next::Wait,
        }
    }
}

/// What the archive's thread did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArchiveReport {
    pub(crate) read_back_events: u64,
    /// Of their fragments, those that came from a device.
    pub(crate) read_back_fragments: u64,
    /// Events that the store did not know any more.
    pub(crate) not_released: u64,
}

/// The body of the archive's thread; a failure ends the demo.
pub(crate) fn run(shared: &DemoShared<'_>) -> Result<ArchiveReport> {
    shared.guarded(|| {
        let mut report = ArchiveReport::default();
        let kept = shared.plan.warm.map_or(0, |warm| warm.custody_bytes);
        while !shared.aborted() {
            match shared.custody.next(kept) {
                Next::Release(primary) => hand_over(shared, &primary, &mut report)?,
                Next::Wait => std::thread::sleep(ARCHIVE_WAIT),
                Next::End => break,
            }
        }
        Ok(report)
    })
}

fn hand_over(shared: &DemoShared<'_>, primary: &Primary, report: &mut ArchiveReport) -> Result<()> {
    let (plan, store) = (shared.plan, shared.store);
    let number = plan.schema.values(primary.as_bytes()).last().copied().unwrap_or_default();
    // A sample: reading back every event would measure the demo's own reads.
    if number.is_multiple_of(READ_BACK_EVERY)
        && let Some(mut event) = store.get_event(primary, &Sources::All)?
    {
        // The result is no frame.
        event.fragments.retain(|fragment| !filter::is_result(plan, fragment));
        filter::inspect(plan, number, &event.fragments)?;
        let there = event.fragments.iter().filter(|fragment| fragment.level() == Level::Warm).count();
        report.read_back_events += 1;
        report.read_back_fragments += there as u64;
    }
    // No guard is held any more, so that the release frees the space.
    report.not_released += u64::from(!store.release(primary)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custody_keeps_what_it_may_and_gives_all_at_the_end() {
        let custody = Custody::default();
        let primary = |number: u8| Primary::from_packed(&[number; 12]);
        (0..4).for_each(|number| custody.push(primary(number), 10));
        let released = |kept| match custody.next(kept) {
            Next::Release(primary) => Some(primary.as_bytes()[0]),
            Next::Wait => None,
            Next::End => Some(u8::MAX),
        };
        assert_eq!([released(25), released(25), released(25)], [Some(0), Some(1), None]);
        custody.close();
        assert_eq!([released(25), released(25), released(25)], [Some(2), Some(3), Some(u8::MAX)]);
    }
}
