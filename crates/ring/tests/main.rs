//! The ring keyspace: what it promises, by name.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod disorder;
mod edges;
mod eviction;
mod look;
mod memory;
mod model;
mod pins;
mod power;
mod races;
mod record;
mod reserve;
mod restart;
mod skew;

use forebay_core::{GapCause, Kind, ManualClock, Result, RingKeyspace, SourceId, SourceSchema};
use forebay_ring::{Coverage, Ring, RingConfig, RingOutcome, RingPut, RingSources, SourceWindow, Window};
use forebay_testkit::TempDir;
use forebay_testkit::media::SimMedium;
use std::sync::Arc;
use std::time::Duration;

/// Ticks of one frame.
pub(crate) const SPAN: u32 = 2048;
/// The first timestamp of most tests.
pub(crate) const FIRST: u64 = 1 << 40;
/// Ticks of a second, so that a frame is about 33 µs.
pub(crate) const TICKS_PER_SECOND: u64 = 62_500_000;

/// A small keyspace: fragments up to 1000 bytes, so that chunks of 16 KiB hold some; a skew of an hour, because tests
/// are faster than detectors.
pub(crate) fn keyspace(sources_max: u32) -> RingKeyspace {
    RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["crate:u16", "link:u32"]).unwrap(),
        ticks_per_second: TICKS_PER_SECOND,
        sources_max,
        history: Duration::from_millis(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(3600),
        fragment_bytes_max: 1000,
        pin_percent: 50,
    }
}

/// A region of this many chunks of 16 KiB, a clock that does not move, no thread.
pub(crate) fn config(chunks: u64) -> RingConfig {
    RingConfig {
        hot_bytes: 8192 + chunks * (16 << 10),
        segment_bytes: Some(16 << 10),
        clock: Arc::new(ManualClock::default()),
        maintenance: false,
        ..RingConfig::default()
    }
}

pub(crate) fn small_ring(chunks: u64, sources_max: u32) -> Ring {
    let config = config(chunks);
    Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace(sources_max), config).unwrap()
}

pub(crate) fn source(ring: &Ring, link: u64) -> SourceId {
    ring.keyspace().source(&[3, link]).unwrap()
}

/// The bytes of a fragment: a function of source and timestamp, of a length that is one as well.
pub(crate) fn payload(source: &SourceId, timestamp: u64) -> Vec<u8> {
    let mut state = timestamp ^ (source.number() as u64).rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
    };
    let length = next() as usize % 900;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn put_in(ring: &Ring, run: u32, link: u64, timestamp: u64, span: u32) -> Result<RingOutcome> {
    let source = source(ring, link);
    ring.put(&source, timestamp, span, &payload(&source, timestamp), &RingPut { run, status: timestamp as u32 })
}

/// Puts a frame of run 1 that must be stored.
#[track_caller]
pub(crate) fn put(ring: &Ring, link: u64, timestamp: u64) {
    assert_eq!(put_in(ring, 1, link, timestamp, SPAN).unwrap(), RingOutcome::Stored, "link {link} at {timestamp}");
}

/// Timestamp of a frame by its number.
pub(crate) fn frame(number: u64) -> u64 {
    FIRST + number * u64::from(SPAN)
}

pub(crate) fn window(ring: &Ring, begin: u64, end: u64) -> Window {
    ring.window(begin, end, &RingSources::All, Duration::ZERO).unwrap()
}

/// Timestamps of a source's fragments, each verified against its checksum and against what was put.
#[track_caller]
pub(crate) fn genuine(window: &SourceWindow) -> Vec<u64> {
    let one = |fragment: forebay_ring::RingFragment<'_>| {
        fragment.verify().unwrap();
        assert_eq!(fragment.bytes, payload(&window.source, fragment.timestamp), "{fragment:?} of {window:?}");
        assert_eq!(fragment.status, fragment.timestamp as u32);
        fragment.timestamp
    };
    let timestamps: Vec<u64> = window.fragments().map(one).collect();
    assert!(timestamps.is_sorted_by(|a, b| a < b), "{timestamps:?}");
    assert_eq!(window.bytes_total(), window.fragments().map(|fragment| fragment.bytes.len() as u64).sum::<u64>());
    timestamps
}

/// Coverage as short text: `C` complete, `N` not yet, `G` gone, `-` a gap that never arrived, else its cause; with ends.
pub(crate) fn coverage(window: &SourceWindow) -> Vec<(String, u64)> {
    let text = |state| match state {
        Coverage::Complete => "C".to_owned(),
        Coverage::NotYet => "N".to_owned(),
        Coverage::Gone => "G".to_owned(),
        Coverage::Gap(GapCause::NeverArrived) => "-".to_owned(),
        Coverage::Gap(cause) => cause.name().to_owned(),
    };
    window.coverage.iter().map(|stretch| (text(stretch.state), stretch.end)).collect()
}

/// Coverage without ends.
pub(crate) fn shape(window: &SourceWindow) -> String {
    coverage(window).iter().map(|stretch| stretch.0.as_str()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub(crate) fn balanced(ring: &Ring) {
    let ledger = ring.ledger();
    assert_eq!(ledger.imbalance(), None, "{ledger:?}");
}

/// The kind of a call that must fail.
#[track_caller]
pub(crate) fn refused<T>(answer: Result<T>, kind: Kind) -> String {
    match answer {
        Ok(_) => panic!("expected an error of kind {kind:?}, the call succeeded"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            error.to_string()
        }
    }
}
