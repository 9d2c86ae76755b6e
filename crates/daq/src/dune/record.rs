//! The trigger record header, which lists the requests and their receivers.
//!
//! ```text
//!  0 marker 4 | version 4 | trigger_number 8 | trigger_timestamp 8 | num_components 8 | run_number 4 | error_bits 4
//! 40 trigger_type 8 | sequence_number 2 | max_sequence_number 2 | padding 4 | source id 8                      = 64
//! then for each component:  version 4 | padding 4 | source id 8 | window_begin 8 | window_end 8                = 32
//! ```

use super::fields::{Fields, Writer};
use super::{PADDING, SOURCE_ID_BYTES, SourceId};
use forebay_core::{Error, Result};
use serde::Serialize;

/// Bytes of a trigger record header before its components.
pub const RECORD_HEADER_BYTES: usize = 64;
/// Bytes of one component request.
pub const COMPONENT_REQUEST_BYTES: usize = 32;

const MARKER: u32 = 0x3333_4444;
const VERSION: u32 = 4;
const COMPONENT_VERSION: u32 = 2;

/// The offsets of the fields after the error bits.
const TYPE_OFFSET: usize = 4 * size_of::<u32>() + 3 * size_of::<u64>();
const SOURCE_OFFSET: usize = TYPE_OFFSET + size_of::<u64>() + 2 * size_of::<u16>() + size_of::<u32>();
const WINDOW_OFFSET: usize = 2 * size_of::<u32>() + SOURCE_ID_BYTES;

const _: () = assert!(TYPE_OFFSET == 40);
const _: () = assert!(SOURCE_OFFSET + SOURCE_ID_BYTES == RECORD_HEADER_BYTES);
const _: () = assert!(WINDOW_OFFSET + 2 * size_of::<u64>() == COMPONENT_REQUEST_BYTES);

/// Error bits of a trigger record; bits without a name here are kept as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordErrors(pub u32);

impl RecordErrors {
    /// A fragment is missing.
    pub const INCOMPLETE: RecordErrors = RecordErrors(1);
    /// Fragments are not those that were asked for.
    pub const MISMATCH: RecordErrors = RecordErrors(2);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: RecordErrors) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What is asked of one component. The window is half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ComponentRequest {
    /// Who is asked.
    pub source: SourceId,
    /// First tick asked for.
    pub window_begin: u64,
    /// First tick no longer asked for.
    pub window_end: u64,
}

impl ComponentRequest {
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(COMPONENT_VERSION);
        out.u32(PADDING);
        self.source.write(out);
        out.u64(self.window_begin);
        out.u64(self.window_end);
    }

    fn read(fields: &mut Fields<'_>) -> Result<ComponentRequest> {
        let version = fields.u32();
        if version != COMPONENT_VERSION {
            let message = format!("component request of version {version}, expected {COMPONENT_VERSION}");
            return Err(Error::corrupt(message));
        }
        fields.u32();
        let source = SourceId::read(fields)?;
        Ok(ComponentRequest { source, window_begin: fields.u64(), window_end: fields.u64() })
    }
}

/// A trigger record header, version 4, with its components.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TriggerRecordHeader {
    /// Number of the trigger.
    pub trigger_number: u64,
    /// When it was, in ticks.
    pub trigger_timestamp: u64,
    /// Run.
    pub run_number: u32,
    /// What is wrong with the record.
    pub error_bits: RecordErrors,
    /// Why it was triggered, a bit each.
    pub trigger_type: u64,
    /// Part of the record, from 0, where it is cut in several.
    pub sequence_number: u16,
    /// Highest such part.
    pub max_sequence_number: u16,
    /// Who built the record.
    pub source: SourceId,
    /// A request and its receiver.
    pub components: Vec<ComponentRequest>,
}

impl TriggerRecordHeader {
    /// Bytes of a header with this many components.
    pub fn bytes_for(components: usize) -> usize {
        RECORD_HEADER_BYTES + components * COMPONENT_REQUEST_BYTES
    }

