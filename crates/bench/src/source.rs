//! Where puts and copies take their bytes from: a few blocks that stay in the cache, or a walk through more memory than
//! any cache holds.

/// Whether the source's bytes are in the processor's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warmth {
    Cached,
    Cold,
}

impl Warmth {
    pub(super) const BOTH: [Warmth; 2] = [Warmth::Cached, Warmth::Cold];

    /// The word in series names.
    pub(super) fn word(self) -> &'static str {
        match self {
            Warmth::Cached => "cached",
            Warmth::Cold => "cold",
        }
    }
}

/// Blocks in the cached source: 80 KiB at 10 KiB, which a second-level cache holds.
const CACHED_BLOCKS: usize = 8;
const LINE: usize = 64;

/// The memory that all sources are parts of: written once, so that every page is there.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes to skip to the first cache line.
    skip: usize,
}

impl Buffer {
    /// Noise of at least this many bytes.
    pub(super) fn new(bytes: usize) -> Buffer {
        let mut noise = vec![0_u8; bytes.next_multiple_of(LINE) + LINE];
        for (at, chunk) in noise.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&mix(at as u64).to_le_bytes());
        }
        let skip = noise.as_ptr().align_offset(LINE).min(LINE);
        Buffer { bytes: noise, skip }
    }

    /// The blocks of thread `thread` of `threads`.
    pub(super) fn blocks(&self, bytes: usize, warmth: Warmth, thread: usize, threads: usize) -> Blocks<'_> {
        let usable = &self.bytes[self.skip..];
        let stride = bytes.next_multiple_of(LINE);
        let share = usable.len() / threads / stride * stride;
        let own = &usable[thread * share..(thread + 1) * share];
        let own = match warmth {
            Warmth::Cached => &own[..(CACHED_BLOCKS * stride).min(own.len())],
            Warmth::Cold => own,
        };
        Blocks { own, bytes, stride, at: 0 }
    }
}

/// Endless blocks of one size, each on its own cache lines.
pub(super) struct Blocks<'a> {
    own: &'a [u8],
    bytes: usize,
    stride: usize,
    at: usize,
}

impl<'a> Blocks<'a> {
    /// The next block.
    #[inline]
    pub(super) fn next_block(&mut self) -> &'a [u8] {
        if self.at + self.stride > self.own.len() {
            self.at = 0;
        }
        let block = &self.own[self.at..self.at + self.bytes];
        self.at += self.stride;
        block
    }
}

/// A bijection of 64-bit numbers that looks random (the finaliser of splitmix64): random keys that never repeat.
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_wrap_and_threads_share_nothing() {
        let buffer = Buffer::new(64 * 40);
        for warmth in Warmth::BOTH {
            let mut seen = Vec::new();
            for thread in 0..2 {
                let mut blocks = buffer.blocks(100, warmth, thread, 2);
                let each: Vec<usize> = (0..50).map(|_| blocks.next_block().as_ptr().addr()).collect();
                assert!(each.iter().all(|address| address % 64 == 0));
                seen.push(each);
            }
            assert!(seen[0].iter().all(|address| !seen[1].contains(address)));
        }
    }
}
