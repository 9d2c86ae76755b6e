//! Asymmetric numeral systems: the bins of values, coded by their shares, and the bits that follow raw.
//!
//! ```text
//! states | raw bits of all values ──▶ … ◀── words of 16 bits, read from the end backwards
//! ```
//!
//! Value `i` belongs to state `i % lanes`: a processor works on several states at a time. A state is between `2^12` and
//! `2^28`; the encoder starts with the last value of a lane, so the decoder ends there. What a state holds at the end would
//! be lost: it begins with the lowest raw bits of the last value of the lane, and no higher than it must.
//!
//! *Invariants*: a decoder that read all values has used up the words to the last raw bit, and each state is where the
//! encoder began; anything else is damage.

use super::Damaged;
use super::bits::{BitReader, BitWriter, load, low_mask};
use super::tree::{self, LOG_MAX, Leaf, Word};

/// Logarithm of the least state: below it, a state takes a word.
const MIN_LOG: u32 = LOG_MAX;
const STATE_MIN: u32 = 1 << MIN_LOG;
/// States are below 2 to this.
const STATE_BITS: u32 = MIN_LOG + 16;
/// Bits that tell the length of a state.
const LENGTH_BITS: u32 = 4;
/// Raw bits of the last values that their states take; one more, and the state could be too large.
const KEPT_BITS: u32 = 15;
/// More lanes decode faster; each takes about two bytes.
pub(super) const LANES: usize = 4;
/// Entries of a table.
const SLOTS: usize = 1 << LOG_MAX;

/// The number of states for this many values.
pub(super) fn lanes(count: usize) -> usize {
    if count < 64 { 1 } else { LANES }
}

/// Where the state of a lane begins, before its last value and without the bits of that: the least that its share may follow.
fn start_of(share: u32, log: u32) -> u32 {
    share << (MIN_LOG - log)
}

