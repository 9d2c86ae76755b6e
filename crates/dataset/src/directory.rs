//! The directory of a batch: where the stripes of each stream are.
//!
//! ```text
//! object    head "FBDD", n varint, n x length varint, n directories
//! directory zstd of: number of the first object, of the second one, bytes of the first one's body before this batch, entries, groups, bytes of lengths, of numbers, of checksums, inline bytes (varint each);
//!           kind of each entry (1 B; 0x80: it begins the next object); length of each inline or stored one (varint);
//!           stream of each repeated one, group of each row (varint); of each group of bools: length x 2 (+ 1: begins the next
//!           object, varint), checksum; inline bytes; checksum of each stored one (low 2 B if shorter than 4 KiB, else 4 B)
//! ```
//!
//! Entries are in the order of streams, and of stripes within a stream. What is stored follows in the objects in the same order, so that
//! no offset is written.

use crate::frame::{self, Magic};
use forebay_core::{Error, Result, crc32c};

/// A directory in memory is not larger.
const BYTES_MAX: usize = 256 << 20;
/// What an entry takes at most in a directory: kind, number of 5 bytes, 16 inline bytes; of a group length and checksum.
const ENTRY_BYTES_MAX: usize = 48;
/// What a directory without entries takes at most.
const HEADER_BYTES_MAX: usize = 128;
/// zstd's level for directories.
const LEVEL: i32 = 12;
/// Entries that are stored with at most this many bytes are in the directory itself.
pub(crate) const INLINE_MAX: usize = 16;
/// Stored entries below this have a checksum of 2 bytes.
const SHORT: u64 = 4096;

/// Where a stripe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// In an object.
    Stored(Piece),
    /// In the directory: a range of its inline bytes.
    Inline { start: u32, len: u32 },
    /// The same bytes as this earlier stream's stripe of the same number.
    Same { stream: u32 },
    /// A row of a group of bools.
    Row { group: u32, row: u32 },
}

/// Bytes in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Piece {
    /// Which object of the batch.
    pub(crate) object: u32,
    /// From the object's first byte, head included.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// CRC-32C, of which short pieces keep 16 bits.
    pub(crate) sum: u32,
}

impl Piece {
    /// Whether these are the piece's bytes.
    pub(crate) fn verify(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.len && kept(crc32c(bytes), self.len) == self.sum
    }
}

/// What a directory keeps of a checksum.
fn kept(sum: u32, len: u64) -> u32 {
    if len < SHORT { sum & 0xffff } else { sum }
}

/// The directory of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Number of the batch's first object below the writer's prefix.
    pub(crate) first_object: u64,
    /// Number of the second one; those after it follow.
    pub(crate) next_object: u64,
    /// Bytes of the first object's body before this batch.
    pub(crate) first_offset: u64,
    /// Bytes of the bodies of the batch's objects, up to the end of this batch.
    pub(crate) objects: Vec<u64>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) inline: Vec<u8>,
    /// Groups of bools: where each is, and how many rows it has.
    pub(crate) groups: Vec<(Piece, u32)>,
}

/// What an encoder says of an entry.
pub(crate) enum Coded {
    Bytes(Vec<u8>),
    Same { stream: u32 },
    Row { group: u32 },
}

/// Lays out the stripes of a batch: the bodies of its objects, and their directory. The first body goes on where the one given ends; the last
/// one may take more batches.
pub(crate) fn lay_out(
    entries: Vec<Coded>,
    groups: Vec<Vec<u8>>,
    target: usize,
    first_object: u64,
    open: Vec<u8>,
) -> (Directory, Vec<Vec<u8>>) {
    let first_offset = open.len() as u64;
    let mut directory = Directory { first_object, first_offset, objects: vec![first_offset], ..Directory::default() };
    let mut objects: Vec<Vec<u8>> = vec![open];
    let mut rows = vec![0; groups.len()];
    let mut store = |bytes: &[u8], directory: &mut Directory| {
        let mut object = objects.len() - 1;
        if full(objects[object].len() as u64, bytes.len() as u64, target as u64) {
            objects.push(Vec::new());
            directory.objects.push(0);
            object += 1;
        }
        let offset = (frame::HEAD + objects[object].len()) as u64;
        objects[object].extend_from_slice(bytes);
        directory.objects[object] = objects[object].len() as u64;
        let len = bytes.len() as u64;
        Piece { object: object as u32, offset, len, sum: kept(crc32c(bytes), len) }
    };
    for entry in entries {
        let entry = match entry {
            Coded::Bytes(bytes) if bytes.len() <= INLINE_MAX => {
                let start = directory.inline.len() as u32;
                directory.inline.extend_from_slice(&bytes);
                Entry::Inline { start, len: bytes.len() as u32 }
            }
            Coded::Bytes(bytes) => Entry::Stored(store(&bytes, &mut directory)),
            Coded::Same { stream } => Entry::Same { stream },
            Coded::Row { group } => {
                let row = rows[group as usize];
                rows[group as usize] += 1;
                Entry::Row { group, row }
            }
        };
        directory.entries.push(entry);
    }
    for (group, rows) in groups.iter().zip(rows) {
        let piece = store(group, &mut directory);
        directory.groups.push((piece, rows));
    }
    (directory, objects)
}

