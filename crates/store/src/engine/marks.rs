//! The marks of an event (stage, deliveries, that it is ready) and their one durable home: beside a readable fragment on the
//! hot level, or in the log.
//!
//! *Invariant*: marks that say more than a new event does have a home, whatever of the event comes and goes
//! ([`Engine::marks_have_a_home`], asserted after each change; random lives in `tests/marks.rs`). Recovery believes the most
//! that it finds, so a second place that says the same or less does no harm.

use super::Engine;
use crate::events::State;
use crate::placement::At;
use crate::shards::Shard;
use forebay_core::LiveState;
use forebay_media::bytes::{Decision, DecisionKind, StateWord};
use forebay_media::hot::Location;

impl Engine {
    /// Makes the marks durable, beside the first readable fragment or in the log. Flushed, not fenced. `false` where the log had
    /// no space.
    pub(crate) fn mark_event(&self, shard: &mut Shard, event: u32) -> bool {
        let anchor = shard.anchor(event);
        self.keep_marks(shard, event, anchor)
    }

    /// The same with a chosen home: a fragment that stays, or a version that is about to replace one; `None` where no
    /// readable fragment stays.
    pub(crate) fn keep_marks(&self, shard: &mut Shard, event: u32, beside: Option<Location>) -> bool {
        let marks = shard.events[event].marks();
        let logged = shard.events.slab.at(event, At::MarksLogged);
        if marks == StateWord::FRESH && !logged {
            return true;
        }
        match beside.filter(|_| !shard.events.slab.is_logged(event)) {
            // One word beside one fragment, not one beside each: recovery takes the highest that it finds.
            Some(location) => {
                self.placement.hot.mark(location, marks);
                true
            }
            None => self.log_marks(shard, event),
        }
    }

    /// Writes a lower count of deliveries, and that it does not lack masked sources any more, beside every fragment that
    /// says otherwise: the first fragment may be another than it was at the grant, and recovery believes the highest. Flushed,
    /// not fenced.
    pub(crate) fn lower_marks(&self, shard: &mut Shard, event: u32) {
        if shard.events.slab.is_logged(event) {
            self.log_marks(shard, event);
            return;
        }
        let marks = shard.events[event].marks();
        for (_, location) in shard.fragments(event, |_| true) {
            let noted = self.placement.hot.state_of(location);
            let more = |noted: StateWord| noted.deliveries > marks.deliveries || noted.masked && !marks.masked;
            if noted.is_none_or(more) {
                self.placement.hot.mark(location, marks);
            }
        }
        debug_assert!(self.marks_have_a_home(shard, event), "lowered marks of event {event} are nowhere");
    }

    /// Writes the marks into the log, which is their home from now on. Without space the next snapshot has them first: after
    /// a crash before it the event goes out once more than it should. Shadows are told and not waited for: with the hot level
    /// lost it may do so as well. `false` where the log had no space.
    #[cold]
    pub(crate) fn log_marks(&self, shard: &mut Shard, event: u32) -> bool {
        let marks = shard.events[event].marks();
        let detail = mark_detail(&marks);
        let primary = shard.events.primary(event);
        let about = Decision::about(DecisionKind::Mark, primary.as_bytes());
        let record = Decision { detail, stage: marks.stage, ..about };
        // Also where the log refuses: then the next snapshot must have them.
        shard.events.slab.set_at(event, At::MarksLogged);
        match self.record(shard, event, &record) {
            Ok(ticket) => {
                ticket.unanswered();
                true
            }
            Err(_) => false,
        }
    }

    /// Whether recovery would find what the event's marks say.
    pub(crate) fn marks_have_a_home(&self, shard: &Shard, event: u32) -> bool {
        let leaf = &shard.events[event];
        let undecided = matches!(leaf.state, State::Live(LiveState::Open | LiveState::Ready | LiveState::Leased));
        let marks = leaf.marks();
        if !undecided || marks == StateWord::FRESH || shard.events.slab.is_logged(event) {
            return true;
        }
        let noted = shard.fragments(event, |_| true).filter_map(|(_, location)| self.placement.hot.state_of(location));
        let most = noted.map(|word| (word.stage, word.deliveries, word.ready)).max();
        most >= Some((marks.stage, marks.deliveries, marks.ready))
    }
}

/// How a record of marks says them.
pub(crate) fn mark_detail(marks: &StateWord) -> u32 {
    u32::from(marks.deliveries) | u32::from(marks.ready) << 8 | u32::from(marks.masked) << 9
}
