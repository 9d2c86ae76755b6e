//! A device that does not answer delays no call that has nothing to do with it. Every call here ends while the device
//! still stalls: what is asserted is an order, not a time.

use crate::common::fixture::RUN;
use crate::common::key;
use crate::decisions::life::{LEASE, Life, Plan, WITHIN, bytes, until};
use forebay_store::core::{Completeness, Level, LiveState, Result, Token};
use forebay_store::{GetAny, PutOptions, PutOutcome, RunState, Sources, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Neighbouring events share a shard; this many blocks of them meet every shard.
const BLOCK: u64 = 64;
const BLOCKS: u64 = 128;

/// Events that are on the device, one in each of some blocks.
fn warm_events() -> impl Iterator<Item = u64> {
    (0..BLOCKS / 4).map(|block| block * BLOCK)
}

/// Events of the hot level are put, read, leased and rejected, in every shard, and the store is looked at.
fn others(store: &Store) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let turn = NEXT.fetch_add(1, Ordering::Relaxed) % (BLOCK - 1) + 1;
    for block in 0..BLOCKS {
        let event = block * BLOCK + turn;
        let name = store.schema().primary(&[RUN, event]).unwrap();
        for source in 0..2 {
            let outcome = store.put(&key(RUN, event, source), &bytes(event, source, 0), &PutOptions::default());
            assert_eq!(outcome.unwrap(), PutOutcome::Stored, "{event}/{source}");
        }
        let lease = store.lease(&name, None).unwrap().expect("a ready event");
        match block % 3 {
            0 => lease.reject().unwrap(),
            1 => lease.accept(&["main"]).unwrap(),
            _ => lease.pass("final", &[]).unwrap(),
        }
        if block % 3 != 0 {
            assert!(store.remove_event(&name).unwrap());
        }
    }
    let any = GetAny { level: Some(Level::Hot), n: 4, ..GetAny::default() };
    store.get_any(&any).unwrap().into_iter().for_each(|lease| lease.requeue().unwrap());
    assert_eq!(store.ledger(RUN).unwrap().imbalance(), None);
    let _ = (store.runs(), store.stats(), store.holds(), store.debug_events(), store.sources(RUN).unwrap());
}

/// An event of the hot level is accepted and goes: its stream is known from now on.
fn name_the_stream(life: &Life) {
    let event = BLOCKS * BLOCK;
    if life.try_put(event, 0, false).unwrap() == PutOutcome::Stored {
        life.put(event, 1);
        life.accept(event, &life.lease(event)).unwrap();
        assert!(life.remove_event(&life.name(event)).unwrap());
    }
}

/// The call waits for the device, or not; meanwhile others go on.
#[track_caller]
fn hinders_nobody<T: Send>(life: &Life, what: &str, call: impl FnOnce(&Store) -> T + Send) -> T {
    name_the_stream(life);
    life.stall();
    std::thread::scope(|scope| {
        let store = &life.store;
        let calling = scope.spawn(move || call(store));
        // Until it is where it waits, as far as it waits.
        let mut looks = 0;
        while !calling.is_finished() && life.devices.iter().all(|device| device.waiting() == 0) && looks < 300 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            looks += 1;
        }
        life.unhindered(&format!("what has nothing to do with it, beside {what},"), others);
        life.answer_again();
        until("the call does not end", || calling.is_finished());
        calling.join().unwrap()
    })
}

/// Ready events on the device, leased as the call wants it.
fn warm(plan: Plan) -> Life {
    let life = plan.all_down().create();
    for event in warm_events() {
        life.ready(event);
    }
    life.tick();
    assert!(warm_events().all(|event| life.level(event, 0) == Level::Warm));
    life
}

#[test]
fn a_put_to_a_new_run_waits_for_no_device() {
    let life = Plan::new().create();
    life.stall();
    let outcome =
        life.unhindered("a put to a new run", |store| store.put(&key(7, 1, 0), &[1; 100], &PutOptions::default()));
    assert_eq!(outcome.unwrap(), PutOutcome::Stored);
    life.answer_again();
    life.tick();
    life.in_lives_with_hot(|life| {
        assert!(life.get(&key(7, 1, 0)).unwrap().is_some());
        assert!(life.runs().iter().any(|run| run.run == 7 && run.state == RunState::Open));
    });
}

