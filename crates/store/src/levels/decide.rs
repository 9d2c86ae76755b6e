//! Decisions go to the log of the level on which their event stands: never less durable than what they decide.
//!
//! ```text
//! nothing of it warm: hot log, durable when `record` returns
//! some of it warm:    log of its device, durable when `settle` returns; effects on the medium only after that
//! ```
//!
//! *Invariants*: all decisions about one event on the warm level go to the log of one device, so that their order is
//! known; the hot log takes them where that device's log refuses.

use crate::engine::{Engine, deadline_after};
use crate::home::{Flag, Shard};
use crate::warm::LogTicket;
use forebay_core::{Blob, Decision, Error, Result};

/// A decision on its way to a device.
#[must_use = "a decision is durable when it has settled"]
pub(crate) struct Logged(Option<OnDevice>);

struct OnDevice {
    ticket: LogTicket,
    decision: Decision,
    /// The hot log has it as well.
    on_hot: bool,
}

/// Verdicts without a log that are remembered.
const UNSETTLED_MAX: usize = 1 << 16;

impl Engine {
    /// Records a decision about an event whose lock is held.
    pub(crate) fn record(&self, shard: &Shard, event: u32, decision: &Decision) -> Result<Logged> {
        self.record_on(shard, event, decision, false)
    }

    /// The same; with `on_hot` the hot log has it in any case, before what follows from it on the hot level can be found
    /// there by the next life. For decisions that say the same when they are read twice.
    pub(crate) fn record_on(&self, shard: &Shard, event: u32, decision: &Decision, on_hot: bool) -> Result<Logged> {
        if let Some(level) = &self.level
            && shard.events[event].is(Flag::Warm)
        {
            let device = level.log_device(self.shard_of(shard.primary(event).as_bytes()));
            let deadline = deadline_after(level.patience);
            // A log behind the last snapshot of the hot level is not read beside it.
            let on_hot = on_hot || level.is_behind(device);
            if on_hot {
                self.log.append(&self.hot, decision)?;
            }
            if let Ok(ticket) = level.log.append_decision(device, decision, deadline) {
                return Ok(Logged(Some(OnDevice { ticket, decision: decision.clone(), on_hot })));
            }
            level.note(format!("the decision log of device {device} refuses: decisions go to the hot log"));
            if on_hot {
                return Ok(Logged(None));
            }
        }
        self.log.append(&self.hot, decision)?;
        Ok(Logged(None))
    }

    /// Waits until a decision is durable. Not under a lock where it can be helped: it may take a device's time.
    ///
    /// # Errors
    /// `OutcomeUnknown` where the device's log failed: then the decision stands in the hot log.
    pub(crate) fn settle(&self, logged: Logged) -> Result<()> {
        let Some(OnDevice { ticket, decision, on_hot }) = logged.0 else { return Ok(()) };
        let Some(level) = &self.level else { return Ok(()) };
        let Err(error) = level.log.wait(ticket, deadline_after(level.patience)) else { return Ok(()) };
        level.note(error.to_string());
        if !on_hot {
            let token = (decision.token.boot, decision.token.counter);
            let mut unsettled = self.unsettled.lock();
            if unsettled.len() < UNSETTLED_MAX {
                unsettled.insert(token);
            }
            drop(unsettled);
            self.log.append(&self.hot, &decision)?;
            self.unsettled.lock().remove(&token);
        }
        Err(Error::unknown("the decision stands in the hot log only: the log of its device failed; repeat the call")
            .with_source(error))
    }

    /// Writes what the log says in words of its own; devices are told as well, so that they can be understood alone.
    pub(crate) fn journal_blob(&self, blob: Blob, data: &[u8]) -> Result<()> {
        self.log.append_blob(&self.hot, blob, data)?;
        let Some(level) = &self.level else { return Ok(()) };
        let deadline = deadline_after(level.patience);
        let tickets = (0..level.devices).map(|device| level.log.append_blob(device, blob, data, deadline));
        for ticket in tickets.collect::<Vec<_>>() {
            let told = ticket.and_then(|ticket| level.log.wait(ticket, deadline));
            if let Err(error) = told {
                // The hot log has it; the device is told again with the next snapshot.
                level.note(error.to_string());
            }
        }
        Ok(())
    }

    /// Both, for what happens rarely.
    pub(crate) fn record_now(&self, shard: &Shard, event: u32, decision: &Decision) -> Result<()> {
        let logged = self.record(shard, event, decision)?;
        self.settle(logged)
    }
}
