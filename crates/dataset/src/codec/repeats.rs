//! Values that are the same as one shortly before: a particle repeats what its mother has, triggers name the same object.
//!
//! ```text
//! varint: bytes of the next part | for each value how many before is the same one, 0: a new one (U8, encoded) | new values, encoded
//! ```
//!
//! Values that are frequent in the whole stripe count as new: the numeric coder takes few bits for them.

use super::bits::{put_varint, take_varint};
use super::dictionary::number;
use super::{Damaged, Effort, decode_part, encode_part};
use crate::Scalar;

/// How far back a value is looked for: a distance is one byte.
const DISTANCE_MAX: usize = 255;
/// Values that are at least one in this many are frequent.
const FREQUENT: usize = 64;
/// One value in this many must repeat.
const REPEATS_MIN: usize = 24;

/// Distances to the same value before, 0 without one; `None` where few repeat.
fn distances(wide: &[u64]) -> Option<Vec<u8>> {
    let (different, numbers) = number(wide, wide.len())?;
    let mut counts = vec![0; different.len()];
    numbers.iter().for_each(|&number| counts[number as usize] += 1);
    let frequent = (wide.len() / FREQUENT).max(2);
    // Where each value was last, plus one.
    let mut last = vec![0; different.len()];
    let distance = |(at, &number): (usize, &u32)| {
        let before = std::mem::replace(&mut last[number as usize], at + 1);
        let distance = at + 1 - before;
        let repeats = before > 0 && distance <= DISTANCE_MAX && counts[number as usize] <= frequent;
        if repeats { distance as u8 } else { 0 }
    };
    let distances: Vec<u8> = numbers.iter().enumerate().map(distance).collect();
    let repeats = distances.iter().filter(|&&distance| distance > 0).count();
    (repeats > wide.len() / REPEATS_MIN).then_some(distances)
}

/// Encodes by distances; `None` where few values repeat.
pub(super) fn encode(scalar: Scalar, wide: &[u64], effort: Effort, first: u8) -> Option<Vec<u8>> {
    let distances = distances(wide)?;
    let new = wide.iter().zip(&distances).filter(|(_, distance)| **distance == 0);
    let new: Vec<u8> = new.flat_map(|(value, _)| value.to_le_bytes().into_iter().take(scalar.width())).collect();
    let mut out = vec![first];
    let part = encode_part(Scalar::U8, &distances, effort);
    put_varint(&mut out, part.len() as u64);
    out.extend_from_slice(&part);
    out.extend_from_slice(&encode_part(scalar, &new, effort));
    Some(out)
}

/// Decodes; `out` is not empty.
pub(super) fn decode(scalar: Scalar, mut encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    let width = scalar.width();
    let part = usize::try_from(take_varint(&mut encoded)?).unwrap_or(usize::MAX);
    let (part, rest) = encoded.split_at_checked(part).ok_or(Damaged("a part is too long"))?;
    let mut distances = vec![0; out.len() / width];
    decode_part(Scalar::U8, part, &mut distances)?;
    let new = distances.iter().filter(|&&distance| distance == 0).count();
    if new == 0 {
        return Err(Damaged("the first value is no new one"));
    }
    let mut values = vec![0; new * width];
    decode_part(scalar, rest, &mut values)?;
    match width {
        1 => merge::<1>(&distances, &values, out),
        2 => merge::<2>(&distances, &values, out),
        4 => merge::<4>(&distances, &values, out),
        _ => merge::<8>(&distances, &values, out),
    }
}

/// Puts new values and copies of those before into `out`.
fn merge<const WIDTH: usize>(distances: &[u8], new: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    let out = out.as_chunks_mut::<WIDTH>().0;
    let mut new = new.as_chunks::<WIDTH>().0.iter();
    for (at, &distance) in distances.iter().enumerate().take(out.len()) {
        let value = match distance {
            0 => new.next(),
            _ => at.checked_sub(usize::from(distance)).and_then(|from| out.get(from)),
        };
        out[at] = *value.ok_or(Damaged("a value before the first"))?;
    }
    Ok(())
}
