//! Starts and stops: what is listened at, what is refused, what is left.

use crate::secure::certificates::{Authority, NOW};
use crate::secure::{Temp, address};
use forebay_core::Kind;
use forebay_server::{
    AccessToken, KeyspaceSettings, Limits, Phase, Protocol, Right, Secret, Server, ServerConfig, Settings,
};
use forebay_store::{PutOptions, PutOutcome};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

fn on_loopback() -> ServerConfig {
    let any = || vec!["tcp://127.0.0.1:0".parse().unwrap()];
    ServerConfig { native: any(), resp: any(), threads: 2, ..ServerConfig::default() }
}

#[test]
fn a_server_says_where_it_is_and_that_it_lives() {
    let temp = Temp::new();
    let server = Server::start(vec![temp.store("events")], on_loopback()).unwrap();
    assert_ne!(address(&server, Protocol::Native).port(), 0);
    assert_ne!(address(&server, Protocol::Native), address(&server, Protocol::Resp));
    assert_eq!(server.phase(), Phase::Ready);
    crate::secure::eventually("every loop goes round", || server.alive());
    assert!(!server.is_broken());
    assert_eq!(server.stop(Duration::from_secs(5)), 0);
}

#[test]
fn a_stop_closes_listeners_first_and_cuts_what_does_not_end() {
    let (temp, ca) = (Temp::new(), Authority::new("ca"));
    let limits = Limits { handshake_deadline: Duration::from_secs(60), ..Limits::default() };
    let tls = Some(temp.tls(&ca.server(NOW), None, false));
    let native = vec!["tls://127.0.0.1:0".parse().unwrap()];
    let (server, address) = temp.server(ServerConfig { native, tls, limits, ..ServerConfig::default() });
    let _silent = TcpStream::connect(address).unwrap();
    crate::secure::eventually("it is in", || server.connections() == 1);
    let from = Instant::now();
    // Who has not shaken hands has nothing under way: nobody waits for it.
    assert_eq!(server.stop(Duration::from_secs(30)), 0);
    assert!(from.elapsed() < Duration::from_secs(25), "{:?}", from.elapsed());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_unix_socket_comes_and_goes_with_its_server() {
    let temp = Temp::new();
    let path = temp.path.join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let native = vec![format!("unix:{}", path.display()).parse().unwrap()];
    let config = ServerConfig { native, ..ServerConfig::default() };
    let server = Server::start(vec![temp.store("events")], config.clone()).unwrap();
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    let second = Server::start(vec![temp.store("others")], config).err().unwrap();
    assert!(second.to_string().contains("another server has it"), "{second}");
    server.stop(Duration::from_secs(5));
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_served_is_refused_before_anybody_connects() {
    let temp = Temp::new();
    let (one, same) = (temp.store("events"), Temp::new());
    let twice = Server::start(vec![one.clone(), same.store("events")], on_loopback()).err().unwrap();
    assert!(twice.message().contains("two keyspaces are called `events`"), "{twice}");
    let secret = Secret::new(b"0123456789abcdef").unwrap();
    let rights = [("evnets".to_owned(), vec![Right::Read])].into();
    let tokens = vec![AccessToken { name: "t".to_owned(), secret, rights }];
    let nowhere = Server::start(vec![one.clone()], ServerConfig { tokens, ..on_loopback() }).err().unwrap();
    assert!(nowhere.message().contains("keyspace `evnets`"), "{nowhere}");
    let none = Server::start(vec![one], ServerConfig { threads: 0, ..on_loopback() }).err().unwrap();
    assert_eq!(none.kind(), Kind::Invalid);
}

fn keyspace(temp: &Temp, rest: &str) -> KeyspaceSettings {
    let text = format!("[[keyspace]]\npath = \"store\"\n{rest}");
    Settings::parse(&text, "server.toml", &temp.path).unwrap().keyspace.remove(0)
}

const CREATE: &str = "[keyspace.create]\nkeyspace = \"k.toml\"\nhot_bytes = \"4 MiB\"\nsegment_bytes = \"64 KiB\"\n";
const KEYSPACE: &str = "name = \"made\"\nkey = [\"run:u32\", \"event:u64\", \"source:u32\"]\nprimary = [\"run\", \"event\"]\n\
    [run]\ncount = 1\ncomplete_within_ms = 1000\n";

#[test]
fn a_store_is_made_at_the_first_start_and_opened_at_every_other() {
    let temp = Temp::new();
    let none = keyspace(&temp, "").open().err().unwrap();
    assert!(none.message().contains("[keyspace.create]"), "{none}");
    assert!(keyspace(&temp, CREATE).name().unwrap_err().message().contains("k.toml"));
    temp.write("k.toml", KEYSPACE, 0o644);
    keyspace(&temp, CREATE).name().unwrap();
    let store = keyspace(&temp, CREATE).open().unwrap();
    assert_eq!(store.keyspace().name, "made");
    store.run_open(1, &store.keyspace().run).unwrap();
    let put = store.put(&store.schema().key(&[1, 42, 0]).unwrap(), b"kept", &PutOptions::default()).unwrap();
    assert_eq!(put, PutOutcome::Stored);
    store.close().unwrap();
    drop(store);
    let again = keyspace(&temp, CREATE).open().unwrap();
    let key = again.schema().key(&[1, 42, 0]).unwrap();
    assert_eq!(&again.get(&key).unwrap().unwrap()[..], b"kept");
}

#[test]
fn a_first_start_that_was_cut_off_is_begun_again_and_a_damaged_store_is_not() {
    let temp = Temp::new();
    temp.write("k.toml", KEYSPACE, 0o644);
    // As a creation leaves it that was killed: a region of zeros.
    let region = temp.path.join("store/hot.fb");
    std::fs::create_dir(temp.path.join("store")).unwrap();
    std::fs::write(&region, vec![0; 1 << 20]).unwrap();
    keyspace(&temp, CREATE).open().unwrap().close().unwrap();
    let mut bytes = std::fs::read(&region).unwrap();
    bytes[..8192].fill(0xa5);
    std::fs::write(&region, &bytes).unwrap();
    let error = keyspace(&temp, CREATE).open().err().unwrap();
    assert_ne!(error.kind(), Kind::Unavailable);
    assert_eq!(std::fs::read(&region).unwrap(), bytes, "untouched: {error}");
    // What is left of a store whose region is gone is no place for a new one either.
    std::fs::remove_file(&region).unwrap();
    assert!(keyspace(&temp, CREATE).open().is_err());
    assert!(!Path::new(&region).exists());
}

#[test]
fn a_store_that_its_last_process_still_lets_go_of_is_waited_for() {
    let temp = Temp::new();
    let store = temp.store("store");
    let letting_go = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        store.close().unwrap();
    });
    keyspace(&temp, "").open().unwrap();
    letting_go.join().unwrap();
    let held = keyspace(&temp, "").open();
    assert!(held.is_ok());
    let from = Instant::now();
    assert_eq!(keyspace(&temp, "").open().err().unwrap().kind(), Kind::Unavailable);
    assert!((Duration::from_millis(900)..Duration::from_secs(30)).contains(&from.elapsed()));
}
