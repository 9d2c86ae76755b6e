//! Copying a payload into the region and computing its CRC-32C in one pass.
//!
//! From 2,048 bytes on the stores are non-temporal: they fill whole cache lines of a destination that nobody reads soon,
//! without first reading it, and need a store fence before the record is published. The checksum folds 256 bytes at a
//! time by carry-less multiplication (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel 2009); the constants are x^n mod P and are computed, not copied (`fold_constant`).
//!
//! *Invariants*: the same checksum on every path (test `all_paths_agree`).

#![expect(unsafe_code, reason = "vector stores into mapped memory")]

use forebay_core::{crc32c, crc32c_append};

/// Payloads from this length on are folded by vectors; shorter ones are left to the library.
// Setting up and reducing the lanes costs about as much as the library needs for a few hundred bytes.
const FOLD_BYTES_MIN: usize = 512;
/// Payloads from this length on go past the cache. Below, draining the write-combining buffers at the record's fence
/// costs more than the cache does (decision record 0002).
pub(crate) const STREAM_BYTES_MIN: usize = 2048;
/// How far ahead of the copy a source is prefetched, in bytes, and how much of it before the copy begins.
const PREFETCH_BYTES: usize = 1024;

// What is copied past the cache is folded in the same pass; the first step of a fold takes 256 bytes.
const _: () = assert!(FOLD_BYTES_MIN <= STREAM_BYTES_MIN && FOLD_BYTES_MIN >= 256);

/// Copies `source` to `target` and returns its CRC-32C. The caller issues a store fence before publishing.
///
/// # Safety
/// `target` is valid for writes of `source.len()` bytes, does not overlap `source`, and nobody else accesses it.
#[inline]
pub(crate) unsafe fn copy_checksum(target: *mut u8, source: &[u8]) -> u32 {
    // Non-temporal stores want whole lines; places begin at one, other targets take the ordinary way.
    #[cfg(target_arch = "x86_64")]
    if source.len() >= FOLD_BYTES_MIN && target.addr().is_multiple_of(64) && x86::folding_available() {
        // SAFETY: the processor has the features; the caller vouches for `target`, which is aligned to a line.
        return unsafe {
            if source.len() >= STREAM_BYTES_MIN {
                x86::fold::<{ x86::STREAM }>(0, target, source)
            } else {
                x86::fold::<{ x86::STORE }>(0, target, source)
            }
        };
    }
    // SAFETY: the caller vouches for `target`.
    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
    crc32c(source)
}

/// CRC-32C of `bytes`, which may lie in memory that no cache holds: they are prefetched, which the library does not do.
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= FOLD_BYTES_MIN && x86::folding_available() {
        // SAFETY: the processor has the features; nothing is written in this mode.
        return unsafe { x86::fold::<{ x86::READ }>(0, std::ptr::null_mut(), bytes) };
    }
    crc32c(bytes)
}

/// Copies `source` into ordinary memory of the same length; returns the CRC-32C of what made `crc`, followed by it.
#[inline]
pub fn copy_checksum_append(crc: u32, target: &mut [u8], source: &[u8]) -> u32 {
    assert_eq!(target.len(), source.len());
    #[cfg(target_arch = "x86_64")]
    if source.len() >= FOLD_BYTES_MIN && x86::folding_available() {
        // SAFETY: the processor has the features; `target` is as long as `source`, and this mode takes any alignment.
        return unsafe { x86::fold::<{ x86::PLAIN }>(crc, target.as_mut_ptr(), source) };
    }
    target.copy_from_slice(source);
    crc32c_append(crc, source)
}

