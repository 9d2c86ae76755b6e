//! The same three calls over the network: a server in this process, a client that connects to it.
//!
//! A server usually is a separate process (`forebay serve DIR`); here the library starts it.
//!
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_client::core::{GetAny, Keyspace, PutOptions, PutOutcome, Result};
use forebay_client::{Client, Options};
use forebay_server::{Server, ServerConfig};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-example-12-{}", std::process::id()));
    let store = forebay_store::Store::create(&dir, &Keyspace::events("first", 2), forebay_store::Config::default())?;
    store.run_open(1, &store.keyspace().run)?;
    // Port 0: the system chooses a port.
    let config = ServerConfig { native: vec!["tcp://127.0.0.1:0".parse()?], ..ServerConfig::default() };
    let server = Server::start(vec![store.clone()], config)?;
    let address = server.endpoints().map(|(_, endpoint)| endpoint.to_string()).next().unwrap_or_default();

    let client = Client::connect(&address, Options::default())?;
    println!("{client:?}");
    // 1. Put: one fragment, or many in a call.
    let key = |source| client.schema().key(&[1, 42, source]);
    assert_eq!(client.put(&key(0)?, b"bytes of one source", &PutOptions::default())?, PutOutcome::Stored);
    let many = [(key(1)?, &b"bytes of another"[..], PutOptions::default())];
    for outcome in client.put_many(&many)? {
        assert_eq!(outcome?, PutOutcome::Stored);
    }
    // 2. Take any ready event. The client extends the lease while it is held.
    for lease in client.get_any(&GetAny { n: 8, ..GetAny::default() })? {
        for fragment in &lease.fragments {
            fragment.verify()?;
        }
        // 3. Decide.
        lease.accept(&["physics"])?;
        println!("accepted an event of {} fragments", lease.fragments.len());
    }
    let ledger = client.ledger(1)?;
    assert_eq!((ledger.live.accepted.events, ledger.imbalance()), (1, None));

    client.close();
    server.stop(std::time::Duration::from_secs(1));
    store.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
