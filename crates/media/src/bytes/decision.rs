//! The bytes of the decision log: fixed-size slots, each a whole decision or a piece of a longer blob (a run's
//! configuration, a snapshot). `docs/format-hot.md` is the specification.
//!
//! ```text
//! decision: crc 4 | kind 1 | key length 1 | flags 1 | stage 1 | epoch 4 | boot 4 | counter 8 | fragments 4 | detail 4
//!           | bytes 8 | group 8 | key
//! blob:     crc 4 | kind 1 | data length 1 | flags 1 | blob kind 1 | data
//! ```
//!
//! *Invariants*: a slot's checksum is seeded like an entry's and covers its number in the segment; slots are written
//! one after the other, so that a slot that does not verify is the end of the log, unless a later one verifies: then
//! it is corruption.

use super::record::RecordSeed;
use crate::limits::SLOT_HEAD_BYTES;
use forebay_core::{Error, Result, Token};

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DecisionKind {
    /// A lease holder keeps the event; `detail` names its output: a mask of streams, or, with the top bit set, the
    /// number of a [`Blob::Output`].
    Accept = 1,
    /// A lease holder drops the event.
    Reject = 2,
    /// The archive has taken over an accepted or debug event; `detail` as its [`DecisionKind::Accept`] had it.
    Release = 3,
    /// An administrator removed an event.
    RemoveEvent = 4,
    /// An administrator removed one fragment.
    RemoveKey = 5,
    /// An update replaced a version; `detail` is the version that ended.
    Supersede = 6,
    /// The event went to the debug stream; `detail` is the reason's number.
    Debug = 7,
    /// A lease holder hands the event to a later stage, `stage`.
    Pass = 8,
    /// An announced event of which nothing arrived in time.
    NeverSeen = 9,
    /// An event of the debug stream is given to workers again.
    Replay = 10,
    /// Marks of an event on the warm level, where nothing is changed in place: `stage`, and in `detail` its
    /// deliveries (8 bits), whether it is ready (bit 8), and whether it lacks masked sources (bit 9).
    Mark = 11,
}

impl DecisionKind {
    fn from_byte(byte: u8) -> Option<DecisionKind> {
        use DecisionKind::*;
        let all = [Accept, Reject, Release, RemoveEvent, RemoveKey, Supersede, Debug, Pass, NeverSeen, Replay, Mark];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether the event's data is gone once this is decided.
    pub fn ends_event(self) -> bool {
        use DecisionKind::*;
        matches!(self, Reject | Release | RemoveEvent | NeverSeen)
    }
}

/// One decision record: what it covers, by which token, its outcome, and what it moves in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The outcome.
    pub kind: DecisionKind,
    /// The lease's token; [`Token::NONE`] for an administrator.
    pub token: Token,
    /// Fragments that it covers.
    pub fragments: u32,
    /// Payload bytes that it covers.
    pub bytes: u64,
    /// Output, version or reason, by kind.
    pub detail: u32,
    /// Sources were missing when the event became ready, and have not come since.
    pub incomplete: bool,
    /// The stage in which it was decided, or to which it is passed.
    pub stage: u8,
    /// Value of the attribute by which the ledger is kept; [`Decision::NO_GROUP`] without one.
    pub group: u64,
    /// Packed primary key, or whole key for [`DecisionKind::RemoveKey`] and [`DecisionKind::Supersede`].
    pub key: Vec<u8>,
}

impl Decision {
    /// No attribute value to keep the ledger by.
    pub const NO_GROUP: u64 = u64::MAX;

    /// A decision of this kind about this key, by nobody's lease; the rest is zero.
    pub fn about(kind: DecisionKind, key: &[u8]) -> Decision {
        Decision {
            kind,
            token: Token::NONE,
            fragments: 0,
            bytes: 0,
            detail: 0,
            incomplete: false,
            stage: 0,
            group: Decision::NO_GROUP,
            key: key.to_vec(),
        }
    }
}

/// What a blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Blob {
    /// A run's state and configuration.
    Run = 1,
    /// The name of a stream.
    Stream = 2,
    /// A snapshot: everything that earlier slots said.
    Snapshot = 3,
    /// Streams with chosen sources, as an accept named them, under a number.
    Output = 4,
    /// A source of a run is masked or unmasked.
    Mask = 5,
    /// Events are held back from delivery, or no longer.
    Hold = 6,
    /// A producer has begun, or reported what it offered.
    Producer = 7,
    /// A prescale of a run's trigger is recorded.
    Prescale = 8,
    /// How long a run was open, and the dead time of that.
    RunTime = 9,
}

