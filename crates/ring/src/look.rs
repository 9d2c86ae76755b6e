//! Looking at a ring that nobody serves: opened in memory that is thrown away.
//!
//! *Invariants*: the region is mapped so that writes stay in this process: a look changes nothing that an opening would read
//! (tests/ring/look.rs).

use super::api::nobody_has_it;
use super::{Ring, RingConfig, RingPin, RingSources, Window, open, recover};
use crate::engine::RingEngine;
use forebay_core::limits::RING_KEY_TAIL_BYTES;
use forebay_core::{
    Ledger, Result, RingChunkInfo, RingKeyspace, RingPinStatus, RingSourceStatus, RingStats, RingStore, crc32c,
};
use forebay_media::hot::{Hot, Region};
use forebay_media::region_file::{next_life, read_superblock};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// A ring that nobody serves, to be read: nothing comes to it, and nothing of it is changed.
#[derive(Clone, Debug)]
pub struct RingLook(Ring);

/// The report of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RingCheckReport {
    /// Chunks in the region.
    pub segments: u32,
    /// Chunks that hold data.
    pub chunks: u32,
    /// Sources with data.
    pub sources: u32,
    /// Fragments.
    pub fragments: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Whether the ring was closed in order.
    pub clean: bool,
    /// What is wrong, by segment and entry; empty where nothing is.
    pub problems: Vec<String>,
}

impl Ring {
    /// Opens a ring to be read, in memory that is thrown away. Nobody else has it meanwhile.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn look(dir: &Path, config: RingConfig) -> Result<RingLook> {
        let (keyspace, text) = open::read_keyspace(dir)?;
        let region = Region::open_aside(&dir.join(open::REGION_FILE))?;
        open::start_old(region, &keyspace, &text, RingConfig { maintenance: false, ..config }).map(RingLook)
    }

    /// Reads and verifies a whole ring, as its next opening would; with `deep` also every payload against its checksum.
    ///
    /// # Errors
    /// `Invalid` where there is no ring, `Unavailable` while somebody serves it, `Corrupt` where not even its superblock can
    /// be read. Everything else that is wrong is in the report.
    pub fn check(dir: &Path, deep: bool) -> Result<RingCheckReport> {
        let (keyspace, text) = open::read_keyspace(dir)?;
        let region = Region::open_aside(&dir.join(open::REGION_FILE))?;
        let superblock = read_superblock(&region)?;
        let geometry = superblock.geometry;
        let mut report =
            RingCheckReport { segments: geometry.segments, clean: superblock.clean, ..RingCheckReport::default() };
        if superblock.keyspace_crc != crc32c(text.as_bytes()) {
            report.problems.push("ring.toml is not the one that this region was made with".to_owned());
            return Ok(report);
        }
        if !superblock.clean && superblock.machine_boot != region.machine_boot() {
            report.problems.push("the machine restarted while the ring was open".to_owned());
        }
        let source_bytes = keyspace.source.bytes();
        let widths = (source_bytes + RING_KEY_TAIL_BYTES, source_bytes);
        let life = next_life(&open::HOLDS, &region, &text, widths, true)?;
        let hot = Hot::new(region, geometry, superblock.store, 1);
        let config = RingConfig { accept_loss: true, verify: deep, maintenance: false, ..RingConfig::default() };
        let engine = RingEngine::new(hot, keyspace, config, life.superblock);
        // What could be lost is accepted: it is in the list of losses, which are the problems. The rest is one more.
        if let Err(error) = recover::recover(&engine, life.power_lost, life.was_clean) {
            report.problems.push(error.message().to_owned());
        }
        report.problems.append(&mut engine.losses.lock());
        for cell in engine.table.iter() {
            let source = cell.source.lock();
            report.sources += u32::from(!source.chunks.is_empty());
            for chunk in &source.chunks {
                let tally = chunk.tally();
                report.chunks += 1;
                report.fragments += tally.fragments;
                report.bytes += tally.bytes;
            }
        }
        Ok(report)
    }
}

impl RingStore for RingLook {
    type Window = Window;
    type Pin = RingPin;

    fn keyspace(&self) -> &RingKeyspace {
        self.0.keyspace()
    }
    fn window(&self, begin: u64, end: u64, sources: &RingSources, _wait: Duration) -> Result<Window> {
        self.0.window(begin, end, sources, Duration::ZERO)
    }
    fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPin> {
        self.0.pin(begin, end, sources, duration)
    }
    fn keep(&self, _begin: u64, _end: u64, _sources: &RingSources, _duration: Duration) -> Result<Vec<RingPinStatus>> {
        Err(nobody_has_it())
    }
    fn unpin(&self, _id: u64) -> Result<bool> {
        Err(nobody_has_it())
    }
    fn sources(&self) -> Result<Vec<RingSourceStatus>> {
        Ok(self.0.sources())
    }
    fn chunks(&self) -> Result<Vec<RingChunkInfo>> {
        Ok(self.0.chunks())
    }
    fn stats(&self) -> Result<RingStats> {
        Ok(self.0.stats())
    }
    fn ledger_of(&self, run: u32) -> Result<Ledger> {
        Ok(self.0.ledger_of(run))
    }
    fn losses(&self) -> Result<Vec<String>> {
        Ok(self.0.losses())
    }
    fn now(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn may_come(&self, _end: u64, _patience: Duration) -> Result<bool> {
        Ok(false)
    }
}
