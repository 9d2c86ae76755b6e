//! Memory beyond the region.

use super::{SPAN, frame, keyspace};
use forebay_core::{ManualClock, RingKeyspace};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;

#[test]
fn a_fragment_takes_at_most_24_bytes_of_memory() {
    // As many fragments a chunk as a real ring has: 575 WIBEth frames in 4 MiB.
    let keyspace = RingKeyspace { fragment_bytes_max: 64, ..keyspace(4) };
    let config = RingConfig {
        hot_bytes: 8192 + 48 * (128 << 10),
        segment_bytes: Some(128 << 10),
        clock: Arc::new(ManualClock::default()),
        maintenance: false,
        ..RingConfig::default()
    };
    let ring = Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap();
    let put = RingPut::default();
    let sources: Vec<_> = (0..4).map(|link| super::source(&ring, link)).collect();
    let mut most = 0.0_f64;
    for number in 0..40_000 {
        for source in &sources {
            assert_eq!(ring.put(source, frame(number), SPAN, &[1; 64], &put).unwrap(), RingOutcome::Stored);
        }
        if ring.stats().evicted > 0 && number % 100 == 0 {
            let stats = ring.stats();
            let memory = stats.memory;
            let bytes = memory.index + memory.books + memory.fixed;
            most = most.max(bytes as f64 / stats.fragments as f64);
        }
    }
    assert!(ring.stats().evicted > 48, "the ring has come round");
    assert!(most > 16.0 && most <= 24.0, "{most} bytes per fragment: {:?}", ring.stats().memory);
}
