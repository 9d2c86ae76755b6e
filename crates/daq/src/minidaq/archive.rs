//! The archive's part: takes over accepted trigger records, verifies every byte once more, and only then releases them.
//!
//! It takes the role of a mover: nothing is written anywhere. The token of a record goes back when its release is
//! answered, never for a record that was not taken over.
//!
//! *On failure*: bytes that do not verify end the run with `Corrupt` and stay in the store.

use super::shared::MiniDaqShared;
use crate::limits::GET_ANY_WAIT;
use crate::meter::{Latency, Meter};
use crate::threads::Together;
use forebay_core::{LiveState, Primary, Result};
use forebay_store::Sources;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

/// What the archive has to say at its end.
pub(crate) struct ArchiveReport {
    /// Reading a record and verifying all its bytes.
    pub(crate) verify: Latency,
    pub(crate) released: u64,
    /// Records that were not there as accepted ones: a fault.
    pub(crate) not_there: u64,
}

/// The body of the archive thread; it ends with the filters, which hold the other end of the queue.
pub(crate) fn run(shared: &MiniDaqShared<'_>, queue: &Receiver<Primary>) -> Result<ArchiveReport> {
    let store = shared.store.named("archive");
    let mut report = ArchiveReport { verify: Latency::new()?, released: 0, not_there: 0 };
    loop {
        let primary = match queue.recv_timeout(GET_ANY_WAIT) {
            Ok(primary) => primary,
            Err(RecvTimeoutError::Timeout) if !shared.aborted() => continue,
            Err(_) => return Ok(report),
        };
        let start = Instant::now();
        let event = store.get_event(&primary, &Sources::All)?;
        let Some(event) = event.filter(|event| event.state == LiveState::Accepted) else {
            report.not_there += 1;
            continue;
        };
        let mut bytes = 0;
        for fragment in &event.fragments {
            fragment.verify()?;
            bytes += fragment.len() as u64;
        }
        report.verify.record(start);
        // Guards go before the release, so that it frees the space.
        drop(event);
        if !store.release(&primary)? {
            report.not_there += 1;
            continue;
        }
        report.released += 1;
        Meter::count(&shared.archived.events, 1);
        Meter::count(&shared.archived.bytes, bytes);
        shared.inhibit.done();
    }
}
