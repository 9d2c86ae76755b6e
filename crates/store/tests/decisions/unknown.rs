//! A device that fails or stalls makes it unknown whether a decision is durable there, never what was decided: it is in
//! force at once and after the death of the process, booked once; a repeat succeeds when devices have it, and then it
//! holds without the hot level too.

use crate::common::eventually;
use crate::decisions::life::{DAY, LEASE, LOGS, Life, Plan, WITHIN, bytes, unknown};
use forebay_store::core::{Completeness, Kind, Level, LiveState, Result, Token};
use forebay_store::{Accept, PutOutcome, ResultFragment, Sources};
use std::time::Duration;

/// Event that calls are about, and a source of a worker's result.
const EVENT: u64 = 1;
const RESULT: u64 = 100;

/// How its fragments got to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Persisted,
    Demoted,
}

/// What the device does.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    LogStalls,
    WritesStall,
    LogFails,
}

impl Trouble {
    fn begin(self, life: &Life) {
        for device in &life.devices {
            match self {
                Trouble::LogStalls => device.stall_writes(LOGS, DAY),
                Trouble::WritesStall => device.stall_writes("", DAY),
                Trouble::LogFails => device.refuse_writes(LOGS),
            }
        }
    }
}

/// One call about the event.
struct Case {
    plan: fn(Plan) -> Plan,
    /// The next life knows what the call was made with.
    outlives: bool,
    /// What comes before it; answers a token.
    prepare: fn(&Life) -> Option<Token>,
    call: fn(&Life, Option<&Token>) -> Result<()>,
    /// What has to be found wherever the decision is known.
    decided: fn(&Life, Standing),
}

fn leased(life: &Life) -> Option<Token> {
    Some(life.lease(EVENT))
}

fn accepted(life: &Life) -> Option<Token> {
    let token = life.lease(EVENT);
    life.accept(EVENT, &token).unwrap();
    life.tick();
    Some(token)
}

fn in_debug(life: &Life) -> Option<Token> {
    let token = life.lease(EVENT);
    life.advance(2 * LEASE);
    life.tick();
    assert_eq!(life.state(EVENT), Some(LiveState::Debug));
    Some(token)
}

fn nothing(_: &Life) -> Option<Token> {
    None
}

fn token(token: Option<&Token>) -> &Token {
    token.unwrap()
}

fn is(life: &Life, state: LiveState, stage: &str) {
    let found = life.find(EVENT).unwrap_or_else(|| panic!("the event is not there"));
    assert_eq!((found.state, &*found.stage), (state, stage));
    assert_eq!(found.versions.get(&0).zip(found.versions.get(&1)), Some((&0, &0)), "{found:?}");
}

fn is_gone(life: &Life, _: Standing) {
    assert_eq!(life.find(EVENT), None, "the event is back");
    // Nothing more of it is taken.
    assert_eq!(life.try_put(EVENT, 7, false).unwrap(), PutOutcome::Late);
}

/// The call in each trouble, for an event that got to the device in each way.
fn holds(case: &Case) {
    for standing in [Standing::Persisted, Standing::Demoted] {
        for trouble in [Trouble::LogStalls, Trouble::WritesStall, Trouble::LogFails] {
            holds_in(case, standing, trouble);
        }
    }
}

fn holds_in(case: &Case, standing: Standing, trouble: Trouble) {
    let what = format!("{standing:?}, {trouble:?}");
    let plan = (case.plan)(Plan::new().impatient());
    let life = if standing == Standing::Demoted { plan.all_down() } else { plan }.create();
    match standing {
        Standing::Persisted => life.ready_persisted(EVENT),
        Standing::Demoted => {
            life.ready(EVENT);
            life.tick();
        }
    }
    let token = (case.prepare)(&life);
    let call = |life: &Life| (case.call)(life, token.as_ref());
    trouble.begin(&life);
    unknown(call(&life), &format!("{what}: the first time"));
    let told = life.told();
    unknown(call(&life), &format!("{what}: again while the device is in trouble"));
    assert_eq!(life.told(), told, "{what}: the repeat is booked");
    life.in_lives_with_hot(|next| {
        assert_eq!(next.told(), told, "{what}: other than it was before the kill");
    });
    // The next life has what the device lacked.
    if case.outlives {
        let next = life.after_kill();
        next.eventually_ok(&format!("{what}: the repeat in the next life"), call);
        assert_eq!(next.told(), told, "{what}: the repeat of the next life is booked");
        (case.decided)(&next.after_loss_of_hot(0), standing);
    }
    life.answer_again();
    life.eventually_ok(&format!("{what}: the repeat"), call);
    assert_eq!(life.told(), told, "{what}: the repeat is booked");
    (case.decided)(&life.after_loss_of_hot(0), standing);
    (case.decided)(&life.after_kill(), standing);
}