    /// The bytes of the header and its components.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; TriggerRecordHeader::bytes_for(self.components.len())];
        let mut out = Writer::new(&mut bytes);
        out.u32(MARKER);
        out.u32(VERSION);
        for number in [self.trigger_number, self.trigger_timestamp, self.components.len() as u64] {
            out.u64(number);
        }
        out.u32(self.run_number);
        out.u32(self.error_bits.0);
        out.u64(self.trigger_type);
        out.u16(self.sequence_number);
        out.u16(self.max_sequence_number);
        out.u32(PADDING);
        self.source.write(&mut out);
        for component in &self.components {
            component.write(&mut out);
        }
        bytes
    }

    /// Reads a header and its components, which are all of the bytes.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, naming what is there, and for a number of components that is not theirs.
    pub fn decode(bytes: &[u8]) -> Result<TriggerRecordHeader> {
        let Some((head, components)) = bytes.split_at_checked(RECORD_HEADER_BYTES) else {
            return Err(Error::corrupt(format!(
                "a trigger record header of {} bytes; without components it has {RECORD_HEADER_BYTES}",
                bytes.len()
            )));
        };
        let mut fields = Fields::new(head);
        let (marker, version) = (fields.u32(), fields.u32());
        if (marker, version) != (MARKER, VERSION) {
            return Err(Error::corrupt(format!(
                "trigger record marker 0x{marker:08x}, version {version}; expected 0x{MARKER:08x}, version {VERSION}"
            )));
        }
        let (trigger_number, trigger_timestamp, number) = (fields.u64(), fields.u64(), fields.u64());
        if number.checked_mul(COMPONENT_REQUEST_BYTES as u64) != Some(components.len() as u64) {
            return Err(Error::corrupt(format!(
                "trigger record {trigger_number} says that it has {number} components; {} bytes are there for them",
                components.len()
            )));
        }
        let (run_number, error_bits, trigger_type) = (fields.u32(), RecordErrors(fields.u32()), fields.u64());
        let (sequence_number, max_sequence_number) = (fields.u16(), fields.u16());
        fields.u32();
        let source = SourceId::read(&mut fields)?;
        let parts = components.chunks_exact(COMPONENT_REQUEST_BYTES);
        let components = parts.map(|part| ComponentRequest::read(&mut Fields::new(part))).collect::<Result<_>>()?;
        Ok(TriggerRecordHeader {
            trigger_number,
            trigger_timestamp,
            run_number,
            error_bits,
            trigger_type,
            sequence_number,
            max_sequence_number,
            source,
            components,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;
    use proptest::prelude::*;

    fn header() -> TriggerRecordHeader {
        let component = |id: u32| ComponentRequest {
            source: SourceId::link(id),
            window_begin: 100 + u64::from(id),
            window_end: 200,
        };
        TriggerRecordHeader {
            trigger_number: 0x0102_0304_0506_0708,
            trigger_timestamp: 2,
            run_number: 3,
            error_bits: RecordErrors::MISMATCH,
            trigger_type: 0xD1,
            sequence_number: 0xE1E2,
            max_sequence_number: 0xF1F2,
            source: SourceId::BUILDER,
            components: vec![component(5), component(6)],
        }
    }

    #[test]
    fn fields_stand_where_the_format_says() {
        let bytes = header().encode();
        assert_eq!(bytes.len(), 128);
        let number =
            |at: usize, n: usize| bytes[at..at + n].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        for (at, n, value) in [
            (0, 4, 0x3333_4444),
            (4, 4, 4),
            (8, 8, 0x0102_0304_0506_0708),
            (16, 8, 2),
            (24, 8, 2),
            (32, 4, 3),
            (36, 4, 2),
            (40, 8, 0xD1),
            (48, 2, 0xE1E2),
            (50, 2, 0xF1F2),
            (52, 4, 0xFFFF_FFFF),
            (56, 2, 2),
            (58, 2, 4),
            (60, 4, 0),
            (96, 4, 2),
            (100, 4, 0xFFFF_FFFF),
            (106, 2, 1),
            (108, 4, 6),
            (112, 8, 106),
            (120, 8, 200),
        ] {
            assert_eq!(number(at, n), value, "offset {at}");
        }
    }

    #[test]
    fn foreign_bytes_are_said_to_be_so() {
        let whole = header().encode();
        assert_eq!(TriggerRecordHeader::decode(&whole).unwrap(), header());
        for (at, message) in [
            (0, "marker 0x33334445"),
            (4, "version 5"),
            (24, "3 components; 64 bytes"),
            (31, "components; 64 bytes"),
            (56, "source id of version 3"),
            (64, "component request of version 3"),
        ] {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            let error = TriggerRecordHeader::decode(&wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.message().contains(message), "{error}");
        }
        assert!(TriggerRecordHeader::decode(&whole[..63]).unwrap_err().message().contains("63 bytes"));
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 64),
            ids in proptest::collection::vec(any::<(u16, u32, u64, u64)>(), 0..20),
        ) {
            let components: Vec<ComponentRequest> = ids.into_iter().map(|(subsystem, id, window_begin, window_end)| {
                let source = SourceId { subsystem: crate::dune::Subsystem(subsystem), id };
                ComponentRequest { source, window_begin, window_end }
            }).collect();
            let frame = TriggerRecordHeader { components, ..header() }.encode();
            for fixed in [0..8, 24..32, 52..58] {
                bytes[fixed.clone()].copy_from_slice(&frame[fixed]);
            }
            bytes.extend(&frame[64..]);
            prop_assert_eq!(TriggerRecordHeader::decode(&bytes).unwrap().encode(), bytes);
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TriggerRecordHeader::decode(&bytes);
        }
    }
}
