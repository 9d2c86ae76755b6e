//! The header before each fragment's frames.
//!
//! ```text
//!  0 marker 4 | version 4 | size 8 | trigger_number 8 | trigger_timestamp 8 | window_begin 8 | window_end 8
//! 48 run_number 4 | error_bits 4 | fragment_type 4 | sequence_number 2 | detector_id 2 | source id 8       = 72
//! ```
//!
//! `size` counts the header. Windows are half-open.

use super::fields::{Fields, Writer};
use super::{SOURCE_ID_BYTES, SourceId};
use forebay_core::{Error, Result};
use serde::Serialize;

/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_BYTES: usize = 72;

const MARKER: u32 = 0x1111_2222;
const VERSION: u32 = 5;

/// The offsets of the fields after the window.
const RUN_OFFSET: usize = 2 * size_of::<u32>() + 5 * size_of::<u64>();
const SOURCE_OFFSET: usize = RUN_OFFSET + 3 * size_of::<u32>() + 2 * size_of::<u16>();

const _: () = assert!(RUN_OFFSET == 48);
const _: () = assert!(SOURCE_OFFSET + SOURCE_ID_BYTES == FRAGMENT_HEADER_BYTES);

/// Error bits of a fragment; bits without a name here are kept as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FragmentErrors(pub u32);

impl FragmentErrors {
    /// Nothing of the window was found, or a part of it was gone already.
    pub const DATA_NOT_FOUND: FragmentErrors = FragmentErrors(1);
    /// A part of the window is in the fragment.
    pub const INCOMPLETE: FragmentErrors = FragmentErrors(2);
    /// The window asked for is none.
    pub const INVALID_WINDOW: FragmentErrors = FragmentErrors(4);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: FragmentErrors) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub fn with(self, other: FragmentErrors) -> FragmentErrors {
        FragmentErrors(self.0 | other.0)
    }
}

/// What the frames of a fragment are; numbers without a name here are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FragmentType(pub u32);

impl FragmentType {
    /// WIB1 frames of ProtoDUNE.
    pub const PROTO_WIB: FragmentType = FragmentType(1);
    /// WIB2 frames.
    pub const WIB: FragmentType = FragmentType(2);
    /// DAPHNE frames.
    pub const DAPHNE: FragmentType = FragmentType(3);
    /// Trigger primitives.
    pub const TRIGGER_PRIMITIVE: FragmentType = FragmentType(6);
    /// Hardware signals.
    pub const HARDWARE_SIGNAL: FragmentType = FragmentType(9);
    /// WIBEth frames.
    pub const WIB_ETH: FragmentType = FragmentType(12);
    /// DAPHNE frames of a stream.
    pub const DAPHNE_STREAM: FragmentType = FragmentType(13);
    /// TDE frames.
    pub const TDE_ETH: FragmentType = FragmentType(15);
}

/// A fragment header, version 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FragmentHeader {
    /// Bytes of the fragment, header included.
    pub size: u64,
    /// Number of the trigger.
    pub trigger_number: u64,
    /// When it was, in ticks.
    pub trigger_timestamp: u64,
    /// First tick asked for.
    pub window_begin: u64,
    /// First tick no longer asked for.
    pub window_end: u64,
    /// Run.
    pub run_number: u32,
    /// What is wrong with the fragment.
    pub error_bits: FragmentErrors,
    /// What the frames are.
    pub fragment_type: FragmentType,
    /// Part of the trigger record, from 0, where it is cut in several.
    pub sequence_number: u16,
    /// Detector number.
    pub detector_id: u16,
    /// What made it.
    pub source: SourceId,
}