#[test]
fn an_accept_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: leased,
        call: |life, held| life.accept(EVENT, token(held)),
        decided: |life, _| is(life, LiveState::Accepted, "fast"),
    });
}

#[test]
fn an_accept_with_a_result_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: leased,
        call: |life, held| {
            let result = bytes(EVENT, RESULT, 0);
            let source = life.schema().source(&[RESULT]).unwrap();
            let results = [ResultFragment::new(&source, &result)];
            let accept = Accept { streams: &[("main", Sources::All)], results: &results };
            life.accept_into(&life.name(EVENT), token(held), &accept)
        },
        decided: |life, _| is(life, LiveState::Accepted, "fast"),
    });
}

#[test]
fn a_reject_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: leased,
        call: |life, held| life.reject(EVENT, token(held)),
        decided: is_gone,
    });
}

#[test]
fn a_pass_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: leased,
        call: |life, held| life.pass(EVENT, token(held)),
        decided: |life, _| is(life, LiveState::Ready, "final"),
    });
}

#[test]
fn a_pass_with_a_result_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: leased,
        call: |life, held| {
            let result = bytes(EVENT, RESULT, 0);
            let source = life.schema().source(&[RESULT]).unwrap();
            life.store.pass(&life.name(EVENT), token(held), "final", &[ResultFragment::new(&source, &result)])
        },
        decided: |life, _| is(life, LiveState::Ready, "final"),
    });
}

#[test]
fn a_release_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: accepted,
        call: |life, _| life.release(&life.name(EVENT)).map(drop),
        decided: is_gone,
    });
}

#[test]
fn a_removal_of_an_event_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: nothing,
        call: |life, _| life.remove_event(&life.name(EVENT)).map(drop),
        decided: is_gone,
    });
}

#[test]
fn a_removal_of_a_fragment_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: nothing,
        call: |life, _| life.remove(EVENT, 0).map(drop),
        decided: |life, _| {
            let found = life.find(EVENT).expect("the rest of the event");
            assert_eq!(found.versions.into_iter().collect::<Vec<_>>(), [(1, 0)]);
            assert_eq!(life.try_put(EVENT, 0, false).unwrap(), PutOutcome::Late, "the key stays closed");
        },
    });
}

#[test]
fn a_removal_of_the_last_fragment_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: true,
        prepare: |life| {
            assert!(life.remove(EVENT, 1).unwrap());
            None
        },
        call: |life, _| life.remove(EVENT, 0).map(drop),
        decided: is_gone,
    });
}

fn is_updated(life: &Life, standing: Standing) {
    let version = life.version(EVENT, 0);
    assert_ne!(version, Some(0), "the version that was replaced is back");
    if standing == Standing::Persisted {
        assert_eq!(version, Some(1), "a persisted fragment is lost by its update");
    }
}

#[test]
fn an_update_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        // In the next life nobody knows that it is a repeat: it makes one version more.
        outlives: false,
        prepare: nothing,
        call: |life, _| life.update(EVENT, 0, 1, None).map(|version| assert_eq!(version, 1)),
        decided: is_updated,
    });
}

/// The repeat is known as one, wherever the version has gone since.
#[test]
fn an_update_that_has_gone_down_is_not_made_again() {
    for trouble in [Trouble::LogStalls, Trouble::WritesStall] {
        let life = Plan::new().impatient().all_down().create();
        life.ready(EVENT);
        life.tick();
        trouble.begin(&life);
        let update = |version: u16| life.update(EVENT, 0, version, None);
        unknown(update(1), "the first time");
        life.answer_again();
        // Nobody has repeated it, and nothing has forgotten it.
        eventually(&life.store, "it goes down", || life.level(EVENT, 0) == Level::Warm);
        life.eventually_ok("the repeat", |_| update(1).map(|version| assert_eq!(version, 1)));
        // It has its answer: the same bytes are another version now.
        life.eventually_ok("another update", |_| update(1).map(|version| assert_eq!(version, 2)));
    }
}

#[test]
fn an_update_under_a_lease_is_decided() {
    holds(&Case {
        plan: |plan| plan,
        outlives: false,
        prepare: leased,
        call: |life, held| life.update(EVENT, 0, 1, held).map(|version| assert_eq!(version, 1)),
        decided: is_updated,
    });
}

#[test]
fn a_replay_is_decided() {
    holds(&Case {
        plan: Plan::one_delivery,
        outlives: true,
        prepare: in_debug,
        call: |life, _| life.replay(&life.name(EVENT)).map(drop),
        decided: |life, _| is(life, LiveState::Ready, "fast"),
    });
}

