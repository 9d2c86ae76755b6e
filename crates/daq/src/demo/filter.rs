//! A filter thread: takes events of both stages, the last one first, looks at their bytes, decides.
//!
//! ```text
//! fast:   get_any(n, group `fast`) ─▶ verify, check frames, search for signals ─▶ keep? ─no──▶ reject
//!                                                                                 └─yes─▶ pass to `final`
//! final:  get_any(n, all) ─▶ verify every byte ─▶ accept into streams, with a result ─▶ the archive
//! ```
//!
//! Which events are kept follows from their number alone, so that the accepted part is the one asked for and the same in every run;
//! the bytes can only forbid it. A result that finds no space in a full store is left out and counted: what is accepted
//! goes on, so that the store empties.
//!
//! *On failure*: bytes that do not verify or are not those of their event end the demo with `Corrupt`. A lease that ran
//! out (`Fenced`) is counted; another thread gets the event.

use super::decided::FilterReport;
use super::plan::Plan;
use super::setup::{CALIB, FAST, FINAL, PHYSICS};
use super::shared::DemoShared;
use crate::limits::{FARM_WAIT, GET_ANY_WAIT};
use crate::meter::Meter;
use crate::threads::Together;
use forebay_core::{Error, Kind, Result, ResultFragment, Tally};
use forebay_store::{Accept, Fragment, GetAny, Lease, SourceState, Sources, Store};
use std::time::Instant;

/// The body of a filter thread; a failure ends the demo.
pub(crate) fn run(shared: &DemoShared<'_>, thread: usize) -> Result<FilterReport> {
    shared.guarded(|| {
        // A name of its own: guards that a filter keeps are counted under it, so `stats` shows which thread holds
        // space.
        let store = shared.store.named(&format!("filter-{thread}"));
        let mut filter = Filter { shared, store: &store, thread, report: FilterReport::new()? };
        filter.select()?;
        Ok(filter.report)
    })
}

struct Filter<'f, 's> {
    shared: &'f DemoShared<'s>,
    store: &'f Store,
    thread: usize,
    report: FilterReport,
}

