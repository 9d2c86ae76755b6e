//! A filter over the network: events leased and decided, many in a frame, over one connection.

use super::Measurement;
use super::moving::{client, end_run};
use super::options::Plan;
use crate::Result;
use forebay_client::Verdict;
use forebay_core::{Completeness, EventStore, GetAny, Key, PutOptions, RunConfig, Sources};
use forebay_wire::WireJudgement;
use std::time::{Duration, Instant};

/// Events of one frame.
const BATCH: usize = 64;

pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    for transport in ["unix", "tcp"] {
        let (client, run) = (client(on.forebay, transport)?, on.next_run());
        let rate = select(on.plan, &client, run, |verdicts| client.decide(verdicts))?;
        on.results.record(&format!("{transport}.select"), 64, rate);
    }
    Ok(())
}

/// Leases and decides all events of a run; events per second.
pub(super) fn select<S: EventStore>(
    plan: &Plan,
    client: &S,
    run: u64,
    decide: impl Fn(&[Verdict]) -> forebay_core::Result<Vec<forebay_core::Result<()>>>,
) -> Result<f64> {
    client.run_open(run, &RunConfig::new(Completeness::Count(1), Duration::from_secs(3600)))?;
    let value = [9; 64];
    for first in (0..plan.events).step_by(512) {
        let key = |event| client.schema().key(&[run, event, 0]).map(|key| (key, &value[..], PutOptions::default()));
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            (first..plan.events.min(first + 512)).map(key).collect::<forebay_core::Result<_>>()?;
        for outcome in client.put_many(&puts)? {
            let _ = outcome?;
        }
    }
    let request = GetAny { n: BATCH, sources: Sources::All, ..GetAny::default() };
    let mut decided = 0;
    let from = Instant::now();
    while decided < plan.events {
        let leases = client.get_any(&request)?;
        if leases.is_empty() {
            return Err(format!("no more events after {decided} of {}", plan.events).into());
        }
        let verdicts: Vec<Verdict> = leases.iter().map(|lease| Verdict::about(lease, WireJudgement::Reject)).collect();
        for outcome in decide(&verdicts)? {
            outcome?;
        }
        decided += leases.len() as u64;
    }
    let rate = decided as f64 / from.elapsed().as_secs_f64();
    end_run(client, run)?;
    Ok(rate)
}
