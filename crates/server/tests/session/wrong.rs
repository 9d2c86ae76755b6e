//! Input that no client should send: a clear error, the end of that connection, and of no other.

use crate::session::raw::{Raw, credit, frame, get, hello, outcomes, put, sealed};
use crate::session::scene::{Scene, WINDOW, resident_bytes};
use forebay_core::{Call, Kind};
use forebay_wire::{FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, Hello};

/// Sends these bytes after a hello, over both sorts of socket; the error must be of this kind and say this, and others go
/// on.
#[track_caller]
fn refused(scene: &Scene, bytes: &[u8], kind: Kind, says: &str) {
    let mut other = scene.client();
    for raw in [scene.client(), scene.stranger_over_tcp().hello(WINDOW)] {
        said(raw, bytes, kind, says);
    }
    other.ping();
}

#[track_caller]
fn said(mut raw: Raw, bytes: &[u8], kind: Kind, says: &str) {
    raw.write(bytes);
    let error = raw.refused();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(says), "`{}` does not say `{says}`", error.message());
}

fn changed(at: usize, to: u8) -> Vec<u8> {
    let mut bytes = frame(FrameKind::Ping, 1, b"meta", b"");
    bytes[at] = to;
    bytes
}

#[test]
fn heads_that_are_none() {
    let scene = Scene::new();
    let web = b"GET / HTTP/1.1\r\nHost: forebay.example\r\nAccept: */*\r\n\r\n";
    refused(&scene, web, Kind::Invalid, "no frame");
    refused(&scene, &sealed(changed(3, 2)), Kind::Invalid, "version 2");
    refused(&scene, &changed(36, 0xA5), Kind::Corrupt, "checksum");
    refused(&scene, &sealed(changed(4, 99)), Kind::Invalid, "kind 99");
    refused(&scene, &sealed(changed(5, 2)), Kind::Invalid, "flags");
    refused(&scene, &sealed(changed(6, 1)), Kind::Invalid, "flags");
    refused(&scene, &changed(FRAME_HEAD_BYTES, b'M'), Kind::Corrupt, "meta");
    assert_eq!(scene.guards(), 0);
}

#[test]
fn frames_out_of_place() {
    let scene = Scene::new();
    let answer = FrameHead::new(FrameKind::Ping, FrameFlags::ANSWER, 1).encode();
    refused(&scene, &answer, Kind::Invalid, "answer");
    refused(&scene, &hello(WINDOW), Kind::Invalid, "second hello");
    for kind in [FrameKind::Arrivals, FrameKind::Decisions, FrameKind::Digests] {
        refused(&scene, &frame(kind, 1, b"", b""), Kind::Invalid, "does not answer");
    }
    refused(&scene, &frame(FrameKind::Credit, 1, b"", b"payload"), Kind::Invalid, "Credit");
    refused(&scene, &frame(FrameKind::Goodbye, 1, b"meta", b""), Kind::Invalid, "Goodbye");
}

#[test]
fn before_a_hello() {
    let scene = Scene::new();
    let mut other = scene.client();
    let key = scene.key(1, 0);
    for bytes in [frame(Call::Get, 1, &get(&[key]), b""), credit(7), frame(FrameKind::Ping, 1, b"", b"")] {
        said(scene.stranger(), &bytes, Kind::Invalid, "no hello");
    }
    said(scene.stranger(), &hello(1024), Kind::Invalid, "window");
    let elsewhere =
        |keyspace: String, token| Hello { features: 0, window_bytes: WINDOW, token, keyspace, name: "raw".into() };
    let bytes = frame(FrameKind::Hello, 1, &elsewhere("nowhere".into(), vec![]).encode().unwrap(), b"");
    said(scene.stranger(), &bytes, Kind::Invalid, "nowhere");
    let long = frame(FrameKind::Hello, 1, &elsewhere("x".repeat(5000), vec![]).encode().unwrap(), b"");
    said(scene.stranger(), &long, Kind::Invalid, "4096");
    let with_payload = frame(FrameKind::Hello, 1, &elsewhere(String::new(), vec![]).encode().unwrap(), b"more");
    said(scene.stranger(), &with_payload, Kind::Invalid, "Hello");
    said(scene.stranger(), &frame(FrameKind::Hello, 1, b"short", b""), Kind::Corrupt, "early");
    other.ping();
}

#[test]
fn a_frame_that_ends_early_is_told_so() {
    let scene = Scene::new();
    let (meta, payload) = put(&scene.keyspace, &[(scene.key(1, 0), &[1; 5000], None)]);
    let whole = frame(Call::Put, 1, &meta, &payload);
    for cut in [1, 39, 40, 50, 40 + meta.len(), whole.len() - 1] {
        let mut raw = scene.client();
        raw.write(&whole[..cut]);
        raw.socket.shut();
        let error = raw.refused();
        assert!(error.message().contains("within a frame"), "{error}");
    }
    assert_eq!(scene.store.get(&scene.key(1, 0)).unwrap().map(|_| ()), None);
    let _ = scene.client().put(&scene.keyspace, &scene.key(1, 0), &[1; 5000]).unwrap();
    scene.check_ledger();
}