/// Whether an object with this many bytes takes no piece of this length.
fn full(has: u64, len: u64, target: u64) -> bool {
    has > 0 && has.saturating_add(len) > target
}

const INLINE: u8 = 0;
const STORED: u8 = 1;
const SAME: u8 = 2;
const ROW: u8 = 3;

impl Directory {
    /// Number of an object of the batch below the writer's prefix.
    pub(crate) fn number(&self, object: u32) -> u32 {
        let number = if object == 0 { self.first_object } else { self.next_object + u64::from(object) - 1 };
        // Saturates only for numbers that no writer gives: there is no such object then.
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The directory's bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let (mut kinds, mut lengths, mut backs, mut sums, mut groups) = (vec![], vec![], vec![], vec![], vec![]);
        let sum = |piece: &Piece, out: &mut Vec<u8>| {
            out.extend_from_slice(&piece.sum.to_le_bytes()[..if piece.len < SHORT { 2 } else { 4 }]);
        };
        // Objects begin at the entry whose object is another one than that of the entry before.
        let mut at = 0;
        for entry in &self.entries {
            match entry {
                Entry::Inline { len, .. } => {
                    kinds.push(INLINE);
                    varint(u64::from(*len), &mut lengths);
                }
                Entry::Stored(piece) => {
                    kinds.push(STORED | if piece.object == at { 0 } else { NEXT });
                    at = piece.object;
                    varint(piece.len, &mut lengths);
                    sum(piece, &mut sums);
                }
                Entry::Same { stream } => {
                    kinds.push(SAME);
                    varint(u64::from(*stream), &mut backs);
                }
                Entry::Row { group, .. } => {
                    kinds.push(ROW);
                    varint(u64::from(*group), &mut backs);
                }
            }
        }
        for (piece, _) in &self.groups {
            varint(piece.len << 1 | u64::from(piece.object != at), &mut groups);
            at = piece.object;
            sum(piece, &mut groups);
        }
        let mut body = Vec::new();
        varint(self.first_object, &mut body);
        varint(self.next_object, &mut body);
        varint(self.first_offset, &mut body);
        for n in [self.entries.len(), self.groups.len(), lengths.len(), backs.len(), sums.len(), self.inline.len()] {
            varint(n as u64, &mut body);
        }
        for part in [&kinds, &lengths, &backs, &groups, &self.inline, &sums] {
            body.extend_from_slice(part);
        }
        frame::deflate(&body, LEVEL)
    }

    /// The directory in these bytes, which must have this many entries: hostile bytes take no more memory than its layer has streams.
    pub(crate) fn decode(bytes: &[u8], entries: usize, what: &dyn std::fmt::Display) -> Result<Directory> {
        let bytes_max = entries.saturating_mul(ENTRY_BYTES_MAX).saturating_add(HEADER_BYTES_MAX).min(BYTES_MAX);
        let body = frame::inflate(bytes, bytes_max, what)?;
        let directory = Self::read(&body).filter(|directory| directory.entries.len() == entries);
        directory.ok_or_else(|| Error::corrupt(format!("{what}: not a directory of {entries} entries")))
    }

    fn read(body: &[u8]) -> Option<Directory> {
        let mut from = body;
        let first_object = read_varint(&mut from).filter(|&first| first <= u64::from(u32::MAX))?;
        let next_object = read_varint(&mut from).filter(|&next| next <= u64::from(u32::MAX))?;
        let first_offset = read_varint(&mut from).filter(|&first| first <= OFFSET_MAX)?;
        let mut header = [0_usize; 6];
        for n in &mut header {
            *n = usize::try_from(read_varint(&mut from)?).ok()?;
        }
        let [entries, groups, lengths, backs, sums, inline] = header;
        let mut take = |n: usize| -> Option<&[u8]> {
            let (part, rest) = from.split_at_checked(n)?;
            from = rest;
            Some(part)
        };
        let kinds = take(entries)?;
        let (mut lengths, mut backs) = (take(lengths)?, take(backs)?);
        let tail = from.len().checked_sub(inline.checked_add(sums)?)?;
        let (mut group_bytes, rest) = from.split_at(tail);
        let (inline, mut sums) = rest.split_at(inline);
        let mut place = Place { objects: vec![first_offset] };
        let mut directory =
            Directory { first_object, next_object, first_offset, inline: inline.to_vec(), ..Directory::default() };
        let mut rows = vec![0_u32; if groups <= entries { groups } else { return None }];
        let mut start = 0_u32;
        for &kind in kinds {
            let entry = match kind & !NEXT {
                INLINE => {
                    let len = read_varint(&mut lengths).filter(|&len| len <= INLINE_MAX as u64)? as u32;
                    let entry = Entry::Inline { start, len };
                    start = start.checked_add(len)?;
                    entry
                }
                STORED => {
                    let len = read_varint(&mut lengths)?;
                    Entry::Stored(place.piece(kind & NEXT != 0, len, &mut sums)?)
                }
                SAME => {
                    let stream = u32::try_from(read_varint(&mut backs)?).ok()?;
                    Entry::Same { stream }
                }
                ROW => {
                    let group = u32::try_from(read_varint(&mut backs)?).ok()?;
                    let next = rows.get_mut(group as usize)?;
                    let row = *next;
                    *next += 1;
                    Entry::Row { group, row }
                }
                _ => return None,
            };
            directory.entries.push(entry);
        }
        for n in rows {
            let len = read_varint(&mut group_bytes)?;
            let piece = place.piece(len & 1 != 0, len >> 1, &mut group_bytes)?;
            directory.groups.push((piece, n));
        }
        directory.objects = place.objects;
        let whole = start as usize == inline.len() && lengths.is_empty() && backs.is_empty() && sums.is_empty();
        (whole && group_bytes.is_empty()).then_some(directory)
    }
}