/// A time-out that a device did not hear of: the event is in the debug stream, or it is not and can be accepted, but
/// never both one after the other.
#[test]
fn a_lease_that_runs_out_beside_a_stalled_device_overrides_no_later_verdict() {
    for trouble in [Trouble::LogStalls, Trouble::LogFails] {
        let life = Plan::new().impatient().one_delivery().create();
        life.ready_persisted(EVENT);
        let token = life.lease(EVENT);
        trouble.begin(&life);
        life.advance(2 * LEASE);
        life.tick();
        let before = life.told();
        life.answer_again();
        let answer = life.accept(EVENT, &token);
        let expected = match &answer {
            Ok(()) => LiveState::Accepted,
            Err(error) if error.kind() == Kind::Fenced => LiveState::Debug,
            Err(error) => panic!("{trouble:?}: {error}"),
        };
        assert_eq!(life.told() == before, answer.is_err(), "{trouble:?}");
        life.tick();
        life.in_every_life(|life, hot| {
            let state = life.state(EVENT);
            // Nobody was told of the time-out: without the hot level it may not have been.
            let unheard = !hot && answer.is_err() && state == Some(LiveState::Ready);
            assert!(state == Some(expected) || unheard, "{trouble:?}: {state:?}, the verdict was answered {answer:?}");
        });
    }
}

/// An open event of which everything was removed ends by time. What comes after that is late, or it is there.
#[test]
fn an_emptied_event_that_ends_beside_a_stalled_device_swallows_no_later_fragment() {
    for trouble in [Trouble::LogStalls, Trouble::LogFails] {
        let life = Plan::new().impatient().create();
        life.persist(EVENT, 0);
        assert!(life.remove(EVENT, 0).unwrap());
        trouble.begin(&life);
        life.advance(2 * WITHIN);
        life.tick();
        let outcome = life.try_put(EVENT, 1, false).unwrap();
        life.answer_again();
        life.tick();
        let there = (outcome == PutOutcome::Stored).then_some(0);
        life.in_lives_with_hot(|life| {
            assert_eq!(life.version(EVENT, 1), there, "{trouble:?}: the put answered {outcome:?}");
        });
        let told = life.told();
        assert_eq!(life.after_kill().told(), told, "{trouble:?}");
    }
}

/// The same for a persisted put, where the hot level is lost as well.
#[test]
fn an_emptied_event_that_ends_beside_a_stalled_device_swallows_no_persisted_fragment() {
    let life = Plan::new().impatient().create();
    life.persist(EVENT, 0);
    assert!(life.remove(EVENT, 0).unwrap());
    Trouble::LogStalls.begin(&life);
    life.advance(2 * WITHIN);
    life.tick();
    life.answer_again();
    let outcome = life.try_put(EVENT, 1, true).unwrap();
    let there = (outcome == PutOutcome::Stored).then_some(0);
    life.in_every_life(|life, _| {
        assert_eq!(life.version(EVENT, 1), there, "the put answered {outcome:?}");
    });
}

#[test]
fn a_fragment_that_was_removed_beside_a_stalled_device_is_not_rejected_with_its_event() {
    for trouble in [Trouble::LogStalls, Trouble::LogFails] {
        let life = Plan::new().impatient().create();
        life.ready_persisted(EVENT);
        trouble.begin(&life);
        unknown(life.remove(EVENT, 0), "remove");
        life.answer_again();
        life.eventually_ok("the repeated removal", |life| life.remove(EVENT, 0));
        let token = life.lease(EVENT);
        life.reject(EVENT, &token).unwrap();
        let ledger = life.ledger();
        let counts = (ledger.offered.fragments, ledger.removed.fragments, ledger.rejected.fragments);
        assert_eq!(counts, (2, 1, 1), "{trouble:?}: {ledger:?}");
        let told = life.told();
        life.in_lives_with_hot(|life| assert_eq!(life.told(), told, "{trouble:?}"));
        life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None));
    }
}

/// A caller that does not repeat the removal, but goes on, has an account that balances as well.
#[test]
fn a_removal_that_is_not_repeated_is_booked_once() {
    for trouble in [Trouble::LogStalls, Trouble::LogFails] {
        let life = Plan::new().impatient().create();
        life.ready_persisted(EVENT);
        trouble.begin(&life);
        unknown(life.remove(EVENT, 0), "remove");
        life.answer_again();
        life.tick();
        let token = life.lease(EVENT);
        life.eventually_ok("the verdict", |life| life.reject(EVENT, &token));
        let told = life.told();
        life.in_lives_with_hot(|life| assert_eq!(life.told(), told, "{trouble:?}"));
        assert_eq!(life.ledger().offered.fragments, 2, "{told}");
    }
}

