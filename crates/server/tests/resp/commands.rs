//! Every command, in both protocols.

use crate::resp::bed::{Bed, config, request};
use forebay_core::{Bounds, Keyspace};
use forebay_server::Limits;
use std::time::Duration;

#[test]
fn fragments_by_key() {
    let bed = Bed::new();
    for mut wire in [bed.tcp(), bed.unix()] {
        assert_eq!(wire.ask("SET 1/1/1 hello"), "OK");
    }
    let mut wire = bed.tcp();
    for (words, answer) in [
        ("set 1/1/1 hello", "OK"),
        ("GET 1/1/1", "hello"),
        ("GET 01/0x1/0001", "hello"),
        ("GET 1/1/2", "nil"),
        ("SET 2/1/1 a", "OK"),
        ("DEL 2/1/1 2/7/1", ":1"),
        ("GET 2/1/1", "nil"),
        ("ECHO there", "there"),
        ("PING", "PONG"),
        ("PING x", "x"),
        ("QUIT", "OK"),
    ] {
        assert_eq!(wire.ask(words), answer, "{words}");
    }
    assert_eq!(wire.rest(), "");
}

#[test]
fn errors_say_what_to_do() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("SET 1/1/1 a"), "OK");
    for (words, start) in [
        ("SET 1/1/1 b", "-CONFLICT "),
        ("SET 1/1 b", "-INVALID `1/1` has 2 part(s); expected run/event/source"),
        ("GET a/b/c", "-INVALID "),
        ("SET 4294967296/1/1 x", "-INVALID "),
        ("SET 1/5/1 x EX 10", "-ERR SET key value [STATUS bits]"),
        ("SET 1/5/1", "-ERR wrong number of arguments for 'set' command"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("GET a b", "-ERR wrong number of arguments for 'get' command"),
        ("DEL 1/1/1 1/6", "-INVALID "),
        ("MGET 1/1/1", "-ERR unknown command 'MGET'"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("SELECT nothing", "-ERR no such keyspace; this server has: data"),
        ("FB.RANGE 1 COUNT 0", "-ERR syntax error"),
        ("FB.RANGE 1 COUNT x", "-ERR value is not an integer or out of range"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 NOW", "-ERR Syntax error in HELLO option 'NOW'"),
        ("CLIENT KILL", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP."),
        ("CONFIG SET a b", "-ERR unknown subcommand 'SET'. Try CONFIG HELP."),
        ("FB.WINDOW 1 2", "-ERR this keyspace has no windows: "),
        ("FB.RUN NOW", "-ERR FB.RUN: expected OPEN"),
        ("FB.RUN PAUSE 77", "-INVALID "),
        ("FB.LEDGER 77", "-INVALID "),
        ("FB.LEDGER x", "-INVALID `x` is no number of a run"),
        ("FB.RANGE 1/2-1", "-INVALID "),
        ("FB.ACCEPT 1/1 0.1.1 physics", "-FENCED "),
        ("FB.ACCEPT 1/1 x physics", "-INVALID "),
        ("FB.GETANY STAGE nothing", "-INVALID "),
        ("FB.GETANY FILTER lumi=1", "-INVALID "),
        ("FB.GETANY SOURCES", "-ERR syntax error"),
    ] {
        let answer = wire.ask(words);
        assert!(answer.starts_with(start), "{words}: {answer}");
    }
    // Nothing of the DEL with a wrong key was removed, and the connection is as it was.
    assert_eq!(wire.ask("GET 1/1/1"), "a");
}

#[test]
fn a_late_fragment_says_so() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("SET 1/1/1 a"), "OK");
    let leased = wire.ask("FB.GETANY SOURCES NONE");
    assert!(leased.starts_with("[[primary, 1/1, token, "), "{leased}");
    let answer = wire.ask("SET 1/1/2 b");
    assert!(answer.starts_with("-LATE 1/1/2: "), "{answer}");
    let large = "x".repeat(100_000);
    let answer = wire.ask_parts(&["SET", "1/1/3", &large]);
    assert!(answer.starts_with("-LATE 1/1/3: "), "{answer}");
}

#[test]
fn an_unknown_command_is_told_as_redis_does() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    let long = "y".repeat(200);
    for (words, answer) in [
        ("LPUSH a b", "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' ".to_owned()),
        ("SUBSCRIBE", "-ERR unknown command 'SUBSCRIBE', with args beginning with: ".to_owned()),
        (
            &format!("FOO {long} b"),
            format!("-ERR unknown command 'FOO', with args beginning with: '{}' ", &long[..128]),
        ),
    ] {
        assert_eq!(wire.ask(words), answer);
    }
    assert_eq!(wire.ask_parts(&["A\r\nB", "c\nd"]), "-ERR unknown command 'A  B', with args beginning with: 'c d' ");
}

