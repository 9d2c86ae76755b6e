//! What each call means: one small test per promise, on one thread, with a clock that the test moves.

mod accounts;
mod announce;
mod classes;
mod completeness;
mod debug;
mod delivery;
mod edit;
mod inhibit;
mod lifecycle;
mod masks;
mod producers;
mod put;
mod runs;
mod sample;
mod selection;
mod stages;
mod streams;
mod verdicts;
mod why;

use crate::common::fixture::Fixture;
use forebay_store::core::{AttributeSchema, Completeness, Keyspace};
use forebay_store::{GetAny, Lease};
use std::time::Duration;

/// Events of three fragments, ready after ten seconds at the latest, with attributes and classes.
fn three() -> Keyspace {
    let mut keyspace = Keyspace::events("semantics", 3).opening_runs();
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

/// Events that wait for sources 0 to `sources` − 1, and pass through three stages.
fn staged(sources: u64) -> Keyspace {
    let mut keyspace = three();
    keyspace.run.completeness = Completeness::first_sources(&keyspace.schema, sources).unwrap();
    keyspace.stages = ["fast", "middle", "final"].map(str::to_owned).into();
    keyspace
}

/// Leases events of a stage, all that there are.
/// All ready events of a stage: those that failed before come alone.
fn of_stage(store: &Fixture, stage: &str) -> Vec<Lease> {
    let request = GetAny { stage: Some(stage.to_owned()), n: 1000, ..GetAny::default() };
    let calls = std::iter::repeat_with(|| store.get_any(&request).unwrap());
    calls.take_while(|leases| !leases.is_empty()).flatten().collect()
}
