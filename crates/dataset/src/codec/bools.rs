//! Flags of the same length, coded together: a row of bits each, which differ in few bits from an earlier row.
//!
//! ```text
//! kind | varint: bytes of the next part | distances: how many rows before is the similar one, 0 for none (U8, encoded)
//! kind 0: the bits that differ, each row in whole bytes (U8, encoded)
//! kind 1: varint: ones among them | for each one the zeros before it, through all rows (U32, encoded)
//! ```
//!
//! Flags of triggers are alike, so few bits differ: their distances suit the numeric coder.

use super::bits::{load, put_varint, take_varint};
use super::{Damaged, Effort, decode_part, encode_part};
use crate::Scalar;

/// Earlier rows that are compared, at most: the distance is one byte.
const DISTANCE_MAX: usize = 255;
/// Kinds.
const BITS: u8 = 0;
const GAPS: u8 = 1;
/// Gaps are for at most one bit in this many; they never take more memory than the flags then.
const GAP_BITS_MIN: usize = 4;

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
    let mut distances = Vec::with_capacity(rows.len());
    let mut rest = Vec::with_capacity(rows.len());
    let mut ones = 0;
    for (at, row) in bits.iter().enumerate() {
        let mut least = row.iter().map(|word| word.count_ones()).sum();
        let mut distance = 0;
        for back in 1..=at.min(DISTANCE_MAX) {
            let different = differing(row, &bits[at - back], least);
            if different < least {
                (least, distance) = (different, back);
            }
        }
        ones += least as usize;
        distances.push(distance as u8);
        rest.push(match distance {
            0 => row.clone(),
            _ => row.iter().zip(&bits[at - distance]).map(|(row, other)| row ^ other).collect(),
        });
    }

    let plain: Vec<u8> =
        rest.iter().flat_map(|row| row.iter().flat_map(|word| word.to_le_bytes()).take(count.div_ceil(8))).collect();
    let packed = encode_part(Scalar::U8, &plain, effort);
    let (mut kind, mut last) = (BITS, packed);
    if ones <= rows.len() * count / GAP_BITS_MIN && u32::try_from(rows.len() * count).is_ok() {
        let coded = [varint(ones), encode_part(Scalar::U32, &gaps(&rest, count), effort)].concat();
        if coded.len() < last.len() {
            (kind, last) = (GAPS, coded);
        }
    }
    let distances = encode_part(Scalar::U8, &distances, effort);
    [&[kind][..], &varint(distances.len()), &distances, &last].concat()
}

fn varint(value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, value as u64);
    bytes
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

/// The zeros before each one, through all rows of `count` bits: U32.
fn gaps(rows: &[Vec<u64>], count: usize) -> Vec<u8> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for (row, words) in rows.iter().enumerate() {
        for (word, &bits) in words.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let at = row * count + word * 64 + bits.trailing_zeros() as usize;
                gaps.extend_from_slice(&((at - next) as u32).to_le_bytes());
                next = at + 1;
                bits &= bits - 1;
            }
        }
    }
    gaps
}

/// Decodes rows, each of the same length, which the caller knows.
///
/// # Errors
/// Where the bytes do not decode to just these rows. Never panics, never takes more memory than a small multiple of the rows.
pub fn decode_bools(encoded: &[u8], rows: &mut [&mut [u8]]) -> Result<(), Damaged> {
    let count = rows.first().map_or(0, |row| row.len());
    if rows.iter().any(|row| row.len() != count) {
        return Err(Damaged("flags of different lengths"));
    }
    let (kind, mut encoded) = match encoded.split_first() {
        None if count == 0 => return Ok(()),
        Some((&kind, rest)) if count > 0 => (kind, rest),
        _ => return Err(Damaged("flags are missing")),
    };
    let part = usize::try_from(take_varint(&mut encoded)?).unwrap_or(usize::MAX);
    let (part, mut last) = encoded.split_at_checked(part).ok_or(Damaged("a part is too long"))?;
    let mut distances = vec![0; rows.len()];
    decode_part(Scalar::U8, part, &mut distances)?;
    match kind {
        BITS => {
            let row_bytes = count.div_ceil(8);
            let mut bits = vec![0; rows.len() * row_bytes];
            decode_part(Scalar::U8, last, &mut bits)?;
            for (row, bits) in rows.iter_mut().zip(bits.chunks(row_bytes)) {
                for (flags, bits) in row.chunks_mut(8).zip(bits) {
                    flags.iter_mut().enumerate().for_each(|(at, flag)| *flag = (bits >> at) & 1);
                }
            }
        }
        GAPS => {
            let ones = take_varint(&mut last)?;
            if ones > (rows.len() * count / GAP_BITS_MIN) as u64 {
                return Err(Damaged("there are too many gaps"));
            }
            let mut gaps = vec![0; ones as usize * 4];
            decode_gaps(last, &mut gaps, rows, count)?;
        }
        _ => return Err(Damaged("the kind of flags is unknown")),
    }
    undo_distances(rows, &distances)
}

/// Puts a one after each gap.
fn decode_gaps(encoded: &[u8], gaps: &mut [u8], rows: &mut [&mut [u8]], count: usize) -> Result<(), Damaged> {
    rows.iter_mut().for_each(|row| row.fill(0));
    if gaps.is_empty() {
        return if encoded.is_empty() { Ok(()) } else { Err(Damaged("bytes for no gaps")) };
    }
    decode_part(Scalar::U32, encoded, gaps)?;
    let (mut row, mut at) = (0, 0_usize);
    for gap in gaps.as_chunks::<4>().0 {
        at += u32::from_le_bytes(*gap) as usize;
        if at >= count {
            row += at / count;
            at %= count;
        }
        *rows.get_mut(row).and_then(|row| row.get_mut(at)).ok_or(Damaged("a flag after the last"))? = 1;
        at += 1;
    }
    Ok(())
}

/// Combines each row with the similar one before it.
fn undo_distances(rows: &mut [&mut [u8]], distances: &[u8]) -> Result<(), Damaged> {
    for (at, &distance) in distances.iter().enumerate() {
        if distance > 0 {
            let from = at.checked_sub(usize::from(distance)).ok_or(Damaged("a row before the first"))?;
            let (before, row) = rows.split_at_mut(at);
            let (other, row) = (&*before[from], &mut *row[0]);
            let (words, rest) = row.as_chunks_mut::<8>();
            for (word, other) in words.iter_mut().zip(other.chunks_exact(8)) {
                *word = (u64::from_le_bytes(*word) ^ load(other)).to_le_bytes();
            }
            let done = words.len() * 8;
            rest.iter_mut().zip(&other[done..]).for_each(|(flag, other)| *flag ^= other);
        }
    }
    Ok(())
}
