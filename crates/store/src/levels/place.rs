//! Records of both levels by their location: kept from being reused, read, ended.

use crate::engine::Engine;
use crate::placement::{Level, place_of};
use crate::shards::ShardGuard;
use crate::{Fragment, Store};
use forebay_core::{Error, Result};
use forebay_media::bytes::Entry;
use forebay_media::hot::{Location, checksum};
use forebay_media::warm::ReadImage;
use std::sync::Arc;

impl Engine {
    /// Keeps what is there from being reused. Under the lock that shows it live.
    #[inline]
    pub(crate) fn pin(&self, location: Location) {
        if location.is_warm() {
            self.warm(|level| level.warm.pin(location.container()));
        } else {
            self.placement.hot.segment(location.segment).pin();
        }
    }

    #[inline]
    pub(crate) fn unpin(&self, location: Location) {
        if location.is_warm() {
            // An empty container is reclaimed by the next round: that writes its header, which no reader should wait for.
            self.warm(|level| _ = level.warm.unpin(location.container()));
        } else {
            self.placement.hot.unpin(location.segment);
        }
    }

    /// Ends a record: on the hot level its word says so (flushed, not fenced), on the warm one its container has one live
    /// fragment fewer: there the decision is all that says so.
    #[inline]
    pub(crate) fn end_record(&self, location: Location, length: u32) {
        if location.is_warm() {
            self.warm(|level| _ = level.warm.ended(place_of(location), 1));
        } else {
            self.placement.hot.end_record(location, length);
        }
    }

    /// The entry of a pinned record; reads the device where it is on the warm level, so never under a lock.
    pub(crate) fn entry_of(&self, location: Location) -> Result<Entry> {
        if location.is_warm() {
            return self.level_entry(location);
        }
        self.placement.hot.read_entry(location).ok_or_else(|| not_verified(location))
    }

    fn image_part(&self, location: Location) -> Result<Arc<ReadImage>> {
        let level =
            self.placement.level.as_ref().ok_or_else(|| Error::internal("a warm location without a warm level"))?;
        level.warm.read_fragment(place_of(location), location.index())
    }

    /// Length of a fragment on the warm level, read without the shard's lock, which is let go.
    pub(crate) fn length_there(&self, shard: ShardGuard<'_>, location: Location) -> Result<u32> {
        // Pinned before the lock is released: the container stays while its device is read.
        self.pin(location);
        drop(shard);
        let entry = self.entry_of(location);
        self.unpin(location);
        Ok(entry?.length)
    }

    /// Length of a fragment; one on the warm level is pinned, and asked for once the lock is let go.
    pub(crate) fn length_or_later<T>(&self, location: Location, of: T, later: &mut Vec<(T, Location)>) -> u64 {
        if !location.is_warm() {
            return u64::from(self.counted_at(location));
        }
        self.pin(location);
        later.push((of, location));
        0
    }

    /// Lengths of what [`Engine::length_or_later`] put off; 0 for what cannot be read.
    pub(crate) fn lengths_there<T>(&self, later: &mut Vec<(T, Location)>) -> Vec<(T, u64)> {
        let mut last: Option<(Location, Arc<ReadImage>)> = None;
        let read = later.drain(..).map(|(of, location)| {
            let same = |known: &(Location, Arc<ReadImage>)| {
                (known.0.container(), known.0.entry) == (location.container(), location.entry)
            };
            // Neighbours of one image share one read.
            if !last.as_ref().is_some_and(same) {
                last = self.image_of(location, 0).ok().map(|image| (location, image));
            }
            let entry = last.as_ref().and_then(|(_, image)| image.entry(location.index()).ok());
            self.unpin(location);
            (of, entry.map_or(0, |entry| u64::from(entry.length)))
        });
        read.collect()
    }

    /// The entry of a fragment on the warm level; reads the device. Not under a lock, except for recovery, which has all of them and
    /// makes nobody wait.
    pub(crate) fn level_entry(&self, location: Location) -> Result<Entry> {
        let level =
            self.placement.level.as_ref().ok_or_else(|| Error::internal("a warm location without a warm level"))?;
        level.warm.read_fragment(place_of(location), location.index())?.entry(location.index())
    }

