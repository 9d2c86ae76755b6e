//! Clients that mean no good, or are broken: they end alone, and take little with them.

use crate::resp::bed::{Bed, config, request};
use forebay_core::Keyspace;
use forebay_server::Limits;
use std::time::{Duration, Instant};

#[test]
fn rubbish_ends_only_its_connection() {
    let bed = Bed::new();
    let mut good = bed.tcp();
    for (bytes, told) in [
        (&b"*1\r\n+PING\r\n"[..], "-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nabc", "-ERR Protocol error: a bulk does not end after its length\r\n"),
        (b"PING\r\n\"open\r\n", "+PONG\r\n-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"*3\r\n$3\r\nSET\r\n$5\r\n1/1/1\r\n$4294967295\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ] {
        let mut wire = bed.tcp();
        wire.send(bytes);
        assert_eq!(wire.rest(), told);
        assert_eq!(good.ask("PING"), "PONG");
    }
    // A large value that does not end where it should is not stored.
    let mut wire = bed.unix();
    wire.send(b"*3\r\n$3\r\nSET\r\n$5\r\n1/1/1\r\n$9000\r\n");
    wire.send(&vec![b'x'; 9003]);
    assert_eq!(wire.rest(), "-ERR Protocol error: a bulk does not end after its length\r\n");
    assert_eq!(good.ask("GET 1/1/1"), "nil");
    let mut line = bed.tcp();
    line.send(&vec![b'a'; 70_000]);
    assert_eq!(line.rest(), "-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn values_that_never_come_give_their_place_back() {
    let limits = Limits { frame_deadline: Duration::from_millis(400), ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config(), limits);
    let mut wires: Vec<_> = (0..8).map(|_| bed.tcp()).collect();
    for (at, wire) in wires.iter_mut().enumerate() {
        wire.send(format!("*3\r\n$3\r\nSET\r\n$5\r\n1/{at}/1\r\n$3000000\r\nxyz").as_bytes());
    }
    let mut good = bed.unix();
    assert_eq!(good.ask("PING"), "PONG");
    // Ended by their deadline, or by their client.
    wires.truncate(4);
    for wire in &mut wires {
        assert_eq!(wire.rest(), "");
    }
    let value = "v".repeat(3_000_000);
    for at in 0..8 {
        assert_eq!(good.ask_parts(&["SET", &format!("1/{at}/1"), &value]), "OK");
    }
    let ledger = bed.store.ledger(1).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.imbalance()), (8, None));
}

#[test]
fn requests_under_way_share_their_memory() {
    let limits = Limits { window_bytes: 4 << 20, memory_bytes_max: 5_000_000, ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config(), limits);
    let mut wires: Vec<_> = (0..4).map(|_| bed.tcp()).collect();
    for (at, wire) in wires.iter_mut().enumerate() {
        wire.send(format!("*3\r\n$3\r\nSET\r\n$5\r\n1/{at}/1\r\n$2000000\r\n").as_bytes());
        std::thread::sleep(Duration::from_millis(50));
    }
    let rest = [vec![b'x'; 2_000_000], b"\r\n".to_vec()].concat();
    let answers: Vec<String> = wires
        .iter_mut()
        .map(|wire| {
            wire.send(&rest);
            wire.answer()
        })
        .collect();
    assert_eq!(&answers[..2], ["OK", "OK"]);
    assert!(answers[2..].iter().all(|answer| answer.starts_with("-FULL requests under way")), "{answers:?}");
    assert_eq!(wires[3].ask_parts(&["SET", "1/3/1", &"x".repeat(2_000_000)]), "OK");
}

#[test]
fn a_reader_that_takes_its_time_gets_everything() {
    let limits = Limits { window_bytes: 1 << 20, frame_deadline: Duration::from_secs(2), ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config(), limits);
    let mut wire = bed.unix();
    assert_eq!(wire.ask_parts(&["SET", "1/1/1", &"x".repeat(300_000)]), "OK");
    wire.send(&request(&["GET", "1/1/1"]).repeat(60));
    for _ in 0..60 {
        assert_eq!(wire.take(9), b"$300000\r\n");
        assert_eq!(wire.take(300_002).len(), 300_002);
        std::thread::sleep(Duration::from_millis(40));
    }
}

#[test]
fn connections_end_with_their_clients() {
    let bed = Bed::new();
    for round in 0..50 {
        let mut wire = bed.tcp();
        let bytes = request(&["SET", &format!("1/{round}/1"), &"x".repeat(100_000)]);
        wire.send(&bytes[..bytes.len() * (round + 1) / 60]);
    }
    let mut wire = bed.tcp();
    let from = Instant::now();
    while !wire.ask("INFO clients").contains("connected_clients:1\r\n") {
        assert!(from.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    // What they had begun is free again.
    for round in 0..50 {
        assert_eq!(wire.ask(&format!("SET 1/{round}/1 other")), "OK");
    }
}
