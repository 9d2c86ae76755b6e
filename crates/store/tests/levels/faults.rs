//! Devices that fail in every way: what was acknowledged is there or is named, what cannot be done is said, and the ledger
//! balances.

use super::{events_of, two_levels};
use crate::common::fixture::RUN;
use crate::common::{TempDir, eventually, key, payload};
use forebay_store::core::{Error, Kind, Level, LiveState, ManualTime, Primary};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Sources, Store, WarmDevice};
use forebay_testkit::media::{Fault, FaultyDevice, Operation, SimDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MOST: usize = 6000;
const DEVICE_BYTES: u64 = 2 << 20;
const STALL: Duration = Duration::from_millis(40);

/// A store over faulty devices.
struct Setup {
    dir: TempDir,
    devices: Vec<Arc<FaultyDevice>>,
    config: Config,
}

impl Setup {
    fn new(devices: usize) -> Setup {
        let dir = TempDir::new();
        let make = |at| FaultyDevice::new(SimDevice::new(&format!("device-{at}"), 2 * DEVICE_BYTES));
        let devices: Vec<_> = (0..devices).map(make).collect();
        let config = Config {
            demote_high: 0.001,
            demote_low: 0.0,
            device_stall: STALL,
            persist_delay: Duration::ZERO,
            container_bytes: 128 << 10,
            warm: devices.iter().map(|device| WarmDevice::device(device.clone(), DEVICE_BYTES)).collect(),
            ..two_levels(dir.path(), 0)
        };
        Setup { dir, devices, config }
    }

    fn create(&self) -> Store {
        Store::create(&self.dir.store(), &events_of(2), self.config.clone()).unwrap()
    }

    fn open(&self) -> Store {
        Store::open(&self.dir.store(), self.config.clone()).unwrap()
    }
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

fn bytes(event: u64, source: u64) -> Vec<u8> {
    payload(&key(RUN, event, source), event * 16 + source, MOST)
}

/// What callers were told.
#[derive(Default)]
struct Told {
    stored: BTreeSet<(u64, u64)>,
    /// By event: accepted or not; `None` where the outcome is not known.
    decided: BTreeMap<u64, Option<bool>>,
    released: BTreeMap<u64, bool>,
    failed: Vec<Error>,
}

impl Told {
    /// An answer that a failing device may cause.
    #[track_caller]
    fn may_fail(&mut self, error: Error) {
        let kinds = [Kind::Unavailable, Kind::OutcomeUnknown, Kind::Full];
        assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
        self.failed.push(error);
    }

    fn put(&mut self, store: &Store, event: u64, source: u64, persisted: bool) {
        let options = PutOptions { persisted, ..PutOptions::default() };
        match store.put(&key(RUN, event, source), &bytes(event, source), &options) {
            Ok(PutOutcome::Late) => panic!("{event}/{source} came late"),
            Ok(_) => _ = self.stored.insert((event, source)),
            Err(error) => {
                assert!(persisted, "a put to the hot level needs no device: {error}");
                self.may_fail(error);
            }
        }
    }

    /// Two fragments of each of these events, the first of them perhaps persisted.
    fn pairs(&mut self, store: &Store, events: Range<u64>, persisted: bool) {
        for event in events {
            self.put(store, event, 0, persisted);
            self.put(store, event, 1, false);
        }
    }

    /// A life of 24 events from `first` on, some persisted, demoted, leased, decided, released.
    fn work(&mut self, store: &Store, first: u64) {
        for event in first..first + 24 {
            for source in 0..2 {
                self.put(store, event, source, event % 6 == 0);
            }
            if event % 8 == 7 {
                store.tick();
            }
        }
        store.tick();
        match store.get_any(&GetAny { n: 16, ..GetAny::default() }) {
            Err(error) => self.may_fail(error),
            Ok(leases) => {
                for lease in leases {
                    let event = store.schema().values(lease.primary.as_bytes())[1];
                    for fragment in &lease.fragments {
                        let source = store.schema().values(fragment.key().as_bytes())[2];
                        assert_eq!(fragment.to_vec(), bytes(event, source), "{event}/{source}");
                    }
                    let accept = event.is_multiple_of(2);
                    let verdict = if accept { lease.accept(&["main"]) } else { lease.reject() };
                    let known = verdict.is_ok().then_some(accept);
                    self.decided.insert(event, known);
                    if let Err(error) = verdict {
                        self.may_fail(error);
                    }
                }
            }
        }
        store.tick();
        let accepted: Vec<u64> = self.decided.iter().filter(|(_, how)| **how == Some(true)).map(|(e, _)| *e).collect();
        let there: Vec<u64> = accepted.into_iter().filter(|event| !self.released.contains_key(event)).collect();
        for event in there.into_iter().filter(|event| event % 4 == 0) {
            match store.release(&primary(store, event)) {
                Ok(done) => _ = self.released.insert(event, done),
                Err(error) => {
                    self.may_fail(error);
                    self.decided.insert(event, None);
                }
            }
        }
        store.tick();
    }

    /// Everything is as it was answered. `healthy`: a read that fails is a loss.
    fn check(&self, store: &Store, what: &str, healthy: bool) {
        for &(event, source) in &self.stored {
            let name = key(RUN, event, source);
            let how = self.decided.get(&event);
            let gone = how == Some(&Some(false)) || self.released.get(&event) == Some(&true);
            match store.get(&name) {
                Ok(Some(fragment)) => {
                    assert!(!gone, "{what}: {event}/{source} is back");
                    assert_eq!(fragment.to_vec(), bytes(event, source), "{what}: {event}/{source}");
                }
                Ok(None) => assert!(gone || how == Some(&None), "{what}: {event}/{source} is not there, {how:?}"),
                Err(error) => {
                    assert!(!healthy && error.kind() == Kind::Unavailable, "{what}: {event}/{source}: {error}")
                }
            }
        }
        if healthy {
            for (event, _) in self.decided.iter().filter(|(_, how)| **how == Some(true)) {
                let found = store.get_event(&primary(store, *event), &Sources::None).unwrap();
                let expected = if self.released.get(event) == Some(&true) { None } else { Some(LiveState::Accepted) };
                assert_eq!(found.map(|event| event.state), expected, "{what}: event {event}");
            }
        }
        balanced(store, what);
    }
}

fn balanced(store: &Store, what: &str) {
    for run in store.runs() {
        assert_eq!(run.ledger.imbalance(), None, "{what}: {:?}", run.ledger);
    }
}

/// Operations of one kind that a life without faults makes once the store is there.
fn counts(operation: Operation) -> (u64, u64) {
    let setup = Setup::new(1);
    let store = setup.create();
    let before = setup.devices[0].count(operation);
    Told::default().work(&store, 0);
    (before, setup.devices[0].count(operation))
}

/// One life with a fault at each operation of a kind in turn, and another life after it, without; `devices` of them.
fn each_in_turn(operation: Operation, fault: Fault, devices: usize) {
    let (before, after) = counts(operation);
    assert!(after > before + 5, "{operation:?}: {before} to {after}");
    let mut failed = 0;
    for nth in before + 1..=after {
        let what = format!("{operation:?} {nth} {fault:?}");
        let setup = Setup::new(devices);
        let store = setup.create();
        setup.devices[0].inject(Some(operation), nth, fault);
        let mut told = Told::default();
        told.work(&store, 0);
        told.check(&store, &what, false);
        setup.devices[0].heal();
        // It goes on, no matter what failed.
        told.work(&store, 100);
        told.check(&store, &what, true);
        failed += told.failed.len() + store.warm_stats().unwrap().notes.len();
        for run in store.runs() {
            assert_eq!(run.ledger.lost, Default::default(), "{what}: {:?}", store.losses());
        }
        let closed = store.close();
        drop(store);
        let store = setup.open();
        told.check(&store, &format!("{what}, reopened ({closed:?})"), true);
        told.work(&store, 200);
        told.check(&store, &format!("{what}, reopened"), true);
    }
    assert!(failed > 0 || matches!(fault, Fault::Short | Fault::Stalls(_)), "{operation:?} {fault:?} harmed nothing");
}

#[test]
fn a_failed_write_loses_nothing() {
    each_in_turn(Operation::Write, Fault::Fails, 1);
}

#[test]
fn a_failed_write_loses_nothing_on_two_devices() {
    each_in_turn(Operation::Write, Fault::Fails, 2);
}

#[test]
fn a_short_write_is_completed() {
    each_in_turn(Operation::Write, Fault::Short, 1);
}

#[test]
fn a_write_without_space_loses_nothing() {
    each_in_turn(Operation::Write, Fault::Full, 1);
}

#[test]
fn a_failed_sync_loses_nothing() {
    each_in_turn(Operation::Sync, Fault::Fails, 1);
}

#[test]
fn a_failed_read_is_an_answer_and_the_next_one_reads() {
    each_in_turn(Operation::Read, Fault::Fails, 1);
}

#[test]
fn a_short_read_is_completed() {
    each_in_turn(Operation::Read, Fault::Short, 1);
}

/// A device that lies: it says that it wrote, and wrote something else, or somewhere else. Nobody can know before the
/// bytes are read, but then nobody gets wrong ones.
#[test]
fn lies_about_writes_are_found_when_the_bytes_are_read() {
    let (before, after) = counts(Operation::Write);
    let mut found = 0;
    for nth in before + 1..=after {
        for fault in [Fault::Torn(nth), Fault::Misdirected(3)] {
            let what = format!("write {nth} {fault:?}");
            let setup = Setup::new(1);
            let store = setup.create();
            setup.devices[0].inject(Some(Operation::Write), nth, fault);
            for event in 0..24 {
                for source in 0..2 {
                    let options = PutOptions { persisted: event % 6 == 0, ..PutOptions::default() };
                    let _ = store.put(&key(RUN, event, source), &bytes(event, source), &options).unwrap();
                }
            }
            store.tick();
            for event in 0..24 {
                for source in 0..2 {
                    match store.get(&key(RUN, event, source)) {
                        Ok(Some(fragment)) => assert_eq!(fragment.to_vec(), bytes(event, source), "{what}"),
                        Ok(None) => panic!("{what}: {event}/{source} is not there, and nobody says why"),
                        Err(error) => {
                            assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unavailable), "{what}: {error}");
                            found += 1;
                        }
                    }
                }
            }
            balanced(&store, &what);
            let _ = store.close();
            drop(store);
            // What is wrong is named; with consent the rest is served.
            let config = Config { accept_loss: true, ..setup.config.clone() };
            match Store::open(&setup.dir.store(), setup.config.clone()) {
                Ok(_) => {}
                Err(error) => assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unavailable), "{what}: {error}"),
            }
            let store = Store::open(&setup.dir.store(), config).unwrap_or_else(|error| panic!("{what}: {error}"));
            for event in 0..24 {
                for source in 0..2 {
                    match store.get(&key(RUN, event, source)) {
                        Ok(Some(fragment)) => assert_eq!(fragment.to_vec(), bytes(event, source), "{what}, reopened"),
                        Ok(None) => {
                            // The last extent may never have been acknowledged, as far as an opening can know.
                            let said = !store.losses().is_empty() || !store.warm_stats().unwrap().notes.is_empty();
                            assert!(said, "{what}: {event}/{source} is gone without a word")
                        }
                        Err(error) => assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unavailable), "{error}"),
                    }
                }
            }
            balanced(&store, &format!("{what}, reopened"));
        }
    }
    assert!(found > 10, "only {found} fragments were harmed");
}

