//! Every command, in both protocols.

use crate::bed::{Bed, Wire, config, request};
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
        ("SET 1/2/1 there NX", "OK"),
        ("SET 1/2/1 there NX", "nil"),
        ("SET 1/2/1 again XX", "OK"),
        ("GET 1/2/1", "again"),
        ("SET 1/99/1 x XX", "nil"),
        ("MSET 2/1/1 a 2/2/1 b", "OK"),
        ("MGET 2/1/1 2/3/1 2/2/1", "[a, nil, b]"),
        ("EXISTS 2/1/1 2/2/1 2/3/1 2/1/1", ":3"),
        ("STRLEN 1/1/1", ":5"),
        ("STRLEN 1/1/9", ":0"),
        ("TYPE 1/1/1", "string"),
        ("TYPE 1/1/9", "none"),
        ("DBSIZE", ":4"),
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
        ("SET 1/5/1 x EX 10", "-ERR SET has no EX here"),
        ("SET 1/5/1 x NX XX", "-ERR syntax error"),
        ("SET 1/5/1 x NOW", "-ERR syntax error"),
        ("SET 1/5/1", "-ERR wrong number of arguments for 'set' command"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("GET a b", "-ERR wrong number of arguments for 'get' command"),
        ("MSET 1/5/1", "-ERR wrong number of arguments for 'mset' command"),
        ("MSET 1/5/1 a 1/6/1", "-ERR wrong number of arguments for 'mset' command"),
        ("MSET 1/5/1 a 1/6 b", "-INVALID "),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("SELECT nothing", "-ERR no such keyspace; this server has: data"),
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 12345", "-ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
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
    // Nothing of the MSET with a wrong key was stored, and the connection is as it was.
    assert_eq!(wire.ask("DBSIZE"), ":1");
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
fn a_scan_meets_every_key_once() {
    let bed = Bed::with(&[Keyspace::events("data", 3)], config(), Limits::default());
    let mut wire = bed.tcp();
    for event in 0..40 {
        for source in 0..3 {
            assert_eq!(wire.ask(&format!("SET {}/{event}/{source} x", 1 + event % 2)), "OK");
        }
    }
    let walk = |wire: &mut Wire, options: &str| {
        let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
        loop {
            let answer = wire.ask(&format!("SCAN {cursor}{options}"));
            let (next, found) = answer[1..answer.len() - 2].split_once(", [").unwrap();
            keys.extend(found.split(", ").filter(|key| !key.is_empty()).map(str::to_owned));
            cursor = next.to_owned();
            if cursor == "0" {
                return keys;
            }
            assert!(keys.len() <= 120);
        }
    };
    let all = walk(&mut wire, "");
    assert_eq!(all.len(), 120);
    assert!(all.iter().collect::<std::collections::BTreeSet<_>>().len() == 120 && all[0] == "1/0/0");
    assert_eq!(walk(&mut wire, " COUNT 7"), all);
    assert_eq!(walk(&mut wire, " COUNT 100000"), all);
    assert_eq!(walk(&mut wire, " MATCH 1/* COUNT 4").len(), 60);
    assert_eq!(walk(&mut wire, " MATCH 2/11/*"), ["2/11/0", "2/11/1", "2/11/2"]);
    assert_eq!(walk(&mut wire, " MATCH */2 COUNT 50").len(), 40);
    assert_eq!(walk(&mut wire, " MATCH 2/1?/[02]").len(), 10);
    assert_eq!(walk(&mut wire, " MATCH 3/* TYPE string").len(), 0);
    assert_eq!(walk(&mut wire, " TYPE hash").len(), 0);
    // The same in pieces through FB.RANGE.
    let first = wire.ask("FB.RANGE 1/*/1-2 COUNT 3");
    assert_eq!(first, "[[1/0/1, x], [1/0/2, x], [1/2/1, x]]");
    assert_eq!(wire.ask("FB.RANGE 1/*/1-2 AFTER 1/2/1 COUNT 2"), "[[1/2/2, x], [1/4/1, x]]");
    assert_eq!(wire.ask("FB.RANGE 1/*/1-2 AFTER 1/38/2"), "[]");
    assert_eq!(wire.ask("FB.RANGE 1/38 AFTER 0/5/5").matches("1/38/").count(), 3);
    assert_eq!(wire.ask("FB.RANGE 1/38 AFTER 2/5/5"), "[]");
}

#[test]
fn a_cursor_goes_on_over_other_connections_and_removed_keys() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    for event in 0..9 {
        wire.ask(&format!("SET 1/{event}/0 x"));
    }
    let answer = wire.ask("SCAN 0 COUNT 4");
    let cursor = answer[1..].split(',').next().unwrap().to_owned();
    assert_eq!(wire.ask("DEL 1/3/0 1/4/0"), ":2");
    for mut other in [bed.unix(), bed.tcp()] {
        assert_eq!(other.ask(&format!("SCAN {cursor} COUNT 100")), "[0, [1/5/0, 1/6/0, 1/7/0, 1/8/0]]");
    }
}

#[test]
fn keyspaces_are_selected_by_number_and_by_name() {
    let bed = Bed::with(&[Keyspace::events("a", 1), Keyspace::events("b", 1)], config(), Limits::default());
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("SET 1/1/1 first"), "OK");
    assert_eq!(wire.ask("SELECT 1"), "OK");
    assert_eq!(wire.ask("GET 1/1/1"), "nil");
    assert_eq!(wire.ask("SET 1/1/1 second"), "OK");
    assert_eq!(wire.ask("SELECT a"), "OK");
    assert_eq!(wire.ask("GET 1/1/1"), "first");
    assert_eq!(wire.ask("SELECT b"), "OK");
    assert_eq!(wire.ask("RESET"), "RESET");
    assert_eq!(wire.ask("GET 1/1/1"), "first");
    let info = wire.ask("INFO keyspace");
    assert!(info.contains("db0:keys=1,") && info.contains("db1:keys=1,"), "{info}");
    assert!(!info.contains("redis_version"));
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
    assert_eq!(wire.ask("CONFIG GET append* sav?"), "{appendonly: no, save: }");
    assert_eq!(wire.ask("CLIENT SETINFO LIB-NAME x"), "OK");
    assert!(wire.ask("CLIENT SETINFO LIB-NAME a\tb").starts_with("-ERR lib-name"));
    assert!(wire.ask("CLIENT LIST").contains("name=me ") && wire.ask("CLIENT INFO").contains("lib-name=x "));
    assert_eq!(wire.ask("CLIENT NO-EVICT on"), "OK");
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
fn an_update_needs_the_token_of_a_leased_event() {
    let bed = Bed::new();
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("SET 1/1/1 a"), "OK");
    let leased = wire.ask("FB.GETANY");
    let token = leased.split(", ").nth(3).unwrap().to_owned();
    assert!(wire.ask("SET 1/1/1 b XX").starts_with("-FENCED "));
    assert_eq!(wire.ask(&format!("SET 1/1/1 b XX TOKEN {token}")), "OK");
    assert_eq!(wire.ask("GET 1/1/1"), "b");
    assert_eq!(wire.ask("SET 1/1/1 c TOKEN 0.1.1"), "-ERR syntax error");
}

#[test]
fn a_full_store_says_so_and_takes_more_once_there_is_room() {
    let config = forebay_store::Config {
        hot_bytes: 6 << 20,
        segment_bytes: Some(256 << 10),
        put_deadline: Duration::from_secs(3),
        ..config()
    };
    let bed = Bed::with(&[Keyspace::events("data", 1)], config, Limits::default());
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
