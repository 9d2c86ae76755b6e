//! What every part of Forebay agrees on: keys and schemas, the bytes of records and decisions, ledger terms, errors and
//! limits. No I/O happens here.
//!
//! ```text
//! schema ──▶ key, bounds, attributes        record, decision, container ──▶ bytes on a medium (docs/format-*.md)
//! keyspace = schema + policies              ledger = the account per run
//! counter = wrapping event counters, extended at the producer
//! options, report, states: what calls take and answer
//! ```
//!
//! *Not here*: memory mappings and engines (`forebay-store`), threads, files, sockets.

mod api;
mod attributes;
mod bounds;
mod checksum;
mod clock;
mod container;
mod counter;
mod decision;
mod error;
mod event;
mod filter;
mod intervals;
mod key;
mod keyspace;
mod lease;
mod ledger;
pub mod limits;
mod options;
mod policy;
mod prescale;
mod record;
mod report;
mod report_warm;
mod ring;
mod ring_call;
mod ring_note;
mod ring_report;
mod schema;
mod source;
mod states;
mod superblock;
mod token;

pub use api::{CountedProducer, EventStore, ReadFragment};
pub use attributes::Attributes;
pub use bounds::{Bounds, Seek};
pub use checksum::{check_sent, check_sent_as, crc32c, crc32c_append};
pub use clock::{Clock, ManualClock, MonotonicClock};
pub use container::{
    CONTAINER_BLOCK_BYTES, CONTAINER_BYTES_MAX, CONTAINER_BYTES_MIN, CONTAINER_DATA_OFFSET, CONTAINERS_MAX,
    ContainerHeader, ContainerKind, ContainerSeed, ContainerState, DeviceSuperblock, Directory, DirectoryBuilder,
    DirectoryIter, DirectoryPlace, EntryMeta, ExtentHead, ExtentKind, IMAGE_ALIGN, Image, ImageHead, ImageLayout,
    ImageMarks, ImageRecord, ImageState, Stream, TableIter,
};
pub use counter::{CounterBounds, CounterExtension, CounterState, PERIOD_BITS};
pub use decision::{Blob, BlobChunk, Decision, DecisionKind, Slot, SlotLayout};
pub use error::{Error, Kind, Result};
pub use event::{Event, Sample};
pub use filter::{Condition, Filter};
pub use intervals::{Interval, IntervalSet};
pub use key::{Key, Primary};
pub use keyspace::{Completeness, Keyspace, RunConfig, STAGE_DEFAULT};
pub use lease::{Lease, LeaseHolder};
pub use ledger::{LIVE_STATES, Ledger, LiveState, Tally};
pub use options::{Accept, GetAny, OpenEvent, PutOptions, PutOutcome, ResultFragment, Sampling, Sources};
pub use policy::{Delivery, Level, Order, SourceGroup};
pub use prescale::Prescale;
pub use record::{
    Entry, EntryFlags, EntryLayout, Mark, RecordSeed, SegmentHeader, SegmentKind, SegmentState, StateWord,
};
pub use report::{
    ConflictInfo, DeadTime, DebugInfo, DebugStats, EventInfo, HoldInfo, HolderStats, Inhibit, InhibitClass, LedgerBy,
    LedgerRow, Marks, MemoryStats, ProducerStatus, RunState, RunStatus, RunSummary, SegmentInfo, SourceState,
    SourceStatus, Stats, Why,
};
pub use report_warm::{ContainerStatus, DeviceStatus, WarmStats};
pub use ring::{GAP_CAUSES, GapCause, RingKeyspace, RingStamp, SourceId, SourceSchema};
pub use ring_call::{Coverage, RingOutcome, RingPut, RingSources, Stretch};
pub use ring_note::{RingNote, RingTerms};
pub use ring_report::{Gap, Refusals, RingMemory, RingPinStatus, RingSourceStatus, RingStats};
pub use schema::{AttributeKind, AttributeSchema, KeySchema, SubKey};
pub use states::SourceStates;
pub use superblock::{Geometry, Superblock};
pub use token::Token;
