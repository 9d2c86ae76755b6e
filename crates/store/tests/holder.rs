//! Two stores under a look-up table: one has the bytes of a source, the other the events. What goes between them is carried here
//! by hand, as `forebay-cluster` does it.

use crate::common::driver::keyspace;
use crate::common::{TempDir, eventually, key, put, refused, small_config};
use forebay_store::core::map::{Change, ClusterMap, Hex128, Node, NodeState};
use forebay_store::core::{Attributes, Bounds, Elsewhere, Key, Kind, Level, LiveState, Primary, Report, Tally, crc32c};
use forebay_store::core::{LedgerBy, LedgerRow, SourceStatus};
use forebay_store::{Config, Departed, GetAny, HeldPart, PutOptions, PutOutcome, RunHome, Sources, Store, WarmDevice};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const RUN: u64 = 7;
const BYTES: &[u8] = b"a hundred or so bytes of a detector";

/// Node `n` has source `n - 1` of all events, and half of the events.
struct Two {
    dir: TempDir,
    map: Arc<ClusterMap>,
    stores: [Option<Store>; 2],
}

impl Two {
    fn new() -> Two {
        let dir = TempDir::new();
        let stores = [1, 2].map(|id| Store::create(&path(&dir, id), &keyspace(2), small_config()).unwrap());
        let map = with_table(&stores);
        for store in &stores {
            store.adopt_map(&map).unwrap();
            store.run_open(RUN, &keyspace(2).run).unwrap();
        }
        Two { dir, map, stores: stores.map(Some) }
    }

    /// Node 2 has one source more.
    fn with_two_sources() -> Two {
        let dir = TempDir::new();
        let stores = [1, 2].map(|id| Store::create(&path(&dir, id), &keyspace(3), small_config()).unwrap());
        let sources = vec![("0".to_owned(), vec![1]), ("1..2".to_owned(), vec![2])];
        let table = Change::Table { keyspace: "model".into(), from_run: 5, sources };
        let map = Arc::new(with_table(&stores).next_map(&table).unwrap());
        for store in &stores {
            store.adopt_map(&map).unwrap();
            store.run_open(RUN, &keyspace(3).run).unwrap();
        }
        Two { dir, map, stores: stores.map(Some) }
    }

    fn store(&self, id: usize) -> &Store {
        self.stores[id - 1].as_ref().unwrap()
    }

    /// A node's next life.
    fn restart(&mut self, id: usize) {
        self.stores[id - 1].take().unwrap().close().unwrap();
        self.stores[id - 1] = Some(Store::open(&path(&self.dir, id), small_config()).unwrap());
    }

    /// A node's next life after a kill: with what its directory had.
    fn kill(&mut self, id: usize) {
        let (at, left) = (path(&self.dir, id), self.dir.path().join("left"));
        std::fs::create_dir_all(left.join("runs")).unwrap();
        for part in ["", "runs"].map(|part| at.join(part)).iter().filter(|part| part.exists()) {
            for file in std::fs::read_dir(part).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file())
            {
                std::fs::copy(&file, left.join(file.strip_prefix(&at).unwrap())).unwrap();
            }
        }
        drop(self.stores[id - 1].take());
        std::fs::remove_dir_all(&at).unwrap();
        std::fs::rename(&left, &at).unwrap();
        self.stores[id - 1] = Some(Store::open(&at, small_config()).unwrap());
    }

    /// Keys of events with their home at node `home`, of the source that node `holder` has.
    fn keys(&self, home: u16, holder: u64) -> impl Iterator<Item = Key> {
        let keys = (0..).map(move |event| key(RUN, event * 64, holder - 1));
        keys.filter(move |key| self.map.keyspace("model").unwrap().home(RUN, self.primary(key).as_bytes()) == home)
    }

    fn key(&self, home: u16, event: usize, holder: u64) -> Key {
        self.keys(home, holder).nth(event).unwrap()
    }

    fn primary(&self, key: &Key) -> Primary {
        self.store(1).schema().primary_of(key)
    }

    /// What node 2 has for node 1 is told; answers how many fragments went, and how many are gone.
    fn tell(&self, report: Report) -> (usize, usize) {
        let (holder, home) = (self.store(2), self.store(1));
        let mut told = (0, 0);
        for part in holder.untold(1, report, Duration::ZERO, 100).unwrap() {
            let gone: Vec<Key> = part
                .fragments
                .iter()
                .filter(|fragment| {
                    let attributes = Some(&part.attributes).filter(|set| !set.is_empty());
                    let options = PutOptions { attributes, ..elsewhere(fragment.status, report) };
                    let outcome = home.put(&fragment.key, &fragment.away.to_bytes(), &options).unwrap();
                    told.0 += 1;
                    outcome.is_late()
                })
                .map(|fragment| fragment.key)
                .collect();
            told.1 += gone.len();
            holder.told(&part, &gone).unwrap();
        }
        told
    }

    /// Reads what is to be told, and has node 1 take it; the answer is still on its way.
    fn tell_half(&self) -> HeldPart {
        let part = self.store(2).untold(1, Report::Prompt, Duration::ZERO, 9).unwrap().pop().unwrap();
        for fragment in &part.fragments {
            let options = elsewhere(fragment.status, Report::Prompt);
            assert_eq!(
                self.store(1).put(&fragment.key, &fragment.away.to_bytes(), &options).unwrap(),
                PutOutcome::Stored
            );
        }
        part
    }

    /// What ended at node 1 ends at node 2.
    fn depart(&self) -> Vec<Departed> {
        let departures = self.store(1).take_departures();
        assert!(!departures.missed);
        self.store(2).depart(1, &departures.names).unwrap();
        departures.names
    }
}

