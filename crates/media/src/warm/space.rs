//! The warm level as space: devices, containers, which of them a writer gets.
//!
//! *Invariants*: a container is in exactly one of: the free ones of its device, being filled (parked, or a writer's
//! own), closed; the last free container is only for moves, which empty others (`reserve`); no I/O under the lock.
//!
//! *On failure*: without a container a writer gets `Full`; a device that failed, stalls or has containers that movers
//! claimed is taken only where there is no choice, and one that fails whatever is begun on it rests (`rest.rs`).

use super::container::{Container, Phase};
use super::control::Control;
use super::counters::{Counters, DeviceCounts};
use super::device::{Device, FileId};
use super::pool::Pool;
use super::request::{ImagePlace, Target, WarmShape};
use super::rest::Rest;
use crate::bytes::{
    CONTAINER_DATA_OFFSET, ContainerHeader, ContainerKind, DirectoryBuilder, ExtentHead, ImageLayout, Stream,
};
use crate::sync::deadline_after;
use forebay_core::mutants::is_planted;
use forebay_core::{Clock, Error, MonotonicClock, Random, Result, SystemRandom};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// More containers than were ever begun on a device that is missing.
// Of two copies of a version the one in the container with the higher order is in force. A missing device may return, and
// must not win with what is older.
const ORDERS_UNKNOWN_MAX: u64 = 1 << 32;
/// Number of containers from which on one is kept free for moves. A smaller level would lose too much of itself.
const CONTAINERS_WITH_RESERVE: usize = 4;

/// The warm level of a store.
pub struct Warm {
    pub(super) store: [u8; 16],
    pub(super) layout: ImageLayout,
    pub(super) shape: WarmShape,
    pub(super) devices: Vec<DeviceSlot>,
    pub(super) containers: Vec<Container>,
    pub(super) space: Mutex<Space>,
    pub(super) next_order: AtomicU64,
    /// Free containers of the devices that take data.
    pub(super) free: AtomicU32,
    /// The store was told what the containers held at opening: empty ones may be reclaimed.
    pub(super) recovered: AtomicBool,
    pub(super) pool: Pool,
    /// The store is being closed: what is under way then has until this moment.
    closing_by: OnceLock<Instant>,
    pub(super) clock: Arc<dyn Clock>,
    /// Names fillings.
    random: Arc<dyn Random>,
}

/// A device and what is known of it.
pub(super) struct DeviceSlot {
    /// `None` where it was not there at opening and its loss is accepted.
    pub(super) device: Option<Arc<dyn Device>>,
    pub(super) name: String,
    pub(super) counters: Counters,
    pub(super) stalled: AtomicBool,
    pub(super) control: Mutex<Control>,
    pub(super) rest: Mutex<Rest>,
    /// Writers that have a container of it.
    pub(super) writers: AtomicU32,
    pub(super) poisoned: AtomicU32,
    pub(super) draining: AtomicU32,
    /// It is being drained: changed under the lock of the lists (`leave.rs`).
    pub(super) leaving: AtomicBool,
    /// Its containers that are there.
    pub(super) containers: u32,
    /// Bytes of those that are not empty; one that is being filled counts with what is written.
    pub(super) used: AtomicU64,
}

impl DeviceSlot {
    pub(super) fn new(device: Option<Arc<dyn Device>>) -> DeviceSlot {
        DeviceSlot {
            name: device.as_ref().map_or_else(|| "missing".to_owned(), |device| device.name()),
            device,
            counters: Counters::default(),
            stalled: AtomicBool::new(false),
            control: Mutex::default(),
            rest: Mutex::default(),
            writers: AtomicU32::new(0),
            poisoned: AtomicU32::new(0),
            draining: AtomicU32::new(0),
            leaving: AtomicBool::new(false),
            containers: 0,
            used: AtomicU64::new(0),
        }
    }

    /// How much it is to be avoided; devices of the same degree are alike.
    fn avoid(&self) -> u32 {
        // Degrees, not sums: a device with a failed container is worse than one that is silent and drained at once.
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        bit(self.poisoned.load(Ordering::Relaxed) > 0, 4)
            | bit(self.stalled.load(Ordering::Relaxed), 2)
            | bit(self.draining.load(Ordering::Relaxed) > 0, 1)
    }
}

/// State behind the lock.
#[derive(Default)]
pub(super) struct Space {
    /// Free containers per device, longest free first.
    pub(super) free: Vec<VecDeque<u32>>,
    /// Containers being filled that no writer has.
    parked: Vec<Filling>,
    /// All containers being filled, those of writers included.
    pub(super) open: Vec<Open>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    container: u32,
    pub(super) device: u32,
    kind: ContainerKind,
    shared: bool,
}

