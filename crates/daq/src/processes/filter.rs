//! The consumer: leases events, reads and verifies every byte, decides by the event's number.
//!
//! *Invariants*: every filter that decides about an event decides the same, so that a filter that dies changes nothing but the time.

use crate::account::undecided;
use crate::progress::{Figure, Phase, Reporter, Told};
use crate::scenario::Summary;
use forebay_core::{Accept, EventStore, GetAny, Kind, Lease, LeaseHolder, ReadFragment, Result, RunState, Sources};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a filter does.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// Events of one call.
    pub batch: usize,
    /// Share of events that are accepted, 0 to 1.
    pub accept: f64,
    /// Stream that they go to.
    pub stream: String,
    /// Stage of the selection; `None` is the first.
    pub stage: Option<String>,
    /// Seed of the decisions.
    pub seed: u64,
    /// Compare every fragment with its checksum.
    pub verify: bool,
    /// Time that thinking about an event takes.
    pub think: Duration,
    /// End once every run is stopped or closed and nothing is ready any more.
    pub until_stopped: bool,
    /// How long it goes on asking a server that is away.
    pub patience: Duration,
}

/// What a filter did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilterReport {
    /// Events that it decided.
    pub events: u64,
    /// Of them accepted.
    pub accepted: u64,
    /// Of them rejected.
    pub rejected: u64,
    /// Events that were given to somebody before, who failed.
    pub taken_over: u64,
    /// Events without some of their sources.
    pub incomplete: u64,
    /// Leases that were over before the verdict.
    pub fenced: u64,
    /// Fragments that it read.
    pub fragments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Fragments that did not verify.
    pub corrupt: u64,
    /// Calls that were made again because the server was away.
    pub away: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Microseconds from asking for events to the last verdict about them, at the median.
    pub call_us_p50: u64,
    /// The same at 99 %.
    pub call_us_p99: u64,
}

impl Summary for FilterReport {
    fn claim(&self) -> &'static str {
        "done: no fragment was wrong"
    }

    fn problems(&self) -> Vec<String> {
        let wrong = self.corrupt;
        (wrong > 0).then(|| format!("{wrong} fragments did not verify")).into_iter().collect()
    }

    fn is_judged_when_stopped(&self) -> bool {
        false
    }
}

/// Whether an event is accepted.
fn accepts(config: &FilterConfig, primary: &[u8]) -> bool {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    // From the key alone: any filter that gets the event, also after another one died, decides the same.
    let hash = primary.iter().fold(0xCBF2_9CE4_8422_2325 ^ config.seed, fold);
    // The upper bits are the mixed ones.
    ((hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64) < config.accept
}

/// Decides until `stop` is set, or until nothing is left if the caller wants that; `told` gets the count of events so far.
///
/// # Errors
/// Those of the store except for what a filter must live with: leases that are over, a server that is away for less than the
/// patience.
pub fn run<S: EventStore>(
    store: &S,
    config: &FilterConfig,
    stop: &AtomicBool,
    told: &mut Told<'_>,
) -> Result<FilterReport> {
    let mut report = FilterReport::default();
    let mut calls = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3)
        .map_err(|error| forebay_core::Error::internal("a histogram").with_source(error))?;
    let from = Instant::now();
    let mut reporter = Reporter::new(told);
    let mut away_since: Option<Instant> = None;
    let request = GetAny {
        stage: config.stage.clone(),
        n: config.batch,
        sources: Sources::All,
        wait: Duration::from_millis(200),
        ..GetAny::default()
    };
    while !stop.load(Ordering::Acquire) {
        let call = Instant::now();
        let worked = store.get_any(&request).and_then(|leases| {
            let n = leases.len();
            leases.into_iter().try_for_each(|lease| decide(config, &lease, &mut report)).map(|()| n)
        });
        match worked {
            Ok(0) if config.until_stopped && is_over(store) => break,
            Ok(0) => away_since = None,
            Ok(_) => {
                away_since = None;
                calls.saturating_record(call.elapsed().as_micros() as u64);
            }
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown) => {
                if away_since.get_or_insert_with(Instant::now).elapsed() > config.patience {
                    return Err(error);
                }
                report.away += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
        report.seconds = from.elapsed().as_secs_f64();
        reporter.tick(Phase::Taking, |figures| {
            figures.set("events", Figure::Count(report.events));
            figures.set("accepted", Figure::Count(report.accepted));
            figures.set("rejected", Figure::Count(report.rejected));
        });
    }
    debug_assert_eq!(report.accepted + report.rejected, report.events, "{report:?}");
    report.seconds = from.elapsed().as_secs_f64();
    (report.call_us_p50, report.call_us_p99) = (calls.value_at_quantile(0.5), calls.value_at_quantile(0.99));
    Ok(report)
}

/// Every run is stopped or closed, and no event waits or is with a worker.
fn is_over<S: EventStore>(store: &S) -> bool {
    let over = |state: RunState| matches!(state, RunState::Stopped | RunState::Closed);
    store.runs().is_ok_and(|runs| {
        !runs.is_empty() && runs.iter().all(|run| over(run.state) && undecided(&run.ledger).events == 0)
    })
}

fn decide<F: ReadFragment, H: LeaseHolder<Fragment = F>>(
    config: &FilterConfig,
    lease: &Lease<F, H>,
    report: &mut FilterReport,
) -> Result<()> {
    for fragment in &lease.fragments {
        report.fragments += 1;
        report.bytes += fragment.len() as u64;
        report.corrupt += u64::from(config.verify && fragment.verify().is_err());
    }
    if !config.think.is_zero() {
        std::thread::sleep(config.think);
    }
    let accepted = accepts(config, lease.primary.as_bytes());
    let verdict = || {
        if accepted {
            lease.accept_into(&Accept { streams: &[(&config.stream, Sources::All)], results: &[] })
        } else {
            lease.reject()
        }
    };
    let mut outcome = verdict();
    if outcome.as_ref().is_err_and(|error| error.kind() == Kind::OutcomeUnknown) {
        // The same verdict with the same token: the store knows whether it has it.
        outcome = verdict();
    }
    match outcome {
        Ok(()) => {
            report.events += 1;
            report.accepted += u64::from(accepted);
            report.rejected += u64::from(!accepted);
            report.taken_over += u64::from(lease.delivery > 1);
            report.incomplete += u64::from(!lease.missing.is_empty());
            Ok(())
        }
        Err(error) if error.kind() == Kind::Fenced => {
            report.fenced += 1;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_events_is_accepted_and_everybody_says_the_same() {
        let config = FilterConfig {
            batch: 1,
            accept: 0.1,
            stream: "physics".to_owned(),
            stage: None,
            seed: 7,
            verify: true,
            think: Duration::ZERO,
            until_stopped: true,
            patience: Duration::ZERO,
        };
        let taken = (0..10_000_u64).filter(|event| accepts(&config, &event.to_be_bytes())).count();
        assert!((850..1150).contains(&taken), "{taken}");
        assert!(
            (0..100_u64).all(|event| accepts(&FilterConfig { accept: 1.0, ..config.clone() }, &event.to_be_bytes()))
        );
    }
}