impl Filter<'_, '_> {
    fn select(&mut self) -> Result<()> {
        let plan = self.shared.plan;
        let request = |stage: &str, sources| GetAny {
            stage: Some(stage.to_owned()),
            n: plan.batch,
            sources,
            ..GetAny::default()
        };
        let last = request(FINAL, Sources::All);
        let mut fast = request(FAST, plan.group(&plan.fast)?);
        let mut patient = GetAny { wait: GET_ANY_WAIT, ..fast.clone() };
        while !self.shared.finished() {
            // What was passed on goes first: it is whole, and done with soon.
            let passed = self.take(&last)?;
            let begins = self.shared.farm.take(plan.batch);
            (fast.n, patient.n) = (begins, begins);
            let mut fresh = if begins == 0 { Vec::new() } else { self.take(&fast)? };
            if passed.is_empty() && fresh.is_empty() {
                // Waiting for the detector, or for the farm's next event, is not the store's latency.
                if begins == 0 {
                    std::thread::sleep(FARM_WAIT);
                } else {
                    fresh = self.store.get_any(&patient)?;
                }
            }
            self.shared.farm.give_back(begins - fresh.len());
            for lease in passed {
                match self.conclude(lease) {
                    Err(error) if error.kind() == Kind::Fenced => self.report.last.fenced += 1,
                    other => other?,
                }
            }
            for lease in fresh {
                match self.look(&lease) {
                    Err(error) if error.kind() == Kind::Fenced => self.report.fast.fenced += 1,
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, request: &GetAny) -> Result<Vec<Lease>> {
        let start = Instant::now();
        let leases = self.store.get_any(request)?;
        // Empty answers would fill the latency with waits for the detector.
        if !leases.is_empty() {
            self.report.get_any.record(start);
        }
        Ok(leases)
    }

    /// The first stage: a few sources decide.
    fn look(&mut self, lease: &Lease) -> Result<()> {
        let plan = self.shared.plan;
        let event = number(plan, lease);
        let bytes = inspect(plan, event, &lease.fragments)?;
        let signal = lease.fragments.iter().any(|fragment| plan.frames.search(fragment).signal);
        self.report.with_signal += u64::from(signal);
        self.report.fast.book(lease, bytes);
        check_chosen(plan, event, lease)?;
        let meter = &self.shared.taken[self.thread];
        Meter::count(&meter.events, 1);
        Meter::count(&meter.fragments, lease.fragments.len() as u64);
        Meter::count(&meter.bytes, bytes);
        let start = Instant::now();
        if plan.keeps(event) {
            lease.pass(FINAL, &[])?;
            self.report.fast.passed += 1;
        } else {
            lease.reject()?;
            self.report.fast.rejected += 1;
        }
        self.report.verdict.record(start);
        Ok(())
    }

    /// The last stage: every byte is read, the event goes to its streams with a result.
    fn conclude(&mut self, lease: Lease) -> Result<()> {
        let plan = self.shared.plan;
        let event = number(plan, &lease);
        let start = Instant::now();
        let bytes = inspect(plan, event, &lease.fragments)?;
        self.report.event_read.record(start);
        self.report.last.book(&lease, bytes);
        // The store's own figures against what was read: a fragment that is missing without a word is found here.
        if (lease.fragments.len(), bytes) != (lease.event_fragments as usize, lease.event_bytes) {
            return Err(short(event, lease.fragments.len(), lease.event_fragments as usize));
        }
        let meter = &self.shared.read[self.thread];
        Meter::count(&meter.events, 1);
        Meter::count(&meter.fragments, lease.fragments.len() as u64);
        Meter::count(&meter.bytes, bytes);
        let result = result(plan, &lease.fragments);
        let source = plan.schema.source(&[plan.result_source().into()])?;
        let results = [ResultFragment::new(&source, &result)];
        let streams = streams(plan, &lease)?;
        let accept = Accept { streams: &streams, results: &results };
        let start = Instant::now();
        let written = match lease.accept_into(&accept) {
            Ok(()) => Tally::fragment(result.len() as u64),
            Err(error) if error.kind() == Kind::Full => {
                // Without the result: in a full store the accept must still go through, because only decided events
                // free space.
                lease.accept_into(&Accept { streams: &streams, results: &[] })?;
                self.report.left_out += 1;
                Tally::default()
            }
            Err(error) => return Err(error),
        };
        self.report.verdict.record(start);
        self.report.last.accepted += 1;
        self.report.results += written;
        for (stream, sources) in &streams {
            let mut tally = kept(plan, &lease, sources);
            tally += written;
            self.report.stream(stream, tally);
        }
        Meter::count(&self.shared.taken[self.thread].accepted, 1);
        Ok(())
    }
}

/// Where an accepted event goes: to physics as a whole, and one of ten to calibration in part.
fn streams(plan: &Plan, lease: &Lease) -> Result<Vec<(&'static str, Sources)>> {
    let mut streams = vec![(PHYSICS, Sources::All)];
    if plan.prescale.keeps(&lease.primary) {
        streams.push((CALIB, plan.group(&plan.calib)?));
    }
    Ok(streams)
}

/// What a stream keeps of an event, beside its result.
fn kept(plan: &Plan, lease: &Lease, sources: &Sources) -> Tally {
    let mut tally = Tally::event(0, 0);
    for fragment in &lease.fragments {
        let takes = match sources {
            Sources::All => true,
            Sources::None => false,
            Sources::Only(list) => list.iter().any(|source| source.as_bytes() == plan.schema.rest_of(&fragment.key())),
        };
        if takes {
            tally += Tally::fragment(fragment.len() as u64);
        }
    }
    tally
}

/// What the last stage found: largest excursion and number of fragments, each as four bytes, little-endian.
fn result(plan: &Plan, fragments: &[Fragment]) -> [u8; 8] {
    let excursion = fragments.iter().map(|fragment| plan.frames.search(fragment).excursion).max().unwrap_or_default();
    let mut result = [0; 8];
    result[..4].copy_from_slice(&u32::from(excursion).to_le_bytes());
    result[4..].copy_from_slice(&(fragments.len() as u32).to_le_bytes());
    result
}

fn number(plan: &Plan, lease: &Lease) -> u64 {
    plan.schema.values(lease.primary.as_bytes()).last().copied().unwrap_or_default()
}

/// `get_any` gave every chosen source that it says is there, and says so of every one.
fn check_chosen(plan: &Plan, event: u64, lease: &Lease) -> Result<()> {
    let there = |state| matches!(state, SourceState::Present | SourceState::Empty | SourceState::Late);
    let chosen = |source: &[u8]| plan.fast.binary_search(&source_number(source)).is_ok();
    let said = lease.sources.iter().filter(|(source, state)| there(*state) && chosen(source)).count();
    if lease.fragments.len() != said {
        return Err(short(event, lease.fragments.len(), said));
    }
    if said != plan.fast.len() {
        return Err(short(event, said, plan.fast.len()));
    }
    Ok(())
}

/// Verifies fragments of an event: checksum of every byte, length, headers of every frame. Returns their bytes.
pub(super) fn inspect(plan: &Plan, event: u64, fragments: &[Fragment]) -> Result<u64> {
    let mut bytes = 0;
    for fragment in fragments {
        fragment.verify()?;
        if fragment.len() != plan.fragment_bytes {
            let name = plan.schema.text(fragment.key().as_bytes());
            let message = format!("{name} has {} bytes, {} were put", fragment.len(), plan.fragment_bytes);
            return Err(Error::corrupt(message));
        }
        plan.frames.check(event, source_number(plan.schema.rest_of(&fragment.key())), fragment)?;
        bytes += fragment.len() as u64;
    }
    Ok(bytes)
}

/// The number of a packed source: the big-endian sub-key after the primary key.
fn source_number(source: &[u8]) -> u32 {
    source.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cold]
fn short(event: u64, found: usize, expected: usize) -> Error {
    Error::corrupt(format!("event {event}: {found} fragments read, expected {expected}"))
}
