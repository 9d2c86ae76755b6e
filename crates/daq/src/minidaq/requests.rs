//! A request handler, one per link: reads the window of each trigger from the ring and answers with a fragment.
//!
//! ```text
//! request ─▶ window at once ─▶ not yet there? wait to the time-out ─▶ what it covers ─▶ error bits ─▶ fragment
//!
//! covers all of it             no bit          part is not there by the time-out, or in a gap   Incomplete
//! begin ≥ end                  InvalidWindow   part is gone already                             DataNotFound, Incomplete
//! nothing is there             DataNotFound, and an empty fragment
//! ```
//!
//! *Invariants*: every request is answered, even if the ring lacks the data (`summary`); every frame that goes into a
//! fragment has its checksum verified, so that what the ring was given is what the store gets.

use super::builder::Builder;
use super::shared::MiniDaqShared;
use super::trigger::Trigger;
use crate::dune::{FragmentErrors, SourceId};
use crate::limits::GET_ANY_WAIT;
use crate::meter::{Latency, Meter};
use crate::threads::Together;
use forebay_core::{GAP_CAUSES, Result};
use forebay_ring::{Coverage, Ring, RingSources, SourceWindow, Window};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// One data request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) trigger: Trigger,
    pub(crate) issued: Instant,
}

/// Requests by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) asked: u64,
    /// The fragment covers the window.
    pub(crate) complete: u64,
    /// It covers a part.
    pub(crate) incomplete: u64,
    /// It holds nothing.
    pub(crate) empty: u64,
    pub(crate) invalid: u64,
    /// A fault kept the handler from answering.
    pub(crate) unanswered: u64,
    /// The record had gone on without it.
    pub(crate) late: u64,
    /// Of the incomplete and empty ones: data had not arrived by the time-out.
    pub(crate) timed_out: u64,
    /// Of the incomplete and empty ones: data was gone already, or before the first frame.
    pub(crate) gone: u64,
    /// Gaps in windows and their ticks, by cause, in the order of [`GAP_CAUSES`].
    pub(crate) gaps: [(u64, u64); GAP_CAUSES.len()],
}

impl Answers {
    pub(crate) fn add(&mut self, other: &Answers) {
        for (mine, theirs) in [
            (&mut self.asked, other.asked),
            (&mut self.complete, other.complete),
            (&mut self.incomplete, other.incomplete),
            (&mut self.empty, other.empty),
            (&mut self.invalid, other.invalid),
            (&mut self.unanswered, other.unanswered),
            (&mut self.late, other.late),
            (&mut self.timed_out, other.timed_out),
            (&mut self.gone, other.gone),
        ] {
            *mine += theirs;
        }
        for (mine, theirs) in self.gaps.iter_mut().zip(other.gaps) {
            mine.0 += theirs.0;
            mine.1 = mine.1.saturating_add(theirs.1);
        }
    }

    /// Books a window by its error bits.
    fn book(&mut self, errors: FragmentErrors, window: Option<&SourceWindow>) {
        if errors == FragmentErrors::default() {
            self.complete += 1;
        } else if errors.contains(FragmentErrors::INVALID_WINDOW) {
            self.invalid += 1;
        } else if errors.contains(FragmentErrors::INCOMPLETE) {
            self.incomplete += 1;
        } else {
            self.empty += 1;
        }
        let coverage = window.map(|window| window.coverage.as_slice()).unwrap_or_default();
        self.timed_out += u64::from(coverage.iter().any(|stretch| stretch.state == Coverage::NotYet));
        self.gone += u64::from(coverage.iter().any(|stretch| stretch.state == Coverage::Gone));
        for stretch in coverage {
            if let Coverage::Gap(cause) = stretch.state {
                let gaps = &mut self.gaps[cause as usize];
                gaps.0 += 1;
                gaps.1 = gaps.1.saturating_add(stretch.end - stretch.begin);
            }
        }
    }
}

/// What a request handler has to say at its end.
pub(crate) struct HandlerReport {
    /// Reading a window that the ring can answer at once.
    pub(crate) window: Latency,
    /// From the request to the stored fragment, waits for data included.
    pub(crate) answer: Latency,
    pub(crate) answers: Answers,
}

/// What a window says about the fragment made of it.
pub(crate) fn errors(window: Option<&SourceWindow>) -> FragmentErrors {
    let Some(window) = window else { return FragmentErrors::INVALID_WINDOW };
    if window.fragments().len() == 0 {
        return FragmentErrors::DATA_NOT_FOUND;
    }
    window.coverage.iter().fold(FragmentErrors::default(), |errors, stretch| match stretch.state {
        Coverage::Complete => errors,
        Coverage::Gap(_) | Coverage::NotYet => errors.with(FragmentErrors::INCOMPLETE),
        Coverage::Gone => errors.with(FragmentErrors::INCOMPLETE).with(FragmentErrors::DATA_NOT_FOUND),
    })
}

/// The window of a request, as it is by the time-out; `None` for a window that is none.
pub(crate) fn read(
    ring: &Ring,
    sources: &RingSources,
    request: &Request,
    timeout: Duration,
    latency: &mut Latency,
) -> Result<Option<Window>> {
    let Trigger { window_begin, window_end, .. } = request.trigger;
    if window_begin >= window_end {
        return Ok(None);
    }
    let start = Instant::now();
    // Without a wait first, so that the latency is that of the ring and not of the detector.
    let window = ring.window(window_begin, window_end, sources, Duration::ZERO)?;
    let left = timeout.saturating_sub(request.issued.elapsed());
    let not_yet = |source: &SourceWindow| source.coverage.iter().any(|stretch| stretch.state == Coverage::NotYet);
    if left.is_zero() || !window.sources.iter().any(not_yet) {
        latency.record(start);
        return Ok(Some(window));
    }
    // Its pins would keep chunks from being evicted for the whole wait.
    drop(window);
    // Waiting for the detector is not the ring's latency.
    ring.window(window_begin, window_end, sources, left).map(Some)
}

/// The body of a request handler; it ends with the queue.
pub(crate) fn run(shared: &MiniDaqShared<'_>, link: u32, queue: &Receiver<Request>) -> Result<HandlerReport> {
    let plan = shared.plan;
    let ring = shared.ring.named(&format!("request-{link}"));
    let builder = Builder::new(shared, &format!("request-{link}"));
    let sources = RingSources::Only(vec![plan.ring_source(ring.keyspace(), link)?]);
    let dead = plan.config.faults.unanswered.contains(&link);
    let mut report = HandlerReport { window: Latency::new()?, answer: Latency::new()?, answers: Answers::default() };
    loop {
        let request = match queue.recv_timeout(GET_ANY_WAIT) {
            Ok(request) => request,
            Err(RecvTimeoutError::Timeout) if !shared.aborted() => continue,
            Err(_) => return Ok(report),
        };
        report.answers.asked += 1;
        if dead {
            report.answers.unanswered += 1;
            continue;
        }
        let window = read(&ring, &sources, &request, plan.config.request_timeout, &mut report.window)?;
        let part = window.as_ref().and_then(|window| window.sources.first());
        let errors = errors(part);
        report.answers.book(errors, part);
        let (outcome, bytes) = builder.fragment(&request.trigger, SourceId::link(link), errors, part)?;
        if outcome.is_late() {
            report.answers.late += 1;
            continue;
        }
        report.answer.record(request.issued);
        let meter = &shared.built[link as usize];
        Meter::count(&meter.fragments, 1);
        Meter::count(&meter.bytes, bytes);
    }
}
