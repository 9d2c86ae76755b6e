//! Devices that leave the level: nothing new is written to them, and what lives on them goes elsewhere, until they are drained.
//!
//! ```text
//! takes data ⇄ leaving ─▶ drained: no writer, nothing live, nobody reads
//! ```
//!
//! *Invariants*: a device begins and ceases to leave under the lock of the lists, so a writer gets no container of one that leaves
//! (test `a_device_that_leaves_is_given_to_nobody`). The level's fill and its free containers are those of the devices that take data.
//!
//! *Not here*: what moves its data (the store's levels), and what remembers that it leaves.

use super::container::Phase;
use super::space::{Space, Warm};
use crate::bytes::CONTAINER_DATA_OFFSET;
use forebay_core::{Error, Result};
use std::sync::atomic::Ordering;

impl Warm {
    /// Occupied share of the containers of the devices that take data, 0 to 1; one that is being filled counts with its used
    /// share.
    pub fn fill(&self) -> f64 {
        let (mut containers, mut used) = (self.containers.len() as u64, 0);
        for slot in &self.devices {
            if slot.leaving.load(Ordering::Relaxed) {
                containers -= u64::from(slot.containers);
            } else {
                used += slot.used.load(Ordering::Relaxed);
            }
        }
        used as f64 / (containers.max(1) as f64 * self.shape.container_bytes as f64)
    }

    /// Containers that are empty, on devices that take data.
    pub fn free_containers(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Whether a device leaves.
    pub fn is_leaving(&self, device: u32) -> bool {
        self.devices.get(device as usize).is_some_and(|slot| slot.leaving.load(Ordering::Relaxed))
    }

    /// Numbers of the devices that are there and take data.
    pub fn taking(&self) -> impl Iterator<Item = u32> + '_ {
        self.present_numbers().filter(|device| !self.is_leaving(*device))
    }

    /// A container was added to the free ones of a device.
    pub(super) fn count_free(&self, _: &Space, device: u32) {
        if !self.is_leaving(device) {
            self.free.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The device leaves from now on, or takes data again.
    pub fn set_leaving(&self, device: u32, leaving: bool) {
        let space = self.space.lock();
        let (slot, free) = (&self.devices[device as usize], space.free[device as usize].len() as u32);
        if slot.leaving.swap(leaving, Ordering::Relaxed) == leaving {
            return;
        }
        if leaving {
            self.free.fetch_sub(free, Ordering::Relaxed);
        } else {
            self.free.fetch_add(free, Ordering::Relaxed);
        }
    }

    /// The device of this name leaves, as it did in the life before.
    pub fn leaves_by_name(&self, name: &str) {
        let known = (0..).zip(&self.devices).find(|(_, slot)| slot.name == name);
        known.into_iter().for_each(|(device, _)| self.set_leaving(device, true));
    }

    /// Whether a device could leave now.
    ///
    /// # Errors
    /// `Invalid` for a device that is not there, or the last one that takes data; `Full` where the others have not the room for
    /// what lives on it.
    pub fn check_leaving(&self, device: u32) -> Result<()> {
        let count = self.devices.len();
        let slot = self.devices.get(device as usize).ok_or_else(|| {
            Error::invalid(format!("there is no device {device}: there are {count}, numbered from 0"))
        })?;
        let name = &slot.name;
        if slot.device.is_none() {
            return Err(Error::invalid(format!("device {device} is missing: nothing can be moved off it")));
        }
        if self.is_leaving(device) {
            return Ok(());
        }
        let others: Vec<u32> = self.taking().filter(|other| *other != device).collect();
        if others.is_empty() {
            return Err(Error::invalid(format!(
                "device {device} ({name}) is the only one that takes data: what lives on it has nowhere to go"
            )));
        }
        // What is on others that leave goes to the same place.
        let lives =
            (0..count as u32).filter(|one| *one == device || self.is_leaving(*one)).map(|one| self.live_bytes(one));
        let (lives, room) = (lives.sum::<u64>(), self.room_on(&others));
        if lives <= room {
            return Ok(());
        }
        let cause = format!(
            "device {device} ({name}) cannot be drained now: {lives} bytes have to move, and the free containers of the other \
             devices have room for {room}. Archive or release events until {} bytes more are free",
            lives - room
        );
        Err(Error::full_of("warm level", "archive", cause))
    }

    /// Bytes of a device that would have to be written elsewhere, estimated from the fragments that live.
    fn live_bytes(&self, device: u32) -> u64 {
        let bytes = self.containers.iter().filter(|container| container.device == device).map(|container| {
            // What is in custody is released, not moved.
            if matches!(container.phase(), Phase::Empty | Phase::Lost | Phase::Custody) {
                return 0;
            }
            let header = container.header_now();
            let used = header.data_end.saturating_sub(CONTAINER_DATA_OFFSET) as f64;
            let share = f64::from(container.live()) / header.fragments.max(1) as f64;
            (used * share.min(1.0)) as u64
        });
        bytes.sum()
    }

    /// Bytes that fit into the free containers of these devices.
    fn room_on(&self, devices: &[u32]) -> u64 {
        let space = self.space.lock();
        let free: usize = devices.iter().map(|device| space.free[*device as usize].len()).sum();
        // The last free one is for moves that give another one back, and an eighth for directories and what does not fit the end.
        (free.saturating_sub(1) as u64) * (self.shape.container_bytes / 8 * 7)
    }

    /// Whether a device leaves and nothing is on it any more.
    pub fn is_drained(&self, device: u32) -> bool {
        // Under the lock: a writer that got a container just before the device left is in one of the lists.
        let space = self.space.lock();
        let slot = &self.devices[device as usize];
        let nothing_in = |phase| matches!(phase, Phase::Empty | Phase::Poisoned);
        slot.device.is_some()
            && slot.leaving.load(Ordering::Relaxed)
            && slot.writers.load(Ordering::Relaxed) == 0
            && space.open.iter().all(|open| open.device != device)
            && self
                .containers
                .iter()
                .filter(|one| one.device == device && one.phase() != Phase::Lost)
                .all(|container| nothing_in(container.phase()) && container.live() == 0 && container.pins() == 0)
    }
}