#[test]
fn who_ends_between_frames_gets_all_answers() {
    let scene = Scene::new();
    scene.event(1, 3000);
    let mut raw = scene.client();
    let numbers: Vec<u64> = (0..20).map(|_| raw.send(Call::Get, &get(&[scene.key(1, 0)]), b"")).collect();
    raw.socket.shut();
    for number in numbers {
        assert_eq!(raw.answer(number).payload.len(), 3000);
    }
    assert!(raw.try_frame().is_none());
}

#[test]
fn a_map_that_this_server_does_not_have_is_fenced() {
    let scene = Scene::new();
    let mut raw = scene.client();
    let epoch_of = |mut bytes: Vec<u8>| {
        bytes[16..20].copy_from_slice(&7_u32.to_le_bytes());
        sealed(bytes)
    };
    let (meta, payload) = put(&scene.keyspace, &[(scene.key(1, 0), &[1; 5000], None), (scene.key(1, 1), b"x", None)]);
    raw.write(&epoch_of(frame(Call::Put, 100, &meta, &payload)));
    let answers = outcomes(&raw.answer(100));
    assert!(answers.len() == 2 && answers.iter().all(|one| one.as_ref().unwrap_err().kind() == Kind::Fenced));
    assert_eq!(scene.store.get(&scene.key(1, 0)).unwrap().map(|_| ()), None);
    for kind in [FrameKind::Call(Call::Get), FrameKind::Call(Call::GetAny), FrameKind::Control] {
        raw.write(&epoch_of(frame(kind, 101, b"", b"")));
        let answer = raw.answer(101);
        assert_eq!((answer.error().kind(), answer.head.epoch), (Kind::Fenced, 0));
    }
    // Each such frame is refused by itself: the connection goes on.
    let _ = raw.put(&scene.keyspace, &scene.key(1, 0), &[1; 5000]).unwrap();
    scene.check_ledger();
}

#[test]
fn more_than_the_credit() {
    let scene = Scene::with(|limits| limits.window_bytes = 256 << 10, |_| {});
    // Bytes that the server does not read after it has seen enough would reset the connection: the head says enough.
    let head = FrameHead::new(Call::Put, FrameFlags::REQUEST, 1).with(b"", 300 << 10).encode();
    refused(&scene, &head, Kind::Invalid, "allowed");
    let meta = vec![0; 100 << 10];
    let head = FrameHead::new(Call::Get, FrameFlags::REQUEST, 1).with(&meta, 0).encode();
    refused(&scene, &head, Kind::Invalid, "less into one request");
}

#[test]
fn promises_take_no_memory() {
    let scene = Scene::alone();
    let before = resident_bytes();
    for (meta_bytes, payload_bytes) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)] {
        for kind in FrameKind::all() {
            let mut head = FrameHead::new(kind, FrameFlags::REQUEST, 1);
            (head.meta_bytes, head.payload_bytes) = (meta_bytes, payload_bytes);
            let mut raw = scene.client();
            raw.write(&head.encode());
            assert_eq!(raw.refused().kind(), Kind::Invalid);
        }
    }
    // What the window allows is promised by many at once, and does not come.
    let mut all: Vec<Raw> = (0..100).map(|_| scene.client()).collect();
    for (number, raw) in all.iter_mut().enumerate() {
        let mut head = FrameHead::new([Call::Get, Call::Update][number % 2], FrameFlags::REQUEST, 1);
        (head.meta_bytes, head.payload_bytes) = (4, 15 << 20);
        head.meta_crc = forebay_core::crc32c(b"meta");
        raw.write(&head.encode());
        raw.write(b"meta");
    }
    let mut other = scene.client();
    other.ping();
    let more = resident_bytes().saturating_sub(before);
    assert!(more < 200 << 20, "{} MiB for promises", more >> 20);
}

#[test]
fn metas_that_are_none_end_their_connection_or_their_request() {
    let scene = Scene::new();
    let mut other = scene.client();
    for kind in FrameKind::all() {
        if matches!(kind, FrameKind::Hello | FrameKind::Credit | FrameKind::Goodbye | FrameKind::Ping) {
            continue;
        }
        for meta in [&b""[..], b"\xFF", &[0xFF; 64], &[0; 300], b"{\"call\":\"nothing\"}"] {
            let mut raw = scene.client();
            raw.send(kind, meta, b"");
            let answer = raw.frame();
            assert_eq!(answer.head.kind, kind);
            if answer.head.flags.is_error() {
                assert!(!answer.error().message().is_empty());
            }
        }
    }
    other.ping();
}
