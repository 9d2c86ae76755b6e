//! Many commands at once, in pieces of any size, small values and large.

use crate::resp::bed::{Bed, Wire, config, request};
use forebay_core::Keyspace;
use forebay_server::Limits;
use std::io::Write;
use std::time::Duration;

/// Commands on values of many sizes, whose answers do not depend on when they are asked.
fn commands() -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    for (at, length) in
        [0, 1, 63, 2047, 2048, 4095, 4096, 4097, 10_240, 65_535, 70_000, 200_000].into_iter().enumerate()
    {
        let key = format!("1/{at}/0").into_bytes();
        let value: Vec<u8> = (0..length).map(|byte| (byte * 31 + at) as u8).collect();
        commands.push(vec![b"SET".to_vec(), key.clone(), value.clone()]);
        commands.push(vec![b"GET".to_vec(), key.clone()]);
        commands.push(vec![b"set".to_vec(), key.clone(), value]);
        commands.push(vec![b"SET".to_vec(), key, vec![b'!'; 5000 + at]]);
        commands.push(vec![b"SET".to_vec(), b"not/a/key".to_vec(), vec![b'!'; 9000]]);
        commands.push(vec![b"DEL".to_vec(), b"9/9/9".to_vec()]);
        commands.push(vec![b"NOTHING".to_vec()]);
    }
    commands
}

fn all_answers(wire: &mut Wire, count: usize) -> Vec<String> {
    (0..count).map(|_| wire.answer()).collect()
}

#[test]
fn any_split_of_the_bytes_gives_the_same_answers() {
    let commands = commands();
    let bytes: Vec<u8> = commands.iter().flat_map(|command| request(command)).collect();
    let whole = {
        let bed = Bed::new();
        let mut wire = bed.unix();
        wire.send(&bytes);
        all_answers(&mut wire, commands.len())
    };
    assert!(
        whole[0] == "OK" && whole[2] == "OK" && whole[3].starts_with("-CONFLICT ") && whole[4].starts_with("-INVALID ")
    );
    // Pieces of all lengths, so that cuts fall everywhere: in names, lengths, values and ends of lines.
    for seed in 1..=6_usize {
        let bed = Bed::new();
        let mut wire = if seed % 2 == 0 { bed.tcp() } else { bed.unix() };
        let (mut at, mut state) = (0, seed * 7919);
        while at < bytes.len() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let most = [3, 40, 3000, 30_000][(state >> 40) % 4];
            let piece = ((state >> 33) % most + 1).min(bytes.len() - at);
            wire.send(&bytes[at..at + piece]);
            at += piece;
            if (state >> 50).is_multiple_of(16) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        assert!(all_answers(&mut wire, commands.len()) == whole, "seed {seed}");
    }
}

#[test]
fn thousands_of_commands_are_answered_in_order() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    let mut bytes = Vec::new();
    for event in 0..20_000 {
        bytes.extend(request(&["SET", &format!("1/{event}/0"), &format!("value {event}")]));
        bytes.extend(request(&["GET", &format!("1/{event}/0")]));
        bytes.extend_from_slice(format!("echo {event}\r\n").as_bytes());
    }
    wire.send(&bytes);
    for event in 0..20_000 {
        assert_eq!(
            [wire.answer(), wire.answer(), wire.answer()],
            ["OK".to_owned(), format!("value {event}"), event.to_string()]
        );
    }
    assert_eq!(bed.store.ledger(1).unwrap().stored.fragments, 20_000);
}

#[test]
fn large_values_come_and_go_unchanged() {
    let config = forebay_store::Config { hot_bytes: 320 << 20, segment_bytes: Some(16 << 20), ..config() };
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config, Limits::default());
    for (event, mut wire) in [bed.tcp(), bed.unix()].into_iter().enumerate() {
        let value: Vec<u8> = (0..12_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let key = format!("1/{event}/0");
        assert_eq!(wire.ask_parts(&[b"SET", key.as_bytes(), &value]), "OK");
        assert_eq!(wire.ask_parts(&[b"SET", key.as_bytes(), &value]), "OK");
        for _ in 0..3 {
            wire.send(&request(&["GET", &key]));
        }
        for _ in 0..3 {
            assert_eq!(wire.take(11), b"$12000000\r\n");
            assert!(wire.take(value.len()) == value);
            assert_eq!(wire.take(2), b"\r\n");
        }
    }
}

#[test]
fn a_client_that_ends_its_side_gets_all_answers() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    for event in 0..1000 {
        wire.send(&request(&["SET", &format!("1/{event}/0"), "x"]));
    }
    wire.stream.end_writing();
    assert_eq!(wire.rest(), "+OK\r\n".repeat(1000));
}

#[test]
fn two_clients_put_one_key_at_once() {
    let bed = Bed::new();
    let value = vec![5; 1_000_000];
    let bytes = request(&[&b"SET"[..], b"1/1/0", &value]);
    let mut wires = [bed.tcp(), bed.unix(), bed.tcp()];
    let (first, rest) = bytes.split_at(600_000);
    std::thread::scope(|scope| {
        for wire in &mut wires {
            scope.spawn(move || {
                wire.stream.write_all(first).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                wire.stream.write_all(rest).unwrap();
            });
        }
    });
    for wire in &mut wires {
        assert_eq!(wire.answer(), "OK");
    }
    let ledger = bed.store.ledger(1).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.imbalance()), (1, None));
}