    /// Whether the bytes of a fragment on the warm level match their checksum.
    pub(crate) fn verify_there(&self, location: Location) -> Result<()> {
        let image = self.fragment_of(location)?;
        let entry = image.entry(location.index())?;
        let name = || self.keyspace.schema.text(entry.key.as_bytes());
        if checksum(image.payload_at(location.index())?) == entry.payload_crc {
            return Ok(());
        }
        Err(Error::corrupt(format!("{}: its bytes on the warm level do not match their checksum", name())))
    }

    /// The image that a pinned fragment is in. With `bytes` payload expected it is read at once.
    pub(super) fn image_of(&self, location: Location, bytes: u64) -> Result<Arc<ReadImage>> {
        self.locks.assert_free();
        let level =
            self.placement.level.as_ref().ok_or_else(|| Error::internal("a warm location without a warm level"))?;
        // The meta comes with the payload: about 40 bytes for each fragment of a kilobyte or more.
        level.warm.read(place_of(location), bytes.saturating_add(bytes / 32).saturating_add(4096))
    }

    /// The same for the sake of one fragment: of a large image only its meta and that payload are read.
    fn fragment_of(&self, location: Location) -> Result<Arc<ReadImage>> {
        self.locks.assert_free();
        let level =
            self.placement.level.as_ref().ok_or_else(|| Error::internal("a warm location without a warm level"))?;
        level.warm.read_fragment(place_of(location), location.index())
    }

    fn warm(&self, act: impl FnOnce(&Level)) {
        debug_assert!(self.placement.level.is_some(), "the index names a container, and there is no warm level");
        if let Some(level) = &self.placement.level {
            act(level);
        }
    }
}

pub(crate) fn not_verified(location: Location) -> Error {
    Error::corrupt(format!("segment {} entry {} does not verify", location.segment, location.entry))
}

/// Said in place of an event's bytes where one fragment of it is wanted.
pub(crate) const ONE_FRAGMENT: u64 = 0;

/// Pinned records in the order in which they are wanted, turned into guards: images are read once each.
pub(crate) struct Reading<'a> {
    store: &'a Store,
    /// Payload bytes of the event that they are of: how much is read at once.
    event_bytes: u64,
    last: Option<(u32, u32, Arc<ReadImage>)>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(store: &'a Store, event_bytes: u64) -> Reading<'a> {
        Reading { store, event_bytes, last: None }
    }

    /// Turns a pinned location into a guard. The pin goes over to the guard, or is let go.
    #[inline]
    pub(crate) fn guard(&mut self, location: Location) -> Result<Fragment> {
        let engine = self.store.engine();
        if location.is_warm() {
            let read = self.read(location);
            engine.unpin(location);
            return read;
        }
        match engine.placement.hot.read_entry(location) {
            Some(entry) => Ok(Fragment::pinned(&self.store.holder, location.segment, entry)),
            None => {
                engine.placement.hot.unpin(location.segment);
                Err(not_verified(location))
            }
        }
    }

    fn read(&mut self, location: Location) -> Result<Fragment> {
        let known = self.last.as_ref().filter(|last| (last.0, last.1) == (location.container(), location.entry));
        let image = match known {
            Some(last) => last.2.clone(),
            None => {
                let image = match self.event_bytes {
                    ONE_FRAGMENT => self.store.engine().image_part(location)?,
                    bytes => self.store.engine().image_of(location, bytes)?,
                };
                self.last = Some((location.container(), location.entry, image.clone()));
                image
            }
        };
        let entry = image.entry(location.index())?;
        let payload = image.payload_at(location.index())?;
        // Always, unlike on the hot level: a device may answer with other bytes than it was given, and the read costs more.
        if checksum(payload) != entry.payload_crc {
            return Err(Error::corrupt(format!(
                "{}: its bytes on the warm level do not match their checksum ({} bytes, container {})",
                self.store.engine().keyspace.schema.text(entry.key.as_bytes()),
                entry.length,
                location.container()
            )));
        }
        Ok(Fragment::warm(image, location.index(), entry))
    }
}
