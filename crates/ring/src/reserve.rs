//! Memory of the ring that a producer fills itself.
//!
//! *On failure*: a reservation that is dropped gives its timestamp and place back; its ticks read as `NotYet` until
//! then.

use super::put::{Claim, Claimed};
use super::{Ring, RingOutcome, RingPut};
use forebay_core::{GapCause, Result, RingStamp, SourceId, check_sent_as};
use forebay_media::hot::checksum;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

impl Ring {
    /// Reserves memory of the ring for a fragment of `length` bytes: filled in place, then committed. Where it cannot be
    /// taken in, or is there already, the memory is ordinary memory and [`RingReservation::commit`] says so.
    ///
    /// # Errors
    /// As [`Ring::put`], except for `Conflict`, which is answered at commit; `Unavailable` also where 1024 reservations
    /// of this source are out.
    pub fn reserve(
        &self,
        source: &SourceId,
        timestamp: u64,
        span: u32,
        length: usize,
        options: &RingPut,
    ) -> Result<RingReservation> {
        let engine = self.engine();
        let stamp = RingStamp { timestamp, span, run: options.run };
        let wanted = engine.check_put(source, &stamp, length)?;
        let backing = match engine.claim(source, stamp, wanted, options.status)? {
            Claim::Place(claimed) => {
                self.holder.reservations.fetch_add(1, Ordering::Relaxed);
                Backing::Place(claimed)
            }
            Claim::Standing => {
                let put = RingPut { run: options.run, status: options.status };
                Backing::Compared { bytes: vec![0; length], source: *source, stamp, put }
            }
            Claim::Refused(cause) => Backing::Refused { bytes: vec![0; length], cause },
        };
        Ok(RingReservation { ring: self.clone(), backing })
    }
}

/// Memory of the ring for one fragment. Dropping it gives it up.
pub struct RingReservation {
    ring: Ring,
    backing: Backing,
}

enum Backing {
    Place(Claimed),
    /// A fragment is there: the bytes are compared at commit.
    Compared {
        bytes: Vec<u8>,
        source: SourceId,
        stamp: RingStamp,
        put: RingPut,
    },
    /// Refused when it was asked for.
    Refused {
        bytes: Vec<u8>,
        cause: GapCause,
    },
    /// Committed.
    Done,
}

impl RingReservation {
    /// Makes the fragment visible; the answers are those of [`Ring::put`].
    ///
    /// # Errors
    /// As [`Ring::put`].
    pub fn commit(self) -> Result<RingOutcome> {
        self.commit_as(None)
    }

    /// The same for bytes that came with a CRC-32C of their own, such as from a readout board.
    ///
    /// # Errors
    /// `Corrupt` where the bytes do not have it: then nothing is stored. Else as [`Ring::put`].
    pub fn commit_checked(self, checksum: u32) -> Result<RingOutcome> {
        self.commit_as(Some(checksum))
    }

    fn commit_as(mut self, expected: Option<u32>) -> Result<RingOutcome> {
        let engine = self.ring.engine();
        // Over the ring's own memory, after the producer has filled it: what is stored is what was summed.
        let found = checksum(&self);
        if let Some(expected) = expected {
            // Dropped, it gives its place back.
            check_sent_as(self.len(), expected, found)?;
        }
        match std::mem::replace(&mut self.backing, Backing::Done) {
            Backing::Place(claimed) => {
                // From here on it is a call in flight, which a closing ring waits for, and no longer a holder's.
                self.ring.holder.reservations.fetch_sub(1, Ordering::Relaxed);
                let offset = engine.hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                engine.hot.region.flush(offset, claimed.length as usize);
                engine.publish(&claimed, found)
            }
            Backing::Compared { bytes, source, stamp, put } => {
                self.ring.put(&source, stamp.timestamp, stamp.span, &bytes, &put)
            }
            Backing::Refused { cause, .. } => Ok(RingOutcome::Refused(cause)),
            Backing::Done => Err(forebay_core::Error::internal("reservation without memory")),
        }
    }

    /// Gives the memory up.
    pub fn abort(self) {}
}

impl Deref for RingReservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.backing {
            Backing::Place(claimed) => {
                let hot = &self.ring.engine().hot;
                let offset = hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                hot.region.bytes(offset, claimed.length as usize)
            }
            Backing::Compared { bytes, .. } | Backing::Refused { bytes, .. } => bytes,
            Backing::Done => &[],
        }
    }
}

impl DerefMut for RingReservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.backing {
            Backing::Place(claimed) => {
                let hot = &self.ring.engine().hot;
                let offset = hot.payload_offset(claimed.place.location.segment, claimed.place.offset);
                hot.region.bytes_mut(offset, claimed.length as usize)
            }
            Backing::Compared { bytes, .. } | Backing::Refused { bytes, .. } => bytes,
            Backing::Done => &mut [],
        }
    }
}

impl Drop for RingReservation {
    fn drop(&mut self) {
        if let Backing::Place(claimed) = std::mem::replace(&mut self.backing, Backing::Done) {
            self.ring.holder.reservations.fetch_sub(1, Ordering::Relaxed);
            self.ring.engine().give_up(&claimed);
        }
    }
}
