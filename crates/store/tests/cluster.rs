//! A store as a node of a cluster: the map that it adopts, whose events it serves, and what becomes of them when their home
//! changes.

use crate::common::driver::{Driver, execute, keyspace};
use crate::common::model::Model;
use crate::common::ops::Op;
use crate::common::{TempDir, key, put, refused, small_config};
use forebay_store::core::map::{ClusterMap, Hex128, Succession};
use forebay_store::core::{
    Bounds, Key, Keyspace, Kind, Ledger, LedgerBy, LiveState, ManualClock, OpenEvent, Primary, Report, RunConfig,
    Tally, Token,
};
use forebay_store::{Config, Departed, EventInfo, GetAny, PutOptions, PutOutcome, RunState, Sources, Store};
use forebay_testkit::media::SimMedium;
use proptest::prelude::*;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLUSTER: u128 = 0xC1;
/// A store that does not exist.
const OTHER: u128 = 0x07;

/// First run, the epochs of its members and of its slots, and the members of their lower and upper half.
type OneLayout<'a> = (u64, u32, u32, [&'a [u16]; 2]);

/// A map of nodes 1 and 2, the first of which holds `store`.
fn map(epoch: u32, store: Hex128, copies: u8, layouts: &[OneLayout<'_>]) -> Arc<ClusterMap> {
    let group = |joined: u32, since: u32, members: &[u16]| {
        let members: Vec<String> = members.iter().map(|node| format!("[{node},{joined},\"full\"]")).collect();
        format!("{{\"since\":{since},\"members\":[{}]}}", members.join(","))
    };
    let layouts: Vec<String> = layouts
        .iter()
        .map(|(from, joined, since, [low, high])| {
            let (low, high) = (group(*joined, *since, low), group(*joined, *since, high));
            format!("{{\"from_run\":{from},\"slots\":[[0,2047,{low}],[2048,4095,{high}]]}}")
        })
        .collect();
    let node = |id: u16, store: u128| {
        format!(
            "{{\"id\":{id},\"name\":\"n{id}\",\"at\":[\"tcp://n{id}:7440\"],\"domain\":\"d{id}\",\
             \"holds\":[\"{store:032x}\",0],\"state\":\"active\"}}"
        )
    };
    let text = format!(
        "{{\"cluster\":\"{CLUSTER:032x}\",\"epoch\":{epoch},\"nodes\":[{},{}],\"keyspaces\":{{\"model\":\
         {{\"copies\":{copies},\"copies_min\":1,\"layouts\":[{}]}}}}}}",
        node(1, store.0),
        node(2, OTHER),
        layouts.join(",")
    );
    Arc::new(ClusterMap::from_json(&text).unwrap())
}

/// Node 1 has the lower half of the slots, node 2 the upper one.
fn halves(epoch: u32, store: Hex128) -> Arc<ClusterMap> {
    map(epoch, store, 1, &[(0, 1, 1, [&[1], &[2]])])
}

fn events_of(store: &Store, map: &ClusterMap, home: u16, run: u64, n: usize) -> Vec<Primary> {
    let placement = map.keyspace("model").unwrap();
    let all = (0..).map(|event| store.schema().primary(&[run, event * 64]).unwrap());
    all.filter(|primary| placement.home(run, primary.as_bytes()) == home).take(n).collect()
}

fn source(store: &Store, primary: &Primary, source: u64) -> Key {
    let values = store.schema().values(primary.as_bytes());
    key(values[0], values[1], source)
}

fn open(store: &Store, run: u64) {
    store.run_open(run, &store.keyspace().run.clone()).unwrap();
}

fn stored(store: &Store, key: &Key) {
    assert_eq!(put(store, key, b"bytes").unwrap(), PutOutcome::Stored);
}

#[test]
fn a_node_serves_its_own_events_and_names_the_home_of_others() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &keyspace(1), small_config()).unwrap();
    let map = halves(3, store.holding().0);
    assert_eq!((store.epoch(), store.adopted_map()), (0, None));
    assert_eq!(store.adopt_map(&map).unwrap(), Succession::Later);
    assert_eq!(store.adopt_map(&map).unwrap(), Succession::Same);
    assert_eq!((store.epoch(), store.adopted_map()), (3, Some((map.clone(), 1))));
    // Runs are opened by their homes, which only a node knows.
    let message =
        refused(put(&store, &source(&store, &events_of(&store, &map, 1, 7, 1)[0], 0), b"bytes"), Kind::Fenced);
    assert!(message.contains("run 7 is not known") && message.contains("only its home opens it"), "{message}");
    open(&store, 7);
    let (own, others) = (events_of(&store, &map, 1, 7, 3), events_of(&store, &map, 2, 7, 2));
    for primary in &own {
        stored(&store, &source(&store, primary, 0));
    }
    let there = &others[0];
    let at = source(&store, there, 0);
    let ledger = store.ledger(7).unwrap();
    let says = |message: String| {
        assert!(message.contains("its home is node 2") && message.contains("epoch 3"), "{message}");
    };
    says(refused(put(&store, &at, b"bytes"), Kind::Fenced));
    says(refused(store.reserve(&at, 5, &PutOptions::default()), Kind::Fenced));
    says(refused(store.get(&at), Kind::Fenced));
    says(refused(store.get_event(there, &Sources::All), Kind::Fenced));
    says(refused(store.open_event(there, &OpenEvent::default()), Kind::Fenced));
    says(refused(store.seal(there), Kind::Fenced));
    says(refused(store.remove(&at), Kind::Fenced));
    says(refused(store.remove_event(there), Kind::Fenced));
    says(refused(store.update(&at, b"more", None), Kind::Fenced));
    says(refused(store.lease(there, None), Kind::Fenced));
    says(refused(store.release(there), Kind::Fenced));
    says(refused(store.replay(there), Kind::Fenced));
    says(refused(store.outputs(there), Kind::Fenced));
    says(refused(store.reject(there, &Token { epoch: 1, boot: 1, counter: 16 }), Kind::Fenced));
    assert_eq!(store.ledger(7).unwrap(), ledger, "what is another node's is not booked here");
    assert_eq!(store.why(&at).unwrap().answer, "elsewhere");
    // What is absent at its home is absent.
    let absent = &events_of(&store, &map, 1, 7, 4)[3];
    assert!(store.get_event(absent, &Sources::All).unwrap().is_none());
    // Tokens have the epoch of the slot, and a verdict is repeated under it, also after a restart.
    let leases = store.get_any(&GetAny { n: 3, ..GetAny::default() }).unwrap();
    let token = leases[0].token;
    assert_eq!((leases.len(), token.epoch), (3, 1));
    let primary = leases[0].primary;
    store.reject(&primary, &token).unwrap();
    drop(leases);
    store.close().unwrap();
    let store = Store::open(&dir.store(), small_config()).unwrap();
    assert_eq!((store.epoch(), store.adopted_map().unwrap().1), (3, 1));
    store.reject(&primary, &token).unwrap();
    says(refused(put(&store, &at, b"bytes"), Kind::Fenced));
    let again = Token { epoch: 2, ..token };
    refused(store.reject(&primary, &again), Kind::Fenced);
    assert_eq!(store.ledger(7).unwrap().imbalance(), None);
}