#[test]
fn no_space_at_any_step_of_creation_is_full_and_the_next_try_succeeds() {
    let count = {
        let setup = Setup::new(1);
        drop(setup.create());
        setup.devices[0].count(Operation::Create)
    };
    assert!(count > 10, "{count}");
    for operation in [Operation::Create, Operation::Write] {
        for nth in 1..=count {
            let setup = Setup::new(1);
            setup.devices[0].inject(Some(operation), nth, Fault::Full);
            let Err(error) = Store::create(&setup.dir.store(), &events_of(2), setup.config.clone()) else {
                assert_eq!(operation, Operation::Write, "creation {nth} had no space");
                continue;
            };
            assert!(matches!(error.kind(), Kind::Full | Kind::Unavailable), "{operation:?} {nth}: {error}");
            assert!(error.to_string().contains("device"), "{error}");
            setup.devices[0].heal();
            let elsewhere = setup.dir.path().join("elsewhere");
            let store = Store::create(&elsewhere, &events_of(2), setup.config.clone());
            let store = store.unwrap_or_else(|error| panic!("after {operation:?} {nth}: {error}"));
            let mut told = Told::default();
            told.work(&store, 0);
            assert!(told.failed.is_empty());
        }
    }
}

/// A container in which a write failed is emptied into others, and what was in it is there.
#[test]
fn a_poisoned_container_is_rescued() {
    let setup = Setup::new(1);
    let store = setup.create();
    let mut told = Told::default();
    told.pairs(&store, 0..8, true);
    store.tick();
    let device = &setup.devices[0];
    device.inject(Some(Operation::Write), device.count(Operation::Write) + 1, Fault::Fails);
    told.pairs(&store, 8..16, false);
    store.tick();
    assert!(!store.warm_stats().unwrap().notes.is_empty());
    eventually(&store, "the poisoned container is emptied", || {
        let poisoned = store.containers().into_iter().filter(|container| container.state == "poisoned");
        let mut poisoned = poisoned.peekable();
        poisoned.peek().is_some() && poisoned.all(|container| container.live_fragments == 0)
    });
    for event in 0..16 {
        let fragment = store.get(&key(RUN, event, 0)).unwrap().unwrap();
        assert_eq!(fragment.level(), Level::Warm, "event {event}");
    }
    told.check(&store, "rescued", true);
    let used = store.containers().iter().filter(|container| container.state == "poisoned").count();
    assert_eq!(used, 1);
    store.close().unwrap();
    drop(store);
    let store = setup.open();
    told.check(&store, "reopened", true);
    // In the next life it is tried, and serves again.
    eventually(&store, "tried again", || store.containers().iter().all(|container| container.state != "poisoned"));
}