/// Update after update beside a device that is in trouble: each is a version, none is lost or booked twice.
#[test]
fn updates_of_a_persisted_fragment_in_trouble_are_each_booked_once() {
    for trouble in [Trouble::LogStalls, Trouble::LogFails] {
        let life = Plan::new().impatient().create();
        life.ready_persisted(EVENT);
        trouble.begin(&life);
        for version in 1..4 {
            unknown(life.update(EVENT, 0, version, None), "update");
            assert_eq!(life.version(EVENT, 0), Some(version), "{trouble:?}: it is decided");
        }
        assert_eq!(life.ledger().superseded.fragments, 3);
        let told = life.told();
        life.in_lives_with_hot(|life| assert_eq!(life.told(), told, "{trouble:?}"));
        life.answer_again();
        let last = life.eventually_ok("the last update, repeated", |life| life.update(EVENT, 0, 3, None));
        assert_eq!((last, life.told()), (3, told), "{trouble:?}: the repeat is booked");
        life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(3), "{trouble:?}"));
    }
}

/// The hot level is full as well: every later life finds what a verdict answered then, and none is refused.
#[test]
fn verdicts_beside_devices_in_trouble_and_a_full_hot_level_are_what_they_answer() {
    const EARLY: u64 = 1024;
    const WARM: u64 = EARLY + 512;
    let mut plan = Plan::new().impatient().all_down().devices(2);
    (plan.region_bytes, plan.device_bytes) = (512 << 10, 2 << 20);
    plan.config.put_deadline = Duration::ZERO;
    plan.config.container_bytes = 256 << 10;
    plan.keyspace.run.completeness = Completeness::Count(1);
    let life = plan.create();
    for event in 0..WARM {
        life.put(event, 0);
        if event % 128 == 127 {
            life.tick();
        }
    }
    life.tick();
    let tokens: Vec<Token> = (0..WARM).map(|event| life.lease(event)).collect();
    life.devices[0].refuse_writes("");
    // Ready events take what is left of the hot level, then what comes late for them.
    assert!((WARM..).any(|event| life.try_put(event, 0, false).is_err()));
    assert!((1..).any(|source| life.try_put(WARM, source, false).is_err()));
    // Outputs of streams, each another, take what is left for the log; rejects follow.
    let judge = |life: &Life, event: u64| {
        let token = &tokens[event as usize];
        if event.is_multiple_of(2) || event >= EARLY {
            return life.reject(event, token);
        }
        let sources = Sources::only(life.schema(), (0..60).map(|source| event * 1000 + source)).unwrap();
        life.accept_into(&life.name(event), token, &Accept { streams: &[("main", sources)], results: &[] })
    };
    let mut answers = Vec::new();
    (0..EARLY).for_each(|event| answers.push((event, judge(&life, event))));
    // The log of the other device takes decisions, and does not make them durable.
    life.devices[1].stall_writes("", DAY);
    (EARLY..WARM).step_by(24).for_each(|event| answers.push((event, judge(&life, event))));
    let states = |life: &Life| {
        let state = |event: &u64| life.find(*event).map(|found| found.state == LiveState::Accepted);
        answers.iter().map(|(event, _)| event).map(state).collect::<Vec<_>>()
    };
    let decided = states(&life);
    for ((event, answer), state) in answers.iter().zip(&decided) {
        let undone = answer.as_ref().is_err_and(|error| error.kind() == Kind::Full);
        assert_eq!(*state == Some(false), undone, "event {event} answered {answer:?}");
    }
    let is_full = |error: &forebay_store::core::Error| error.kind() == Kind::Full;
    assert!(answers.iter().any(|(_, answer)| answer.as_ref().is_err_and(is_full)), "the log was never full");
    let ledger = life.ledger();
    let next = life.after_kill();
    let found = states(&next);
    let wrong: Vec<_> = answers.iter().zip(decided.iter().zip(&found)).filter(|(_, (was, is))| was != is).collect();
    assert!(wrong.is_empty(), "other than answered: {wrong:?}");
    assert_eq!((next.ledger().rejected, next.ledger().stored), (ledger.rejected, ledger.stored));
    next.balanced();
    let refused = answers.iter().filter(|(event, answer)| {
        let accept = event % 2 == 1 && *event < EARLY;
        !accept && answer.as_ref().is_err_and(|error| error.kind() != Kind::OutcomeUnknown)
    });
    assert_eq!(refused.count(), 0, "rejects need no space: {:?}", answers.last());
    life.answer_again();
    for (event, answer) in &answers {
        let full = answer.as_ref().is_err_and(|error| error.kind() == Kind::Full);
        if !full {
            life.eventually_ok("the repeated verdict", |life| judge(life, *event));
        }
    }
    let left = states(&life.after_loss_of_hot(0));
    let same = |(was, is): (&Option<bool>, &Option<bool>)| *was == Some(false) || was == is;
    assert!(decided.iter().zip(&left).all(same), "other than decided once the repeats succeeded");
}
