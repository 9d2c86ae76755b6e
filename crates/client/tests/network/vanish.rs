//! Clients that are killed in the middle of something: nothing leaks.

use crate::network::scene::{Dir, LEASE, Process, RUN, client, key, say_ready, seed, serve, store, until};
use forebay_client::core::{Bounds, GetAny, PutOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::{Duration, Instant};

const CLIENT: &str = "FOREBAY_NETWORK_CLIENT";

/// Not tests by themselves: what the parents start. Without the variable that they set there is nothing to do.
#[test]
fn putting_role() {
    let Ok(dir) = std::env::var(CLIENT) else { return };
    let client = client(&format!("unix:{dir}/server"));
    say_ready();
    let value = vec![1; 100_000];
    for event in 1000.. {
        // Nobody decides: it fills the store, and then waits for space.
        let _ = client.put(&key(event, 0), &value, &PutOptions::default());
    }
}

#[test]
fn leasing_role() {
    let Ok(dir) = std::env::var(CLIENT) else { return };
    let client = client(&format!("unix:{dir}/server"));
    let leases = client.get_any(&GetAny { n: 20, ..GetAny::default() }).unwrap();
    assert_eq!(leases.len(), 20);
    // The client extends them as long as it lives.
    std::thread::sleep(3 * LEASE);
    say_ready();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn reading_role() {
    let Ok(dir) = std::env::var(CLIENT) else { return };
    let client = client(&format!("unix:{dir}/server"));
    let bounds = Bounds::parse(client.schema(), &RUN.to_string()).unwrap();
    say_ready();
    loop {
        client.range(&bounds).for_each(|fragment| drop(fragment.unwrap()));
    }
}

#[test]
fn a_client_is_killed_while_it_puts() {
    let (dir, mut random) = (Dir::new(), SmallRng::seed_from_u64(seed()));
    let store = store(dir.path());
    let _server = serve(&store, &dir.socket());
    for _ in 0..5 {
        let process = Process::start("network::vanish::putting_role", CLIENT, dir.path());
        std::thread::sleep(Duration::from_millis(random.random_range(0..200)));
        process.kill();
    }
    assert!(store.ledger(RUN).unwrap().stored.fragments > 0, "nothing was put");
    let bounds = Bounds::parse(store.schema(), &RUN.to_string()).unwrap();
    // Puts that wait for space end in their time; what they reserved is given back.
    until("all can be removed", || {
        store.remove_range(&bounds).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        store.events(&bounds).unwrap().is_empty()
    });
    until("the store is empty", || store.stats().fill < 0.1);
    store.run_stop(RUN).unwrap();
    assert_eq!(store.run_close(RUN).unwrap().ledger.imbalance(), None);
}

#[test]
fn a_client_is_killed_while_it_holds_leases() {
    let dir = Dir::new();
    let store = store(dir.path());
    let _server = serve(&store, &dir.socket());
    for event in 0..20 {
        for source in 0..2 {
            let _ = store.put(&key(event, source), &[1; 5000], &PutOptions::default()).unwrap();
        }
    }
    let process = Process::start("network::vanish::leasing_role", CLIENT, dir.path());
    assert_eq!(store.stats().leases, 20, "leases are extended while their client lives");
    process.kill();
    let from = Instant::now();
    until("leases are back", || store.stats().leases == 0);
    // Were they extended by anybody, they would never be back.
    assert!(from.elapsed() < 4 * LEASE + Duration::from_secs(15), "{:?}", from.elapsed());
    let mut left = 20;
    while left > 0 {
        for lease in client(&dir.address()).get_any(&GetAny { n: 20, wait: LEASE, ..GetAny::default() }).unwrap() {
            assert_eq!(lease.delivery, 2, "its holder went silent");
            lease.reject().unwrap();
            left -= 1;
        }
    }
    store.run_stop(RUN).unwrap();
    assert_eq!(store.run_close(RUN).unwrap().ledger.imbalance(), None);
}

#[test]
fn a_client_is_killed_while_it_reads() {
    let (dir, mut random) = (Dir::new(), SmallRng::seed_from_u64(seed()));
    let store = store(dir.path());
    let _server = serve(&store, &dir.socket());
    for event in 0..200 {
        for source in 0..2 {
            let _ = store.put(&key(event, source), &[1; 50_000], &PutOptions::default()).unwrap();
        }
    }
    for _ in 0..6 {
        let process = Process::start("network::vanish::reading_role", CLIENT, dir.path());
        std::thread::sleep(Duration::from_millis(random.random_range(0..150)));
        process.kill();
        until("guards are back", || store.stats().holders.iter().all(|holder| holder.guards == 0));
    }
}
