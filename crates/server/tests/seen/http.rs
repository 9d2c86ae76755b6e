//! Probes, and clients that behave badly.

use crate::seen::scene::{Scene, get};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What comes back for these bytes, up to the end of the connection.
fn ask(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may refuse before it has all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn probes_and_links() {
    let scene = Scene::new();
    assert_eq!(scene.get("/livez"), "alive\n");
    assert_eq!(scene.get("/readyz"), "ready\n");
    for path in ["/metrics", "/status", "/livez", "/readyz"] {
        assert!(scene.get("/").contains(&format!("href=\"{path}\"")), "{path}");
        assert!(!scene.get(path).is_empty());
    }
    assert_eq!(get(scene.address(), "/nothing").0, 404);
    let refused = ask(scene.address(), b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 405") && refused.to_lowercase().contains("allow: get, head"), "{refused}");
    let head = ask(scene.address(), b"HEAD /livez HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn nobody_listens_after_the_end() {
    let mut scene = Scene::new();
    let address = scene.address();
    assert_eq!(scene.get("/livez"), "alive\n");
    scene.server.take().unwrap().stop(Duration::from_secs(1));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn heads_are_bounded() {
    let scene = Scene::new();
    let long = [b"GET /livez HTTP/1.1\r\nx: ".as_slice(), &[b'a'; 64 << 10], b"\r\n\r\n"].concat();
    let answer = ask(scene.address(), &long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let lines: String = (0..1000).map(|number| format!("x{number}: a\r\n")).collect();
    let many = format!("GET /livez HTTP/1.1\r\n{lines}\r\n");
    let answer = ask(scene.address(), many.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = ask(scene.address(), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no HTTP at all\r\n\r\n");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(scene.get("/livez"), "alive\n");
}

#[test]
fn slow_clients_are_shown_out() {
    let scene = Scene::new();
    let address = scene.address();
    // Each gives a piece of a request and no more. The number that is served at once, then some more.
    let slow: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(b"GET /livez HT");
            stream
        })
        .collect();
    // The first are let go after five seconds, so that somebody with a whole request is served.
    let from = Instant::now();
    let page = loop {
        let page = ask(address, b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n");
        if page.starts_with("HTTP/1.1 200") {
            break page;
        }
        assert!(from.elapsed() < Duration::from_secs(20), "nobody is served while slow clients hold the server");
        std::thread::sleep(Duration::from_millis(100));
    };
    let of = |name: &str| crate::seen::scene::value(&page, name).unwrap();
    assert!(of("forebay_refused_total{listener=\"http\",reason=\"limit\"}") >= 16.0, "{page}");
    assert!(of("forebay_connections_ended_total{listener=\"http\",reason=\"deadline\"}") >= 1.0, "{page}");
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut rest = Vec::new();
        // A reset is an end as well.
        let end = stream.read_to_end(&mut rest);
        assert!(!matches!(end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "a slow client is kept");
    }
    assert_eq!(scene.get("/readyz"), "ready\n");
}