fn path(dir: &TempDir, id: usize) -> PathBuf {
    dir.path().join(format!("n{id}.store"))
}

fn with_table(stores: &[Store; 2]) -> Arc<ClusterMap> {
    let nodes = stores.iter().zip(1..).map(|(store, id)| Node {
        id,
        name: format!("n{id}"),
        at: vec![format!("tcp://n{id}:7440")],
        domain: format!("d{id}"),
        holds: store.holding(),
        state: NodeState::Active,
    });
    let keyspace = Change::Keyspace { name: "model".into(), copies: 1, copies_min: 1, block: 6 };
    let sources = vec![("0".to_owned(), vec![1]), ("1".to_owned(), vec![2])];
    let table = Change::Table { keyspace: "model".into(), from_run: 0, sources };
    let map = ClusterMap::new(Hex128(0xF1), nodes.collect()).unwrap();
    Arc::new(map.next_map(&keyspace).unwrap().next_map(&table).unwrap())
}

fn elsewhere(status: u32, report: Report) -> PutOptions<'static> {
    PutOptions { status, level: Some(Level::Elsewhere), report, ..PutOptions::default() }
}

fn away(bytes: &[u8]) -> Elsewhere {
    Elsewhere { length: bytes.len() as u32, checksum: crc32c(bytes) }
}

#[test]
fn bytes_stay_with_their_holder_and_the_home_counts_them() {
    let two = Two::new();
    let (home, holder) = (two.store(1), two.store(2));
    let (own, other) = (two.key(1, 0, 1), two.key(1, 0, 2));
    // Bytes go to their holder only, and that they are there to the home only.
    let message = refused(put(home, &other, BYTES), Kind::Fenced);
    assert!(message.contains("node 2 holds this source"), "{message}");
    let message = refused(put(holder, &own, BYTES), Kind::Fenced);
    assert!(message.contains("node 1 holds this source"), "{message}");
    let mark = away(BYTES).to_bytes();
    refused(holder.put(&other, &mark, &elsewhere(0, Report::Prompt)), Kind::Invalid);
    refused(home.put(&own, &mark, &elsewhere(0, Report::Prompt)), Kind::Invalid);
    refused(home.put(&other, &mark[..7], &elsewhere(0, Report::Prompt)), Kind::Invalid);
    refused(home.reserve(&other, 8, &elsewhere(0, Report::Prompt)), Kind::Invalid);
    refused(put(home, &key(RUN, 0, 2), BYTES), Kind::Invalid);
    assert_eq!(put(home, &own, BYTES).unwrap(), PutOutcome::Stored);
    let options = PutOptions { status: 5, ..PutOptions::default() };
    assert_eq!(holder.put(&other, BYTES, &options).unwrap(), PutOutcome::Stored);
    assert_eq!(holder.put(&other, BYTES, &options).unwrap(), PutOutcome::Duplicate);
    assert_eq!(&holder.get(&other).unwrap().unwrap()[..], BYTES);
    // It is in no account and in no list of the holder.
    assert_eq!(holder.ledger(RUN).unwrap(), Default::default());
    assert!(holder.sources(RUN).unwrap().iter().all(|source| source.fragments == 0));
    assert_eq!(home.ledger(RUN).unwrap().live.open.events, 1, "the home does not know of it yet");
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    assert_eq!(two.tell(Report::Prompt), (0, 0), "what is told is told");
    let ledger = home.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.stored.bytes), (2, 2 * BYTES.len() as u64));
    assert_eq!((ledger.live.ready.events, ledger.imbalance()), (1, None), "complete with what is elsewhere");
    assert!(home.sources(RUN).unwrap().iter().all(|source| source.fragments == 1));
    refused(home.update(&other, b"more", None), Kind::Invalid);
    let lease = home.get_any(&GetAny::default()).unwrap().pop().unwrap();
    let fragment = &lease.fragments[1];
    assert_eq!((fragment.level(), fragment.status()), (Level::Elsewhere, 5));
    assert_eq!(Elsewhere::from_bytes(fragment), Some(away(BYTES)));
    assert_eq!((lease.event_fragments, lease.event_bytes), (2, 2 * BYTES.len() as u64));
    lease.reject().unwrap();
    assert_eq!(two.depart(), [Departed::Event(two.primary(&own))]);
    refused(holder.get(&other), Kind::Fenced);
    // Its place is free, and a repeat of the put is late.
    assert_eq!(holder.range(&Bounds::all(holder.schema())).count(), 0);
    assert_eq!(holder.put(&other, BYTES, &options).unwrap(), PutOutcome::Stored);
    assert_eq!(two.tell(Report::Prompt), (1, 1));
    refused(holder.get(&other), Kind::Fenced);
    let ledger = home.ledger(RUN).unwrap();
    assert_eq!((ledger.late.fragments, ledger.imbalance()), (1, None));
}