impl Blob {
    fn from_byte(byte: u8) -> Option<Blob> {
        use Blob::*;
        [Run, Stream, Snapshot, Output, Mask, Hold, Producer, Prescale, RunTime]
            .into_iter()
            .find(|blob| *blob as u8 == byte)
    }
}

/// One slot's share of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobChunk {
    /// What the blob holds.
    pub blob: Blob,
    /// This chunk begins the blob.
    pub first: bool,
    /// This chunk ends the blob.
    pub last: bool,
    /// The chunk's bytes.
    pub data: Vec<u8>,
}

/// A slot that verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A whole decision.
    Decision(Decision),
    /// A piece of a blob.
    Blob(BlobChunk),
}

// Far from the numbers of decisions, which begin at 1 and may grow.
const BLOB: u8 = 0x80;
const BLOB_HEAD_BYTES: usize = 8;

// A slot says the length of its key or data in one byte.
const _: () = assert!(SLOT_HEAD_BYTES + forebay_core::limits::KEY_BYTES_MAX - BLOB_HEAD_BYTES <= u8::MAX as usize);

/// Size of a slot, by the key's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLayout {
    slot_bytes: usize,
}

impl SlotLayout {
    /// The layout for keys of this length.
    pub fn for_key_bytes(key_bytes: usize) -> SlotLayout {
        SlotLayout { slot_bytes: (SLOT_HEAD_BYTES + key_bytes).next_multiple_of(8).max(64) }
    }

    /// Bytes of one slot: 64 for keys up to 16 bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Bytes of blob data that one slot takes.
    pub fn blob_bytes(&self) -> usize {
        self.slot_bytes - BLOB_HEAD_BYTES
    }

