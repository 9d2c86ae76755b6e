//! The places that a shard keeps beside the tables of its events: copies and versions on devices, what is on its way there,
//! what is to go there.
//!
//! *Invariants*: what is kept by an event's number or key goes with the event (`Places::forget`); a way is there from before
//! the first byte is sent to a device until a decision about the event can no longer miss it.

use crate::decisions::Superseded;
use crate::events::{EventSlab, PlaceBits};
use forebay_core::limits::STAGES_MAX;
use forebay_core::{FixedMap, Key, Primary, SeededHasher, SeededMap, Tally};
use forebay_media::hot::Location;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Yes-or-no facts about where an event is: the byte beside it in its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum At {
    /// Some of its fragments are on the warm level: its marks are logged, and decisions about it are shadowed.
    Warm = 1,
    /// The log has marks of it that its image does not have.
    MarksLogged = 2,
    /// A thread moves it to the warm level.
    Moving = 4,
    /// Its images say that it is accepted, or in the debug stream: they are where such events go.
    SettledThere = 8,
    /// Versions of its fragments are known to be superseded.
    Superseded = 16,
}

// One bit each.
const _: () = {
    let all = [At::Warm, At::MarksLogged, At::Moving, At::SettledThere, At::Superseded];
    let (mut bits, mut at) = (0_u8, 0);
    while at < all.len() {
        assert!(bits & all[at] as u8 == 0 && (all[at] as u8).is_power_of_two());
        bits |= all[at] as u8;
        at += 1;
    }
};

impl EventSlab {
    #[inline]
    pub(crate) fn at(&self, event: u32, at: At) -> bool {
        self.leaf(event).placed & at as u8 != 0
    }

    #[inline]
    pub(crate) fn set_at(&mut self, event: u32, at: At) {
        // Two moves of one event would each swap its slots and end the other's images.
        debug_assert!(at != At::Moving || !self.at(event, At::Moving), "event {event} is on its way already");
        self.leaf_mut(event).placed |= at as u8;
    }

    #[inline]
    pub(crate) fn clear_at(&mut self, event: u32, at: At) {
        self.leaf_mut(event).placed &= !(at as u8);
    }

    /// Whether what changes of an event's marks goes to the log: no word beside a record is read for it.
    pub(crate) fn is_logged(&self, event: u32) -> bool {
        self.at(event, At::Warm) || self.at(event, At::MarksLogged)
    }
}

/// A conflicting copy that is kept for a person.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) key: Key,
    pub(crate) location: Location,
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

/// An event's record, whole, of an event on the warm level.
#[derive(Clone, Debug)]
pub(crate) struct WarmRecord {
    pub(crate) status: u32,
    pub(crate) version: u16,
    pub(crate) bytes: Box<[u8]>,
}

/// What of an event is between the hot level and a device.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// How many carry some of it, and how many of these for a put that is to be persisted.
    pub(crate) carriers: u32,
    pub(crate) persisting: u32,
    /// Devices that an image was given up on: it may be found there all the same.
    pub(crate) doubted: Vec<u32>,
}

/// The places of one shard.
pub(crate) struct Places {
    /// Copies that differ from what was stored first, for a person.
    pub(crate) kept: Vec<Kept>,
    /// Event records of events on the warm level, which are asked for without reading it.
    pub(crate) warm_records: FixedMap<u32, WarmRecord>,
    /// Copies on the warm level of fragments that are on the hot one as well: container and position of images, with counts.
    pub(crate) copies: FixedMap<u32, Vec<(Location, u32)>>,
    /// Versions that ended on the warm level, where no mark says so: the highest of each key of a live event.
    pub(crate) superseded: SeededMap<Key, Superseded>,
    /// The event at which the last look for events to put down ended, by stage.
    pub(crate) looked_at: [Option<u32>; STAGES_MAX],
    /// Events in custody, with what each weighed when it came: so much the ledger has of them.
    pub(crate) custody: FixedMap<u32, Tally>,
    /// Live events of which something is on its way to a device, or may have come there unnoticed.
    pub(crate) on_the_way: SeededMap<Primary, Way>,
    /// Events that are to go to the warm level, in the order in which they were decided.
    pub(crate) to_demote: VecDeque<Primary>,
    /// Events with anything on the hot level, over all shards (`Hot::events`).
    pub(crate) hot_events: Arc<AtomicU64>,
}

