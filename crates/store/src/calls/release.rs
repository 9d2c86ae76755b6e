//! Letting go of what the archive has: one event, or all of a stream inside bounds.
//!
//! *Invariants*: a release is a decision of its own for each event: durable before it is answered. A call over a range does a
//! bounded amount of work and says where to go on.

use super::range::Walk;
use crate::Store;
use crate::engine::Engine;
use crate::events::State;
use crate::shards::Shard;
use forebay_core::mutants::is_planted;
use forebay_core::{Bounds, Error, LiveState, Primary, Released, Result};
use forebay_media::bytes::DecisionKind;

/// Events that one call over a range releases: with a device that takes a millisecond for each, some seconds.
const RELEASED_MAX: u64 = 4096;
/// Events that one call over a range looks at.
const LOOKED_AT_MAX: u64 = 1 << 20;

/// The name by which the debug stream is released.
const DEBUG_STREAM: &str = "debug";

/// Which events of a range are meant.
enum Chosen {
    All,
    Debug,
    Stream(u8),
}

impl Store {
    /// The archive has taken over an accepted or debug event: its space is freed. `false` if there is none.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`, `OutcomeUnknown` where a device does not make it durable.
    pub fn release(&self, primary: &Primary) -> Result<bool> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.release(primary)
    }

    /// The same for all accepted and debug events inside the primary part of the bounds, or only for those that were accepted
    /// into a stream (`debug`: those of the debug stream). An event that is in several streams is released from all of them.
    /// One call does a bounded amount of work: [`Released::after`] says where the next one goes on.
    ///
    /// # Errors
    /// `Invalid` for bounds of another schema, for bounds that cut through events, and for a stream that no event was accepted
    /// into; `Closed`; `OutcomeUnknown` where a device does not make it durable: what was released before stays so, and the
    /// same call may be repeated.
    pub fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released> {
        let engine = self.engine();
        if !bounds.covers_whole_events(&engine.keyspace.schema) {
            return Err(Error::invalid("a release takes whole events: leave the bounds of their sources out"));
        }
        let chosen = engine.chosen(stream)?;
        let mut walk = Walk::after(engine, bounds, after)?;
        let mut released = Released::default();
        let mut looked_at = 0;
        while let Some(primary) = walk.next(engine) {
            if engine.is_chosen(&primary, &chosen) && engine.release(&primary)? {
                released.events += 1;
            }
            looked_at += 1;
            if released.events == RELEASED_MAX || looked_at == LOOKED_AT_MAX {
                released.after = Some(primary);
                break;
            }
        }
        Ok(released)
    }
}

impl Engine {
    fn release(&self, primary: &Primary) -> Result<bool> {
        if is_planted("release-forgotten") {
            return Ok(true);
        }
        let kept = |shard: &Shard, event: u32| shard.events[event].state.is_kept();
        Ok(self.end_event(primary, DecisionKind::Release, kept)?.is_some())
    }

    fn chosen(&self, stream: Option<&str>) -> Result<Chosen> {
        let Some(name) = stream else { return Ok(Chosen::All) };
        let names = self.decisions.streams.read();
        match names.known(name) {
            Some(number) => Ok(Chosen::Stream(number)),
            None if name == DEBUG_STREAM => Ok(Chosen::Debug),
            None => Err(Error::invalid(format!(
                "no stream `{name}`: no event was accepted into it; there are: {}",
                names.names().iter().map(String::as_str).chain([DEBUG_STREAM]).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// A look ahead: the release itself checks the state again, and the streams of an accepted event do not change.
    fn is_chosen(&self, primary: &Primary, chosen: &Chosen) -> bool {
        let shard = self.shards.cell_of(primary.as_bytes()).lock();
        let Some(event) = shard.events.find(primary.as_bytes()) else { return false };
        let leaf = &shard.events[event];
        match (leaf.state, chosen) {
            (State::Live(LiveState::Accepted), Chosen::Stream(wanted)) => {
                let detail = leaf.output();
                drop(shard);
                self.streams_of(detail).iter().any(|(stream, _)| stream == wanted)
            }
            (State::Live(LiveState::Accepted), Chosen::All) => true,
            (State::Live(LiveState::Debug), Chosen::All | Chosen::Debug) => true,
            _ => false,
        }
    }
}
