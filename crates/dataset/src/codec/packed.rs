//! Values or their byte planes, compressed by zstd.
//!
//! ```text
//! layout (in the first byte) | zstd frame without its magic number
//! ```
//!
//! *Planes*: the first bytes of all values, then their second bytes, and so on. *Delta planes*: the planes of folded differences
//! from the value before. Both suit numbers whose patterns repeat, which the numeric coder does not see.

use super::bits::low_mask;
use super::{Damaged, Effort};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, compress_bound};

/// How values are laid out before they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Values = 0,
    Planes = 1,
    DeltaPlanes = 2,
}

impl Layout {
    /// The layout with this number.
    pub(super) fn of_code(code: u8) -> Option<Layout> {
        [Layout::Values, Layout::Planes, Layout::DeltaPlanes].get(usize::from(code)).copied()
    }
}

/// What each zstd frame begins with; the format leaves it out.
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Levels of zstd.
const DEFAULT_LEVEL: i32 = 3;
const BEST_LEVEL: i32 = 19;

thread_local! {
    /// Contexts cost more to make than a small stripe to code.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses bytes; `None` where zstd cannot.
pub(super) fn compress(bytes: &[u8], effort: Effort) -> Option<Vec<u8>> {
    let level = match effort {
        Effort::Default => DEFAULT_LEVEL,
        Effort::Best => BEST_LEVEL,
    };
    COMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Some(compressor(level)?);
        }
        let compressor = kept.as_mut()?;
        compressor.set_parameter(CParameter::CompressionLevel(level)).ok()?;
        let frame = compressor.compress(bytes).ok()?;
        Some(frame.strip_prefix(&MAGIC)?.to_vec())
    })
}

fn compressor(level: i32) -> Option<Compressor<'static>> {
    let mut compressor = Compressor::new(level).ok()?;
    for flag in [CParameter::ContentSizeFlag(false), CParameter::ChecksumFlag(false), CParameter::DictIdFlag(false)] {
        compressor.set_parameter(flag).ok()?;
    }
    Some(compressor)
}

/// Decompresses to just the bytes of `out`.
pub(super) fn decompress(encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    // No encoder writes more, and the copy below must not be larger than the output asks for.
    if encoded.len() > compress_bound(out.len()) {
        return Err(Damaged("a frame is too long"));
    }
    let frame = [&MAGIC[..], encoded].concat();
    let len = DECOMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Decompressor::new().ok();
        }
        let decompressor = kept.as_mut().ok_or(Damaged("no memory for zstd"))?;
        decompressor.decompress_to_buffer(&frame, out).map_err(|_| Damaged("zstd does not decompress it"))
    })?;
    if len == out.len() { Ok(()) } else { Err(Damaged("zstd gives fewer bytes")) }
}

/// Compresses values of `width` bytes in a layout; `wide` has the same values as words.
pub(super) fn encode(
    layout: Layout,
    values: &[u8],
    wide: &[u64],
    width: usize,
    effort: Effort,
    first: u8,
) -> Option<Vec<u8>> {
    let mask = low_mask(width as u32 * 8);
    let compressed = match layout {
        Layout::Values => compress(values, effort),
        Layout::Planes => compress(&planes(wide.iter().copied(), wide.len(), width), effort),
        Layout::DeltaPlanes => {
            let mut before = 0;
            let fold = |&word: &u64| {
                let delta = word.wrapping_sub(before) & mask;
                before = word;
                (delta << 1 ^ (delta >> (width * 8 - 1)).wrapping_neg()) & mask
            };
            compress(&planes(wide.iter().map(fold), wide.len(), width), effort)
        }
    };
    let mut out = vec![first];
    out.extend_from_slice(&compressed?);
    Some(out)
}

/// The bytes of words by their significance.
fn planes(words: impl Iterator<Item = u64>, count: usize, width: usize) -> Vec<u8> {
    let mut planes = vec![0; count * width];
    for (at, word) in words.enumerate() {
        for (byte, value) in word.to_le_bytes()[..width].iter().enumerate() {
            planes[byte * count + at] = *value;
        }
    }
    planes
}

/// Decompresses values of `width` bytes.
pub(super) fn decode(layout: Layout, encoded: &[u8], out: &mut [u8], width: usize) -> Result<(), Damaged> {
    if layout == Layout::Values {
        return decompress(encoded, out);
    }
    let mut planes = vec![0; out.len()];
    decompress(encoded, &mut planes)?;
    match width {
        1 => out.copy_from_slice(&planes),
        2 => join::<2>(&planes, out),
        4 => join::<4>(&planes, out),
        _ => join::<8>(&planes, out),
    }
    if layout == Layout::DeltaPlanes {
        match width {
            1 => sum::<1>(out),
            2 => sum::<2>(out),
            4 => sum::<4>(out),
            _ => sum::<8>(out),
        }
    }
    Ok(())
}

/// Puts the planes together.
fn join<const WIDTH: usize>(planes: &[u8], out: &mut [u8]) {
    let count = out.len() / WIDTH;
    for (byte, plane) in planes.chunks_exact(count.max(1)).enumerate() {
        for (value, &from) in out.as_chunks_mut::<WIDTH>().0.iter_mut().zip(plane) {
            value[byte % WIDTH] = from;
        }
    }
}

/// Sums folded differences.
fn sum<const WIDTH: usize>(out: &mut [u8]) {
    let mut before = 0_u64;
    for value in out.as_chunks_mut::<WIDTH>().0 {
        let mut word = [0; 8];
        word[..WIDTH].copy_from_slice(value);
        let folded = u64::from_le_bytes(word);
        before = before.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg());
        value.copy_from_slice(&before.to_le_bytes()[..WIDTH]);
    }
}
