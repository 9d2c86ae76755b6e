//! Rings on a server: what embedded callers see of one, clients see as well.

use crate::network::scene::{Dir, until};
use forebay_client::core::{GapCause, Kind, RingKeyspace, SourceId, SourceSchema};
use forebay_client::{Client, Options, RingClient, RingFrame, SourceWindow};
use forebay_ring::{Coverage, Ring, RingConfig, RingOutcome, RingPut, RingSources};
use forebay_server::{Endpoint, Protocol, Served, Server, ServerConfig};
use std::time::{Duration, Instant};

/// Ticks of a fragment.
const SPAN: u32 = 10;

fn keyspace() -> RingKeyspace {
    RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["crate:u4", "link:u16"]).unwrap(),
        ticks_per_second: 1_000_000,
        sources_max: 8,
        history: Duration::from_millis(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(3600),
        fragment_bytes_max: 100_000,
        pin_percent: 50,
    }
}

struct Scene {
    dir: Dir,
    ring: Ring,
    server: Option<Server>,
}

impl Scene {
    fn new() -> Scene {
        let dir = Dir::new();
        let config = RingConfig { hot_bytes: 32 << 20, segment_bytes: Some(256 << 10), ..RingConfig::default() };
        let ring = Ring::create(&dir.path().join("ring"), &keyspace(), config).unwrap();
        let server = Some(serve(&ring, &dir, "127.0.0.1:0".parse().unwrap()));
        Scene { dir, ring, server }
    }

    fn tcp(&self) -> String {
        let mut endpoints = self.server.as_ref().unwrap().endpoints();
        let (_, endpoint) = endpoints.find(|(protocol, _)| *protocol == Protocol::Native).unwrap();
        endpoint.to_string()
    }

    fn client(&self, window_bytes: u32) -> RingClient {
        let options = Options { window_bytes, name: "rings".to_owned(), ..Options::default() };
        RingClient::connect(&self.tcp(), options).unwrap()
    }
}

fn serve(ring: &Ring, dir: &Dir, tcp: std::net::SocketAddr) -> Server {
    let native = vec![Endpoint::Tcp(tcp), Endpoint::Unix(dir.socket())];
    Server::start([ring.clone()], ServerConfig { native, threads: 1, ..ServerConfig::default() }).unwrap()
}

fn source(link: u64) -> SourceId {
    keyspace().source(&[3, link]).unwrap()
}

fn payload(link: u64, timestamp: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64 ^ timestamp.wrapping_mul(31) ^ link << 3) as u8).collect()
}

/// The window of a client is that of the ring, stretch by stretch and byte by byte.
fn check_equal(ring: &Ring, client: &RingClient, begin: u64, end: u64, sources: &RingSources) -> u64 {
    let ours = client.window(begin, end, sources, Duration::ZERO).unwrap();
    let theirs = ring.window(begin, end, sources, Duration::ZERO).unwrap();
    assert_eq!((ours.begin, ours.end, ours.is_complete()), (begin, end, theirs.is_complete()));
    assert_eq!(ours.sources.len(), theirs.sources.len());
    let mut bytes = 0;
    for (ours, theirs) in ours.sources.iter().zip(&theirs.sources) {
        assert_eq!((ours.source, &ours.coverage), (theirs.source, &theirs.coverage));
        assert_eq!((ours.fragments().len(), ours.bytes_total()), (theirs.fragments().len(), theirs.bytes_total()));
        for (ours, theirs) in ours.fragments().iter().zip(theirs.fragments()) {
            let said = (ours.timestamp(), ours.span(), ours.run(), ours.status());
            assert_eq!(said, (theirs.timestamp, theirs.span, theirs.run, theirs.status));
            assert_eq!(ours.bytes(), theirs.bytes);
            ours.verify().unwrap();
        }
        bytes += ours.bytes_total();
    }
    bytes
}