/// Runs are known without the hot level where anything of them is on a device, also when they began beside a stall.
#[test]
fn a_run_that_began_beside_a_stalled_device_is_known_where_its_data_is() {
    let life = Plan::new().create();
    life.stall();
    let _ = life.unhindered("a put to a new run", |store| store.put(&key(7, 1, 0), &[1; 100], &PutOptions::default()));
    life.answer_again();
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    assert_eq!(life.store.put(&key(7, 2, 0), &[2; 100], &options).unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, _| assert_eq!(life.get(&key(7, 2, 0)).unwrap().unwrap().to_vec(), [2; 100]));
}

#[test]
fn put_now_to_a_new_run_waits_for_no_device() {
    let life = Plan::new().create();
    life.stall();
    let put = |store: &Store| store.try_put(&key(7, 1, 0), &[1; 100], &PutOptions::default(), None);
    let outcome = life.unhindered("try_put to a new run", put).unwrap();
    assert!(matches!(outcome, None | Some(PutOutcome::Stored)), "{outcome:?}");
    let reserve = |store: &Store| store.try_reserve(&key(8, 1, 0), 100, &PutOptions::default()).map(drop);
    life.unhindered("try_reserve to a new run", reserve).unwrap();
}

#[test]
fn a_put_in_the_shard_of_a_warm_lease_that_runs_out_waits_for_no_device() {
    let life = warm(Plan::new().one_delivery());
    warm_events().for_each(|event| _ = life.lease(event));
    life.advance(2 * LEASE);
    hinders_nobody(&life, "a round in which warm leases run out", |store| store.tick());
    life.tick();
    life.in_lives_with_hot(|life| {
        assert!(warm_events().all(|event| life.state(event) == Some(LiveState::Debug)));
    });
}

/// Threads of the store go on as well: events of the hot level become ready by time, leases of theirs run out.
#[test]
fn time_goes_on_for_the_hot_level_beside_a_stalled_device() {
    let mut plan = Plan::new().one_delivery();
    plan.config.maintenance = true;
    let life = plan.all_down().create();
    warm_events().for_each(|event| life.ready(event));
    until("demotion does not end", || warm_events().all(|event| life.level(event, 0) == Level::Warm));
    warm_events().for_each(|event| _ = life.lease(event));
    life.stall();
    (0..BLOCKS).for_each(|block| life.put(block * BLOCK + 5, 0));
    life.advance(2 * WITHIN);
    life.unhindered("an event that becomes ready by time", |store| {
        for block in 0..BLOCKS {
            let name = store.schema().primary(&[RUN, block * BLOCK + 5]).unwrap();
            let state = || store.get_event(&name, &Sources::None).unwrap().map(|event| event.state);
            until("it is not ready", || state() == Some(LiveState::Ready));
        }
    });
}

/// Enough decisions about events of the hot level for its log to take several snapshots.
#[test]
fn decisions_about_the_hot_level_wait_for_no_device_when_the_log_takes_a_snapshot() {
    let mut plan = Plan::new();
    plan.keyspace.run.completeness = Completeness::Count(1);
    let life = plan.create();
    life.persist(1 << 20, 0);
    life.stall();
    life.unhindered("leases and rejects of events of the hot level", |store| {
        for event in 0..5000 {
            let put = store.put(&key(RUN, event, 0), &[7; 64], &PutOptions::default());
            assert_eq!(put.unwrap(), PutOutcome::Stored);
            let name = store.schema().primary(&[RUN, event]).unwrap();
            store.lease(&name, None).unwrap().expect("a ready event").reject().unwrap();
        }
    });
    life.answer_again();
    assert_eq!(life.ledger().rejected.fragments, 5000);
    life.in_lives_with_hot(|life| assert_eq!(life.ledger().rejected.fragments, 5000));
}

