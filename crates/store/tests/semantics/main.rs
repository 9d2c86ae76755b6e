//! What each call means: one small test per promise, on one thread, with a clock that the test moves.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../common/mod.rs"]
mod common;

mod completeness;
mod edit;
mod lifecycle;
mod put;
mod runs;
mod selection;
mod verdicts;

use forebay_store::core::{AttributeSchema, Completeness, Keyspace};
use std::time::Duration;

/// Events of three fragments, ready after ten seconds at the latest, with attributes and classes.
fn three() -> Keyspace {
    let mut keyspace = Keyspace::events("semantics", 3);
    keyspace.attributes =
        AttributeSchema::parse(&["lumi:u32", "bits:u64", "class"], &["physics", "calib-tile"]).unwrap();
    keyspace.run.complete_within = Duration::from_secs(10);
    keyspace
}

/// The same for events of one fragment, which are ready at once.
fn single() -> Keyspace {
    let mut keyspace = three();
    keyspace.run.completeness = Completeness::Count(1);
    keyspace
}
