//! Values as unsigned words that a tree of bins suits, and back.
//!
//! ```text
//! value ── drop zero bits that all values end in ──▶ w bits ── map ──▶ word ── less the base ──▶ below 2^r
//! ```
//!
//! *Ordered* keeps the order of the values: the sign is inverted, and for negative floats all other bits. *Folded* keeps the
//! order of magnitudes and has the sign last: half as many bins where both signs are alike. *Delta* folds the difference from the
//! value before, of ordered words.

use super::Damaged;
use super::bits::{BitReader, BitWriter, bits_of, low_mask};
use super::tree::Word;
use crate::Scalar;

/// How values become words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    Ordered,
    Folded,
    Delta,
}

/// What the bits of a value mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Unsigned,
    Signed,
    Float,
}

fn class(scalar: Scalar) -> Class {
    match scalar {
        Scalar::Bool | Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => Class::Unsigned,
        Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 => Class::Signed,
        Scalar::F16 | Scalar::F32 | Scalar::F64 => Class::Float,
    }
}

/// A map with what the stripe needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    map: Map,
    class: Class,
    /// Bits of a value.
    width: u32,
    /// Zero bits that all values end in.
    trim: u32,
    /// Words are below 2 to this.
    pub(super) range_bits: u32,
    /// Ordered: what is subtracted from words. Delta: the word of the first value.
    base: u64,
}

/// The values as words of up to 64 bits.
pub(super) fn widen(scalar: Scalar, values: &[u8]) -> Vec<u64> {
    fn each<const W: usize>(values: &[u8]) -> Vec<u64> {
        let word = |value: &[u8; W]| {
            let mut word = [0; 8];
            word[..W].copy_from_slice(value);
            u64::from_le_bytes(word)
        };
        values.as_chunks::<W>().0.iter().map(word).collect()
    }
    match scalar.width() {
        1 => each::<1>(values),
        2 => each::<2>(values),
        4 => each::<4>(values),
        _ => each::<8>(values),
    }
}

impl Frame {
    /// The frame of these values and their words. There are at least two different values.
    pub(super) fn of(scalar: Scalar, values: &[u64], map: Map) -> (Frame, Vec<u64>) {
        let width = scalar.width() as u32 * 8;
        let trim = values.iter().fold(0, |all, value| all | value).trailing_zeros().min(width - 1);
        let mut frame = Frame { map, class: class(scalar), width, trim, range_bits: 0, base: 0 };
        let mut words = frame.apply(values);
        let (low, high) = words.iter().fold((u64::MAX, 0), |(low, high), &word| (low.min(word), high.max(word)));
        if map == Map::Ordered {
            frame.range_bits = match frame.class {
                // A prefix keeps powers of two where they are.
                Class::Float => bits_of(low ^ high),
                _ => bits_of(high - low),
            };
            frame.base = match frame.class {
                Class::Float => low & !low_mask(frame.range_bits),
                _ => low,
            };
            for word in &mut words {
                *word -= frame.base;
            }
        } else {
            frame.range_bits = bits_of(high);
        }
        frame.range_bits = frame.range_bits.max(1);
        (frame, words)
    }

    /// Bits of a word: what is left of a value.
    fn bits(&self) -> u32 {
        self.width - self.trim
    }

    /// The words of values, before the base is subtracted; sets the base of deltas.
    fn apply(&mut self, values: &[u64]) -> Vec<u64> {
        let (trim, bits) = (self.trim, self.bits());
        let (sign, mask) = (1_u64 << (bits - 1), low_mask(bits));
        let ordered = |value: u64| match self.class {
            Class::Unsigned => value >> trim,
            Class::Signed => (value >> trim) ^ sign,
            Class::Float if (value >> trim) & sign == 0 => (value >> trim) | sign,
            Class::Float => !(value >> trim) & mask,
        };
        let fold = |word: u64| ((word << 1) ^ (word >> (bits - 1)).wrapping_neg()) & mask;
        match self.map {
            Map::Ordered => values.iter().map(|&value| ordered(value)).collect(),
            Map::Folded if self.class == Class::Float => {
                values.iter().map(|&value| ((value >> trim) << 1 & mask) | (value >> trim >> (bits - 1))).collect()
            }
            Map::Folded => values.iter().map(|&value| fold(value >> trim)).collect(),
            Map::Delta => {
                let mut before = values.first().map_or(0, |&value| ordered(value));
                self.base = before;
                let step = |&value: &u64| {
                    let word = ordered(value);
                    let delta = word.wrapping_sub(before) & mask;
                    before = word;
                    fold(delta)
                };
                values.iter().map(step).collect()
            }
        }
    }

    /// Bits of a number of bits below the width: from 1 on for ranges, from 0 on for trims.
    fn count_bits(width: u32) -> u32 {
        width.ilog2()
    }

    /// Whether the base is a prefix of the words.
    fn has_prefix(&self) -> bool {
        self.map == Map::Ordered && self.class == Class::Float
    }

    /// The word of zero.
    fn zero(&self) -> u64 {
        if self.class == Class::Unsigned { 0 } else { 1 << (self.bits() - 1) }
    }

