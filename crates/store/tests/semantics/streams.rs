//! Streams with chosen sources, results that go into them, and what is left when the archive has them.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::staged;
use forebay_store::core::limits::STREAMS_MAX;
use forebay_store::core::{Bounds, Keyspace, Kind, LiveState, Result, Source, Token};
use forebay_store::{Accept, LedgerBy, ResultFragment, Sources};

fn only(store: &Fixture, sources: &[u64]) -> Sources {
    Sources::only(store.schema(), sources.iter().copied()).unwrap()
}

fn accept(store: &Fixture, event: u64, token: &Token, streams: &[(&str, Sources)]) -> Result<()> {
    store.accept_into(&store.primary(event), token, &Accept { streams, results: &[] })
}

fn three_sources(store: &Fixture, event: u64) -> Token {
    (0..3).for_each(|source| store.stored(event, source, &[0; 10]));
    store.take(event).token
}

fn outputs(store: &Fixture, event: u64) -> Vec<(String, Sources)> {
    store.outputs(&store.primary(event)).unwrap().expect("an accepted event")
}

#[test]
fn each_stream_keeps_its_sources_and_all_results() {
    let mut store = Fixture::new(&staged(3));
    let token = three_sources(&store, 1);
    let result = store.source(50);
    let streams = [
        ("physics", Sources::All),
        ("express", only(&store, &[1])),
        ("monitor", Sources::None),
        ("tile", only(&store, &[2, 0])),
    ];
    let how = Accept { streams: &streams, results: &[ResultFragment::new(&result, b"tracks")] };
    store.accept_into(&store.primary(1), &token, &how).unwrap();
    let check = |store: &Fixture| {
        let mut kept = outputs(store, 1);
        kept.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(
            kept,
            [
                ("express".to_owned(), only(store, &[1, 50])),
                ("monitor".to_owned(), only(store, &[50])),
                ("physics".to_owned(), Sources::All),
                ("tile".to_owned(), only(store, &[0, 2, 50])),
            ]
        );
        let event = store.get_event(&store.primary(1), &Sources::All).unwrap().unwrap();
        assert_eq!((event.state, event.streams.len(), event.fragments.len()), (LiveState::Accepted, 4, 4));
        let rows = store.ledger_by(RUN, LedgerBy::Stream).unwrap();
        let live = |name: &str| rows.iter().find(|row| row.name == name).unwrap().live;
        let of = |name| (live(name).events, live(name).fragments, live(name).bytes);
        assert_eq!(["physics", "express", "monitor", "tile"].map(of), [(1, 4, 36), (1, 2, 16), (1, 1, 6), (1, 3, 26)]);
    };
    store.in_every_life(check);
    store.accept_into(&store.primary(1), &token, &how).unwrap();
    check(&store);
    assert!(store.release(&store.primary(1)).unwrap());
    store.in_every_life(|store| {
        assert_eq!(store.outputs(&store.primary(1)).unwrap(), None);
        let rows = store.ledger_by(RUN, LedgerBy::Stream).unwrap();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.live.events == 0 && row.released.events == 1), "{rows:?}");
        assert_eq!(store.ledger(RUN).unwrap().released.fragments, 4);
    });
}

#[test]
fn the_same_choice_again_gets_the_same_answer_and_another_one_is_fenced() {
    let mut store = Fixture::new(&staged(3));
    let token = three_sources(&store, 1);
    let chosen = [("express", only(&store, &[1])), ("main", Sources::All)];
    let turned = [("main", Sources::All), ("express", only(&store, &[1]))];
    let others = [("express", only(&store, &[2])), ("main", Sources::All)];
    accept(&store, 1, &token, &chosen).unwrap();
    store.in_every_life(|store| {
        accept(store, 1, &token, &chosen).unwrap();
        accept(store, 1, &token, &turned).unwrap();
        refused(accept(store, 1, &token, &others), Kind::Fenced);
        refused(store.accept(&store.primary(1), &token, &["express", "main"]), Kind::Fenced);
        refused(store.reject(&store.primary(1), &token), Kind::Fenced);
    });
    assert!(store.release(&store.primary(1)).unwrap());
    // Also when no accepted event has this choice any more, and a snapshot has replaced the log that named it.
    store.in_every_life(|store| {
        accept(store, 1, &token, &chosen).unwrap();
        accept(store, 1, &token, &turned).unwrap();
        refused(accept(store, 1, &token, &others), Kind::Fenced);
        assert_eq!(store.state(1), None);
    });
}