/// A device that refuses writes for a while costs some containers, not all, and its poisoned one is not read over and over.
#[test]
fn a_device_that_is_away_for_a_while_keeps_its_containers() {
    let mut setup = Setup::new(1);
    let time = Arc::new(ManualTime::default());
    setup.config.clock = time.clone();
    let store = setup.create();
    let mut told = Told::default();
    told.pairs(&store, 0..8, true);
    store.tick();
    let device = &setup.devices[0];
    device.refuse_writes("");
    told.pairs(&store, 8..16, false);
    let counts = || {
        let poisoned = store.containers().iter().filter(|container| container.state == "poisoned").count();
        (poisoned, device.count(Operation::Read))
    };
    (0..5).for_each(|_| store.tick());
    let before = counts();
    assert!((1..4).contains(&before.0), "{before:?}");
    (0..20).for_each(|_| store.tick());
    assert_eq!(counts(), before);
    // Each time it is tried costs one, later and later.
    for _ in 0..60 {
        time.advance(Duration::from_secs(1));
        store.tick();
    }
    assert!(counts().0 <= before.0 + 6, "{:?} after a minute", counts());
    device.heal();
    eventually(&store, "it takes data again", || {
        time.advance(Duration::from_secs(1));
        (0..16).all(|event| store.get(&key(RUN, event, 0)).unwrap().unwrap().level() == Level::Warm)
    });
    told.check(&store, "moved", true);
}