#[test]
fn a_conflict_is_in_the_account_of_who_has_the_bytes() {
    let two = Two::new();
    let (home, holder, other) = (two.store(1), two.store(2), two.key(1, 0, 2));
    assert_eq!(put(holder, &other, BYTES).unwrap(), PutOutcome::Stored);
    for known in 0..2 {
        assert_eq!(two.tell(Report::Prompt), (1 - known, 0));
        refused(put(holder, &other, b"other bytes"), Kind::Conflict);
    }
    let [at_home, at_holder] = [home, holder].map(|store| store.ledger(RUN).unwrap());
    assert_eq!((at_home.offered.fragments, at_home.conflict.fragments, at_home.imbalance()), (1, 0, None));
    assert_eq!((at_holder.offered.fragments, at_holder.conflict.fragments, at_holder.imbalance()), (2, 2, None));
}

#[derive(Default)]
struct Asked(AtomicU64);

impl RunHome for Asked {
    fn wanted(&self, _run: u64) -> forebay_store::core::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn what_a_holder_tells_waits_for_no_run() {
    let (two, asked) = (Two::new(), Arc::<Asked>::default());
    let (home, unknown) = (two.store(1), RUN + 1);
    home.set_run_home(asked.clone());
    let placement = two.map.keyspace("model").unwrap();
    let mut keys = (0..).map(|event| key(unknown, event * 64, 1));
    let at_home = keys.find(|key| placement.home(unknown, two.primary(key).as_bytes()) == 1).unwrap();
    // Its request may have fragments of other runs: the run is asked for, and the holder tells it again.
    let told = PutOptions { deadline: Some(Duration::ZERO), ..elsewhere(0, Report::Prompt) };
    let message = refused(home.put(&at_home, &away(BYTES).to_bytes(), &told), Kind::Unavailable);
    assert!(message.contains("was not opened in time by its home"), "{message}");
    assert_eq!(asked.0.load(Ordering::Relaxed), 1, "looked at once");
}

#[test]
fn a_holder_asks_and_nothing_is_counted_twice() {
    let mut two = Two::new();
    let other = two.key(1, 0, 2);
    let later = PutOptions { report: Report::Later, ..PutOptions::default() };
    assert_eq!(two.store(2).put(&other, BYTES, &later).unwrap(), PutOutcome::Stored);
    // A client tells the home, and the holder asks.
    let mark = away(BYTES).to_bytes();
    let of_client = elsewhere(0, Report::Prompt);
    assert_eq!(two.store(1).put(&other, &mark, &of_client).unwrap(), PutOutcome::Stored);
    assert!(two.store(2).untold(1, Report::Later, Duration::from_secs(60), 9).unwrap().is_empty(), "not yet");
    assert_eq!(two.tell(Report::Prompt), (0, 0));
    assert_eq!(two.tell(Report::Later), (1, 0));
    let once = two.store(1).ledger(RUN).unwrap();
    assert_eq!((once.offered.fragments, once.duplicate.fragments, once.stored.fragments), (1, 0, 1));
    // The client repeats its put: an answer of its own.
    assert_eq!(two.store(1).put(&other, &mark, &of_client).unwrap(), PutOutcome::Duplicate);
    let conflict = two.store(1).put(&other, &away(b"others").to_bytes(), &of_client);
    refused(conflict, Kind::Conflict);
    // Both begin their next lives: the holder asks again, about all.
    for id in [1, 2] {
        two.restart(id);
    }
    assert_eq!(&two.store(2).get(&other).unwrap().unwrap()[..], BYTES);
    assert_eq!(two.tell(Report::Later), (1, 0));
    let (ledger, info) = (two.store(1).ledger(RUN).unwrap(), two.store(1).events(&Bounds::all(two.store(1).schema())));
    assert_eq!((ledger.stored.fragments, ledger.stored.bytes), (1, BYTES.len() as u64));
    assert_eq!((ledger.imbalance(), info.unwrap()[0].bytes), (None, BYTES.len() as u64));
    // Told once more because somebody lost words: not counted either.
    two.store(2).compare_held(1);
    assert_eq!(two.tell(Report::Later), (1, 0));
    assert_eq!(two.store(1).ledger(RUN).unwrap(), ledger);
    // The event ended without a word to the holder: it asks, and its part goes.
    two.store(1).remove_event(&two.primary(&other)).unwrap();
    two.store(1).take_departures();
    two.store(2).compare_held(1);
    assert_eq!(two.tell(Report::Later), (1, 1));
    refused(two.store(2).get(&other), Kind::Fenced);
    assert_eq!(two.store(1).ledger(RUN).unwrap().late.fragments, 0, "only asked");
    assert_eq!(two.store(1).ledger(RUN).unwrap().imbalance(), None);
}

/// Rows by source of the account, and what `sources` says: source, fragments, bytes, missing, late, conflicts.
type Figures = (Vec<LedgerRow>, Vec<(String, [u64; 5])>);

fn figures(store: &Store) -> Figures {
    let of = |row: SourceStatus| (row.source, [row.fragments, row.bytes, row.missing, row.late, row.conflicts]);
    let sources = store.sources(RUN).unwrap().into_iter().map(of).collect();
    (store.ledger_by(RUN, LedgerBy::Source).unwrap(), sources)
}

/// What real processes found: after each opening of a holder its books by source had what it holds for other homes, as ended.
#[test]
fn a_holders_figures_by_source_are_the_same_in_its_next_life() {
    let plain = PutOptions::default();
    let lives: [fn(&mut Two); 4] = [|two| two.restart(2), |two| two.kill(2), |two| two.kill(2), |two| two.restart(2)];
    let in_each_life = |two: &mut Two| {
        let before = figures(two.store(2));
        for (life, next) in lives.into_iter().enumerate() {
            next(two);
            assert_eq!(figures(two.store(2)), before, "life {life}");
            assert_eq!(two.store(2).ledger(RUN).unwrap().imbalance(), None);
            two.tell(Report::Later);
        }
        before
    };
    let mut two = Two::with_two_sources();
    // Nothing but what another node counts: no rows.
    for event in 0..10 {
        for source in [2, 3] {
            stored(two.store(2), &two.key(1, event, source), &plain);
        }
    }
    assert_eq!(two.tell(Report::Prompt), (20, 0));
    assert_eq!(in_each_life(&mut two), (Vec::new(), Vec::new()));
    // Its own events have rows.
    for event in 0..4 {
        for source in [2, 3] {
            stored(two.store(2), &two.key(2, event, source), &plain);
        }
    }
    let (rows, sources) = in_each_life(&mut two);
    let bytes = BYTES.len() as u64;
    let own = Tally { events: 0, fragments: 4, bytes: 4 * bytes };
    assert!(rows.iter().all(|row| (row.live, row.ended) == (own, Tally::default())), "{rows:?}");
    let named = ["1", "2"].map(|source| (source.to_owned(), [4, 4 * bytes, 0, 0, 0]));
    assert_eq!(sources, named);
    // Some of what it holds ends: a whole event, a fragment of another one.
    let (event, fragment) = (two.primary(&two.key(1, 0, 2)), two.key(1, 1, 3));
    assert!(two.store(1).remove_event(&event).unwrap() && two.store(1).remove(&fragment).unwrap());
    two.depart();
    assert_eq!(in_each_life(&mut two), (rows, sources));
    // And one of its own: a close keeps how many came, a kill does not know their sources any more.
    let mine = two.primary(&two.key(2, 0, 2));
    assert!(two.store(2).remove_event(&mine).unwrap());
    let before = figures(two.store(2));
    let one = Tally { events: 0, fragments: 1, bytes };
    assert!(before.0.iter().all(|row| (row.live.fragments, row.ended) == (3, one)), "{before:?}");
    for _life in 0..2 {
        two.restart(2);
        assert_eq!(figures(two.store(2)), before);
    }
    two.kill(2);
    let (rows, _) = figures(two.store(2));
    let ended: Vec<(&str, u64, u64)> =
        rows.iter().map(|row| (&*row.name, row.live.fragments, row.ended.fragments)).collect();
    assert_eq!(ended, [("1", 3, 0), ("2", 3, 0), ("unknown", 0, 2)]);
}

#[test]
fn the_summary_of_a_holder_has_only_its_own_events() {
    let plain = PutOptions::default();
    let mut two = Two::with_two_sources();
    let (held, own) = (two.key(1, 0, 2), two.key(2, 0, 2));
    stored(two.store(2), &held, &plain);
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    stored(two.store(2), &own, &plain);
    two.kill(2);
    assert_eq!(two.tell(Report::Later), (1, 0));
    two.restart(2);
    assert_eq!(two.tell(Report::Later), (1, 0));
    // Its run is closed while the home still keeps what is held.
    assert!(two.store(2).remove_event(&two.primary(&own)).unwrap());
    two.store(2).run_stop(RUN).unwrap();
    two.store(2).run_close(RUN).unwrap();
    let one = Tally { events: 0, fragments: 1, bytes: BYTES.len() as u64 };
    for life in 0..3 {
        let summary = two.store(2).run_summary(RUN).unwrap();
        assert_eq!(summary.sources.iter().map(|row| row.fragments).collect::<Vec<_>>(), [1], "life {life}");
        let (rows, _) = figures(two.store(2));
        let row = LedgerRow { name: "1".to_owned(), ended: one, ..LedgerRow::default() };
        assert_eq!(rows, [row], "life {life}");
        assert!(is_held(&two, &held));
        if life == 0 { two.restart(2) } else { two.kill(2) }
    }
}

#[test]
fn only_what_is_new_is_told_promptly() {
    let two = Two::with_two_sources();
    let (first, second) = (two.key(1, 0, 2), two.key(1, 0, 3));
    assert_eq!(put(two.store(2), &first, BYTES).unwrap(), PutOutcome::Stored);
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    assert_eq!(put(two.store(2), &second, BYTES).unwrap(), PutOutcome::Stored);
    // The event ends in between: of what was in time none is counted late.
    two.store(1).remove_event(&two.primary(&first)).unwrap();
    assert_eq!(two.tell(Report::Prompt), (1, 1));
    let ledger = two.store(1).ledger(RUN).unwrap();
    assert_eq!((ledger.late.fragments, ledger.removed.fragments, ledger.imbalance()), (1, 1, None));
    // The same with the end before the report: what was acknowledged here is in the account as late, and then gone.
    let (first, second) = (two.key(1, 5, 2), two.key(1, 5, 3));
    assert_eq!(put(two.store(2), &first, BYTES).unwrap(), PutOutcome::Stored);
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    assert_eq!(put(two.store(2), &second, BYTES).unwrap(), PutOutcome::Stored);
    two.store(1).remove_event(&two.primary(&first)).unwrap();
    // Another node than the home ends nothing.
    two.store(2).depart(3, &[Departed::Event(two.primary(&first)), Departed::Fragment(first)]).unwrap();
    assert!(two.store(2).get(&first).unwrap().is_some());
    two.depart();
    refused(two.store(2).get(&first), Kind::Fenced);
    assert_eq!(two.tell(Report::Prompt), (1, 1));
    refused(two.store(2).get(&second), Kind::Fenced);
    assert_eq!(two.store(1).ledger(RUN).unwrap().late.fragments, 2);
    // One removed fragment leaves the rest of its event where it is.
    let (first, second) = (two.key(1, 1, 2), two.key(1, 1, 3));
    for key in [&first, &second] {
        assert_eq!(put(two.store(2), key, BYTES).unwrap(), PutOutcome::Stored);
    }
    assert_eq!(two.tell(Report::Prompt), (2, 0));
    two.depart();
    two.store(1).remove(&first).unwrap();
    assert_eq!(two.depart(), [Departed::Fragment(first)]);
    refused(two.store(2).get(&first), Kind::Fenced);
    assert!(two.store(2).get(&second).unwrap().is_some());
    assert_eq!(put(two.store(2), &first, BYTES).unwrap(), PutOutcome::Late, "it stays closed");
}

#[test]
fn a_run_ends_where_its_homes_know_all_and_what_was_accepted_stays() {
    let mut two = Two::new();
    let (own, other) = (two.key(1, 0, 1), two.key(1, 0, 2));
    assert_eq!(put(two.store(1), &own, BYTES).unwrap(), PutOutcome::Stored);
    assert_eq!(put(two.store(2), &other, BYTES).unwrap(), PutOutcome::Stored);
    two.store(2).run_stop(RUN).unwrap();
    let message = refused(two.store(2).begin_close(RUN), Kind::Unavailable);
    assert!(message.contains("fragments of 1 events of which their homes may not know"), "{message}");
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    let lease = two.store(1).get_any(&GetAny::default()).unwrap().pop().unwrap();
    lease.accept(&["main"]).unwrap();
    drop(lease);
    for id in [1, 2] {
        two.store(id).run_close(RUN).unwrap();
    }
    // Both come back: the archive has not taken it yet.
    for id in [2, 1] {
        two.restart(id);
    }
    assert_eq!(&two.store(2).get(&other).unwrap().unwrap()[..], BYTES);
    assert_eq!(two.tell(Report::Later), (1, 0), "the home goes on to know it");
    let event = two.store(1).get_event(&two.primary(&own), &Sources::All).unwrap().unwrap();
    assert_eq!((event.state, event.fragments.len()), (LiveState::Accepted, 2));
    assert!(two.store(1).release(&two.primary(&own)).unwrap());
    two.depart();
    refused(two.store(2).get(&other), Kind::Fenced);
    two.restart(2);
    refused(two.store(2).get(&other), Kind::Fenced);
    // Of a run that is over nothing is taken, and nothing asked for twice.
    refused(put(two.store(2), &two.key(1, 3, 2), BYTES), Kind::Closed);
}

#[test]
fn a_store_with_a_warm_level_takes_no_table() {
    let dir = TempDir::new();
    let stores = [1, 2].map(|id| {
        let warm = vec![WarmDevice::directory(dir.path().join(format!("w{id}")), 3 << 20)];
        let config = Config { container_bytes: 128 << 10, device_log_bytes: 256 << 10, warm, ..small_config() };
        Store::create(&path(&dir, id), &keyspace(2), config).unwrap()
    });
    let message = refused(stores[0].adopt_map(&with_table(&stores)), Kind::Invalid);
    assert!(message.contains("has a warm level") && message.contains("without containers"), "{message}");
}

/// A put that must be stored.
fn stored(store: &Store, key: &Key, options: &PutOptions<'_>) {
    assert_eq!(store.put(key, BYTES, options).unwrap(), PutOutcome::Stored);
}

fn is_held(two: &Two, key: &Key) -> bool {
    two.store(2).get(key).is_ok_and(|found| found.is_some())
}

#[test]
fn an_answer_is_about_the_records_that_were_told_and_no_others() {
    let plain = PutOptions::default();
    // One is removed and another one comes, while the answer is on its way: as many as before, and not the same.
    let two = Two::with_two_sources();
    let (first, second) = (two.key(1, 0, 2), two.key(1, 0, 3));
    stored(two.store(2), &first, &plain);
    let part = two.tell_half();
    assert!(two.store(1).remove(&first).unwrap());
    stored(two.store(2), &second, &plain);
    two.depart();
    two.store(2).told(&part, &[]).unwrap();
    assert_eq!(two.tell(Report::Prompt), (1, 0), "the home hears of the second");
    // The whole event ends, and another part of it comes.
    let (first, second) = (two.key(1, 1, 2), two.key(1, 1, 3));
    stored(two.store(2), &first, &plain);
    let part = two.tell_half();
    assert!(two.store(1).remove_event(&two.primary(&first)).unwrap());
    two.depart();
    stored(two.store(2), &second, &plain);
    two.store(2).told(&part, &[]).unwrap();
    assert!(!is_held(&two, &first), "the answer is from before the end");
    assert_eq!(two.tell(Report::Prompt), (1, 1), "the other one is late, and is held no more");
    assert!(!is_held(&two, &first) && !is_held(&two, &second));
    // An answer says that both are gone, of which one has departed already.
    let (first, second) = (two.key(1, 2, 2), two.key(1, 2, 3));
    for key in [&first, &second] {
        stored(two.store(2), key, &plain);
    }
    let part = two.store(2).untold(1, Report::Prompt, Duration::ZERO, 9).unwrap().pop().unwrap();
    two.store(2).depart(1, &[Departed::Fragment(second)]).unwrap();
    two.store(2).told(&part, &[first, second]).unwrap();
    assert!(!is_held(&two, &first));
    stored(two.store(2), &two.key(1, 3, 2), &plain);
}

/// More of them are in one shard than are read at once.
#[test]
fn what_a_home_does_not_take_keeps_no_shard_from_its_turn() {
    let two = Two::new();
    let keys: BTreeSet<Key> = two.keys(1, 2).take(200).collect();
    for key in &keys {
        stored(two.store(2), key, &PutOptions::default());
    }
    let mut offered = BTreeSet::new();
    // A round takes at least one of one shard, and all shards have their turn.
    for _ in 0..keys.len() * 4 {
        for part in two.store(2).untold(1, Report::Prompt, Duration::ZERO, 4).unwrap() {
            offered.extend(part.fragments.iter().map(|fragment| fragment.key));
            two.store(2).untaken(&part).unwrap();
        }
    }
    assert_eq!(offered, keys);
}

#[test]
fn nothing_is_offered_twice_by_those_who_tell() {
    let plain = PutOptions::default();
    let later = PutOptions { report: Report::Later, ..plain };
    let two = Two::with_two_sources();
    let (first, second) = (two.key(1, 0, 2), two.key(1, 0, 3));
    // The second comes while the first is told.
    stored(two.store(2), &first, &plain);
    let part = two.tell_half();
    stored(two.store(2), &second, &plain);
    two.store(2).told(&part, &[]).unwrap();
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    // All is compared while something is to be told.
    let (first, second) = (two.key(1, 1, 2), two.key(1, 1, 3));
    stored(two.store(2), &first, &plain);
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    stored(two.store(2), &second, &plain);
    two.store(2).compare_held(1);
    assert_eq!((two.tell(Report::Prompt), two.tell(Report::Later)), ((0, 0), (2 + 2, 0)));
    // A client tells of a fragment of an event that is old: it is not asked about before.
    let (first, second) = (two.key(1, 2, 2), two.key(1, 2, 3));
    stored(two.store(2), &first, &plain);
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    std::thread::sleep(Duration::from_millis(60));
    stored(two.store(2), &second, &later);
    assert!(two.store(2).untold(1, Report::Later, Duration::from_millis(50), 9).unwrap().is_empty());
    let of_client = elsewhere(0, Report::Prompt);
    assert_eq!(two.store(1).put(&second, &away(BYTES).to_bytes(), &of_client).unwrap(), PutOutcome::Stored);
    assert_eq!(two.tell(Report::Later), (1, 0));
    let ledger = two.store(1).ledger(RUN).unwrap();
    assert_eq!((ledger.offered.fragments, ledger.duplicate.fragments, ledger.stored.fragments), (6, 0, 6));
    // What is only asked about is no conflict in the account either.
    for _ in 0..3 {
        refused(two.store(1).put(&second, &away(b"others").to_bytes(), &elsewhere(0, Report::Later)), Kind::Conflict);
    }
    assert_eq!(two.store(1).ledger(RUN).unwrap(), ledger);
}

#[test]
fn what_never_came_or_is_gone_keeps_no_run_open() {
    let plain = PutOptions::default();
    let two = Two::with_two_sources();
    let settled = |two: &Two| {
        let parts = two.store(2).untold(1, Report::Later, Duration::ZERO, 9).unwrap();
        assert!(parts.is_empty(), "{parts:?}");
    };
    // A reservation of a told event is given up.
    let (first, second) = (two.key(1, 0, 2), two.key(1, 0, 3));
    stored(two.store(2), &first, &plain);
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    drop(two.store(2).reserve(&second, 9, &plain).unwrap());
    settled(&two);
    assert!(is_held(&two, &first));
    // A fragment is removed before the holder asks about it.
    stored(two.store(2), &second, &PutOptions { report: Report::Later, ..plain });
    let of_client = elsewhere(0, Report::Prompt);
    assert_eq!(two.store(1).put(&second, &away(BYTES).to_bytes(), &of_client).unwrap(), PutOutcome::Stored);
    assert!(two.store(1).remove(&second).unwrap());
    two.depart();
    settled(&two);
    // The only fragment departs beside a reservation, which is given up.
    let (first, second) = (two.key(1, 1, 2), two.key(1, 1, 3));
    stored(two.store(2), &first, &plain);
    let reservation = two.store(2).reserve(&second, 9, &plain).unwrap();
    two.store(2).depart(1, &[Departed::Fragment(first)]).unwrap();
    settled(&two);
    drop(reservation);
    assert!(two.store(2).untold(1, Report::Prompt, Duration::ZERO, 9).unwrap().is_empty());
    settled(&two);
    two.store(2).run_stop(RUN).unwrap();
    two.store(2).begin_close(RUN).unwrap();
}

#[test]
fn what_was_taken_before_a_stop_belongs_to_the_run() {
    let mut two = Two::with_two_sources();
    let held = two.key(1, 0, 2);
    stored(two.store(2), &held, &PutOptions::default());
    two.store(1).run_stop(RUN).unwrap();
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    // Its event waits for nothing more.
    two.store(1).tick();
    let lease = two.store(1).get_any(&GetAny { wait: Duration::from_secs(5), ..GetAny::default() }).unwrap().pop();
    lease.unwrap().requeue().unwrap();
    for id in [2, 1] {
        two.restart(id);
    }
    assert_eq!(two.tell(Report::Later), (1, 0));
    assert!(is_held(&two, &held));
    let ledger = two.store(1).ledger(RUN).unwrap();
    assert_eq!((ledger.live.ready.fragments, ledger.late.fragments, ledger.imbalance()), (1, 0, None));
}

#[test]
fn attributes_come_with_whatever_is_new_to_the_home_and_removals_outlive_restarts() {
    let mut two = Two::with_two_sources();
    let lane = Attributes::parse(&keyspace(3).attributes, &["lane=1".to_owned()]).unwrap();
    let (own, first, second) = (two.key(1, 0, 1), two.key(1, 0, 2), two.key(1, 0, 3));
    stored(two.store(2), &first, &PutOptions::default());
    assert_eq!(two.tell(Report::Prompt), (1, 0));
    stored(two.store(2), &second, &PutOptions { attributes: Some(&lane), ..PutOptions::default() });
    two.store(2).compare_held(1);
    assert_eq!(two.tell(Report::Later), (2, 0));
    let event = two.store(1).get_event(&two.primary(&own), &Sources::All).unwrap().unwrap();
    assert_eq!(event.attributes, lane);
    drop(event);
    stored(two.store(1), &own, &PutOptions::default());
    assert!(two.store(1).remove(&first).unwrap());
    two.depart();
    for id in [2, 1, 2] {
        two.restart(id);
        two.tell(Report::Later);
    }
    assert!(!is_held(&two, &first) && is_held(&two, &second));
    // Whether or not the holder remembers that it was removed, its home does.
    let _ = put(two.store(2), &first, BYTES).unwrap();
    two.tell(Report::Prompt);
    assert!(!is_held(&two, &first));
    let ledger = two.store(1).ledger(RUN).unwrap();
    assert_eq!((ledger.live.ready.fragments, ledger.imbalance()), (2, None));
}

/// What the simulator found: a client was told that its fragment is late, and a second later its holder asked, when no worker had
/// the event any more, and the home took it; or the other way round the holder let go what the home took then.
#[test]
fn what_was_refused_as_late_is_not_taken_later() {
    let mut two = Two::with_two_sources();
    let later = PutOptions { report: Report::Later, ..PutOptions::default() };
    let (early, late, asked) = (two.key(1, 0, 1), two.key(1, 0, 2), two.key(1, 0, 3));
    let primary = two.primary(&early);
    let away = away(BYTES).to_bytes();
    stored(two.store(1), &early, &PutOptions::default());
    assert!(two.store(1).seal(&primary).unwrap());
    let grant = |two: &Two| {
        let mut leases = two.store(1).get_any(&GetAny::default()).unwrap();
        leases.pop().unwrap()
    };
    let lease = grant(&two);
    for key in [&late, &asked] {
        stored(two.store(2), key, &later);
    }
    // A client tells of one, the holder asks about both.
    assert_eq!(two.store(1).put(&late, &away, &elsewhere(0, Report::Prompt)).unwrap(), PutOutcome::Late);
    let part = two.store(2).untold(1, Report::Later, Duration::ZERO, 9).unwrap().pop().unwrap();
    assert_eq!(two.store(1).put(&asked, &away, &elsewhere(0, Report::Later)).unwrap(), PutOutcome::Late);
    lease.requeue().unwrap();
    drop(lease);
    let both = |two: &Two| {
        for (key, report) in [(&late, Report::Later), (&asked, Report::Prompt), (&late, Report::Prompt)] {
            assert_eq!(two.store(1).put(key, &away, &elsewhere(0, report)).unwrap(), PutOutcome::Late, "{key:?}");
        }
    };
    both(&two);
    let why = two.store(1).why(&late).unwrap();
    assert!(why.because.ends_with("or refused for good because a worker had the event"), "{why:?}");
    two.restart(1);
    both(&two);
    two.store(2).told(&part, &[late, asked]).unwrap();
    assert!(!is_held(&two, &late) && !is_held(&two, &asked));
    // It lacks them: what is closed does not count as arrived.
    let lease = grant(&two);
    assert_eq!(lease.fragments.len(), 1);
    lease.reject().unwrap();
    let ledger = two.store(1).ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.removed.fragments, ledger.imbalance()), (1, 0, None));
    assert_eq!((ledger.complete, ledger.incomplete), (0, 1));
    two.store(1).run_stop(RUN).unwrap();
    two.store(1).run_close(RUN).unwrap();
}

