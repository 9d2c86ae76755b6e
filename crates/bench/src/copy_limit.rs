//! The limit of the memory: the same blocks copied into the same kind of mapping by nothing but a loop, and read back.
//!
//! Copies follow the store's own discipline: blocks start on cache lines, and non-temporal copies are fenced per block,
//! because a put is durable at the medium's level before it is visible. All unsafe code of this program is here.
#![expect(unsafe_code, reason = "memory mappings and non-temporal stores have no safe form")]

use super::engine::{Scratch, side_by_side};
use super::options::Plan;
use super::results::Results;
use super::source::{Blocks, Buffer, Warmth};
use crate::Result;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Bytes between two looks at the clock.
const CLOCK_EVERY: usize = 1 << 20;

/// Measures copies and reads for blocks of one size.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, bytes: usize, results: &mut Results) -> Result<()> {
    let scratch = Scratch::new(&plan.dir)?;
    let mut mapping = Mapping::new(&scratch, plan.hot_bytes as usize)?;
    for threads in [1, 2] {
        for warmth in Warmth::BOTH {
            for (word, copy) in [("plain", plain as Copy), ("stream", stream_copy())] {
                let rate = copying(&mut mapping, buffer, bytes, warmth, threads, copy, plan.copy);
                results.record(&format!("copy.{word}.{}.{threads}", warmth.word()), bytes, rate);
            }
        }
        results.record(&format!("read.{threads}"), bytes, reading(&mapping, threads, plan.copy));
    }
    Ok(())
}

/// Copies one block; the destination begins on a cache line and has the block's length.
type Copy = fn(&mut [u8], &[u8]);

fn copying(
    mapping: &mut Mapping,
    buffer: &Buffer,
    bytes: usize,
    warmth: Warmth,
    threads: usize,
    copy: Copy,
    time: Duration,
) -> f64 {
    let share = mapping.bytes / threads / 64 * 64;
    let work = |(thread, part): (usize, &mut [u8])| {
        let mut blocks: Blocks<'_> = buffer.blocks(bytes, warmth, thread, threads);
        let stride = bytes.next_multiple_of(64);
        let mut copied = 0_u64;
        let from = Instant::now();
        loop {
            for group in part.chunks_mut(CLOCK_EVERY.max(stride) / stride * stride) {
                for to in group.chunks_exact_mut(stride) {
                    copy(&mut to[..bytes], blocks.next_block());
                    copied += bytes as u64;
                }
                if from.elapsed() >= time {
                    return copied;
                }
            }
        }
    };
    let parts: Vec<_> = mapping.slice_mut().chunks_mut(share).take(threads).enumerate().collect();
    side_by_side(parts, work)
}

fn reading(mapping: &Mapping, threads: usize, time: Duration) -> f64 {
    let share = mapping.bytes / threads / 64 * 64;
    let work = |part: &[u8]| {
        let mut read = 0_u64;
        let from = Instant::now();
        loop {
            for group in part.chunks(CLOCK_EVERY) {
                black_box(sum(group));
                read += group.len() as u64;
                if from.elapsed() >= time {
                    return read;
                }
            }
        }
    };
    side_by_side(mapping.slice().chunks(share).take(threads).collect(), work)
}

/// A file in memory, mapped and shared like a hot region, with every page there.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(scratch: &Scratch, bytes: usize) -> Result<Mapping> {
        let path = scratch.path().join("copy");
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file of the same length that no other
        // process has open; it replaces no mapping.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or("the mapping starts at no address")?;
        let mut mapping = Mapping { start, bytes };
        // Populating maps pages of holes for reading only, on some kernels: write each once.
        mapping.slice_mut().chunks_mut(4096).for_each(|page| page[0] = 1);
        Ok(mapping)
    }

    fn slice(&self) -> &[u8] {
        // SAFETY: `start` and `bytes` are the mapping that `new` made and only `drop` ends; it is borrowed with self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `slice`; `&mut self` makes it the only borrow, and no other process knows the file.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; slices of it cannot outlive self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn plain(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
    black_box(to);
}

