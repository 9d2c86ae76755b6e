//! Sizes and waits of movers, and how they relate.

use std::time::Duration;

/// Bytes at which an object is ended: some seconds of a disk, and a few of them fit into memory anywhere.
pub(crate) const OBJECT_BYTES: usize = 128 << 20;
/// Memory for head, tables and directory of an object, beside a sixteenth of its payloads; one that has more grows.
pub(crate) const TABLES_BYTES: usize = 1 << 20;
/// Claims that are moved beside each other: one is read, compared and named while another is on its way to the archive.
pub(crate) const LANES: usize = 2;
/// How long a claim lasts without a heartbeat.
pub(crate) const CLAIM: Duration = Duration::from_secs(60);
/// How long a place that fails is tried under one claim.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Pauses between tries, before jitter.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(200);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often an object is put that does not come back as it went.
pub(crate) const PUTS_MAX: u32 = 3;

// A claim outlives the longest pause between two tries, or it would end while its mover sleeps between heartbeats.
const _: () = assert!(CLAIM.as_secs() > PAUSE_MAX.as_secs() && PAUSE_MIN.as_millis() < PAUSE_MAX.as_millis());