/// The log takes one snapshot after another while no accepted event has a choice: what an accept names must not be forgotten
/// before its record is durable.
#[test]
fn a_choice_is_not_forgotten_between_its_naming_and_its_accept() {
    let mut store = Fixture::new(&staged(1));
    for event in 0..3000 {
        store.stored(event, 0, b"x");
        let token = store.take(event).token;
        let sources = only(&store, &[0, 1000 + event % 50]);
        accept(&store, event, &token, &[("express", sources.clone())]).unwrap();
        assert_eq!(outputs(&store, event), [("express".to_owned(), sources)], "event {event}");
        if event % 100 == 99 {
            store.crash();
            assert_eq!(outputs(&store, event).len(), 1, "event {event}");
        }
        assert!(store.release(&store.primary(event)).unwrap());
    }
    let rows = store.ledger_by(RUN, LedgerBy::Stream).unwrap();
    assert_eq!((rows.len(), rows[0].released.events), (1, 3000));
}

#[test]
fn choices_that_cannot_be_decide_nothing() {
    let mut store = Fixture::new(&staged(3));
    let token = three_sources(&store, 1);
    let name = store.primary(1);
    refused(accept(&store, 1, &token, &[("a", Sources::All), ("a", only(&store, &[1]))]), Kind::Invalid);
    refused(accept(&store, 1, &token, &[("a", Sources::Only(vec![Source::from_packed(&[1, 2, 3])]))]), Kind::Invalid);
    refused(accept(&store, 1, &token, &[("", Sources::None)]), Kind::Invalid);
    refused(accept(&store, 1, &token, &[(&"n".repeat(65), Sources::None)]), Kind::Invalid);
    let taken = store.source(1);
    let how = Accept { streams: &[("a", Sources::All)], results: &[ResultFragment::new(&taken, b"x")] };
    refused(store.accept_into(&name, &token, &how), Kind::Conflict);
    let foreign = Token { counter: token.counter + 16, ..token };
    refused(accept(&store, 1, &foreign, &[("new", only(&store, &[1]))]), Kind::Fenced);
    let names: Vec<String> = (0..256).map(|stream| format!("stream-{stream}")).collect();
    let many: Vec<(&str, Sources)> = names.iter().map(|name| (name.as_str(), Sources::None)).collect();
    refused(accept(&store, 1, &token, &many), Kind::Invalid);
    assert_eq!((store.state(1), store.outputs(&name).unwrap()), (Some(LiveState::Leased), None));
    store.reject(&name, &token).unwrap();
    store.in_every_life(|store| assert_eq!(store.ledger(RUN).unwrap().rejected.fragments, 3));
}

#[test]
fn an_event_may_be_kept_by_no_stream_at_all() {
    let mut store = Fixture::new(&staged(3));
    let token = three_sources(&store, 1);
    accept(&store, 1, &token, &[]).unwrap();
    store.in_every_life(|store| {
        assert!(outputs(store, 1).is_empty());
        accept(store, 1, &token, &[]).unwrap();
    });
    assert!(store.release(&store.primary(1)).unwrap());
}

#[test]
fn groups_name_sources_and_unknown_ones_are_refused() {
    let mut keyspace = staged(3);
    let sources = [0, 2].map(|source| keyspace.schema.source(&[source]).unwrap()).into();
    keyspace.groups =
        vec![forebay_store::core::SourceGroup { name: "calo".to_owned(), sources, level: Default::default() }];
    let store = Fixture::new(&keyspace);
    let token = three_sources(&store, 1);
    let calo = Sources::group(store.keyspace(), "calo").unwrap();
    assert_eq!(calo, only(&store, &[0, 2]));
    refused(Sources::group(store.keyspace(), "muon"), Kind::Invalid);
    accept(&store, 1, &token, &[("calo", calo.clone())]).unwrap();
    assert_eq!(outputs(&store, 1), [("calo".to_owned(), calo)]);
}

/// Accepts an event of one fragment into these streams.
fn accepted(store: &Fixture, event: u64, streams: &[&str]) -> Token {
    store.stored(event, 0, &[event as u8; 10]);
    let lease = store.take(event);
    lease.accept(streams).unwrap();
    lease.token
}

