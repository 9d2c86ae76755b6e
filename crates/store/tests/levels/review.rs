//! What must hold at the seams between the levels: whichever container was begun first, whenever the process is killed,
//! even if a device refuses something for a moment.

use super::{all_down, create, events_of, two_levels};
use crate::common::{TempDir, assert_balanced, key, put, refused, sealed_events};
use forebay_store::core::{AttributeSchema, Attributes, Key, Keyspace, Kind, Level, LiveState, Primary};
use forebay_store::{
    Accept, Config, DirectoryDevice, GetAny, IoMethod, PutOptions, PutOutcome, ResultFragment, Sources, Store,
    WarmDevice,
};
use forebay_testkit::media::{Fault, FaultyDevice, Operation, SimDevice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const RUN: u64 = 1;
const BYTES: usize = 3000;

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

fn value(key: &Key, bytes: usize) -> Vec<u8> {
    vec![key.as_bytes()[key.as_bytes().len() - 1] ^ 0x5A; bytes]
}

fn stored(store: &Store, event: u64, source: u64) {
    let key = key(RUN, event, source);
    assert_eq!(put(store, &key, &value(&key, BYTES)).unwrap(), PutOutcome::Stored);
}

fn persisted(store: &Store, event: u64, source: u64, bytes: usize) -> forebay_store::core::Result<PutOutcome> {
    let key = key(RUN, event, source);
    store.put(&key, &value(&key, bytes), &PutOptions { persisted: true, ..PutOptions::default() })
}

fn complete(store: &Store, event: u64, sources: u64) {
    (0..sources).for_each(|source| stored(store, event, source));
}

fn accept(store: &Store, event: u64) {
    let lease = store.lease(&primary(store, event), None).unwrap().expect("a ready event");
    lease.accept(&["physics"]).unwrap();
}

fn state(store: &Store, event: u64) -> Option<LiveState> {
    store.get_event(&primary(store, event), &Sources::None).unwrap().map(|event| event.state)
}

fn level(store: &Store, event: u64, source: u64) -> Level {
    store.get(&key(RUN, event, source)).unwrap().expect("a fragment").level()
}

fn copy_files(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = file.file_name();
        if file.path().is_file() && wanted(name.to_str().unwrap()) {
            std::fs::copy(file.path(), to.join(name)).unwrap();
        }
    }
}

fn copy_hot(from: &TempDir, to: &TempDir) {
    copy_files(&from.store(), &to.store(), |name| ["keyspace.toml", "hot.fb"].contains(&name));
}

fn copy_warm(from: &TempDir, to: &TempDir) {
    copy_files(&from.path().join("warm-0"), &to.path().join("warm-0"), |_| true);
}

/// What a process that is killed now leaves.
fn killed(dir: &TempDir) -> TempDir {
    let left = TempDir::new();
    copy_hot(dir, &left);
    copy_warm(dir, &left);
    left
}

fn open(dir: &TempDir) -> Store {
    Store::open(&dir.store(), two_levels(dir.path(), 1)).unwrap()
}

fn reopen(store: Store, dir: &TempDir) -> Store {
    store.close().unwrap();
    drop(store);
    open(dir)
}

fn on(device: &Arc<FaultyDevice>, config: Config) -> Config {
    Config { warm: vec![WarmDevice::device(device.clone(), 5 << 20)], ..config }
}

fn faulty() -> Arc<FaultyDevice> {
    FaultyDevice::new(SimDevice::new("warm", 16 << 20))
}

fn spoil(device: &FaultyDevice, operation: Operation, from: u64, times: u64) {
    let so_far = device.count(operation);
    (from..from + times).for_each(|nth| device.inject(Some(operation), so_far + nth, Fault::Fails));
}

#[test]
fn an_accepted_event_stays_accepted_whichever_container_was_begun_first() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &all_down(dir.path()));
    complete(&store, 0, 2);
    accept(&store, 0);
    // The container of the stream is begun before that of undecided events.
    store.tick();
    complete(&store, 1, 2);
    complete(&store, 2, 2);
    store.tick();
    assert_eq!(level(&store, 1, 0), Level::Warm);
    accept(&store, 1);
    store.tick();
    let store = reopen(store, &dir);
    assert_eq!((state(&store, 1), state(&store, 2)), (Some(LiveState::Accepted), Some(LiveState::Ready)));
    assert!(store.release(&primary(&store, 0)).unwrap());
    store.tick();
    let store = reopen(store, &dir);
    assert_eq!((state(&store, 1), state(&store, 2)), (Some(LiveState::Accepted), Some(LiveState::Ready)));
    assert_balanced(&store);
}

