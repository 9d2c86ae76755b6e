//! Clients that vanish in the middle of something: nothing leaks.

use crate::session::raw::{Raw, frame, get_any, put};
use crate::session::scene::{RUN, Scene, until};
use forebay_core::{Bounds, Call};
use forebay_wire::WireRange;
use std::time::Duration;

#[test]
fn in_the_middle_of_a_put() {
    let scene = Scene::new();
    let fill = scene.store.stats().fill;
    let key = scene.key(1, 0);
    let (meta, payload) = put(&scene.keyspace, &[(key, &[1; 100_000], None), (scene.key(2, 0), &[1; 100_000], None)]);
    let whole = frame(Call::Put, 1, &meta, &payload);
    for part in 1..40 {
        let mut raw = if part % 2 == 0 { scene.client() } else { scene.stranger_over_tcp().hello(1 << 20) };
        raw.write(&whole[..whole.len() * part / 40]);
    }
    until("the key is free", || scene.store.put(&scene.key(3, 0), b"3", &Default::default()).is_ok());
    let mut raw = scene.client();
    let _ = raw.put(&scene.keyspace, &key, b"at last").unwrap_err();
    scene.check_ledger();
    assert!(scene.store.stats().fill <= fill + 0.9);
    // Space that was reserved and given up comes back.
    for event in 10..60 {
        scene.event(event, 30_000);
    }
}

#[test]
fn in_the_middle_of_a_lease() {
    let scene = Scene::with(|_| {}, |config| config.lease = Duration::from_millis(300));
    for event in 0..10 {
        scene.event(event, 20_000);
    }
    let mut raw = scene.stranger().hello(64 << 10);
    raw.send(Call::GetAny, &get_any(10, Duration::ZERO), b"");
    until("leases are out", || scene.store.stats().leases > 0);
    drop(raw);
    until("guards are back", || scene.guards() == 0);
    until("leases are back", || scene.store.stats().leases == 0);
    let mut raw = scene.client();
    let mut found = 0;
    while found < 10 {
        found += raw.get_any(&scene.keyspace, 10, Duration::from_secs(5)).len();
    }
    scene.check_ledger();
}

/// A client that went away is given no events.
#[test]
fn while_it_waits_for_events() {
    let scene = Scene::new();
    for _ in 0..20 {
        let mut raw = scene.client();
        raw.send(Call::GetAny, &get_any(1, Duration::from_secs(30)), b"");
        raw.ping_out_of_turn();
    }
    std::thread::sleep(Duration::from_millis(200));
    for event in 0..10 {
        scene.event(event, 100);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.store.stats().leases, 0, "leased to somebody who is gone");
    let mut raw = scene.client();
    assert_eq!(raw.get_any(&scene.keyspace, 10, Duration::from_secs(1)).len(), 10);
}

#[test]
fn in_the_middle_of_a_range() {
    let scene = Scene::new();
    for event in 0..100 {
        scene.event(event, 20_000);
    }
    let bounds = Bounds::parse(&scene.keyspace.schema, "1").unwrap();
    let meta = WireRange { bounds, events: false, after: None }.encode().unwrap();
    for tcp in [false, true] {
        let raw = if tcp { scene.stranger_over_tcp() } else { scene.stranger() };
        let mut raw: Raw = raw.hello(1 << 20);
        let number = raw.send(Call::Range, &meta, b"");
        assert_eq!(raw.frame().head.request, number);
        drop(raw);
        until("guards are back", || scene.guards() == 0);
    }
    assert!(scene.store.ledger(RUN).is_ok());
}