/// A container that is being filled, and what its directory will say.
pub(super) struct Filling {
    pub(super) container: u32,
    pub(super) device: u32,
    pub(super) run: u64,
    pub(super) stream: Stream,
    pub(super) kind: ContainerKind,
    /// Its header of this filling has not been written.
    pub(super) fresh: bool,
    /// Where the next extent begins.
    pub(super) position: u64,
    /// Everything before is durable.
    pub(super) durable: u64,
    pub(super) extents: u32,
    pub(super) images: u64,
    pub(super) fragments: u64,
    pub(super) payload_bytes: u64,
    pub(super) directory: DirectoryBuilder,
    pub(super) touched: Instant,
    pub(super) begun: Instant,
}

impl Filling {
    /// Whether an extent that ends at `end` fits, with a directory of `directory_bytes` after it.
    pub(super) fn fits(container_bytes: u64, images: u64, end: u64, directory_bytes: u64) -> bool {
        let block = crate::bytes::CONTAINER_BLOCK_BYTES;
        // Images of empty fragments are nearly all table: without the second bound half of the container would be directory,
        // and opening would read it. A single image is always taken, or it would fit nowhere.
        end.next_multiple_of(block) + directory_bytes.next_multiple_of(block) <= container_bytes
            && (images == 0 || directory_bytes <= container_bytes / 4)
    }

    fn serves(&self, target: &Target) -> bool {
        (self.run, self.stream, self.kind) == (target.run, target.stream, target.kind)
    }
}

/// A container as people see it.
#[derive(Clone, Debug)]
pub struct ContainerInfo {
    /// As last written, except for what changes without a write: `state`, and while it fills `data_end` and the counts.
    pub header: ContainerHeader,
    /// What it is used for now.
    pub phase: Phase,
    /// Fragments that count.
    pub live_fragments: u32,
    /// Guards on its fragments.
    pub pins: u32,
}

/// A device as people see it.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its name: the directory.
    pub name: String,
    /// How it is written; `missing` for a device that is not there.
    pub method: String,
    /// What it has written and read.
    pub counts: DeviceCounts,
    /// It answers nothing.
    pub stalled: bool,
    /// It fails whatever is begun on it, and is left alone for a while.
    pub resting: bool,
    /// Containers in which a write failed.
    pub poisoned: u32,
    /// Containers that are drained.
    pub draining: u32,
    /// Containers that are empty.
    pub free: u32,
    /// It takes no data: what lives on it moves elsewhere.
    pub leaving: bool,
    /// It leaves, and nothing is on it any more.
    pub drained: bool,
}