/// The record of an event is in an image that was written early and has nothing else any more; its fragments are in one that
/// was written later, and nothing of it is on the hot level.
#[test]
fn an_event_keeps_its_record_where_the_image_with_it_has_nothing_else() {
    let dir = TempDir::new();
    let attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    let store = create(&dir, &Keyspace { attributes: attributes.clone(), ..events_of(2) }, &all_down(dir.path()));
    let lumi = Attributes::parse(&attributes, &["lumi=5"]).unwrap();
    let options = PutOptions { attributes: Some(&lumi), ..PutOptions::default() };
    assert_eq!(store.put(&key(RUN, 0, 0), &[1; BYTES], &options).unwrap(), PutOutcome::Stored);
    assert!(store.seal(&primary(&store, 0)).unwrap());
    store.tick();
    assert_eq!(level(&store, 0, 0), Level::Warm);
    store.close().unwrap();
    drop(store);
    let config = Config { flush_delay: Duration::ZERO, ..two_levels(dir.path(), 1) };
    let store = Store::open(&dir.store(), config).unwrap();
    let options = PutOptions { level: Some(Level::Warm), ..PutOptions::default() };
    assert_eq!(store.put(&key(RUN, 0, 1), &[2; BYTES], &options).unwrap(), PutOutcome::Stored);
    store.tick();
    assert_eq!(level(&store, 0, 1), Level::Warm);
    assert!(store.remove(&key(RUN, 0, 0)).unwrap());
    let attributes = |store: &Store| store.get_event(&primary(store, 0), &Sources::None).unwrap().unwrap().attributes;
    assert_eq!(attributes(&store), lumi);
    // Its container must stay, also in the life after the next one.
    let mut store = store;
    for life in 0..3 {
        store = reopen(store, &dir);
        assert_eq!(attributes(&store), lumi, "life {life}");
        store.tick();
    }
    assert!(store.remove_event(&primary(&store, 0)).unwrap());
    store.tick();
    assert!(store.containers().iter().all(|container| container.live_fragments == 0), "{:?}", store.containers());
    assert_balanced(&store);
}

#[test]
fn a_read_that_fails_once_loses_nothing() {
    for nth in 1..=8 {
        let (dir, device) = (TempDir::new(), faulty());
        let config = Config { warm_high: 0.02, warm_low: 0.01, ..on(&device, two_levels(dir.path(), 0)) };
        let store = create(&dir, &events_of(4), &config);
        for event in 0..50 {
            complete(&store, event, 4);
            accept(&store, event);
        }
        store.tick();
        for event in 0..16 {
            assert!(store.release(&primary(&store, event)).unwrap());
        }
        spoil(&device, Operation::Read, nth, 1);
        store.tick();
        device.heal();
        store.tick();
        assert_balanced(&store);
        for (event, source) in (16..50).flat_map(|event| (0..4).map(move |source| (event, source))) {
            let key = key(RUN, event, source);
            let found = store.get(&key).unwrap().unwrap_or_else(|| panic!("read {nth}: event {event} is lost"));
            assert_eq!(*found, value(&key, BYTES), "read {nth}");
        }
    }
}

#[test]
fn what_was_durable_before_the_kill_still_leaves_the_hot_level() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    for event in 0..10 {
        complete(&store, event, 2);
        accept(&store, event);
    }
    let left = TempDir::new();
    copy_hot(&dir, &left);
    // Written and durable; killed before any slot said so.
    store.tick();
    copy_warm(&dir, &left);
    let store = open(&left);
    store.tick();
    for event in 0..10 {
        assert_eq!(state(&store, event), Some(LiveState::Accepted));
        assert_eq!(level(&store, event, 0), Level::Warm, "event {event}");
    }
    assert_balanced(&store);
    let store = reopen(store, &left);
    assert_eq!(level(&store, 3, 1), Level::Warm);
    assert_balanced(&store);
}

