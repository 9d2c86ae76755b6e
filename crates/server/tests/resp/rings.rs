//! A ring beside events: FB.PUT and FB.WINDOW.

use crate::resp::bed::{Wire, request};
use forebay_core::{Keyspace, RingKeyspace};
use forebay_ring::{Ring, RingConfig};
use forebay_server::{Endpoint, Limits, Protocol, Served, Server, ServerConfig};
use forebay_store::Store;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Events called `data` and a ring called `links`.
struct Scene {
    ring: Ring,
    address: SocketAddr,
    server: Option<Server>,
    dir: PathBuf,
}

impl Scene {
    fn new(name: &str, limits: Limits) -> Scene {
        let dir = std::env::temp_dir().join(format!("forebay-resp-ring-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut keyspace = RingKeyspace::wibeth("links", 4).unwrap();
        (keyspace.history, keyspace.source_bytes_per_second) = (Duration::from_millis(1), 1_000_000);
        let config = RingConfig { hot_bytes: 8 << 20, segment_bytes: Some(64 << 10), ..RingConfig::default() };
        let ring = Ring::create(&dir.join("ring"), &keyspace, config).unwrap();
        let store =
            Store::create(&dir.join("store"), &Keyspace::events("data", 1).opening_runs(), crate::resp::bed::config())
                .unwrap();
        let resp = vec![Endpoint::Tcp("127.0.0.1:0".parse().unwrap())];
        let config = ServerConfig { resp, threads: 1, limits, ..ServerConfig::default() };
        let server = Server::start([Served::from(store), Served::from(ring.clone())], config).unwrap();
        let (_, endpoint) = server.endpoints().find(|(protocol, _)| *protocol == Protocol::Resp).unwrap();
        let Endpoint::Tcp(address) = *endpoint else { panic!("{endpoint}") };
        Scene { ring, address, server: Some(server), dir }
    }

    fn wire(&self) -> Wire {
        let mut wire = Wire::tcp(self.address);
        assert_eq!(wire.ask("SELECT links"), "OK");
        wire
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn windows_show_what_was_put_and_what_is_missing() {
    let scene = Scene::new("windows", Limits::default());
    let mut wire = scene.wire();
    assert_eq!(wire.ask("FB.PUT 7 100 10 first RUN 4 STATUS 9"), "OK");
    assert_eq!(wire.ask("FB.PUT 7 100 10 first RUN 4"), "OK");
    assert!(wire.ask("FB.PUT 7 100 10 other RUN 4").starts_with("-CONFLICT "));
    assert_eq!(wire.ask("FB.PUT 7 120 10 third RUN 4"), "OK");
    assert_eq!(
        wire.ask("FB.WINDOW 95 135"),
        "[[source, 7, coverage, [[:95, :100, gone], [:100, :110, complete], [:110, :120, gap: never arrived], \
         [:120, :130, complete], [:130, :135, not yet]], fragments, [[:100, :10, :4, :9, first], [:120, :10, :4, :0, third]]]]"
    );
    assert_eq!(wire.ask("HELLO 3").matches("proto").count(), 1);
    assert_eq!(
        wire.ask("FB.WINDOW 105 106 SOURCES 7"),
        "[{source: 7, coverage: [[:105, :106, complete]], fragments: [[:100, :10, :4, :9, first]]}]"
    );
    assert_eq!(
        wire.ask("FB.WINDOW 105 106 SOURCES 8"),
        "[{source: 8, coverage: [[:105, :106, not yet]], fragments: []}]"
    );
    let far = 62_500_000_u64 * 3600;
    assert_eq!(
        wire.ask(&format!("FB.PUT 7 {far} 10 far RUN 4")),
        format!("-REFUSED skew: not stored, entered as a gap at 7/{far}, a final answer")
    );
    assert_eq!(scene.ring.stats().fragments, 2);
}

#[test]
fn a_window_is_waited_for() {
    let scene = Scene::new("wait", Limits::default());
    let (mut wire, mut other) = (scene.wire(), scene.wire());
    let from = Instant::now();
    assert!(wire.ask("FB.WINDOW 0 20 WAIT 200 SOURCES 1").contains("not yet"));
    assert!(from.elapsed() >= Duration::from_millis(190));
    wire.send(&request(&["FB.WINDOW", "0", "20", "WAIT", "30000", "SOURCES", "1"]));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(other.ask("FB.PUT 1 0 10 a"), "OK");
    assert_eq!(other.ask("FB.PUT 1 10 10 b"), "OK");
    assert!(wire.answer().contains("[[:0, :20, complete]]"));
    assert!(from.elapsed() < Duration::from_secs(25));
}

#[test]
fn what_is_for_the_other_kind_says_so() {
    let limits = Limits { window_bytes: 64 << 10, ..Limits::default() };
    let scene = Scene::new("kinds", limits);
    let mut wire = scene.wire();
    for words in ["GET 1/2/3", "SET 1/2/3 x", "FB.GETANY", "FB.EVENT 1/2", "FB.RANGE 1"] {
        let answer = wire.ask(words);
        assert!(
            answer.starts_with("-ERR keyspace 'links' is a ring: it has FB.PUT and FB.WINDOW"),
            "{words}: {answer}"
        );
    }
    let wrong = [
        ("FB.PUT 1 2 3", "-ERR wrong number"),
        ("FB.PUT x 2 3 v", "-INVALID "),
        ("FB.PUT 1 2 0 v", "-INVALID "),
        ("FB.PUT 1 -2 1 v", "-ERR value is not an integer"),
        ("FB.PUT 1 2 4294967296 v", "-ERR value is not an integer"),
        ("FB.PUT 1 2 3 v RUN", "-ERR syntax"),
        ("FB.PUT 1 2 3 v FLAG 1", "-ERR syntax"),
        ("FB.WINDOW 5 5", "-INVALID "),
        ("FB.WINDOW 5 6 SOURCES", "-ERR syntax"),
        ("FB.WINDOW 5 6 SOURCES 1/2", "-INVALID "),
        ("FB.WINDOW 5 6 SOURCES 1 1", "-INVALID "),
    ];
    for (words, says) in wrong {
        let answer = wire.ask(words);
        assert!(answer.starts_with(says), "{words}: {answer}");
    }
    // More than goes into one answer is refused, not cut.
    let value = "x".repeat(7000);
    (0..12).for_each(|at| assert_eq!(wire.ask(&format!("FB.PUT 1 {} 10 {value}", at * 10)), "OK"));
    assert!(wire.ask("FB.WINDOW 0 120").contains("ask for less"));
    assert!(wire.ask("FB.WINDOW 0 60").contains(&value));
    assert_eq!(wire.ask("SELECT data"), "OK");
    assert!(wire.ask("FB.PUT 1 2 3 v").contains("it holds events"));
    assert!(wire.ask("FB.WINDOW 0 120").starts_with("-ERR this keyspace has no windows"));
}

#[test]
fn redis_cli_puts_and_asks() {
    let scene = Scene::new("cli", Limits::default());
    let run = |words: &[&str]| {
        let port = scene.address.port().to_string();
        let output = Command::new("redis-cli").args(["-p", &port, "-n", "1"]).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("redis-cli: {error}; Debian: redis-tools"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&["FB.PUT", "3", "1000", "32", "frame"]).trim(), "OK");
    let said = run(&["FB.WINDOW", "1000", "1032"]);
    assert!(said.contains("complete") && said.contains("frame"), "{said}");
}
