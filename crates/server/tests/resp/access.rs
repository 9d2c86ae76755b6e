//! Who may do what, and how a server ends.

use crate::resp::bed::{Bed, config, request};
use forebay_core::Keyspace;
use forebay_server::{AccessToken, Endpoint, Limits, Protocol, Right, Secret, ServerConfig, TlsFiles};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

const OPERATOR: &str = "the-secret-of-the-operator";
const READER: &str = "the-secret-of-the-reader";
const READOUT: &str = "the-secret-of-the-readout";

fn token(name: &str, secret: &str, rights: &[(&str, &[Right])]) -> AccessToken {
    let rights = rights.iter().map(|(keyspace, rights)| (keyspace.to_string(), rights.to_vec())).collect();
    AccessToken { name: name.to_owned(), secret: Secret::new(secret.as_bytes()).unwrap(), rights }
}

fn guarded(limits: Limits) -> Bed {
    let tokens = vec![
        token("operator", OPERATOR, &[("*", &Right::ALL)]),
        token("reader", READER, &[("a", &[Right::Read])]),
        token("readout", READOUT, &[("a", &[Right::Write]), ("b", &[Right::Write, Right::Read])]),
    ];
    let server = ServerConfig { tokens, limits, ..ServerConfig::default() };
    Bed::serving(&[Keyspace::events("a", 1).opening_runs(), Keyspace::events("b", 1).opening_runs()], config(), server)
}

