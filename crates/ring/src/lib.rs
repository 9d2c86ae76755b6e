//! The ring keyspace: a latency buffer of continuous readout, addressed by source and timestamp.
//!
//! ```text
//! put ─▶ source ─▶ its open chunk ── full ─▶ closed ─▶ sealed ─▶ evicted by arrival ─▶ chunk of any source
//! window ─▶ each source: chunks that overlap ─▶ guards, fragments in place, coverage
//! record ─▶ pin ─▶ window after window ─▶ containers (`forebay_recorder`), with a manifest of what is missing
//! ```
//!
//! A chunk is one segment of the hot level, written by one source. Sources meet only where a chunk is taken.
//!
//! *Lock order*: `taking` → one source → space, or the table of relations → nothing. No lock is held while waiting.
//!
//! *Invariants*: everything acknowledged is there until it is evicted, and counted then (tests/ring/{restart,power}.rs);
//! nothing under a guard, a reservation or a pin is evicted (tests/ring/{races,pins}.rs); of a recorded stretch every tick is
//! recorded or a gap (tests/ring/record.rs).
//!
//! *Not here*: completeness, leases, verdicts: events have those (`events` in `forebay-store`). The bytes: docs/format-ring.md.

mod account;
mod api;
mod chunk;
mod config;
mod coverage;
mod engine;
mod handle;
mod limits;
mod look;
mod maintain;
mod note;
mod open;
mod pin;
mod put;
mod read;
mod record;
mod recover;
mod relation;
mod report;
mod reserve;
mod source;
mod space;
mod table;
mod window;

pub use config::RingConfig;
pub use engine::Placement;
pub use forebay_core::{
    Coverage, Gap, Refusals, RingChunkInfo, RingMemory, RingOutcome, RingPinStatus, RingPut, RingSourceStatus,
    RingSources, RingStats, Stretch,
};
pub use handle::Ring;
pub use look::{RingCheckReport, RingLook};
pub use note::{RingNote, RingTerms};
pub use pin::RingPin;
pub use record::{RingRecording, RingRecordingOptions, RingRecordingProgress};
pub use reserve::RingReservation;
pub use window::{RingFragment, SourceWindow, Window};
