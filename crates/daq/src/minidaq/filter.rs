//! A filter thread: takes trigger records, checks every header and frame, decides.
//!
//! ```text
//! get_any ─▶ checksums, headers, windows, frames ─▶ incomplete? the header says so ─▶ keep? ─no──▶ reject, token back
//!                                                                                      └─yes─▶ accept ─▶ archive
//! ```
//!
//! Which records are kept follows from their number alone, so that the accepted part is the one asked for and the same in
//! every run.
//!
//! *On failure*: bytes that are not those of their record end the run with `Corrupt`. A lease that ran out (`Fenced`) is
//! counted; another thread gets the record.

use super::inspect;
use super::plan::{Plan, STREAM};
use super::shared::MiniDaqShared;
use crate::demo::plan::keeps;
use crate::dune::{FragmentErrors, RecordErrors, SourceId, TriggerRecordHeader};
use crate::limits::GET_ANY_WAIT;
use crate::meter::{Latency, Meter};
use crate::threads::Together;
use forebay_core::{Error, Kind, Primary, Result};
use forebay_store::{GetAny, Lease, Store};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// What a filter thread has to say at its end.
pub(crate) struct FilterReport {
    /// Calls that gave a record at once.
    pub(crate) get_any: Latency,
    /// Checking all bytes of a record.
    pub(crate) check: Latency,
    /// Accept or reject.
    pub(crate) verdict: Latency,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Records with a fragment of each link, and no error bit in any.
    pub(crate) complete: u64,
    /// All other records.
    pub(crate) incomplete: u64,
    /// Fragments that records missed at their time-out.
    pub(crate) missing: u64,
    /// Records that another worker had before.
    pub(crate) redelivered: u64,
    /// Verdicts that came too late.
    pub(crate) fenced: u64,
    /// Headers that were marked incomplete.
    pub(crate) marked: u64,
}

/// The body of a filter thread.
pub(crate) fn run(shared: &MiniDaqShared<'_>, thread: usize, archive: &SyncSender<Primary>) -> Result<FilterReport> {
    let store = shared.store.named(&format!("filter-{thread}"));
    let mut report = FilterReport {
        get_any: Latency::new()?,
        check: Latency::new()?,
        verdict: Latency::new()?,
        accepted: 0,
        rejected: 0,
        complete: 0,
        incomplete: 0,
        missing: 0,
        redelivered: 0,
        fenced: 0,
        marked: 0,
    };
    let at_once = GetAny { n: 1, wait: Duration::ZERO, ..GetAny::default() };
    let patient = GetAny { wait: GET_ANY_WAIT, ..at_once.clone() };
    while !shared.finished() {
        let start = Instant::now();
        let mut leases = store.get_any(&at_once)?;
        if leases.is_empty() {
            // Waiting for the trigger is not the store's latency.
            leases = store.get_any(&patient)?;
        } else {
            report.get_any.record(start);
        }
        for lease in leases {
            match decide(shared, &store, thread, lease, archive, &mut report) {
                Err(error) if error.kind() == Kind::Fenced => report.fenced += 1,
                other => other?,
            }
        }
    }
    Ok(report)
}

fn decide(
    shared: &MiniDaqShared<'_>,
    store: &Store,
    thread: usize,
    lease: Lease,
    archive: &SyncSender<Primary>,
    report: &mut FilterReport,
) -> Result<()> {
    let plan = shared.plan;
    let trigger = plan.trigger_of(&lease.primary);
    let start = Instant::now();
    let (header, errors) = check(plan, trigger, &lease)?;
    report.check.record(start);
    let meter = &shared.taken[thread];
    Meter::count(&meter.events, 1);
    Meter::count(&meter.fragments, lease.fragments.len() as u64);
    Meter::count(&meter.bytes, lease.event_bytes);
    report.redelivered += u64::from(lease.delivery > 1);
    if !lease.missing.is_empty() && !header.error_bits.contains(RecordErrors::INCOMPLETE) {
        let key = plan.key(trigger, SourceId::BUILDER)?;
        let marked = TriggerRecordHeader { error_bits: RecordErrors::INCOMPLETE, ..header };
        store.update(&key, &marked.encode(), Some(&lease.token))?;
        report.marked += 1;
    }
    if !plan.config.filter_time.is_zero() {
        std::thread::sleep(plan.config.filter_time);
    }
    let start = Instant::now();
    let accepted = keeps(plan.config.seed, trigger, plan.config.accept);
    if accepted {
        lease.accept(&[STREAM])?
    } else {
        lease.reject()?
    }
    report.verdict.record(start);
    // Decided: only now does it count.
    report.missing += lease.missing.len() as u64;
    let complete = lease.missing.is_empty() && errors == FragmentErrors::default();
    *(if complete { &mut report.complete } else { &mut report.incomplete }) += 1;
    if !accepted {
        report.rejected += 1;
        shared.inhibit.done();
        return Ok(());
    }
    report.accepted += 1;
    Meter::count(&meter.accepted, 1);
    let primary = lease.primary;
    // Guards go before the archive releases, so that the release frees the space.
    drop(lease);
    archive.try_send(primary).map_err(|error| Error::internal(format!("the archive takes no record: {error}")))
}

/// Checks all bytes of a record; answers its header and the error bits of all its fragments together.
fn check(plan: &Plan, trigger: u64, lease: &Lease) -> Result<(TriggerRecordHeader, FragmentErrors)> {
    for fragment in &lease.fragments {
        fragment.verify()?;
    }
    let of = |source: SourceId| {
        lease.fragments.iter().find(|fragment| plan.names(fragment.key().as_bytes()) == (trigger, source))
    };
    let Some(header) = of(SourceId::BUILDER) else {
        return Err(Error::corrupt(format!("trigger record {trigger} has no header")));
    };
    let header = inspect::record(plan, trigger, header)?;
    let (mut errors, mut found) = (FragmentErrors::default(), 1);
    for component in &header.components {
        if let Some(fragment) = of(component.source) {
            errors = errors.with(inspect::fragment(plan, &header, component, fragment.status(), fragment)?);
            found += 1;
        }
    }
    let expected = plan.links as usize + 1 - lease.missing.len();
    if found != expected || found != lease.fragments.len() {
        return Err(Error::corrupt(format!(
            "trigger record {trigger}: {found} of {} fragments belong to it, {expected} are expected",
            lease.fragments.len()
        )));
    }
    Ok((header, errors))
}
