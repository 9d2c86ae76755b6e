//! A ring on three nodes: each source where the look-up table says, windows from all of them, also over a source that has moved.

use crate::common::{Cluster, NODES, links};
use forebay_client::{ClusterClient, ClusterRing, Connected, Options, RingClient, RingFrame};
use forebay_core::map::{Change, ClusterMap};
use forebay_core::{
    Coverage, Either, Error, KeepsTicks, Kind, RingOutcome, RingPut, RingSources, RingStore, SourceId, Stretch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SPAN: u32 = 10;

fn options() -> Options {
    Options { keyspace: links().name, deadline: Duration::from_secs(2), ..Options::default() }
}

fn connect(cluster: &Cluster) -> ClusterRing {
    ClusterRing::connect(&cluster.addresses(), options()).unwrap()
}

fn alone(cluster: &Cluster, id: u16) -> RingClient {
    RingClient::connect(&cluster.addresses()[usize::from(id) - 1], options()).unwrap()
}

fn source(link: u64) -> SourceId {
    links().source(&[link]).unwrap()
}

/// The fragments of some sources in some ticks, each with its own bytes.
fn put(ring: &ClusterRing, links: &[u64], ticks: std::ops::Range<u64>, run: u32) {
    let names: Vec<(SourceId, u64)> =
        ticks.step_by(SPAN as usize).flat_map(|tick| links.iter().map(move |link| (source(*link), tick))).collect();
    let values: Vec<String> = names.iter().map(|(source, tick)| format!("{source} at {tick}")).collect();
    let frame = |((source, timestamp), value): (&(SourceId, u64), &'static [u8])| RingFrame {
        source: *source,
        timestamp: *timestamp,
        span: SPAN,
        value,
        options: RingPut { run, status: 0 },
    };
    let values = values.into_iter().map(|value| &*value.into_bytes().leak());
    let frames: Vec<RingFrame<'_>> = names.iter().zip(values).map(frame).collect();
    for (outcome, frame) in ring.put_many(&frames).into_iter().zip(&frames) {
        assert_eq!(outcome.unwrap(), RingOutcome::Stored, "{frame:?}");
    }
}

/// Sources that a node has something of.
fn at_node(cluster: &Cluster, id: u16) -> Vec<SourceId> {
    let ring = cluster.members[usize::from(id) - 1].as_ref().unwrap().ring.as_ref().unwrap();
    ring.sources().into_iter().map(|row| row.source).collect()
}

/// A window in which nothing is missing: each source with its fragments' bytes.
#[track_caller]
fn complete(ring: &ClusterRing, ticks: std::ops::Range<u64>, sources: &RingSources) -> Vec<(SourceId, Vec<Vec<u8>>)> {
    let window = ring.window(ticks.start, ticks.end, sources, Duration::from_secs(20)).unwrap();
    let of = |one: &forebay_client::SourceWindow| {
        let whole = Stretch { begin: ticks.start, end: ticks.end, state: Coverage::Complete };
        assert_eq!(one.coverage, [whole], "{}", one.source);
        one.fragments().iter().for_each(|fragment| fragment.verify().unwrap());
        (one.source, one.fragments().iter().map(|fragment| fragment.bytes().to_vec()).collect())
    };
    window.sources.iter().map(of).collect()
}

fn bytes(link: u64, ticks: std::ops::Range<u64>) -> (SourceId, Vec<Vec<u8>>) {
    let source = source(link);
    let one = |tick| format!("{source} at {tick}").into_bytes();
    (source, ticks.step_by(SPAN as usize).map(one).collect())
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, kind: Kind, words: &str) {
    let error = answer.unwrap_err();
    assert!(error.kind() == kind && error.message().contains(words), "{error}");
}

#[test]
fn each_source_is_at_its_node_and_a_window_has_all() {
    // No table names the second node, which does not serve the ring.
    let cluster = Cluster::with_rings([1, 3, 3], &[1, 3]);
    let ring = connect(&cluster);
    put(&ring, &[0, 1, 2], 0..100, 4);
    assert_eq!([1, 3].map(|id| at_node(&cluster, id)), [vec![source(0)], vec![source(1), source(2)]]);
    let all = [0, 1, 2].map(|link| bytes(link, 0..100));
    assert_eq!(complete(&ring, 0..100, &RingSources::All), all);
    let some = RingSources::Only(vec![source(2), source(0)]);
    assert_eq!(complete(&ring, 20..40, &some), [bytes(2, 20..40), bytes(0, 20..40)], "in the order that was asked for");
    let rows = ring.sources().unwrap();
    assert_eq!(
        rows.iter().map(|row| (row.source, row.fragments)).collect::<Vec<_>>(),
        [0, 1, 2].map(|link| (source(link), 10))
    );
    let stats = ring.stats().unwrap();
    assert_eq!((stats.fragments, stats.ledger.stored.fragments), (30, 30));
    assert_eq!(ring.ledger_of(4).unwrap().stored.fragments, 30);
    assert_eq!(ring.chunks().unwrap().iter().map(|chunk| chunk.fragments).sum::<u64>(), 30);
    assert!(ring.now().unwrap().is_some() && ring.losses().unwrap().is_empty());
    // A wait is for what comes, at the node to which it comes.
    let waited = ring.clone();
    let waiting = std::thread::spawn(move || complete(&waited, 90..110, &RingSources::All));
    std::thread::sleep(Duration::from_millis(50));
    put(&ring, &[0, 1, 2], 100..110, 4);
    assert_eq!(waiting.join().unwrap(), [0, 1, 2].map(|link| bytes(link, 90..110)));
    // Also for who does not know what it is.
    let Either::There(same) = Connected::cluster(&cluster.addresses()[1..], &options()).unwrap() else {
        panic!("a ring")
    };
    assert_eq!(same.sources().unwrap().len(), 3);
    let events = Options { keyspace: "events".to_owned(), ..options() };
    assert!(matches!(Connected::cluster(&cluster.addresses(), &events).unwrap(), Either::Here(_)));
    refused(ClusterRing::connect(&cluster.addresses(), events), Kind::Invalid, "Client");
    refused(ClusterClient::connect(&cluster.addresses(), options()), Kind::Invalid, "RingClient");
}

#[test]
fn a_node_refuses_what_another_one_is_to_take() {
    let cluster = Cluster::with_rings([1, 3, 3], &[1, 2, 3]);
    let put = |id, link| alone(&cluster, id).put(&source(link), 0, SPAN, b"x", &RingPut::default());
    refused(put(2, 0), Kind::Fenced, "goes to node 1, and this is node 2");
    refused(put(1, 7), Kind::Invalid, "no look-up table");
    assert!((1..=NODES).all(|id| at_node(&cluster, id).is_empty()));
    let ring = connect(&cluster);
    refused(ring.put(&source(7), 0, SPAN, b"x", &RingPut::default()), Kind::Invalid, "no look-up table");
    assert_eq!(put(1, 0).unwrap(), RingOutcome::Stored);
    assert_eq!(ring.put(&source(0), 0, SPAN, b"x", &RingPut::default()).unwrap(), RingOutcome::Duplicate);
    refused(ring.put(&source(0), 0, SPAN, b"y", &RingPut::default()), Kind::Conflict, "");
}

/// The map with one more table: source 0 moves from node 1 to node 2, and source 3 is new there, from run 5 on.
fn moved(map: &ClusterMap) -> Arc<ClusterMap> {
    let sources = [(0, 2), (1, 3), (2, 3), (3, 2)].map(|(source, node): (u64, u16)| (source.to_string(), vec![node]));
    Arc::new(map.next_map(&Change::Table { keyspace: links().name, from_run: 5, sources: sources.into() }).unwrap())
}

#[test]
fn a_window_goes_over_the_move_of_a_source() {
    let cluster = Cluster::with_rings([1, 3, 3], &[1, 2, 3]);
    let (ring, readers, other) = (connect(&cluster), [connect(&cluster), connect(&cluster)], connect(&cluster));
    put(&ring, &[0, 1], 0..50, 4);
    let hour = Duration::from_secs(3600);
    let mut held = readers.clone().map(|reader| reader.pin(0, 50, &RingSources::Only(vec![source(0)]), hour).unwrap());
    let next = moved(&cluster.map);
    for member in cluster.members.iter().flatten() {
        member.node.adopt(&next).unwrap();
    }
    // By the earlier map it would go to node 1, which refuses it and has the later one.
    put(&ring, &[0, 1], 50..100, 5);
    assert_eq!(ring.map().epoch(), next.epoch());
    assert_eq!([1, 2].map(|id| at_node(&cluster, id)), [vec![source(0)], vec![source(0)]]);
    for sources in [RingSources::All, RingSources::Only(vec![source(0), source(1)])] {
        assert_eq!(complete(&ring, 0..100, &sources), [0, 1].map(|link| bytes(link, 0..100)));
    }
    // Clients that only read, and go by the earlier map, hear of the later one.
    for (reader, sources) in readers.iter().zip([RingSources::All, RingSources::Only(vec![source(0), source(1)])]) {
        assert_eq!(complete(reader, 0..100, &sources), [0, 1].map(|link| bytes(link, 0..100)));
    }
    // A client with the earlier map puts what only the later one names.
    let new = other.put(&source(3), 50, SPAN, b"new", &RingPut { run: 5, status: 0 });
    assert_eq!(new.unwrap(), RingOutcome::Stored);
    // What a pin is to keep from now on is the other node's as well.
    for (pin, reader) in held.iter_mut().zip(&readers) {
        refused(pin.move_to(10, 100, hour), Kind::Fenced, "has moved to another node");
        *pin = reader.pin(10, 100, &RingSources::Only(vec![source(0)]), hour).unwrap();
        pin.move_to(20, 100, hour).unwrap();
    }
    assert_eq!(ring.stats().unwrap().pins.len(), 4);
    let row = &ring.sources().unwrap()[0];
    assert_eq!((row.oldest, row.first, row.newest, row.fragments, row.run), (Some(0), Some(0), Some(100), 10, 5));
    // What is still to come is waited for.
    let began = Instant::now();
    let window = ring.window(80, 120, &RingSources::Only(vec![source(0)]), Duration::from_millis(200)).unwrap();
    let states: Vec<Coverage> = window.sources[0].coverage.iter().map(|stretch| stretch.state).collect();
    assert_eq!(states, [Coverage::Complete, Coverage::NotYet]);
    assert!(began.elapsed() >= Duration::from_millis(190));
}

/// Two threads share a client, and a third one reads, while the map changes under them.
#[test]
fn what_is_put_while_a_source_moves_is_all_there() {
    let cluster = Cluster::with_rings([1, 3, 3], &[1, 2, 3]);
    let (ring, reader) = (connect(&cluster), connect(&cluster));
    let (next, run) = (moved(&cluster.map), AtomicU32::new(4));
    std::thread::scope(|scope| {
        let readout = |link: u64| {
            for tick in (0..6000).step_by(SPAN as usize) {
                let value = format!("{} at {tick}", source(link)).into_bytes();
                // The second half is of the next run, however long the map takes.
                while tick >= 3000 && run.load(Ordering::SeqCst) == 4 {
                    std::thread::yield_now();
                }
                // By no node for as long as the one that is to take it has not adopted the map: the client waits for it.
                let options = RingPut { run: run.load(Ordering::SeqCst), status: 0 };
                let outcome = ring.put(&source(link), tick, SPAN, &value, &options);
                assert_eq!(outcome.unwrap(), RingOutcome::Stored);
            }
        };
        let readouts = [0, 1].map(|link| scope.spawn(move || readout(link)));
        let reading = scope.spawn(|| complete(&reader, 0..6000, &RingSources::Only(vec![source(0), source(1)])));
        crate::common::eventually("some are put", || ring.stats().unwrap().fragments > 200);
        for member in cluster.members.iter().flatten() {
            member.node.adopt(&next).unwrap();
        }
        run.store(5, Ordering::SeqCst);
        readouts.into_iter().for_each(|readout| readout.join().unwrap());
        assert_eq!(reading.join().unwrap(), [0, 1].map(|link| bytes(link, 0..6000)));
    });
    assert!([1, 2].iter().all(|id| at_node(&cluster, *id) == [source(0)]), "a part of it on each");
}

#[test]
fn pins_are_on_every_node_and_a_node_that_does_not_answer_is_named() {
    let mut cluster = Cluster::with_rings([1, 3, 3], &[1, 2, 3]);
    let ring = connect(&cluster);
    put(&ring, &[0, 1, 2], 0..100, 4);
    let hour = Duration::from_secs(3600);
    let pins = |ring: &ClusterRing| ring.stats().unwrap().pins;
    let mut held = ring.pin(0, 50, &RingSources::Only(vec![source(0), source(2)]), hour).unwrap();
    assert_eq!(pins(&ring).len(), 2);
    held.move_to(10, 60, hour).unwrap();
    assert!(pins(&ring).iter().all(|pin| (pin.begin, pin.end) == (10, 60)));
    assert!(pins(&ring).iter().any(|pin| pin.id == held.id()));
    drop(held);
    crate::common::eventually("a pin ends with its holder", || pins(&ring).is_empty());
    let kept = ring.keep(0, 50, &RingSources::All, hour).unwrap();
    let listed = pins(&ring);
    assert_eq!(kept.len(), 2, "each node that a table names, also for sources that come");
    assert!(kept.iter().all(|pin| listed.iter().any(|other| other.id == pin.id && other.kept)));
    for pin in &kept {
        assert!(ring.unpin(pin.id).unwrap() && !ring.unpin(pin.id).unwrap());
    }
    // One node refuses: none of them keeps anything.
    refused(ring.keep(0, 100_000_000, &RingSources::All, hour), Kind::Full, "node");
    assert!(pins(&ring).is_empty());

    cluster.stop(3);
    refused(ring.window(0, 100, &RingSources::All, Duration::ZERO), Kind::Unavailable, "node 3 (`n3`)");
    assert_eq!(complete(&ring, 0..100, &RingSources::Only(vec![source(0)])), [bytes(0, 0..100)]);
    let options = RingPut { run: 4, status: 0 };
    let frame = |link| RingFrame { source: source(link), timestamp: 100, span: SPAN, value: b"x", options };
    let outcomes = ring.put_many(&[frame(0), frame(1)]);
    assert_eq!(outcomes[0].as_ref().unwrap(), &RingOutcome::Stored);
    assert!(matches!(outcomes[1].as_ref().unwrap_err().kind(), Kind::Unavailable | Kind::OutcomeUnknown));
    cluster.start(3);
    assert_eq!(complete(&ring, 0..100, &RingSources::All), [0, 1, 2].map(|link| bytes(link, 0..100)));
}
