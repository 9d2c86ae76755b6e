//! Fragments by key: SET, GET, DEL.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::turn::{Answer, Flow, Looked, Turn};
use forebay_core::{Attributes, Key, KeySchema, Keyspace, PutOptions, PutOutcome, ServedStore};

/// SET key value [STATUS bits] [ATTR name=value …]
pub(super) fn set<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let (key, value) = (turn.key(command)?, command.part(2));
    let stored = if command.len() == 3 {
        turn.put(&key, value, &PutOptions::default())?
    } else {
        let (status, attributes) = options(turn.client.store()?.keyspace(), command)?;
        turn.put(&key, value, &PutOptions { status, attributes: attributes.as_ref(), ..PutOptions::default() })?
    };
    match stored {
        None => return Ok(Flow::Wait),
        Some(PutOutcome::Stored | PutOutcome::Duplicate) => turn.replies.ok(),
        Some(outcome @ (PutOutcome::Late | PutOutcome::LateUnknown)) => {
            return Err(late(turn.client.store()?.schema(), &key, outcome));
        }
    }
    turn.received += value.len() as u64;
    Ok(Flow::Done)
}

/// Status and attributes of a SET.
#[cold]
fn options(keyspace: &Keyspace, command: Command<'_>) -> Result<(u32, Option<Attributes>), Failure> {
    let (mut status, mut words) = (0, command.from(3));
    let mut word = words.next();
    if word.is_some_and(|word| word.eq_ignore_ascii_case(b"status")) {
        let bits = words.next().map(keys::utf8).transpose()?.unwrap_or_default();
        let parsed = bits.strip_prefix("0x").map_or_else(|| bits.parse(), |bits| u32::from_str_radix(bits, 16));
        status = parsed.map_err(|_| Failure::number())?;
        word = words.next();
    }
    match word {
        None => Ok((status, None)),
        Some(word) if word.eq_ignore_ascii_case(b"attr") && words.len() > 0 => {
            Ok((status, Some(super::operate::attributes(keyspace, words)?)))
        }
        // No options of Redis's SET: an expiry or NX would promise what a store of events does not do.
        Some(_) => Err(Failure::err(
            "SET key value [STATUS bits] [ATTR name=value ...]: it has no other options, because a fragment is written once and \
             stays until its event is decided",
        )),
    }
}

/// The answer to a put that came too late.
pub(super) fn late(schema: &KeySchema, key: &Key, outcome: PutOutcome) -> Failure {
    let text = schema.text(key.as_bytes());
    if outcome == PutOutcome::LateUnknown {
        let why = "its event is leased, decided or removed by now; whether it was stored before that is not known";
        return Failure::coded("LATEUNKNOWN", format!("{text}: {why}: a final answer"));
    }
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
