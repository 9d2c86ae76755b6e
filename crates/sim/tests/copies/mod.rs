//! Copies: a small model of the protocol that keeps several copies of an event, searched in every order of its steps.
//!
//! Three nodes, one slot, one event of two sources. Clients put, also bytes that conflict; workers lease and decide; the steward
//! suspects whom it likes; each node adopts a map when it likes; links delay, and lose what is under way. The clean protocol has
//! no violation; each rule that is left out has one, with a shortest path that is printed.
//!
//! ```text
//! cargo test --profile checked -p forebay-sim --test copies -- --nocapture
//! FOREBAY_COPIES_LARGE=1 cargo test --profile checked -p forebay-sim --test copies -- --nocapture --test-threads 1   # 9 minutes
//! ```
//!
//! | file | has |
//! |---|---|
//! | `state` | one state, packed to be remembered |
//! | `step`, `clients`, `replicas`, `membership` | what can come next |
//! | `invariants` | what must be true |
//! | `explore`, `reduce` | the search, and states that are one for it |
//! | `scenario`, `mutants` | bounds, and rules that are left out |
//!
//! *Not here*: clocks and absence, look-up tables, effects, several events, the ledger, runs, updates, lack of space, the order of
//! threads inside a node. What the model found is in `docs/simulation.md`.

#![expect(
    clippy::print_stdout,
    reason = "a test says on its output what it has searched; the harness shows it where it fails"
)]

mod clients;
mod explore;
mod invariants;
mod membership;
mod mutants;
mod reduce;
mod replicas;
mod scenario;
mod state;
mod step;

use explore::{Found, explore};
use invariants::LANDMARKS;
use mutants::{MUTANTS, Mutant};
use scenario::Scenario;
use std::time::Instant;
use step::Rules;

fn search(rules: &Rules) -> Found {
    let begin = Instant::now();
    let found = explore(rules);
    println!(
        "{}: {} states, {} steps between them, the farthest {} steps away, {} brought to rest, {:.1} s",
        rules.scenario.name,
        found.states,
        found.steps,
        found.depth - usize::from(found.violation.is_none()),
        found.settled,
        begin.elapsed().as_secs_f64()
    );
    found
}

fn show(found: &Found) {
    if let Some(violation) = &found.violation {
        for step in &violation.path {
            println!("    {step}");
        }
        println!("    invariant {}: {}", violation.broken.number, violation.broken.how);
    }
}

/// Searches all states, of which there must be at least `states_min`, with these landmarks among them.
fn exhaust(scenario: Scenario, states_min: usize, landmarks: &[&str]) {
    let found = search(&Rules::of(scenario));
    show(&found);
    assert!(found.violation.is_none(), "{scenario:?}");
    assert!(found.states >= states_min, "{} states are fewer than {states_min}: {scenario:?}", found.states);
    let reached = LANDMARKS.iter().zip(found.reached).filter(|(_, reached)| *reached).map(|((name, _), _)| *name);
    assert_eq!(reached.collect::<Vec<_>>(), landmarks, "{scenario:?}");
}

const LATE_PUT: &str = "a put is late";
const CONFLICT: &str = "a put conflicts";
const SECOND_PUT: &str = "a second put is acknowledged";
const VERDICT: &str = "a verdict is acknowledged";
const SECOND_LEASE: &str = "a second lease is granted";
const SUCCESSOR: &str = "a verdict is in force at a successor";
const JOINED_LEADS: &str = "a member that joined leads";
const AFTER_CRASH: &str = "a node leads after a crash";

/// Whether the searches that take minutes are wanted too.
fn large() -> bool {
    std::env::var_os("FOREBAY_COPIES_LARGE").is_some()
}

#[test]
fn two_workers() {
    let reached = &[LATE_PUT, VERDICT, SECOND_LEASE, SUCCESSOR, JOINED_LEADS];
    exhaust(scenario::TWO_WORKERS, 1_000_000, reached);
    if large() {
        exhaust(scenario::FOUR_EPOCHS, 2_000_000, reached);
    }
}

#[test]
fn late_fragment() {
    exhaust(scenario::LATE, 1_000_000, &[LATE_PUT, SECOND_PUT, VERDICT, SUCCESSOR, JOINED_LEADS]);
    if large() {
        exhaust(scenario::LATE_EPOCHS, 1_500_000, &[LATE_PUT, SECOND_PUT, VERDICT, SUCCESSOR, JOINED_LEADS]);
        let reached = &[LATE_PUT, SECOND_PUT, VERDICT, SECOND_LEASE, SUCCESSOR, JOINED_LEADS];
        exhaust(scenario::LATE_WORKERS, 3_000_000, reached);
    }
}