#[test]
fn windows_are_those_of_the_ring() {
    let scene = Scene::new();
    let client = scene.client(64 << 10);
    // Fragments of all sizes, empty ones and one longer than the client's window among them; every seventh is missing.
    let sizes = [0, 1, 700, 2047, 2048, 9000, 90_000];
    let mut offered = 0;
    for link in 0..5 {
        let values: Vec<Vec<u8>> =
            (0..60).map(|at| payload(link, at, sizes[(at + link) as usize % sizes.len()])).collect();
        let frames: Vec<RingFrame<'_>> = (0..60)
            .filter(|at| at % 7 != 3)
            .map(|at| RingFrame {
                source: source(link),
                timestamp: 1000 + at * u64::from(SPAN),
                span: SPAN,
                value: &values[at as usize],
                options: RingPut { run: 4, status: at as u32 },
            })
            .collect();
        let outcomes = client.put_many(&frames).unwrap();
        assert!(outcomes.iter().all(|outcome| *outcome.as_ref().unwrap() == RingOutcome::Stored), "{outcomes:?}");
        offered += frames.iter().map(|frame| frame.value.len() as u64).sum::<u64>();
    }
    assert_eq!(check_equal(&scene.ring, &client, 0, 10_000, &RingSources::All), offered);
    check_equal(&scene.ring, &client, 1015, 1245, &RingSources::Only(vec![source(4), source(2), source(7)]));
    check_equal(&scene.ring, &client, 1000, 1001, &RingSources::Only(vec![source(1)]));
    check_equal(&scene.ring, &client, 5_000_000, u64::MAX, &RingSources::All);
    assert_eq!(check_equal(&scene.ring, &client, 0, u64::MAX, &RingSources::Only(Vec::new())), 0);
    // What is there for people.
    let (ours, theirs) = (client.sources().unwrap(), scene.ring.sources());
    let plain = |list: &[forebay_client::core::RingSourceStatus]| {
        list.iter().map(|one| (one.source, one.oldest, one.newest, one.fragments, one.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(plain(&ours), plain(&theirs));
    assert_eq!(client.ledger_of(4).unwrap(), scene.ring.ledger_of(4));
    assert_eq!(client.stats().unwrap().ledger, scene.ring.stats().ledger);
    assert!(client.losses().unwrap().is_empty());
    until("no window keeps anything", || scene.ring.stats().holders.iter().all(|holder| holder.guards == 0));
}

/// A server reads a long window piece by piece: each fragment comes once, also where it reaches over pieces, and what is
/// known of a stretch is said as one.
#[test]
fn long_windows_come_in_slices_that_nobody_sees() {
    let scene = Scene::new();
    let client = scene.client(64 << 10);
    for link in 0..3_u64 {
        // A minute of ticks; a slice has four seconds of them. Some reach over the next ones, some are far apart.
        for at in (0..120_u64).filter(|at| at % 17 != 5 && !(40..70).contains(at)) {
            let value = payload(link, at, 3000);
            let span = if at % 11 == 0 { 9_000_000 } else { 500_000 };
            let put = client.put(&source(link), at * 500_000, span, &value, &RingPut { run: 1, status: 0 });
            assert_eq!(put.unwrap(), RingOutcome::Stored);
        }
    }
    assert!(check_equal(&scene.ring, &client, 0, 60_000_000, &RingSources::All) > 600_000);
    check_equal(&scene.ring, &client, 0, u64::MAX, &RingSources::All);
    check_equal(&scene.ring, &client, 3_999_999, 41_000_001, &RingSources::Only(vec![source(2), source(9), source(0)]));
    let many = RingSources::Only((0..9).map(source).collect());
    let error = client.window(0, 10, &many, Duration::ZERO).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.message().contains("at most 8"), "{error}");
}

#[test]
fn what_cannot_be_taken_is_said_as_embedded() {
    let scene = Scene::new();
    let client = scene.client(1 << 20);
    let put = |timestamp, span, value: &[u8]| client.put(&source(1), timestamp, span, value, &RingPut::default());
    assert_eq!(put(100, SPAN, b"bytes").unwrap(), RingOutcome::Stored);
    assert_eq!(put(100, SPAN, b"bytes").unwrap(), RingOutcome::Duplicate);
    assert_eq!(put(100, SPAN, b"other").unwrap_err().kind(), Kind::Conflict);
    assert_eq!(put(100, 0, b"").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(put(u64::MAX, 2, b"").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(put(500, SPAN, &[0; 100_001]).unwrap_err().kind(), Kind::Invalid);
    // Two hours away from what the ring expects.
    let far = 100 + 2 * 3600 * 1_000_000;
    assert_eq!(put(far, SPAN, b"far").unwrap(), RingOutcome::Refused(GapCause::Skew));
    let other = SourceSchema::parse(&["link:u32"]).unwrap().source(&[1]).unwrap();
    assert_eq!(client.put(&other, 0, 1, b"", &RingPut::default()).unwrap_err().kind(), Kind::Invalid);
    let twice = RingSources::Only(vec![source(1), source(1)]);
    for (begin, end, sources) in [(5, 5, RingSources::All), (6, 5, RingSources::All), (0, 1, twice)] {
        let error = client.window(begin, end, &sources, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    // One frame's wrong fragment is its own.
    let frame =
        |timestamp, span| RingFrame { source: source(1), timestamp, span, value: b"x", options: RingPut::default() };
    let outcomes = client.put_many(&[frame(200, SPAN), frame(300, 0), frame(400, SPAN)]).unwrap();
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(scene.ring.stats().ledger.stored.fragments, 3);
    // A client for the other kind.
    let error = Client::connect(&scene.tcp(), Options::default()).err().unwrap();
    assert!(error.kind() == Kind::Invalid && error.message().contains("RingClient"), "{error}");
}

#[test]
fn a_window_that_is_waited_for_comes_when_it_is_there() {
    let scene = Scene::new();
    let client = scene.client(1 << 20);
    let put = |timestamp| client.put(&source(0), timestamp, SPAN, b"tick", &RingPut::default()).unwrap();
    put(100);
    let sources = RingSources::Only(vec![source(0)]);
    let from = Instant::now();
    let early = client.window(100, 130, &sources, Duration::from_millis(300)).unwrap();
    assert!(from.elapsed() >= Duration::from_millis(290) && !early.is_complete());
    let states: Vec<Coverage> = early.sources[0].coverage.iter().map(|stretch| stretch.state).collect();
    assert_eq!(states, [Coverage::Complete, Coverage::NotYet]);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..40)
            .map(|_| scope.spawn(|| client.window(100, 130, &sources, Duration::from_secs(30)).unwrap()))
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        put(110);
        assert!(waiting.iter().all(|one| !one.is_finished()));
        let from = Instant::now();
        put(120);
        assert!(waiting.into_iter().all(|one| one.join().unwrap().is_complete()));
        // They wait for 30 s where nobody wakes them.
        assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
    });
}

#[test]
fn pins_keep_what_they_name_as_long_as_their_connection() {
    let scene = Scene::new();
    let client = scene.client(1 << 20);
    let fill = |from: u64| {
        for at in from..from + 400 {
            let value = payload(0, at, 90_000);
            client.put(&source(0), at * u64::from(SPAN), SPAN, &value, &RingPut::default()).unwrap();
        }
    };
    fill(0);
    let first = |window: &SourceWindow| window.coverage.first().map(|stretch| stretch.state);
    let only = RingSources::Only(vec![source(0)]);
    let oldest = client.sources().unwrap()[0].oldest.unwrap();
    let mut pin = client.pin(oldest, oldest + 50, &only, Duration::from_secs(60)).unwrap();
    let pins = scene.ring.stats().pins;
    assert_eq!((pins[0].id, pins[0].bytes, pins[0].holder.as_str()), (pin.id(), pin.bytes(), "rings"));
    fill(400);
    let kept = client.window(oldest, oldest + 50, &only, Duration::ZERO).unwrap();
    assert!(kept.is_complete(), "{:?}", kept.sources[0].coverage);
    pin.extend(Duration::from_secs(60)).unwrap();
    let later = client.sources().unwrap()[0].newest.unwrap() - 500;
    pin.move_to(later, later + 50, Duration::from_secs(60)).unwrap();
    assert_eq!(client.pin(0, u64::MAX, &only, Duration::from_secs(60)).unwrap_err().kind(), Kind::Full);
    fill(800);
    let gone = client.window(oldest, oldest + 50, &only, Duration::ZERO).unwrap();
    assert_eq!(first(&gone.sources[0]), Some(Coverage::Gone));
    drop(pin);
    assert!(scene.ring.stats().pins.is_empty());
}

#[test]
fn a_ring_goes_on_where_its_server_is_started_again() {
    let mut scene = Scene::new();
    let client = scene.client(1 << 20);
    let address: std::net::SocketAddr = scene.tcp().strip_prefix("tcp://").unwrap().parse().unwrap();
    let put = |timestamp| client.put(&source(0), timestamp, SPAN, b"tick", &RingPut::default());
    put(100).unwrap();
    let pin = client.pin(100, 200, &RingSources::All, Duration::from_secs(60)).unwrap();
    scene.server = None;
    let again = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(110));
        std::thread::sleep(Duration::from_millis(300));
        scene.server = Some(serve(&scene.ring, &scene.dir, address));
        waiting.join().unwrap()
    });
    assert_eq!(again.unwrap(), RingOutcome::Stored);
    assert!(check_equal(&scene.ring, &client, 100, 120, &RingSources::All) > 0);
    // The pin went with its connection.
    assert_eq!(pin.extend(Duration::from_secs(60)).unwrap_err().kind(), Kind::Fenced);
    assert!(scene.ring.stats().pins.is_empty());
}

