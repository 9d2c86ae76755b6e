//! Walking in key order: SCAN by pattern, FB.RANGE by bounds.
//!
//! *Invariants*: a cursor names the key behind which a scan goes on, so that a key that stays is met exactly once,
//! whatever comes and goes; cursors are remembered within a bound (`state.rs`).

use super::failure::Failure;
use super::parse::Command;
use super::turn::{Answer, Flow, Turn};
use super::{glob, keys};
use forebay_core::{Bounds, Error, Key, KeySchema};
use forebay_store::{Fragment, Store};

/// Keys that one SCAN looks at, unless it says how many.
const COUNT_DEFAULT: usize = 10;
/// Most keys that one SCAN looks at, and most fragments that one FB.RANGE answers.
const COUNT_MAX: usize = 10_000;
/// Longest pattern.
const PATTERN_BYTES_MAX: usize = 256;
/// Fragments that one FB.RANGE answers, unless it says how many.
const RANGE_DEFAULT: usize = 1000;

/// The fragments inside bounds that come after a key, in key order.
///
/// Keys after `r/e/s` are those of `r/e` after `s`, then those of `r` after `e`, then those after `r`: bounds each.
fn after(
    store: &Store,
    bounds: &Bounds,
    key: Option<&Key>,
) -> Result<impl Iterator<Item = Result<Fragment, Error>> + use<>, Error> {
    let schema = store.schema();
    let mut parts = Vec::new();
    match key {
        None => parts.push(bounds.clone()),
        Some(key) => {
            let values = schema.values(key.as_bytes());
            for at in (0..values.len()).rev() {
                let inside =
                    |before: usize| (bounds.lower()[before]..=bounds.upper()[before]).contains(&values[before]);
                if !(0..at).all(inside) || values[at] >= bounds.upper()[at] {
                    continue;
                }
                let pair = |part: usize| match part {
                    before if before < at => (values[before], values[before]),
                    here if here == at => (bounds.lower()[here].max(values[here] + 1), bounds.upper()[here]),
                    behind => (bounds.lower()[behind], bounds.upper()[behind]),
                };
                parts.push(Bounds::new(schema, &(0..values.len()).map(pair).collect::<Vec<_>>())?);
            }
        }
    }
    let store = store.clone();
    Ok(parts.into_iter().flat_map(move |part| store.range(&part)))
}

/// The narrowest bounds that a pattern says by itself: numbers between slashes, up to the first part that is none.
fn bounds_of(schema: &KeySchema, pattern: &[u8]) -> Option<Bounds> {
    let all = Bounds::all(schema);
    let (mut pairs, mut open) = (Vec::new(), false);
    let mut parts = pattern.split(|&byte| byte == b'/');
    for at in 0..schema.sub_keys().len() {
        let number = parts.next().filter(|part| !open && !part.is_empty() && part.iter().all(u8::is_ascii_digit));
        let value = number.and_then(|part| std::str::from_utf8(part).ok()?.parse::<u64>().ok());
        open |= value.is_none();
        pairs.push(value.map_or((all.lower()[at], all.upper()[at]), |value| (value, value)));
    }
    // A number that does not fit: nothing can have it.
    Bounds::new(schema, &pairs).ok()
}

fn count(word: Option<&[u8]>) -> Result<usize, Failure> {
    let number = word.and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
    match number.ok_or_else(Failure::number)? {
        0 => Err(Failure::syntax()),
        number => Ok(number.min(COUNT_MAX)),
    }
}

/// SCAN cursor [MATCH pattern] [COUNT n] [TYPE string]
pub(super) fn scan(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let cursor = std::str::from_utf8(command.part(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or_else(|| Failure::err("invalid cursor"))?;
    let (mut pattern, mut wanted, mut strings) = (None, COUNT_DEFAULT, true);
    let mut words = command.from(2);
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = Some(words.next().ok_or_else(Failure::syntax)?),
            b"COUNT" => wanted = count(words.next())?,
            b"TYPE" => strings = words.next().ok_or_else(Failure::syntax)?.eq_ignore_ascii_case(b"string"),
            _ => return Err(Failure::syntax()),
        }
    }
    if pattern.is_some_and(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
        return Err(Failure::err(format!("a pattern of more than {PATTERN_BYTES_MAX} bytes")));
    }
    let from = match cursor {
        0 => None,
        _ => Some(turn.shared.resp.recall(cursor).ok_or_else(|| {
            Failure::err("invalid cursor: this server did not give it, or has forgotten it; begin again with 0")
        })?),
    };
    let store = turn.client.store()?;
    let schema = store.schema();
    let bounds = pattern.map_or_else(|| Some(Bounds::all(schema)), |pattern| bounds_of(schema, pattern));
    let bounds = bounds.filter(|_| strings);
    if from.is_some_and(|key| key.as_bytes().len() != schema.key_bytes()) {
        return Err(Failure::err("invalid cursor: it is of another keyspace"));
    }
    let (mut found, mut last, mut next, mut looked) = (Vec::new(), None, 0, 0);
    if let Some(bounds) = bounds {
        for fragment in after(store, &bounds, from.as_ref())? {
            if let Some(last) = last.filter(|_| looked == wanted) {
                // There is more.
                next = turn.shared.resp.remember(last);
                break;
            }
            let key = fragment?.key();
            let text = schema.text(key.as_bytes());
            if pattern.is_none_or(|pattern| glob::matches(pattern, text.as_bytes())) {
                found.push(text);
            }
            looked += 1;
            last = Some(key);
        }
    }
    turn.cost = 4 + looked;
    turn.replies.array(2);
    turn.replies.text(&next.to_string());
    turn.replies.texts(found.iter());
    Ok(Flow::Done)
}

/// FB.RANGE bounds [AFTER key] [COUNT n]: keys and bytes in key order.
pub(super) fn range(turn: &mut Turn<'_>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?.clone();
    let schema = store.schema();
    let bounds = Bounds::parse(schema, keys::utf8(command.part(1))?)?;
    let (mut from, mut wanted) = (None, RANGE_DEFAULT);
    let mut words = command.from(2);
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"AFTER" => from = Some(keys::key(schema, words.next().ok_or_else(Failure::syntax)?)?),
            b"COUNT" => wanted = count(words.next())?,
            _ => return Err(Failure::syntax()),
        }
    }
    let window = u64::from(turn.shared.limits.window_bytes);
    let (mut found, mut bytes) = (Vec::new(), 0);
    for fragment in after(&store, &bounds, from.as_ref())?.take(wanted) {
        let fragment = fragment?;
        bytes += fragment.len() as u64;
        found.push(fragment);
        if bytes >= window {
            break;
        }
    }
    (turn.things, turn.cost, turn.sent) = (found.len() as u64, 4 + found.len(), bytes);
    turn.replies.array(found.len());
    for fragment in found {
        turn.replies.array(2);
        turn.replies.text(&schema.text(fragment.key().as_bytes()));
        turn.replies.fragment(fragment);
    }
    Ok(Flow::Done)
}