#[test]
fn crash() {
    let reached = &[LATE_PUT, SECOND_PUT, VERDICT, SECOND_LEASE, SUCCESSOR, AFTER_CRASH];
    exhaust(scenario::CRASH, 1_000_000, reached);
    if large() {
        exhaust(scenario::CRASH_OPEN, 7_000_000, reached);
        let reached = &[LATE_PUT, SECOND_PUT, VERDICT, SECOND_LEASE, SUCCESSOR, JOINED_LEADS, AFTER_CRASH];
        exhaust(scenario::CRASH_EPOCHS, 14_000_000, reached);
    }
}

#[test]
fn conflicts() {
    exhaust(scenario::CONFLICTS, 1_000_000, &[CONFLICT, SECOND_PUT]);
    if large() {
        exhaust(scenario::CONFLICTS_FRAMES, 12_000_000, &[CONFLICT, SECOND_PUT]);
    }
}

#[test]
fn rejoin() {
    exhaust(scenario::REJOIN, 1_000_000, &[LATE_PUT, VERDICT, SUCCESSOR, JOINED_LEADS]);
    if large() {
        exhaust(scenario::REJOIN_CONFLICTS, 3_000_000, &[CONFLICT, SECOND_PUT, JOINED_LEADS]);
    }
}

#[test]
fn three_copies() {
    exhaust(scenario::THREE, 100_000, &[VERDICT, SECOND_LEASE, SUCCESSOR]);
    if large() {
        let reached = &[LATE_PUT, SECOND_PUT, VERDICT, SECOND_LEASE, SUCCESSOR];
        exhaust(scenario::THREE_LATE, 12_000_000, reached);
        exhaust(scenario::THREE_EPOCHS, 500_000, &[VERDICT, SECOND_LEASE, SUCCESSOR, JOINED_LEADS]);
    }
}

#[test]
fn three_copies_of_an_open_event() {
    exhaust(scenario::THREE_OPEN, 1_000_000, &[LATE_PUT, VERDICT, SECOND_LEASE, SUCCESSOR]);
    if large() {
        exhaust(scenario::THREE_FRAMES, 5_000_000, &[LATE_PUT, VERDICT, SECOND_LEASE, SUCCESSOR]);
    }
}

#[test]
fn each_rule_that_is_left_out_is_missed() {
    for (mutant, scenario, number) in MUTANTS {
        // What comes to no end is only seen where everything is brought to rest.
        let settle = usize::from(mutant.is_found_at_rest());
        let rules = Rules { mutant: Some(mutant), settle, ..Rules::of(scenario) };
        let found = search(&rules);
        show(&found);
        let violation = found.violation.unwrap_or_else(|| panic!("{mutant:?} is not found"));
        println!("{mutant:?}: invariant {number} falls after {} steps", violation.steps);
        assert_eq!(violation.broken.number, number, "{mutant:?}");
        if found.states < REPEATED_MAX {
            // The shortest path is as long where no states are taken as one.
            let repeated = explore(&Rules { reduce: false, ..rules }).violation;
            let repeated = repeated.map(|again| (again.broken.number, again.steps));
            assert_eq!(repeated, Some((number, violation.steps)), "{mutant:?}");
        }
    }
}

/// A rule that is not needed: what a node has of an earlier membership goes when the primary compares.
#[test]
fn what_a_node_keeps_until_it_is_compared_does_no_harm() {
    for scenario in [scenario::TWO_WORKERS, scenario::LATE, scenario::THREE_OPEN] {
        let scenario = Scenario { frames: 1, ..scenario };
        let found = search(&Rules { mutant: Some(Mutant::RejoinKeeps), ..Rules::of(scenario) });
        show(&found);
        assert!(found.violation.is_none() && found.states > 150_000, "{scenario:?}");
    }
}

/// Searches beyond this are not made a second time.
const REPEATED_MAX: usize = 60_000;

#[test]
fn states_that_are_one_hide_nothing() {
    for scenario in [scenario::TWO_WORKERS, scenario::LATE, scenario::THREE] {
        let rules = Rules::of(Scenario { epochs: 2, frames: 1, ..scenario });
        let (few, all) = (search(&rules), search(&Rules { reduce: false, ..rules }));
        show(&all);
        assert!(few.violation.is_none() && all.violation.is_none(), "{scenario:?}");
        assert!(all.states > 2 * few.states && all.reached == few.reached, "{scenario:?}");
    }
}
