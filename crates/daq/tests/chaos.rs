//! Short chaos: whatever happens, the ledger equals what the driver counted itself.

use forebay_daq::chaos::{ChaosConfig, Report, run};
use std::sync::atomic::AtomicBool;

fn chaos(seconds: f64, seed: u64) -> Report {
    let config = ChaosConfig { seconds, seed, dir: None };
    run(&config, &AtomicBool::new(false), &mut |_| ()).expect("the chaos runs")
}

#[test]
fn every_term_is_explained() {
    for seed in [1, 2] {
        let report = chaos(2.0, seed);
        let text = report.text();
        assert!(report.balanced && report.problems.is_empty(), "{text}");
        assert!(text.contains("balanced: every term") && !text.contains("WRONG"), "{text}");
        assert!(report.lives >= 4 && report.crashes >= 2, "{text}");
        // What is meant to happen does happen.
        for fault in [
            "clock jumps",
            "lies fenced",
            "puts into a full store",
            "puts to be persisted",
            "events, or parts of them, gone down",
            "workers crashed",
            "workers hung",
            "runs closed",
            "events removed by hand",
            "sources died or returned",
        ] {
            assert!(report.faults.get(fault).is_some_and(|count| *count > 0), "{fault}\n{text}");
        }
        for term in ["stored", "duplicate", "conflict", "late", "refused", "rejected", "released", "removed"] {
            let term = report.terms.iter().find(|row| row.term == term).expect("a term");
            assert!(term.counted.fragments > 0, "{term:?}\n{text}");
        }
    }
}