    fn seal(&self, seed: RecordSeed, number: u32, out: &mut [u8]) {
        // The slot's number is in the checksum: a slot that is copied elsewhere in the log does not verify there.
        out[..4].copy_from_slice(&number.to_le_bytes());
        let crc = seed.checksum(out);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Writes a decision into one slot's bytes.
    pub fn encode(&self, decision: &Decision, seed: RecordSeed, number: u32, out: &mut [u8]) {
        debug_assert!(decision.key.len() <= self.slot_bytes - SLOT_HEAD_BYTES, "a key of another keyspace");
        let out = &mut out[..self.slot_bytes];
        // All of it is in the checksum, also what lies behind a shorter key.
        out.fill(0);
        out[4] = decision.kind as u8;
        out[5] = decision.key.len() as u8;
        out[6] = u8::from(decision.incomplete);
        out[7] = decision.stage;
        out[8..12].copy_from_slice(&decision.token.epoch.to_le_bytes());
        out[12..16].copy_from_slice(&decision.token.boot.to_le_bytes());
        out[16..24].copy_from_slice(&decision.token.counter.to_le_bytes());
        out[24..28].copy_from_slice(&decision.fragments.to_le_bytes());
        out[28..32].copy_from_slice(&decision.detail.to_le_bytes());
        out[32..40].copy_from_slice(&decision.bytes.to_le_bytes());
        out[40..48].copy_from_slice(&decision.group.to_le_bytes());
        out[SLOT_HEAD_BYTES..SLOT_HEAD_BYTES + decision.key.len()].copy_from_slice(&decision.key);
        self.seal(seed, number, out);
    }

    /// Writes a piece of a blob into one slot's bytes.
    pub fn encode_blob(&self, chunk: &BlobChunk, seed: RecordSeed, number: u32, out: &mut [u8]) {
        debug_assert!(chunk.data.len() <= self.blob_bytes(), "a piece that does not fit its slot");
        let out = &mut out[..self.slot_bytes];
        out.fill(0);
        out[4] = BLOB;
        out[5] = chunk.data.len() as u8;
        out[6] = u8::from(chunk.first) | u8::from(chunk.last) << 1;
        out[7] = chunk.blob as u8;
        out[BLOB_HEAD_BYTES..BLOB_HEAD_BYTES + chunk.data.len()].copy_from_slice(&chunk.data);
        self.seal(seed, number, out);
    }

    /// Reads a slot; `None` where it does not verify.
    pub fn decode(&self, bytes: &[u8], seed: RecordSeed, number: u32) -> Option<Slot> {
        let mut copy = [0; 96];
        let copy = copy.get_mut(..self.slot_bytes)?;
        copy.copy_from_slice(bytes.get(..self.slot_bytes)?);
        let crc = u32::from_le_bytes([copy[0], copy[1], copy[2], copy[3]]);
        copy[..4].copy_from_slice(&number.to_le_bytes());
        if seed.checksum(copy) != crc {
            return None;
        }
        let length = copy[5] as usize;
        if copy[4] == BLOB {
            let blob = Blob::from_byte(copy[7])?;
            let data = copy.get(BLOB_HEAD_BYTES..BLOB_HEAD_BYTES + length)?.to_vec();
            return Some(Slot::Blob(BlobChunk { blob, first: copy[6] & 1 != 0, last: copy[6] & 2 != 0, data }));
        }
        let word = |at: usize| u32::from_le_bytes([copy[at], copy[at + 1], copy[at + 2], copy[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Slot::Decision(Decision {
            kind: DecisionKind::from_byte(copy[4])?,
            token: Token { epoch: word(8), boot: word(12), counter: long(16) },
            fragments: word(24),
            detail: word(28),
            bytes: long(32),
            incomplete: copy[6] & 1 == 1,
            stage: copy[7],
            group: long(40),
            key: copy.get(SLOT_HEAD_BYTES..SLOT_HEAD_BYTES + length)?.to_vec(),
        }))
    }

    /// Cuts a blob into slots.
    pub fn chunks(&self, blob: Blob, data: &[u8]) -> Vec<BlobChunk> {
        // An empty blob is one slot too: that something was said, and is empty, must survive.
        let pieces: Vec<&[u8]> = if data.is_empty() { vec![&[]] } else { data.chunks(self.blob_bytes()).collect() };
        let last = pieces.len() - 1;
        let chunk =
            |(at, piece): (usize, &[u8])| BlobChunk { blob, first: at == 0, last: at == last, data: piece.to_vec() };
        pieces.into_iter().enumerate().map(chunk).collect()
    }
}

/// Bytes of a little-endian record being read: every read is checked.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(|| Error::corrupt("record ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    /// The next four bytes, as a number.
    pub fn u32(&mut self) -> Result<u32> {
        let b = self.bytes(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The next eight bytes, as a number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decisions_round_trip(kind in 1_u8..11, counter: u64, incomplete: bool, stage: u8, fragments: u32, bytes: u64, detail: u32, key in prop::collection::vec(any::<u8>(), 1..33)) {
            let layout = SlotLayout::for_key_bytes(key.len());
            let seed = RecordSeed::new(&[1; 16], 2, 3);
            let token = Token { epoch: 1, boot: 2, counter };
            let kind = DecisionKind::from_byte(kind).unwrap();
            let decision = Decision { token, fragments, bytes, detail, incomplete, stage, group: counter ^ bytes, ..Decision::about(kind, &key) };
            let mut out = vec![0xAA; layout.slot_bytes()];
            layout.encode(&decision, seed, 9, &mut out);
            prop_assert_eq!(layout.decode(&out, seed, 9), Some(Slot::Decision(decision)));
            prop_assert_eq!(layout.decode(&out, seed, 8), None);
            let bit = counter as usize % (out.len() * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(layout.decode(&out, seed, 9), None);
        }

        #[test]
        fn blobs_round_trip(data in prop::collection::vec(any::<u8>(), 0..300)) {
            let layout = SlotLayout::for_key_bytes(16);
            let seed = RecordSeed::new(&[1; 16], 2, 3);
            let mut joined = Vec::new();
            let chunks = layout.chunks(Blob::Run, &data);
            for (at, chunk) in chunks.iter().enumerate() {
                let mut out = vec![0; 64];
                layout.encode_blob(chunk, seed, at as u32, &mut out);
                match layout.decode(&out, seed, at as u32) {
                    Some(Slot::Blob(read)) => {
                        prop_assert_eq!((read.first, read.last), (at == 0, at == chunks.len() - 1));
                        joined.extend(read.data);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(joined, data);
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for key_bytes in [2, 16, 32] {
                let _ = SlotLayout::for_key_bytes(key_bytes).decode(&bytes, RecordSeed::new(&[0; 16], 0, 0), 0);
            }
        }
    }
}
