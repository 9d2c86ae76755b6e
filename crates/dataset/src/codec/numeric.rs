//! The numeric coder: a frame, a tree of bins, and the values by them.
//!
//! ```text
//! log of the table, map (in the first byte) | frame | tree | raw bits ──▶ … ◀── words, states
//! ```
//!
//! Without a table (log 0) the words follow raw, each in the bits of the range: bit packing.

use super::Damaged;
use super::bits::{BitReader, BitWriter};
use super::map::{Frame, Map};
use super::rans::{self, Decoder, Table};
use super::tree::{LOG_MAX, Tree, Word};
use crate::Scalar;
use std::cell::RefCell;

/// Values that are decoded at a time: their words stay in the first cache.
const BLOCK: usize = 256;
/// Sorting by this many bits a pass.
const DIGIT_BITS: u32 = 8;

/// A numeric encoding that is planned, not yet written.
pub(super) struct Plan {
    frame: Frame,
    words: Vec<u64>,
    /// None: bit packing.
    tree: Option<(Tree, u32)>,
    /// Bytes it will take, about.
    pub(super) bytes: usize,
    pub(super) map: Map,
    /// Different words.
    pub(super) different: usize,
}

/// The logarithm of the table for this many values: larger ones gain nothing.
fn log_for(count: usize) -> u32 {
    (usize::BITS - count.leading_zeros()).clamp(6, LOG_MAX)
}

impl Plan {
    /// Plans the encoding of values, of which at least two differ.
    pub(super) fn of(scalar: Scalar, values: &[u64], map: Map) -> Plan {
        let (frame, words) = Frame::of(scalar, values, map);
        let log = log_for(values.len());
        let (tree, different) = if frame.range_bits <= 32 {
            let sorted = sorted(words.iter().map(|&word| word as u32).collect(), frame.range_bits);
            (Tree::of(&sorted, frame.range_bits, log), different(&sorted))
        } else {
            let sorted = sorted(words.clone(), frame.range_bits);
            (Tree::of(&sorted, frame.range_bits, log), different(&sorted))
        };
        let packed = (words.len() * frame.range_bits as usize).div_ceil(8);
        let coded = (tree.cost / 8.0) as usize + rans::lanes(words.len());
        let (tree, bytes) = if coded < packed && !tree.is_leaf() { (Some((tree, log)), coded) } else { (None, packed) };
        Plan { frame, words, tree, bytes: bytes + 4, map, different }
    }

    /// The logarithm of the table, 0 without one.
    pub(super) fn log(&self) -> u32 {
        self.tree.as_ref().map_or(0, |(_, log)| *log)
    }

    /// Writes it behind the first byte, which tells the map and the logarithm.
    pub(super) fn write(&self, first: u8) -> Vec<u8> {
        let mut bits = BitWriter::after(vec![first]);
        self.frame.write(&mut bits);
        let range_bits = self.frame.range_bits;
        let Some((tree, log)) = &self.tree else {
            self.words.iter().for_each(|&word| bits.put(word, range_bits));
            return bits.finish();
        };
        tree.write(&mut bits);
        rans::encode(&self.words, &tree.leaves(), range_bits, *log, bits)
    }
}

/// Different words among sorted ones.
fn different<W: Word>(sorted: &[W]) -> usize {
    1 + sorted.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// The words in their order, by the bits that differ.
fn sorted<W: Word>(mut words: Vec<W>, range_bits: u32) -> Vec<W> {
    if words.len() < 128 {
        words.sort_unstable();
        return words;
    }
    let mut other = vec![W::default(); words.len()];
    for shift in (0..range_bits).step_by(DIGIT_BITS as usize) {
        let digit = |word: W| (word.wide() >> shift) as usize & ((1 << DIGIT_BITS) - 1);
        let mut starts = [0_u32; 1 << DIGIT_BITS];
        words.iter().for_each(|&word| starts[digit(word)] += 1);
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        for &word in &words {
            let start = &mut starts[digit(word)];
            other[*start as usize] = word;
            *start += 1;
        }
        std::mem::swap(&mut words, &mut other);
    }
    words
}

thread_local! {
    /// A table costs more to make than a small stripe to decode.
    static TABLE: RefCell<Table> = RefCell::new(Table::new());
}

/// Decodes what `Plan::write` wrote, without the first byte.
pub(super) fn decode(scalar: Scalar, map: Map, log: u32, encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    let count = out.len() / scalar.width();
    let mut bits = BitReader::new(encoded);
    let mut frame = Frame::read(scalar, map, &mut bits)?;
    if log > LOG_MAX {
        return Err(Damaged("a table is too large"));
    }
    if log == 0 {
        unpack(&mut frame, bits, out, scalar.width())
    } else if frame.range_bits <= 32 {
        TABLE.with_borrow_mut(|table| decode_words::<u32>(table, &mut frame, log, bits, count, out, scalar.width()))
    } else {
        TABLE.with_borrow_mut(|table| decode_words::<u64>(table, &mut frame, log, bits, count, out, scalar.width()))
    }
}

/// Decodes words by a table.
fn decode_words<W: Word>(
    table: &mut Table,
    frame: &mut Frame,
    log: u32,
    mut bits: BitReader<'_>,
    count: usize,
    out: &mut [u8],
    width: usize,
) -> Result<(), Damaged> {
    table.read(&mut bits, count, frame.range_bits, log)?;
    let mut decoder = Decoder::new(table, log, bits, count)?;
    let mut words = [W::default(); BLOCK];
    for out in out.chunks_mut(BLOCK * width) {
        let words = &mut words[..out.len() / width];
        decoder.decode(words)?;
        frame.restore(words, out);
    }
    decoder.finish()
}

/// Reads words that all have the bits of the range.
fn unpack(frame: &mut Frame, mut bits: BitReader<'_>, out: &mut [u8], width: usize) -> Result<(), Damaged> {
    let range_bits = frame.range_bits;
    let mut words = [0_u64; BLOCK];
    for out in out.chunks_mut(BLOCK * width) {
        let words = &mut words[..out.len() / width];
        for word in &mut *words {
            *word = bits.get(range_bits)?;
        }
        frame.restore(words, out);
    }
    if bits.bytes_read() != bits.bytes.len() {
        return Err(Damaged("not all bytes were used"));
    }
    Ok(())
}