#[test]
fn a_map_that_cannot_be_adopted_changes_nothing() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &keyspace(1), small_config()).unwrap();
    let (own, other) = (store.holding().0, Hex128(9));
    let message = refused(store.adopt_map(&halves(1, other)), Kind::Invalid);
    assert!(message.contains("admits no node with store") && message.contains("under a new number"), "{message}");
    store.run_open(5, &store.keyspace().run.clone()).unwrap();
    let message = refused(store.adopt_map(&halves(1, own)), Kind::Invalid);
    assert!(message.contains("run 5 has begun") && message.contains("from a later one on"), "{message}");
    // Alone up to run 5, in halves from run 6 on.
    let joined = map(2, own, 1, &[(0, 1, 1, [&[1], &[1]]), (6, 2, 2, [&[1], &[2]])]);
    assert_eq!(store.adopt_map(&joined).unwrap(), Succession::Later);
    let later = |epoch, from| {
        map(epoch, own, 1, &[(0, 1, 1, [&[1], &[1]]), (6, 2, 2, [&[1], &[2]]), (from, epoch, epoch, [&[2], &[1]])])
    };
    open(&store, 8);
    stored(&store, &source(&store, &events_of(&store, &joined, 1, 8, 1)[0], 0));
    let message = refused(store.adopt_map(&later(3, 8)), Kind::Invalid);
    assert!(message.contains("run 8 has begun"), "{message}");
    refused(store.adopt_map(&halves(1, own)), Kind::Fenced);
    let another = map(2, own, 1, &[(0, 1, 1, [&[1], &[1]]), (7, 2, 2, [&[1], &[2]])]);
    assert!(refused(store.adopt_map(&another), Kind::Conflict).contains("ALARM"));
    assert_eq!(store.epoch(), 2);
    assert_eq!(store.adopt_map(&later(3, 9)).unwrap(), Succession::Later);
    // Runs that have begun stay where they are, and the next one goes by the new layout.
    open(&store, 9);
    let event = &events_of(&store, &joined, 1, 9, 1)[0];
    refused(put(&store, &source(&store, event, 0), b"bytes"), Kind::Fenced);
    stored(&store, &source(&store, &events_of(&store, &joined, 1, 8, 2)[1], 0));
    store.close().unwrap();
    refused(store.adopt_map(&later(4, 10)), Kind::Closed);
}

