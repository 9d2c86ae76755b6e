//! Access tokens through Forebay's own protocol: none, a wrong one, the right one, and what its rights allow.

use crate::secure::{Temp, log};
use forebay_client::{Client, Options};
use forebay_core::{GetAny, Kind, PutOptions, PutOutcome};
use forebay_server::{AccessToken, Right, Secret, Server, ServerConfig};
use std::time::{Duration, Instant};

const SECRET: &[u8] = b"a readout's own secret";
const WRONG: &[u8] = b"a guess of a stranger";

fn token(name: &str, secret: &[u8], rights: &[(&str, &[Right])]) -> AccessToken {
    let rights = rights.iter().map(|(keyspace, rights)| ((*keyspace).to_owned(), rights.to_vec()));
    AccessToken { name: name.to_owned(), secret: Secret::new(secret).unwrap(), rights: rights.collect() }
}

fn server(temp: &Temp, tokens: Vec<AccessToken>) -> (Server, String) {
    let native = vec!["tcp://127.0.0.1:0".parse().unwrap()];
    let stores = vec![temp.store("events"), temp.store("calib")];
    let http = Some("127.0.0.1:0".parse().unwrap());
    let config = ServerConfig { native, http, tokens, threads: 1, ..ServerConfig::default() };
    let server = Server::start(stores, config).unwrap();
    let address = server.endpoints().next().unwrap().1.to_string();
    (server, address)
}

fn connect(address: &str, keyspace: &str, secret: &[u8]) -> forebay_core::Result<Client> {
    let options = Options {
        keyspace: keyspace.to_owned(),
        token: secret.to_vec(),
        deadline: Duration::from_secs(1),
        ..Options::default()
    };
    Client::connect(address, options)
}

#[test]
fn without_a_known_token_nobody_enters() {
    let (temp, log) = (Temp::new(), log::collect());
    let (server, address) = server(&temp, vec![token("readout", SECRET, &[("*", &Right::ALL)])]);
    for wrong in [&b""[..], WRONG, &SECRET[..SECRET.len() - 1], &[SECRET, b"x"].concat()] {
        let error = connect(&address, "events", wrong).err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.message().contains("token"), "{error}");
    }
    assert_eq!(crate::secure::refused(&server, "native", "token"), 4);
    connect(&address, "events", SECRET).unwrap();
    let text = log.text();
    assert!(text.contains("a token that is not known, by a client called") && text.contains("reason=\"token\""));
    for secret in [SECRET, WRONG] {
        assert!(!text.contains(std::str::from_utf8(secret).unwrap()));
    }
}

#[test]
fn a_token_allows_what_its_rights_say_and_nothing_else() {
    let (temp, _) = (Temp::new(), log::collect());
    let readout = token("readout", SECRET, &[("events", &[Right::Write])]);
    let (server, address) = server(&temp, vec![readout, token("all", WRONG, &[("*", &Right::ALL)])]);
    let elsewhere = connect(&address, "calib", SECRET).err().unwrap();
    assert!(elsewhere.message().contains("`readout`") && elsewhere.message().contains("calib"), "{elsewhere}");
    let writer = connect(&address, "events", SECRET).unwrap();
    let key = writer.schema().key(&[1, 42, 0]).unwrap();
    assert_eq!(writer.put(&key, b"hello", &PutOptions::default()).unwrap(), PutOutcome::Stored);
    let refusals = [
        writer.get(&key).err(),
        writer.remove(&key).err(),
        writer.run_stop(1).err(),
        writer.ledger(1).err(),
        writer.get_any(&GetAny::default()).err(),
    ];
    for (at, refused) in refusals.into_iter().enumerate() {
        let error = refused.unwrap_or_else(|| panic!("call {at} was allowed"));
        assert_eq!(error.kind(), Kind::Invalid, "call {at}: {error}");
        assert!(error.message().contains("right"), "call {at}: {error}");
    }
    assert_eq!(crate::secure::refused(&server, "native", "right"), 6);
    assert!(log::collect().text().contains("`run` needs the right `admin`, which this token has not here"));
    let all = connect(&address, "events", WRONG).unwrap();
    assert_eq!(&all.get(&key).unwrap().unwrap()[..], b"hello");
    assert_eq!(all.get_any(&GetAny::default()).unwrap().len(), 1);
}

#[test]
fn a_client_at_rest_does_not_hold_up_a_stop() {
    let temp = Temp::new();
    let (server, address) = server(&temp, Vec::new());
    let client = connect(&address, "events", b"").unwrap();
    let key = client.schema().key(&[1, 42, 0]).unwrap();
    assert_eq!(client.put(&key, b"hello", &PutOptions::default()).unwrap(), PutOutcome::Stored);
    let from = Instant::now();
    assert_eq!(server.stop(Duration::from_secs(30)), 0);
    assert!(from.elapsed() < Duration::from_secs(25), "{:?}", from.elapsed());
    assert!(client.put(&key, b"hello", &PutOptions::default()).is_err());
}
