//! A ring behind a session: frames that are for events, clients that do not take what they asked for.

use crate::session::raw::{Raw, frame};
use crate::session::scene::until;
use forebay_core::{Call, Kind, Report, RingKeyspace, RingPut, RingSources, RingStamp, SourceSchema, crc32c};
use forebay_ring::{Ring, RingConfig};
use forebay_server::{Endpoint, Limits, Server, ServerConfig};
use forebay_wire::{Control, FrameKind, WirePut, WireWindow};
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct Scene {
    ring: Ring,
    server: Option<Server>,
    dir: PathBuf,
}

impl Scene {
    fn new(name: &str, limits: Limits) -> Scene {
        let dir = std::env::temp_dir().join(format!("forebay-session-ring-{}-{name}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let keyspace = RingKeyspace {
            name: "links".to_owned(),
            source: SourceSchema::parse(&["link:u16"]).unwrap(),
            ticks_per_second: 1_000_000,
            sources_max: 4,
            history: Duration::from_millis(1),
            source_bytes_per_second: 1_000_000,
            max_skew: Duration::from_secs(3600),
            fragment_bytes_max: 20_000,
            pin_percent: 50,
        };
        let config = RingConfig { hot_bytes: 8 << 20, segment_bytes: Some(128 << 10), ..RingConfig::default() };
        let ring = Ring::create(&dir.join("ring"), &keyspace, config).unwrap();
        let native = vec![Endpoint::Unix(dir.join("socket"))];
        let config = ServerConfig { native, threads: 1, limits, ..ServerConfig::default() };
        let server = Some(Server::start([ring.clone()], config).unwrap());
        Scene { ring, server, dir }
    }

    fn client(&self, window: u32) -> Raw {
        Raw::unix(&self.dir.join("socket")).hello(window)
    }

    fn put(&self, timestamp: u64) {
        let source = self.ring.keyspace().source(&[1]).unwrap();
        let put = self.ring.put(&source, timestamp, 10, &[timestamp as u8; 10_000], &RingPut::default());
        put.unwrap();
    }

    fn guards(&self) -> u64 {
        self.ring.stats().holders.iter().map(|holder| holder.guards).sum()
    }

    fn window(&self, end: u64, wait: Duration) -> Vec<u8> {
        let window = WireWindow { begin: 0, end, sources: RingSources::All, wait };
        window.encode(&self.ring.keyspace().source).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

#[test]
fn a_window_that_is_not_taken_lets_go_of_the_ring() {
    let limits = Limits { frame_deadline: Duration::from_millis(600), ..Limits::default() };
    let scene = Scene::new("slow", limits);
    (0..100).for_each(|at| scene.put(at * 10));
    let mut slow = scene.client(64 << 10);
    slow.send(Call::Window, &scene.window(1000, Duration::ZERO), b"");
    until("the window is held", || scene.guards() > 0);
    let from = Instant::now();
    let mut other = scene.client(1 << 20);
    other.ping();
    until("the slow one is cut", || scene.guards() == 0);
    assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
    other.ping();
}

/// Many who want everything and take nothing: the ring goes on.
#[test]
fn slow_readers_do_not_stop_data_taking() {
    let scene = Scene::new("taking", Limits::default());
    // The ring is full, and its window many slices long.
    (0..1000).for_each(|at| scene.put(at * 100_000));
    let mut slow: Vec<Raw> = (0..4).map(|_| scene.client(64 << 10)).collect();
    for raw in &mut slow {
        for _ in 0..8 {
            raw.send(Call::Window, &scene.window(u64::MAX, Duration::ZERO), b"");
        }
    }
    until("slices are held", || scene.guards() > 0);
    let from = Instant::now();
    let mut most = 0;
    for at in 1000..3000 {
        scene.put(at * 100_000);
        most = most.max(scene.guards());
    }
    assert!(from.elapsed() < Duration::from_secs(60));
    let stats = scene.ring.stats();
    assert_eq!((stats.refused.no_space, stats.refused.too_late), (0, 0), "{most} guards blocked the ring");
    // One slice of each connection, of about four chunks, and of those before what is on its way.
    assert!(most <= 4 * 12, "{most} guards");
}

#[test]
fn who_goes_while_it_waits_for_a_window_leaves_nothing() {
    let scene = Scene::new("gone", Limits::default());
    scene.put(0);
    let mut gone = scene.client(1 << 20);
    gone.send(Call::Window, &scene.window(1_000_000, Duration::from_secs(60)), b"");
    gone.ping_out_of_turn();
    drop(gone);
    until("its connection is gone", || scene.server.as_ref().unwrap().connections() == 0);
    assert_eq!(scene.guards(), 0);
}

#[test]
fn frames_for_events_are_refused_one_by_one() {
    let scene = Scene::new("kinds", Limits::default());
    let mut raw = scene.client(1 << 20);
    for kind in [Call::Get, Call::GetAny, Call::Verdict, Call::Range, Call::Watch] {
        let answer = raw.ask(kind, b"", b"");
        let error = answer.error();
        assert_eq!(error.kind(), Kind::Invalid, "{kind:?}: {error}");
        assert!(error.message().contains("is a ring"), "{kind:?}: {error}");
    }
    let runs = serde_json::to_vec(&Control::Runs).unwrap();
    let error = raw.ask(FrameKind::Control, &runs, b"").error();
    assert!(error.message().contains("`runs` is for keyspaces of events"), "{error}");
    // A window that is none leaves the connection as it is.
    let error = raw.ask(Call::Window, b"\0\0", b"").error();
    assert_eq!(error.kind(), Kind::Corrupt);
    raw.ping();
    // A put that waits is none of a ring's: what it says cannot be believed, and the connection ends.
    let source = scene.ring.keyspace().source(&[1]).unwrap();
    let key = scene.ring.keyspace().source.key(&source, &RingStamp { timestamp: 5, span: 1, run: 0 });
    let put = WirePut {
        key,
        length: 1,
        checksum: crc32c(b"x"),
        status: 0,
        attributes: None,
        deadline: Some(Duration::from_secs(1)),
        persisted: false,
        level: None,
        report: Report::Prompt,
    };
    let meta = WirePut::encode_all(&[put], &Default::default()).unwrap();
    raw.write(&frame(Call::Put, 99, &meta, b"x"));
    let error = raw.refused();
    assert!(error.message().contains("a ring waits for nothing"), "{error}");
    assert_eq!(scene.ring.stats().fragments, 0);
}

#[test]
fn bytes_that_are_not_as_sent_are_no_fragment() {
    let scene = Scene::new("bytes", Limits::default());
    let mut raw = scene.client(1 << 20);
    let schema = &scene.ring.keyspace().source;
    let source = scene.ring.keyspace().source(&[1]).unwrap();
    for (number, length) in [100, 15_000].into_iter().enumerate() {
        let stamp = RingStamp { timestamp: number as u64, span: 1, run: 0 };
        let value = vec![7; length];
        let put = |checksum| WirePut {
            key: schema.key(&source, &stamp),
            length: length as u32,
            checksum,
            status: 0,
            attributes: None,
            deadline: None,
            persisted: false,
            level: None,
            report: Report::Prompt,
        };
        for (checksum, is_good) in [(1, false), (crc32c(&value), true)] {
            let meta = WirePut::encode_all(&[put(checksum)], &Default::default()).unwrap();
            let answer = raw.ask(Call::Put, &meta, &value);
            let outcome = crate::session::raw::outcomes(&answer).pop().unwrap();
            assert_eq!(outcome.is_ok(), is_good, "{length}: {outcome:?}");
        }
    }
    assert_eq!(scene.ring.stats().fragments, 2);
}
