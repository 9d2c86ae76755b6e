//! Continuous readout over the network: links put into a ring on a server, a trigger reads a window and pins the
//! ticks that it may read again.
//!
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_client::core::{Coverage, Result, RingKeyspace, RingOutcome, RingPut, RingSources};
use forebay_client::{Options, RingClient, RingFrame};
use forebay_ring::{Ring, RingConfig};
use forebay_server::{Server, ServerConfig};
use std::time::Duration;

/// Ticks of one frame.
const SPAN: u32 = 2048;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-example-15-{}", std::process::id()));
    let keyspace = RingKeyspace { history: Duration::from_millis(10), ..RingKeyspace::wibeth("links", 4)? };
    let ring = Ring::create(&dir, &keyspace, RingConfig { hot_bytes: 64 << 20, ..RingConfig::default() })?;
    let config = ServerConfig { native: vec!["tcp://127.0.0.1:0".parse()?], ..ServerConfig::default() };
    let server = Server::start([ring.clone()], config)?;
    let address = server.endpoints().map(|(_, endpoint)| endpoint.to_string()).next().unwrap_or_default();

    // A link puts its frames, many in a call. One is missing.
    let links = RingClient::connect(&address, Options::default())?;
    let source = links.keyspace().source(&[3])?;
    let value = vec![7; 7200];
    let frame = |number: u64| RingFrame {
        source,
        timestamp: number * u64::from(SPAN),
        span: SPAN,
        value: &value,
        options: RingPut { run: 1, status: 0 },
    };
    let frames: Vec<RingFrame<'_>> = (0..100).filter(|number| *number != 50).map(frame).collect();
    for outcome in links.put_many(&frames)? {
        assert_eq!(outcome?, RingOutcome::Stored);
    }

    // A trigger asks for a window of all links, and waits a moment for frames that have not arrived.
    let trigger = RingClient::connect(&address, Options::default())?;
    let (begin, end) = (48 * u64::from(SPAN), 53 * u64::from(SPAN));
    let pin = trigger.pin(begin, end, &RingSources::All, Duration::from_secs(10))?;
    let window = trigger.window(begin, end, &RingSources::All, Duration::from_millis(100))?;
    for source in &window.sources {
        println!("source {}: {} fragments, {} bytes", source.source, source.fragments().len(), source.bytes_total());
        for stretch in &source.coverage {
            println!("  [{}, {}) {:?}", stretch.begin, stretch.end, stretch.state);
        }
        assert!(source.coverage.iter().any(|stretch| matches!(stretch.state, Coverage::Gap(_))));
        for fragment in source.fragments() {
            fragment.verify()?;
        }
    }
    pin.release();

    server.stop(Duration::from_secs(1));
    ring.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