#[test]
fn a_stranger_may_only_say_who_it_is() {
    let bed = guarded(Limits::default());
    let mut wire = bed.tcp();
    for words in
        ["GET 1/1/1", "SET 1/1/1 x", "INFO", "SELECT 0", "CLIENT ID", "CONFIG GET save", "COMMAND", "FB.RUN LIST"]
    {
        assert_eq!(wire.ask(words), "-NOAUTH Authentication required.", "{words}");
    }
    assert!(wire.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(wire.ask("PING"), "PONG");
    assert!(wire.ask("AUTH wrong").starts_with("-WRONGPASS "));
    assert!(wire.ask(&format!("AUTH reader {OPERATOR}")).starts_with("-WRONGPASS "));
    assert_eq!(wire.ask("GET 1/1/1"), "-NOAUTH Authentication required.");
    assert_eq!(wire.ask(&format!("AUTH {OPERATOR}")), "OK");
    assert_eq!(wire.ask("SET 1/1/1 x"), "OK");
    let mut wire = bed.tcp();
    assert_eq!(wire.ask("GET 1/1/1"), "-NOAUTH Authentication required.");
    let hello = wire.ask(&format!("HELLO 3 AUTH default {OPERATOR}"));
    assert!(hello.starts_with("{server: forebay"), "{hello}");
    assert_eq!(wire.ask("GET 1/1/1"), "x");
    // What it may send before that is small.
    let mut large = bed.tcp();
    large.send(b"*2\r\n$4\r\nAUTH\r\n$20000\r\n");
    assert_eq!(large.rest(), "-ERR Protocol error: unauthenticated bulk length\r\n");
    let mut many = bed.tcp();
    many.send(b"*11\r\n");
    assert_eq!(many.rest(), "-ERR Protocol error: unauthenticated multibulk length\r\n");
    let mut guesses = bed.tcp();
    guesses.send(&request(&["AUTH", "guess"]).repeat(100));
    assert_eq!(guesses.rest().matches("-WRONGPASS").count(), 8);
}

#[test]
fn rights_are_those_of_the_keyspace() {
    let bed = guarded(Limits::default());
    let log_in = |name: &str, secret: &str| {
        let mut wire = bed.unix();
        assert_eq!(wire.ask(&format!("AUTH {name} {secret}")), "OK");
        wire
    };
    let mut readout = log_in("readout", READOUT);
    assert_eq!(readout.ask("SET 1/1/1 x"), "OK");
    let none = "-NOPERM token 'readout' has no right ";
    for (words, right) in [
        ("GET 1/1/1", "'read'"),
        ("FB.RANGE 1", "'read'"),
        ("INFO", "'read'"),
        ("FB.RUN LIST", "'read'"),
        ("FB.GETANY", "'select'"),
        ("FB.ACCEPT 1/1 0.1.1 x", "'select'"),
        ("DEL 1/1/1", "'admin'"),
        ("FB.RUN OPEN 5", "'admin'"),
    ] {
        let answer = readout.ask(words);
        assert!(answer.starts_with(&format!("{none}{right} in keyspace 'a'")), "{words}: {answer}");
    }
    assert_eq!(readout.ask("SELECT b"), "OK");
    assert_eq!(readout.ask("SET 1/1/1 y"), "OK");
    assert_eq!(readout.ask("GET 1/1/1"), "y");
    let mut reader = log_in("reader", READER);
    assert_eq!(reader.ask("GET 1/1/1"), "x");
    let refused = "-NOPERM token 'reader' has no right 'write' in keyspace 'a', which 'set' needs";
    assert_eq!(reader.ask("SET 1/2/1 x"), refused);
    // A large value is refused as well, read to its end, and what is behind it is found.
    let mut bytes = request(&["SET", "1/3/1", &"x".repeat(1_000_000)]);
    bytes.extend(request(&["PING"]));
    reader.send(&bytes);
    assert_eq!([reader.answer(), reader.answer()], [refused, "PONG"]);
    assert_eq!(reader.ask("SELECT b"), "OK");
    assert!(reader.ask("GET 1/1/1").starts_with("-NOPERM "));
}

#[test]
fn who_does_not_say_who_it_is_goes() {
    let limits = Limits { handshake_deadline: Duration::from_millis(300), ..Limits::default() };
    let bed = guarded(limits);
    let (mut silent, mut known) = (bed.tcp(), bed.tcp());
    assert_eq!(known.ask(&format!("AUTH {READER}")), "OK");
    let from = Instant::now();
    assert_eq!(silent.rest(), "");
    assert!(from.elapsed() < Duration::from_secs(30));
    assert_eq!(known.ask("GET 1/1/1"), "nil");
}

#[test]
fn a_stop_ends_idle_clients_and_answers_the_others() {
    let mut bed = Bed::new();
    let (mut idle, mut busy, mut waits) = (bed.tcp(), bed.unix(), bed.tcp());
    assert_eq!(idle.ask("PING"), "PONG");
    waits.send(&request(&["FB.GETANY", "WAIT", "60000"]));
    // Half of a command has come when the server is told to stop.
    let bytes = request(&["SET", "1/1/1", &"x".repeat(200_000)]);
    busy.send(&bytes[..100_000]);
    std::thread::sleep(Duration::from_millis(100));
    let server = bed.server.take().unwrap();
    let stopped = std::thread::spawn(move || (server.stop(Duration::from_secs(60)), Instant::now()));
    let from = Instant::now();
    assert_eq!(idle.rest(), "");
    assert_eq!(waits.rest(), "*0\r\n");
    busy.send(&bytes[100_000..]);
    assert_eq!(busy.rest(), "+OK\r\n");
    let (cut, at) = stopped.join().unwrap();
    assert_eq!(cut, 0);
    assert!(at - from < Duration::from_secs(40));
    assert_eq!(bed.store.ledger(1).unwrap().stored.fragments, 1);
}

#[test]
fn redis_cli_over_tls_and_with_a_token() {
    let dir = std::env::temp_dir().join(format!("forebay-resp-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tls = TlsFiles { certificate: certificate.clone(), key, client_ca: None, require_client_certificate: false };
    let server = ServerConfig {
        resp: vec![Endpoint::Tls("127.0.0.1:0".parse().unwrap())],
        tls: Some(tls),
        tokens: vec![token("operator", OPERATOR, &[("*", &Right::ALL)])],
        ..ServerConfig::default()
    };
    let bed = Bed::serving(&[Keyspace::events("a", 1).opening_runs()], config(), server);
    let mut endpoints = bed.server.as_ref().unwrap().endpoints();
    let port = endpoints.find_map(|(protocol, endpoint)| match (protocol, endpoint) {
        (Protocol::Resp, Endpoint::Tls(address)) => Some(address.port()),
        _ => None,
    });
    let (value, file) = ("x".repeat(3_000_000), dir.join("value"));
    std::fs::write(&file, &value).unwrap();
    let ask = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["--tls", "-h", "127.0.0.1", "-p", &port.unwrap().to_string(), "--cacert"]).arg(&certificate);
        command.args(["--no-auth-warning", "-a", OPERATOR]).args(words).stdin(std::fs::File::open(&file).unwrap());
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("redis-cli: {error}; Debian: redis-tools"));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(ask(&["-x", "SET", "1/1/1"]), "OK");
    assert_eq!(ask(&["GET", "1/1/1"]), value);
    assert!(ask(&["GET", "nothing"]).starts_with("INVALID "));
    let _ = std::fs::remove_dir_all(dir);
}
