//! What every object begins with: magic, version, length and checksum.
//!
//! ```text
//! 0  magic  4 B   "FBDR" root, "FBDD" directories, "FBDS" stripes, "FBDW" writers;
//!                  of a catalogue "FBDC" change, "FBDP" page, "FBDB" blob, "FBDH" head
//! 4  version  u16     6  zero  u16     8  length of the body  u64
//! 16 CRC-32C of the body  u32          20 CRC-32C of the 20 bytes before  u32
//! 24 body
//! ```

use forebay_core::{Error, Result, crc32c};

/// Bytes before the body.
pub(crate) const HEAD: usize = 24;
/// The version of the format that this program writes, and the only one that it reads.
pub(crate) const VERSION: u16 = 1;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Magic {
    Root,
    Directories,
    Stripes,
    Writers,
    Change,
    Page,
    Blob,
    Hint,
}

impl Magic {
    fn bytes(self) -> [u8; 4] {
        *match self {
            Magic::Root => b"FBDR",
            Magic::Directories => b"FBDD",
            Magic::Stripes => b"FBDS",
            Magic::Writers => b"FBDW",
            Magic::Change => b"FBDC",
            Magic::Page => b"FBDP",
            Magic::Blob => b"FBDB",
            Magic::Hint => b"FBDH",
        }
    }
}

/// The head of an object with this body.
pub(crate) fn head(magic: Magic, body: &[u8]) -> [u8; HEAD] {
    head_of(magic, body.len() as u64, crc32c(body))
}

/// The head of an object whose body has this length and this CRC-32C, for readers that never have the body whole.
pub(crate) fn head_of(magic: Magic, len: u64, body_sum: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&magic.bytes());
    head[4..6].copy_from_slice(&VERSION.to_le_bytes());
    head[8..16].copy_from_slice(&len.to_le_bytes());
    head[16..20].copy_from_slice(&body_sum.to_le_bytes());
    let sum = crc32c(&head[..20]);
    head[20..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// An object with this body.
pub(crate) fn framed(magic: Magic, body: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(HEAD + body.len());
    object.extend_from_slice(&head(magic, body));
    object.extend_from_slice(body);
    object
}

/// The body of an object.
///
/// # Errors
/// `Corrupt` where the object is not what its head says, `Invalid` for a version that this program does not know.
pub(crate) fn body<'a>(magic: Magic, object: &'a [u8], what: &dyn std::fmt::Display) -> Result<&'a [u8]> {
    let corrupt = |why: &str| Error::corrupt(format!("{what}: {why}"));
    let Some((head, body)) = object.split_at_checked(HEAD) else {
        return Err(corrupt("shorter than a head"));
    };
    if head[..4] != magic.bytes() {
        return Err(corrupt("not the magic of such an object"));
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if word(20) != crc32c(&head[..20]) {
        return Err(corrupt("the head's checksum is wrong"));
    }
    let version = u16::from_le_bytes([head[4], head[5]]);
    if version != VERSION {
        return Err(Error::invalid(format!("{what}: version {version} of the format; this program reads {VERSION}")));
    }
    if u64::from(word(8)) | u64::from(word(12)) << 32 != body.len() as u64 {
        return Err(corrupt("not as long as its head says"));
    }
    if word(16) != crc32c(body) {
        return Err(corrupt("the body's checksum is wrong"));
    }
    Ok(body)
}

/// Bytes that were compressed, where the answer has at most `bytes_max` bytes.
pub(crate) fn inflate(bytes: &[u8], bytes_max: usize, what: &dyn std::fmt::Display) -> Result<Vec<u8>> {
    let says = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
    match says {
        // The size is in the frame, so that hostile bytes cannot ask for more memory than this.
        Some(size) if size <= bytes_max as u64 => {
            zstd::bulk::decompress(bytes, size as usize).map_err(|error| Error::corrupt(format!("{what}: {error}")))
        }
        _ => Err(Error::corrupt(format!("{what}: not zstd, or more than {bytes_max} bytes"))),
    }
}

/// Compressed bytes that say their size.
pub(crate) fn deflate(bytes: &[u8], level: i32) -> Result<Vec<u8>> {
    zstd::bulk::compress(bytes, level).map_err(|error| Error::internal(format!("zstd: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let object = framed(Magic::Root, b"some bytes");
        assert_eq!(body(Magic::Root, &object, &"root").unwrap(), b"some bytes");
        for at in 0..object.len() {
            let mut changed = object.clone();
            changed[at] ^= 4;
            assert!(body(Magic::Root, &changed, &"root").is_err(), "byte {at}");
            assert!(body(Magic::Root, &object[..at], &"root").is_err(), "{at} bytes");
        }
    }
}