    /// Writes what a decoder needs.
    pub(super) fn write(&self, out: &mut BitWriter) {
        let count_bits = Frame::count_bits(self.width);
        out.put(u64::from(self.trim), count_bits);
        out.put(u64::from(self.range_bits - 1), count_bits);
        let bits = self.bits();
        if self.has_prefix() {
            out.put(if self.range_bits == 64 { 0 } else { self.base >> self.range_bits }, bits - self.range_bits);
        } else if self.map != Map::Folded {
            let away = self.base.wrapping_sub(self.zero()) & low_mask(bits);
            let folded = ((away << 1) ^ (away >> (bits - 1)).wrapping_neg()) & low_mask(bits);
            let needed = bits_of(folded);
            out.put(u64::from(needed), count_bits + 1);
            out.put(folded, needed);
        }
    }

    /// Reads a frame.
    pub(super) fn read(scalar: Scalar, map: Map, bits: &mut BitReader<'_>) -> Result<Frame, Damaged> {
        let width = scalar.width() as u32 * 8;
        let count_bits = Frame::count_bits(width);
        let trim = bits.get(count_bits)? as u32;
        let range_bits = bits.get(count_bits)? as u32 + 1;
        let mut frame = Frame { map, class: class(scalar), width, trim, range_bits, base: 0 };
        if range_bits > frame.bits() {
            return Err(Damaged("a range is too wide"));
        }
        if frame.has_prefix() {
            let prefix = bits.get(frame.bits() - range_bits)?;
            frame.base = if range_bits == 64 { 0 } else { prefix << range_bits };
        } else if map != Map::Folded {
            let needed = bits.get(count_bits + 1)? as u32;
            if needed > frame.bits() {
                return Err(Damaged("a base is too wide"));
            }
            let folded = bits.get(needed)?;
            frame.base = frame.zero().wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg());
        }
        Ok(frame)
    }

    /// Puts the values of these words into `out`, and remembers the last one for deltas.
    pub(super) fn restore<W: Word>(&mut self, words: &mut [W], out: &mut [u8]) {
        // A loop for each width: the compiler makes vectors of them.
        match self.width {
            8 => self.restore_as::<W, u32, 1>(words, out, |word| [word as u8]),
            16 => self.restore_as::<W, u32, 2>(words, out, |word| (word as u16).to_le_bytes()),
            32 => self.restore_as::<W, u32, 4>(words, out, u32::to_le_bytes),
            _ => self.restore_as::<W, u64, 8>(words, out, u64::to_le_bytes),
        }
    }

    #[inline]
    fn restore_as<W: Word, V: Lane, const BYTES: usize>(
        &mut self,
        words: &mut [W],
        out: &mut [u8],
        bytes: impl Fn(V) -> [u8; BYTES],
    ) {
        let (bits, trim) = (self.bits(), self.trim);
        let (sign, mask, base) = (V::narrow(1 << (bits - 1)), V::narrow(low_mask(bits)), V::narrow(self.base));
        let one = V::narrow(1);
        let float = |word: V| {
            // All ones where the value is not negative.
            let positive = ((word >> (bits - 1)) & one).negative();
            word ^ (sign | !positive)
        };
        let unfold = |word: V| (word >> 1) ^ (word & one).negative();
        let outs = out.as_chunks_mut::<BYTES>().0.iter_mut();
        let pairs = outs.zip(words.iter().map(|word| V::narrow(word.wide())));
        match (self.map, self.class) {
            (Map::Ordered, Class::Unsigned) => pairs.for_each(|(out, word)| *out = bytes(word.plus(base) << trim)),
            (Map::Ordered, Class::Signed) => {
                pairs.for_each(|(out, word)| *out = bytes((word.plus(base) ^ sign) << trim))
            }
            (Map::Ordered, Class::Float) => pairs.for_each(|(out, word)| *out = bytes(float(word | base) << trim)),
            (Map::Folded, Class::Float) => {
                pairs.for_each(|(out, word)| *out = bytes(((word >> 1) | (word << (bits - 1))) << trim));
            }
            (Map::Folded, _) => pairs.for_each(|(out, word)| *out = bytes(unfold(word) << trim)),
            (Map::Delta, class) => {
                let mut before = base;
                let words = pairs.map(|(out, word)| {
                    before = before.plus(unfold(word)) & mask;
                    (out, before)
                });
                match class {
                    Class::Unsigned => words.for_each(|(out, word)| *out = bytes(word << trim)),
                    Class::Signed => words.for_each(|(out, word)| *out = bytes((word ^ sign) << trim)),
                    Class::Float => words.for_each(|(out, word)| *out = bytes(float(word) << trim)),
                }
                self.base = before.wide();
            }
        }
    }
}

/// Words that values are restored in.
trait Lane:
    Word
    + std::ops::Shl<u32, Output = Self>
    + std::ops::Shr<u32, Output = Self>
    + std::ops::BitXor<Output = Self>
    + std::ops::BitOr<Output = Self>
    + std::ops::BitAnd<Output = Self>
    + std::ops::Not<Output = Self>
{
    /// The sum, without the carry.
    fn plus(self, other: Self) -> Self;
    /// The number below zero.
    fn negative(self) -> Self;
}

impl Lane for u32 {
    #[inline]
    fn plus(self, other: u32) -> u32 {
        self.wrapping_add(other)
    }

    #[inline]
    fn negative(self) -> u32 {
        self.wrapping_neg()
    }
}

impl Lane for u64 {
    #[inline]
    fn plus(self, other: u64) -> u64 {
        self.wrapping_add(other)
    }

    #[inline]
    fn negative(self) -> u64 {
        self.wrapping_neg()
    }
}