#[test]
fn a_node_opens_with_the_map_that_it_went_by_or_not_at_all() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &keyspace(1), small_config()).unwrap();
    let own = store.holding().0;
    let file = dir.store().join("map.json");
    // A first adoption that was cut off before the superblock.
    fs::write(&file, halves(1, own).to_json()).unwrap();
    store.close().unwrap();
    let store = Store::open(&dir.store(), small_config()).unwrap();
    assert_eq!((store.epoch(), store.adopted_map()), (0, None));
    store.adopt_map(&halves(5, own)).unwrap();
    store.close().unwrap();
    let opened = || Store::open(&dir.store(), small_config());
    for (text, says) in [
        (halves(4, own).to_json(), "epoch 4, and this node went by epoch 5"),
        (halves(5, own).to_json().replace(&format!("{CLUSTER:032x}"), &format!("{OTHER:032x}")), "is no map"),
        ("nonsense".to_owned(), "is no map"),
    ] {
        fs::write(&file, text).unwrap();
        let message = refused(opened(), Kind::Corrupt);
        assert!(message.contains(says) && message.contains("put the present map"), "{message}");
    }
    fs::remove_file(&file).unwrap();
    assert!(refused(opened(), Kind::Corrupt).contains("cannot be read"));
    // An adoption that was cut off between the file and the superblock is ended.
    fs::write(&file, halves(6, own).to_json()).unwrap();
    let store = opened().unwrap();
    assert_eq!(store.epoch(), 6);
    store.close().unwrap();
    fs::write(&file, halves(5, own).to_json()).unwrap();
    assert!(refused(opened(), Kind::Corrupt).contains("went by epoch 6"));
}

fn config(map: Option<Arc<ClusterMap>>) -> Config {
    Config {
        hot_bytes: REGION_BYTES,
        segment_bytes: Some(16 << 10),
        write_heads: 1,
        put_deadline: Duration::ZERO,
        maintenance: false,
        clock: Arc::new(ManualClock::default()),
        map,
        ..Config::default()
    }
}

const REGION_BYTES: u64 = 1 << 20;
const COUNT: usize = 2;
const BYTES_MAX: usize = 3000;

/// One event, as a reader and an operator find it.
type Found = (EventInfo, Vec<(Key, Vec<u8>)>, Option<Vec<String>>);