/// Writes the values by their bins behind what is in `bits`.
pub(super) fn encode<W: Word>(
    values: &[W],
    leaves: &[Leaf],
    range_bits: u32,
    log: u32,
    mut bits: BitWriter,
) -> Vec<u8> {
    let (count, lanes) = (values.len(), lanes(values.len()));
    let finder = Finder::of(leaves, range_bits);
    let found: Vec<u16> = values.iter().map(|value| finder.find(value.wide())).collect();
    let starts: Vec<u32> = leaves
        .iter()
        .scan(0, |before, leaf| {
            *before += leaf.share;
            Some(*before - leaf.share)
        })
        .collect();

    let mut words = Vec::with_capacity(count);
    let mut states = [0; LANES];
    for at in (0..count).rev() {
        let leaf = &leaves[usize::from(found[at])];
        let state = &mut states[at % lanes];
        if at + lanes >= count {
            let kept = (values[at].wide() - leaf.lower) & low_mask(leaf.bits.min(KEPT_BITS));
            *state = start_of(leaf.share, log) + kept as u32;
        }
        if *state >= leaf.share << (STATE_BITS - log) {
            words.extend_from_slice(&(*state as u16).to_le_bytes());
            *state >>= 16;
        }
        *state = ((*state / leaf.share) << log) + *state % leaf.share + starts[usize::from(found[at])];
    }

    for &state in &states[..lanes] {
        let length = state.ilog2();
        bits.put(u64::from(length - MIN_LOG), LENGTH_BITS);
        bits.put(u64::from(state) & low_mask(length), length);
    }
    for (at, (value, &leaf)) in values.iter().zip(&found).enumerate() {
        let leaf = &leaves[usize::from(leaf)];
        let kept = if at + lanes >= count { leaf.bits.min(KEPT_BITS) } else { 0 };
        bits.put((value.wide() - leaf.lower) >> kept, leaf.bits - kept);
    }
    let mut out = bits.finish();
    out.extend_from_slice(&words);
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
/// bits 0-32 name | 33-39 raw bits | 40-51 share | 52-63 slot within the bin
/// ```
///
/// The lower end of a bin ends in as many zero bits as follow raw. So a name is the lower end, then a one above as many zeros: the
/// decoder gets the mask of the raw bits by a subtraction. Bins of words with more than 32 bits are named by their number.
pub(super) struct Table {
    slots: Box<[u64; SLOTS]>,
    /// Lower ends of the bins where they have more than 32 bits.
    lowers: Vec<u64>,
}

const RAW_AT: u32 = 33;
const SHARE_AT: u32 = 40;
const WITHIN_AT: u32 = 52;

impl Table {
    /// An empty one.
    pub(super) fn new() -> Table {
        Table { slots: Box::new([0; SLOTS]), lowers: Vec::new() }
    }

    /// Reads the tree of words below `2^range_bits`.
    pub(super) fn read(
        &mut self,
        bits: &mut BitReader<'_>,
        count: usize,
        range_bits: u32,
        log: u32,
    ) -> Result<(), Damaged> {
        self.lowers.clear();
        let wide = range_bits > 32;
        let mut bins = 0;
        tree::read(bits, count, range_bits, log, &mut |leaf, before| {
            bins += 1;
            self.add(leaf, before, wide);
        })?;
        // Its share would not fit, and an encoder packs such words.
        if bins == 1 { Err(Damaged("a table has one bin")) } else { Ok(()) }
    }

    /// Adds a bin, with the sum of the shares before it.
    #[inline]
    fn add(&mut self, leaf: Leaf, before: u32, wide: bool) {
        let name = if wide {
            self.lowers.push(leaf.lower);
            self.lowers.len() as u64 - 1
        } else {
            leaf.lower << 1 | 1 << leaf.bits
        };
        let mut slot = name | u64::from(leaf.bits) << RAW_AT | u64::from(leaf.share & 0xfff) << SHARE_AT;
        if let Some(slots) = self.slots.get_mut(before as usize..(before + leaf.share) as usize) {
            for entry in slots {
                *entry = slot;
                slot = slot.wrapping_add(1 << WITHIN_AT);
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
    bytes: &'a [u8],
    /// The last bytes, with room around them, once they are reached: whole words can be read there too.
    tail: Option<[u8; TAIL_BEFORE + WINDOW + WINDOW]>,
    /// The next raw bit.
    at: usize,
    /// Words that were not read yet end here.
    end: usize,
    /// Values that are left.
    left: usize,
}

/// Bytes that hold the raw bits of a value of each lane, at any bit, and what is loaded with the last of them.
const WINDOW: usize = 48;
/// Bytes of the words that a value of each lane takes.
const TAIL_BEFORE: usize = 2 * LANES;

impl<'a> Decoder<'a> {
    /// Begins with the states that `raw` is at; the words are at the end of its bytes.
    pub(super) fn new(
        table: &'a Table,
        log: u32,
        mut raw: BitReader<'a>,
        count: usize,
    ) -> Result<Decoder<'a>, Damaged> {
        let lanes = lanes(count);
        let mut states = [0; LANES];
        for state in &mut states[..lanes] {
            let length = raw.get(LENGTH_BITS)? as u32 + MIN_LOG;
            *state = 1 << length | raw.get(length)? as u32;
        }
        let (bytes, end) = (raw.bytes, raw.bytes.len());
        Ok(Decoder { table, log, lanes, states, bytes, tail: None, at: raw.at, end, left: count })
    }

    fn bytes(&self) -> &[u8] {
        self.tail.as_ref().map_or(self.bytes, |tail| tail)
    }

    /// Goes on in a copy of the bytes that are left, where they are few.
    fn enter_tail(&mut self) -> bool {
        let left = self.bytes.get(self.at >> 3..self.end);
        match left {
            Some(left) if self.tail.is_none() && left.len() <= WINDOW => {
                let mut tail = [0; TAIL_BEFORE + WINDOW + WINDOW];
                tail[TAIL_BEFORE..][..left.len()].copy_from_slice(left);
                self.tail = Some(tail);
                self.at = TAIL_BEFORE * 8 + (self.at & 7);
                self.end = TAIL_BEFORE + left.len();
                true
            }
            _ => false,
        }
    }

    /// The next values; the last call for a stripe must ask for all that are left.
    pub(super) fn decode<W: Word>(&mut self, out: &mut [W]) -> Result<(), Damaged> {
        let mut done = 0;
        if self.lanes == LANES {
            // The last values are read slowly: they end in the states.
            let fast = out.len().min(self.left.saturating_sub(LANES)) / LANES * LANES;
            done = self.decode_fast(&mut out[..fast]);
            if done < fast && self.enter_tail() {
                done += self.decode_fast(&mut out[done..fast]);
            }
            self.left -= done;
        }
        for (at, value) in out.iter_mut().enumerate().skip(done) {
            *value = W::narrow(self.one(at % self.lanes)?);
            self.left -= 1;
        }
        Ok(())
    }

    /// Decodes while whole words of both ends can be read; returns the number of values.
    fn decode_fast<W: Word>(&mut self, out: &mut [W]) -> usize {
        // Shifts by a constant are much cheaper.
        match self.log {
            12 => self.decode_fours::<W, 12>(out),
            11 => self.decode_fours::<W, 11>(out),
            10 => self.decode_fours::<W, 10>(out),
            9 => self.decode_fours::<W, 9>(out),
            8 => self.decode_fours::<W, 8>(out),
            7 => self.decode_fours::<W, 7>(out),
            _ => 0,
        }
    }

    #[inline]
    fn decode_fours<W: Word, const LOG: u32>(&mut self, out: &mut [W]) -> usize {
        let wide = size_of::<W>() == 8;
        let bytes = self.bytes();
        let (mut at, mut end) = (self.at, self.end);
        let mut states = self.states;
        let slots = &*self.table.slots;
        let lowers = &self.table.lowers[..];
        let mut done = 0;
        for four in out.as_chunks_mut::<LANES>().0 {
            // 4 words take at most 4 times 64 raw bits, and more are loaded for the last of them.
            let ends = end.checked_sub(8).and_then(|from| bytes.get(from..end)?.as_chunks::<2>().0.try_into().ok());
            let Some(words): Option<&[[u8; 2]; 4]> = ends else { break };
            let Some(window) = bytes.get(at >> 3..).and_then(<[u8]>::first_chunk::<WINDOW>) else { break };
            let mut taken = 0_usize;
            let mut bit = at & 7;
            for lane in 0..LANES {
                let state = states[lane];
                let slot = slots[state as usize % (1 << LOG) % SLOTS];
                let share = (slot >> SHARE_AT) as u32 & 0xfff;
                let next = share.wrapping_mul(state >> LOG).wrapping_add((slot >> WITHIN_AT) as u32);
                // No branch: no processor foresees which states take a word.
                let short = next < STATE_MIN;
                let word = u32::from(u16::from_le_bytes(words[3 - taken % 4]));
                states[lane] = if short { next << 16 | word } else { next };
                taken += usize::from(short);

                let raw_bits = (slot >> RAW_AT) as u32 & 0x7f;
                let byte = bit >> 3 & 31;
                let loaded = load(&window[byte..byte + 8]) >> (bit & 7);
                four[lane] = if wide {
                    // Up to 64 bits are in up to 9 bytes.
                    let loaded = loaded | u64::from(window[byte + 8]) << 1 << (63 - (bit & 7));
                    let lower = lowers.get(slot as u32 as usize).copied().unwrap_or(0);
                    W::narrow(lower.wrapping_add(loaded & low_mask(raw_bits)))
                } else {
                    let mask = (slot ^ slot.wrapping_sub(1)) >> 1;
                    let name = slot >> 1;
                    W::narrow(((loaded ^ name) & mask) ^ name)
                };
                bit += raw_bits as usize;
            }
            at = (at & !7) + bit;
            end -= taken * 2;
            done += LANES;
        }
        self.at = at;
        self.end = end;
        self.states = states;
        done
    }

    /// The next value, which is on this lane.
    fn one(&mut self, lane: usize) -> Result<u64, Damaged> {
        let state = self.states[lane];
        let slot = self.table.slots[(state & ((1 << self.log) - 1)) as usize % SLOTS];
        let share = (slot >> SHARE_AT) as u32 & 0xfff;
        let mut next = share.wrapping_mul(state >> self.log).wrapping_add((slot >> WITHIN_AT) as u32);
        let last = self.left <= self.lanes;
        if next < STATE_MIN && !last {
            self.end = self.end.checked_sub(2).ok_or(Damaged("words are missing"))?;
            let word = self.bytes().get(self.end..self.end + 2).ok_or(Damaged("words are missing"))?;
            next = (next << 16) | u32::from(word[0]) | u32::from(word[1]) << 8;
        }
        self.states[lane] = next;
        let raw_bits = (slot >> RAW_AT) as u32 & 0x7f;
        let mut kept = 0;
        let mut raw = 0;
        if last {
            kept = raw_bits.min(KEPT_BITS);
            raw = u64::from(next.wrapping_sub(start_of(share, self.log)));
            if raw > low_mask(kept) {
                return Err(Damaged("a state did not end where it began"));
            }
        }
        let mut reader = BitReader { bytes: self.bytes(), at: self.at };
        raw |= reader.get(raw_bits - kept)? << kept;
        self.at = reader.at;
        if self.table.lowers.is_empty() {
            let name = slot & ((1 << RAW_AT) - 1);
            Ok(((name & name.wrapping_sub(1)) >> 1) | raw)
        } else {
            Ok(self.table.lowers[slot as u32 as usize % SLOTS].wrapping_add(raw))
        }
    }

    /// Checks that all of the bytes were used.
    pub(super) fn finish(self) -> Result<(), Damaged> {
        if self.left != 0 || self.at.div_ceil(8) != self.end {
            return Err(Damaged("not all bytes were used"));
        }
        Ok(())
    }
}