#[test]
fn a_range_goes_on_behind_a_key() {
    let bed = Bed::with(&[Keyspace::events("data", 3).opening_runs()], config(), Limits::default());
    let mut wire = bed.tcp();
    for event in 0..40 {
        for source in 0..3 {
            assert_eq!(wire.ask(&format!("SET {}/{event}/{source} x", 1 + event % 2)), "OK");
        }
    }
    let first = wire.ask("FB.RANGE 1/*/1-2 COUNT 3");
    assert_eq!(first, "[[1/0/1, x], [1/0/2, x], [1/2/1, x]]");
    assert_eq!(wire.ask("FB.RANGE 1/*/1-2 AFTER 1/2/1 COUNT 2"), "[[1/2/2, x], [1/4/1, x]]");
    assert_eq!(wire.ask("FB.RANGE 1/*/1-2 AFTER 1/38/2"), "[]");
    assert_eq!(wire.ask("FB.RANGE 1/38 AFTER 0/5/5").matches("1/38/").count(), 3);
    assert_eq!(wire.ask("FB.RANGE 1/38 AFTER 2/5/5"), "[]");
}

#[test]
fn keyspaces_are_selected_by_number_and_by_name() {
    let bed = Bed::with(
        &[Keyspace::events("a", 1).opening_runs(), Keyspace::events("b", 1).opening_runs()],
        config(),
        Limits::default(),
    );
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("SET 1/1/1 first"), "OK");
    assert_eq!(wire.ask("SELECT 1"), "OK");
    assert_eq!(wire.ask("GET 1/1/1"), "nil");
    assert_eq!(wire.ask("SET 1/1/1 second"), "OK");
    assert_eq!(wire.ask("SELECT a"), "OK");
    assert_eq!(wire.ask("GET 1/1/1"), "first");
    assert_eq!(wire.ask("SELECT b"), "OK");
    assert_eq!(wire.ask("GET 1/1/1"), "second");
}

#[test]
fn what_clients_ask_at_their_start() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    let hello = wire.ask("HELLO");
    assert!(hello.starts_with("[server, forebay, version, ") && hello.contains("proto, :2, id, :"), "{hello}");
    let hello = wire.ask("HELLO 3 SETNAME me");
    assert!(hello.starts_with("{server: forebay, ") && hello.contains("proto: :3"), "{hello}");
    assert_eq!(wire.ask("CLIENT GETNAME"), "me");
    assert_eq!(wire.ask("GET 1/1/1"), "nil");
    assert_eq!(wire.ask("CONFIG GET save"), "{save: }");
    assert_eq!(wire.ask("CONFIG GET appendonly maxmemory SAVE"), "{appendonly: no, save: }");
    assert_eq!(wire.ask("CLIENT SETINFO LIB-NAME x"), "OK");
    assert!(wire.ask("CLIENT SETNAME a\nb").starts_with("-ERR Client names"));
    assert!(wire.ask("INFO").contains("redis_version:"));
    assert_eq!(wire.ask("COMMAND INFO get nothing").matches("get").count(), 1);
    assert!(wire.ask("COMMAND DOCS fb.getany").contains("summary: "));
    let count: usize = wire.ask("COMMAND COUNT")[1..].parse().unwrap();
    assert_eq!(wire.ask("COMMAND LIST").split(", ").count(), count);
    assert!(wire.ask("COMMAND").starts_with("[[set, :-3, [write], :1, :1, :1, "));
    assert_eq!(wire.ask("HELLO 2").split(", ").nth(5), Some(":2"));
    assert_eq!(wire.ask("CONFIG GET save"), "[save, ]");
}

#[test]
fn a_full_store_says_so_and_takes_more_once_there_is_room() {
    let config = forebay_store::Config {
        hot_bytes: 6 << 20,
        segment_bytes: Some(256 << 10),
        put_deadline: Duration::from_secs(3),
        ..config()
    };
    let bed = Bed::with(&[Keyspace::events("data", 1).opening_runs()], config, Limits::default());
    let (mut wire, mut other) = (bed.tcp(), bed.unix());
    for (from, value) in [(0, "x".repeat(50_000)), (1000, "y".repeat(1000))] {
        let mut event = from;
        let refused = loop {
            let answer = wire.ask_parts(&["SET", &format!("1/{event}/0"), &value]);
            if answer != "OK" {
                break answer;
            }
            event += 1;
        };
        assert!(refused.starts_with("-FULL no space"), "{refused}");
        // While one waits for room, others are served: if they waited as well, it would find none.
        wire.send(&request(&["SET", &format!("1/{event}/0"), &value]));
        assert_eq!(other.ask("PING"), "PONG");
        assert!(bed.store.remove_range(&Bounds::all(bed.store.schema())).unwrap() > 0);
        assert_eq!(wire.answer(), "OK");
    }
}
