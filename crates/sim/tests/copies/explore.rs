//! Breadth-first search over every order of steps: the first violation has the shortest path, which is told step by step.
//!
//! *Invariants*: two states are the same only if all that is packed of them is the same; nothing goes by a hash alone.
//!
//! *On failure* of a bound: a search that grows beyond `STATES_MAX` panics.

use super::invariants::{Broken, LANDMARKS, check, check_settled};
use super::reduce::reduce;
use super::state::{NODES, Packed, State};
use super::step::{Rules, Step};
use super::{clients, membership, replicas};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// A search beyond this has other bounds than somebody thought; it would take some 5 GiB.
const STATES_MAX: usize = 50_000_000;
/// The first states of a search that are brought to rest, each of them, whatever the rules say of later ones.
const SETTLED_FIRST: usize = 1000;
/// Rounds in which everything under way must end.
const ROUNDS_MAX: usize = 60;

#[derive(Default)]
pub(super) struct Found {
    pub(super) states: usize,
    /// Steps that change something.
    pub(super) steps: usize,
    pub(super) depth: usize,
    pub(super) settled: usize,
    /// Which of `LANDMARKS` some state has.
    pub(super) reached: [bool; LANDMARKS.len()],
    pub(super) violation: Option<Violation>,
}

pub(super) struct Violation {
    pub(super) broken: Broken,
    /// Steps to the state that breaks it, or from which everything is brought to rest.
    pub(super) steps: usize,
    pub(super) path: Vec<String>,
}

/// Calls `each` with every step that can be made, and the state after it.
fn steps(state: &State, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    clients::puts(state, rules, each);
    replicas::deliveries(state, rules, each);
    for node in (0..NODES).filter(|&node| state.nodes[node].up) {
        replicas::sends(state, node, rules, each);
        clients::workers(state, node, rules, each);
    }
    membership::steps(state, rules, each);
}

/// The same, but only what changes the state, and states that are one.
fn changes(state: &State, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    steps(state, rules, &mut |step, mut next| {
        if next != *state {
            if rules.reduce {
                reduce(&mut next, rules);
            }
            each(step, next);
        }
    });
}

/// Mixes the words of a state; nobody chooses states that collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            self.write_u64(word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = (self.0 ^ self.0 >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }

    /// The number of words is always the same.
    fn write_usize(&mut self, _length: usize) {}
}

pub(super) fn explore(rules: &Rules) -> Found {
    let first = rules.scenario.first();
    let mut seen: HashSet<Packed, BuildHasherDefault<Mix>> = HashSet::default();
    // By number of the state: the state before it, and which of that one's changes leads to it.
    let mut origins: Vec<(u32, u16)> = vec![(0, 0)];
    let mut found = Found { states: 1, ..Found::default() };
    let (mut layer, mut layer_first) = (vec![first], 0);
    seen.insert(first.packed());
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for (number, state) in (layer_first..).zip(&layer) {
            if rules.settle > 0 && (number < SETTLED_FIRST || number.is_multiple_of(rules.settle)) {
                found.settled += 1;
                found.violation = unrest(state, rules, &origins, number);
            }
            let mut ordinal = 0;
            let mut wrong = None;
            changes(state, rules, &mut |_, next| {
                found.steps += 1;
                if wrong.is_none() && seen.insert(next.packed()) {
                    origins.push((number as u32, ordinal));
                    wrong = check(&next, rules).err().map(|broken| (broken, origins.len() - 1));
                    for (reached, (_, is_there)) in found.reached.iter_mut().zip(LANDMARKS) {
                        *reached = *reached || is_there(&next);
                    }
                    next_layer.push(next);
                }
                ordinal += 1;
            });
            found.states = origins.len();
            if let Some((broken, number)) = wrong {
                let path = path_to(rules, &origins, number);
                found.violation = Some(Violation { broken, steps: path.len() - 1, path });
            }
            if found.violation.is_some() {
                return found;
            }
        }
        assert!(found.states < STATES_MAX, "{}: more than {STATES_MAX} states", rules.scenario.name);
        layer_first += layer.len();
        layer = next_layer;
        found.depth += 1;
    }
    found
}

/// Makes the steps that lead to a state again, for a person to read.
fn path_to(rules: &Rules, origins: &[(u32, u16)], number: usize) -> Vec<String> {
    let mut ordinals = Vec::new();
    let mut at = number;
    while at != 0 {
        let (before, ordinal) = origins[at];
        ordinals.push(ordinal);
        at = before as usize;
    }
    let mut state = rules.scenario.first();
    let mut path = vec![format!("{:<44} {state}", "begin")];
    for wanted in ordinals.into_iter().rev() {
        let mut ordinal = 0;
        let mut taken = None;
        changes(&state, rules, &mut |step, next| {
            if ordinal == wanted {
                taken = Some((step, next));
            }
            ordinal += 1;
        });
        if let Some((step, next)) = taken {
            path.push(line(step, &state, &next));
            state = next;
        }
    }
    path
}

fn line(step: Step, before: &State, after: &State) -> String {
    let frame = match step {
        Step::Deliver { from, to } => before.links[from][to].first(),
        Step::DeliverStray => before.stray.map(|stray| stray.frame),
        _ => None,
    };
    let step = frame.map_or(step.to_string(), |frame| format!("{step}: {frame}"));
    format!("{step:<44} {after}")
}

/// Whether this state does not come to rest. The clients go on, or have died.
fn unrest(state: &State, rules: &Rules, origins: &[(u32, u16)], number: usize) -> Option<Violation> {
    for clients in [true, false] {
        if let Err(broken) = settle(state, rules, clients, None) {
            let mut path = path_to(rules, origins, number);
            let steps = path.len() - 1;
            path.push(format!("from here on no fault, {} clients", if clients { "with" } else { "without" }));
            let _ = settle(state, rules, clients, Some(&mut path));
            return Some(Violation { broken, steps, path });
        }
    }
    None
}

/// From here on no fault, no lease and no other change of the map: everything must come to an end. `path` gets the steps.
fn settle(state: &State, rules: &Rules, clients: bool, mut path: Option<&mut Vec<String>>) -> Result<(), Broken> {
    let mut state = *state;
    while take(&mut state, rules, &mut path, |step, now| match step {
        Step::Restart { .. } | Step::EndLease { .. } => true,
        Step::Adopt { since, .. } => since == now.latest,
        _ => false,
    }) {}
    for _ in 0..ROUNDS_MAX {
        let before = state;
        let mut round = Vec::new();
        steps(&state, rules, &mut |step, _| round.push(step));
        // Each step has its turn in every round: nothing that can be done is put off for ever.
        for wanted in round.into_iter().filter(|step| step.is_progress(clients)) {
            take(&mut state, rules, &mut path, |step, _| step == wanted);
        }
        if state == before {
            return check_settled(&state, rules, clients);
        }
    }
    Err(Broken { number: 17, how: "something goes on for ever".to_owned() })
}

/// Takes the first step that is wanted and changes something.
fn take(
    state: &mut State,
    rules: &Rules,
    path: &mut Option<&mut Vec<String>>,
    wanted: impl Fn(Step, &State) -> bool,
) -> bool {
    let mut taken = None;
    steps(state, rules, &mut |step, next| {
        if taken.is_none() && wanted(step, state) && next != *state {
            taken = Some((step, next));
        }
    });
    let Some((step, next)) = taken else { return false };
    if let Some(path) = path {
        path.push(line(step, state, &next));
    }
    *state = next;
    true
}
