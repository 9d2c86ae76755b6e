//! What must be true of every state, by the numbers of the cluster's invariants.
//!
//! A *full member* is one that the map in etcd calls full: the steward can make it primary with the next map, so that what was
//! promised must be there. A node that the map has dropped is under no invariant, whatever it believes.

use super::replicas::all_answered;
use super::state::{Answer, NODES, NodeId, State, has};
use super::step::Rules;

/// An invariant that fell, and how.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) number: u8,
    pub(super) how: String,
}

fn broken<T>(number: u8, how: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { number, how: how.into() })
}

type Landmark = (&'static str, fn(&State) -> bool);

/// What a search must have come to, if it says something about more than its beginning.
pub(super) const LANDMARKS: [Landmark; 8] = [
    ("a put is late", |state| state.answers.contains(&Answer::Late)),
    ("a put conflicts", |state| state.answers.contains(&Answer::Conflict)),
    ("a second put is acknowledged", |state| state.answers[1] == Answer::Acknowledged),
    ("a verdict is acknowledged", |state| state.tokens.iter().any(|token| token.acknowledged)),
    ("a second lease is granted", |state| state.granted == 2),
    ("a verdict is in force at a successor", |state| {
        leader(state).is_some_and(|node| node != 0 && state.nodes[node].decision != 0)
            && state.tokens.iter().any(|token| token.acknowledged)
    }),
    ("a member that joined leads", |state| {
        leader(state).is_some_and(|node| state.member_since(node, state.latest) > 1)
    }),
    ("a node leads after a crash", |state| state.crashes > 0 && leader(state).is_some()),
];

/// The node that leads in the map in etcd, once it goes by that map.
fn leader(state: &State) -> Option<NodeId> {
    let primary = usize::from(state.current().primary);
    (state.nodes[primary].up && state.nodes[primary].since == state.latest).then_some(primary)
}

pub(super) fn check(state: &State, rules: &Rules) -> Result<(), Broken> {
    one_verdict(state)?;
    for node in (0..NODES).filter(|&node| has(state.full, node)) {
        decided_stays_decided(state, node)?;
        acknowledged_is_there(state, node, rules)?;
        ready_stays_ready(state, node)?;
        decided_is_equal(state, node)?;
    }
    verdict_covers_its_lease(state)?;
    for node in 0..NODES {
        confirmed_is_equal(state, node, rules)?;
    }
    Ok(())
}

/// 2: one verdict is acknowledged, and no two are recorded by nodes that can lead.
fn one_verdict(state: &State) -> Result<(), Broken> {
    if state.tokens.iter().filter(|token| token.acknowledged).count() > 1 {
        return broken(2, "two verdicts are acknowledged");
    }
    let mut recorded = (0..NODES).filter(|&node| has(state.full, node)).map(|node| state.nodes[node].decision);
    let first = recorded.clone().find(|&token| token != 0);
    if recorded.any(|token| token != 0 && Some(token) != first) {
        return broken(2, "full members have recorded two verdicts");
    }
    Ok(())
}

/// 3: what is decided is not shown or granted again. 4: nor does a late put meet a member that does not know.
fn decided_stays_decided(state: &State, node: NodeId) -> Result<(), Broken> {
    for (token, _) in (1..).zip(state.tokens).filter(|(_, token)| token.acknowledged) {
        let own = state.nodes[node];
        if own.decision == 0 && own.content.is_empty() {
            return broken(4, format!("full member {node} would take a late put: it does not know of verdict {token}"));
        }
        if own.decision != token {
            return broken(3, format!("full member {node} can grant an event after its verdict {token}"));
        }
    }
    Ok(())
}

/// 12: what a verdict covers is the same at all members that have it.
fn decided_is_equal(state: &State, node: NodeId) -> Result<(), Broken> {
    let own = state.nodes[node];
    if own.decision == 0 {
        return Ok(());
    }
    let token = state.token(own.decision);
    if token.acknowledged && own.content != token.decided {
        return broken(12, format!("the verdict covers {}, full member {node} has {}", token.decided, own.content));
    }
    Ok(())
}

/// 1: a full member has every acknowledged put, or a verdict that covers it. 11: also one that joined.
fn acknowledged_is_there(state: &State, node: NodeId, rules: &Rules) -> Result<(), Broken> {
    let joined = state.member_since(node, state.latest) > 1;
    let own = state.nodes[node];
    let content = if own.decision == 0 { own.content } else { state.token(own.decision).decided };
    for (put, answer) in rules.scenario.puts.iter().zip(state.answers) {
        if answer == Answer::Acknowledged && !content.covers(*put) {
            return broken(
                if joined { 11 } else { 1 },
                format!("full member {node} has {content}, without the acknowledged {put:?}"),
            );
        }
    }
    Ok(())
}

/// 5: an event that a primary called ready is ready at every node that can lead.
fn ready_stays_ready(state: &State, node: NodeId) -> Result<(), Broken> {
    let own = state.nodes[node];
    if state.was_ready && !own.mark && own.decision == 0 {
        return broken(5, format!("full member {node} has no ready mark"));
    }
    Ok(())
}

/// 5: an acknowledged verdict covers exactly what its lease showed.
fn verdict_covers_its_lease(state: &State) -> Result<(), Broken> {
    match state.tokens.iter().find(|token| token.acknowledged && token.shown != token.decided) {
        Some(token) => broken(5, format!("the lease showed {}, the verdict covers {}", token.shown, token.decided)),
        None => Ok(()),
    }
}

/// 9: what a primary calls confirmed is the same at all members that go by its `since`.
fn confirmed_is_equal(state: &State, node: NodeId, rules: &Rules) -> Result<(), Broken> {
    let own = state.nodes[node];
    let slot = state.slot(own.since);
    if !state.leads(node) || !own.mark || own.decision != 0 || !all_answered(state, node, rules) {
        return Ok(());
    }
    for other in (0..NODES).filter(|&other| has(slot.members, other)) {
        let there = state.nodes[other];
        if there.since == own.since && there.decision == 0 && (!there.mark || there.content != own.content) {
            return broken(9, format!("{} is confirmed by {node}, and {other} has {}", own.content, there.content));
        }
    }
    Ok(())
}

/// 17: without faults, and with one map, everything ends. 4: and nothing is left of what is decided.
pub(super) fn check_settled(state: &State, rules: &Rules, clients: bool) -> Result<(), Broken> {
    let slot = state.current();
    let primary = state.nodes[usize::from(slot.primary)];
    if state.full != slot.members {
        return broken(17, "a joining member does not become full");
    }
    let pending = (0..rules.scenario.puts.len()).find(|&put| state.answers[put] == Answer::Pending);
    if let Some(put) = pending.filter(|_| clients) {
        return broken(17, format!("put {put} gets no answer"));
    }
    if !primary.content.is_empty() && !primary.mark && primary.decision == 0 {
        return broken(17, "the event does not become ready");
    }
    if primary.decision != 0 && !state.token(primary.decision).acknowledged {
        return broken(17, "the verdict gets no answer");
    }
    for node in (0..NODES).filter(|&node| has(slot.members, node)) {
        let own = state.nodes[node];
        if own.decision != primary.decision {
            return broken(4, format!("{node} has {} of an event that is decided", own.content));
        }
        if own.decision == 0 && (own.content != primary.content || own.mark != primary.mark) {
            return broken(9, format!("{node} has {}, the primary {}", own.content, primary.content));
        }
    }
    Ok(())
}
