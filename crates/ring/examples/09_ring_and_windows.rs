//! A latency buffer of continuous readout: `cargo run -p forebay-store --example 09_ring_and_windows`.
//!
//! Four links put frames continuously; the ring keeps the newest ones. A trigger asks for a window of ticks and gets
//! all fragments that overlap it, with the coverage of the rest.
#![expect(clippy::print_stdout, reason = "an example prints for its reader")]

use forebay_core::{GapCause, RingKeyspace};
use forebay_ring::{Coverage, Ring, RingConfig, RingOutcome, RingPut, RingSources};
use std::error::Error;
use std::time::Duration;

/// A WIBEth frame: 64 samples of a 62.5 MHz clock divided by 32.
const SPAN: u32 = 2048;
const FRAME: [u8; 7200] = [0x5A; 7200];

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("forebay-example-09-{}", std::process::id()));

    // Sources, clock, and the history that must stay available. A region that is too small is refused with the figures.
    let mut keyspace = RingKeyspace::wibeth("links", 4)?;
    keyspace.history = Duration::from_millis(20);
    let config = RingConfig { hot_bytes: 32 << 20, ..RingConfig::default() };
    let ring = Ring::create(&dir, &keyspace, config.clone())?;

    // Each link puts its frames; from them the ring learns the relation of ticks and time.
    let links = (0..4).map(|link| keyspace.source(&[link])).collect::<Result<Vec<_>, _>>()?;
    let put = RingPut { run: 17, status: 0 };
    let tick = |frame: u64| 1_000_000_000 + frame * u64::from(SPAN);
    for frame in 0..900 {
        for (number, link) in links.iter().enumerate() {
            // Link 2 loses three frames.
            if number != 2 || !(895..898).contains(&frame) {
                assert_eq!(ring.put(link, tick(frame), SPAN, &FRAME, &put)?, RingOutcome::Stored);
            }
        }
    }

    // A timestamp with a flipped bit is refused without further effect: the next frame of the link is stored.
    let insane = tick(900) ^ 1 << 45;
    assert_eq!(ring.put(&links[0], insane, SPAN, &FRAME, &put)?, RingOutcome::Refused(GapCause::Skew));
    assert_eq!(ring.put(&links[0], tick(900), SPAN, &FRAME, &put)?, RingOutcome::Stored);

    // A half-open window: all fragments that overlap it, in place, without a copy. While it is held, none is evicted.
    let window = ring.window(tick(894) + 5, tick(899) + 5, &RingSources::All, Duration::ZERO)?;
    for source in &window.sources {
        for fragment in source.fragments() {
            fragment.verify()?;
        }
        println!("link {}: {} frames, {:?}", source.source, source.fragments().len(), source.coverage);
    }
    assert!(window.sources[0].is_complete());
    let states: Vec<_> = window.sources[2].coverage.iter().map(|stretch| stretch.state).collect();
    assert_eq!(states, [Coverage::Complete, Coverage::Gap(GapCause::NeverArrived), Coverage::Complete]);

    // A pin keeps ticks from being evicted, for a limited time and within a quota.
    let pin = ring.pin(tick(700), tick(710), &RingSources::All, Duration::from_secs(60))?;
    println!("pin {} keeps {} bytes", pin.id(), pin.bytes());
    for frame in 901..3000 {
        for link in &links {
            assert_eq!(ring.put(link, tick(frame), SPAN, &FRAME, &put)?, RingOutcome::Stored);
        }
    }
    assert!(ring.window(tick(700), tick(710), &RingSources::All, Duration::ZERO)?.is_complete());
    let before = ring.window(tick(100), tick(110), &RingSources::All, Duration::ZERO)?;
    assert_eq!(before.sources[0].coverage[0].state, Coverage::Gone);
    drop((window, before, pin));

    // After a restart every acknowledged fragment is there until it is evicted, and each one is accounted for.
    ring.close()?;
    let ring = Ring::open(&dir, config)?;
    let ledger = ring.ledger();
    assert_eq!(ledger.imbalance(), None);
    println!(
        "offered {} frames: {} kept, {} expired, {} refused",
        ledger.offered.fragments,
        ring.stats().fragments,
        ledger.expired.fragments,
        ledger.refused.fragments
    );
    ring.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