impl FragmentHeader {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; FRAGMENT_HEADER_BYTES] {
        let mut bytes = [0; FRAGMENT_HEADER_BYTES];
        let mut out = Writer::new(&mut bytes);
        out.u32(MARKER);
        out.u32(VERSION);
        for number in [self.size, self.trigger_number, self.trigger_timestamp, self.window_begin, self.window_end] {
            out.u64(number);
        }
        out.u32(self.run_number);
        out.u32(self.error_bits.0);
        out.u32(self.fragment_type.0);
        out.u16(self.sequence_number);
        out.u16(self.detector_id);
        self.source.write(&mut out);
        bytes
    }

    /// Reads a whole fragment: its header, and the frames behind it.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, naming what is there, and for a size that is not theirs.
    pub fn decode(fragment: &[u8]) -> Result<(FragmentHeader, &[u8])> {
        let Some((head, frames)) = fragment.split_at_checked(FRAGMENT_HEADER_BYTES) else {
            return Err(Error::corrupt(format!(
                "a fragment of {} bytes; its header alone has {FRAGMENT_HEADER_BYTES}",
                fragment.len()
            )));
        };
        let mut fields = Fields::new(head);
        let (marker, version) = (fields.u32(), fields.u32());
        if (marker, version) != (MARKER, VERSION) {
            return Err(Error::corrupt(format!(
                "fragment marker 0x{marker:08x}, version {version}; expected 0x{MARKER:08x}, version {VERSION}"
            )));
        }
        let header = FragmentHeader {
            size: fields.u64(),
            trigger_number: fields.u64(),
            trigger_timestamp: fields.u64(),
            window_begin: fields.u64(),
            window_end: fields.u64(),
            run_number: fields.u32(),
            error_bits: FragmentErrors(fields.u32()),
            fragment_type: FragmentType(fields.u32()),
            sequence_number: fields.u16(),
            detector_id: fields.u16(),
            source: SourceId::read(&mut fields)?,
        };
        if header.size != fragment.len() as u64 {
            return Err(Error::corrupt(format!(
                "a fragment of {} bytes says that it has {}",
                fragment.len(),
                header.size
            )));
        }
        Ok((header, frames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dune::Subsystem;
    use forebay_core::Kind;
    use proptest::prelude::*;

    fn header() -> FragmentHeader {
        FragmentHeader {
            size: 80,
            trigger_number: 0x0102_0304_0506_0708,
            trigger_timestamp: 2,
            window_begin: 3,
            window_end: 4,
            run_number: 0xA1A2_A3A4,
            error_bits: FragmentErrors::INCOMPLETE,
            fragment_type: FragmentType::WIB_ETH,
            sequence_number: 0xB1B2,
            detector_id: 3,
            source: SourceId { subsystem: Subsystem::TRIGGER, id: 0xC1C2_C3C4 },
        }
    }

    #[test]
    fn fields_stand_where_the_format_says() {
        let bytes = header().encode();
        let number =
            |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        for (at, n, value) in [
            (0, 4, 0x1111_2222),
            (4, 4, 5),
            (8, 8, 80),
            (16, 8, 0x0102_0304_0506_0708),
            (24, 8, 2),
            (32, 8, 3),
            (40, 8, 4),
            (48, 4, 0xA1A2_A3A4),
            (52, 4, 2),
            (56, 4, 12),
            (60, 2, 0xB1B2),
            (62, 2, 3),
            (64, 2, 2),
            (66, 2, 3),
            (68, 4, 0xC1C2_C3C4),
        ] {
            assert_eq!(number(at, n), value, "offset {at}");
        }
    }

    #[test]
    fn foreign_bytes_are_said_to_be_so() {
        let mut whole = header().encode().to_vec();
        whole.extend([7; 8]);
        assert_eq!(FragmentHeader::decode(&whole).unwrap(), (header(), &[7; 8][..]));
        for (at, message) in [(0, "marker 0x11112223"), (4, "version 4"), (8, "says that it has 81"), (64, "version 3")]
        {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            let error = FragmentHeader::decode(&wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.message().contains(message), "{error}");
        }
        assert!(FragmentHeader::decode(&whole[..71]).unwrap_err().message().contains("71 bytes"));
        assert!(FragmentHeader::decode(&whole[..79]).unwrap_err().message().contains("79 bytes says"));
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 72..200)) {
            let size = bytes.len() as u64;
            bytes[..8].copy_from_slice(&header().encode()[..8]);
            bytes[8..16].copy_from_slice(&size.to_le_bytes());
            bytes[64..66].copy_from_slice(&[2, 0]);
            let (header, frames) = FragmentHeader::decode(&bytes).unwrap();
            prop_assert_eq!(&header.encode()[..], &bytes[..72]);
            prop_assert_eq!(frames, &bytes[72..]);
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = FragmentHeader::decode(&bytes);
        }
    }
}
