//! Servers and clients that take little at once: what is asked for together goes in as many frames as it needs.

use crate::network::scene::{Dir, RUN, key, store};
use forebay_client::core::{Key, Kind, PutOptions, PutOutcome};
use forebay_client::{Client, Options};
use forebay_server::{Endpoint, Limits, Server, ServerConfig};

const SMALL: u32 = 64 << 10;

fn small(dir: &Dir) -> (engine::Store, Server, Client) {
    let store = store(dir.path());
    let limits = Limits { window_bytes: SMALL, ..Limits::default() };
    let native = vec![Endpoint::Unix(dir.socket())];
    let config = ServerConfig { native, threads: 1, limits, ..ServerConfig::default() };
    let server = Server::start([store.clone()], config).unwrap();
    let client = Client::connect(&dir.address(), Options { window_bytes: SMALL, ..Options::default() }).unwrap();
    (store, server, client)
}

fn put_all(client: &Client, keys: &[Key], value: &[u8]) {
    let puts: Vec<(Key, &[u8], PutOptions<'_>)> = keys.iter().map(|key| (*key, value, PutOptions::default())).collect();
    for outcome in client.put_many(&puts).unwrap() {
        assert_eq!(outcome.unwrap(), PutOutcome::Stored);
    }
}

#[test]
fn long_and_many_fragments_go_through_small_windows() {
    let dir = Dir::new();
    let (_store, _server, client) = small(&dir);
    let long: Vec<Key> = (0..300).map(|event| key(event, 0)).collect();
    put_all(&client, &long, &[7; 20_000]);
    let short: Vec<Key> = (0..5000).map(|event| key(event, 1)).collect();
    put_all(&client, &short, &[1; 5]);
    let all: Vec<Key> = short.iter().chain(&long).copied().collect();
    for (fragment, at) in client.get_many(&all).unwrap().into_iter().zip(0..) {
        let length = if at < short.len() { 5 } else { 20_000 };
        assert_eq!(fragment.map(|fragment| fragment.len()), Some(length), "{at}");
    }
    assert_eq!(client.ledger(RUN).unwrap().stored.fragments, 5300);
}

/// Their answers alone are more than the client takes at once.
#[test]
fn answers_to_very_many_puts_find_room() {
    let dir = Dir::new();
    let (_store, _server, client) = small(&dir);
    let keys: Vec<Key> = (0..120_000).map(|event| key(event, 0)).collect();
    put_all(&client, &keys, b"x");
}

#[test]
fn a_fragment_longer_than_the_window_fails_alone() {
    let dir = Dir::new();
    let (_store, _server, client) = small(&dir);
    let values = [vec![1; 100], vec![2; 100_000], vec![3; 100]];
    let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
        values.iter().zip(0..).map(|(value, event)| (key(event, 0), &value[..], PutOptions::default())).collect();
    let outcomes = client.put_many(&puts).unwrap();
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind(), Kind::Invalid);
    assert_eq!(client.put(&key(9, 0), &values[1], &PutOptions::default()).unwrap_err().kind(), Kind::Invalid);
}
