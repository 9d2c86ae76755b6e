//! Incidents: puts that were not stored, remembered in bounded number to explain why something is missing.

use forebay_core::Key;
use std::collections::VecDeque;

/// Why a put was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum IncidentKind {
    RefusedFull = 1,
    RefusedStopped = 2,
    RefusedClosed = 3,
    LateLeased = 4,
    LateDecided = 5,
    Conflict = 6,
    Lost = 7,
}

impl IncidentKind {
    pub(crate) fn from_byte(byte: u8) -> Option<IncidentKind> {
        use IncidentKind::*;
        let all = [RefusedFull, RefusedStopped, RefusedClosed, LateLeased, LateDecided, Conflict, Lost];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// In words, for a person.
    pub(crate) fn words(self) -> &'static str {
        match self {
            IncidentKind::RefusedFull => "refused: the store was full until the put's deadline",
            IncidentKind::RefusedStopped => "refused: the run was stopped and takes no new events",
            IncidentKind::RefusedClosed => "refused: the run was closed",
            IncidentKind::LateLeased => "late: the event was leased or accepted",
            IncidentKind::LateDecided => "late: the event was decided or removed",
            IncidentKind::Conflict => "conflict: other bytes were there",
            IncidentKind::Lost => "lost: acknowledged bytes were damaged, and the operator accepted that",
        }
    }
}

/// One put that was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incident {
    pub(crate) key: Key,
    pub(crate) kind: IncidentKind,
    /// When, in nanoseconds of this life; 0 for an earlier life.
    pub(crate) at_ns: u64,
    pub(crate) length: u32,
}

/// Most that one shard remembers.
const INCIDENTS_MAX: usize = 1024;

/// The last ones of a shard.
#[derive(Debug, Default)]
pub(crate) struct Incidents(VecDeque<Incident>);

impl Incidents {
    #[cold]
    pub(crate) fn note(&mut self, incident: Incident) {
        // The oldest goes: a flood of refusals must not take memory, and the last ones are what somebody asks about.
        if self.0.len() == INCIDENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(incident);
    }

    /// Forgets the last one of a key.
    pub(crate) fn take_back(&mut self, key: &Key) {
        if let Some(at) = self.0.iter().rposition(|incident| incident.key == *key) {
            self.0.remove(at);
        }
    }

    pub(crate) fn of(&self, key: &Key) -> impl Iterator<Item = &Incident> {
        self.0.iter().filter(move |incident| incident.key == *key)
    }

    /// The last `n`, oldest first.
    pub(crate) fn last(&self, n: usize) -> impl Iterator<Item = &Incident> {
        self.0.iter().skip(self.0.len().saturating_sub(n))
    }
}