/// All that a store says of its events.
fn said(store: &Store) -> (Ledger, Vec<Found>) {
    let found = store.events(&Bounds::all(store.schema())).unwrap().into_iter().map(|info| {
        let event = store.get_event(&info.primary, &Sources::All).unwrap().unwrap();
        let fragments = event.fragments.iter().map(|fragment| (fragment.key(), fragment.to_vec())).collect();
        let outputs = store.outputs(&info.primary).unwrap();
        (info, fragments, outputs.map(|outputs| outputs.into_iter().map(|(stream, _)| stream).collect()))
    });
    // Answers without a record are of the life that gave them: a kill forgets them.
    let mut ledger = store.ledger(crate::common::fixture::RUN).unwrap_or_default();
    for answered in [ledger.duplicate, ledger.conflict, ledger.late, ledger.refused] {
        ledger.offered -= answered;
    }
    ledger = Ledger {
        duplicate: Tally::default(),
        conflict: Tally::default(),
        late: Tally::default(),
        refused: Tally::default(),
        ..ledger
    };
    (ledger, found.collect())
}

fn live(ledger: &Ledger) -> u64 {
    [LiveState::Open, LiveState::Ready, LiveState::Leased, LiveState::Accepted, LiveState::Debug]
        .iter()
        .map(|&state| ledger.live[state].events)
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Events that became another node's and come back are what recovery makes of the same records, whether the node lived on
    /// meanwhile or not.
    #[test]
    fn promotion_of_foreign_events_is_recovery_of_the_same_records(seed in any::<u64>(), turns in 20_usize..250) {
        let medium = SimMedium::new(REGION_BYTES);
        let store = Store::create_on(medium.clone(), &keyspace(COUNT), config(None)).unwrap();
        let own = store.holding().0;
        let led_by = |epoch, since, home| {
            let members: &[u16] = if home == 1 { &[1, 2] } else { &[2, 1] };
            map(epoch, own, 2, &[(0, 1, since, [members, members])])
        };
        let (first, away, back) = (led_by(1, 1, 1), led_by(2, 2, 2), led_by(3, 3, 1));
        store.adopt_map(&first).unwrap();
        store.run_open(crate::common::fixture::RUN, &keyspace(COUNT).run).unwrap();
        let mut model = Model::new(0, COUNT, BYTES_MAX);
        model.may_mask = true;
        let mut driver = Driver::new(seed, 1, 25);
        for _ in 0..turns {
            let op = driver.next_op(&model, false);
            // A hold is a matter of each life.
            if matches!(op, Op::Hold) {
                continue;
            }
            let answer = execute(&store, &model, &op);
            model.apply(&op, &answer).unwrap();
        }
        let image = medium.killed_now();
        let recovered = Store::open_on(SimMedium::from_image(image), &keyspace(COUNT), config(Some(first))).unwrap();
        let expected = said(&recovered);

        store.adopt_map(&away).unwrap();
        prop_assert_eq!(store.events(&Bounds::all(store.schema())).unwrap(), []);
        let (ledger, _) = said(&store);
        prop_assert_eq!((live(&ledger), ledger.imbalance()), (0, None));
        prop_assert_eq!(store.get_any(&GetAny { n: 9, ..GetAny::default() }).unwrap().len(), 0);
        let image = medium.killed_now();

        store.adopt_map(&back).unwrap();
        prop_assert_eq!(&said(&store), &expected);
        let second = Store::open_on(SimMedium::from_image(image), &keyspace(COUNT), config(Some(away))).unwrap();
        prop_assert_eq!(said(&second).1, []);
        second.adopt_map(&back).unwrap();
        prop_assert_eq!(&said(&second), &expected);
        second.tick();
        prop_assert_eq!(second.ledger(crate::common::fixture::RUN).unwrap().imbalance(), None);
    }
}

/// Node 1, which has this store, and node 2 are members of each slot, which `home` leads since this epoch.
fn led_by(own: Hex128, epoch: u32, joined: u32, home: u16) -> Arc<ClusterMap> {
    let members: &[u16] = if home == 1 { &[1, 2] } else { &[2, 1] };
    map(epoch, own, 2, &[(0, joined, epoch, [members, members])])
}

