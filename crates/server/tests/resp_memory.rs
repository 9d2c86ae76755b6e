//! Memory of the server per client of Redis's protocol, measured in a process that does nothing else.

use crate::resp::bed::{Bed, config, request};
use forebay_core::Keyspace;
use forebay_server::Limits;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// One after the other: each measures the whole process.
#[test]
fn memory_stays_within_its_bounds() {
    idle_connections_are_small();
    promises_take_no_memory();
    a_slow_reader_is_not_read_and_then_ended();
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn idle_connections_are_small() {
    let bed = Bed::new();
    let open = |count: usize| -> Vec<_> {
        let one = |at: usize| {
            let mut wire = bed.unix();
            // Every one has been at work.
            assert_eq!(wire.ask_parts(&["SET", &format!("1/{at}/1"), &"x".repeat(3000)]), "OK");
            assert_eq!(wire.ask(&format!("GET 1/{at}/1")).len(), 3000);
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

fn promises_take_no_memory() {
    let bed = Bed::new();
    let mut good = bed.tcp();
    assert_eq!(good.ask("PING"), "PONG");
    let before = resident();
    let mut wires = Vec::new();
    for at in 0..300 {
        let mut wire = bed.tcp();
        match at % 3 {
            0 => wire.send(b"*1048576\r\n$3\r\nDEL\r\n"),
            1 => wire.send(b"*2\r\n$4\r\nECHO\r\n$16777216\r\nx"),
            _ => wire.send(b"*1048576\r\n$16777216\r\n"),
        }
        wires.push(wire);
    }
    assert_eq!(good.ask("PING"), "PONG");
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for promises");
}

fn a_slow_reader_is_not_read_and_then_ended() {
    let limits = Limits { window_bytes: 1 << 20, frame_deadline: Duration::from_millis(1500), ..Limits::default() };
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config(), limits);
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
    while !writer.is_finished() && from.elapsed() < Duration::from_secs(40) {
        assert_eq!(good.ask("PING"), "PONG");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = writer.join().unwrap();
    assert!(matches!(ended, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{ended:?}");
    assert!(from.elapsed() < Duration::from_secs(35));
    assert!(resident().saturating_sub(before) < 64 << 20);
}
