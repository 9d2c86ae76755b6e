//! Memory of the store that a producer fills in place: a put in two steps.
//!
//! *Invariants*: a reservation that is dropped gives its key and its place back; while it is out, the region stays mapped
//! (`Kept` names its holder).

use super::put::{Claim, Claimed};
use crate::{PutOptions, PutOutcome, Store};
use forebay_core::{Error, Key, Level, Report, Result, check_sent_as};
use forebay_media::hot::checksum;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

/// Memory of the store for one fragment. Dropping it gives it up.
pub struct Reservation {
    store: Store,
    backing: Option<Backing>,
    /// Whether it is to be persisted, and the level that it goes to.
    down: (bool, Option<Level>),
    report: Report,
}

enum Backing {
    Place(Claimed),
    /// The key was taken: the bytes are compared at commit.
    Scratch {
        bytes: Vec<u8>,
        key: Key,
        status: u32,
    },
}

impl Reservation {
    fn new(store: &Store, backing: Backing, options: &PutOptions<'_>) -> Reservation {
        // Scratch memory is its own: it keeps nothing of the region.
        if matches!(backing, Backing::Place(_)) {
            store.holder.reservations.fetch_add(1, Ordering::Relaxed);
        }
        let down = (options.persisted, options.level);
        Reservation { store: store.clone(), backing: Some(backing), down, report: options.report }
    }

    /// Whether its commit waits for a device, or for the bytes that are there to be read.
    pub fn commit_may_wait(&self) -> bool {
        self.down.0
            || (matches!(self.backing, Some(Backing::Scratch { .. })) && self.store.engine().placement.level.is_some())
    }

    /// Makes the fragment visible; the answers are those of [`Store::put`].
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn commit(self) -> Result<PutOutcome> {
        self.commit_if(None)
    }

    /// The same for bytes that came with a CRC-32C of their own, such as from a network or a readout board.
    ///
    /// # Errors
    /// `Corrupt` where the bytes do not have it: then nothing is stored. Else as [`Reservation::commit`].
    pub fn commit_checked(self, checksum: u32) -> Result<PutOutcome> {
        self.commit_if(Some(checksum))
    }

    fn commit_if(mut self, expected: Option<u32>) -> Result<PutOutcome> {
        let engine = self.store.engine();
        let crc = checksum(&self);
        // Before the backing is taken: on an error the drop gives the place back.
        if let Some(expected) = expected {
            check_sent_as(self.len(), expected, crc)?;
        }
        match self.backing.take() {
            Some(Backing::Place(claimed)) => {
                // From here on it is a call in flight, which a closing store waits for.
                self.store.holder.reservations.fetch_sub(1, Ordering::Relaxed);
                // Filled by somebody else's stores: they are not flushed yet, as those of a copy are.
                let offset = engine.placement.hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                engine.placement.hot.region.flush(offset, claimed.length as usize);
                let outcome = engine.publish(&claimed, crc)?;
                if outcome == PutOutcome::Stored && engine.placement.level.is_some() {
                    let (persisted, level) = self.down;
                    let options = PutOptions { persisted, level, ..PutOptions::default() };
                    engine.send_down(&claimed.key, claimed.length, &options)?;
                }
                Ok(outcome)
            }
            Some(Backing::Scratch { bytes, key, status }) => {
                let (persisted, level) = self.down;
                let report = self.report;
                self.store.put(&key, &bytes, &PutOptions { status, persisted, level, report, ..PutOptions::default() })
            }
            None => Err(Error::internal("reservation without memory")),
        }
    }

    /// Gives the memory up.
    pub fn abort(self) {}
}

impl Deref for Reservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.backing {
            Some(Backing::Place(claimed)) => {
                let hot = &self.store.engine().placement.hot;
                let offset = hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                hot.region.bytes(offset, claimed.length as usize)
            }
            Some(Backing::Scratch { bytes, .. }) => bytes,
            None => &[],
        }
    }
}

impl DerefMut for Reservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.backing {
            Some(Backing::Place(claimed)) => {
                let hot = &self.store.engine().placement.hot;
                let offset = hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                hot.region.bytes_mut(offset, claimed.length as usize)
            }
            Some(Backing::Scratch { bytes, .. }) => bytes,
            None => &mut [],
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(Backing::Place(claimed)) = self.backing.take() {
            let before = self.store.holder.reservations.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "each reservation is counted once");
            self.store.engine().give_up(&claimed);
        }
    }
}

impl Store {
    /// The reservation that follows from a claim.
    pub(super) fn reservation(&self, claim: Claim, key: &Key, length: usize, options: &PutOptions<'_>) -> Reservation {
        let engine = self.engine();
        let backing = match claim {
            Claim::Claimed(claimed) => Backing::Place(claimed),
            other => {
                match other {
                    Claim::Standing(location) => engine.unpin(location),
                    // It is offered, and late, when it is committed.
                    _ => engine.unbook_late(key, length as u32),
                }
                Backing::Scratch { bytes: vec![0; length], key: *key, status: options.status }
            }
        };
        Reservation::new(self, backing, options)
    }
}
