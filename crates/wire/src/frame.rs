//! The head of a frame: what it is, whose answer it is, how much follows.
//!
//! ```text
//! magic 3 | version 1 | kind 1 | flags 1 | zero 2 | request 8 | epoch 4 | meta bytes 4 | payload bytes 4
//!         | meta crc 4 | credit 4 | head crc 4                                                            = 40
//! ```

use forebay_core::{Call, Error, Result, crc32c};

/// Bytes of the head of every frame.
pub const FRAME_HEAD_BYTES: usize = 40;
/// Version of the framing that this code speaks; what a version can do beyond it is agreed in [`FrameKind::Hello`].
pub const WIRE_VERSION: u8 = 1;

const MAGIC: [u8; 3] = *b"FBW";

/// The kind of a frame; an answer has that of its request. A number is never reused for another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The first frame of either side: version, features, token; answered by the keyspace and the connection's limits.
    Hello,
    /// More may be sent: credit alone.
    Credit,
    /// Is anybody there?
    Ping,
    /// The sender will ask for nothing more, or takes nothing more; what is under way is answered.
    Goodbye,
    /// A call that has a number in the table of calls.
    Call(Call),
    /// Rare calls, by name, in JSON: runs, masks, holds, accounts, statistics.
    Control,
    /// Between servers: fragments that holders have, to the home of their events.
    Arrivals,
    /// Between servers: decisions of the home, to the holders.
    Decisions,
    /// Between servers: what a replica has of some events.
    Digests,
}

/// The kinds that are no calls, by number.
const OTHERS: [(u8, FrameKind); 8] = [
    (1, FrameKind::Hello),
    (2, FrameKind::Credit),
    (3, FrameKind::Ping),
    (4, FrameKind::Goodbye),
    (CONTROL, FrameKind::Control),
    (64, FrameKind::Arrivals),
    (65, FrameKind::Decisions),
    (66, FrameKind::Digests),
];
const CONTROL: u8 = 48;

impl FrameKind {
    /// All kinds, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = FrameKind> {
        (0..=u8::MAX).filter_map(FrameKind::of_number)
    }

    fn number(self) -> u8 {
        match self {
            // A call without a number goes by its name, in a control.
            FrameKind::Call(call) => call.number().unwrap_or(CONTROL),
            other => OTHERS.iter().find(|(_, kind)| *kind == other).map_or(0, |(number, _)| *number),
        }
    }

    fn of_number(number: u8) -> Option<FrameKind> {
        let other = || OTHERS.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind);
        Call::of_number(number).map(FrameKind::Call).or_else(other)
    }
}

impl From<Call> for FrameKind {
    fn from(call: Call) -> FrameKind {
        FrameKind::Call(call)
    }
}

