//! Asymmetric numeral systems: the bins of values, coded by their shares, and the bits that follow raw.
//!
//! ```text
//! raw bits of all values ──▶ … ◀── words of 16 bits, states: read from the end backwards
//! ```
//!
//! Value `i` belongs to state `i % lanes`: a processor works on several states at a time. A state is between `2^16` and
//! `2^32`; the encoder starts with the last value of a lane, so the decoder ends there. What a state holds at the end would
//! be lost: the lowest raw bits of the last value of the lane are kept in it.
//!
//! *Invariants*: a decoder that read all values has used up the words to the last raw bit, and each state is where the
//! encoder began; anything else is damage.

use super::Damaged;
use super::bits::{BitReader, BitWriter, load, low_mask};
use super::tree::{LOG_MAX, Leaf, Word};

/// States begin here: below it, a state takes a word.
const STATE_MIN: u32 = 1 << 16;
/// Raw bits of the last values that their states take.
const KEPT_BITS: u32 = 16;
/// More lanes decode faster; each takes about two bytes.
pub(super) const LANES: usize = 4;
/// Entries of a table.
const SLOTS: usize = 1 << LOG_MAX;

/// The number of states for this many values.
pub(super) fn lanes(count: usize) -> usize {
    if count < 256 { 1 } else { LANES }
}

/// Writes the values by their bins: raw bits behind those in `bits`, then the words.
pub(super) fn encode<W: Word>(values: &[W], leaves: &[Leaf], range_bits: u32, log: u32, bits: BitWriter) -> Vec<u8> {
    let (count, lanes) = (values.len(), lanes(values.len()));
    let finder = Finder::of(leaves, range_bits);
    let found: Vec<u16> = values.iter().map(|value| finder.find(value.wide())).collect();

    let mut raw = bits;
    for (at, (value, &leaf)) in values.iter().zip(&found).enumerate() {
        let leaf = &leaves[usize::from(leaf)];
        let kept = if at + lanes >= count { leaf.bits.min(KEPT_BITS) } else { 0 };
        raw.put((value.wide() - leaf.lower) >> kept, leaf.bits - kept);
    }
    let mut out = raw.finish();

    let starts: Vec<u32> = leaves
        .iter()
        .scan(0, |before, leaf| {
            *before += leaf.share;
            Some(*before - leaf.share)
        })
        .collect();
    let mut states = [STATE_MIN; LANES];
    for at in (0..count).rev() {
        let leaf = &leaves[usize::from(found[at])];
        let state = &mut states[at % lanes];
        if at + lanes >= count {
            *state |= ((values[at].wide() - leaf.lower) & low_mask(leaf.bits.min(KEPT_BITS))) as u32;
        }
        if *state >= leaf.share << (32 - log) {
            out.extend_from_slice(&(*state as u16).to_le_bytes());
            *state >>= 16;
        }
        *state = ((*state / leaf.share) << log) + *state % leaf.share + starts[usize::from(found[at])];
    }
    for state in states[..lanes].iter().rev() {
        out.extend_from_slice(&state.to_le_bytes());
    }
    out
}

/// Finds the bin of a value: by its leading bits, then among those bins.
struct Finder<'a> {
    leaves: &'a [Leaf],
    shift: u32,
    /// The bin that the first value of each cell is in or before.
    cells: Vec<u16>,
}

impl Finder<'_> {
    fn of(leaves: &[Leaf], range_bits: u32) -> Finder<'_> {
        let cell_bits = range_bits.min(10);
        let shift = range_bits - cell_bits;
        let mut cells = Vec::with_capacity((1 << cell_bits) + 1);
        let mut at = 0;
        for cell in 0..1_u64 << cell_bits {
            while at + 1 < leaves.len() && leaves[at + 1].lower <= cell << shift {
                at += 1;
            }
            cells.push(at as u16);
        }
        cells.push(leaves.len() as u16 - 1);
        Finder { leaves, shift, cells }
    }

    #[inline]
    fn find(&self, value: u64) -> u16 {
        let cell = (value >> self.shift) as usize;
        let (first, last) = (self.cells[cell], self.cells[cell + 1]);
        if first == last {
            return first;
        }
        let between = &self.leaves[usize::from(first) + 1..=usize::from(last)];
        first + between.partition_point(|leaf| leaf.lower <= value) as u16
    }
}

/// What a decoder looks up: for each of `2^L` slots, the bin in one word.
///
/// ```text
/// bits 0-31 lower end of the bin, or its number | 32-38 raw bits | 39-50 share - 1 | 51-62 slot within the bin
/// ```
pub(super) struct Table {
    slots: Box<[u64; SLOTS]>,
    /// Lower ends of the bins where they have more than 32 bits.
    lowers: Vec<u64>,
}

impl Table {
    /// An empty one.
    pub(super) fn new() -> Table {
        Table { slots: Box::new([0; SLOTS]), lowers: Vec::new() }
    }

    /// Empties it for values of this many bits.
    pub(super) fn reset(&mut self) {
        self.lowers.clear();
    }

    /// Adds a bin, with the sum of the shares before it.
    #[inline]
    pub(super) fn add(&mut self, leaf: Leaf, before: u32, wide: bool) {
        let name = if wide { self.lowers.len() as u64 } else { leaf.lower };
        if wide {
            self.lowers.push(leaf.lower);
        }
        let mut slot = name | u64::from(leaf.bits) << 32 | u64::from(leaf.share - 1) << 39;
        if let Some(slots) = self.slots.get_mut(before as usize..(before + leaf.share) as usize) {
            for entry in slots {
                *entry = slot;
                slot += 1 << 51;
            }
        }
    }
}

