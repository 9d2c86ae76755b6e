//! The decisions of a store, in the words of the log: blobs and snapshots, outputs of accepts, and what was decided
//! about events of devices that are not there.
//!
//! *Not here*: what a decision means for an event (`events`), when it is durable (`levels/decide.rs`), the logs themselves
//! (`forebay-media`).

mod absent;
mod effects;
mod journal;
mod outputs;
mod snapshot;
mod streams;

pub(crate) use absent::Absent;
pub(crate) use effects::Effects;
pub(crate) use journal::{
    decode_hold, decode_mask, decode_prescale, decode_producer, decode_run, decode_run_time, encode_hold, encode_mask,
    encode_prescale, encode_producer, encode_run, encode_run_time,
};
pub(crate) use outputs::{Output, Outputs, encode as encode_output, log_bytes};
pub(crate) use snapshot::{HotLength, KeyTable, Seen, SnapshotContent, SnapshotRun, Sum, Taken, mark_of, mark_parts};
pub(crate) use streams::{
    MASKED, OUTPUTS_MAX, Streams, detail_of_output, detail_of_streams, output_number, streams_in,
};

use crate::locks::{self, Owner, RankedRw};
use forebay_core::Keyspace;
use forebay_media::hot::Log;
use parking_lot::Mutex;
use std::sync::OnceLock;

/// In the detail of a superseded version: only the hot level has the version that replaces it.
pub(crate) const ON_HOT_ONLY: u32 = 1 << 16;
/// In the detail of a removed key: nobody removed it, it was lost.
pub(crate) const LOST: u32 = 2;

/// The highest version of a fragment that ended on the warm level.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Superseded {
    pub(crate) version: u16,
    /// No device has the version that replaced it: without the hot level this one is the last.
    pub(crate) on_hot_only: bool,
    /// Whoever made the version that replaced it was told that its outcome is unknown, in this life.
    pub(crate) is_unanswered: bool,
}

/// The decisions of a store, and the numbers of names in its log.
pub(crate) struct Decisions {
    pub(crate) log: Log,
    /// Calls between a decision's record and the last of its effects.
    pub(crate) effects: Effects,
    /// Names of streams; a decision has their numbers.
    pub(crate) streams: RankedRw<Streams>,
    pub(crate) outputs: RankedRw<Outputs>,
    /// What the log says of events on devices that are not there.
    pub(crate) absent: OnceLock<Absent>,
    /// One snapshot at a time; held over waits for devices.
    pub(crate) snapshotting: Mutex<()>,
}

impl Decisions {
    pub(crate) fn new(owner: Owner, keyspace: &Keyspace) -> Decisions {
        Decisions {
            log: Log::default(),
            effects: Effects::new(),
            // The snapshot with which a log begins has those that are declared.
            streams: RankedRw::new(owner, locks::NAMES, Streams::new(keyspace.streams.clone(), &keyspace.streams)),
            // After streams in the order: a choice of sources names its streams first.
            outputs: RankedRw::new(owner, locks::OUTPUTS, Outputs::default()),
            absent: OnceLock::new(),
            snapshotting: Mutex::new(()),
        }
    }
}

/// Reads bytes as everything that a blob of the log can be, for the fuzzer.
pub(crate) fn decode_all(keyspace: &Keyspace, bytes: &[u8]) {
    let _ = decode_run(bytes, &keyspace.schema);
    let _ = decode_mask(bytes, &keyspace.schema);
    let _ = decode_run_time(bytes);
    let _ = decode_prescale(bytes, &keyspace.schema);
    let _ = decode_hold(bytes, &keyspace.attributes);
    let _ = decode_producer(bytes);
    let _ = Outputs::default().adopt(0, bytes, keyspace.schema.rest_bytes());
    let _ = SnapshotContent::read(keyspace, bytes);
}