/// The position of a frame among those of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// A request, and all of it.
    pub const REQUEST: FrameFlags = FrameFlags(0);
    /// The answer to the request of the same number.
    pub const ANSWER: FrameFlags = FrameFlags(1);
    /// An answer whose meta is an error: a byte for its kind, and its message.
    pub const ERROR: FrameFlags = FrameFlags(1 | 2);
    /// An answer after which more of the same follow.
    pub const MORE: FrameFlags = FrameFlags(1 | 4);

    /// Whether the frame answers.
    pub fn is_answer(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the answer is an error.
    pub fn is_error(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether more frames of the same answer follow.
    pub fn has_more(self) -> bool {
        self.0 & 4 != 0
    }

    fn from_byte(byte: u8) -> Option<FrameFlags> {
        let known = [FrameFlags::REQUEST, FrameFlags::ANSWER, FrameFlags::ERROR, FrameFlags::MORE];
        known.into_iter().find(|flags| flags.0 == byte)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// Request, answer, error, or one of several.
    pub flags: FrameFlags,
    /// Number of the request, chosen by the sender of the request, for this connection alone; answers carry the same.
    pub request: u64,
    /// Epoch of the cluster map that the sender goes by; 0 without a cluster.
    pub epoch: u32,
    /// Bytes of the meta, which follows the head.
    pub meta_bytes: u32,
    /// Bytes of the payload, which follows the meta.
    pub payload_bytes: u32,
    /// CRC-32C of the meta.
    pub meta_crc: u32,
    /// This many more bytes than before may be sent to the sender of this frame.
    pub credit: u32,
}

impl FrameHead {
    /// A head without meta and payload.
    pub fn new(kind: impl Into<FrameKind>, flags: FrameFlags, request: u64) -> FrameHead {
        let kind = kind.into();
        FrameHead { kind, flags, request, epoch: 0, meta_bytes: 0, payload_bytes: 0, meta_crc: 0, credit: 0 }
    }

    /// The same for this meta and this many bytes of payload.
    #[must_use]
    pub fn with(mut self, meta: &[u8], payload_bytes: u32) -> FrameHead {
        (self.meta_bytes, self.meta_crc) = (meta.len() as u32, crc32c(meta));
        self.payload_bytes = payload_bytes;
        self
    }

    /// Bytes of the whole frame: what it takes of a credit.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEAD_BYTES as u64 + u64::from(self.meta_bytes) + u64::from(self.payload_bytes)
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; FRAME_HEAD_BYTES] {
        let mut bytes = [0; FRAME_HEAD_BYTES];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3..6].copy_from_slice(&[WIRE_VERSION, self.kind.number(), self.flags.0]);
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        let words = [self.epoch, self.meta_bytes, self.payload_bytes, self.meta_crc, self.credit];
        for (place, word) in bytes[16..36].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head of a frame whose meta and payload together have at most `most` bytes.
    ///
    /// # Errors
    /// `Invalid` for what is no frame, a version that this code does not speak, a kind that it does not know, and a frame
    /// that is too long; `Corrupt` for one whose checksum is wrong. After either nothing on the connection can be believed.
    pub fn decode(bytes: &[u8; FRAME_HEAD_BYTES], most: u64) -> Result<FrameHead> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..3] != MAGIC {
            return Err(Error::invalid("these bytes are no frame: is this a client of Forebay's own protocol?"));
        }
        if bytes[3] != WIRE_VERSION {
            return Err(Error::invalid(format!(
                "version {} of the protocol; version {WIRE_VERSION} is spoken here",
                bytes[3]
            )));
        }
        if crc32c(&bytes[..36]) != word(36) {
            return Err(Error::corrupt("the head of a frame does not have its checksum"));
        }
        let kind = FrameKind::of_number(bytes[4])
            .ok_or_else(|| Error::invalid(format!("a frame of kind {}, which is not known here", bytes[4])))?;
        let flags = FrameFlags::from_byte(bytes[5]).filter(|_| bytes[6..8] == [0, 0]);
        let flags = flags.ok_or_else(|| Error::invalid("a frame with flags that are not known here"))?;
        let head = FrameHead {
            kind,
            flags,
            request: u64::from(word(8)) | u64::from(word(12)) << 32,
            epoch: word(16),
            meta_bytes: word(20),
            payload_bytes: word(24),
            meta_crc: word(28),
            credit: word(32),
        };
        if head.frame_bytes() - FRAME_HEAD_BYTES as u64 > most {
            return Err(Error::invalid(format!("a frame of {} bytes; {most} are allowed here", head.frame_bytes())));
        }
        Ok(head)
    }

    /// Whether these are the bytes of the meta.
    ///
    /// # Errors
    /// `Corrupt` where they are not.
    pub fn check_meta(&self, meta: &[u8]) -> Result<()> {
        if meta.len() == self.meta_bytes as usize && crc32c(meta) == self.meta_crc {
            return Ok(());
        }
        Err(Error::corrupt("the meta of a frame does not have its checksum"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;
    use proptest::prelude::*;

    fn head() -> FrameHead {
        FrameHead {
            epoch: 7,
            credit: 1 << 20,
            ..FrameHead::new(Call::Put, FrameFlags::REQUEST, u64::MAX - 1).with(b"meta", 10 << 10)
        }
    }

    fn refused(bytes: &[u8; FRAME_HEAD_BYTES], most: u64) -> Kind {
        FrameHead::decode(bytes, most).unwrap_err().kind()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(FrameHead::decode(&head().encode(), 1 << 20).unwrap(), head());
        assert_eq!(head().frame_bytes(), 40 + 4 + (10 << 10));
        assert!(head().check_meta(b"meta").is_ok());
        assert_eq!(head().check_meta(b"mete").unwrap_err().kind(), Kind::Corrupt);
        for kind in FrameKind::all() {
            for flags in [FrameFlags::REQUEST, FrameFlags::ANSWER, FrameFlags::ERROR, FrameFlags::MORE] {
                let head = FrameHead::new(kind, flags, 1);
                assert_eq!(FrameHead::decode(&head.encode(), 0).unwrap(), head);
            }
        }
    }

    #[test]
    fn no_number_is_given_to_two_kinds() {
        for (number, kind) in OTHERS {
            assert_eq!((FrameKind::of_number(number), kind.number()), (Some(kind), number));
        }
        let calls = Call::all().filter(|call| call.number().is_some());
        assert_eq!(FrameKind::all().count(), calls.count() + OTHERS.len());
    }

    /// The bytes of `docs/format-wire.md`: they never change.
    #[test]
    fn a_ping_has_these_bytes() {
        let ping = FrameHead::new(FrameKind::Ping, FrameFlags::REQUEST, 0x0102).encode();
        let mut expected = [0; FRAME_HEAD_BYTES];
        expected[..10].copy_from_slice(&[b'F', b'B', b'W', 1, 3, 0, 0, 0, 2, 1]);
        let crc = crc32c(&expected[..36]);
        expected[36..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(ping, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = head().encode();
        let sealed = |change: &dyn Fn(&mut [u8; FRAME_HEAD_BYTES])| {
            let mut bytes = good;
            change(&mut bytes);
            let crc = crc32c(&bytes[..36]);
            bytes[36..].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        assert_eq!(refused(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\nxxx", 1 << 20), Kind::Invalid);
        assert_eq!(refused(&sealed(&|bytes| bytes[3] = 2), 1 << 20), Kind::Invalid);
        assert_eq!(refused(&sealed(&|bytes| bytes[4] = 0), 1 << 20), Kind::Invalid);
        assert_eq!(refused(&sealed(&|bytes| bytes[5] = 2), 1 << 20), Kind::Invalid);
        assert_eq!(refused(&sealed(&|bytes| bytes[7] = 1), 1 << 20), Kind::Invalid);
        assert_eq!(refused(&good, 10 << 10), Kind::Invalid);
        let promise = sealed(&|bytes| bytes[20..28].fill(0xFF));
        assert_eq!(refused(&promise, 1 << 30), Kind::Invalid);
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(bit in 0_usize..FRAME_HEAD_BYTES * 8) {
            let mut bytes = head().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FrameHead::decode(&bytes, u64::MAX).is_err());
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in any::<[u8; FRAME_HEAD_BYTES]>()) {
            let _ = FrameHead::decode(&bytes, u64::MAX);
        }
    }
}