/// Set on a kind: the piece is the first one of the next object.
const NEXT: u8 = 0x80;

/// An object is not larger, so that no sum of lengths overflows.
const OFFSET_MAX: u64 = 1 << 48;

/// The end of what was placed until now.
struct Place {
    objects: Vec<u64>,
}

impl Place {
    fn piece(&mut self, next: bool, len: u64, sums: &mut &[u8]) -> Option<Piece> {
        if next {
            self.objects.push(0);
        }
        let end = self.objects.last_mut()?;
        let offset = end.checked_add(frame::HEAD as u64)?;
        *end = end.checked_add(len)?;
        if *end > OFFSET_MAX {
            return None;
        }
        let (sum, rest) = sums.split_at_checked(if len < SHORT { 2 } else { 4 })?;
        *sums = rest;
        let sum = sum.iter().rev().fold(0_u32, |all, &byte| all << 8 | u32::from(byte));
        Some(Piece { object: u32::try_from(self.objects.len() - 1).ok()?, offset, len, sum })
    }
}

/// An object with the directories of some batches.
pub(crate) fn bundle(directories: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    varint(directories.len() as u64, &mut body);
    for directory in directories {
        varint(directory.len() as u64, &mut body);
    }
    for directory in directories {
        body.extend_from_slice(directory);
    }
    frame::framed(Magic::Directories, &body)
}

/// The bytes of each directory in an object.
pub(crate) fn unbundle<'a>(object: &'a [u8], what: &dyn std::fmt::Display) -> Result<Vec<&'a [u8]>> {
    let body = frame::body(Magic::Directories, object, what)?;
    let parts = || {
        let mut from = body;
        let n = read_varint(&mut from)?;
        let lengths: Option<Vec<usize>> =
            (0..n).map(|_| read_varint(&mut from).and_then(|len| usize::try_from(len).ok())).collect();
        let parts: Option<Vec<&[u8]>> = lengths?
            .into_iter()
            .map(|len| {
                let (part, rest) = from.split_at_checked(len)?;
                from = rest;
                Some(part)
            })
            .collect();
        parts.filter(|_| from.is_empty())
    };
    parts().ok_or_else(|| Error::corrupt(format!("{what}: lengths of directories do not fit")))
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> (Directory, Vec<Vec<u8>>) {
        let entries = vec![
            Coded::Bytes(vec![]),
            Coded::Bytes(vec![7; 100]),
            Coded::Row { group: 0 },
            Coded::Bytes(vec![8; 5000]),
            Coded::Same { stream: 1 },
            Coded::Bytes(vec![1; 3]),
            Coded::Row { group: 0 },
            Coded::Bytes(vec![9; 600]),
        ];
        lay_out(entries, vec![vec![3; 50]], 5200, 7, vec![0; 30])
    }

    #[test]
    fn a_directory_is_read_as_it_was_written() {
        let (directory, objects) = some();
        assert_eq!(objects.len(), 2);
        let again = Directory::decode(&directory.encode().unwrap(), 8, &"d").unwrap();
        assert!(Directory::decode(&directory.encode().unwrap(), 7, &"d").is_err());
        assert_eq!(again, directory);
        for entry in again.entries {
            if let Entry::Stored(piece) = entry {
                let bytes =
                    &objects[piece.object as usize][piece.offset as usize - frame::HEAD..][..piece.len as usize];
                assert!(piece.verify(bytes));
            }
        }
    }

    #[test]
    fn a_bundle_has_its_directories() {
        let bytes = bundle(&[vec![1, 2], vec![], vec![3]]);
        assert_eq!(unbundle(&bytes, &"d").unwrap(), [&[1, 2][..], &[], &[3]]);
    }

    #[test]
    fn bytes_that_are_no_directory_are_refused() {
        let body = zstd::bulk::decompress(&some().0.encode().unwrap(), 1 << 20).unwrap();
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 0x41;
            let _ = Directory::read(&changed);
            assert!(Directory::read(&body[..at]).is_none(), "{at} bytes");
        }
    }
}
