//! Readiness without all sources: by seal and by time.

use crate::Store;
use crate::engine::{Engine, closed};
use crate::home::{Ended, Shard, State};
use forebay_core::{Decision, DecisionKind, LiveState, Primary, Result, Token};

impl Store {
    /// The event is ready now, with what it has. `false` where there is no such event; sealing a ready one is a success.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`.
    pub fn seal(&self, primary: &Primary) -> Result<bool> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.relieve_log();
        let effects = engine.quiesce.read();
        let cell = engine.cell_of(primary.as_bytes());
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let Some(event) = shard.find(primary.as_bytes()).filter(|&event| shard.events[event].counted) else {
            return Ok(false);
        };
        if shard.events[event].state == State::Live(LiveState::Open) {
            engine.make_ready(&mut shard, event)?;
            // Ready is monotone also for who asks: durable before it is answered.
            engine.hot.region.fence();
            cell.publish_ready(&shard);
        }
        drop(shard);
        drop(effects);
        engine.notify_ready();
        Ok(true)
    }
}

impl Engine {
    /// Moves an open event to ready and marks that (flushed, not fenced). One without a readable fragment has nothing
    /// to process: it waits on for what is in flight, or, all of it removed, it ends. Within a quiesce guard.
    pub(crate) fn make_ready(&self, shard: &mut Shard, event: u32) -> Result<()> {
        if shard.events[event].present > 0 {
            shard.events[event].ready_marked = true;
            self.mark_event(shard, event);
            shard.move_to(event, LiveState::Ready);
        } else if shard.events[event].pending > 0 {
            // Its turn comes again at the end of the list.
            shard.events[event].arrival_ns = self.now_ns();
            shard.move_to(event, LiveState::Open);
        } else if !shard.events[event].counted {
            if let Some(attributes) = self.withdraw_unborn(shard, event) {
                self.hot.end_record(attributes, self.hot.length_of(attributes));
            }
        } else {
            self.log.append(
                &self.hot,
                &Decision {
                    kind: DecisionKind::RemoveEvent,
                    token: Token::NONE,
                    fragments: 0,
                    bytes: 0,
                    detail: 0,
                    key: shard.primary(event).as_bytes().to_vec(),
                },
            )?;
            let run = shard.events[event].run as usize;
            let mut ended = Ended::new();
            let tally = self.end(shard, event, &mut ended);
            shard.runs[run].ledger.removed += tally;
            self.finish(&ended);
        }
        Ok(())
    }
}