/// What the simulator found: a fragment of which its home was told in vain was only asked about from then on, and if it was
/// late, no account had it.
#[test]
fn what_was_told_in_vain_is_told_again() {
    let two = Two::new();
    let (first, held) = (two.key(1, 0, 1), two.key(1, 0, 2));
    stored(two.store(1), &first, &PutOptions::default());
    stored(two.store(2), &held, &PutOptions::default());
    let part = two.store(2).untold(1, Report::Prompt, Duration::ZERO, 9).unwrap().pop().unwrap();
    two.store(2).untaken(&part).unwrap();
    two.store(1).remove_event(&two.primary(&first)).unwrap();
    assert_eq!((two.tell(Report::Later), two.tell(Report::Prompt)), ((0, 0), (1, 1)));
    let ledger = two.store(1).ledger(RUN).unwrap();
    assert_eq!((ledger.late.fragments, ledger.imbalance()), (1, None));
    assert!(!is_held(&two, &held));
}

#[test]
fn a_full_node_says_whether_its_own_events_or_those_of_other_homes_fill_it() {
    let mut two = Two::new();
    let fill = |two: &Two, id: usize| {
        let full = two.keys(1, id as u64).position(|key| put(two.store(id), &key, &[7; 2048]).is_err());
        full.unwrap()
    };
    let inhibit = |two: &Two, id: usize| {
        let store = two.store(id);
        store.tick();
        let inhibit = store.stats().inhibit.unwrap();
        let share: f64 = inhibit.cause.rsplit_once(": ").unwrap().1.split_once(" %").unwrap().0.parse().unwrap();
        assert!((50.0..=100.0).contains(&share) && share <= store.stats().fill * 100.0 + 1.0, "{inhibit}");
        inhibit
    };
    let held = fill(&two, 2);
    for _life in 0..2 {
        let inhibit = inhibit(&two, 2);
        assert_eq!(&*inhibit.owner, "homes");
        assert!(inhibit.cause.contains("held for events of other nodes"), "{inhibit}");
        two.restart(2);
    }
    let (home, holder) = (two.store(1), two.store(2));
    eventually(home, "all is told", || two.tell(Report::Prompt).0 + two.tell(Report::Later).0 == 0);
    // Twice as many bytes are in the home's account as are in its memory.
    fill(&two, 1);
    assert_eq!(&*inhibit(&two, 1).owner, "selection");
    assert_eq!(home.ledger(RUN).unwrap().live.ready.events as usize, held);
    home.remove_range(&Bounds::all(home.schema())).unwrap();
    two.depart();
    holder.compare_held(1);
    for store in [home, holder] {
        eventually(store, "inhibit ends", || store.stats().inhibit.is_none());
    }
}
