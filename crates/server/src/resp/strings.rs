//! Fragments by key: SET, GET, DEL.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::turn::{Answer, Flow, Looked, Turn};
use forebay_core::{Key, KeySchema, PutOutcome, ServedStore};

/// SET key value
pub(super) fn set<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    if command.len() > 3 {
        return Err(Failure::err(
            "SET has no options here: a fragment is written once and stays until its event is decided",
        ));
    }
    // No options of Redis's SET: an expiry or NX would promise what a store of events does not do.
    let (key, value) = (turn.key(command)?, command.part(2));
    match turn.put(&key, value)? {
        None => return Ok(Flow::Wait),
        Some(PutOutcome::Stored | PutOutcome::Duplicate) => turn.replies.ok(),
        Some(PutOutcome::Late | PutOutcome::LateUnknown) => return Err(late(turn.client.store()?.schema(), &key)),
    }
    turn.received += value.len() as u64;
    Ok(Flow::Done)
}

/// The answer to a put that came too late.
pub(super) fn late(schema: &KeySchema, key: &Key) -> Failure {
    let text = schema.text(key.as_bytes());
    Failure::coded("LATE", format!("{text}: its event is leased, decided or removed: not stored, a final answer"))
}

/// GET key
pub(super) fn get<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    match turn.look(&turn.key(command)?)? {
        Looked::There(fragment) => {
            turn.sent += fragment.len() as u64;
            turn.replies.fragment(fragment);
        }
        Looked::Absent => turn.replies.nothing(),
        Looked::Wait => return Ok(Flow::Wait),
    }
    Ok(Flow::Done)
}

/// DEL key [key …]
pub(super) fn del<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    // All keys are read before anything is removed.
    let keys = command.from(1).map(|text| keys::key(store.schema(), text)).collect::<Result<Vec<_>, _>>()?;
    let mut removed = 0;
    for key in &keys {
        removed += u64::from(store.remove(key)?);
    }
    (turn.things, turn.cost) = (keys.len() as u64, keys.len());
    turn.replies.number(removed);
    Ok(Flow::Done)
}
