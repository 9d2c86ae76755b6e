//! Readout and selection as clients, no matter what happens to the network and the server; and what must hold in the end.

use crate::network::scene::{RUN, client, key, keyspace};
use forebay_client::core::{Bounds, GetAny, Key, Kind, LiveState, PutOptions, PutOutcome, Sources};
use forebay_client::{Client, Lease};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What was answered.
#[derive(Default)]
pub(crate) struct Said {
    /// Events of which both fragments were stored.
    put: AtomicU64,
    /// Events that were decided: whether they were accepted.
    decided: Mutex<BTreeMap<u64, bool>>,
    is_put: AtomicBool,
    /// Fragments that ranges read.
    pub(crate) read: AtomicU64,
}

const WRITERS: u64 = 2;
const FILTERS: u64 = 3;
/// One event in this many is accepted, the others are rejected.
const KEPT_ONE_IN: u64 = 16;
const EVENTS_MAX: u64 = 80_000;
/// Fewer events prove nothing.
const EVENTS_MIN: u64 = 20;
/// How long a busy machine may take until enough has happened, and until all is decided.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The bytes of a fragment: nobody else's.
fn payload(event: u64, source: u64) -> Vec<u8> {
    let length = [10, 1000, 3000, 12_000][(event % 4) as usize] + source as usize;
    let start = (event * 31 + source) as u8;
    (0..length).map(|at| start.wrapping_add(at as u8)).collect()
}

#[track_caller]
fn check(key: &Key, bytes: &[u8]) {
    let values = keyspace().schema.values(key.as_bytes());
    assert!(payload(values[1], values[2]) == bytes, "the bytes of {key:?} are not its own");
}

/// Puts events, decides all of them, and reads them meanwhile. `during` is called again and again with the time that has
/// passed; the puts end when it answers `false`.
pub(crate) fn run(address: &str, said: &Said, during: impl Fn(Duration) -> bool + Sync) {
    let (from, is_over) = (Instant::now(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(&client(address), writer, is_over, said))).collect();
        for _ in 0..FILTERS {
            scope.spawn(|| filter(&client(address), said));
        }
        scope.spawn(|| read(&client(address), said));
        scope.spawn(|| {
            while during(from.elapsed()) {}
            is_over.store(true, Ordering::Release);
        });
        for writer in writers {
            writer.join().unwrap();
        }
        said.is_put.store(true, Ordering::Release);
    });
}

/// Puts events until the end, one after another or some at once; each until it is stored.
fn write(client: &Client, writer: u64, is_over: &AtomicBool, said: &Said) {
    let mut event = writer;
    // What is kept stays: the store must hold it.
    while !is_over.load(Ordering::Acquire) && event < EVENTS_MAX {
        let events: Vec<u64> =
            (0..if event.is_multiple_of(3) { 8 } else { 1 }).map(|more| event + more * WRITERS).collect();
        let all: Vec<(Key, Vec<u8>)> = events
            .iter()
            .flat_map(|event| (0..2).map(|source| (key(*event, source), payload(*event, source))))
            .collect();
        if let [(first, one), (second, two)] = &all[..] {
            for (key, value) in [(first, one), (second, two)] {
                until_known(|| client.put(key, value, &PutOptions::default()));
            }
        } else {
            let puts: Vec<_> = all.iter().map(|(key, value)| (*key, &value[..], PutOptions::default())).collect();
            let outcomes = loop {
                match client.put_many(&puts) {
                    Ok(outcomes) => break outcomes,
                    Err(error) => may_be_repeated(&error),
                }
            };
            for (outcome, (key, value, options)) in outcomes.into_iter().zip(&puts) {
                match outcome {
                    Ok(_) => {}
                    Err(error) => {
                        may_be_repeated(&error);
                        until_known(|| client.put(key, value, options));
                    }
                }
            }
        }
        said.put.fetch_add(events.len() as u64, Ordering::Relaxed);
        event += events.len() as u64 * WRITERS;
    }
}

fn until_known(put: impl Fn() -> forebay_client::core::Result<PutOutcome>) {
    loop {
        match put() {
            // After a repeat by this test a duplicate is its own; decided meanwhile, late.
            Ok(PutOutcome::Stored | PutOutcome::Duplicate | PutOutcome::Late | PutOutcome::LateUnknown) => return,
            Err(error) => may_be_repeated(&error),
        }
    }
}

