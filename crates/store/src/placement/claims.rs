//! Claims of movers: what each has for itself, and until when.
//!
//! *Invariants*: a unit belongs to one claim; a claim whose time is over is in force until somebody ends it, so that no work
//! that a heartbeat could still save is lost.
//!
//! *Not here*: what is claimed and what a proof does (`levels/custody.rs`).

use forebay_core::map::Hex128;
use forebay_core::{Primary, Token, Unit};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Claims at a time: each keeps the names of its events in memory.
pub(crate) const CLAIMS_MAX: usize = 64;
/// Proofs that are remembered, so that a repetition gets the same answer.
const PROVED_MAX: usize = 4 * CLAIMS_MAX;

/// One mover's claim.
pub(crate) struct Claimed {
    pub(crate) unit: Unit,
    /// The archive that it is moved to, where that has a name.
    pub(crate) archive: Option<Hex128>,
    pub(crate) events: Arc<Vec<Primary>>,
    pub(crate) until: Instant,
    /// Contents of a batch as its mover saw them first: what changed since is not released by its proof.
    pub(crate) seen: BTreeMap<Primary, u32>,
}

/// All claims of a store.
#[derive(Default)]
pub(crate) struct Claims {
    given: u64,
    /// The archive of the last proof.
    pub(crate) archive: Option<Hex128>,
    pub(crate) held: BTreeMap<Token, Claimed>,
    /// Events of batches, each in one claim.
    pub(crate) in_batches: BTreeSet<Primary>,
    /// Where the search for the next batch goes on.
    pub(crate) after: Option<Primary>,
    /// Since when events wait that are too few for a batch.
    pub(crate) few_since: Option<Instant>,
    proved: VecDeque<(Token, u64)>,
    /// How often each container was claimed since its last proof: others go first then, so that one that cannot be read does
    /// not keep them from the archive.
    pub(crate) unproved: BTreeMap<u32, u32>,
}

impl Claims {
    /// The next token of this life.
    pub(crate) fn token(&mut self, boot: u32) -> Token {
        self.given += 1;
        Token { epoch: 0, boot, counter: self.given }
    }

    /// Takes a claim out; its events can be claimed again.
    pub(crate) fn end(&mut self, token: &Token) -> Option<Claimed> {
        let claimed = self.held.remove(token)?;
        if claimed.unit == Unit::Batch {
            claimed.events.iter().for_each(|primary| _ = self.in_batches.remove(primary));
        }
        Some(claimed)
    }

    /// Claims whose time is over.
    pub(crate) fn over(&self, now: Instant) -> Vec<Token> {
        self.held.iter().filter(|(_, claimed)| claimed.until <= now).map(|(token, _)| *token).collect()
    }

    pub(crate) fn note_proved(&mut self, token: Token, events: u64) {
        if self.proved.len() == PROVED_MAX {
            self.proved.pop_front();
        }
        self.proved.push_back((token, events));
    }

    pub(crate) fn proved(&self, token: &Token) -> Option<u64> {
        self.proved.iter().find(|(known, _)| known == token).map(|(_, events)| *events)
    }
}

/// Releases from custody under way.
#[derive(Default)]
pub(crate) struct Custody {
    /// Events of the container whose time has come.
    pub(crate) releasing: VecDeque<Primary>,
    /// When to look for the next container.
    pub(crate) again: Option<Instant>,
    /// Containers that were tried, and when they are tried again if something still lives in them.
    pub(crate) later: BTreeMap<u32, Instant>,
    /// Containers that were proved in this life: a wall clock that jumps makes their custody no shorter.
    pub(crate) proved: BTreeMap<u32, Instant>,
    /// Containers of which events are just being counted for the answer to their proof: none of these is released before.
    pub(crate) counted: BTreeSet<u32>,
}
