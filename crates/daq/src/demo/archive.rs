//! The demo's archive: one thread with a mover, until everything that was accepted is archived and released.
//!
//! *On failure*: see `crate::archive`; a demo whose accepted events are not gone in time ends with `Unavailable`.

use super::plan::RUN;
use super::shared::DemoShared;
use crate::archive::{ArchiveSummary, ScenarioArchive};
use crate::limits::{ARCHIVE_WAIT, DRAIN};
use crate::threads::Together;
use forebay_core::{Error, Result};
use std::path::Path;
use std::time::Instant;

/// The body of the archive's thread; a failure ends the demo.
pub(crate) fn run(shared: &DemoShared<'_>, directory: &Path) -> Result<ArchiveSummary> {
    shared.guarded(|| {
        let mut archive = ScenarioArchive::new(shared.store.named("archive"), &directory.join("archive"), RUN)?;
        let mut deadline = None;
        while !shared.aborted() {
            if archive.round()? {
                continue;
            }
            // Filters end before this is set: what is live afterwards is on its way to the archive.
            if shared.all_decided() {
                let left = shared.store.ledger(RUN)?.live.total();
                if left.events == 0 {
                    break;
                }
                let by = *deadline.get_or_insert_with(|| Instant::now() + DRAIN);
                if Instant::now() > by {
                    let error = Error::unavailable(format!("{} accepted events are not archived", left.events));
                    return Err(match archive.failure.take() {
                        Some(failure) => error.with_source(failure),
                        None => error,
                    });
                }
            }
            std::thread::sleep(ARCHIVE_WAIT);
        }
        archive.end()
    })
}
