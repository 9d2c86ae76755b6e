//! Runs that nobody opened, where puts may open them (`auto_open_runs`): what has come of each so far.
//!
//! One flipped bit in a run number must open nothing: a run opens once `auto_open_after` different fragments of it have come,
//! near the highest run that is known, while no more than [`AUTO_OPENED_MAX`] such runs take events.

use super::{KnownRun, RUN_OPENS};
use crate::limits::{AUTO_OPENED_MAX, RUNS_AHEAD_MAX, UNKNOWN_RUNS_MAX};
use forebay_core::{Error, Result, Signature, nanoseconds};
use parking_lot::Mutex;

/// What has come of runs that are not known. Its lock is taken alone.
#[derive(Default)]
pub(crate) struct Unknown(Mutex<Vec<Seen>>);

struct Seen {
    run: u64,
    /// Keys that differ, no more than are asked for.
    keys: Vec<Box<[u8]>>,
    last_ns: u64,
}

impl Unknown {
    /// Notes that something with this key has come of a run; whether as many different ones as `wanted` have, each within
    /// [`RUN_OPENS`] of the one before. A put that waits for its run says so again and again.
    pub(crate) fn comes(&self, run: u64, key: &[u8], wanted: u8, now_ns: u64) -> bool {
        let mut all = self.0.lock();
        all.retain(|seen| now_ns.saturating_sub(seen.last_ns) <= nanoseconds(RUN_OPENS));
        let at = all.iter().position(|seen| seen.run == run).unwrap_or_else(|| {
            if all.len() >= UNKNOWN_RUNS_MAX {
                all.remove(0);
            }
            all.push(Seen { run, keys: Vec::new(), last_ns: now_ns });
            all.len() - 1
        });
        let seen = &mut all[at];
        seen.last_ns = now_ns;
        if !seen.keys.iter().any(|known| **known == *key) {
            seen.keys.push(key.into());
        }
        seen.keys.len() >= usize::from(wanted)
    }
}

/// Whether a run may open by itself beside those that are known.
///
/// # Errors
/// `Closed`, with the reason.
pub(crate) fn may_open_itself(run: u64, known: &[KnownRun]) -> Result<()> {
    let highest = known.iter().map(|known| known.run).max();
    if let Some(highest) = highest.filter(|highest| run > highest.saturating_add(RUNS_AHEAD_MAX)) {
        return Err(Error::closed(format!(
            "run {run} is not open, and too far above the highest known run, {highest}, to open by itself ({RUNS_AHEAD_MAX} at \
             most): open it by name"
        )));
    }
    let by_itself =
        |known: &&KnownRun| known.state.takes_events() && known.opened.by.as_deref() == Some(Signature::AUTO);
    if known.iter().filter(by_itself).count() >= AUTO_OPENED_MAX {
        return Err(Error::closed(format!(
            "run {run} is not open, and {AUTO_OPENED_MAX} runs that opened by themselves are, the limit: stop those that are over, \
             or open it by name"
        )));
    }
    Ok(())
}
