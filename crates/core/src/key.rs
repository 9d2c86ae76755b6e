//! Packed keys: plain bytes of at most 32, cheap to copy and to compare.

use crate::limits::KEY_BYTES_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * KEY_BYTES_MAX {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

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

            /// No bytes at all: a placeholder for a key that is not known yet.
            pub const EMPTY: $name = $name { bytes: [0; KEY_BYTES_MAX], len: 0 };

            /// The packed bytes, big-endian: byte order is key order.
            #[inline]
            pub fn as_bytes(&self) -> &[u8] {
                &self.bytes[..self.len as usize]
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($name), "({})"), hex(self.as_bytes()))
            }
        }

        /// As hexadecimal digits.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&hex(self.as_bytes()))
            }
        }

        impl<'a> Deserialize<'a> for $name {
            fn deserialize<D: Deserializer<'a>>(from: D) -> Result<$name, D::Error> {
                let text = <Cow<'_, str>>::deserialize(from)?;
                let bytes = unhex(&text).ok_or_else(|| D::Error::custom(concat!("no ", stringify!($name))))?;
                Ok($name::from_packed(&bytes))
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
