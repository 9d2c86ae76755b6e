//! Values out and in over TLS, long and short, and events leased and decided: byte for byte what was put.

use crate::secure::scene::{Scene, runtime};
use engine::core::{Bounds, GetAny, Key, PutOptions, PutOutcome};
use forebay_client::{AsyncClient, Client, Options, Verdict};
use forebay_wire::WireJudgement;
use std::time::Duration;

const LONG: usize = 1 << 20;
const MIDDLE: usize = 10 << 10;

/// Bytes that differ along a value, and from event to event.
fn value(event: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ event) as u8).collect()
}

fn request(n: usize) -> GetAny {
    GetAny { n, wait: Duration::from_secs(10), ..GetAny::default() }
}

#[test]
fn the_blocking_client_moves_and_decides() {
    let scene = Scene::new();
    // With a certificate and without: the server takes both.
    for (from, options) in [(0, scene.options()), (1000, scene.known())] {
        let client = Client::connect(&scene.address(), options).unwrap();
        for (event, bytes) in [(from, MIDDLE), (from + 1, LONG)] {
            let (key, value) = (scene.key(event), value(event, bytes));
            assert_eq!(client.put(&key, &value, &PutOptions::default()).unwrap(), PutOutcome::Stored);
            let found = client.get(&key).unwrap().unwrap();
            assert!(found[..] == value[..], "{bytes} bytes");
            found.verify().unwrap();
        }
        let values: Vec<(Key, Vec<u8>)> = (2..202).map(|n| (scene.key(from + n), value(n, 64))).collect();
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            values.iter().map(|(key, value)| (*key, &value[..], PutOptions::default())).collect();
        assert!(client.put_many(&puts).unwrap().into_iter().all(|outcome| outcome.unwrap() == PutOutcome::Stored));
        let mut leased = 0;
        while leased < 202 {
            let leases = client.get_any(&request(64)).unwrap();
            assert!(!leases.is_empty(), "after {leased}");
            leased += leases.len();
            let verdicts: Vec<Verdict> =
                leases.iter().map(|lease| Verdict::about(lease, WireJudgement::Reject)).collect();
            assert!(client.decide(&verdicts).unwrap().into_iter().all(|outcome| outcome.is_ok()));
        }
    }
    assert_eq!(scene.store.ledger(1).unwrap().rejected.events, 404);
}

#[test]
fn the_async_client_moves_and_decides() {
    let scene = Scene::new();
    runtime().block_on(async {
        for (from, options) in [(0, scene.options()), (1000, scene.known())] {
            let client = AsyncClient::connect(&scene.address(), options).await.unwrap();
            let mut calls = tokio::task::JoinSet::new();
            for (event, bytes) in [(from, MIDDLE), (from + 1, LONG), (from + 2, LONG), (from + 3, 1)] {
                let (client, key) = (client.clone(), scene.key(event));
                calls.spawn(async move {
                    let value = value(event, bytes);
                    let outcome = client.put(&key, &value, &PutOptions::default()).await.unwrap();
                    assert_eq!(outcome, PutOutcome::Stored);
                    let found = client.get(&key).await.unwrap().unwrap();
                    assert!(found[..] == value[..], "{bytes} bytes");
                    found.verify().unwrap();
                });
            }
            while let Some(done) = calls.join_next().await {
                done.unwrap();
            }
            // Of all lengths beside each other: what is sent together, and what by itself.
            let values: Vec<(Key, Vec<u8>)> =
                (4..204).map(|n| (scene.key(from + n), value(n, [64, 20_000, 0][n as usize % 3]))).collect();
            let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
                values.iter().map(|(key, value)| (*key, &value[..], PutOptions::default())).collect();
            let outcomes = client.put_many(&puts).await.unwrap();
            assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == PutOutcome::Stored));
            let keys: Vec<Key> = values.iter().map(|(key, _)| *key).collect();
            for (found, (_, value)) in client.get_many(&keys).await.unwrap().into_iter().zip(&values) {
                assert!(found.unwrap()[..] == value[..]);
            }
            let mut leased = 0;
            while leased < 204 {
                let leases = client.get_any(&request(64)).await.unwrap();
                assert!(!leases.is_empty(), "after {leased}");
                leased += leases.len();
                let verdicts: Vec<Verdict> =
                    leases.iter().map(|lease| Verdict::about(lease, WireJudgement::Reject)).collect();
                assert!(client.decide(&verdicts).await.unwrap().into_iter().all(|outcome| outcome.is_ok()));
            }
        }
    });
    assert_eq!(scene.store.ledger(1).unwrap().rejected.events, 408);
}

#[test]
fn batches_as_long_as_the_window_go_out() {
    let scene = Scene::new();
    let values: Vec<(Key, Vec<u8>)> = (0..14).map(|n| (scene.key(n), value(n, LONG + 1))).collect();
    runtime().block_on(async {
        let client = AsyncClient::connect(&scene.address(), scene.options()).await.unwrap();
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            values.iter().map(|(key, value)| (*key, &value[..], PutOptions::default())).collect();
        for expected in [PutOutcome::Stored, PutOutcome::Duplicate] {
            let outcomes = client.put_many(&puts).await.unwrap();
            assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == expected));
        }
    });
}

#[test]
fn answers_longer_than_the_window_come_whole() {
    let scene = Scene::new();
    let options = Options { window_bytes: 128 << 10, ..scene.options() };
    let values: Vec<(Key, Vec<u8>)> =
        (0..100).map(|n| (scene.key(n), value(n, if n == 50 { LONG } else { MIDDLE }))).collect();
    for (key, value) in &values {
        let _ = scene.store.put(key, value, &PutOptions::default()).unwrap();
    }
    let client = Client::connect(&scene.address(), options.clone()).unwrap();
    let bounds = Bounds::parse(client.schema(), "1").unwrap();
    let found: Vec<_> = client.range(&bounds).map(Result::unwrap).collect();
    assert_eq!(found.len(), values.len());
    for (found, (key, value)) in found.iter().zip(&values) {
        assert!(found.key() == *key && found[..] == value[..]);
    }
    assert!(client.get(&values[50].0).unwrap().unwrap()[..] == values[50].1[..]);
    runtime().block_on(async {
        let client = AsyncClient::connect(&scene.address(), options).await.unwrap();
        // Beside each other, so that none is whole when the window is full.
        let gets = [50, 50, 50].map(|at| client.get(&values[at].0));
        let [first, second, third] = gets;
        let (first, second, third) = tokio::join!(first, second, third);
        for found in [first, second, third] {
            assert!(found.unwrap().unwrap()[..] == values[50].1[..]);
        }
        let ranged = client.with(move |client| client.range(&bounds).collect::<Result<Vec<_>, _>>());
        assert_eq!(ranged.await.unwrap().len(), 100);
    });
}
