//! What was in the sectors of a file before writes that no sync has covered yet.
//!
//! *Invariant*: a sync covers the writes that had ended when it began, no others.

use std::collections::{BTreeMap, BTreeSet};

/// What a device writes whole or not at all, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;

/// The contents of one sector.
pub(super) type Sector = [u8; SECTOR_BYTES];

/// The writes of one device, by number.
#[derive(Default)]
pub(super) struct Writes {
    begun: u64,
    flying: BTreeSet<u64>,
}

/// The writes that had ended at some moment.
pub(super) struct Ended {
    begun: u64,
    flying: BTreeSet<u64>,
}

impl Writes {
    pub(super) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.flying.insert(self.begun);
        self.begun
    }

    pub(super) fn end(&mut self, write: u64) {
        self.flying.remove(&write);
    }

    /// Those that have ended by now.
    pub(super) fn ended(&self) -> Ended {
        Ended { begun: self.begun, flying: self.flying.clone() }
    }
}

impl Ended {
    pub(super) fn holds(&self, write: u64) -> bool {
        write <= self.begun && !self.flying.contains(&write)
    }
}

/// By sector number: what was there before each write that is not durable, oldest first.
#[derive(Default)]
pub(super) struct Unsynced {
    sectors: BTreeMap<u64, Vec<(Sector, u64)>>,
}

impl Unsynced {
    /// Notes what was there from `offset` on (whole sectors) before a write.
    pub(super) fn note(&mut self, offset: u64, old: &[u8], write: u64) {
        let first = offset / SECTOR_BYTES as u64;
        for (number, sector) in (first..).zip(old.as_chunks().0) {
            self.sectors.entry(number).or_default().push((*sector, write));
        }
    }

    /// A sync has succeeded that covers these writes.
    pub(super) fn synced(&mut self, ended: &Ended) {
        self.sectors.retain(|_, versions| {
            versions.retain(|(_, write)| !ended.holds(*write));
            !versions.is_empty()
        });
    }

    /// Byte position and earlier contents of each sector, oldest contents first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[(Sector, u64)])> {
        self.sectors.iter().map(|(&number, versions)| (number as usize * SECTOR_BYTES, versions.as_slice()))
    }
}
