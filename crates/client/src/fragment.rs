//! Fragments in memory of the client.

use crate::buffer::Buffer;
use forebay_core::{Elsewhere, Error, Key, Level, Result, crc32c};
use forebay_wire::WireFragment;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// One fragment: its bytes are in the memory of the answer that brought it, which stays as long as one of its fragments.
#[derive(Clone)]
pub struct Fragment {
    key: Key,
    about: WireFragment,
    bytes: Arc<Buffer>,
    from: usize,
}

/// An event as it is read.
pub type Event = forebay_core::Event<Fragment>;

/// One event as a monitor sees it.
pub type Sample = forebay_core::Sample<Fragment>;

impl Fragment {
    /// The fragment's key.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The producer's status bits.
    pub fn status(&self) -> u32 {
        self.about.status
    }

    /// Version; 0 unless updated.
    pub fn version(&self) -> u16 {
        self.about.version
    }

    /// CRC-32C of the payload, as the producer made it.
    pub fn checksum(&self) -> u32 {
        self.about.checksum
    }

    /// The level that the server read it from.
    pub fn level(&self) -> Level {
        self.about.level
    }

    /// What the home of its event has in place of bytes that another node has.
    pub(crate) fn elsewhere(&self) -> Option<Elsewhere> {
        if self.about.level == Level::Elsewhere { Elsewhere::from_bytes(self) } else { None }
    }

    /// Whether the bytes are a copy of the store's: always.
    pub fn is_copied(&self) -> bool {
        true
    }

    /// Reads every byte and compares with the checksum.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    pub fn verify(&self) -> Result<()> {
        let found = crc32c(self);
        if found == self.about.checksum {
            return Ok(());
        }
        let (key, length, expected) = (self.key, self.about.length, self.about.checksum);
        Err(Error::corrupt(format!("{key:?}: {length} bytes have checksum {found:08x}, stored is {expected:08x}")))
    }
}

impl Deref for Fragment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.about.length as usize]
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Fragment({:?}, {} bytes, version {})", self.key, self.about.length, self.about.version)
    }
}

/// Cuts the payload of an answer into its fragments.
pub(crate) struct Cutter {
    bytes: Arc<Buffer>,
    at: usize,
    /// Bytes of other nodes cannot be read.
    is_of_one_node: bool,
}

impl Cutter {
    pub(crate) fn new(payload: Buffer) -> Cutter {
        Cutter { bytes: Arc::new(payload), at: 0, is_of_one_node: false }
    }

    /// The same for a client that knows one node of its cluster.
    pub(crate) fn of_one_node(payload: Buffer) -> Cutter {
        Cutter { is_of_one_node: true, ..Cutter::new(payload) }
    }

    /// The next fragment.
    ///
    /// # Errors
    /// `Corrupt` where the payload ends before; `Unavailable` for bytes that another node has, where only one is known.
    pub(crate) fn next(&mut self, key: Key, about: WireFragment) -> Result<Fragment> {
        let from = self.at;
        self.at = from.saturating_add(about.length as usize);
        if self.at > self.bytes.len() {
            return Err(Error::corrupt("an answer has fewer bytes than its fragments"));
        }
        if self.is_of_one_node && about.level == Level::Elsewhere {
            return Err(Error::unavailable(format!(
                "{key:?}: another node has its bytes; the blocking client reads them"
            )));
        }
        Ok(Fragment { key, about, bytes: self.bytes.clone(), from })
    }

    /// The next fragments.
    ///
    /// # Errors
    /// `Corrupt` where the payload ends before.
    pub(crate) fn all(&mut self, list: Vec<(Key, WireFragment)>) -> Result<Vec<Fragment>> {
        list.into_iter().map(|(key, about)| self.next(key, about)).collect()
    }
}

/// Bytes of the payloads of these.
pub(crate) fn bytes_of(list: &[(Key, WireFragment)]) -> u64 {
    list.iter().map(|(_, about)| u64::from(about.length)).sum()
}