/// A call about one event on the device, which is leased or not.
fn about_a_warm_event(what: &str, leased: bool, call: impl Fn(&Life, u64, Option<&Token>) -> Result<()> + Sync) {
    let life = warm(Plan::new());
    let event = warm_events().next().unwrap();
    let token = leased.then(|| life.lease(event));
    hinders_nobody(&life, what, |_| call(&life, event, token.as_ref())).unwrap();
    life.balanced();
}

#[test]
fn verdicts_about_a_warm_event_hinder_nobody() {
    about_a_warm_event("accept", true, |life, event, token| life.accept(event, token.unwrap()));
    about_a_warm_event("reject", true, |life, event, token| life.reject(event, token.unwrap()));
    about_a_warm_event("pass", true, |life, event, token| life.pass(event, token.unwrap()));
}

#[test]
fn an_update_of_a_warm_fragment_hinders_nobody() {
    about_a_warm_event("update", false, |life, event, _| life.update(event, 0, 1, None).map(drop));
}

#[test]
fn a_removal_on_the_warm_level_hinders_nobody() {
    about_a_warm_event("remove", false, |life, event, _| life.remove(event, 0).map(drop));
    about_a_warm_event("remove_event", false, |life, event, _| life.remove_event(&life.name(event)).map(drop));
}

/// The device is not asked for the fragment's length: it is persisted, and on the hot level too.
#[test]
fn an_update_of_a_persisted_fragment_hinders_nobody() {
    let life = Plan::new().create();
    warm_events().for_each(|event| life.ready_persisted(event));
    let event = warm_events().next().unwrap();
    hinders_nobody(&life, "update", |_| life.update(event, 0, 1, None)).unwrap();
    hinders_nobody(&life, "remove", |_| life.remove(event, 1)).unwrap();
    life.balanced();
}

#[test]
fn a_seal_of_an_emptied_warm_event_hinders_nobody() {
    let life = Plan::new().create();
    life.persist(0, 0);
    assert!(life.remove(0, 0).unwrap());
    hinders_nobody(&life, "seal", |store| store.seal(&store.schema().primary(&[RUN, 0]).unwrap())).unwrap();
    life.balanced();
}

#[test]
fn a_replay_of_a_warm_event_hinders_nobody() {
    let life = warm(Plan::new().one_delivery());
    let event = warm_events().next().unwrap();
    let _ = life.lease(event);
    life.advance(2 * LEASE);
    life.tick();
    assert_eq!(life.state(event), Some(LiveState::Debug));
    assert!(hinders_nobody(&life, "replay", |_| life.replay(&life.name(event))).unwrap());
}

#[test]
fn a_read_of_the_warm_level_hinders_nobody() {
    let life = warm(Plan::new());
    hinders_nobody(&life, "get", |store| store.get(&key(RUN, 0, 0))).unwrap();
    hinders_nobody(&life, "get_any", |store| {
        let any = GetAny { level: Some(Level::Warm), n: 4, ..GetAny::default() };
        store.get_any(&any).map(|leases| leases.len())
    })
    .unwrap();
}

#[test]
fn a_persisted_put_hinders_nobody() {
    let life = Plan::new().create();
    life.put(0, 0);
    let put = hinders_nobody(&life, "a persisted put", |_| life.try_put(0, 1, true));
    assert_eq!(put.unwrap(), PutOutcome::Stored);
}

#[test]
fn a_round_of_demotion_hinders_nobody() {
    let life = Plan::new().all_down().create();
    warm_events().for_each(|event| life.ready(event));
    hinders_nobody(&life, "a round of demotion", |store| store.tick());
}

/// A call of run control may wait, or say that it does not know; the repeat succeeds, and nobody waited for it.
fn run_control(what: &str, call: impl Fn(&Store) -> Result<()> + Sync, holds: impl Fn(&Life) -> bool) {
    let life = Plan::new().create();
    life.ready(0);
    life.persist(BLOCK, 0);
    let first = hinders_nobody(&life, what, &call);
    if first.is_err() {
        crate::decisions::life::unknown(first, what);
        life.eventually_ok(what, |life| call(&life.store));
    }
    life.in_lives_with_hot(|life| assert!(holds(life), "{what} is not in force"));
}