/// Asks for the first bytes of a source that will be copied soon: they come while the place for them is found.
#[inline]
pub fn will_copy(source: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if source.len() >= FOLD_BYTES_MIN {
        for line in source[..source.len().min(PREFETCH_BYTES)].chunks(64) {
            // SAFETY: prefetching never faults; SSE is part of x86_64.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = source;
}

/// Asks for the line in which something begins: it comes while something else is done.
#[inline]
pub fn will_look<T>(item: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching never faults; SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(item).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}

/// Orders all earlier stores, non-temporal ones included, before all later ones.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Writes the cache lines of a range back to the medium; ordered by the next [`store_fence`].
pub(crate) fn flush_lines(start: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    x86::flush_lines(start, length);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, length);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{PREFETCH_BYTES, crc32c_append};
    use std::arch::x86_64::*;
    use std::sync::LazyLock;

    static FOLDING: LazyLock<bool> = LazyLock::new(|| {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    });
    static WRITE_BACK: LazyLock<bool> = LazyLock::new(|| {
        // CPUID leaf 7, EBX bit 24: clwb, which leaves the line in the cache, unlike clflush. The standard library has no name
        // for this feature.
        __cpuid_count(7, 0).ebx & 1 << 24 != 0
    });

    #[inline]
    pub(super) fn folding_available() -> bool {
        *FOLDING
    }

    /// x^n mod P for the reflected CRC-32C, shifted as the folding multiplication wants it.
    const fn fold_constant(n: u32) -> u64 {
        // Reflected: bit 31 is x^0. Multiply by x n times.
        let mut value = 1_u32 << 31;
        let mut power = 0;
        while power < n {
            let carry = value & 1;
            value = value >> 1 ^ if carry == 1 { 0x82F6_3B78 } else { 0 };
            power += 1;
        }
        (value as u64) << 1
    }

    // Folding a 128-bit lane over d bits: its low half is multiplied by x^(d+64-1-32+1)…: low = x^(d+32), high = x^(d-32).
    const FOLD_2048: (u64, u64) = (fold_constant(2048 + 32), fold_constant(2048 - 32));
    const FOLD_512: (u64, u64) = (fold_constant(512 + 32), fold_constant(512 - 32));
    const FOLD_128: (u64, u64) = (fold_constant(128 + 32), fold_constant(128 - 32));

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    fn fold_512(state: __m512i, data: __m512i, constants: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(state, constants);
        let high = _mm512_clmulepi64_epi128::<0x11>(state, constants);
        _mm512_ternarylogic_epi64::<0x96>(low, high, data)
    }

    /// Modes of [`fold`]: only the checksum, with an ordinary copy, with a non-temporal copy, with an ordinary copy to
    /// memory of any alignment.
    pub(super) const READ: u8 = 0;
    pub(super) const STORE: u8 = 1;
    pub(super) const STREAM: u8 = 2;
    pub(super) const PLAIN: u8 = 3;

    /// Bytes that one step of the main loop takes: four lanes of a register each.
    const BLOCK_BYTES: usize = 256;
    const LINE_BYTES: usize = 64;

    /// One pass over `source`: checksum of what made `crc` followed by it, and by MODE a copy to `target`.
    ///
    /// # Safety
    /// The features are there and `source` has at least 256 bytes. Except in mode READ, `target` is valid for writes of
    /// `source.len()` bytes; except in mode PLAIN too, it is aligned to 64.
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    // SAFETY: the obligations of callers are listed above; each block below says why that is enough for it.
    pub(super) unsafe fn fold<const MODE: u8>(crc: u32, target: *mut u8, source: &[u8]) -> u32 {
        debug_assert!(source.len() >= BLOCK_BYTES, "the lanes begin with one whole block");
        debug_assert!(
            MODE == READ || MODE == PLAIN || target.addr().is_multiple_of(LINE_BYTES),
            "lines are stored whole"
        );
        // SAFETY: as this function's callers guarantee.
        let state = unsafe { fold_blocks::<MODE>(crc, target, source) };
        let blocks_end = source.len() / BLOCK_BYTES * BLOCK_BYTES;
        // SAFETY: as above.
        let state = unsafe { fold_lines::<MODE>(state, blocks_end, target, source) };
        let lines_end = source.len() / LINE_BYTES * LINE_BYTES;
        let crc = reduce(state);
        let tail = &source[lines_end..];
        if MODE != READ && !tail.is_empty() {
            // SAFETY: `target` is as long as `source`.
            unsafe { std::ptr::copy_nonoverlapping(tail.as_ptr(), target.add(lines_end), tail.len()) };
        }
        crc32c_append(crc, tail)
    }

    /// The line at `offset`, read from `source` and copied to `target` as MODE says.
    ///
    /// # Safety
    /// As for [`fold`]; `offset` is a multiple of 64, and the line lies within `source`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    // SAFETY: the obligations of callers are listed above.
    unsafe fn move_line<const MODE: u8>(target: *mut u8, source: &[u8], offset: usize) -> __m512i {
        // SAFETY: the line lies within `source`.
        let data = unsafe { _mm512_loadu_si512(source.as_ptr().add(offset).cast()) };
        match MODE {
            // SAFETY: `target` is as long as `source` and aligned to 64, the offset is a multiple of 64.
            STREAM => unsafe { _mm512_stream_si512(target.add(offset).cast(), data) },
            // SAFETY: as above.
            STORE => unsafe { _mm512_store_si512(target.add(offset).cast(), data) },
            // SAFETY: as long as `source`; this store takes any alignment.
            PLAIN => unsafe { _mm512_storeu_si512(target.add(offset).cast(), data) },
            _ => {}
        }
        data
    }

    /// Folds all whole blocks into one register. Four lanes side by side, because a multiplication takes several cycles
    /// and does not wait for those of the other lanes.
    ///
    /// # Safety
    /// As for [`fold`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    // SAFETY: the obligations of callers are listed above; offsets below stay within the whole blocks of `source`.
    unsafe fn fold_blocks<const MODE: u8>(crc: u32, target: *mut u8, source: &[u8]) -> __m512i {
        // SAFETY: as this function's callers guarantee; every line that is asked for lies in a whole block.
        let line = |offset: usize| unsafe { move_line::<MODE>(target, source, offset) };
        let mut lanes = [line(0), line(64), line(128), line(192)];
        // The register, all ones where nothing came before, enters with the first four bytes.
        lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(!crc as i32)));
        let over_2048 = broadcast(FOLD_2048);
        for block in 1..source.len() / BLOCK_BYTES {
            let offset = block * BLOCK_BYTES;
            for line in 0..4 {
                // Prefetching past the end of the source is harmless: it never faults.
                let ahead = source.as_ptr().wrapping_add(offset + PREFETCH_BYTES + line * LINE_BYTES);
                _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
            }
            let data = [line(offset), line(offset + 64), line(offset + 128), line(offset + 192)];
            for at in 0..4 {
                lanes[at] = fold_512(lanes[at], data[at], over_2048);
            }
        }
        let over_512 = broadcast(FOLD_512);
        let mut state = lanes[0];
        for lane in &lanes[1..] {
            state = fold_512(state, *lane, over_512);
        }
        state
    }

    /// Folds the whole lines from `from` on, less than a block of them, into the register.
    ///
    /// # Safety
    /// As for [`fold`]; `from` is a multiple of 64.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    // SAFETY: the obligations of callers are listed above; the loop ends before a line that is not whole.
    unsafe fn fold_lines<const MODE: u8>(mut state: __m512i, from: usize, target: *mut u8, source: &[u8]) -> __m512i {
        let over_512 = broadcast(FOLD_512);
        let mut offset = from;
        while offset + LINE_BYTES <= source.len() {
            // SAFETY: as this function's callers guarantee; the line lies within `source`.
            let data = unsafe { move_line::<MODE>(target, source, offset) };
            state = fold_512(state, data, over_512);
            offset += LINE_BYTES;
        }
        state
    }

    /// The checksum that a register of 512 bits holds: 512 to 128 bits by folding, 128 to 32 by the processor's own
    /// instruction.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    fn reduce(state: __m512i) -> u32 {
        let over_128 = _mm_set_epi64x(FOLD_128.1 as i64, FOLD_128.0 as i64);
        let parts = [
            _mm512_extracti32x4_epi32::<0>(state),
            _mm512_extracti32x4_epi32::<1>(state),
            _mm512_extracti32x4_epi32::<2>(state),
            _mm512_extracti32x4_epi32::<3>(state),
        ];
        let mut folded = parts[0];
        for part in &parts[1..] {
            let low = _mm_clmulepi64_si128::<0x00>(folded, over_128);
            let high = _mm_clmulepi64_si128::<0x11>(folded, over_128);
            folded = _mm_xor_si128(_mm_xor_si128(low, high), *part);
        }
        // The remaining 128 bits are a message whose checksum, from a zero register, is the checksum so far.
        let first = _mm_crc32_u64(0, _mm_cvtsi128_si64(folded) as u64);
        !(_mm_crc32_u64(first, _mm_extract_epi64::<1>(folded) as u64) as u32)
    }

    /// A pair of constants in each of the four lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
    fn broadcast(pair: (u64, u64)) -> __m512i {
        _mm512_broadcast_i32x4(_mm_set_epi64x(pair.1 as i64, pair.0 as i64))
    }

    pub(super) fn flush_lines(start: *const u8, length: usize) {
        let first = start.addr() & !63;
        let mut line = start.wrapping_sub(start.addr() - first);
        while line.addr() < start.addr() + length {
            if *WRITE_BACK {
                // SAFETY: clwb reads nothing and faults only where a load would; the line belongs to a mapped range.
                unsafe { std::arch::asm!("clwb [{0}]", in(reg) line, options(nostack, preserves_flags)) };
            } else {
                // SAFETY: as above, for clflush.
                unsafe { _mm_clflush(line) };
            }
            line = line.wrapping_add(64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Aligned([u8; 20_000]);

    #[test]
    fn all_paths_agree() {
        let source: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut target = Box::new(Aligned([0; 20_000]));
        let lengths = (0..1500).chain([2047, 2048, 2049, 4096, 7200, 10_240, 16_384, 19_999]);
        for length in lengths {
            for start in [0, 1, 7] {
                let length = length.min(source.len() - start);
                let part = &source[start..start + length];
                target.0.fill(0xEE);
                // SAFETY: the target has 20,000 bytes.
                let crc = unsafe { copy_checksum(target.0.as_mut_ptr(), part) };
                store_fence();
                assert_eq!(crc, crc32c(part), "length {length}");
                assert_eq!(checksum(part), crc);
                assert_eq!(&target.0[..length], part);
                assert_eq!(target.0[length], 0xEE);
            }
        }
    }

    #[test]
    fn a_checksum_goes_on_over_pieces_of_any_length_and_alignment() {
        let source: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for first in [0, 1, 8, 511, 512, 513, 4096, 9999, 19_000] {
            for shift in [0, 8, 13] {
                let mut target = vec![0xEE; shift + source.len() + 1];
                let (one, two) = target[shift..shift + source.len()].split_at_mut(first);
                let crc = copy_checksum_append(0, one, &source[..first]);
                assert_eq!(copy_checksum_append(crc, two, &source[first..]), crc32c(&source), "{first} {shift}");
                assert_eq!(target[shift..shift + source.len()], source);
                assert_eq!(target[shift + source.len()], 0xEE);
            }
        }
    }

    #[test]
    fn flushing_touches_nothing() {
        let bytes = vec![7_u8; 1000];
        flush_lines(bytes[3..].as_ptr(), 900);
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