#[test]
fn a_kill_between_the_snapshots_of_two_logs_books_nothing_twice() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    assert_eq!(persisted(&store, 0, 0, 1000).unwrap(), PutOutcome::Stored);
    store.update(&key(RUN, 0, 0), &[9; 500], None).unwrap();
    let before = store.ledger(RUN).unwrap();
    let logs = TempDir::new();
    copy_warm(&dir, &logs);
    // The hot log takes its snapshot first; the device's was still what it had been.
    store.close().unwrap();
    drop(store);
    copy_files(&logs.path().join("warm-0"), &dir.path().join("warm-0"), |name| name.starts_with("decisions"));
    let store = open(&dir);
    let after = store.ledger(RUN).unwrap();
    assert_eq!((after.superseded, after.stored), (before.superseded, before.stored));
    assert_balanced(&store);
}

#[test]
fn a_version_of_another_length_is_counted_with_its_own() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    assert_eq!(persisted(&store, 0, 0, 1000).unwrap(), PutOutcome::Stored);
    store.update(&key(RUN, 0, 0), &[9; 400], None).unwrap();
    stored(&store, 0, 1);
    accept(&store, 0);
    store.tick();
    let before = store.ledger(RUN).unwrap();
    let store = reopen(store, &dir);
    assert_eq!(*store.get(&key(RUN, 0, 0)).unwrap().unwrap(), [9_u8; 400]);
    assert_eq!(store.ledger(RUN).unwrap().live, before.live);
    assert!(store.remove(&key(RUN, 0, 0)).unwrap());
    assert_balanced(&store);
    assert_eq!(store.ledger(RUN).unwrap().live.accepted.bytes, BYTES as u64);
}

#[test]
fn ready_stays_ready_when_its_only_image_is_superseded() {
    let dir = TempDir::new();
    let store = create(&dir, &sealed_events(), &all_down(dir.path()));
    stored(&store, 0, 0);
    assert!(store.seal(&primary(&store, 0)).unwrap());
    store.tick();
    assert_eq!(level(&store, 0, 0), Level::Warm);
    store.update(&key(RUN, 0, 0), &[1; 10], None).unwrap();
    assert_eq!(state(&store, 0), Some(LiveState::Ready));
    let left = killed(&dir);
    let store = open(&left);
    assert_eq!(state(&store, 0), Some(LiveState::Ready));
    let left = killed(&left);
    drop(store);
    assert_eq!(state(&open(&left), 0), Some(LiveState::Ready));
}

#[test]
fn ready_stays_ready_when_a_fragment_is_persisted_and_another_replaced() {
    let dir = TempDir::new();
    let store = create(&dir, &sealed_events(), &two_levels(dir.path(), 1));
    stored(&store, 0, 0);
    assert!(store.seal(&primary(&store, 0)).unwrap());
    assert_eq!(persisted(&store, 0, 1, 100).unwrap(), PutOutcome::Stored);
    store.update(&key(RUN, 0, 0), &[1; 10], None).unwrap();
    let left = killed(&dir);
    assert_eq!(state(&open(&left), 0), Some(LiveState::Ready));
}

#[test]
fn a_late_fragment_makes_an_event_of_the_warm_level_one_of_both() {
    let dir = TempDir::new();
    let store = create(&dir, &sealed_events(), &all_down(dir.path()));
    for event in 0..2 {
        stored(&store, event, 0);
        assert!(store.seal(&primary(&store, event)).unwrap());
    }
    store.tick();
    stored(&store, 0, 1);
    stored(&store, 1, 1);
    let any = |level| store.get_any(&GetAny { n: 1, level: Some(level), ..GetAny::default() }).unwrap();
    assert!(any(Level::Warm).is_empty());
    let hot = any(Level::Hot);
    assert_eq!(hot.len(), 1, "a worker that asks for the hot level gets it");
    // The other one goes down again.
    store.tick();
    let other = 1 - store.schema().values(hot[0].primary.as_bytes())[1];
    assert_eq!(level(&store, other, 1), Level::Warm);
    assert_eq!(any(Level::Warm).len(), 1);
}