/// A map is in force in all cells at once: who has seen it in one sees no earlier one in the next.
#[test]
fn no_cell_has_an_earlier_map_than_another() {
    let store = Store::create_on(SimMedium::new(REGION_BYTES), &keyspace(COUNT), config(None)).unwrap();
    let own = store.holding().0;
    let adopt = |epoch| store.adopt_map(&led_by(own, epoch, 1, 2)).unwrap();
    assert_eq!(adopt(1), Succession::Later);
    let elsewhere: Vec<_> = (0..64).map(|event| store.schema().primary(&[1, event * 64]).unwrap()).collect();
    let is_seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let goes_on = |_: &u32| !is_seen.load(Ordering::Relaxed);
        let adopts = scope.spawn(move || (2..20_000).take_while(goes_on).for_each(|epoch| _ = adopt(epoch)));
        let (mut last, mut changes) = (1, 0);
        while changes < 200 && !adopts.is_finished() {
            for primary in &elsewhere {
                let text = refused(store.lease(primary, None), Kind::Fenced);
                let (_, epoch) = text.trim_end_matches(')').rsplit_once("epoch ").unwrap();
                let epoch = epoch.parse().unwrap();
                assert!(epoch >= last, "epoch {last} in one cell, and then {epoch} in another");
                changes += u32::from(epoch > last);
                last = epoch;
            }
        }
        is_seen.store(true, Ordering::Relaxed);
        assert!(changes >= 200, "{changes} maps were seen");
    });
}

/// A close drops copies in conflict, on a node that only keeps bytes as well: after a cut none comes back.
#[test]
fn copies_in_conflict_end_with_their_run() {
    let live = |medium: &Arc<SimMedium>| {
        let store = Store::create_on(medium.clone(), &keyspace(COUNT), config(None)).unwrap();
        let map = led_by(store.holding().0, 1, 1, 2);
        store.adopt_map(&map).unwrap();
        open(&store, 1);
        stored(&store, &key(1, 0, 0));
        refused(put(&store, &key(1, 0, 0), b"other bytes"), Kind::Conflict);
        assert_eq!(store.conflicts().len(), 1);
        // Its home is told, and has decided about the event.
        for part in store.untold(2, Report::Prompt, Duration::ZERO, 9).unwrap() {
            store.told(&part, &[]).unwrap();
        }
        store.depart(2, &[Departed::Event(store.schema().primary(&[1, 0]).unwrap())]).unwrap();
        let before = medium.steps();
        store.run_close(1).unwrap();
        (map, before, medium.steps())
    };
    let (_, first, last) = live(&SimMedium::new(REGION_BYTES));
    for (step, seed) in (first..=last).flat_map(|step| (0..8).map(move |seed| (step, seed))) {
        let medium = SimMedium::new(REGION_BYTES);
        medium.arm(step, seed);
        let (map, ..) = live(&medium);
        let Some(image) = medium.crash_image() else { continue };
        let store = Store::open_on(SimMedium::from_image(image), &keyspace(COUNT), config(Some(map))).unwrap();
        let is_closed = store.runs()[0].state == RunState::Closed;
        assert_eq!(store.conflicts().is_empty(), is_closed, "step {step} of {first} to {last}");
    }
}

