//! Cuts the power at every flush and fence of a workload on simulated persistent memory, and checks what is left.
//!
//! The medium keeps an arbitrary subset of the 8-byte words that were not flushed and fenced yet. The workload is a
//! seeded sequence of every kind of operation, long enough to overflow the region (segments are sealed, evacuated and
//! recycled) and the decision log (snapshots). Operations that were answered before the cut must hold, those begun
//! after it cannot show, and of the one in between each event shows all or nothing.
//!
//! `FOREBAY_POWER_STEPS` bounds the steps that are tried (1500 by default, spread evenly), `FOREBAY_POWER_SEED` changes
//! the workload.

mod copies;
mod directed;
mod file;

use crate::common::driver::{Driver, execute, keyspace};
use crate::common::model::Model;
use crate::common::ops::{Answer, Op};
use crate::common::settle::check_ledger;
use forebay_store::core::{Kind, ManualClock};
use forebay_store::{Config, Store};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const REGION_BYTES: u64 = 1 << 20;
const OPERATIONS: usize = 1200;
const COUNT: usize = 2;
/// Two of these fill a segment's payload.
const BYTES_MAX: usize = 6000;

fn config() -> Config {
    Config {
        hot_bytes: REGION_BYTES,
        segment_bytes: Some(16 << 10),
        write_heads: 1,
        put_deadline: Duration::ZERO,
        maintenance: false,
        clock: Arc::new(ManualClock::default()),
        ..Config::default()
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// One operation, and the steps that the medium had completed before and after it.
struct Record {
    op: Op,
    answer: Answer,
    before: u64,
    after: u64,
}

/// A store's life on a medium, until the medium is past `until`.
struct Life {
    records: Vec<Record>,
    /// Steps after the store was made.
    created: u64,
    stored_bytes: u64,
    refused: usize,
}

fn live(medium: &Arc<SimMedium>, until: u64) -> Life {
    let store = Store::create_on(medium.clone(), &keyspace(COUNT), config()).unwrap();
    let mut model = Model::new(0, COUNT, BYTES_MAX);
    model.may_mask = true;
    let mut driver = Driver::new(number("FOREBAY_POWER_SEED", 5), 1, 25);
    let mut life = Life { records: Vec::new(), created: medium.steps(), stored_bytes: 0, refused: 0 };
    let mut pressure = false;
    for turn in 0..OPERATIONS {
        if medium.steps() > until {
            break;
        }
        let op = driver.next_op(&model, pressure);
        let before = medium.steps();
        let answer = execute(&store, &model, &op);
        let after = medium.steps();
        model.apply(&op, &answer).unwrap_or_else(|wrong| panic!("operation {turn}: {wrong}"));
        pressure = answer == Answer::Failed(Kind::Full);
        life.refused += usize::from(pressure);
        life.records.push(Record { op, answer, before, after });
        if turn % 8 == 7 {
            store.tick();
        }
    }
    life.stored_bytes = store.ledger(crate::common::fixture::RUN).map_or(0, |ledger| ledger.stored.bytes);
    life
}

/// Opens an image that was taken just before `step`, and checks all promises.
fn check_image(image: Vec<u8>, life: &Life, step: u64) -> Result<(), String> {
    let mut model = Model::new(0, COUNT, BYTES_MAX);
    model.may_mask = true;
    let mut in_flight = Vec::new();
    for record in &life.records {
        if record.after < step {
            model.apply(&record.op, &record.answer)?;
        } else if record.before <= step {
            in_flight.push(record.op.clone());
        }
    }
    let store = Store::open_on(SimMedium::from_image(image), &keyspace(COUNT), config())
        .map_err(|error| format!("cannot open: {error}"))?;
    if life.records.is_empty() || life.records[0].before > step {
        return if store.runs().is_empty() { Ok(()) } else { Err("a run before the first operation".to_owned()) };
    }
    let model = model.settle(&store, &in_flight)?;
    if store.runs().is_empty() {
        return if model.events.is_empty() { Ok(()) } else { Err("no run".to_owned()) };
    }
    check_ledger(&store, &[&model])?;
    model.probe(&store, 8)?;
    model.audit(&store)?;
    check_ledger(&store, &[&model])?;
    store.close().map_err(|error| error.to_string())
}

/// The image that `life` leaves when the power goes at `step`; `None` past its end.
fn cut(step: u64, seed: u64) -> Option<(Vec<u8>, Life)> {
    let medium = SimMedium::new(REGION_BYTES);
    medium.arm(step, seed);
    let life = live(&medium, step);
    medium.crash_image().map(|image| (image, life))
}

/// Steps from `first` to `last`, evenly spread where there are more than the bound.
fn sampled(first: u64, last: u64, bound: u64) -> Vec<u64> {
    let stride = (last - first + 1).div_ceil(bound).max(1);
    (first..=last).step_by(stride as usize).collect()
}

/// Runs `each` on two threads over all cases.
fn on_two_threads<T: Sync>(cases: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(case);
                }
            });
        }
    });
}

