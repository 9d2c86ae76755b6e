//! Walking over fragments in key order: FB.RANGE.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::turn::{Answer, Flow, Turn};
use forebay_core::{Bounds, Error, Key, ReadFragment, ServedStore};

/// Most fragments that one FB.RANGE answers.
const COUNT_MAX: usize = 10_000;
/// Fragments that one FB.RANGE answers, unless it says how many.
const COUNT_DEFAULT: usize = 1000;

/// The fragments inside bounds that come after a key, in key order.
///
/// Keys after `r/e/s` are those of `r/e` after `s`, then those of `r` after `e`, then those after `r`: bounds each.
fn after<S: ServedStore>(
    store: &S,
    bounds: &Bounds,
    key: Option<&Key>,
) -> Result<impl Iterator<Item = Result<S::Fragment, Error>> + use<S>, Error> {
    let schema = store.schema();
    let mut parts = Vec::new();
    match key {
        None => parts.push(bounds.clone()),
        Some(key) => {
            let values = schema.values(key.as_bytes());
            for at in (0..values.len()).rev() {
                let inside =
                    |before: usize| (bounds.lower()[before]..=bounds.upper()[before]).contains(&values[before]);
                // No key of this prefix is left, or the prefix itself is outside.
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

fn count(word: Option<&[u8]>) -> Result<usize, Failure> {
    let number = word.and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok());
    match number.ok_or_else(Failure::number)? {
        0 => Err(Failure::syntax()),
        number => Ok(number.min(COUNT_MAX)),
    }
}

/// FB.RANGE bounds [AFTER key] [COUNT n]: keys and bytes in key order.
pub(super) fn range<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?.clone();
    let schema = store.schema();
    let bounds = Bounds::parse(schema, keys::utf8(command.part(1))?)?;
    let (mut from, mut wanted) = (None, COUNT_DEFAULT);
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
        // After the fragment, so that one longer than a window still goes out.
        if bytes >= window {
            break;
        }
    }
    // A long range counts as much work as its fragments, so that other connections get their turn after it.
    (turn.things, turn.cost, turn.sent) = (found.len() as u64, 4 + found.len(), bytes);
    turn.replies.array(found.len());
    for fragment in found {
        turn.replies.array(2);
        turn.replies.text(&schema.text(fragment.key().as_bytes()));
        turn.replies.fragment(fragment);
    }
    Ok(Flow::Done)
}
