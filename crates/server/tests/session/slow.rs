//! Clients that take nothing, or send nothing of what they began.

use crate::session::raw::{Raw, frame, get, put};
use crate::session::scene::{RUN, Scene, WINDOW, resident_bytes, until};
use forebay_core::{Bounds, Call};
use forebay_wire::{FrameKind, WireRange, WireWriter};
use std::time::{Duration, Instant};

/// Least window that a client may have.
const SMALL: u32 = 64 << 10;

fn all_fragments(scene: &Scene, events: bool) -> Vec<u8> {
    let bounds = Bounds::parse(&scene.keyspace.schema, "1").unwrap();
    WireRange { bounds, events, after: None }.encode().unwrap()
}

#[test]
fn who_reads_nothing_holds_little_and_is_cut() {
    let scene = Scene::with(|limits| limits.frame_deadline = Duration::from_millis(700), |_| {});
    for event in 0..100 {
        scene.event(event, 20_000);
    }
    let mut slow = scene.stranger().hello(SMALL);
    let keys: Vec<_> = (0..100).map(|event| scene.key(event, 0)).collect();
    for _ in 0..200 {
        slow.send(Call::Get, &get(&keys), b"");
    }
    slow.send(Call::Range, &all_fragments(&scene, false), b"");
    until("guards are out", || scene.guards() > 0);
    let from = Instant::now();
    let mut other = scene.client();
    while from.elapsed() < Duration::from_millis(300) {
        other.ping();
        let held =
            scene.store.stats().holders.iter().filter(|holder| holder.holder == "raw").map(|h| h.bytes).sum::<u64>();
        // A window, and the fragment that went beyond it, on the way out; a part of a range.
        assert!(held <= u64::from(SMALL) + 20_000 + (256 << 10) + 20_000, "{held} bytes are held");
    }
    until("the slow one is cut", || scene.guards() == 0);
    assert!(from.elapsed() < Duration::from_secs(20));
    other.ping();
    drop(slow);
}

