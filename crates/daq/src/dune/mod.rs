//! Formats that DUNE's data acquisition writes for a trigger: fragments and trigger record headers, byte by byte.
//!
//! ```text
//! trigger record = TriggerRecordHeader (64 B) + ComponentRequest (32 B) for each component
//!                + one fragment per component: FragmentHeader (72 B) + frames as they were read out
//! ```
//!
//! Everything is little-endian. Versions: FragmentHeader 5, TriggerRecordHeader 4, ComponentRequest 2, SourceID 2.
//!
//! *Invariants*: what was encoded decodes to the same values, and no bytes make a decoder panic or allocate more than they
//! are long (property tests, fuzz target `dune`); sizes and offsets are asserted at compile time.
//!
//! *Not here*: frames (`frames`), who builds fragments (`minidaq`).

mod fields;
mod fragment;
mod record;

pub use fragment::{FRAGMENT_HEADER_BYTES, FragmentErrors, FragmentHeader, FragmentType};
pub use record::{COMPONENT_REQUEST_BYTES, ComponentRequest, RECORD_HEADER_BYTES, RecordErrors, TriggerRecordHeader};

use fields::{Fields, Writer};
use forebay_core::{Error, Result};
use serde::Serialize;

/// Bytes of a source id.
pub const SOURCE_ID_BYTES: usize = 8;
/// Version of a source id.
const SOURCE_ID_VERSION: u16 = 2;
/// Fills a field that has no value.
const PADDING: u32 = 0xFFFF_FFFF;

/// Part of the data acquisition that made a fragment; numbers without a name here are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Subsystem(pub u16);

impl Subsystem {
    /// Detector links.
    pub const DETECTOR_READOUT: Subsystem = Subsystem(1);
    /// Hardware signals.
    pub const HW_SIGNALS_INTERFACE: Subsystem = Subsystem(2);
    /// Trigger.
    pub const TRIGGER: Subsystem = Subsystem(3);
    /// Trigger record builder.
    pub const TR_BUILDER: Subsystem = Subsystem(4);

    /// Name, as DUNE writes it.
    pub fn name(self) -> &'static str {
        match self {
            Subsystem::DETECTOR_READOUT => "Detector_Readout",
            Subsystem::HW_SIGNALS_INTERFACE => "HW_Signals_Interface",
            Subsystem::TRIGGER => "Trigger",
            Subsystem::TR_BUILDER => "TR_Builder",
            _ => "Unknown",
        }
    }
}

/// What made a fragment: a part of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SourceId {
    /// The subsystem.
    pub subsystem: Subsystem,
    /// Which one of it.
    pub id: u32,
}

impl SourceId {
    /// A detector link.
    pub fn link(id: u32) -> SourceId {
        SourceId { subsystem: Subsystem::DETECTOR_READOUT, id }
    }

    /// The trigger record builder, whose fragment is the trigger record header.
    pub const BUILDER: SourceId = SourceId { subsystem: Subsystem::TR_BUILDER, id: 0 };

    fn write(self, out: &mut Writer<'_>) {
        out.u16(SOURCE_ID_VERSION);
        out.u16(self.subsystem.0);
        out.u32(self.id);
    }

    fn read(fields: &mut Fields<'_>) -> Result<SourceId> {
        let version = fields.u16();
        if version != SOURCE_ID_VERSION {
            return Err(Error::corrupt(format!("source id of version {version}, expected {SOURCE_ID_VERSION}")));
        }
        Ok(SourceId { subsystem: Subsystem(fields.u16()), id: fields.u32() })
    }
}

impl std::fmt::Display for SourceId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}_0x{:08x}", self.subsystem.name(), self.id)
    }
}
