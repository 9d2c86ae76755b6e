//! Calls that may wait long: they run on other threads, for a limited time each turn, so that all of them get turns.
//!
//! *Invariants*: nobody keeps a thread for longer than [`TURN`] while nothing is there (tests/session/waiting.rs).

use super::calls;
use super::control::{self, Object};
use super::outbox::Answer;
use crate::shared::now;
use forebay_core::{Call, GetAny, Result, ServedStore};
use forebay_wire::FrameHead;
use std::time::{Duration, Instant};

/// How long one turn waits.
pub(super) const TURN: Duration = Duration::from_millis(50);

/// A request for what may not be there yet.
pub(super) struct LongAsking<S: ServedStore> {
    pub(super) head: FrameHead,
    pub(super) call: Call,
    pub(super) from: Instant,
    pub(super) until: Instant,
    pub(super) store: S,
    pub(super) what: Long<S>,
}

/// What is asked for.
pub(super) enum Long<S: ServedStore> {
    /// Ready events, where a device may have to be read for them; this many bytes at most.
    GetAny(GetAny, u64),
    /// What an object of the connection has next.
    Next(Object<S>),
}

impl<S: ServedStore> LongAsking<S> {
    /// Asks for one turn; `None` where nothing was there.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) fn ask(&mut self) -> Result<Option<Answer<S>>> {
        let wait = self.until.saturating_duration_since(now()).min(TURN);
        match &mut self.what {
            Long::GetAny(request, most) => {
                request.wait = wait;
                let leases = calls::lease_any(&self.store, request, *most)?;
                if leases.is_empty() {
                    return Ok(None);
                }
                calls::say_leases(self.store.keyspace(), leases).map(Some)
            }
            Long::Next(object) => control::next(&self.store, object, wait),
        }
    }

    /// The answer if nothing came in its time.
    ///
    /// # Errors
    /// None that a caller could meet.
    pub(super) fn nothing(&self) -> Result<Answer<S>> {
        match &self.what {
            Long::GetAny(..) => calls::say_leases(self.store.keyspace(), Vec::new()),
            Long::Next(object) => control::nothing(object),
        }
    }
}
