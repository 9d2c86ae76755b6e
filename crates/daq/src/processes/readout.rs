//! The producer: owns a range of sources, makes their fragments event by event at a rate, and puts many in a call.
//!
//! *Invariants*: each offer is counted by a producer of the run; a fragment for which there is no space, or whose server is
//! away, is offered again until it is stored or the patience is over. Every fragment of a report is stored, late or unknown:
//! never two of them (`crates/client/tests/network/unknown.rs`, `a_readout_counts_what_is_unknown_and_agrees_with_the_ledger`).

use crate::emulator;
use crate::progress::{Figure, Phase, Reporter, Told};
use crate::scenario::Summary;
use crate::source::FrameSource;
use forebay_core::{CountedProducer, Error, EventStore, Key, Kind, PutOptions, PutOutcome, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Payload of one call.
const CALL_BYTES: usize = 512 << 10;
/// Between two tries where a put finds no space or no server.
const RETRY: Duration = Duration::from_millis(2);

/// What a readout makes.
#[derive(Clone, Debug)]
pub struct ReadoutConfig {
    /// Its name among the producers of the run.
    pub name: String,
    /// Run that it puts into.
    pub run: u64,
    /// Numbers of its sources.
    pub sources: Range<u32>,
    /// Bytes of a fragment.
    pub fragment_bytes: usize,
    /// Numbers of the events.
    pub events: Range<u64>,
    /// Events a second; 0 is as fast as it goes.
    pub events_per_second: u64,
    /// Seed of the emulated frames.
    pub seed: u64,
    /// How long a fragment is offered again that finds no space, or no server.
    pub patience: Duration,
}

/// What a readout did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadoutReport {
    /// Its name.
    pub name: String,
    /// Events of which it put its part.
    pub events: u64,
    /// Fragments that are stored.
    pub fragments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Offers, those that were made again among them.
    pub offers: u64,
    /// Offers that found no space.
    pub full: u64,
    /// Calls that were made again because the server was away.
    pub away: u64,
    /// Fragments that came after their event was leased or decided.
    pub late: u64,
    /// Fragments that an earlier try may have stored whose answer was lost: when they were offered again, their event was
    /// leased or decided, their run closed, or other bytes were there. The ledger has each as stored, or not.
    pub unknown: u64,
    /// Their bytes.
    pub unknown_bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Microseconds of a call with many fragments, at the median.
    pub call_us_p50: u64,
    /// The same at 99 %.
    pub call_us_p99: u64,
}