impl Warm {
    pub(super) fn new(
        store: [u8; 16],
        layout: ImageLayout,
        shape: WarmShape,
        mut devices: Vec<DeviceSlot>,
        containers: Vec<Container>,
    ) -> Warm {
        let mut free = vec![VecDeque::new(); devices.len()];
        let mut by_age: Vec<&Container> = containers.iter().collect();
        // Longest empty first, as in the life before: all containers of a device are filled in turn.
        by_age.sort_by_key(|container| container.header.lock().order);
        for container in by_age {
            let slot = &mut devices[container.device as usize];
            match container.phase() {
                Phase::Empty => free[container.device as usize].push_back(container.number),
                Phase::Lost => continue,
                Phase::Poisoned => _ = slot.poisoned.fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
            slot.containers += 1;
            *slot.used.get_mut() += if container.phase() == Phase::Empty { 0 } else { shape.container_bytes };
        }
        let count = free.iter().map(VecDeque::len).sum::<usize>() as u32;
        let last = containers.iter().map(|container| container.header.lock().order).max().unwrap_or(0);
        // What is written from now on must be later than anything on a device that is missing.
        let lacks_devices = devices.iter().any(|slot| slot.device.is_none());
        let last = last + if lacks_devices { ORDERS_UNKNOWN_MAX } else { 0 };
        Warm {
            store,
            layout,
            shape,
            devices,
            containers,
            space: Mutex::new(Space { free, ..Space::default() }),
            next_order: AtomicU64::new(last + 1),
            free: AtomicU32::new(count),
            recovered: AtomicBool::new(false),
            pool: Pool::new(),
            closing_by: OnceLock::new(),
            clock: Arc::new(MonotonicClock::default()),
            random: Arc::new(SystemRandom),
        }
    }

    /// Ages of what is filled, and rests of devices, go by this clock; what waits for a device, by the machine's. Names of fillings come
    /// from `random`.
    pub fn with(self, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Warm {
        for container in &self.containers {
            let mut header = container.header.lock();
            // Its header was lost, or is of an earlier version: it has a name before anybody can claim it, and any write of its header
            // keeps that.
            if header.filling == 0 && header.state != crate::bytes::ContainerState::Empty {
                header.filling = random.next();
            }
        }
        Warm { clock, random, ..self }
    }

    /// The store closes: what is under way has this many stalls in all, and one for each step after that.
    pub fn begin_closing(&self, stalls: u32) {
        // Set once: several threads may close, and the first one's limit holds for all.
        let _ = self.closing_by.set(deadline_after(self.shape.stall * stalls));
    }

    /// Until when to wait from now on for a device that may stall this many times.
    pub fn deadline(&self, stalls: u32) -> Instant {
        let (usual, least) = (deadline_after(self.shape.stall * stalls), deadline_after(self.shape.stall));
        self.closing_by.get().map_or(usual, |&by| by.max(least).min(usual))
    }

    /// The container of this number.
    ///
    /// # Errors
    /// `Invalid` for a number that no container has; `Unavailable` where its device or file is not there.
    pub(super) fn container(&self, number: u32) -> Result<(&Container, &Arc<dyn Device>, FileId)> {
        let container = self
            .containers
            .get(number as usize)
            .ok_or_else(|| Error::invalid(format!("container {number}: there are {}", self.containers.len())))?;
        let device = self.devices[container.device as usize].device.as_ref();
        device.zip(container.file).map(|(device, file)| (container, device, file)).ok_or_else(|| {
            Error::unavailable(format!("container {number}: device {} or its file is not there", container.device))
        })
    }

    pub(super) fn describe(&self, number: u32) -> String {
        let device = self.containers.get(number as usize).map_or(0, |container| container.device);
        let name = self.devices.get(device as usize).map_or("", |slot| slot.name.as_str());
        format!("container {number} of device {device} ({name})")
    }

    /// How the level is cut and driven.
    pub fn shape(&self) -> &WarmShape {
        &self.shape
    }

    /// Longest payload that an image with this one fragment can have, in bytes.
    pub fn payload_bytes_max(&self) -> u64 {
        let meta = self.layout.meta_bytes(1, 0);
        let block = crate::bytes::CONTAINER_BLOCK_BYTES;
        let directory = (DirectoryBuilder::new().len() + DirectoryBuilder::entry_bytes(meta)).next_multiple_of(block);
        let room = self.shape.container_bytes - CONTAINER_DATA_OFFSET - directory - ExtentHead::BYTES as u64;
        room / crate::bytes::IMAGE_ALIGN * crate::bytes::IMAGE_ALIGN - meta
    }

    /// The device of a container.
    pub fn device_of(&self, container: u32) -> u32 {
        self.containers.get(container as usize).map_or(0, |container| container.device)
    }

    /// The name of a device.
    pub fn name_of(&self, device: u32) -> String {
        self.devices.get(device as usize).map_or_else(String::new, |slot| slot.name.clone())
    }

    /// Numbers of the devices that are there.
    pub fn present_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.devices).filter(|(_, slot)| slot.device.is_some()).map(|(number, _)| number)
    }

    /// All containers.
    pub fn containers(&self) -> Vec<ContainerInfo> {
        let info = |container: &Container| ContainerInfo {
            header: container.header_now(),
            phase: container.phase(),
            live_fragments: container.live(),
            pins: container.pins(),
        };
        self.containers.iter().map(info).collect()
    }

    /// The devices that are there.
    pub fn present(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().filter_map(|slot| slot.device.clone()).collect()
    }

