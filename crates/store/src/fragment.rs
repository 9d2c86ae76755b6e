//! Guards on stored bytes.
//!
//! A guard pins its segment: the bytes stay where they are, no matter what happens to the event, and the mapping stays
//! after the store is closed. What is pinned counts as fill and is listed by holder.

use crate::engine::{Engine, Holder};
use forebay_core::{Error, Key, Level, Result};
use forebay_media::bytes::Entry;
use forebay_media::hot::checksum;
use forebay_media::warm::ReadImage;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One fragment: its bytes in place, behind a guard.
pub struct Fragment {
    data: Data,
    entry: Entry,
}

enum Data {
    /// In the region, at this offset.
    Pinned { holder: Arc<Holder>, segment: u32, offset: u64 },
    /// Copied, because too many dead bytes are under guards.
    Owned(Box<[u8]>),
    /// Read from the warm level, with its whole image.
    Warm { image: Arc<ReadImage>, index: u32 },
}

impl Fragment {
    /// Takes over a pin on the segment.
    pub(crate) fn pinned(holder: &Arc<Holder>, segment: u32, entry: Entry) -> Fragment {
        let hot = &holder.engine.placement.hot;
        let offset = hot.payload_offset(segment, entry.offset);
        if holder.engine.inhibit.is_copying() {
            let copy = Fragment::copied(&holder.engine, segment, entry);
            hot.unpin(segment);
            return copy;
        }
        holder.guards.fetch_add(1, Ordering::Relaxed);
        holder.bytes.fetch_add(u64::from(entry.length), Ordering::Relaxed);
        Fragment { data: Data::Pinned { holder: holder.clone(), segment, offset }, entry }
    }

    /// A copy of a record whose segment is pinned meanwhile.
    pub(crate) fn copied(engine: &Engine, segment: u32, entry: Entry) -> Fragment {
        let offset = engine.placement.hot.payload_offset(segment, entry.offset);
        Fragment { data: Data::Owned(engine.placement.hot.region.bytes(offset, entry.length as usize).into()), entry }
    }

    /// A fragment of an image that was read and checked.
    pub(crate) fn warm(image: Arc<ReadImage>, index: u32, entry: Entry) -> Fragment {
        Fragment { data: Data::Warm { image, index }, entry }
    }

    /// The level that the bytes were read from.
    pub fn level(&self) -> Level {
        match self.data {
            _ if self.entry.flags.is_elsewhere() => Level::Elsewhere,
            Data::Warm { .. } => Level::Warm,
            Data::Pinned { .. } | Data::Owned(_) => Level::Hot,
        }
    }

    /// The fragment's key.
    pub fn key(&self) -> Key {
        self.entry.key
    }

    /// The producer's status bits.
    pub fn status(&self) -> u32 {
        self.entry.status
    }

    /// Version; 0 unless updated.
    pub fn version(&self) -> u16 {
        self.entry.version
    }

    /// Stored CRC-32C of the payload.
    pub fn checksum(&self) -> u32 {
        self.entry.payload_crc
    }

    /// Reads every byte and compares with the stored checksum.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    pub fn verify(&self) -> Result<()> {
        let found = checksum(self);
        if found == self.entry.payload_crc {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "{:?}: {} bytes have checksum {found:08x}, stored is {:08x}",
            self.entry.key, self.entry.length, self.entry.payload_crc
        )))
    }

    /// Whether the bytes are a copy: they were read from the warm level, or too many dead bytes are under guards.
    pub fn is_copied(&self) -> bool {
        !matches!(self.data, Data::Pinned { .. })
    }
}

impl Deref for Fragment {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.data {
            Data::Pinned { holder, offset, .. } => {
                holder.engine.placement.hot.region.bytes(*offset, self.entry.length as usize)
            }
            Data::Owned(bytes) => bytes,
            Data::Warm { image, index } => image.payload_at(*index).unwrap_or_default(),
        }
    }
}

impl Drop for Fragment {
    #[inline]
    fn drop(&mut self) {
        if let Data::Pinned { holder, segment, .. } = &self.data {
            holder.guards.fetch_sub(1, Ordering::Relaxed);
            holder.bytes.fetch_sub(u64::from(self.entry.length), Ordering::Relaxed);
            // Last, after the figures: what has a guard and is not in them is a call in flight.
            holder.engine.placement.hot.unpin(*segment);
        }
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Fragment({:?}, {} bytes, version {})", self.entry.key, self.entry.length, self.entry.version)
    }
}

/// An event as it is read: its fragments are guards.
pub type Event = forebay_core::Event<Fragment>;

/// One event as a monitor sees it: its fragments are copies.
pub type Sample = forebay_core::Sample<Fragment>;
