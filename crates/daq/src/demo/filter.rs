//! A filter thread: leases ready events with a part of their sources, looks at the bytes, decides.
//!
//! ```text
//! get_any(n, fast sources) ─▶ verify, check frames, search for signals ─▶ keep? ─no──▶ reject
//!                                                                          └─yes─▶ read all, verify every byte
//!                                                                                  ─▶ accept ─▶ release
//! ```
//!
//! `release` stands for the archive, which takes over what was accepted. Which events are kept follows from their number
//! alone, so that the accepted part is the one asked for and the same in every run; the bytes can only forbid it.
//!
//! *On failure*: bytes that do not verify or are not those of their event end the demo with `Corrupt`. A lease that ran
//! out (`Fenced`) is counted; another thread gets the event.

use super::meter::{Latency, Meter};
use super::plan::{Plan, STREAM};
use super::shared::{AbortOnPanic, Shared};
use crate::limits::GET_ANY_WAIT;
use forebay_core::{Error, Kind, Result};
use forebay_store::{Fragment, GetAny, Lease, Sources, Store};
use std::time::{Duration, Instant};

/// What a filter thread has to say at its end.
pub(crate) struct FilterReport {
    /// Calls that gave at least one event at once.
    pub(crate) get_any: Latency,
    /// All fragments of an event, every byte verified.
    pub(crate) event_read: Latency,
    /// Accept or reject.
    pub(crate) verdict: Latency,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Events in whose fast sources a signal was found.
    pub(crate) with_signal: u64,
    /// Events without all of their sources.
    pub(crate) incomplete: u64,
    /// Events that another worker had before.
    pub(crate) redelivered: u64,
    /// Verdicts that came too late.
    pub(crate) fenced: u64,
    /// Accepted events that the store did not know when they were released.
    pub(crate) not_released: u64,
}

/// The body of a filter thread; a failure ends the demo.
pub(crate) fn run(shared: &Shared<'_>, thread: usize) -> Result<FilterReport> {
    let _abort = AbortOnPanic(shared);
    let store = shared.store.named(&format!("filter-{thread}"));
    select(shared, &store, thread).inspect_err(|_| shared.abort())
}

fn select(shared: &Shared<'_>, store: &Store, thread: usize) -> Result<FilterReport> {
    let mut report = FilterReport {
        get_any: Latency::new()?,
        event_read: Latency::new()?,
        verdict: Latency::new()?,
        accepted: 0,
        rejected: 0,
        with_signal: 0,
        incomplete: 0,
        redelivered: 0,
        fenced: 0,
        not_released: 0,
    };
    let sources = shared.plan.fast_sources()?;
    let at_once = GetAny { n: shared.plan.batch, sources, wait: Duration::ZERO, ..GetAny::default() };
    let patient = GetAny { wait: GET_ANY_WAIT, ..at_once.clone() };
    while !shared.finished() {
        let start = Instant::now();
        let mut leases = store.get_any(&at_once)?;
        if leases.is_empty() {
            // Waiting for the detector is not the store's latency.
            leases = store.get_any(&patient)?;
        } else {
            report.get_any.record(start);
        }
        for lease in leases {
            let decided = decide(shared, store, thread, lease, &mut report);
            match decided {
                Err(error) if error.kind() == Kind::Fenced => report.fenced += 1,
                other => other?,
            }
        }
    }
    Ok(report)
}

fn decide(shared: &Shared<'_>, store: &Store, thread: usize, lease: Lease, report: &mut FilterReport) -> Result<()> {
    let plan = shared.plan;
    let event = plan.schema.values(lease.primary.as_bytes()).last().copied().unwrap_or_default();
    let bytes = inspect(plan, event, &lease.fragments)?;
    let signal = lease.fragments.iter().any(|fragment| plan.frames.search(fragment).signal);
    report.with_signal += u64::from(signal);
    report.redelivered += u64::from(lease.delivery > 1);
    report.incomplete += u64::from(!lease.missing.is_empty() || lease.event_fragments != plan.config.sources);
    if lease.missing.is_empty() && lease.fragments.len() != plan.fast.len() {
        return Err(short(event, lease.fragments.len(), plan.fast.len()));
    }
    let meter = &shared.taken[thread];
    Meter::count(&meter.events, 1);
    Meter::count(&meter.fragments, lease.fragments.len() as u64);
    Meter::count(&meter.bytes, bytes);
    if !plan.keeps(event) {
        let start = Instant::now();
        lease.reject()?;
        report.verdict.record(start);
        report.rejected += 1;
        return Ok(());
    }
    read_whole(shared, thread, event, &lease, report)?;
    let start = Instant::now();
    lease.accept(&[STREAM])?;
    report.verdict.record(start);
    report.accepted += 1;
    Meter::count(&meter.accepted, 1);
    let primary = lease.primary;
    // Guards go before the release, so that it frees the space.
    drop(lease);
    report.not_released += u64::from(!store.release(&primary)?);
    Ok(())
}

/// Reads all fragments of an event and verifies every byte of them.
fn read_whole(shared: &Shared<'_>, thread: usize, event: u64, lease: &Lease, report: &mut FilterReport) -> Result<()> {
    let plan = shared.plan;
    let start = Instant::now();
    let fragments = lease.get(&Sources::All)?;
    let bytes = inspect(plan, event, &fragments)?;
    report.event_read.record(start);
    if (fragments.len(), bytes) != (lease.event_fragments as usize, lease.event_bytes) {
        return Err(short(event, fragments.len(), lease.event_fragments as usize));
    }
    let meter = &shared.read[thread];
    Meter::count(&meter.events, 1);
    Meter::count(&meter.fragments, fragments.len() as u64);
    Meter::count(&meter.bytes, bytes);
    Ok(())
}

/// Verifies fragments of an event: checksum of every byte, length, headers of every frame. Returns their bytes.
fn inspect(plan: &Plan, event: u64, fragments: &[Fragment]) -> Result<u64> {
    let mut bytes = 0;
    for fragment in fragments {
        fragment.verify()?;
        if fragment.len() != plan.fragment_bytes {
            let name = plan.schema.text(fragment.key().as_bytes());
            let message = format!("{name} has {} bytes, {} were put", fragment.len(), plan.fragment_bytes);
            return Err(Error::corrupt(message));
        }
        plan.frames.check(event, source_of(plan, fragment), fragment)?;
        bytes += fragment.len() as u64;
    }
    Ok(bytes)
}

/// The source number of a fragment: the big-endian sub-key after the primary key.
fn source_of(plan: &Plan, fragment: &Fragment) -> u32 {
    plan.schema.rest_of(&fragment.key()).iter().fold(0, |source, byte| source << 8 | u32::from(*byte))
}

#[cold]
fn short(event: u64, found: usize, expected: usize) -> Error {
    Error::corrupt(format!("event {event}: {found} fragments read, expected {expected}"))
}