#[test]
fn a_mask_hinders_nobody() {
    let masked = |life: &Life| life.runs().iter().any(|run| run.run == RUN && !run.masked.is_empty());
    run_control("mask", |store| store.mask(RUN, &store.schema().source(&[9]).unwrap(), None), masked);
    run_control(
        "unmask",
        |store| {
            let source = store.schema().source(&[9]).unwrap();
            store.mask(RUN, &source, None)?;
            store.unmask(RUN, &source, None)
        },
        |life| !masked(life),
    );
}

#[test]
fn a_hold_hinders_nobody() {
    let life = Plan::new().create();
    life.persist(BLOCK, 0);
    // A hold of another run: what is done beside it is not held.
    let id = hinders_nobody(&life, "hold", |store| store.hold(Some(9), &[]));
    let id = id.unwrap_or_else(|error| {
        assert_eq!(error.kind(), forebay_store::core::Kind::OutcomeUnknown, "{error}");
        life.holds().first().expect("the hold is in force").id
    });
    life.in_lives_with_hot(|life| assert_eq!(life.holds().len(), 1));
    let _ = hinders_nobody(&life, "release_hold", |store| store.release_hold(id));
    life.in_lives_with_hot(|life| assert_eq!(life.holds().len(), 0));
}

#[test]
fn opening_pausing_and_stopping_a_run_hinders_nobody() {
    let state = |life: &Life, state: RunState| life.runs().iter().any(|run| run.run == 7 && run.state == state);
    let open = |store: &Store| store.run_open(7, &store.keyspace().run.clone());
    run_control("run_open", open, |life| state(life, RunState::Open));
    let pause = |store: &Store| open(store).and_then(|()| store.run_pause(7));
    run_control("run_pause", pause, |life| state(life, RunState::Paused));
    let stop = |store: &Store| match store.runs().iter().find(|run| run.run == 7) {
        None => open(store).and_then(|()| store.run_stop(7)),
        Some(_) => store.run_stop(7),
    };
    run_control("run_stop", stop, |life| state(life, RunState::Stopped));
}

#[test]
fn closing_a_run_hinders_nobody() {
    let life = Plan::new().create();
    life.store.run_open(7, &life.keyspace().run.clone()).unwrap();
    let _ = hinders_nobody(&life, "run_close", |store| store.run_close(7).map(drop));
    let closed = |life: &Life| life.runs().iter().any(|run| run.run == 7 && run.state == RunState::Closed);
    life.in_lives_with_hot(|life| assert!(closed(life)));
}

/// Watchers are told, reports of producers are taken.
#[test]
fn a_producer_and_a_new_stream_wait_for_nobody() {
    let life = Plan::new().create();
    life.ready(0);
    life.persist(BLOCK, 0);
    let token = life.lease(0);
    let producer = life.producer(RUN, "board").unwrap();
    let reported = hinders_nobody(&life, "a producer's report", |_| producer.report().map_err(|error| error.kind()));
    assert!(matches!(reported, Ok(()) | Err(forebay_store::core::Kind::OutcomeUnknown)), "{reported:?}");
    life.stall();
    let accepted = life.unhindered("an accept of an event of the hot level into a new stream", |store| {
        store.accept(&store.schema().primary(&[RUN, 0]).unwrap(), &token, &["a stream of its own"])
    });
    accepted.unwrap();
}

/// Many threads at once beside a stall: each of them comes to its end.
#[test]
fn many_threads_go_on_beside_a_stalled_device() {
    let life = Arc::new(warm(Plan::new()));
    name_the_stream(&life);
    life.stall();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = warm_events()
            .take(8)
            .map(|event| {
                scope.spawn({
                    let life = life.clone();
                    move || life.remove_event(&life.name(event))
                })
            })
            .collect();
        life.until_somebody_waits();
        life.unhindered("four threads with events of the hot level", |store| {
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| others(store)))));
        });
        life.answer_again();
        for call in waiting {
            assert!(call.join().unwrap().unwrap());
        }
    });
    life.balanced();
}
