//! The map in the steward's hands, its adoption by each node, crashes and links.

use super::mutants::Mutant;
use super::replicas::conclude;
use super::state::{Content, NODES, NodeId, Nodes, Slot, State, Stray, bit, has};
use super::step::{Rules, Step};

pub(super) fn steps(state: &State, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    for node in 0..NODES {
        let own = state.nodes[node];
        if own.up {
            for since in own.since + 1..=state.latest {
                let mut next = *state;
                adopt(&mut next, node, since, rules);
                each(Step::Adopt { node, since }, next);
            }
            if state.crashes < rules.scenario.crashes {
                each(Step::Crash { node }, crash(state, node));
            }
        } else {
            each(Step::Restart { node }, restart(state, node, rules));
        }
        // The node's word names the `since` under which it was filled: an older one may be that of a primary that leads no more.
        let said = own.filled && (own.since == state.latest || rules.is(Mutant::FullOfOlderEpoch));
        if has(state.current().members & !state.full, node) && said {
            let mut next = *state;
            next.full |= bit(node);
            each(Step::MarkFull { node }, next);
        }
        if rules.scenario.resets {
            for to in (0..NODES).filter(|&to| !state.links[node][to].is_empty()) {
                let mut next = *state;
                close_link(&mut next, node, to, rules);
                each(Step::Reset { from: node, to }, next);
            }
        }
    }
    if state.latest < rules.scenario.epochs {
        changes(state, rules, each);
    }
}

/// What the steward can write next. It suspects whom it likes: a wrong suspicion is as good as a right one.
fn changes(state: &State, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    let slot = state.current();
    let room = |members: Nodes| members.count_ones() < u32::from(rules.scenario.copies);
    for node in (0..NODES).filter(|&node| has(slot.members, node)) {
        let members = slot.members & !bit(node);
        let mut primary = usize::from(slot.primary);
        if primary == node {
            let electable = if rules.is(Mutant::JoinerLeads) { members } else { state.full & members };
            match (0..NODES).find(|&next| has(electable, next)) {
                Some(next) => primary = next,
                None => continue, // The slot waits for its last full member.
            }
        }
        each(Step::Drop { node, joiner: None }, change(state, primary, members));
        for joiner in (0..NODES).filter(|&joiner| room(members) && !has(slot.members, joiner)) {
            each(Step::Drop { node, joiner: Some(joiner) }, change(state, primary, members | bit(joiner)));
        }
    }
    for node in (0..NODES).filter(|&node| room(slot.members) && !has(slot.members, node)) {
        each(Step::Join { node }, change(state, usize::from(slot.primary), slot.members | bit(node)));
    }
}

fn change(state: &State, primary: NodeId, members: Nodes) -> State {
    let mut next = *state;
    next.full = state.full & members;
    next.latest += 1;
    next.slots[usize::from(state.latest)] = Slot { primary: primary as u8, members, full: next.full };
    next
}

fn adopt(state: &mut State, node: NodeId, since: u8, rules: &Rules) {
    let before = state.nodes[node].since;
    let led = state.leads(node);
    state.nodes[node].since = since;
    if !rules.is(Mutant::OldAnswers) {
        state.nodes[node].answered = 0;
    }
    state.nodes[node].filled &= rules.is(Mutant::FullOfOlderEpoch);
    let leads = state.leads(node);
    if !leads {
        state.nodes[node].lease = 0;
        state.nodes[node].to_ask = 0;
    } else if led {
        // Who does not answer is dropped from the map, and need not be asked.
        state.nodes[node].to_ask &= state.slot(since).full;
    } else {
        state.nodes[node].to_ask = first_questions(state, node, rules);
    }
    if state.member_since(node, since) > before {
        join(state, node, rules);
    } else if leads && !led && rules.is(Mutant::UnionAtPromotion) {
        let most = (0..NODES).filter(|&other| other != node).map(|other| state.nodes[other].content);
        state.nodes[node].content = most.fold(state.nodes[node].content, |all, other| Content::union(other, all));
    }
    if leads && has(state.slot(since).members, node) && state.nodes[node].decision != 0 {
        conclude(state, node, rules);
    }
}

/// With three copies another full member can have a decision, or lack a ready mark, that the last primary did not finish.
fn first_questions(state: &State, node: NodeId, rules: &Rules) -> Nodes {
    if rules.scenario.copies < 3 { 0 } else { state.slot(state.nodes[node].since).full & !bit(node) }
}

/// A node that begins a membership takes what it has as not there, until the primary has compared it.
fn join(state: &mut State, node: NodeId, rules: &Rules) {
    let node = &mut state.nodes[node];
    if !rules.is(Mutant::JoinerKeepsDecision) && !rules.is(Mutant::RejoinKeeps) {
        node.decision = 0;
        node.logged = false;
    }
    if !rules.is(Mutant::RejoinKeeps) {
        node.mark = false;
    }
}

/// What was on its way to the node is lost. What it had sent can still arrive.
fn crash(state: &State, node: NodeId) -> State {
    let mut next = *state;
    next.crashes += 1;
    let own = &mut next.nodes[node];
    own.up = false;
    own.lease = 0;
    own.answered = 0;
    own.to_ask = 0;
    if own.decision != 0 && !own.logged {
        own.decision = 0;
        own.mark = true;
    }
    for from in 0..NODES {
        next.links[from][node].clear();
    }
    next
}

fn restart(state: &State, node: NodeId, rules: &Rules) -> State {
    let mut next = *state;
    next.nodes[node].up = true;
    // Its own log has all that it said as primary: only what it may not have asked at all is asked again.
    if state.leads(node) && state.nodes[node].since > 1 {
        next.nodes[node].to_ask = first_questions(state, node, rules);
    }
    for to in 0..NODES {
        close_link(&mut next, node, to, rules);
    }
    next
}

/// A newer link is opened when nothing of the older one is under way any more.
fn close_link(state: &mut State, from: NodeId, to: NodeId, rules: &Rules) {
    if rules.is(Mutant::OldLinks)
        && state.stray.is_none()
        && let Some(frame) = state.links[from][to].first()
    {
        state.stray = Some(Stray { from, to, frame });
    }
    state.links[from][to].clear();
}