/// Numbers of streams are bits up to 30, then bytes, and more than three such are an output: each is kept, repeated, accounted
/// and released by name.
fn whole_events_in_255_streams(keyspace: &Keyspace) {
    let mut store = Fixture::new(keyspace);
    let names: Vec<String> = (0..STREAMS_MAX).map(|stream| format!("stream-{stream}")).collect();
    for (event, name) in names.iter().enumerate() {
        accepted(&store, event as u64, &[name]);
    }
    let sets: [&[usize]; 5] = [&[200], &[30, 31], &[0, 31, 254], &[0, 1, 2, 200], &[200, 201, 202, 203, 204]];
    let sets = sets.map(|set| set.iter().map(|&stream| names[stream].as_str()).collect::<Vec<&str>>());
    let tokens: Vec<(u64, &Vec<&str>, Token)> =
        (1000..).zip(&sets).map(|(event, set)| (event, set, accepted(&store, event, set))).collect();
    store.stored(2000, 0, b"x");
    let lease = store.take(2000);
    refused(lease.accept(&["one more"]), Kind::Invalid);
    lease.reject().unwrap();
    store.in_every_life(|store| {
        for (event, set, token) in &tokens {
            let kept: Vec<(String, Sources)> = set.iter().map(|name| ((*name).to_owned(), Sources::All)).collect();
            assert_eq!(outputs(store, *event), kept);
            let event_seen = store.get_event(&store.primary(*event), &Sources::None).unwrap().unwrap();
            assert_eq!(event_seen.streams, **set);
            // The same again in any order, and by the other call; fewer are another verdict.
            let turned: Vec<&str> = set.iter().rev().copied().collect();
            store.accept(&store.primary(*event), token, &turned).unwrap();
            let all: Vec<(&str, Sources)> = set.iter().map(|name| (*name, Sources::All)).collect();
            accept(store, *event, token, &all).unwrap();
            refused(store.accept(&store.primary(*event), token, &set[1..]), Kind::Fenced);
        }
        let rows = store.ledger_by(RUN, LedgerBy::Stream).unwrap();
        assert_eq!(rows.len(), STREAMS_MAX);
        assert_eq!((rows[200].name.as_str(), rows[200].live.events), ("stream-200", 4));
        assert_eq!((rows[254].live.events, rows[199].live.events), (2, 1));
    });
    let all = Bounds::all(store.schema());
    let release = |store: &Fixture, name: &str| store.release_range(&all, Some(name), None).unwrap().events;
    assert_eq!(release(&store, "stream-200"), 4);
    assert_eq!(release(&store, "stream-200"), 0);
    assert_eq!(release(&store, "stream-31"), 3);
    store.in_every_life(|store| {
        let rows = store.ledger_by(RUN, LedgerBy::Stream).unwrap();
        assert_eq!((rows[200].live.events, rows[200].released.events, rows[204].released.events), (0, 4, 1));
        assert_eq!((rows[30].released.events, rows[30].live.events), (1, 1));
        // What is repeated after the release is answered as before.
        for (event, set, token) in &tokens {
            store.accept(&store.primary(*event), token, set).unwrap();
        }
    });
}

#[test]
fn a_store_has_255_streams_by_their_first_use() {
    whole_events_in_255_streams(&staged(1));
}

#[test]
fn a_keyspace_declares_255_streams() {
    let streams = (0..STREAMS_MAX).map(|stream| format!("stream-{stream}")).collect();
    whole_events_in_255_streams(&Keyspace { streams, ..staged(1) });
}

#[test]
fn only_declared_streams_take_events() {
    let streams = ["physics", "express", "calibration"].map(str::to_owned).into();
    let mut store = Fixture::new(&Keyspace { streams, ..staged(3) });
    let token = three_sources(&store, 1);
    let name = store.primary(1);
    store.in_every_life(|store| {
        let near = refused(store.accept(&name, &token, &["physics", "expres"]), Kind::Invalid);
        assert!(near.contains("did you mean `express`?") && near.contains("physics, express, calibration"), "{near}");
    });
    // A lease ends with its life. What was refused made no stream.
    let token = store.take(1).token;
    refused(accept(&store, 1, &token, &[("phyiscs", Sources::None)]), Kind::Invalid);
    refused(store.accept(&name, &token, &[""]), Kind::Invalid);
    let all = Bounds::all(store.schema());
    refused(store.release_range(&all, Some("phyiscs"), None), Kind::Invalid);
    // A declared stream is known before its first event.
    assert_eq!(store.release_range(&all, Some("calibration"), None).unwrap().events, 0);
    store.accept(&name, &token, &["express"]).unwrap();
    store.in_every_life(|store| assert_eq!(outputs(store, 1), [("express".to_owned(), Sources::All)]));
}
