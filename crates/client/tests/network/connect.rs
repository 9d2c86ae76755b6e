//! Servers that do not answer: every call ends by its deadline.

use crate::network::scene::{Dir, client, key, serve, store};
use forebay_client::core::{Kind, PutOptions};
use forebay_client::{Client, Options};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

fn hurried() -> Options {
    Options { deadline: Duration::from_millis(600), connect_deadline: Duration::from_millis(200), ..Options::default() }
}

#[track_caller]
fn is_in_time(address: &str) {
    let from = Instant::now();
    let error = Client::connect(address, hurried()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    // Without deadlines it would be minutes.
    assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
}

#[test]
fn nobody_is_there() {
    let dir = Dir::new();
    is_in_time(&format!("unix:{}", dir.socket().display()));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    is_in_time(&format!("tcp://{port}"));
}

#[test]
fn somebody_listens_and_says_nothing() {
    let dir = Dir::new();
    let _silent = UnixListener::bind(dir.socket()).unwrap();
    is_in_time(&format!("unix:{}", dir.socket().display()));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    is_in_time(&format!("tcp://{}", silent.local_addr().unwrap()));
}

/// A server that hangs takes no connections: once as many wait as may, who connects waits as well.
#[test]
fn a_server_hangs_and_many_wait() {
    let dir = Dir::new();
    let _hanging = UnixListener::bind(dir.socket()).unwrap();
    let path = dir.socket();
    let waiting = std::thread::spawn(move || {
        let mut all = Vec::new();
        // The last of them waits forever.
        while let Ok(stream) = UnixStream::connect(&path) {
            all.push(stream);
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.is_finished(), "the queue of connections has no end here");
    is_in_time(&format!("unix:{}", dir.socket().display()));
}

#[test]
fn a_server_goes_away_and_comes_back() {
    let dir = Dir::new();
    let store = store(dir.path());
    let server = serve(&store, &dir.socket());
    let client = client(&dir.address());
    let _ = client.put(&key(1, 0), b"before", &PutOptions::default()).unwrap();
    drop(server);
    let late = std::thread::scope(|scope| {
        let put = scope.spawn(|| client.put(&key(1, 1), b"meanwhile", &PutOptions::default()));
        std::thread::sleep(Duration::from_millis(300));
        let server = serve(&store, &dir.socket());
        let _ = put.join().unwrap().unwrap();
        server
    });
    assert_eq!(client.get(&key(1, 1)).unwrap().unwrap()[..], b"meanwhile"[..]);
    drop(late);
}