/// Events and a ring side by side: each call finds its kind, or hears that it is the other.
#[test]
fn one_server_has_both_kinds() {
    let scene = Scene::new();
    let store = crate::network::scene::store(scene.dir.path());
    let socket = scene.dir.path().join("both");
    let config = ServerConfig { native: vec![Endpoint::Unix(socket.clone())], threads: 1, ..ServerConfig::default() };
    let server = Server::start([Served::from(store), Served::from(scene.ring.clone())], config).unwrap();
    let address = format!("unix:{}", socket.display());
    let options = |keyspace: &str| Options { keyspace: keyspace.to_owned(), ..Options::default() };
    let events = Client::connect(&address, options("network")).unwrap();
    let ring = RingClient::connect(&address, options("links")).unwrap();
    ring.put(&source(0), 5, SPAN, b"tick", &RingPut::default()).unwrap();
    let _ = events.put(&crate::network::scene::key(1, 0), b"fragment", &Default::default()).unwrap();
    assert_eq!(ring.stats().unwrap().fragments, 1);
    assert_eq!(events.stats().unwrap().events.open.fragments, 1);
    let error = RingClient::connect(&address, options("network")).err().unwrap();
    assert!(error.message().contains("has events"), "{error}");
    assert!(Client::connect(&address, Options::default()).err().unwrap().message().contains("links, network"));
    drop(server);
}
