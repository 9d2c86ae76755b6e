//! The archive of a scenario: a real mover into a directory, and a shelf that keeps the directory small.
//!
//! ```text
//! store ─claim─▶ mover ─▶ objects, read back, named ─▶ proof ─▶ the store lets go
//!                           └─▶ shelf: past its bytes, the oldest object is verified once more, counted, removed
//! ```
//!
//! *Invariants*: each object that a manifest names is verified once more before it is removed, or at the end; the sums of
//! what they hold are what the ledger has to say is released.
//!
//! *On failure*: bytes that do not verify end the scenario with `Corrupt`. A claim that is lost, or a store that does not
//! answer, is tried again with the next round.

use forebay_core::{Error, EventStore, Kind, MovedStore, Result};
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, Contents, ManifestObject, Mover, MoverOptions};
use serde::Serialize;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Bytes of objects that stay in the directory.
pub(crate) const SHELF_BYTES: u64 = 256 << 20;
/// Containers that are still being filled are moved this long after they began; a few events wait as long for a batch.
const MOVE_AFTER: Duration = Duration::from_secs(1);

/// What an archive came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArchiveSummary {
    /// Objects that were proved, and verified once more.
    pub objects: u64,
    /// Bytes of these objects.
    pub object_bytes: u64,
    /// What they hold.
    pub contents: Contents,
    /// Claims that were given back or lost.
    pub given_back: u64,
}

impl ArchiveSummary {
    /// With what another one came to.
    pub(crate) fn add(&mut self, other: &ArchiveSummary) {
        self.objects += other.objects;
        self.object_bytes += other.object_bytes;
        self.contents.events += other.contents.events;
        self.contents.fragments += other.contents.fragments;
        self.contents.payload_bytes += other.contents.payload_bytes;
        self.given_back += other.given_back;
    }
}

/// A mover and what it has archived of one run.
pub(crate) struct ScenarioArchive<S> {
    mover: Mover<S>,
    archive: Archive,
    run: u64,
    /// Objects that the manifest names and that were put on the shelf.
    named: usize,
    shelf: VecDeque<ManifestObject>,
    shelf_bytes: u64,
    summary: ArchiveSummary,
    /// Why the last round has to be tried again.
    pub(crate) failure: Option<Error>,
}

impl<S: EventStore + MovedStore> ScenarioArchive<S> {
    /// An archive in this directory, which is made if it is not there.
    pub(crate) fn new(store: S, dir: &Path, run: u64) -> Result<ScenarioArchive<S>> {
        let archive = Archive::open(&format!("dir:{}", dir.display()), &Options::default())?;
        if archive.identity()?.is_none() {
            archive.create("demo")?;
        }
        let options = MoverOptions { move_after: MOVE_AFTER, ..MoverOptions::default() };
        let mover = Mover::new(store, archive.clone(), options, Arc::new(AtomicBool::new(false)));
        let (shelf, summary) = (VecDeque::new(), ArchiveSummary::default());
        Ok(ScenarioArchive { mover, archive, run, named: 0, shelf, shelf_bytes: 0, summary, failure: None })
    }

    /// Moves the next claim; `false` where there is none, or where it has to be tried again.
    ///
    /// # Errors
    /// What a repetition cannot mend.
    pub(crate) fn round(&mut self) -> Result<bool> {
        let moved = match self.mover.round() {
            Err(error) if matches!(error.kind(), Kind::Fenced | Kind::Unavailable | Kind::OutcomeUnknown) => {
                self.failure = Some(error);
                Ok(false)
            }
            other => {
                self.failure = None;
                other
            }
        };
        // What was named before a claim was lost counts as well.
        self.take_named()?;
        while self.shelf_bytes > SHELF_BYTES {
            self.verify_oldest()?;
        }
        moved
    }

    /// Verifies what is left on the shelf, which stays; what all of it came to.
    ///
    /// # Errors
    /// `Corrupt` where an object does not verify, and those of the directory.
    pub(crate) fn end(&mut self) -> Result<ArchiveSummary> {
        self.take_named()?;
        while let Some(object) = self.shelf.pop_front() {
            self.verify(&object)?;
        }
        self.summary.given_back = self.mover.moved().given_back;
        Ok(self.summary.clone())
    }

    fn take_named(&mut self) -> Result<()> {
        let Some(manifest) = self.archive.manifest(self.run)? else { return Ok(()) };
        for object in manifest.objects.into_iter().skip(self.named) {
            self.named += 1;
            self.shelf_bytes += object.bytes;
            self.shelf.push_back(object);
        }
        Ok(())
    }

    fn verify_oldest(&mut self) -> Result<()> {
        let oldest = self.shelf.pop_front().ok_or_else(|| Error::internal("an empty shelf that is over its bytes"))?;
        self.verify(&oldest)?;
        self.shelf_bytes -= oldest.bytes;
        self.archive.place().remove(&[oldest.name])
    }

    fn verify(&mut self, object: &ManifestObject) -> Result<()> {
        self.archive.verify(self.run, object)?;
        let sums = &mut self.summary;
        sums.objects += 1;
        sums.object_bytes += object.bytes;
        sums.contents.events += object.contents.events;
        sums.contents.fragments += object.contents.fragments;
        sums.contents.payload_bytes += object.contents.payload_bytes;
        Ok(())
    }
}
