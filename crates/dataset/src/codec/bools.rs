//! Flags of the same length, coded together: a row of bits each, which differ in few bits from an earlier row.
//!
//! ```text
//! zstd of: for each row how many rows before it the similar one is (0: none) | for each row the bits that differ
//! ```

use super::packed::{compress, decompress};
use super::{Damaged, Effort};

/// Earlier rows that are compared, at most: the distance is one byte.
const DISTANCE_MAX: usize = 255;

/// Encodes rows of bytes 0 or 1, all of the same length. No rows, or empty ones, have no bytes.
///
/// # Panics
/// Where the rows have different lengths.
pub fn encode_bools(rows: &[&[u8]], effort: Effort) -> Vec<u8> {
    let count = rows.first().map_or(0, |row| row.len());
    assert!(rows.iter().all(|row| row.len() == count), "flags of different lengths");
    if count == 0 {
        return Vec::new();
    }
    let bits: Vec<Vec<u64>> = rows.iter().map(|row| row_bits(row)).collect();
    let row_bytes = count.div_ceil(8);
    let mut plain = Vec::with_capacity(rows.len() * (row_bytes + 1));
    let mut rest = Vec::with_capacity(rows.len() * row_bytes);
    for (at, row) in bits.iter().enumerate() {
        let ones: u32 = row.iter().map(|word| word.count_ones()).sum();
        let (mut least, mut distance) = (ones, 0);
        for back in 1..=at.min(DISTANCE_MAX) {
            let different = differing(row, &bits[at - back], least);
            if different < least {
                (least, distance) = (different, back);
            }
        }
        plain.push(distance as u8);
        let other = if distance > 0 { Some(&bits[at - distance]) } else { None };
        let words = row.iter().enumerate().map(|(word, bits)| bits ^ other.map_or(0, |other| other[word]));
        rest.extend(words.flat_map(u64::to_le_bytes).take(row_bytes));
    }
    plain.extend_from_slice(&rest);
    compress(&plain, effort).map_or_else(|| [&[0][..], &plain].concat(), |packed| [&[1][..], &packed].concat())
}

/// The flags as bits, the first one lowest.
fn row_bits(row: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| chunk.iter().enumerate().fold(0, |word, (at, &flag)| word | u64::from(flag != 0) << at);
    row.chunks(64).map(word).collect()
}

/// Bits that differ; any number from `enough` on means too many.
fn differing(row: &[u64], other: &[u64], enough: u32) -> u32 {
    let mut different = 0;
    for (row, other) in row.chunks(8).zip(other.chunks(8)) {
        different += row.iter().zip(other).map(|(row, other)| (row ^ other).count_ones()).sum::<u32>();
        if different >= enough {
            break;
        }
    }
    different
}

/// Decodes rows, each of the same length, which the caller knows.
///
/// # Errors
/// Where the bytes do not decode to just these rows. Never panics, never takes more memory than the rows.
pub fn decode_bools(encoded: &[u8], rows: &mut [&mut [u8]]) -> Result<(), Damaged> {
    let count = rows.first().map_or(0, |row| row.len());
    if rows.iter().any(|row| row.len() != count) {
        return Err(Damaged("flags of different lengths"));
    }
    let Some((&packed, encoded)) = encoded.split_first() else {
        return if count == 0 { Ok(()) } else { Err(Damaged("no bytes")) };
    };
    let row_bytes = count.div_ceil(8);
    let mut plain = vec![0; rows.len() * (row_bytes + 1)];
    match packed {
        0 if encoded.len() == plain.len() => plain.copy_from_slice(encoded),
        1 if count > 0 => decompress(encoded, &mut plain)?,
        _ => return Err(Damaged("flags are missing")),
    }
    let (distances, bits) = plain.split_at_mut(rows.len());
    for (at, row) in rows.iter_mut().enumerate() {
        let distance = usize::from(distances[at]);
        let (before, bits) = bits.split_at_mut(at * row_bytes);
        let bits = &mut bits[..row_bytes];
        if distance > 0 {
            let from = at.checked_sub(distance).ok_or(Damaged("a row before the first"))?;
            let other = &before[from * row_bytes..][..row_bytes];
            bits.iter_mut().zip(other).for_each(|(bits, other)| *bits ^= other);
        }
        for (flags, bits) in row.chunks_mut(8).zip(&*bits) {
            for (at, flag) in flags.iter_mut().enumerate() {
                *flag = (bits >> at) & 1;
            }
        }
    }
    Ok(())
}