/// The instructions that [`stream_copy`] takes on this machine.
pub(super) fn stream_instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return if is_x86_feature_detected!("avx512f") { "AVX-512" } else { "SSE2" };
    #[cfg(not(target_arch = "x86_64"))]
    return "none: plain copies";
}

fn stream_copy() -> Copy {
    #[cfg(target_arch = "x86_64")]
    return if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F, as just asked; `whole_lines` upholds the alignment and the length.
        |to, from| unsafe { x86::stream_avx512(x86::whole_lines(to, from), from) }
    } else {
        // SAFETY: every x86-64 processor has SSE2; `whole_lines` upholds the alignment and the length.
        |to, from| unsafe { x86::stream_sse2(x86::whole_lines(to, from), from) }
    };
    #[cfg(not(target_arch = "x86_64"))]
    return plain;
}

/// Touches every byte as fast as memory gives them.
fn sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F, as just asked.
        return unsafe { x86::sum_avx512(bytes) };
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let total = words.iter().fold(0_u64, |total, word| total.wrapping_add(u64::from_le_bytes(*word)));
    total.wrapping_add(rest.iter().map(|&byte| u64::from(byte)).sum())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm512_add_epi64, _mm512_loadu_si512,
        _mm512_reduce_add_epi64, _mm512_setzero_si512, _mm512_stream_si512,
    };

    /// The destination, once it is sure that it consists of as many whole cache lines as the source has bytes.
    pub(super) fn whole_lines<'a>(to: &'a mut [u8], from: &[u8]) -> &'a mut [u8] {
        assert!(to.len() == from.len() && to.len().is_multiple_of(64) && to.as_ptr().addr().is_multiple_of(64));
        to
    }

    /// # Safety
    /// AVX-512F; `to` begins on a cache line and has `from`'s length, a multiple of 64.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn stream_avx512(to: &mut [u8], from: &[u8]) {
        for (to, from) in to.chunks_exact_mut(64).zip(from.chunks_exact(64)) {
            // SAFETY: both are 64 bytes; the destination is aligned to 64, as the caller promised.
            unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), _mm512_loadu_si512(from.as_ptr().cast())) };
        }
        _mm_sfence();
    }

    /// # Safety
    /// `to` begins on a cache line and has `from`'s length, a multiple of 64.
    #[target_feature(enable = "sse2")]
    pub(super) unsafe fn stream_sse2(to: &mut [u8], from: &[u8]) {
        for (to, from) in to.chunks_exact_mut(16).zip(from.chunks_exact(16)) {
            let to: *mut __m128i = to.as_mut_ptr().cast();
            // SAFETY: both are 16 bytes; the destination is aligned to 16, as the caller promised.
            unsafe { _mm_stream_si128(to, _mm_loadu_si128(from.as_ptr().cast())) };
        }
        _mm_sfence();
    }

    /// Adds up all 64-bit words of the whole cache lines.
    #[target_feature(enable = "avx512f")]
    pub(super) fn sum_avx512(bytes: &[u8]) -> u64 {
        let mut totals = [_mm512_setzero_si512(); 4];
        for lines in bytes.chunks_exact(256) {
            for (total, line) in totals.iter_mut().zip(lines.chunks_exact(64)) {
                // SAFETY: the line is 64 bytes; the load needs no alignment.
                let line = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
                *total = _mm512_add_epi64(*total, line);
            }
        }
        let [a, b, c, d] = totals;
        _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_copy_and_sums_see_every_byte() {
        let dir = Scratch::new(&std::env::temp_dir()).unwrap();
        let mut mapping = Mapping::new(&dir, 1 << 20).unwrap();
        let buffer = Buffer::new(1 << 20);
        for bytes in [64, 1024, 10_240] {
            for copy in [plain as Copy, stream_copy()] {
                let block = buffer.blocks(bytes, Warmth::Cold, 0, 1).next_block();
                mapping.slice_mut().fill(0);
                copy(&mut mapping.slice_mut()[..bytes], block);
                assert_eq!(&mapping.slice()[..bytes], block);
                assert!(mapping.slice()[bytes..].iter().all(|&byte| byte == 0));
            }
        }
        let before = sum(mapping.slice());
        mapping.slice_mut()[777] ^= 1;
        assert_ne!(sum(mapping.slice()), before);
    }
}
