//! What a session needs beside the calls: which of them may wait, and memory for bytes that come.

use super::events::there;
use super::{Gateway, Others};
use forebay_client::Reservation as Memory;
use forebay_core::{Key, Level, Primary, PutOptions, PutOutcome, ReserveFragment, Result, ServedStore, check_sent};
use forebay_store::{Reservation, Store};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Time between two looks for ready events at other nodes, of which none wakes a session here.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Memory for a fragment: of this store, or of a put to another node.
pub enum GatewayReservation {
    /// Of this store.
    Here(Reservation),
    /// Of this process; it is sent at its commit.
    There(ReservationThere),
}

/// Memory for a fragment that is sent to another node.
pub struct ReservationThere {
    memory: Memory,
    others: Arc<Others>,
    holder: u16,
    home: u16,
}

impl Deref for GatewayReservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            GatewayReservation::Here(here) => here,
            GatewayReservation::There(there) => &there.memory,
        }
    }
}

impl DerefMut for GatewayReservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            GatewayReservation::Here(here) => here,
            GatewayReservation::There(there) => &mut there.memory,
        }
    }
}

impl ReserveFragment for GatewayReservation {
    fn commit_may_wait(&self) -> bool {
        match self {
            GatewayReservation::Here(here) => here.commit_may_wait(),
            GatewayReservation::There(_) => true,
        }
    }
    fn commit(self) -> Result<PutOutcome> {
        match self {
            GatewayReservation::Here(here) => here.commit(),
            GatewayReservation::There(there) => {
                let ReservationThere { memory, others, holder, home } = there;
                others.at_both(holder, home, || memory.commit())
            }
        }
    }
    fn commit_checked(self, checksum: u32) -> Result<PutOutcome> {
        check_sent(&self, checksum)?;
        self.commit()
    }
}

impl ServedStore for Gateway {
    type Reservation = GatewayReservation;
    type Executor = Gateway;

    fn named(&self, holder: &str) -> Gateway {
        let own: Store = self.own.named(holder);
        let here = forebay_core::Either::Here(own.clone());
        Gateway { own, here, signed: holder.to_owned(), others: self.others.clone() }
    }
    fn executor(&self) -> &Gateway {
        self
    }
    fn boot(&self) -> u32 {
        self.own.boot()
    }
    fn lease_time(&self) -> Duration {
        self.own.lease_time()
    }
    /// Data may be on another node, which takes its time as a device does.
    fn has_warm(&self) -> bool {
        self.others.is_some() || self.own.has_warm()
    }

    fn prefetch(&self, keys: &[Key]) {
        self.own.prefetch(keys);
    }
    fn try_put(
        &self,
        key: &Key,
        value: &[u8],
        options: &PutOptions<'_>,
        checksum: Option<u32>,
    ) -> Result<Option<PutOutcome>> {
        match self.fragment_elsewhere(key) {
            None => self.own.try_put(key, value, options, checksum),
            Some(_) => Ok(None),
        }
    }
    fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<GatewayReservation> {
        match (self.fragment_elsewhere(key), &self.others) {
            (Some((all, holder, home)), Some(others)) => {
                let memory = all.at(holder, || all.cluster.reserve(key, length, &there(options)))?;
                Ok(GatewayReservation::There(ReservationThere { memory, others: others.clone(), holder, home }))
            }
            _ => self.own.reserve(key, length, options).map(GatewayReservation::Here),
        }
    }
    fn try_reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Option<GatewayReservation>> {
        match self.fragment_elsewhere(key) {
            None => Ok(self.own.try_reserve(key, length, options)?.map(GatewayReservation::Here)),
            Some(_) => Ok(None),
        }
    }

    fn may_wait(&self, primary: &Primary, rest: Option<&[u8]>) -> bool {
        self.elsewhere_with_bytes(primary.as_bytes()).is_some() || self.own.may_wait(primary, rest)
    }
    fn verdict_may_wait(&self, primary: &Primary) -> bool {
        self.elsewhere(primary.as_bytes()).is_some() || self.own.verdict_may_wait(primary)
    }
    fn get_any_may_wait(&self, level: Option<Level>) -> bool {
        self.others.is_some() || self.own.get_any_may_wait(level)
    }
    fn wake_when_ready(&self, waker: &Waker) {
        self.own.wake_when_ready(waker);
    }
    fn look_again_min(&self) -> Duration {
        if self.others.is_some() { LOOK_AGAIN } else { Duration::ZERO }
    }
    fn forget_waker(&self, waker: &Waker) {
        self.own.forget_waker(waker);
    }
}