#[test]
fn an_opening_without_the_hot_level_can_be_cut_off() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    complete(&store, 0, 2);
    accept(&store, 0);
    store.tick();
    store.close().unwrap();
    drop(store);
    // The hot level was lost; the opening that made a new one was killed before it was a store.
    std::fs::write(dir.store().join("hot.fb"), vec![0; 4 << 20]).unwrap();
    let config = two_levels(dir.path(), 1);
    refused(Store::open(&dir.store(), config.clone()), Kind::Corrupt);
    let store = Store::open(&dir.store(), Config { accept_loss: true, ..config }).unwrap();
    assert_eq!(state(&store, 0), Some(LiveState::Accepted));
    assert_balanced(&store);
}

#[test]
fn a_commit_that_fails_leaves_nothing_live_behind() {
    let (dir, device) = (TempDir::new(), faulty());
    let store = create(&dir, &events_of(2), &on(&device, two_levels(dir.path(), 0)));
    spoil(&device, Operation::Sync, 1, 8);
    refused(persisted(&store, 0, 0, 1000), Kind::Unavailable);
    device.heal();
    assert_eq!(persisted(&store, 0, 0, 1000).unwrap(), PutOutcome::Duplicate);
    let failed: Vec<_> = store.containers().into_iter().filter(|container| container.state == "poisoned").collect();
    assert!(!failed.is_empty() && failed.iter().all(|container| container.live_fragments == 0), "{failed:?}");
    assert_balanced(&store);
}

#[test]
fn results_do_not_outlive_a_verdict_that_the_device_never_had() {
    let dir = TempDir::new();
    let place = dir.path().join("warm-0");
    std::fs::create_dir_all(&place).unwrap();
    let device = FaultyDevice::new(Arc::new(DirectoryDevice::open(&place, IoMethod::Auto, true).unwrap()));
    let store = create(&dir, &events_of(2), &on(&device, all_down(dir.path())));
    complete(&store, 0, 2);
    store.tick();
    assert_eq!(level(&store, 0, 0), Level::Warm);
    let lease = store.lease(&primary(&store, 0), None).unwrap().unwrap();
    device.stall(Duration::from_secs(3));
    let source = store.schema().source(&[7]).unwrap();
    let left = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let results = &[ResultFragment::new(&source, b"result")];
            lease.accept_into(&Accept { streams: &[("physics", Sources::All)], results })
        });
        std::thread::sleep(Duration::from_millis(500));
        let left = killed(&dir);
        accepting.join().unwrap().unwrap();
        left
    });
    let store = open(&left);
    let found = store.get_event(&primary(&store, 0), &Sources::All).unwrap().unwrap();
    let expected = if found.state == LiveState::Accepted { 3 } else { 2 };
    assert_eq!(found.fragments.len(), expected, "{:?}", found.state);
    assert_balanced(&store);
}

#[test]
fn a_log_that_cannot_take_a_snapshot_does_not_try_all_the_time() {
    let (dir, device) = (TempDir::new(), faulty());
    let store = create(&dir, &events_of(2), &on(&device, all_down(dir.path())));
    complete(&store, 0, 2);
    store.tick();
    let lease = store.lease(&primary(&store, 0), None).unwrap().unwrap();
    spoil(&device, Operation::Write, 1, 2000);
    refused(lease.reject(), Kind::OutcomeUnknown);
    store.tick();
    let before = device.count(Operation::Write);
    for _ in 0..50 {
        store.tick();
    }
    let tries = device.count(Operation::Write) - before;
    assert!(tries <= 20, "{tries} writes in 50 rounds");
    device.heal();
    assert_balanced(&store);
}

#[test]
fn marks_of_the_warm_level_leave_room_for_decisions_of_the_hot_one() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &all_down(dir.path()));
    complete(&store, 0, 2);
    store.tick();
    complete(&store, 1, 2);
    let event = primary(&store, 0);
    for _ in 0..60_000 {
        store.lease(&event, None).unwrap().unwrap().requeue().unwrap();
    }
    accept(&store, 1);
    stored(&store, 2, 0);
    assert_balanced(&store);
}