/// Figures by source go with the account: those of the events that this node is the home of.
#[test]
fn figures_by_source_leave_with_events_and_come_back() {
    let medium = SimMedium::new(REGION_BYTES);
    let store = Store::create_on(medium.clone(), &keyspace(COUNT), config(None)).unwrap();
    let own = store.holding().0;
    let led_by = |epoch, home| led_by(own, epoch, 1, home);
    store.adopt_map(&led_by(1, 1)).unwrap();
    open(&store, 1);
    for event in 0..4 {
        stored(&store, &key(1, event, 0));
        stored(&store, &key(1, event, 1));
    }
    assert!(store.remove_event(&store.schema().primary(&[1, 0]).unwrap()).unwrap());
    let figures = |store: &Store| {
        let rows = store.ledger_by(1, LedgerBy::Source).unwrap().into_iter();
        let sources = store.sources(1).unwrap().into_iter().map(|row| (row.source, row.fragments, row.bytes));
        (rows.map(|row| (row.name, row.live, row.ended)).collect::<Vec<_>>(), sources.collect::<Vec<_>>())
    };
    let here = figures(&store);
    let one = Tally { events: 0, fragments: 1, bytes: b"bytes".len() as u64 };
    let three = Tally { events: 0, fragments: 3, bytes: 3 * one.bytes };
    assert_eq!(here.0, ["0", "1"].map(|source| (source.to_owned(), three, one)));
    let (away, back) = (led_by(2, 2), led_by(3, 1));
    store.adopt_map(&away).unwrap();
    let gone = figures(&store);
    assert_eq!(gone.0, ["0", "1"].map(|source| (source.to_owned(), Tally::default(), one)));
    assert_eq!(gone.1, ["0", "1"].map(|source| (source.to_owned(), 1, one.bytes)));
    store.adopt_map(&back).unwrap();
    assert_eq!(figures(&store), here);
    store.close().unwrap();
}

#[test]
fn a_member_keeps_fragments_that_its_home_counts() {
    let medium = SimMedium::new(REGION_BYTES);
    let store = Store::create_on(medium.clone(), &keyspace(COUNT), config(None)).unwrap();
    let own = store.holding().0;
    let led_by = |epoch, joined, home| led_by(own, epoch, joined, home);
    store.adopt_map(&led_by(1, 1, 2)).unwrap();
    open(&store, 1);
    for event in 0..4 {
        stored(&store, &key(1, event, 0));
        assert_eq!(put(&store, &key(1, event, 0), b"bytes").unwrap(), PutOutcome::Duplicate);
        refused(put(&store, &key(1, event, 0), b"others"), Kind::Conflict);
    }
    stored(&store, &key(1, 0, 1));
    // Nothing of that is this node's to show, to give out or to count.
    refused(store.get(&key(1, 0, 0)), Kind::Fenced);
    refused(store.lease(&store.schema().primary(&[1, 0]).unwrap(), None), Kind::Fenced);
    assert_eq!(store.get_any(&GetAny { n: 9, ..GetAny::default() }).unwrap().len(), 0);
    assert_eq!(store.ledger(1).unwrap(), Ledger::default());
    assert_eq!(store.range(&Bounds::all(store.schema())).count(), 0);
    store.run_stop(1).unwrap();
    let message = refused(store.run_close(1), Kind::Unavailable);
    assert!(message.contains("fragments of 4 events of which their homes may not know"), "{message}");
    // A reservation that is under way when the node leaves the slot is refused at its commit.
    store.run_open(2, &RunConfig::new(forebay_store::core::Completeness::Count(2), COMPLETE)).unwrap();
    let reservation = store.reserve(&key(2, 0, 0), 5, &PutOptions::default()).unwrap();
    let second = store.reserve(&key(2, 1, 0), 5, &PutOptions::default()).unwrap();
    store.adopt_map(&map(2, own, 2, &[(0, 1, 2, [&[2], &[2]])])).unwrap();
    refused(reservation.commit(), Kind::Fenced);
    refused(put(&store, &key(2, 5, 0), b"bytes"), Kind::Fenced);
    // It leads from now on, with all that it has.
    store.adopt_map(&led_by(4, 3, 1)).unwrap();
    assert_eq!(second.commit().unwrap(), PutOutcome::Stored);
    let ledger = store.ledger(1).unwrap();
    assert_eq!((ledger.stored.fragments, live(&ledger), ledger.imbalance()), (5, 4, None));
    assert_eq!(store.events(&Bounds::all(store.schema())).unwrap().len(), 5);
    assert_eq!(
        store.get_any(&GetAny { n: 9, ..GetAny::default() }).unwrap().len(),
        4,
        "those of the stopped run are ready with what they have"
    );
}

const COMPLETE: Duration = Duration::from_secs(3600);

/// The keyspace of a test names itself in its maps.
#[test]
fn a_map_without_the_keyspace_is_refused() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &Keyspace::events("others", 1).opening_runs(), small_config()).unwrap();
    let message = refused(store.adopt_map(&halves(1, store.holding().0)), Kind::Invalid);
    assert!(message.contains("does not have keyspace `others`: add it"), "{message}");
}