    /// All devices, in order of their numbers.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let now = self.clock.timer().now();
        let free: Vec<u32> = self.space.lock().free.iter().map(|free| free.len() as u32).collect();
        let info = |(slot, free): (&DeviceSlot, u32)| DeviceInfo {
            name: slot.name.clone(),
            method: slot.device.as_ref().map_or_else(|| "missing".to_owned(), |device| device.method()),
            counts: slot.counters.now(),
            stalled: slot.stalled.load(Ordering::Relaxed),
            resting: slot.rest.lock().is_on(now),
            poisoned: slot.poisoned.load(Ordering::Relaxed),
            draining: slot.draining.load(Ordering::Relaxed),
            free,
            leaving: slot.leaving.load(Ordering::Relaxed),
            drained: false,
        };
        let mut devices: Vec<DeviceInfo> = self.devices.iter().zip(free).map(info).collect();
        (0..).zip(&mut devices).for_each(|(number, info)| info.drained = self.is_drained(number));
        devices
    }

    /// The fragments of an image count as live: told once for each image that was found at opening and is kept.
    pub fn adopt(&self, place: ImagePlace, fragments: u32) {
        if let Some(container) = self.containers.get(place.container as usize) {
            container.add_live(fragments);
        }
    }

    /// This number of fragments of an image do not count any more; `true` where the container may now be reclaimed. Touches no
    /// device.
    pub fn ended(&self, place: ImagePlace, fragments: u32) -> bool {
        self.containers.get(place.container as usize).is_some_and(|container| {
            container.end_live(fragments) && matches!(container.phase(), Phase::Full | Phase::Draining | Phase::Custody)
        })
    }

    /// Keeps a container from being reclaimed. Only while something in it is live, under the lock of the index that
    /// says so.
    pub fn pin(&self, container: u32) {
        if let Some(container) = self.containers.get(container as usize) {
            container.pin();
        }
    }

    /// Ends a pin; `true` where the container may now be reclaimed. Touches no device.
    pub fn unpin(&self, container: u32) -> bool {
        self.containers.get(container as usize).is_some_and(|container| {
            container.unpin() && matches!(container.phase(), Phase::Full | Phase::Draining | Phase::Custody)
        })
    }

    /// A container for this target: one that is being filled for it, or a free one, or one that is shared.
    pub(super) fn take(&self, target: &Target) -> Result<Filling> {
        if matches!(target.stream, Stream::Recording(group) if group > Stream::RECORDING_MAX) {
            return Err(Error::invalid(format!("{}: link groups end at {}", target.stream, Stream::RECORDING_MAX)));
        }
        // Guards the lists; no device is touched under it, so that a device that hangs stops no writer of another.
        let mut space = self.space.lock();
        let mut candidates: Vec<(u32, u32)> = (0..self.devices.len() as u32)
            .filter(|number| target.device.is_none_or(|wanted| wanted == *number))
            .filter(|number| self.devices[*number as usize].device.is_some() && !self.is_leaving(*number))
            .map(|number| (self.devices[number as usize].avoid(), number))
            .collect();
        if candidates.is_empty() {
            return Err(Error::unavailable(format!("no warm device for {target:?} is there and takes data")));
        }
        let now = self.clock.timer().now();
        candidates.retain(|(_, number)| !self.devices[*number as usize].rest.lock().is_on(now));
        if candidates.is_empty() {
            return Err(Error::unavailable(format!(
                "each warm device for {target:?} failed all that was begun on it; it is tried again within {:?}",
                Rest::LONGEST
            )));
        }
        candidates.sort_by_key(|(avoid, number)| {
            let slot = &self.devices[*number as usize];
            let free = space.free[*number as usize].len();
            (*avoid, slot.writers.load(Ordering::Relaxed), std::cmp::Reverse(free))
        });
        // A parked container of this target goes on first, but not on a worse device than a free one is on.
        for alike in candidates.chunk_by(|one, other| one.0 == other.0) {
            let on = |device: u32| alike.iter().any(|(_, number)| *number == device);
            let own = space.parked.iter().position(|filling| on(filling.device) && filling.serves(target));
            let filling = match own {
                Some(at) => Some(space.parked.swap_remove(at)),
                None => alike.iter().find_map(|(_, device)| self.take_on(&mut space, *device, target)),
            };
            if let Some(filling) = filling {
                self.devices[filling.device as usize].writers.fetch_add(1, Ordering::Relaxed);
                return Ok(filling);
            }
        }
        let (all, free) = (self.containers.len(), self.free.load(Ordering::Relaxed));
        let cause = format!("no warm container for {target:?}: {free} of {all} are free");
        Err(Error::full_of("warm level", "archive", cause))
    }

    fn take_on(&self, space: &mut Space, device: u32, target: &Target) -> Option<Filling> {
        let filling = space.open.iter().filter(|open| open.device == device).count();
        // The last slot of a device is for a shared container: as soon as there is one, runs and streams find a place in it
        // however many there are.
        let shared = |open: &Open| open.device == device && open.shared && open.kind == target.kind;
        let slots = if space.open.iter().any(shared) { self.shape.open_max } else { self.shape.open_max - 1 };
        let parked = space.parked.iter().position(|filling| {
            filling.device == device && filling.stream == Stream::Shared && filling.kind == target.kind
        });
        let share = filling > 0 && filling >= slots;
        if share && let Some(at) = parked {
            return Some(space.parked.swap_remove(at));
        }
        let reserve = usize::from(!target.moving && self.containers.len() >= CONTAINERS_WITH_RESERVE);
        if self.free.load(Ordering::Relaxed) as usize <= reserve {
            return parked.map(|at| space.parked.swap_remove(at));
        }
        let Some(number) = space.free[device as usize].pop_front() else {
            return parked.map(|at| space.parked.swap_remove(at));
        };
        self.free.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(space.open.iter().all(|open| open.container != number), "container {number} is being filled");
        debug_assert!(space.parked.iter().all(|filling| filling.container != number), "container {number} is parked");
        let (run, stream) =
            if share { (ContainerHeader::SHARED_RUN, Stream::Shared) } else { (target.run, target.stream) };
        space.open.push(Open { container: number, device, kind: target.kind, shared: stream == Stream::Shared });
        Some(self.begin(number, run, stream, target.kind))
    }

    /// Begins a filling in memory; its header is on the medium before or with the first commit.
    fn begin(&self, number: u32, run: u64, stream: Stream, kind: ContainerKind) -> Filling {
        let container = &self.containers[number as usize];
        {
            let mut header = container.header.lock();
            *header = ContainerHeader {
                // Before its first byte: nothing of the filling before verifies from now on.
                generation: header.generation.wrapping_add(u32::from(!is_planted("generation-kept"))),
                filling: self.random.next(),
                state: crate::bytes::ContainerState::Filling,
                kind,
                stream,
                run,
                order: self.next_order.fetch_add(1, Ordering::Relaxed),
                revision: header.revision,
                ..ContainerHeader::empty(header.device, number, header.container_bytes)
            };
        }
        container.begin();
        let begun = container.set_phase(&[Phase::Empty], Phase::Filling);
        debug_assert!(begun, "container {number} was taken and was not empty");
        self.devices[container.device as usize].used.fetch_add(CONTAINER_DATA_OFFSET, Ordering::Relaxed);
        let now = self.clock.timer().now();
        Filling {
            container: number,
            device: container.device,
            run,
            stream,
            kind,
            fresh: true,
            position: CONTAINER_DATA_OFFSET,
            durable: CONTAINER_DATA_OFFSET,
            extents: 0,
            images: 0,
            fragments: 0,
            payload_bytes: 0,
            directory: DirectoryBuilder::new(),
            touched: now,
            begun: now,
        }
    }

    /// A writer gives its container back: the next one goes on with it. An untouched one is free again.
    pub(super) fn park(&self, filling: Filling) {
        self.devices[filling.device as usize].writers.fetch_sub(1, Ordering::Relaxed);
        let mut space = self.space.lock();
        if filling.fresh {
            debug_assert_eq!(filling.position, CONTAINER_DATA_OFFSET, "a filling without a header has data");
            // Nothing was written: it goes back as it was, to the front, because the next taker needs no other.
            self.devices[filling.device as usize].used.fetch_sub(filling.position, Ordering::Relaxed);
            space.open.retain(|open| open.container != filling.container);
            self.containers[filling.container as usize].set_phase(&[Phase::Filling], Phase::Empty);
            self.containers[filling.container as usize].header.lock().state = crate::bytes::ContainerState::Empty;
            space.free[filling.device as usize].push_front(filling.container);
            self.count_free(&space, filling.device);
        } else {
            space.parked.push(filling);
        }
    }

    /// A writer's container takes no more: it is being closed, or has failed.
    pub(super) fn stop_filling(&self, filling: &Filling) {
        // May be told twice, when it is closed and when its last write fails: the second time it is in no list any more.
        let mut space = self.space.lock();
        if space.open.iter().any(|open| open.container == filling.container) {
            space.open.retain(|open| open.container != filling.container);
            let slot = &self.devices[filling.device as usize];
            slot.writers.fetch_sub(1, Ordering::Relaxed);
            slot.used.fetch_add(self.shape.container_bytes.saturating_sub(filling.position), Ordering::Relaxed);
        }
    }

    /// Containers that no writer has and that are `wanted`, taken out to be closed.
    pub(super) fn take_parked(&self, wanted: impl Fn(&Filling) -> bool) -> Vec<Filling> {
        let mut space = self.space.lock();
        let taken: Vec<Filling> = space.parked.extract_if(.., |filling| wanted(filling)).collect();
        for filling in &taken {
            self.devices[filling.device as usize].writers.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// An empty container is free.
    pub(super) fn add_free(&self, number: u32) {
        debug_assert_eq!(self.containers[number as usize].phase(), Phase::Empty, "container {number} is in use");
        let device = self.containers[number as usize].device;
        let mut space = self.space.lock();
        space.free[device as usize].push_back(number);
        self.count_free(&space, device);
    }
}
