//! Calls that must not wait, and the callbacks that wake their caller: for an event loop that serves many clients.
//!
//! *Invariants*: nothing here waits for space, for another put or for a device; a call that says that it would wait has
//! booked nothing (tests/embedded.rs).
//!
//! *Not here*: the waiting: an event loop that gets `None` from a `try_` call makes the ordinary call on a thread that
//! may wait.

use crate::Store;
use forebay_core::{Level, Primary};
use std::task::Waker;

impl Store {
    /// Whether a read of this event, or a decision about it, may wait for a device: something of it is on the warm
    /// level. With `rest` (a packed source) only that fragment is looked at.
    pub fn may_wait(&self, primary: &Primary, rest: Option<&[u8]>) -> bool {
        let engine = self.engine();
        if engine.placement.level.is_none() {
            return false;
        }
        let shard = engine.shards.cell_of(primary.as_bytes()).lock();
        let Some(event) = shard.events.find(primary.as_bytes()) else { return false };
        shard.fragments(event, |one| rest.is_none_or(|rest| rest == one)).any(|(_, location)| location.is_warm())
            || shard.events.attribute_word(event).is_some_and(|word| word.is_warm())
    }

    /// Whether a verdict about a leased event may wait: for a device, or for puts that began before the lease and have not
    /// ended.
    pub fn verdict_may_wait(&self, primary: &Primary) -> bool {
        let engine = self.engine();
        let in_flight = || {
            let shard = engine.shards.cell_of(primary.as_bytes()).lock();
            shard.events.find(primary.as_bytes()).is_some_and(|event| shard.events[event].pending > 0)
        };
        engine.placement.level.is_some() || in_flight()
    }

    /// Whether [`Store::get_any`] without a wait may wait for a device: there is a warm level, and it is not ruled out.
    pub fn get_any_may_wait(&self, level: Option<Level>) -> bool {
        self.engine().placement.level.is_some() && level != Some(Level::Hot)
    }

    /// Wakes a task once there are ready events, soon after they became ready: a notice, not a promise. One notice wakes
    /// one task; who does not take what is ready must not rely on being the only one that waits.
    pub fn wake_when_ready(&self, waker: &Waker) {
        self.engine().events.waiting.add_task(waker);
    }

    /// The task is woken no more: it waits no longer. A notice that it had, and will not follow, goes to another.
    pub fn forget_waker(&self, waker: &Waker) {
        self.engine().events.waiting.forget_task(waker);
    }
}
