//! The end of a server: what is under way is answered, and clients are told.

use crate::session::raw::{get, get_any, leases, outcomes, put};
use crate::session::scene::{Scene, until};
use forebay_core::{Bounds, Call};
use forebay_wire::{FrameKind, WireRange};
use std::time::{Duration, Instant};

#[test]
fn what_is_under_way_is_answered_and_clients_are_told() {
    let mut scene = Scene::with(|_| {}, |config| config.hot_bytes = 4 << 20);
    scene.event(1, 100);
    let next = scene.fill(50_000);
    let mut idle = scene.client();
    let mut putting = scene.client();
    let wait = Some(Duration::from_millis(500));
    let (meta, payload) = put(&scene.keyspace, &[(scene.key(next + 1, 0), &[1; 50_000], wait)]);
    let number = putting.send(Call::Put, &meta, &payload);
    putting.ping();
    let mut asking = scene.client();
    let lease = asking.get_any(&scene.keyspace, 1000, Duration::ZERO);
    assert!(!lease.is_empty());
    while !asking.get_any(&scene.keyspace, 1000, Duration::ZERO).is_empty() {}
    let asked = asking.send(Call::GetAny, &get_any(1, Duration::from_secs(30)), b"");
    asking.ping();
    // A range of which most is held back for want of credit.
    let mut reading = scene.stranger().hello(64 << 10);
    let bounds = Bounds::parse(&scene.keyspace.schema, "1").unwrap();
    let meta = WireRange { bounds, events: false, after: None }.encode().unwrap();
    let range = reading.send(Call::Range, &meta, b"");
    until("the range is under way", || scene.guards() > 0);
    let server = scene.server.take().unwrap();
    let from = Instant::now();
    let stopping = std::thread::spawn(move || server.stop(Duration::from_secs(60)));
    assert_eq!(idle.frame().head.kind, FrameKind::Goodbye);
    assert!(idle.try_frame().is_none());
    assert_eq!(putting.frame().head.kind, FrameKind::Goodbye);
    assert_eq!(outcomes(&putting.answer(number)).len(), 1);
    assert!(putting.try_frame().is_none());
    assert_eq!(asking.frame().head.kind, FrameKind::Goodbye);
    assert_eq!(leases(&scene.keyspace, &asking.answer(asked)).len(), 0);
    let mut bytes = 0;
    let mut is_told = false;
    while let Some(part) = reading.try_frame() {
        reading.credit(part.head.frame_bytes() as u32);
        is_told |= part.head.kind == FrameKind::Goodbye;
        assert!(part.head.kind == FrameKind::Goodbye || part.head.request == range);
        bytes += part.payload.len();
    }
    assert!(is_told && bytes > 1 << 20, "{bytes} bytes of the range");
    assert_eq!(stopping.join().unwrap(), 0, "none had to be cut");
    assert!(from.elapsed() < Duration::from_secs(40));
    assert_eq!(scene.guards(), 0);
}

#[test]
fn who_does_not_read_is_cut_in_the_end() {
    let mut scene = Scene::new();
    for event in 0..50 {
        scene.event(event, 50_000);
    }
    let mut slow = scene.stranger().hello(64 << 10);
    let keys: Vec<_> = (0..50).map(|event| scene.key(event, 0)).collect();
    slow.send(Call::Get, &get(&keys), b"");
    until("guards are out", || scene.guards() > 0);
    let from = Instant::now();
    assert_eq!(scene.server.take().unwrap().stop(Duration::from_millis(300)), 1);
    assert!(from.elapsed() < Duration::from_secs(20));
    assert_eq!(scene.guards(), 0);
}
