//! What a run leaves behind: its summary, computed while it is taken, kept in a file from its close on.
//!
//! *Invariants*: the file is whole under its name, or not there; it is written before the run's closing is journaled.

use crate::engine::Engine;
use crate::runs::KnownRun;
use crate::{RunState, RunSummary, Store};
use forebay_core::{Error, Ledger, Result};
use std::io::Write;
use std::path::PathBuf;

impl Store {
    /// The summary of a run: as it is now, or of a closed run as it was kept in the store's directory.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, and for a closed one of a store without a directory; `Corrupt` where the file of a closed
    /// one is not there or cannot be read.
    pub fn run_summary(&self, run: u64) -> Result<RunSummary> {
        let engine = self.engine();
        let known = engine.known(&mut engine.runs.known.lock(), run)?.clone();
        if known.state == RunState::Closed {
            return engine.read_summary(run);
        }
        engine.look_at_sources(run);
        engine.summary(&known, engine.sum_ledger(run))
    }
}

impl Engine {
    /// The summary of a run.
    pub(crate) fn summary(&self, known: &KnownRun, ledger: Ledger) -> Result<RunSummary> {
        let producers: Vec<_> = known.producers.iter().map(|producer| producer.now()).collect();
        let mut time = known.time.clone();
        time.settle(&self.balance());
        time.dead.sort_by_key(|row| std::cmp::Reverse(row.ns));
        let announced = producers.iter().map(|producer| producer.announced).sum::<u64>();
        let groups = if self.roles.ledger.is_some() { self.by_attribute(known.run) } else { Vec::new() };
        Ok(RunSummary {
            run: known.run,
            keyspace: self.keyspace.name.clone(),
            config: known.config.to_toml(&self.keyspace.schema)?,
            announced: ledger.announced(),
            announced_by_producers: (announced > 0).then_some(announced),
            streams: self.by_stream(known.run)?,
            groups,
            sources: self.source_rows(known),
            producers,
            opened: known.opened.clone(),
            masks: known.mask_records.kept.clone(),
            masks_dropped: known.mask_records.dropped,
            prescales: known.all_prescales(),
            prescales_dropped: known.prescales.dropped,
            ran_ns: time.ran_ns,
            dead_time: time.dead,
            ledger,
        })
    }

    /// The summary is whole on the medium under its name, or not there.
    pub(super) fn write_summary(&self, summary: &RunSummary) -> Result<()> {
        let Some(path) = self.summary_path(summary.run) else { return Ok(()) };
        let dir = path.parent().unwrap_or(&path).to_owned();
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&dir)?;
            // Written beside, synced, renamed, directory synced: whole under its name, or not there.
            let unfinished = path.with_extension("json.writing");
            let mut file = std::fs::File::create(&unfinished)?;
            file.write_all(&serde_json::to_vec_pretty(summary).map_err(std::io::Error::other)?)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)?;
            std::fs::File::open(&dir)?.sync_all()
        };
        write().map_err(|error| {
            Error::invalid(format!("{}: the run's summary cannot be written; the run stays as it is", path.display()))
                .with_source(error)
        })
    }

    pub(super) fn read_summary(&self, run: u64) -> Result<RunSummary> {
        let Some(path) = self.summary_path(run) else {
            return Err(Error::invalid(format!("run {run} is closed; a store without a directory keeps no summary")));
        };
        let read = || serde_json::from_slice(&std::fs::read(&path)?).map_err(std::io::Error::other);
        read().map_err(|error| {
            let path = path.display();
            let message = format!("run {run} is closed; its summary {path} cannot be read: {error}");
            Error::corrupt(message).with_source(error)
        })
    }

    fn summary_path(&self, run: u64) -> Option<PathBuf> {
        Some(self.life.dir.as_ref()?.join("runs").join(format!("run-{run}.json")))
    }
}