/// Decodes one stripe.
pub(super) struct Decoder<'a> {
    table: &'a Table,
    log: u32,
    lanes: usize,
    states: [u32; LANES],
    /// The next raw bits.
    raw: BitReader<'a>,
    /// Words that were not read yet end here.
    end: usize,
    /// Values that are left.
    left: usize,
}

impl<'a> Decoder<'a> {
    /// Begins with the raw bits that `raw` is at and the states at the end of its bytes.
    pub(super) fn new(table: &'a Table, log: u32, raw: BitReader<'a>, count: usize) -> Result<Decoder<'a>, Damaged> {
        let lanes = lanes(count);
        let mut end = raw.bytes.len();
        let mut states = [0; LANES];
        for state in &mut states[..lanes] {
            end = end.checked_sub(4).ok_or(Damaged("states are missing"))?;
            *state = (load_u16(raw.bytes, end + 2) << 16) | load_u16(raw.bytes, end);
        }
        Ok(Decoder { table, log, lanes, states, raw, end, left: count })
    }

    /// The next values; the last call for a stripe must ask for all that are left.
    pub(super) fn decode<W: Word>(&mut self, out: &mut [W]) -> Result<(), Damaged> {
        let mut done = 0;
        if self.lanes == LANES {
            // The last values are read slowly: they end in the states.
            let fast = out.len().min(self.left.saturating_sub(LANES)) / LANES * LANES;
            done = self.decode_fast(&mut out[..fast]);
            self.left -= done;
        }
        for (at, value) in out.iter_mut().enumerate().skip(done) {
            *value = W::narrow(self.one(at % self.lanes)?);
            self.left -= 1;
        }
        Ok(())
    }

    /// Decodes while a whole word of both ends can be read; returns the number of values.
    #[inline]
    fn decode_fast<W: Word>(&mut self, out: &mut [W]) -> usize {
        let wide = size_of::<W>() == 8;
        let (log, mask) = (self.log, (1_u32 << self.log) - 1);
        let bytes = self.raw.bytes;
        let (mut at, mut end) = (self.raw.at, self.end);
        let mut states = self.states;
        let slots = &*self.table.slots;
        let lowers = &self.table.lowers[..];
        let mut done = 0;
        for four in out.as_chunks_mut::<LANES>().0 {
            // 4 values take at most 256 raw bits, and a whole word is read for the last of them.
            if end < 8 || (at >> 3) + 40 > bytes.len() {
                break;
            }
            let mut words = load(&bytes[end - 8..]);
            let mut taken = 0;
            for lane in 0..LANES {
                let state = states[lane];
                let slot = slots[(state & mask) as usize % SLOTS];
                let (share, within) = ((slot >> 39) as u32 & 0xfff, (slot >> 51) as u32);
                let next = (share + 1).wrapping_mul(state >> log).wrapping_add(within);
                let short = u32::from(next < STATE_MIN);
                let word = (words >> 48) as u32;
                states[lane] = (next << (short * 16)) | (word & short.wrapping_neg());
                words <<= short * 16;
                taken += short as usize;

                let raw_bits = (slot >> 32) as u32 & 0x7f;
                let word = load(&bytes[at >> 3..]) >> (at & 7);
                let raw = if wide && raw_bits > 56 {
                    // At most 64 bits, in at most 9 bytes.
                    let high = u64::from(bytes[(at >> 3) + 8]);
                    (word | (high << 1 << (63 - (at & 7)))) & low_mask(raw_bits)
                } else {
                    word & ((1 << (raw_bits & 63)) - 1)
                };
                at += raw_bits as usize;
                let lower = slot & 0xffff_ffff;
                let lower = if wide { lowers.get(lower as usize).copied().unwrap_or(0) } else { lower };
                four[lane] = W::narrow(lower.wrapping_add(raw));
            }
            end -= taken * 2;
            done += LANES;
        }
        self.raw.at = at;
        self.end = end;
        self.states = states;
        done
    }

    /// The next value, which is on this lane.
    fn one(&mut self, lane: usize) -> Result<u64, Damaged> {
        let state = self.states[lane];
        let slot = self.table.slots[(state & ((1 << self.log) - 1)) as usize % SLOTS];
        let (share, within) = ((slot >> 39) as u32 & 0xfff, (slot >> 51) as u32);
        let mut next = (share + 1).wrapping_mul(state >> self.log).wrapping_add(within);
        if next < STATE_MIN {
            self.end = self.end.checked_sub(2).ok_or(Damaged("words are missing"))?;
            next = (next << 16) | load_u16(self.raw.bytes, self.end);
        }
        self.states[lane] = next;
        let raw_bits = (slot >> 32) as u32 & 0x7f;
        let mut kept = 0;
        let mut raw = 0;
        if self.left <= self.lanes {
            kept = raw_bits.min(KEPT_BITS);
            raw = u64::from(next ^ STATE_MIN);
            if raw > low_mask(kept) {
                return Err(Damaged("a state did not end where it began"));
            }
        }
        raw |= self.raw.get(raw_bits - kept)? << kept;
        let lower = slot & 0xffff_ffff;
        let lower = if self.table.lowers.is_empty() { lower } else { self.table.lowers[lower as usize] };
        Ok(lower.wrapping_add(raw))
    }

    /// Checks that all of the bytes were used.
    pub(super) fn finish(self) -> Result<(), Damaged> {
        if self.left != 0 || self.raw.bytes_read() != self.end {
            return Err(Damaged("not all bytes were used"));
        }
        Ok(())
    }
}

#[inline]
fn load_u16(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}
