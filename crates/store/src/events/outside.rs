//! What another node says of events: that a fragment is stored there, that an event was decided. The home of a cluster's
//! events has no more of them than this.
//!
//! ```text
//! a holder's arrival ─▶ hear ─▶ slot with a place that only placement reads ─▶ booked, and ready by the event's rule
//! a decision         ─▶ heed ─▶ the event ends, is booked and remembered    ─▶ places, whose nodes are to be told
//! ```
//!
//! *Invariants*: both may be said again, in any order: a fragment counts once, and not for an event that is decided
//! (tests.rs).
//!
//! *Not here*: fragments and decisions of this node, which are records first (`calls/`, `placement/record.rs`).

use super::{Ended, PlaceBits, ShardEvents, State, Word};
use forebay_core::Tally;
use forebay_media::bytes::DecisionKind;

/// A fragment that is stored elsewhere.
pub(crate) struct Heard<'a> {
    /// Its event and its source, packed.
    pub(crate) key: (&'a [u8], &'a [u8]),
    /// Its run, by its place among those of the shard.
    pub(crate) run: u16,
    /// Where it is.
    pub(crate) place: PlaceBits,
    pub(crate) length: u32,
    pub(crate) now_ns: u64,
}

impl ShardEvents {
    /// A fragment is stored elsewhere; answers its event. `None` if that is decided, or has the fragment.
    pub(crate) fn hear(&mut self, heard: &Heard<'_>) -> Option<u32> {
        let (primary, rest) = heard.key;
        let event = match self.find(primary) {
            Some(event) => event,
            None if self.runs[usize::from(heard.run)].decided.contains(self.shape.decided_form, primary) => {
                return None;
            }
            None => self.create(primary, heard.run, heard.now_ns),
        };
        if !matches!(self[event].state, State::Live(_)) {
            return None;
        }
        let slot = self.slot(event, rest).err()?;
        self.insert_slot(event, slot, rest, Word::at(heard.place));
        // Offered there, and to this account: it balances as that of a node with the fragment does.
        self.runs[usize::from(heard.run)].ledger.offered += Tally::fragment(u64::from(heard.length));
        self.arrived(event, heard.key, heard.length);
        Some(event)
    }

    /// An event was decided elsewhere, which ends it: the places of its fragments go to `ended`. `false` if it is not live here.
    pub(crate) fn heed(&mut self, primary: &[u8], kind: DecisionKind, group: u64, ended: &mut Ended) -> bool {
        let Some(event) = self.find(primary).filter(|&event| matches!(self[event].state, State::Live(_))) else {
            return false;
        };
        self.end(event, kind, group, ended);
        true
    }
}
