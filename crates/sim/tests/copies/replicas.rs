//! Primary and members of the slot: what they send each other, and what they do with it.
//!
//! ```text
//! primary → member    Digest → Equal, or Differ → CopyOpen or CopyReady → Equal
//!                     CopyOpen or CopyReady without a question: a fill
//!                     Decide → Have, or Differ → CopyReady
//! member → primary    Differ without a question: a report
//! ```
//!
//! A frame is sent again as long as its answer lacks. Frames of one link are read in order, and can be late or lost with it.
//!
//! *Invariants*: a primary always reads, so that two nodes never wait for each other's room; each frame is handled under the
//! `since` that it was sent under, or not at all.

use super::mutants::Mutant;
use super::state::{Content, Frame, NODES, NodeId, Nodes, State, Stray, What, bit, has};
use super::step::{Rules, Step};

/// What is under way is read.
pub(super) fn deliveries(state: &State, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    for to in (0..NODES).filter(|&to| state.nodes[to].up) {
        for from in 0..NODES {
            if let Some(frame) = state.links[from][to].first()
                && let Some(next) = deliver(state, from, to, frame, rules)
            {
                each(Step::Deliver { from, to }, next);
            }
        }
    }
    if let Some(Stray { from, to, frame }) = state.stray
        && state.nodes[to].up
        && state.nodes[to].since == frame.since
    {
        let mut next = *state;
        next.stray = None;
        hear(&mut next, from, to, frame, rules);
        each(Step::DeliverStray, next);
    }
}

/// Members whose answers a primary needs, besides its own.
pub(super) fn others(state: &State, node: NodeId, rules: &Rules) -> Nodes {
    let slot = state.slot(state.nodes[node].since);
    let without_joiners = match state.nodes[node].decision {
        0 => rules.is(Mutant::JoinerOutsideDigest),
        _ => rules.is(Mutant::FillWithoutDecisions),
    };
    (if without_joiners { slot.full } else { slot.members }) & !bit(node)
}

/// Whether all members have answered for what the primary has: an event is confirmed, a verdict is in force.
pub(super) fn all_answered(state: &State, node: NodeId, rules: &Rules) -> bool {
    others(state, node, rules) & !state.nodes[node].answered == 0
}

pub(super) fn change_content(state: &mut State, node: NodeId, content: Content) {
    let node = &mut state.nodes[node];
    if node.content != content {
        node.content = content;
        node.answered = 0;
    }
}

pub(super) fn become_ready(state: &mut State, node: NodeId) {
    state.nodes[node].mark = true;
    state.was_ready = true;
}

/// A primary looks at whether all members have answered.
pub(super) fn conclude(state: &mut State, node: NodeId, rules: &Rules) {
    let own = state.nodes[node];
    if own.decision != 0 && (all_answered(state, node, rules) || rules.is(Mutant::VerdictOfOne)) {
        state.nodes[node].logged = true;
        state.tokens[usize::from(own.decision) - 1].acknowledged = true;
    } else if own.decision == 0 && !own.content.is_empty() && all_answered(state, node, rules) {
        become_ready(state, node);
    }
}

/// What a node sends by itself: the primary as long as an answer lacks, a member what nobody digests.
pub(super) fn sends(state: &State, from: NodeId, rules: &Rules, each: &mut impl FnMut(Step, State)) {
    let own = state.nodes[from];
    let slot = state.slot(own.since);
    let mut send = |to: NodeId, step: Step, what: What, content: Content| {
        let frame = Frame { what, since: own.since, content };
        let link = &state.links[from][to];
        if link.len() < rules.scenario.frames && link.last() != Some(frame) {
            let mut next = *state;
            next.links[from][to].push(frame);
            each(step, next);
        }
    };
    if !state.leads(from) {
        let to = usize::from(slot.primary);
        let quiet = state.links[from][to].is_empty() && state.links[to][from].is_empty();
        // What the primary has already, or will compare by itself, need not be said. A mark is no sign that it will: the one who
        // had it written may lead no more.
        let theirs = state.nodes[to].content;
        let unseen =
            if own.mark { theirs.is_empty() && !rules.is(Mutant::MarkedNotReported) } else { theirs != own.content };
        let reports = has(slot.members, from) && own.decision == 0 && !own.content.is_empty() && unseen && quiet;
        if reports && !rules.is(Mutant::NoReports) {
            send(to, Step::Report { from, to }, What::Differ, own.content);
        }
        return;
    }
    for to in (0..NODES).filter(|&to| to != from && has(slot.members & !own.answered, to)) {
        // A fill is sent once, and again if it was lost; what changes later goes by digest.
        let lacks_fill = !has(slot.full, to)
            && !state.nodes[to].filled
            && state.nodes[to].since == own.since
            && state.links[from][to].is_empty();
        if own.decision != 0 {
            if rules.is(Mutant::FillWithoutDecisions) && !has(slot.full, to) {
                if lacks_fill {
                    send(to, Step::Fill { from, to }, What::CopyOpen, Content::default());
                }
                continue;
            }
            if lacks_fill && rules.is(Mutant::FragmentsFirst) {
                send(to, Step::Fill { from, to }, What::CopyOpen, own.content);
            }
            send(to, Step::Decide { from, to }, What::Decide(own.decision), own.content);
            continue;
        }
        if lacks_fill {
            let marked = own.mark && !rules.is(Mutant::FillWithoutMarks);
            let ends = marked || rules.is(Mutant::FillEndsInOpenEvent);
            send(to, Step::Fill { from, to }, if ends { What::CopyReady } else { What::CopyOpen }, own.content);
        }
        if !own.content.is_empty() && (!rules.is(Mutant::JoinerOutsideDigest) || has(slot.full, to)) {
            send(to, Step::Digest { from, to }, What::Digest, own.content);
        }
    }
}

