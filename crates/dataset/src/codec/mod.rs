//! Lossless coding of the values of one stream.

use crate::Scalar;

/// How hard an encoder tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What a writer does: encodings are chosen by statistics, at least 50 MB/s a core.
    Default,
    /// What `compact` does: everything is tried.
    Best,
}

/// Encodes stripes of one stream and remembers what suited it.
#[derive(Debug, Default)]
pub struct Coder {}

impl Coder {
    /// The values of a stripe, encoded: bytes that say by themselves how to read them. An empty stripe has no bytes.
    pub fn encode(&mut self, _scalar: Scalar, values: &[u8], _effort: Effort) -> Vec<u8> {
        values.to_vec()
    }
}

/// Bytes that are not what an encoder wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub &'static str);

/// Decodes a stripe into `out`, whose length is the number of values times their width.
///
/// # Errors
/// Where the bytes do not decode to just these many values. Never panics, never takes more memory than a small multiple of `out`.
pub fn decode(_scalar: Scalar, encoded: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    if encoded.len() != out.len() {
        return Err(Damaged("length"));
    }
    out.copy_from_slice(encoded);
    Ok(())
}

/// Rows of bools of the same length, encoded together.
pub fn encode_bools(rows: &[&[u8]], _effort: Effort) -> Vec<u8> {
    rows.concat()
}

/// Decodes the rows of a group.
///
/// # Errors
/// Where the bytes do not decode to just these rows.
pub fn decode_bools(encoded: &[u8], rows: &mut [&mut [u8]]) -> Result<(), Damaged> {
    let mut rest = encoded;
    for row in rows {
        let (own, after) = rest.split_at_checked(row.len()).ok_or(Damaged("length"))?;
        row.copy_from_slice(own);
        rest = after;
    }
    Ok(())
}
