//! Clients that mean no good, or are broken: they end alone, and take little with them.

use crate::bed::{Bed, config, request};
use forebay_core::Keyspace;
use forebay_server::Limits;
use std::io::{ErrorKind, Write};
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
    assert_eq!(good.ask("EXISTS 1/1/1"), ":0");
    let mut line = bed.tcp();
    line.send(&vec![b'a'; 70_000]);
    assert_eq!(line.rest(), "-ERR Protocol error: too big inline request\r\n");
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn promises_take_no_memory() {
    let bed = Bed::new();
    let mut good = bed.tcp();
    assert_eq!(good.ask("PING"), "PONG");
    let before = resident();
    let mut wires = Vec::new();
    for at in 0..300 {
        let mut wire = bed.tcp();
        match at % 3 {
            0 => wire.send(b"*1048576\r\n$4\r\nMGET\r\n"),
            1 => wire.send(b"*2\r\n$4\r\nECHO\r\n$16777216\r\nx"),
            _ => wire.send(b"*1048576\r\n$16777216\r\n"),
        }
        wires.push(wire);
    }
    assert_eq!(good.ask("PING"), "PONG");
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for promises");
}

#[test]
fn values_that_never_come_give_their_place_back() {
    let limits = Limits { frame_deadline: Duration::from_millis(400), ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1)], config(), limits);
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
    let bed = Bed::with(&[Keyspace::events("data", 1)], config(), limits);
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
fn a_slow_reader_is_not_read_and_then_ended() {
    let limits = Limits { window_bytes: 1 << 20, frame_deadline: Duration::from_millis(1500), ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1)], config(), limits);
    let mut good = bed.tcp();
    assert_eq!(good.ask_parts(&["SET", "1/1/1", &"x".repeat(300_000)]), "OK");
    let mut slow = bed.tcp();
    let get = request(&["GET", "1/1/1"]).repeat(1000);
    slow.stream.set_read_timeout(Duration::from_secs(10));
    let before = resident();
    let writer = std::thread::spawn(move || {
        // The server stops reading: at some time this ends with an error, because the connection is ended.
        for _ in 0..100_000 {
            match slow.stream.write_all(&get) {
                Ok(()) => {}
                Err(error) => return error.kind(),
            }
        }
        ErrorKind::Other
    });
    let from = Instant::now();
    while !writer.is_finished() && from.elapsed() < Duration::from_secs(15) {
        assert_eq!(good.ask("PING"), "PONG");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = writer.join().unwrap();
    assert!(matches!(ended, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{ended:?}");
    assert!(from.elapsed() < Duration::from_secs(12));
    assert!(resident().saturating_sub(before) < 64 << 20);
}

#[test]
fn a_reader_that_takes_its_time_gets_everything() {
    let limits = Limits { window_bytes: 1 << 20, frame_deadline: Duration::from_secs(2), ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1)], config(), limits);
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
fn an_answer_that_would_be_too_large_is_refused() {
    let limits = Limits { window_bytes: 1 << 20, ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1)], config(), limits);
    let mut wire = bed.tcp();
    assert_eq!(wire.ask_parts(&["SET", "1/1/1", &"x".repeat(2000)]), "OK");
    let mut parts = vec!["MGET"; 1];
    parts.resize(3001, "1/1/1");
    assert!(wire.ask_parts(&parts).starts_with("-ERR the answer would take more than 4194304 bytes"));
    parts.truncate(1001);
    assert_eq!(wire.ask_parts(&parts).matches("xx,").count(), 999);
}

#[test]
fn idle_connections_are_small() {
    let bed = Bed::new();
    let open = |count: usize| -> Vec<_> {
        let one = |at: usize| {
            let mut wire = bed.unix();
            // Every one has been at work.
            assert_eq!(wire.ask_parts(&["SET", &format!("1/{at}/1"), &"x".repeat(3000)]), "OK");
            assert_eq!(wire.ask(&format!("STRLEN 1/{at}/1")), ":3000");
            wire
        };
        (0..count).map(one).collect()
    };
    let some = open(50);
    let before = resident();
    let idle = open(800);
    let each = resident().saturating_sub(before) / idle.len();
    // Both ends of a connection are in this process, and the test's has a buffer of its own.
    assert!(each < 20 << 10, "{each} bytes for an idle connection");
    drop(some);
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
        assert!(from.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    // What they had begun is free again.
    for round in 0..50 {
        assert_eq!(wire.ask(&format!("SET 1/{round}/1 other")), "OK");
    }
}
