//! A readout thread: its links' frames go to the recording, at the links' pace or as fast as the devices take them.
//!
//! ```text
//! with a rate    frame n exists from (n + 1) periods on; overdue by more than RECORD_CATCH_UP: missed, not taken in time
//! as fast as it goes    a frame exists once the one before was taken; the first one that a full device misses ends it
//! ```
//!
//! *Invariants*: every frame of every link is pushed or entered as missed (test of `record`): links do not wait.

use super::config::Plan;
use super::shared::RecordShared;
use crate::limits::{READOUT_STEP, RECORD_CATCH_UP};
use forebay_core::{Error, Result};
use forebay_recorder::{GapReason, Pushed, RecordingLink};
use std::time::Instant;

/// Most pushes of a link before the clock is looked at again.
const STEP_PUSHES: u64 = 64;

/// The body of a thread: reads its links out until the recording's end, and gives them back.
pub(super) fn run(shared: &RecordShared<'_>, mut links: Vec<RecordingLink>) -> Result<()> {
    let plan = shared.plan;
    if plan.choices.fast {
        return fast(shared, &mut links);
    }
    let per_second = plan.pushes_per_second();
    let catch_up = ((RECORD_CATCH_UP.as_secs_f64() * per_second) as u64).max(1);
    let due_at = |at: Instant| ((at - shared.start).as_secs_f64() * per_second) as u64;
    let (mut next, mut end) = (0, plan.pushes());
    while next < end {
        if shared.stops() {
            // What exists by now still belongs to the recording.
            end = end.min(due_at(Instant::now()).max(next));
        }
        let due = due_at(Instant::now()).min(end);
        if due <= next {
            std::thread::sleep(READOUT_STEP);
            continue;
        }
        let lost = if due - next > catch_up { due - next - catch_up / 2 } else { 0 };
        if lost > 0 {
            for link in &mut links {
                link.missed(plan.tick(next), plan.tick(next + lost), lost, GapReason::NotTaken)?;
            }
        }
        next += lost;
        let last = due.min(next + STEP_PUSHES);
        for push in next..last {
            for link in &mut links {
                put(plan, link, push)?;
            }
        }
        next = last;
        if shared.aborts() {
            return Ok(());
        }
    }
    Ok(())
}

fn fast(shared: &RecordShared<'_>, links: &mut [RecordingLink]) -> Result<()> {
    let mut next = 0;
    while shared.start.elapsed().as_secs_f64() < shared.plan.choices.seconds && !shared.stops() {
        for push in next..next + STEP_PUSHES {
            for link in &mut *links {
                if let Pushed::Missed(reason) = put(shared.plan, link, push)? {
                    shared.end_with(reason);
                    return Ok(());
                }
            }
        }
        next += STEP_PUSHES;
    }
    Ok(())
}

/// Pushes one piece of a link, and looks whether its frames say what they should.
fn put(plan: &Plan, link: &mut RecordingLink, push: u64) -> Result<Pushed> {
    let number = link.number();
    let mut checked = Ok(());
    let pushed = link.push_with(plan.tick(push), plan.push_ticks, plan.push_bytes, |bytes| {
        plan.frames.fill(push, number, bytes);
        checked = plan.frames.check(push, number, bytes);
    })?;
    checked.map_err(|error| Error::internal(format!("a frame that was just made: {error}")))?;
    Ok(pushed)
}