/// Somebody who opens runs a moment after they are wanted, and refuses some.
struct Home {
    wanted: std::sync::Mutex<Vec<u64>>,
}

impl forebay_store::RunHome for Home {
    fn wanted(&self, run: u64) -> forebay_store::core::Result<()> {
        if run == 13 {
            return Err(forebay_store::core::Error::closed("run 13 is closed"));
        }
        self.wanted.lock().unwrap().push(run);
        Ok(())
    }
}

#[test]
fn a_put_waits_for_the_home_of_its_run() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &keyspace(1), small_config()).unwrap();
    let map = halves(1, store.holding().0);
    store.adopt_map(&map).unwrap();
    let home = Arc::new(Home { wanted: std::sync::Mutex::default() });
    store.set_run_home(home.clone());
    let at = |run| source(&store, &events_of(&store, &map, 1, run, 1)[0], 0);
    assert!(store.try_put(&at(7), b"bytes", &PutOptions::default(), None).unwrap().is_none(), "it would wait");
    let patient = PutOptions { deadline: Some(Duration::from_secs(20)), ..PutOptions::default() };
    std::thread::scope(|scope| {
        let putting = scope.spawn(|| store.put(&at(7), b"bytes", &patient));
        while home.wanted.lock().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        open(&store, 7);
        assert_eq!(putting.join().unwrap().unwrap(), PutOutcome::Stored);
    });
    assert!(home.wanted.lock().unwrap().iter().all(|&run| run == 7));
    assert!(refused(put(&store, &at(13), b"bytes"), Kind::Closed).contains("run 13 is closed"));
    let soon = PutOptions { deadline: Some(Duration::from_millis(20)), ..PutOptions::default() };
    let message = refused(store.put(&at(9), b"bytes", &soon), Kind::Unavailable);
    assert!(message.contains("run 9 was not opened in time by its home"), "{message}");
}

#[test]
fn a_close_in_two_halves_lets_nothing_in_between() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &keyspace(1), small_config()).unwrap();
    let soon = PutOptions { deadline: Some(Duration::from_millis(20)), ..PutOptions::default() };
    stored(&store, &key(1, 1, 0));
    let message = refused(store.begin_close(1), Kind::Unavailable);
    assert!(message.contains("events that are ready: 1"), "{message}");
    stored(&store, &key(1, 2, 0));
    for lease in store.get_any(&GetAny { n: 2, ..GetAny::default() }).unwrap() {
        lease.reject().unwrap();
    }
    store.begin_close(1).unwrap();
    store.begin_close(1).unwrap();
    refused(store.put(&key(1, 3, 0), b"bytes", &soon), Kind::Unavailable);
    store.abandon_close(1).unwrap();
    stored(&store, &key(1, 3, 0));
    store.get_any(&GetAny::default()).unwrap().pop().unwrap().reject().unwrap();
    store.begin_close(1).unwrap();
    assert_eq!(store.run_close(1).unwrap().ledger.rejected.events, 3);
    refused(store.begin_close(1), Kind::Closed);
    refused(store.abandon_close(1), Kind::Closed);
    refused(store.begin_close(5), Kind::Invalid);
}

#[test]
fn a_hold_of_another_node_keeps_its_number() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &keyspace(1), small_config()).unwrap();
    store.hold_as(7, None, &["lane=3"]).unwrap();
    store.hold_as(7, None, &["lane=3"]).unwrap();
    assert!(refused(store.hold_as(7, None, &["lane=4"]), Kind::Conflict).contains("hold 7 is another one"));
    assert_eq!(store.hold(None, &[]).unwrap(), 8);
    assert_eq!(store.holds().len(), 2);
    store.close().unwrap();
    let store = Store::open(&dir.store(), small_config()).unwrap();
    assert!(store.release_hold(7).unwrap() && store.release_hold(8).unwrap());
    assert_eq!(store.hold(None, &[]).unwrap(), 9);
}
