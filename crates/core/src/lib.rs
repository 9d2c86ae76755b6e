//! The words that every part of Forebay shares: keys and schemas, attributes, what calls take and answer, ledger terms, errors
//! and limits.
//!
//! ```text
//! schema ──▶ key, bounds, attributes
//! keyspace = schema + policies              ledger = the account per run
//! counter = wrapping event counters, extended at the producer
//! options, report, states: what calls take and answer
//! map = which node of a cluster has which events, by slots and tables
//! ```
//!
//! *Not here*: bytes on a medium (`forebay-media`) or on a connection (`forebay-wire`), threads, files, sockets.

mod api;
mod archive;
mod attributes;
mod bounds;
mod call;
mod checksum;
mod clock;
mod counter;
mod either;
mod either_ring;
mod elsewhere;
mod error;
mod event;
mod filter;
mod fixed;
mod intervals;
mod key;
mod keyspace;
mod lease;
mod ledger;
pub mod limits;
pub mod map;
pub mod mutants;
mod near;
mod options;
mod policy;
mod prescale;
mod random;
mod report;
mod report_warm;
mod ring;
mod ring_api;
mod ring_call;
mod ring_report;
mod schema;
mod serve;
mod source;
mod states;
mod summary;
mod token;
mod utc;

pub use api::{CountedProducer, EventStore, ReadFragment};
pub use archive::{Claim, ClaimRequest, ClaimedEvent, Filling, MovedStore, Unit};
pub use attributes::Attributes;
pub use bounds::{Bounds, Seek};
pub use call::{Call, Repeat, Right};
pub use checksum::{check_sent, check_sent_as, crc32c, crc32c_append};
pub use clock::{Clock, MachineTimer, ManualClock, ManualTime, MonotonicClock, Timer, nanoseconds};
pub use counter::{CounterBounds, CounterExtension, CounterState, PERIOD_BITS};
pub use either::Either;
pub use elsewhere::Elsewhere;
pub use error::{Error, Kind, Result, Shortage};
pub use event::{Event, Sample};
pub use filter::{Condition, Filter};
pub use fixed::{FixedMap, FixedSet, SeededHasher, SeededMap, SeededSet};
pub use intervals::{Interval, IntervalSet};
pub use key::{Key, Primary};
pub use keyspace::{Completeness, Keyspace, RunConfig, STAGE_DEFAULT};
pub use lease::{Held, HeldTogether, Lease, LeaseHolder};
pub use ledger::{LIVE_STATES, Ledger, Live, LiveState, Tally};
pub use near::nearest;
pub use options::{Accept, GetAny, OpenEvent, PutOptions, PutOutcome, Report, ResultFragment, Sampling, Sources};
pub use policy::{Delivery, Level, Order, SourceGroup};
pub use prescale::{Prescale, PrescaleFactor, check_prescale_name};
pub use random::{Random, SeededRandom, SystemRandom};
pub use report::{
    ConflictInfo, DeadTime, DebugInfo, DebugStats, EventInfo, HoldInfo, HolderStats, Inhibit, InhibitClass,
    InhibitListener, InhibitState, LedgerBy, LedgerRow, Marks, MemoryStats, Misses, ProducerStatus, Released, RunState,
    RunStatus, SegmentInfo, SourceState, SourceStatus, Stats, Why,
};
pub use report_warm::{ContainerStatus, DeviceStatus, WarmStats};
pub use ring::{GAP_CAUSES, GapCause, RingKeyspace, RingStamp, SourceId, SourceSchema};
pub use ring_api::{KeepsTicks, RingStore, RingView, RingWindow};
pub use ring_call::{Coverage, RingOutcome, RingPut, RingSources, Stretch};
pub use ring_report::{Gap, Refusals, RingChunkInfo, RingMemory, RingPinStatus, RingSourceStatus, RingStats};
pub use schema::{AttributeKind, AttributeSchema, KeySchema, SubKey};
pub use serve::{FollowRun, OperatedStore, ReportingProducer, ReserveFragment, SampleEvents, ServedStore};
pub use source::Source;
pub use states::SourceStates;
pub use summary::{DeadTimeRow, MaskRecord, PrescaleRecord, RunSummary, Signature};
pub use token::Token;
pub use utc::utc;