impl Places {
    pub(crate) fn new(hot_events: Arc<AtomicU64>, hasher: SeededHasher) -> Places {
        Places {
            kept: Vec::new(),
            warm_records: FixedMap::default(),
            copies: FixedMap::default(),
            superseded: SeededMap::with_hasher(hasher),
            looked_at: [None; STAGES_MAX],
            custody: FixedMap::default(),
            on_the_way: SeededMap::with_hasher(hasher),
            to_demote: VecDeque::new(),
            hot_events,
        }
    }

    /// Only the hot level has the next version: the shadows must not record that this one ended.
    pub(crate) fn keep_superseded_back(&mut self, key: &Key) {
        let known = self.superseded.get_mut(key);
        debug_assert!(known.is_some(), "a version is superseded before it is kept back");
        if let Some(known) = known {
            known.on_hot_only = true;
        }
    }

    /// A carrier of something of the event begins: decisions about it go to all devices until it arrives.
    pub(crate) fn sets_out(&mut self, primary: Primary) {
        self.on_the_way.entry(primary).or_default().carriers += 1;
    }

    /// The same for a put that is to be persisted; ended by [`Places::is_persisted`], then by [`Places::arrives`].
    pub(crate) fn sets_out_persisting(&mut self, primary: Primary) {
        let way = self.on_the_way.entry(primary).or_default();
        way.carriers += 1;
        way.persisting += 1;
        debug_assert!(way.carriers >= way.persisting, "{} of {} carriers persist", way.persisting, way.carriers);
    }

    /// Nobody will be answered any more that this fragment of the event is persisted. The event may be gone since.
    pub(crate) fn is_persisted(&mut self, primary: &[u8]) {
        if let Some(way) = self.on_the_way.get_mut(&Primary::from_packed(primary)) {
            debug_assert!(way.persisting > 0, "it set out once");
            way.persisting -= 1;
        }
    }

    /// Whether a put of a fragment of the event may be answered as persisted at any moment.
    pub(crate) fn is_being_persisted(&self, primary: &Primary) -> bool {
        self.on_the_way.get(primary).is_some_and(|way| way.persisting > 0)
    }

    /// A carrier has ended. An image on a `doubted` device counts for nothing and may still be found there: decisions about
    /// the event go to that device for as long as the event lives. The event may have ended already.
    pub(crate) fn arrives(&mut self, primary: &[u8], doubted: &[u32]) {
        let primary = Primary::from_packed(primary);
        let Some(way) = self.on_the_way.get_mut(&primary) else { return };
        debug_assert!(way.carriers > 0, "it set out once");
        way.carriers -= 1;
        // A put that may still be answered keeps its way: else a decision in between would miss the device that has it.
        debug_assert!(way.carriers >= way.persisting, "{} of {} carriers persist", way.persisting, way.carriers);
        way.doubted.extend(doubted);
        way.doubted.sort_unstable();
        way.doubted.dedup();
        // With a doubt the way stays for as long as the event lives: nobody can say when that image is gone.
        if way.carriers == 0 && way.doubted.is_empty() {
            self.on_the_way.remove(&primary);
        }
    }

    /// The event ends: what is kept of it goes, except for the places of its copies, whose records end with it.
    pub(crate) fn forget(&mut self, event: u32, primary: &[u8]) -> Vec<PlaceBits> {
        // What ended it was told to all devices that get something of it.
        if !self.on_the_way.is_empty() {
            self.on_the_way.remove(&Primary::from_packed(primary));
        }
        // Kept by number, which the next event may get.
        self.warm_records.remove(&event);
        debug_assert!(!self.custody.contains_key(&event), "the ledger still has it in custody");
        let copies = self.copies.remove(&event).unwrap_or_default();
        let places = copies.iter().map(|&(location, count)| (PlaceBits::of(location), count as usize));
        places.flat_map(|(place, count)| std::iter::repeat_n(place, count)).collect()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.kept.capacity() * size_of::<Kept>()
    }
}