#[test]
fn the_workload_overflows_the_region_and_hardly_ever_stalls() {
    let medium = SimMedium::new(REGION_BYTES);
    let life = live(&medium, u64::MAX);
    assert!(life.stored_bytes > REGION_BYTES, "only {} bytes were stored", life.stored_bytes);
    assert!(life.refused * 5 < OPERATIONS, "{} of {OPERATIONS} operations found no space", life.refused);
    // Everything was answered, so everything must be there, no matter what else survives.
    for seed in 0..8 {
        check_image(medium.crash_now(seed), &life, u64::MAX).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn a_cut_at_every_step_keeps_every_promise() {
    let medium = SimMedium::new(REGION_BYTES);
    let life = live(&medium, u64::MAX);
    let last = life.records.last().unwrap().after;
    let steps = sampled(life.created + 1, last, number("FOREBAY_POWER_STEPS", 1500));
    let taken = AtomicUsize::new(0);
    on_two_threads(&steps, |step| {
        for seed in [*step, step ^ 0x5EED_0001] {
            let Some((image, life)) = cut(*step, seed) else { continue };
            taken.fetch_add(1, Ordering::Relaxed);
            check_image(image, &life, *step)
                .unwrap_or_else(|wrong| panic!("power lost at step {step}, seed {seed}: {wrong}"));
        }
    });
    let taken = taken.into_inner();
    assert!(taken * 10 >= steps.len() * 2 * 9, "only {taken} images of {} steps were taken", steps.len());
}

#[test]
fn a_cut_while_the_store_is_made_leaves_no_half_store() {
    let medium = SimMedium::new(REGION_BYTES);
    let created = live(&medium, 0).created;
    for step in 1..=created {
        for seed in 0..3 {
            let Some((image, _)) = cut(step, seed) else { continue };
            match Store::open_on(SimMedium::from_image(image), &keyspace(COUNT), config()) {
                Ok(store) => assert!(store.runs().is_empty(), "step {step}, seed {seed}"),
                Err(error) => {
                    assert!(matches!(error.kind(), Kind::Invalid | Kind::Corrupt), "step {step}, seed {seed}: {error}")
                }
            }
        }
    }
}

#[test]
fn a_cut_during_recovery_keeps_every_promise_as_well() {
    let medium = SimMedium::new(REGION_BYTES);
    let life = live(&medium, u64::MAX);
    let last = life.records.last().unwrap().after;
    on_two_threads(&sampled(life.created + 1, last, 24), |step| {
        let Some((image, life)) = cut(*step, step ^ 0xC0FFEE) else { return };
        let recovery = SimMedium::from_image(image.clone());
        let store = Store::open_on(recovery.clone(), &keyspace(COUNT), config()).unwrap();
        let steps = recovery.steps();
        drop(store);
        for again in sampled(1, steps.max(1), 40) {
            let medium = SimMedium::from_image(image.clone());
            medium.arm(again, again ^ step);
            drop(Store::open_on(medium.clone(), &keyspace(COUNT), config()).unwrap());
            let Some(second) = medium.crash_image() else { continue };
            check_image(second, &life, *step)
                .unwrap_or_else(|wrong| panic!("power lost at step {step} and at {again} of recovery: {wrong}"));
        }
    });
}