/// Nothing can be moved out of a container that has only copies of what the hot level has: the next one that failed is
/// emptied all the same.
#[test]
fn a_poisoned_container_of_copies_keeps_no_other_from_being_rescued() {
    let mut setup = Setup::new(1);
    // What is undecided stays on the hot level, what is accepted goes down.
    (setup.config.demote_high, setup.config.demote_low) = (0.5, 0.4);
    let store = setup.create();
    let device = &setup.devices[0];
    let put = |event: u64, persisted: bool| {
        for source in 0..2 {
            let options = PutOptions { persisted, ..PutOptions::default() };
            let _ = store.put(&key(RUN, event, source), &bytes(event, source), &options);
        }
    };
    let accept = |event: u64| {
        put(event, false);
        store.lease(&primary(&store, event), None).unwrap().expect("a ready event").accept(&["physics"]).unwrap();
        store.tick();
    };
    let poisoned = || -> Vec<u32> {
        let containers = store.containers().into_iter();
        containers.filter(|one| one.state == "poisoned").map(|one| one.live_fragments).collect()
    };
    let next_write_fails = || device.inject(Some(Operation::Write), device.count(Operation::Write) + 1, Fault::Fails);
    put(0, true);
    next_write_fails();
    put(1, true);
    eventually(&store, "the container of copies has failed", || poisoned() == [2]);
    accept(2);
    next_write_fails();
    accept(3);
    eventually(&store, "another one has failed and is emptied", || poisoned() == [2, 0]);
    for event in 0..4 {
        assert_eq!(store.get(&key(RUN, event, 1)).unwrap().unwrap().to_vec(), bytes(event, 1), "event {event}");
    }
}