#[track_caller]
fn may_be_repeated(error: &forebay_client::core::Error) {
    let kinds = [Kind::OutcomeUnknown, Kind::Unavailable, Kind::Full];
    assert!(kinds.contains(&error.kind()), "{error}");
}

/// Takes events and decides, until all that were put are decided.
fn filter(client: &Client, said: &Said) {
    let mut put = None;
    loop {
        let all = said.is_put.load(Ordering::Acquire);
        let from = all.then(|| *put.get_or_insert_with(Instant::now));
        let is_late = from.is_some_and(|from: Instant| from.elapsed() > PATIENCE);
        assert!(
            !is_late,
            "{} of {} events are decided: {:?}",
            said.decided.lock().unwrap().len(),
            said.events(),
            client.stats()
        );
        if all && said.decided.lock().unwrap().len() as u64 == said.put.load(Ordering::Relaxed) {
            return;
        }
        let ask = GetAny { n: 8, wait: Duration::from_millis(100), ..GetAny::default() };
        match client.get_any(&ask) {
            Ok(leases) => leases.into_iter().for_each(|lease| decide(lease, said)),
            Err(error) => may_be_repeated(&error),
        }
    }
}

fn decide(lease: Lease, said: &Said) {
    let event = keyspace().schema.values(lease.primary.as_bytes())[1];
    assert_eq!(lease.fragments.len(), 2, "event {event} was ready without its fragments");
    for fragment in &lease.fragments {
        check(&fragment.key(), fragment);
    }
    let is_kept = event.is_multiple_of(KEPT_ONE_IN);
    loop {
        match if is_kept { lease.accept(&["physics"]) } else { lease.reject() } {
            Ok(()) => {
                let before = said.decided.lock().unwrap().insert(event, is_kept);
                assert_eq!(before, None, "event {event} was decided twice");
                return;
            }
            // Somebody else has it, or will have it.
            Err(error) if error.kind() == Kind::Fenced => return,
            Err(error) => may_be_repeated(&error),
        }
    }
}

/// Reads what there is, again and again.
fn read(client: &Client, said: &Said) {
    let bounds = Bounds::parse(client.schema(), &RUN.to_string()).unwrap();
    while !said.is_put.load(Ordering::Acquire) {
        let mut last: Option<Key> = None;
        for fragment in client.range(&bounds) {
            let fragment = match fragment {
                Ok(fragment) => fragment,
                Err(error) => {
                    may_be_repeated(&error);
                    break;
                }
            };
            check(&fragment.key(), &fragment);
            assert!(last.is_none_or(|last| last < fragment.key()), "out of order behind {last:?}");
            last = Some(fragment.key());
            said.read.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Said {
    /// Whether less happened than proves anything.
    pub(crate) fn is_too_little(&self, happened: u64, min: u64) -> bool {
        happened < min || self.events() < EVENTS_MIN
    }

    /// Events that were put.
    pub(crate) fn events(&self) -> u64 {
        self.put.load(Ordering::Relaxed)
    }

    /// The store has what was acknowledged, and nothing else; its account is exact.
    pub(crate) fn check(&self, store: &engine::Store) {
        let decided = self.decided.lock().unwrap();
        assert_eq!(decided.len() as u64, self.events());
        let ledger = store.ledger(RUN).unwrap();
        assert_eq!(ledger.imbalance(), None);
        let kept = decided.values().filter(|is_kept| **is_kept).count() as u64;
        assert_eq!(ledger.stored.fragments, 2 * self.events(), "{ledger:?}");
        assert_eq!(ledger.rejected.fragments, 2 * (self.events() - kept), "{ledger:?}");
        let bounds = Bounds::parse(&keyspace().schema, &RUN.to_string()).unwrap();
        let live = store.events(&bounds).unwrap();
        assert_eq!(live.len() as u64, kept);
        for info in live {
            let event = keyspace().schema.values(info.primary.as_bytes())[1];
            assert_eq!((info.state, decided.get(&event)), (LiveState::Accepted, Some(&true)), "event {event}");
            let found = store.get_event(&info.primary, &Sources::All).unwrap().unwrap();
            assert_eq!(found.fragments.len(), 2);
            found.fragments.iter().for_each(|fragment| check(&fragment.key(), fragment));
        }
        let late = store.put(&key(1, 0), &payload(1, 0), &PutOptions::default());
        assert_eq!(late.unwrap(), PutOutcome::Late, "event 1 was rejected");
    }
}