/// The state after a node has read the first frame of a link; `None` as long as it cannot read it.
fn deliver(state: &State, from: NodeId, to: NodeId, frame: Frame, rules: &Rules) -> Option<State> {
    let since = state.nodes[to].since;
    if frame.since > since {
        return None; // The node adopts that map first.
    }
    if frame.since == since && frame.what.is_from_primary() && state.links[to][from].len() == rules.scenario.frames {
        return None; // There is no room for the answer. A primary always reads, so that two nodes never wait for each other.
    }
    let mut next = *state;
    next.links[from][to].pop();
    let passes = match frame.what {
        What::Digest | What::CopyOpen | What::CopyReady => rules.is(Mutant::CopiesOfOldEpoch),
        What::Decide(_) => rules.is(Mutant::DecisionsOfOldEpoch),
        What::Have(_) => rules.is(Mutant::OldAnswers),
        What::Equal | What::Differ => false,
    };
    if frame.since == since || passes {
        hear(&mut next, from, to, frame, rules);
    }
    Some(next)
}

fn hear(state: &mut State, from: NodeId, to: NodeId, frame: Frame, rules: &Rules) {
    if frame.what.is_from_primary() {
        hear_primary(state, from, to, frame, rules);
    } else {
        hear_member(state, from, to, frame, rules);
    }
}

/// A member hears its primary.
fn hear_primary(state: &mut State, from: NodeId, to: NodeId, frame: Frame, rules: &Rules) {
    let full = has(state.slot(frame.since).full, to);
    let node = &mut state.nodes[to];
    if node.decision != 0 && !matches!(frame.what, What::Decide(_)) {
        if full {
            // The primary is new, and does not know of a verdict that the last one began.
            let reply = Frame { what: What::Have(node.decision), since: frame.since, content: node.content };
            state.links[to][from].push(reply);
            return;
        }
        if rules.is(Mutant::JoinerKeepsDecision) {
            return;
        }
        // The primary does not know of the verdict that this joining member has: nobody was told of it.
        node.decision = 0;
        node.logged = false;
    }
    let reply = match frame.what {
        What::Digest => {
            node.mark |= node.content == frame.content;
            node.filled |= !full && node.content == frame.content;
            if node.content == frame.content { What::Equal } else { What::Differ }
        }
        What::CopyOpen => {
            node.content = Content::union(frame.content, node.content);
            node.filled = !full;
            if node.content == frame.content {
                return;
            }
            What::Differ
        }
        What::CopyReady => {
            node.content = frame.content;
            node.mark = true;
            node.filled = !full;
            What::Equal
        }
        What::Decide(token) if full && node.decision == token => What::Have(token),
        What::Decide(_) if full && node.content != frame.content && !rules.is(Mutant::VerdictUncompared) => {
            What::Differ
        }
        What::Decide(token) => {
            node.decision = token;
            node.logged = true;
            node.filled = !full;
            node.mark = false;
            if !full && !rules.is(Mutant::DecisionWithoutContent) {
                // A joining member is not asked what it has: it takes what the verdict covers, and ends the rest.
                node.content = frame.content;
            }
            What::Have(token)
        }
        _ => return,
    };
    let content = if matches!(reply, What::Have(_)) { Content::default() } else { node.content };
    state.links[to][from].push(Frame { what: reply, since: frame.since, content });
}

/// A primary hears one of its members.
fn hear_member(state: &mut State, from: NodeId, to: NodeId, frame: Frame, rules: &Rules) {
    if !state.leads(to) {
        return;
    }
    let own = state.nodes[to];
    match frame.what {
        What::Have(token) if own.decision == 0 && has(own.to_ask, from) => {
            let own = &mut state.nodes[to];
            own.decision = token;
            own.logged = true;
            own.content = frame.content;
            own.mark = false;
            own.answered = bit(from);
            conclude(state, to, rules);
        }
        What::Have(token) if own.decision == token => {
            state.nodes[to].answered |= bit(from);
            conclude(state, to, rules);
        }
        What::Equal if own.decision == 0 && (own.content == frame.content || rules.is(Mutant::ContentGrew)) => {
            state.nodes[to].answered |= bit(from);
            state.nodes[to].to_ask &= !bit(from);
            conclude(state, to, rules);
        }
        What::Differ => {
            // What only the member has is taken while the event is open. Later it ends there.
            let joining = !has(state.slot(own.since).full, from);
            if own.decision != 0 && joining && !rules.is(Mutant::ReportBeforeDecision) {
                return; // To a joining member decisions go before fragments, also when it reports.
            }
            let open = own.decision == 0 && !own.mark;
            if open {
                change_content(state, to, Content::union(own.content, frame.content));
            }
            let content = state.nodes[to].content;
            if content != frame.content {
                let what = if open { What::CopyOpen } else { What::CopyReady };
                state.links[to][from].push(Frame { what, since: frame.since, content });
            }
        }
        _ => {}
    }
}
