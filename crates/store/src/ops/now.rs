//! Calls that answer at once or say that they would wait: for an event loop that serves many.
//!
//! *Invariants*: nothing here waits for space, for another put or for a device; a call that says that it would wait has
//! booked nothing (tests/embedded.rs).
//!
//! *Not here*: the waiting; whoever hears `None` makes the ordinary call on a thread that may wait.

use super::put::{Again, Backing, Claim};
use crate::engine::Engine;
use crate::{PutOptions, PutOutcome, Reservation, Store};
use forebay_core::{Key, Level, Primary, Result, check_sent_as};
use forebay_media::hot::will_copy;
use std::task::Waker;

impl Store {
    /// [`Store::put`] of bytes that came with a CRC-32C, where nothing must be waited for; `None` where it would wait.
    ///
    /// # Errors
    /// `Corrupt` where the bytes do not have the checksum: then nothing is stored. Else as [`Store::put`].
    pub fn put_now(
        &self,
        key: &Key,
        value: &[u8],
        options: &PutOptions<'_>,
        checksum: Option<u32>,
    ) -> Result<Option<PutOutcome>> {
        let engine = self.engine();
        let length = engine.check_put(key, value.len())?;
        engine.check_persisted(options)?;
        if options.persisted {
            return Ok(None);
        }
        will_copy(value);
        let outcome = match engine.claim_now(key, length, options)? {
            None => return Ok(None),
            Some(Claim::Claimed(claimed)) => {
                let offset = engine.placement.hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                let found = engine.placement.hot.region.copy_in(offset, value);
                if let Some(expected) = checksum {
                    check_sent_as(value.len(), expected, found).inspect_err(|_| engine.give_up(&claimed))?;
                }
                engine.publish(&claimed, found)?
            }
            Some(Claim::Standing(location)) => {
                if let Some(expected) = checksum {
                    let found = forebay_media::hot::checksum(value);
                    check_sent_as(value.len(), expected, found).inspect_err(|_| engine.unpin(location))?;
                }
                engine.compare(key, location, value)?
            }
            Some(Claim::Late) => return Ok(Some(PutOutcome::Late)),
        };
        if engine.placement.level.is_some() {
            engine.send_down(key, length, options)?;
        }
        Ok(Some(outcome))
    }

    /// [`Store::reserve`] where nothing must be waited for; `None` where it would wait. The commit of a reservation that
    /// is to be persisted waits for the device.
    ///
    /// # Errors
    /// As [`Store::reserve`].
    pub fn reserve_now(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Option<Reservation>> {
        let engine = self.engine();
        let wanted = engine.check_put(key, length)?;
        engine.check_persisted(options)?;
        let Some(claim) = engine.claim_now(key, wanted, options)? else { return Ok(None) };
        Ok(Some(self.reservation(claim, key, length, options)))
    }

    /// Whether a read of this event, or a decision about it, may wait for a device: something of it stands on the warm
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

impl Engine {
    /// A claim without waiting; `None` where one must wait.
    #[inline]
    fn claim_now(&self, key: &Key, length: u32, options: &PutOptions<'_>) -> Result<Option<Claim>> {
        let claim = match self.try_claim(key, length, options)? {
            Ok(claim) => claim,
            Err(Again::UnknownRun(run)) => {
                self.open_unknown_run(run)?;
                let Ok(claim) = self.try_claim(key, length, options)? else { return Ok(None) };
                claim
            }
            Err(_) => return Ok(None),
        };
        match claim {
            // Its bytes must be read from the device to be compared.
            Claim::Standing(location) if location.is_warm() => {
                self.unpin(location);
                Ok(None)
            }
            claim => Ok(Some(claim)),
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
