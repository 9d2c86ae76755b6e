//! Chaos: everything that can happen to a store, at once and at random, over its public calls; and books of its own, which
//! the ledger must equal term by term.
//!
//! ```text
//! FOREBAY_CHAOS_SECONDS=30 FOREBAY_CHAOS_SEED=7 cargo test --profile checked -p forebay-testkit --test chaos one_seed -- --nocapture
//! ```
//!
//! *Not here*: what happens in one life of the store, and what is compared (`drive`).

#![expect(
    clippy::print_stdout,
    reason = "a test says on its output how far it is; the harness shows it where it fails"
)]

mod books;
mod clock;
mod drive;
mod operate;
mod produce;
mod report;
mod ring;
mod scene;
mod work;

use report::Report;
use std::time::{Duration, Instant};

const FAULTS: [&str; 10] = [
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
];
const TERMS: [&str; 8] = ["stored", "duplicate", "conflict", "late", "refused", "rejected", "released", "removed"];
/// On a busy machine less happens in two seconds: there are more seeds.
const PATIENCE: Duration = Duration::from_secs(300);

/// A chaos that must add up.
fn balanced(seconds: f64, seed: u64) -> Report {
    let report = drive::run(Duration::from_secs_f64(seconds), seed).expect("the chaos runs");
    let text = report.text();
    assert!(report.balanced() && text.contains("balanced: every term") && !text.contains("WRONG"), "{text}");
    report
}

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number"))
}

#[test]
fn one_seed_for_as_long_as_wanted() {
    let report = balanced(variable("FOREBAY_CHAOS_SECONDS", 0.5), variable("FOREBAY_CHAOS_SEED", 5));
    assert!(report.terms.iter().any(|term| term.term == "rejected" && term.counted.events > 0), "{}", report.text());
    println!("{}", report.text());
}

#[test]
fn every_term_is_explained() {
    let mut awaited: Vec<&str> = FAULTS.into_iter().chain(TERMS).collect();
    let (mut lives, mut crashes) = (0, 0);
    let begun = Instant::now();
    for seed in 1.. {
        let report = balanced(2.0, seed);
        (lives, crashes) = (lives + report.lives, crashes + report.crashes);
        awaited.retain(|what| {
            let met = report.faults.get(what).is_some_and(|count| *count > 0)
                || report.terms.iter().any(|row| row.term == *what && row.counted.fragments > 0);
            !met
        });
        // What is meant to happen does happen.
        if seed >= 2 && awaited.is_empty() && lives >= 4 && crashes >= 2 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{lives} lives, {crashes} crashes; never happened: {awaited:?}");
    }
}
