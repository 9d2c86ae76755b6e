//! Clients and workers: puts and what counts as acknowledged, leases and verdicts.
//!
//! A put has no frames here. A client can send it under every `since`, as often as it likes, so that each member can handle it at
//! any time while it goes by that `since`. An answer that is lost, or late, differs in nothing from one that has not been given yet.
//!
//! *Invariants*: the first final answer of a put counts; each worker has at most one lease.

use super::mutants::Mutant;
use super::replicas::{all_answered, become_ready, change_content, conclude, others};
use super::state::{Answer, NODES, NodeId, State, bit, has};
use super::step::{Rules, Step};

pub(super) fn puts(state: &State, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    for put in usize::from(rules.scenario.ready)..rules.scenario.puts.len() {
        for node in (0..NODES).filter(|&node| state.nodes[node].up) {
            let own = state.nodes[node].since;
            let oldest = if rules.is(Mutant::PutsOfOldEpoch) { 1 } else { own };
            for since in (oldest..=own).filter(|&since| has(state.slot(since).members, node)) {
                let mut next = *state;
                handle_put(&mut next, put, node, since, rules);
                each(Step::Put { put, node, since }, next);
            }
        }
        if rules.is(Mutant::ClientWithdraws) && state.answers[put] == Answer::Pending {
            let mut next = *state;
            next.withdrawn[put] = true;
            each(Step::GiveUp { put }, next);
        }
        if state.withdrawn[put] {
            for node in 0..NODES {
                let mut next = *state;
                next.withdrawn[put] = false;
                let there = &mut next.nodes[node];
                if !there.mark && there.content.covers(rules.scenario.puts[put]) {
                    there.content = there.content.without(rules.scenario.puts[put].source);
                    each(Step::Withdraw { put, node }, next);
                }
            }
        }
    }
}

fn handle_put(state: &mut State, put: usize, node: NodeId, since: u8, rules: &Rules) {
    if state.leads(node) {
        put_at_primary(state, put, node, since, rules);
    } else {
        put_at_member(state, put, node, since, rules);
    }
}

fn put_at_primary(state: &mut State, put: usize, node: NodeId, since: u8, rules: &Rules) {
    let what = rules.scenario.puts[put];
    let own = state.nodes[node];
    let same = own.content.covers(what);
    let leased = own.lease != 0 && !rules.is(Mutant::LeasedTakes);
    if own.decision != 0 || (leased && !same) {
        answer(state, put, Answer::Late);
    } else if !same && own.content.bytes(what.source) != 0 {
        answer(state, put, Answer::Conflict);
    } else if !own.mark || rules.is(Mutant::StoredWhenReady) {
        change_content(state, node, own.content.with(what));
        acknowledge(state, put, node, since, rules);
    } else if !same {
        // The event is ready: a repeat is answered when all members have the fragment.
        change_content(state, node, own.content.with(what));
    } else if all_answered(state, node, rules) || rules.is(Mutant::ConfirmedUnasked) {
        answer(state, put, Answer::Acknowledged);
    }
}

fn put_at_member(state: &mut State, put: usize, node: NodeId, since: u8, rules: &Rules) {
    let what = rules.scenario.puts[put];
    let own = state.nodes[node];
    let free = own.content.bytes(what.source) == 0;
    let takes = own.decision == 0 && (!own.mark || rules.is(Mutant::ReadyMemberTakes));
    // Late, `ready here` and a conflict do not count: the primary's answer does.
    if takes && (free || own.content.covers(what)) {
        change_content(state, node, own.content.with(what));
        acknowledge(state, put, node, since, rules);
    }
}

/// The first final answer is the one that counts.
fn answer(state: &mut State, put: usize, answer: Answer) {
    if state.answers[put] == Answer::Pending {
        state.answers[put] = answer;
        state.acks[put] = Default::default();
    }
}

/// A member said `Stored` or `Duplicate` under this `since`.
fn acknowledge(state: &mut State, put: usize, node: NodeId, since: u8, rules: &Rules) {
    if state.answers[put] != Answer::Pending {
        return;
    }
    state.acks[put][usize::from(since) - 1] |= bit(node);
    let slot = state.slot(since);
    let mut said = state.acks[put][usize::from(since) - 1];
    if rules.is(Mutant::AcksOfSeveralEpochs) {
        said = state.acks[put].iter().fold(0, |all, acks| all | acks);
    }
    let asked = if rules.is(Mutant::JoinerOutsideAcks) { slot.full } else { slot.members };
    if asked & !said == 0 {
        answer(state, put, Answer::Acknowledged);
    }
}

/// What a primary's worker can do next.
pub(super) fn workers(state: &State, node: NodeId, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    if !state.leads(node) {
        return;
    }
    let own = state.nodes[node];
    if own.decision == 0 && !own.mark && !own.content.is_empty() && others(state, node, rules) == 0 {
        let mut next = *state;
        become_ready(&mut next, node);
        each(Step::Ready { node }, next);
    }
    let may_grant = own.to_ask == 0 || rules.is(Mutant::NothingAsked);
    if may_grant && own.mark && own.decision == 0 && own.lease == 0 && state.granted < rules.scenario.workers {
        let mut next = *state;
        next.tokens[usize::from(state.granted)].shown = own.content;
        next.granted += 1;
        next.nodes[node].lease = next.granted;
        next.was_ready = true;
        each(Step::Grant { node }, next);
    }
    if own.lease != 0 {
        let mut next = *state;
        next.nodes[node].lease = 0;
        each(Step::EndLease { node }, next);
        next.nodes[node].decision = own.lease;
        // The own log first: what a crash leaves is never less than what others were told.
        next.nodes[node].logged = !rules.is(Mutant::LogAfterMembers);
        next.nodes[node].answered = 0;
        next.nodes[node].mark = false;
        next.tokens[usize::from(own.lease) - 1].decided = own.content;
        conclude(&mut next, node, rules);
        each(Step::Verdict { node }, next);
    }
}
