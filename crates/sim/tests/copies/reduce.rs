//! States that no later step and no invariant can tell apart become one: the search has fewer of them.
//!
//! *Invariants*: each rule here says why nothing is lost. Mutants under which a reason does not hold have their own line.

use super::mutants::Mutant;
use super::state::{Answer, NODES, NodeId, State, Token, bit, has};
use super::step::Rules;

pub(super) fn reduce(state: &mut State, rules: &Rules) {
    for node in 0..NODES {
        outsider(state, node, rules);
    }
    stale_frames(state, rules);
    for put in 0..rules.scenario.puts.len() {
        acks_without_hope(state, put, rules);
    }
    for token in 0..state.tokens.len() {
        forgotten_token(state, token);
    }
}

/// A node that is no member says nothing. It goes by the latest map before its next membership, and forgets what it would not
/// keep in that one.
fn outsider(state: &mut State, node: NodeId, rules: &Rules) {
    let member = |state: &State, since: u8| has(state.slot(since).members, node);
    let since = state.nodes[node].since;
    if member(state, since) {
        return;
    }
    let next = (since + 1..=state.latest).find(|&later| member(state, later)).unwrap_or(state.latest + 1);
    let own = &mut state.nodes[node];
    own.since = next - 1;
    own.filled = rules.is(Mutant::FullOfOlderEpoch) && own.filled;
    own.mark &= rules.is(Mutant::RejoinKeeps);
    if !rules.is(Mutant::JoinerKeepsDecision) && !rules.is(Mutant::RejoinKeeps) {
        own.decision = 0;
        own.logged = false;
    }
}

/// A frame of an older `since` than that of the node that reads it does nothing, and that `since` never falls.
fn stale_frames(state: &mut State, rules: &Rules) {
    if rules.takes_old_frames() {
        return;
    }
    for from in 0..NODES {
        for to in (0..NODES).filter(|&to| to != from) {
            state.links[from][to].retain_since(state.nodes[to].since);
        }
    }
}

/// When a member went by a later map before it answered, nobody will ever have all answers under this `since`.
fn acks_without_hope(state: &mut State, put: usize, rules: &Rules) {
    if rules.is(Mutant::AcksOfSeveralEpochs)
        || rules.is(Mutant::PutsOfOldEpoch)
        || state.answers[put] != Answer::Pending
    {
        return;
    }
    for since in 1..=state.latest {
        let slot = state.slot(since);
        let acks = &mut state.acks[put][usize::from(since) - 1];
        let asked = if rules.is(Mutant::JoinerOutsideAcks) { slot.full } else { slot.members };
        let lost = (0..NODES).filter(|&node| state.nodes[node].since > since).fold(0, |all, node| all | bit(node));
        if asked & lost & !*acks != 0 {
            *acks = 0;
        }
    }
}

/// A token that no node has as lease or decision, and whose verdict nobody was told, does nothing any more.
fn forgotten_token(state: &mut State, token: usize) {
    let number = token as u8 + 1;
    let known = state.nodes.iter().any(|node| node.lease == number || node.decision == number);
    if !known && !state.tokens[token].acknowledged && !state.is_under_way(number) {
        state.tokens[token] = Token::default();
    }
}