/// What is in a container that failed, and cannot be read any more, is lost: by name, in the ledger, for good.
#[test]
fn what_cannot_be_rescued_is_lost_by_name() {
    let setup = Setup::new(1);
    let store = setup.create();
    let mut told = Told::default();
    for event in 0..8 {
        told.put(&store, event, 0, false);
        told.put(&store, event, 1, false);
    }
    store.tick();
    let container = store.containers().into_iter().find(|container| container.state == "filling").unwrap();
    let file = format!("container-{:06}.fb", container.container);
    let device = &setup.devices[0];
    // Payload of one event rots: the heads are in the first blocks of each extent.
    let middle = (8192 + (container.used_bytes - 8192) / 2) / 4096 * 4096;
    device.rot(&file, middle + 2000, 0x40).unwrap();
    let harmed: Vec<(u64, u64)> = told
        .stored
        .iter()
        .copied()
        .filter(|&(event, source)| {
            store.get(&key(RUN, event, source)).is_err_and(|error| error.kind() == Kind::Corrupt)
        })
        .collect();
    assert_eq!(harmed.len(), 1, "one flipped bit harms one fragment: {harmed:?}");
    device.inject(Some(Operation::Write), device.count(Operation::Write) + 1, Fault::Fails);
    told.put(&store, 20, 0, false);
    told.put(&store, 20, 1, false);
    store.tick();
    eventually(&store, "the poisoned container is emptied", || {
        store.containers().iter().any(|container| container.state == "poisoned" && container.live_fragments == 0)
    });
    let (event, source) = harmed[0];
    told.stored.remove(&harmed[0]);
    let name = store.schema().text(key(RUN, event, source).as_bytes());
    let check = |store: &Store, named: bool| {
        assert!(store.get(&key(RUN, event, source)).unwrap().is_none(), "it is gone");
        let ledger = store.ledger(RUN).unwrap();
        assert_eq!(ledger.imbalance(), None, "{ledger:?}");
        assert_eq!((ledger.lost.fragments, ledger.lost.bytes), (1, bytes(event, source).len() as u64));
        if named {
            assert!(store.losses().iter().any(|loss| loss.contains(&name)), "{name}: {:?}", store.losses());
        }
        told.check(store, "the others", true);
    };
    check(&store, true);
    store.close().unwrap();
    drop(store);
    let store = setup.open();
    check(&store, false);
    let lease = store.lease(&primary(&store, event), None).unwrap().expect("what is left of it is selected");
    assert_eq!(lease.fragments.len(), 1);
    lease.reject().unwrap();
    balanced(&store, "decided");
}

