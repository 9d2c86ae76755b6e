//! The base model: a readout embeds a server. It reaches its own node without a socket; filters use the network.
//!
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_client::core::{EventStore, GetAny, Keyspace, PutOptions, PutOutcome, Result};
use forebay_client::{Client, Options};
use forebay_server::{Endpoint, Server, ServerConfig};
use std::time::Duration;

const EVENTS: u64 = 500;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-example-14-{}", std::process::id()));
    let store = forebay_store::Store::create(&dir, &Keyspace::events("base", 2), forebay_store::Config::default())?;
    store.run_open(1, &store.keyspace().run)?;
    let socket = Endpoint::Unix(dir.join("forebay.sock"));
    let server = Server::start(vec![store.clone()], ServerConfig { native: vec![socket], ..ServerConfig::default() })?;
    let address = server.endpoints().map(|(_, endpoint)| endpoint.to_string()).next().unwrap_or_default();

    let filter = std::thread::spawn(move || decide(&Client::connect(&address, Options::default())?));
    // The readout calls the store directly: no socket, and only the copy into the store.
    read_out(&store)?;
    let accepted = filter.join().unwrap_or_else(|_| Ok(0))?;
    println!("{accepted} of {EVENTS} events accepted");
    let ledger = store.ledger(1)?;
    assert_eq!((ledger.live.accepted.events, ledger.imbalance()), (accepted, None));
    server.stop(Duration::from_secs(1));
    store.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// Works for both: an embedded store and a client.
fn read_out(store: &impl EventStore) -> Result<()> {
    for event in 0..EVENTS {
        for source in 0..2 {
            let key = store.keyspace().schema.key(&[1, event, source])?;
            assert_eq!(store.put(&key, &event.to_le_bytes(), &PutOptions::default())?, PutOutcome::Stored);
        }
    }
    Ok(())
}

/// The same code runs in the readout's process.
fn decide(store: &impl EventStore) -> Result<u64> {
    let (mut decided, mut accepted) = (0, 0);
    while decided < EVENTS {
        for lease in store.get_any(&GetAny { n: 32, wait: Duration::from_secs(1), ..GetAny::default() })? {
            decided += 1;
            if lease.fragments.iter().any(|fragment| fragment[0] % 10 == 0) {
                let all = forebay_client::core::Sources::All;
                let accept = forebay_client::core::Accept { streams: &[("physics", all)], results: &[] };
                lease.accept_into(&accept)?;
                accepted += 1;
            } else {
                lease.reject()?;
            }
        }
    }
    Ok(accepted)
}
