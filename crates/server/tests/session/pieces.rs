//! The same bytes cut in any way have the same answers.

use crate::session::raw::{Frame, Raw, credit, frame, get, get_any, hello, put};
use crate::session::scene::{Scene, WINDOW};
use forebay_core::Call;
use forebay_wire::{Control, FrameKind, WireReader, WireWriter};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Frames of every sort, short and long, some of them wrong in what they ask.
fn script(scene: &Scene) -> Vec<Vec<u8>> {
    let keyspace = &scene.keyspace;
    let key = |event, source| scene.key(event, source);
    let mut all = vec![hello(WINDOW)];
    let mut number = 0;
    let mut add = |kind, meta: &[u8], payload: &[u8]| {
        number += 1;
        all.push(frame(kind, number, meta, payload));
    };
    let long = vec![3; 40_000];
    let fragments: Vec<Vec<u8>> = (0..20).map(|size| vec![size as u8; size * 311]).collect();
    let mut puts = Vec::new();
    for (event, value) in fragments.iter().enumerate() {
        puts.push((key(event as u64, 0), &value[..], None));
    }
    let (meta, payload) = put(keyspace, &puts);
    add(FrameKind::Call(Call::Put), &meta, &payload);
    let (meta, payload) = put(keyspace, &[(key(3, 1), &long, None), (key(4, 1), b"", None), (key(5, 1), b"5", None)]);
    add(FrameKind::Call(Call::Put), &meta, &payload);
    // Again, and with other bytes, and a checksum that does not fit.
    add(FrameKind::Call(Call::Put), &meta, &payload);
    add(FrameKind::Call(Call::Put), &meta, &vec![9; payload.len()]);
    add(FrameKind::Ping, b"ping", b"");
    let keys = [key(3, 1), key(99, 0), key(7, 0), key(0, 0)];
    add(FrameKind::Call(Call::Get), &get(&keys), b"");
    add(FrameKind::Call(Call::Get), &get(&keys), b"payload that nobody asked for");
    add(FrameKind::Call(Call::Get), b"nonsense", b"");
    all.push(credit(1000));
    let mut add = |kind, meta: &[u8], payload: &[u8]| {
        number += 1;
        all.push(frame(kind, number, meta, payload));
    };
    let mut out = WireWriter::new();
    out.u32(1);
    out.short(keyspace.schema.primary_of(&key(3, 0)).as_bytes()).unwrap();
    out.u8(1);
    add(FrameKind::Call(Call::GetEvent), out.bytes(), b"");
    add(FrameKind::Call(Call::GetAny), &get_any(2, Duration::ZERO), b"");
    add(FrameKind::Call(Call::GetAny), &get_any(100, Duration::from_millis(1)), b"");
    add(FrameKind::Call(Call::Seal), &get(&[]), b"");
    let control = |control: &Control| serde_json::to_vec(control).unwrap();
    add(FrameKind::Control, &control(&Control::Holds), b"");
    add(FrameKind::Control, &control(&Control::RunOpen { run: 1, config: "wrong".to_owned() }), b"");
    add(FrameKind::Control, b"{}", b"");
    add(FrameKind::Ping, &[7; 3000], b"");
    all
}

/// Number, flags and what must not differ of every answer.
fn said(frame: &Frame) -> (u64, u8, Vec<u8>, Vec<u8>) {
    let head = frame.head;
    let flags = u8::from(head.flags.is_error()) | u8::from(head.flags.has_more()) << 1;
    // Tokens count up from a start of their own in every store.
    let leases = head.kind == FrameKind::Call(Call::GetAny) && !head.flags.is_error();
    let meta =
        if leases { WireReader::new(&frame.meta).u32().unwrap().to_le_bytes().to_vec() } else { frame.meta.clone() };
    (head.request, flags, meta, frame.payload.clone())
}

fn answers(
    scene: &Scene,
    mut raw: Raw,
    pieces: impl Iterator<Item = Vec<u8>> + Send,
) -> Vec<(u64, u8, Vec<u8>, Vec<u8>)> {
    for piece in pieces {
        raw.write(&piece);
    }
    raw.socket.shut();
    let mut all = Vec::new();
    while let Some(frame) = raw.try_frame() {
        if frame.head.kind != FrameKind::Hello {
            all.push(said(&frame));
        }
    }
    all.sort();
    scene.check_ledger();
    all
}

fn cut_at_random(bytes: &[u8], seed: u64) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut left = bytes;
    let mut pieces = Vec::new();
    while !left.is_empty() {
        let most = [2, 45, 700, 9000][random.random_range(0..4)];
        let (piece, rest) = left.split_at(random.random_range(1..=most).min(left.len()));
        pieces.push(piece.to_vec());
        left = rest;
    }
    pieces
}

#[test]
fn any_cut_of_the_bytes_has_the_same_answers() {
    let scene = Scene::new();
    let frames = script(&scene);
    let bytes = frames.concat();
    let expected = answers(&scene, scene.stranger(), frames.clone().into_iter());
    assert_eq!(expected.len(), frames.len() - 2, "one answer each, none to the hello and to credit");
    let rounds = std::env::var("FOREBAY_SESSION_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let base: u64 = rand::rng().random();
    for round in 0..rounds {
        let scene = Scene::new();
        let seed = base.wrapping_add(round);
        let raw = if round % 2 == 0 { scene.stranger() } else { scene.stranger_over_tcp() };
        let found = answers(&scene, raw, cut_at_random(&bytes, seed).into_iter());
        assert!(found == expected, "cut by seed {seed}: {} answers, {} expected", found.len(), expected.len());
    }
}

#[test]
fn byte_by_byte() {
    let scene = Scene::new();
    let frames = script(&scene);
    let expected = answers(&scene, scene.stranger(), std::iter::once(frames.concat()));
    let scene = Scene::new();
    let bytes = frames.concat();
    let found = answers(&scene, scene.stranger(), bytes.chunks(1).map(<[u8]>::to_vec));
    assert!(found == expected, "{} answers, {} expected", found.len(), expected.len());
}