#[test]
fn a_stalled_device_is_named_and_the_hot_level_goes_on() {
    let setup = Setup::new(1);
    let store = setup.create();
    let mut told = Told::default();
    told.work(&store, 0);
    let device = &setup.devices[0];
    device.stall(Duration::from_secs(60));
    let began = Instant::now();
    for event in 100..110 {
        told.put(&store, event, 0, false);
        told.put(&store, event, 1, false);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "puts to the hot level wait for no device");
    told.put(&store, 110, 0, true);
    assert!(told.failed.iter().any(|error| error.kind() == Kind::Unavailable), "{:?}", told.failed);
    assert!(began.elapsed() < Duration::from_secs(40), "a persisted put waits for the device's patience");
    let stats = store.warm_stats().unwrap();
    assert!(stats.devices[0].stalled, "{stats:?}");
    let lease = store.get_any(&GetAny { n: 1, level: Some(Level::Hot), ..GetAny::default() });
    let lease = lease.unwrap().pop().expect("an event of the hot level");
    let event = store.schema().values(lease.primary.as_bytes())[1];
    lease.reject().unwrap();
    told.decided.insert(event, Some(false));
    drop(lease);
    balanced(&store, "stalled");
    device.stall(Duration::ZERO);
    told.stored.insert((110, 0));
    told.put(&store, 110, 0, true);
    told.put(&store, 110, 1, true);
    eventually(&store, "the device answers again", || !store.warm_stats().unwrap().devices[0].stalled);
    told.work(&store, 200);
    told.check(&store, "after the stall", true);
    store.close().unwrap();
    drop(store);
    told.check(&setup.open(), "reopened", true);
}

#[test]
fn a_stall_at_any_write_loses_nothing() {
    let (before, after) = counts(Operation::Write);
    for nth in (before + 1..=after).step_by(4) {
        let what = format!("stall at write {nth}");
        let setup = Setup::new(1);
        let store = setup.create();
        setup.devices[0].inject(Some(Operation::Write), nth, Fault::Stalls(STALL * 12));
        let mut told = Told::default();
        told.work(&store, 0);
        std::thread::sleep(STALL * 12);
        store.tick();
        told.check(&store, &what, true);
        told.work(&store, 100);
        told.check(&store, &what, true);
        let _ = store.close();
        drop(store);
        told.check(&setup.open(), &format!("{what}, reopened"), true);
    }
}

#[test]
fn a_device_that_vanishes_takes_only_what_stood_on_it() {
    let setup = Setup::new(2);
    let store = setup.create();
    let mut told = Told::default();
    told.work(&store, 0);
    setup.devices[0].vanish();
    let before = told.failed.len();
    for event in 100..130 {
        told.put(&store, event, 0, false);
        told.put(&store, event, 1, false);
    }
    for _ in 0..4 {
        store.tick();
    }
    told.check(&store, "vanished", false);
    for event in 100..130 {
        let fragment = store.get(&key(RUN, event, 0)).unwrap().unwrap();
        assert_eq!(fragment.to_vec(), bytes(event, 0));
    }
    assert!(
        (100..130).any(|event| { store.get(&key(RUN, event, 0)).unwrap().unwrap().level() == Level::Warm }),
        "demotion goes on to the other device: {:?}",
        store.warm_stats().unwrap().notes
    );
    // Verdicts are in force, also where a device that is gone may have something of the event.
    for event in 100..130 {
        let lease = store.lease(&primary(&store, event), None).unwrap().expect("a ready event");
        match lease.reject() {
            Ok(()) => _ = told.decided.insert(event, Some(false)),
            Err(error) => {
                told.may_fail(error);
                if let Err(error) = lease.reject() {
                    told.may_fail(error);
                }
                told.decided.insert(event, Some(false));
            }
        }
    }
    told.put(&store, 200, 0, true);
    told.check(&store, "vanished and decided", false);
    assert!(before == 0, "{:?}", told.failed);
    assert!(!store.warm_stats().unwrap().notes.is_empty());
}
