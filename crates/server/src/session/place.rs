//! Memory of what is served, for fragments that are being received; the answer to a put is the byte that the wire has.

use super::calls::AHEAD_MIN;
use crate::served::Served;
use forebay_core::{
    Error, Key, PutOptions, PutOutcome, ReserveFragment, Result, RingOutcome, RingPut, RingStamp, ServedStore,
    SourceId, check_sent,
};
use forebay_ring::{Ring, RingReservation};
use forebay_wire::{WireOutcome, WirePut};
use std::ops::{Deref, DerefMut};

/// Memory for one fragment.
pub(super) enum Place<S: ServedStore> {
    /// Of a store of events.
    Events(S::Reservation),
    /// Of a ring.
    Ring(RingReservation),
}

impl<S: ServedStore> Deref for Place<S> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Place::Events(place) => place,
            Place::Ring(place) => place,
        }
    }
}

impl<S: ServedStore> DerefMut for Place<S> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Place::Events(place) => place,
            Place::Ring(place) => place,
        }
    }
}

impl<S: ServedStore> Place<S> {
    /// Whether its commit may wait.
    pub(super) fn commit_may_wait(&self) -> bool {
        match self {
            Place::Events(place) => place.commit_may_wait(),
            Place::Ring(_) => false,
        }
    }

    /// Makes the fragment visible, if its bytes have this CRC-32C.
    ///
    /// # Errors
    /// Those of a put.
    pub(super) fn commit_checked(self, checksum: u32) -> Result<u8> {
        match self {
            Place::Events(place) => place.commit_checked(checksum).map(PutOutcome::to_byte),
            Place::Ring(place) => place.commit_checked(checksum).map(RingOutcome::to_byte),
        }
    }
}

/// Puts of a session, without and with a wait. Rings never wait.
impl<S: ServedStore> Served<S> {
    /// A hint that these keys come next.
    pub(super) fn prefetch(&self, keys: impl ExactSizeIterator<Item = Key>) {
        if let Served::Events(store) = self
            // For a few keys the hint costs more than the misses that it saves.
            && keys.len() >= AHEAD_MIN
        {
            store.prefetch(&keys.collect::<Vec<_>>());
        }
    }

    /// Puts what is there; `None` where it would have to wait.
    ///
    /// # Errors
    /// Those of a put.
    pub(super) fn try_put(&self, put: &WirePut, value: &[u8]) -> Result<Option<u8>> {
        match self {
            Served::Events(store) => {
                Ok(store.try_put(&put.key, value, &options(put), Some(put.checksum))?.map(PutOutcome::to_byte))
            }
            Served::Ring(ring) => put_into_ring(ring, put, value).map(Some),
        }
    }

    /// Memory for what is to come; `None` where there would be a wait for it.
    ///
    /// # Errors
    /// Those of a put.
    pub(super) fn try_reserve(&self, put: &WirePut) -> Result<Option<Place<S>>> {
        let length = put.length as usize;
        match self {
            Served::Events(store) => Ok(store.try_reserve(&put.key, length, &options(put))?.map(Place::Events)),
            Served::Ring(ring) => {
                let (source, stamp, options) = ring_put(ring, put)?;
                let place = ring.reserve(&source, stamp.timestamp, stamp.span, length, &options)?;
                Ok(Some(Place::Ring(place)))
            }
        }
    }

    /// Puts, and waits as long as the put says.
    ///
    /// # Errors
    /// Those of a put.
    pub(super) fn put(&self, put: &WirePut, value: &[u8]) -> Result<u8> {
        match self {
            Served::Events(store) => {
                check_sent(value, put.checksum)?;
                store.put(&put.key, value, &options(put)).map(PutOutcome::to_byte)
            }
            Served::Ring(ring) => put_into_ring(ring, put, value),
        }
    }
}

fn put_into_ring(ring: &Ring, put: &WirePut, value: &[u8]) -> Result<u8> {
    check_sent(value, put.checksum)?;
    let (source, stamp, options) = ring_put(ring, put)?;
    ring.put(&source, stamp.timestamp, stamp.span, value, &options).map(RingOutcome::to_byte)
}

fn ring_put(ring: &Ring, put: &WirePut) -> Result<(SourceId, RingStamp, RingPut)> {
    let (source, stamp) = ring
        .keyspace()
        .source
        .decode(put.key.as_bytes())
        .ok_or_else(|| Error::invalid(format!("{:?} is no key of this ring", put.key)))?;
    Ok((source, stamp, RingPut { run: stamp.run, status: put.status }))
}

fn options(put: &WirePut) -> PutOptions<'_> {
    PutOptions {
        status: put.status,
        attributes: put.attributes.as_ref(),
        deadline: put.deadline,
        persisted: put.persisted,
        level: put.level,
        report: put.report,
    }
}
