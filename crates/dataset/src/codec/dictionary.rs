//! A few different values, and for each value of the stripe which one it is.
//!
//! ```text
//! varint: different values - 1 | varint: bytes of the next part | the values, encoded | codes, encoded
//! ```
//!
//! The different values are in the order of their words; codes are bytes up to 256 values, else 2 bytes. It suits values that repeat
//! in patterns: zstd finds them in the codes.

use super::bits::{put_varint, take_varint};
use super::{Damaged, Effort, decode_part, encode_part};
use crate::Scalar;

/// Larger dictionaries save nothing.
const VALUES_MAX: usize = 1 << 16;

/// The kind of the codes for this many values.
fn codes_of(values: usize) -> Scalar {
    if values <= 1 << 8 { Scalar::U8 } else { Scalar::U16 }
}

/// Encodes by a dictionary; `None` where too many values are different.
pub(super) fn encode(scalar: Scalar, wide: &[u64], effort: Effort, first: u8) -> Option<Vec<u8>> {
    let (different, numbers) = number(wide, VALUES_MAX.min(wide.len() / 2))?;
    let codes = codes_of(different.len());
    let coded: Vec<u8> = match codes {
        Scalar::U8 => numbers.iter().map(|&number| number as u8).collect(),
        _ => numbers.iter().flat_map(|&number| (number as u16).to_le_bytes()).collect(),
    };
    let values: Vec<u8> =
        different.iter().flat_map(|value| value.to_le_bytes().into_iter().take(scalar.width())).collect();

    let mut out = vec![first];
    put_varint(&mut out, different.len() as u64 - 1);
    let part = encode_part(scalar, &values, effort);
    put_varint(&mut out, part.len() as u64);
    out.extend_from_slice(&part);
    out.extend_from_slice(&encode_part(codes, &coded, effort));
    Some(out)
}

/// The different values in their order, and the number of each value among them; `None` where there are more than `most`.
pub(super) fn number(wide: &[u64], most: usize) -> Option<(Vec<u64>, Vec<u32>)> {
    // A table of open addresses, never more than half full: the numbers of values as they are first seen, plus one.
    let log = (2 * most + 2).ilog2() + 1;
    let mut table = vec![0_u32; 1 << log];
    let mut seen: Vec<u64> = Vec::new();
    let mut numbers = Vec::with_capacity(wide.len());
    for &value in wide {
        let mut at = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - log)) as usize;
        let number = loop {
            match table[at] {
                0 if seen.len() == most => return None,
                0 => {
                    seen.push(value);
                    table[at] = seen.len() as u32;
                    break seen.len() as u32 - 1;
                }
                number if seen[number as usize - 1] == value => break number - 1,
                _ => at = (at + 1) & (table.len() - 1),
            }
        };
        numbers.push(number);
    }
    let mut order: Vec<u32> = (0..seen.len() as u32).collect();
    order.sort_unstable_by_key(|&number| seen[number as usize]);
    let mut places = vec![0; seen.len()];
    order.iter().enumerate().for_each(|(place, &number)| places[number as usize] = place as u32);
    numbers.iter_mut().for_each(|number| *number = places[*number as usize]);
    Some((order.iter().map(|&number| seen[number as usize]).collect(), numbers))
}

/// Decodes; `out` is not empty.
pub(super) fn decode(scalar: Scalar, mut encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    let width = scalar.width();
    let count = out.len() / width;
    let different = take_varint(&mut encoded)?;
    if different >= count.min(VALUES_MAX) as u64 {
        return Err(Damaged("a dictionary is too large"));
    }
    let different = different as usize + 1;
    let part = usize::try_from(take_varint(&mut encoded)?).map_err(|_| Damaged("a part is too long"))?;
    let (part, coded) = encoded.split_at_checked(part).ok_or(Damaged("a part is too long"))?;
    let mut values = vec![0; different * width];
    decode_part(scalar, part, &mut values)?;
    let codes = codes_of(different);
    let mut code_bytes = vec![0; count * codes.width()];
    decode_part(codes, coded, &mut code_bytes)?;
    match width {
        1 => look_up::<1>(&values, &code_bytes, codes, out),
        2 => look_up::<2>(&values, &code_bytes, codes, out),
        4 => look_up::<4>(&values, &code_bytes, codes, out),
        _ => look_up::<8>(&values, &code_bytes, codes, out),
    }
}

/// Puts the value of each code into `out`.
fn look_up<const WIDTH: usize>(values: &[u8], codes: &[u8], kind: Scalar, out: &mut [u8]) -> Result<(), Damaged> {
    let values = values.as_chunks::<WIDTH>().0;
    let mut known = true;
    let mut put = |out: &mut [u8; WIDTH], code: usize| match values.get(code) {
        Some(value) => *out = *value,
        None => known = false,
    };
    let outs = out.as_chunks_mut::<WIDTH>().0.iter_mut();
    if kind == Scalar::U8 {
        outs.zip(codes).for_each(|(out, &code)| put(out, usize::from(code)));
    } else {
        outs.zip(codes.as_chunks::<2>().0).for_each(|(out, &code)| put(out, usize::from(u16::from_le_bytes(code))));
    }
    if known { Ok(()) } else { Err(Damaged("a code has no value")) }
}