impl Summary for ReadoutReport {
    fn claim(&self) -> &'static str {
        "done: every fragment is stored, late or unknown"
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Produces until all events are made, or `stop` is set; `told` gets the count of events so far.
///
/// # Errors
/// `Full` or `Unavailable` where the patience was not enough, and errors of puts that are none of these.
pub fn run<S: EventStore>(
    store: &S,
    config: &ReadoutConfig,
    stop: &AtomicBool,
    told: &mut Told<'_>,
) -> Result<ReadoutReport> {
    let frames = emulator::frames(config.seed);
    let patience = Instant::now() + config.patience;
    let producer = loop {
        match store.producer(config.run, &config.name) {
            Err(error) if is_away(&error) && Instant::now() < patience => std::thread::sleep(RETRY),
            producer => break producer?,
        }
    };
    let mut report = ReadoutReport { name: config.name.clone(), ..ReadoutReport::default() };
    let mut calls = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3)
        .map_err(|error| Error::internal("a histogram").with_source(error))?;
    let from = Instant::now();
    let mut reporter = Reporter::new(told);
    let per_event = config.sources.len() * config.fragment_bytes;
    // Whole events in a call: so that a repeat after a lost answer is one of few, large calls.
    let per_call = (CALL_BYTES / per_event.max(1)).clamp(1, 1024) as u64;
    let mut next = config.events.start;
    while next < config.events.end && !stop.load(Ordering::Acquire) {
        let due = match config.events_per_second {
            0 => config.events.end,
            rate => config.events.start + (from.elapsed().as_secs_f64() * rate as f64) as u64,
        };
        // Several due events go in one call: a readout that fell behind catches up in larger calls.
        let until = config.events.end.min(next + per_call).min(due);
        if until == next {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let call = Instant::now();
        put_all(store, config, &frames, next..until, &producer, &mut report)?;
        calls.saturating_record(call.elapsed().as_micros() as u64);
        report.events += until - next;
        next = until;
        report.seconds = from.elapsed().as_secs_f64();
        reporter.tick(Phase::Taking, |figures| {
            figures.set("events", Figure::Count(report.events));
            figures.set("fragments", Figure::Count(report.fragments));
            figures.byte_rate("rate", report.bytes);
        });
    }
    // No matter what happened to answers on their way: each fragment has one outcome.
    let made = report.events * config.sources.len() as u64;
    debug_assert_eq!(report.fragments + report.late + report.unknown, made, "{report:?}");
    match producer.finish() {
        // Its fragments are stored; only its own figures may be short in the run's books.
        Err(error) if is_away(&error) => report.away += 1,
        finished => finished?,
    }
    report.seconds = from.elapsed().as_secs_f64();
    (report.call_us_p50, report.call_us_p99) = (calls.value_at_quantile(0.5), calls.value_at_quantile(0.99));
    Ok(report)
}

/// A fragment that has no outcome yet.
struct Made {
    key: Key,
    bytes: Vec<u8>,
    /// It was offered before, and whether it was stored then is not known.
    is_repeat: bool,
}

/// Puts the fragments of some events, until all are stored.
fn put_all<S: EventStore>(
    store: &S,
    config: &ReadoutConfig,
    frames: &FrameSource,
    events: Range<u64>,
    producer: &S::Producer,
    report: &mut ReadoutReport,
) -> Result<()> {
    let schema = &store.keyspace().schema;
    let mut made: Vec<Made> = Vec::new();
    for event in events {
        for source in config.sources.clone() {
            let mut bytes = vec![0; config.fragment_bytes];
            frames.fill(event, source, &mut bytes);
            let key = schema.key(&[config.run, event, source.into()])?;
            made.push(Made { key, bytes, is_repeat: false });
        }
    }
    let patience = Instant::now() + config.patience;
    loop {
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            made.iter().map(|made| (made.key, made.bytes.as_slice(), PutOptions::default())).collect();
        // Each try is an offer, as in the ledger: the audit compares the two.
        puts.iter().for_each(|(_, bytes, _)| producer.offered(bytes.len() as u64));
        report.offers += puts.len() as u64;
        let outcomes = match store.put_many(&puts) {
            Ok(outcomes) => outcomes,
            Err(error) if is_away(&error) && Instant::now() < patience => {
                report.away += 1;
                // All of them: the call failed as a whole, so any of its fragments may be stored.
                made.iter_mut().for_each(|made| made.is_repeat |= may_have_stored(&error));
                std::thread::sleep(RETRY);
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut again = Vec::new();
        for (mut made, outcome) in made.into_iter().zip(outcomes) {
            let of_repeat = |outcome: Result<PutOutcome>| outcome.map(PutOutcome::of_repeat).map_err(Error::of_repeat);
            // The client does not know that this is a repeat of an earlier call: the answer is interpreted here
            // (docs/semantics.md, "A lost answer").
            match if made.is_repeat { of_repeat(outcome) } else { outcome } {
                Ok(PutOutcome::Stored | PutOutcome::Duplicate) => {
                    report.fragments += 1;
                    report.bytes += made.bytes.len() as u64;
                }
                Ok(PutOutcome::Late) => report.late += 1,
                Ok(PutOutcome::LateUnknown) => report.count_unknown(&made),
                Err(error) if error.kind() == Kind::Full || is_away(&error) => {
                    report.full += u64::from(error.kind() == Kind::Full);
                    // One patience for the whole call: with one for each fragment a full store could hold it up many
                    // times as long.
                    if Instant::now() >= patience {
                        return Err(error);
                    }
                    made.is_repeat |= may_have_stored(&error);
                    again.push(made);
                }
                Err(error) if error.earlier_try_unknown() && is_final(&error) => report.count_unknown(&made),
                Err(error) => return Err(error),
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        made = again;
        std::thread::sleep(RETRY);
    }
}

impl ReadoutReport {
    fn count_unknown(&mut self, made: &Made) {
        self.unknown += 1;
        self.unknown_bytes += made.bytes.len() as u64;
    }
}

/// Whether what was put may be stored, although this was answered.
fn may_have_stored(error: &Error) -> bool {
    error.kind() == Kind::OutcomeUnknown || error.earlier_try_unknown()
}

/// Whether a repeat is answered the same.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), Kind::Conflict | Kind::Closed)
}

fn is_away(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown)
}