#[test]
fn who_reads_a_little_now_and_then_is_cut_as_well() {
    let scene = Scene::with(|limits| limits.frame_deadline = Duration::from_millis(600), |_| {});
    for event in 0..100 {
        scene.event(event, 30_000);
    }
    let mut slow = scene.stranger().hello(SMALL);
    slow.send(Call::Range, &all_fragments(&scene, false), b"");
    let from = Instant::now();
    let mut byte = [0; 64];
    while scene.guards() > 0 || from.elapsed() < Duration::from_millis(100) {
        assert!(from.elapsed() < Duration::from_secs(30), "a byte now and then keeps guards out");
        let _ = std::io::Read::read(&mut slow.socket, &mut byte);
        slow.credit(1);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn answers_that_are_asked_for_many_times_take_no_memory() {
    let scene = Scene::alone();
    for event in 0..50 {
        scene.event(event, 900);
    }
    let before = resident_bytes();
    // Short fragments are copied: 100,000 of them in one request would be 90 MB, ten times as much in ten.
    let keys = vec![scene.key(1, 0); 100_000];
    let mut slow: Vec<Raw> = (0..10).map(|_| scene.stranger().hello(WINDOW)).collect();
    for raw in &mut slow {
        raw.send(Call::Get, &get(&keys), b"");
    }
    let mut out = WireWriter::new();
    out.u32(50_000);
    for _ in 0..50_000 {
        out.short(scene.keyspace.schema.primary_of(&scene.key(2, 0)).as_bytes()).unwrap();
        out.u8(1);
    }
    for raw in &mut slow {
        raw.send(Call::GetEvent, out.bytes(), b"");
    }
    scene.client().ping();
    let more = resident_bytes().saturating_sub(before);
    assert!(more < 150 << 20, "{} MiB", more >> 20);
}

#[test]
fn half_a_put_is_given_back() {
    let scene = Scene::with(|limits| limits.frame_deadline = Duration::from_millis(400), |_| {});
    let (meta, payload) =
        put(&scene.keyspace, &[(scene.key(1, 0), &[1; 100_000], None), (scene.key(2, 0), b"2", None)]);
    let whole = frame(Call::Put, 1, &meta, &payload);
    let mut slow = scene.client();
    slow.write(&whole[..whole.len() / 2]);
    let mut other = scene.client();
    std::thread::sleep(Duration::from_millis(50));
    assert!(scene.store.get(&scene.key(1, 0)).unwrap().is_none(), "what is not whole is not visible");
    other.ping();
    assert!(slow.try_frame().is_none(), "it is cut");
    let _ = other.put(&scene.keyspace, &scene.key(1, 0), &[2; 100]).unwrap();
    scene.check_ledger();
    let _ = other.put(&scene.keyspace, &scene.key(1, 1), &[2; 100]).unwrap();
    let leases = other.get_any(&scene.keyspace, 1, Duration::from_secs(5));
    scene.store.reject(&leases[0].event.primary, &leases[0].token).unwrap();
    scene.store.run_stop(RUN).unwrap();
    scene.store.run_close(RUN).unwrap();
}

#[test]
fn frames_that_begin_and_do_not_end() {
    let scene = Scene::with(
        |limits| {
            (limits.frame_deadline, limits.handshake_deadline) =
                (Duration::from_millis(300), Duration::from_millis(300))
        },
        |_| {},
    );
    let ping = frame(FrameKind::Ping, 1, b"meta", b"");
    let from = Instant::now();
    let mut all: Vec<Raw> = vec![scene.stranger()];
    for cut in [1, 20, 40, 42] {
        let mut raw = scene.client();
        raw.write(&ping[..cut]);
        all.push(raw);
    }
    let mut quiet = scene.client();
    for mut raw in all {
        assert!(raw.try_frame().is_none(), "it is cut");
    }
    assert!(from.elapsed() < Duration::from_secs(20));
    quiet.ping();
}

/// A client that takes all that comes gets all, with any window: no side waits for the other.
#[test]
fn windows_of_any_size_are_enough() {
    let scene = Scene::with(|_| {}, |config| config.hot_bytes = 32 << 20);
    for event in 0..3000 {
        scene.event(event, (event % 7) as usize * 500);
    }
    let bytes: usize = (0..3000).map(|event| (event % 7) as usize * 500 * 2).sum();
    for window in [SMALL, SMALL + 1, 100_000, WINDOW, 16 << 20] {
        for tcp in [false, true] {
            let raw = if tcp { scene.stranger_over_tcp() } else { scene.stranger() };
            let mut raw = raw.hello(window);
            let mut owed = 0;
            for events in [false, true] {
                let number = raw.send(Call::Range, &all_fragments(&scene, events), b"");
                let mut found = 0;
                loop {
                    let part = raw.frame();
                    assert_eq!((part.head.request, part.head.flags.is_error()), (number, false));
                    found += part.payload.len();
                    // As slowly as the client of this project gives credit.
                    owed += part.head.frame_bytes() as u32;
                    if owed >= window / 2 {
                        raw.credit(std::mem::take(&mut owed));
                    }
                    if !part.head.flags.has_more() {
                        break;
                    }
                }
                assert_eq!(found, if events { 0 } else { bytes });
            }
        }
    }
}

/// Thousands of requests before any answer is read: the credit for the answers arrives behind them all.
#[test]
fn credit_behind_requests_that_must_wait_is_seen() {
    let scene = Scene::new();
    scene.event(1, 3000);
    for round in 0..4 {
        let raw = if round % 2 == 0 { scene.stranger() } else { scene.stranger_over_tcp() };
        let mut reader = raw.hello(SMALL);
        let meta = get(&[scene.key(1, 0)]);
        let count = 3000_u64;
        let mut bytes = Vec::new();
        for number in 0..count {
            // Puts among them, so that the server stops within frames of every sort.
            if number % 50 == 49 {
                let value = vec![1; 5000];
                let (meta, payload) = put(&scene.keyspace, &[(scene.key(number, 0), &value, None)]);
                bytes.extend(frame(Call::Put, number, &meta, &payload));
            } else {
                bytes.extend(frame(Call::Get, number, &meta, b""));
            }
        }
        // The server takes all of it without anybody reading, and holds back what the window does not allow.
        reader.write(&bytes);
        let mut found = 0;
        while found < count {
            let answer = reader.frame();
            assert!(!answer.head.flags.is_error());
            found += u64::from(!answer.head.flags.has_more());
            reader.credit(answer.head.frame_bytes() as u32);
        }
        reader.ping();
    }
}
