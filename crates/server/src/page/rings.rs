//! Samples of a ring: fill, pins, refusals, silence.

use super::text::Page;
use forebay_core::RingStats;
use forebay_ring::Ring;

/// Adds all of one ring.
pub(super) fn add(page: &mut Page, keyspace: &str, ring: &Ring) {
    let stats = ring.stats();
    let name = [("keyspace", keyspace)];
    let bytes = u64::from(stats.segments) * stats.segment_bytes;
    let gauges = [
        ("forebay_ring_fill_ratio", "Occupied share of a ring, 0 to 1: near 1 once it has come round.", stats.fill),
        ("forebay_ring_capacity_bytes", "Bytes of a ring.", bytes as f64),
        ("forebay_ring_fragments", "Fragments that a ring keeps.", stats.fragments as f64),
        ("forebay_ring_bytes", "Payload that a ring keeps.", stats.bytes as f64),
        ("forebay_ring_pins", "Pins in force.", stats.pins.len() as f64),
        ("forebay_ring_pinned_bytes", "Bytes of a ring that pins hold or have reserved.", stats.pinned_bytes as f64),
        ("forebay_ring_pin_quota_bytes", "Bytes of a ring that pins may hold.", stats.pin_quota_bytes as f64),
        ("forebay_ring_guards", "Chunks that windows keep in place now.", guards(&stats) as f64),
    ];
    for (metric, help, value) in gauges {
        page.gauge(metric, help, &name, value);
    }
    page.counter("forebay_ring_evicted_chunks_total", "Chunks evicted to make room.", &name, stats.evicted as f64);
    let refused =
        [("no_space", stats.refused.no_space), ("skew", stats.refused.skew), ("too_late", stats.refused.too_late)];
    for (cause, count) in refused {
        let help = "Fragments refused and entered as gaps.";
        page.counter("forebay_ring_refused_fragments_total", help, &[name[0], ("cause", cause)], count as f64);
    }
    let terms = [("stored", stats.ledger.stored), ("expired", stats.ledger.expired), ("lost", stats.ledger.lost)];
    for (term, tally) in terms {
        let help = "Fragments of a ring by term of its ledger, over all runs.";
        page.gauge("forebay_ring_ledger_fragments", help, &[name[0], ("term", term)], tally.fragments as f64);
        let help = "Payload of a ring by term of its ledger, over all runs.";
        page.gauge("forebay_ring_ledger_bytes", help, &[name[0], ("term", term)], tally.bytes as f64);
    }
    let sources = ring.sources();
    page.gauge("forebay_ring_sources", "Sources that a ring has seen.", &name, sources.len() as f64);
    // The longest only: a series for each link would be thousands of them.
    let silent_ns = sources.iter().filter_map(|source| source.silent_ns).max().unwrap_or(0);
    let help = "Longest time since a source's last put, of those that have put since the ring was opened.";
    page.gauge("forebay_ring_silence_seconds", help, &name, silent_ns as f64 / 1e9);
}

fn guards(stats: &RingStats) -> u64 {
    stats.holders.iter().map(|holder| holder.guards).sum()
}
