//! Logs of devices that are full, and snapshots that are larger than they are.

use crate::common::eventually;
use crate::common::fixture::RUN;
use crate::decisions::life::{Life, Plan, WITHIN};
use forebay_store::core::{AttributeSchema, Completeness, Kind, Level, LiveState, RunConfig, Token};

/// More than a log of a device has blocks: each verdict that is waited for takes one.
const MANY: u64 = 60;

fn one_fragment_each(mut plan: Plan) -> Plan {
    plan.keyspace.run.completeness = Completeness::Count(1);
    (plan.device_bytes, plan.config.device_log_bytes) = (4 << 20, 64 << 10);
    plan.config.container_bytes = 256 << 10;
    plan.all_down()
}

/// This many ready events on the device.
fn on_warm(plan: &Plan, events: u64) -> Life {
    let life = plan.create();
    for event in 0..events {
        life.put(event, 0);
        if event % 128 == 127 {
            life.tick();
        }
    }
    eventually(&life.store, "they go down", || (0..events).all(|event| life.level(event, 0) == Level::Warm));
    life
}

/// Rejects, accepts or passes each; answers who was told that it is done: some were.
fn decide(life: &Life, tokens: &[Token]) -> Vec<bool> {
    let mut told = Vec::new();
    for (event, token) in (0..).zip(tokens) {
        let answer = match event % 3 {
            0 => life.reject(event, token),
            1 => life.accept(event, token),
            _ => life.pass(event, token),
        };
        if let Err(error) = &answer {
            assert_eq!(error.kind(), Kind::OutcomeUnknown, "event {event}: {error}");
        }
        told.push(answer.is_ok());
    }
    assert!(told.contains(&true), "no device has any of them");
    told
}

fn holds(life: &Life, told: &[bool], hot: bool) {
    let wrong: Vec<_> = (0..told.len() as u64)
        .filter(|event| hot || told[*event as usize])
        .filter(|event| {
            let found = life.find(*event).map(|found| (found.state, found.stage));
            let expected = match event % 3 {
                0 => None,
                1 => Some((LiveState::Accepted, "fast".to_owned())),
                _ => Some((LiveState::Ready, "final".to_owned())),
            };
            found != expected
        })
        .collect();
    assert!(wrong.is_empty(), "with the hot level {hot}: {} events are other than decided: {wrong:?}", wrong.len());
    life.balanced();
}

/// The other file of the log takes nothing, so that no snapshot makes room: it is full long before the last verdict.
#[test]
fn verdicts_past_a_full_log_of_a_device_hold() {
    let life = on_warm(&one_fragment_each(Plan::new().impatient()), MANY);
    let tokens: Vec<Token> = (0..MANY).map(|event| life.lease(event)).collect();
    // The creation of the store wrote its snapshot into the second file.
    life.devices[0].refuse_writes("decisions-0");
    let told = decide(&life, &tokens);
    assert!(told.contains(&false), "the log is never full");
    assert_eq!(life.warm_stats().unwrap().devices[0].log_permille, 1000, "the log is not full");
    holds(&life, &told, true);
    holds(&life.after_kill(), &told, true);
    holds(&life.after_kill().after_kill(), &told, true);
    holds(&life.after_loss_of_hot(0), &told, false);
    // After a snapshot of the log all of it is durable there.
    life.answer_again();
    for (event, token) in (0..).zip(&tokens).filter(|(event, _)| event % 3 == 0) {
        life.eventually_ok("the repeated verdict", |life| life.reject(event, token));
    }
    life.tick();
    let rejected: Vec<bool> = (0..MANY).map(|event| event % 3 == 0 || told[event as usize]).collect();
    holds(&life.after_loss_of_hot(0), &rejected, false);
}

/// What is said about a run takes more than a whole log of a device: it has room after a snapshot.
#[test]
fn an_entry_that_is_longer_than_a_log_of_a_device_is_durable() {
    for maintenance in [false, true] {
        let mut plan = one_fragment_each(Plan::new());
        plan.config.maintenance = maintenance;
        let life = plan.create();
        let sources: Vec<Vec<u64>> = (0..24_000).map(|source| vec![source * 3]).collect();
        let all = Completeness::sources(life.store.schema(), &sources).unwrap();
        life.store.run_open(RUN + 1, &RunConfig::new(all, WITHIN)).unwrap();
        life.in_every_life(|life, _| assert!(life.runs().iter().any(|run| run.run == RUN + 1)));
    }
}

/// Holds that are no part of any event take more than the log of a device has at first: its files grow.
#[test]
fn verdicts_beside_a_snapshot_that_makes_a_device_log_grow_hold() {
    let mut plan = one_fragment_each(Plan::new());
    plan.keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    let life = on_warm(&plan, 120);
    let conditions: Vec<String> =
        (0..12_u32).map(|at| format!("lumi={}..{}", 4_000_000_000 + at, 4_100_000_000 + at)).collect();
    let conditions: Vec<&str> = conditions.iter().map(|condition| &**condition).collect();
    for run in 100..500 {
        life.store.hold(Some(run), &conditions).unwrap();
    }
    assert_eq!(life.holds().len(), 400);
    life.tick();
    let tokens: Vec<Token> = (0..120).map(|event| life.lease(event)).collect();
    let told = decide(&life, &tokens);
    assert!(told.iter().all(|told| *told), "the log did not grow: {told:?}");
    (0..3).for_each(|_| life.tick());
    holds(&life, &told, true);
    let next = life.after_kill();
    assert_eq!(next.holds().len(), 400);
    holds(&next, &told, true);
    holds(&next.after_kill(), &told, true);
    holds(&life.after_loss_of_hot(0), &told, false);
    // The snapshot is small again.
    for hold in life.holds() {
        match life.store.release_hold(hold.id) {
            Ok(there) => assert!(there),
            Err(error) => assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error}"),
        }
    }
    life.tick();
    holds(&life.after_loss_of_hot(0), &told, false);
    life.in_lives_with_hot(|life| assert_eq!(life.holds().len(), 0));
}

/// Every other event is decided, so that the memory of the decided has no long stretches: on the hot level alone, of
/// which devices keep a snapshot each.
#[test]
fn verdicts_beside_a_long_memory_of_the_decided_hold() {
    let mut plan = one_fragment_each(Plan::new());
    plan.region_bytes = 4 << 20;
    let life = on_warm(&plan, 60);
    for event in (1000..25_000).step_by(3) {
        life.put(event, 0);
        assert!(life.remove_event(&life.name(event)).unwrap());
    }
    life.tick();
    let tokens: Vec<Token> = (0..60).map(|event| life.lease(event)).collect();
    let told = decide(&life, &tokens);
    life.tick();
    holds(&life.after_kill(), &told, true);
    holds(&life.after_loss_of_hot(0), &told, false);
}
