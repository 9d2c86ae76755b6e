//! Many calls at once over one connection, in an async program.
//!
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_client::core::{Error, GetAny, Keyspace, PutOptions, PutOutcome, Result};
use forebay_client::{AsyncClient, Options, Verdict, WireJudgement};
use forebay_server::{Server, ServerConfig};
use std::time::Duration;

const EVENTS: u64 = 1000;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-example-13-{}", std::process::id()));
    let store = forebay_store::Store::create(&dir, &Keyspace::events("async", 1), forebay_store::Config::default())?;
    store.run_open(1, &store.keyspace().run)?;
    let config = ServerConfig { native: vec!["tcp://127.0.0.1:0".parse()?], ..ServerConfig::default() };
    let server = Server::start(vec![store.clone()], config)?;
    let address = server.endpoints().map(|(_, endpoint)| endpoint.to_string()).next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::internal("no runtime").with_source(error))?;
    let decided = runtime.block_on(both(&address))?;
    println!("{decided} events put, leased and decided over one connection");
    assert_eq!(store.ledger(1)?.rejected.events, EVENTS);
    drop(server);
    store.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// A producer and a filter, at the same time.
async fn both(address: &str) -> Result<u64> {
    let client = AsyncClient::connect(address, Options::default()).await?;
    let producer = async {
        let mut puts = tokio::task::JoinSet::new();
        for event in 0..EVENTS {
            let key = client.keyspace().schema.key(&[1, event, 0])?;
            let client = client.clone();
            puts.spawn(async move { client.put(&key, b"some bytes", &PutOptions::default()).await });
        }
        while let Some(put) = puts.join_next().await {
            let outcome = put.map_err(|error| Error::internal("a put panicked").with_source(error))??;
            assert_eq!(outcome, PutOutcome::Stored);
        }
        Ok(())
    };
    let filter = async {
        let mut decided = 0;
        while decided < EVENTS {
            let request = GetAny { n: 64, wait: Duration::from_secs(1), ..GetAny::default() };
            let leases = client.get_any(&request).await?;
            let verdicts: Vec<_> = leases.iter().map(|lease| Verdict::about(lease, WireJudgement::Reject)).collect();
            for outcome in client.decide(&verdicts).await? {
                outcome?;
                decided += 1;
            }
        }
        Ok(decided)
    };
    let (produced, decided) = tokio::join!(producer, filter);
    let produced: Result<()> = produced;
    produced?;
    decided
}
