//! Events alone, as the home of a cluster has them: nothing of an event is here except reports about it.

use super::outside::Heard;
use super::*;
use crate::RunState;
use forebay_core::{Completeness, Keyspace, LiveState, RunConfig};
use forebay_media::bytes::DecisionKind;
use std::time::Duration;

/// A place on another node.
const ELSEWHERE: PlaceBits = PlaceBits((1 << 58) - 1);

/// A shard of a node that has no fragment.
fn home(keyspace: &Keyspace) -> ShardEvents {
    let schema = &keyspace.schema;
    let form = Form { primary: schema.primary_bytes(), rest: schema.rest_bytes(), attributes: false };
    let mut events = ShardEvents::new(Shape {
        form,
        decided_form: DecidedForm::new(schema),
        stages: 1,
        strict: false,
        ranked: false,
        endings_bytes: 1 << 16,
        keeps_decided: false,
    });
    let config = RunConfig::new(Completeness::Count(2), Duration::from_secs(1));
    events.add_run(1, RunPlan::new(&config, &Keyspace::events("events", 1)), RunState::Open, 0, 0);
    events
}

/// A node says that it has a fragment.
fn hear(events: &mut ShardEvents, keyspace: &Keyspace, source: u64, length: u32) -> Option<u32> {
    let key = keyspace.schema.key(&[1, 5, source]).unwrap();
    let key = key.as_bytes().split_at(keyspace.schema.primary_bytes());
    events.hear(&Heard { key, run: 0, place: ELSEWHERE, length, now_ns: 0 })
}

#[test]
fn an_event_whose_fragments_are_elsewhere_becomes_ready_and_is_decided() {
    let keyspace = Keyspace::events("home", 2);
    let mut events = home(&keyspace);
    let event = hear(&mut events, &keyspace, 0, 100).unwrap();
    assert_eq!(hear(&mut events, &keyspace, 0, 100), None, "it is said again, by the same node or another one");
    assert_eq!(events[event].state, State::Live(LiveState::Open));
    assert_eq!(hear(&mut events, &keyspace, 1, 50), Some(event));
    assert_eq!(events[event].state, State::Live(LiveState::Ready));
    assert_eq!(events.next_ready(0, false, None), Some(event));
    assert_eq!(events.fragments(event, |_| true).map(|(_, place)| place).collect::<Vec<_>>(), [ELSEWHERE; 2]);

    // A decision that somebody else took.
    let mut ended = Ended::new();
    let primary = events.primary(event);
    assert!(events.heed(primary.as_bytes(), DecisionKind::Reject, 0, &mut ended));
    assert!(!events.heed(primary.as_bytes(), DecisionKind::Reject, 0, &mut ended), "it is said again");
    assert_eq!(ended, [ELSEWHERE; 2], "the nodes that have the fragments are told which");
    assert_eq!(events.find(primary.as_bytes()), None);
    assert_eq!(
        hear(&mut events, &keyspace, 1, 50),
        None,
        "an arrival that comes after the decision brings nothing back"
    );
    let run = &events.runs[0];
    assert!(run.decided.contains(events.shape.decided_form, primary.as_bytes()));
    assert_eq!((run.ledger.rejected.fragments, run.ledger.rejected.bytes), (2, 150));
    assert_eq!(run.ledger.imbalance(), None);
}
