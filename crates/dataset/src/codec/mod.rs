//! Lossless coding of the values of one stream.
//!
//! ```text
//! stripe ── Coder: the encoding that suited the last stripe, or the best by estimates ──▶ first byte | the encoding's own bytes
//! first byte: encoding (low 4 bits), its parameter (high 4 bits)
//! ```
//!
//! The bytes are specified in `docs/format-dataset-codec.md`.
//!
//! *Invariants*: decoding gives every bit back; hostile bytes give `Damaged`, never a panic, and never take more memory than a
//! small multiple of the output (`tests`, and the fuzz target `codec`).
//!
//! *Not here*: checksums, which a stripe's directory has; which streams exist.

mod bits;
mod bools;
mod choose;
mod dictionary;
mod map;
mod numeric;
mod packed;
mod rans;
mod repeats;
#[cfg(test)]
mod tests;
mod tree;

pub use bools::{decode_bools, encode_bools};
pub use choose::Coder;

use crate::Scalar;
use choose::encode_part;
use map::Map;
use packed::Layout;

/// How hard an encoder tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What a writer does: encodings are chosen by estimates, at least 50 MB/s a core.
    Default,
    /// What `compact` does: everything is tried.
    Best,
}

/// Bytes that are not what an encoder wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub &'static str);

/// Encodings: the low 4 bits of the first byte.
mod encoding {
    /// The bytes of the values.
    pub(super) const RAW: u8 = 0;
    /// The bytes of the one value, without zero bytes at its end.
    pub(super) const CONSTANT: u8 = 1;
    /// The numeric coder, ordered; the parameter is the logarithm of the table.
    pub(super) const ORDERED: u8 = 2;
    /// The same, folded.
    pub(super) const FOLDED: u8 = 3;
    /// The same, differences.
    pub(super) const DELTA: u8 = 4;
    /// zstd; the parameter is the layout.
    pub(super) const PACKED: u8 = 5;
    /// A dictionary.
    pub(super) const DICTIONARY: u8 = 6;
    /// New values, and distances to the same value before.
    pub(super) const REPEATS: u8 = 7;
}

/// Decodes a stripe into `out`, whose length is the number of values times their width.
///
/// # Errors
/// Where the bytes do not decode to just these many values. Never panics, never takes more memory than a small multiple of `out`.
pub fn decode(scalar: Scalar, encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    match encoded.split_first() {
        None if out.is_empty() => return Ok(()),
        None => return Err(Damaged("no bytes")),
        Some(_) if out.is_empty() => return Err(Damaged("bytes for no values")),
        Some((&first, rest)) if first == encoding::DICTIONARY => dictionary::decode(scalar, rest, out)?,
        Some((&first, rest)) if first == encoding::REPEATS => repeats::decode(scalar, rest, out)?,
        Some(_) => decode_part(scalar, encoded, out)?,
    }
    if scalar == Scalar::Bool && out.iter().any(|&value| value > 1) {
        return Err(Damaged("a bool is neither 0 nor 1"));
    }
    Ok(())
}

/// Decodes what is not made of other parts; `out` is not empty.
fn decode_part(scalar: Scalar, encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    let (&first, rest) = encoded.split_first().ok_or(Damaged("no bytes"))?;
    let (kind, parameter) = (first & 15, first >> 4);
    match kind {
        encoding::RAW if parameter == 0 => {
            if rest.len() != out.len() {
                return Err(Damaged("raw values are missing"));
            }
            out.copy_from_slice(rest);
            Ok(())
        }
        encoding::CONSTANT if parameter == 0 => decode_constant(rest, out, scalar.width()),
        encoding::ORDERED => numeric::decode(scalar, Map::Ordered, u32::from(parameter), rest, out),
        encoding::FOLDED => numeric::decode(scalar, Map::Folded, u32::from(parameter), rest, out),
        encoding::DELTA => numeric::decode(scalar, Map::Delta, u32::from(parameter), rest, out),
        encoding::PACKED => {
            let layout = Layout::of_code(parameter).ok_or(Damaged("the layout is unknown"))?;
            packed::decode(layout, rest, out, scalar.width())
        }
        _ => Err(Damaged("the encoding is unknown")),
    }
}

/// Fills `out` with one value.
fn decode_constant(encoded: &[u8], out: &mut [u8], width: usize) -> Result<(), Damaged> {
    let mut value = [0; 8];
    value.get_mut(..encoded.len().min(width)).unwrap_or_default().copy_from_slice(&encoded[..encoded.len().min(width)]);
    if encoded.len() > width {
        return Err(Damaged("a constant is too long"));
    }
    if value == [0; 8] {
        out.fill(0);
    } else {
        out.chunks_exact_mut(width).for_each(|out| out.copy_from_slice(&value[..width]));
    }
    Ok(())
}
