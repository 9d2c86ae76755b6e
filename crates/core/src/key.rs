//! Packed keys: plain bytes of at most 32, cheap to copy and to compare.

use crate::limits::KEY_BYTES_MAX;
use std::fmt;

macro_rules! packed {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            bytes: [u8; KEY_BYTES_MAX],
            len: u8,
        }

        impl $name {
            #[inline]
            pub(crate) fn from_array(bytes: [u8; KEY_BYTES_MAX], len: usize) -> $name {
                $name { bytes, len: len as u8 }
            }

            /// From packed bytes that a schema made.
            ///
            /// # Panics
            /// Where more than 32 bytes are given.
            pub fn from_packed(packed: &[u8]) -> $name {
                let mut bytes = [0; KEY_BYTES_MAX];
                bytes[..packed.len()].copy_from_slice(packed);
                $name { bytes, len: packed.len() as u8 }
            }

            /// No bytes at all: stands for one that is not known yet.
            pub const EMPTY: $name = $name { bytes: [0; KEY_BYTES_MAX], len: 0 };

            /// The packed bytes, big-endian: byte order is key order.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                &self.bytes[..self.len as usize]
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($name), "("))?;
                for byte in self.as_bytes() {
                    write!(out, "{byte:02x}")?;
                }
                write!(out, ")")
            }
        }
    };
}

impl Primary {
    /// The next packed primary key; `None` after the last one.
    pub fn successor(&self) -> Option<Primary> {
        let mut next = *self;
        for byte in next.bytes[..next.len as usize].iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                return Some(next);
            }
        }
        None
    }
}

packed!(Key, "A packed composite key: addresses one fragment.");
packed!(Primary, "The packed leading sub-keys of a key: names one event.");
