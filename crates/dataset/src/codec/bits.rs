//! Bits in little-endian order: the first bit of a field is the lowest one of its byte.

use super::Damaged;

/// The lowest bits of a word.
#[inline]
pub(super) fn low_mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Bits that the value needs.
pub(super) fn bits_of(value: u64) -> u32 {
    64 - value.leading_zeros()
}

/// Appends fields of bits to bytes.
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

impl BitWriter {
    /// Continues these bytes.
    pub(super) fn after(bytes: Vec<u8>) -> BitWriter {
        BitWriter { bytes, held: 0, held_bits: 0 }
    }

    /// Appends the lowest `bits` bits of `value`; the others must be zero.
    #[inline]
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(bits <= 64 && value & !low_mask(bits) == 0);
        self.held |= value << self.held_bits;
        let filled = self.held_bits + bits;
        if filled >= 64 {
            self.bytes.extend_from_slice(&self.held.to_le_bytes());
            // A shift by 64 would be one by none.
            self.held = if self.held_bits == 0 { 0 } else { value >> (64 - self.held_bits) };
            self.held_bits = filled - 64;
        } else {
            self.held_bits = filled;
        }
    }

    /// The bytes; the last one is filled up with zero bits.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let bytes = self.held_bits.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.held.to_le_bytes()[..bytes]);
        self.bytes
    }
}

/// Reads fields of bits.
#[derive(Clone)]
pub(super) struct BitReader<'a> {
    pub(super) bytes: &'a [u8],
    /// Bits read.
    pub(super) at: usize,
}

impl<'a> BitReader<'a> {
    /// Reads from the first bit.
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, at: 0 }
    }

    /// The next field of up to 64 bits.
    #[inline]
    pub(super) fn get(&mut self, bits: u32) -> Result<u64, Damaged> {
        let (byte, shift) = (self.at >> 3, (self.at & 7) as u32);
        let value = match self.bytes.get(byte..byte + 8) {
            Some(word) if bits + shift <= 64 => load(word) >> shift,
            _ => self.get_slowly(bits)?,
        };
        self.at += bits as usize;
        Ok(value & low_mask(bits))
    }

    /// The field where it is not inside of one word, or near the end.
    #[cold]
    fn get_slowly(&self, bits: u32) -> Result<u64, Damaged> {
        if self.at + bits as usize > self.bytes.len() * 8 {
            return Err(Damaged("bits are missing"));
        }
        let (byte, shift) = (self.at >> 3, self.at & 7);
        let mut wide = [0; 16];
        let some = &self.bytes[byte..self.bytes.len().min(byte + 9)];
        wide[..some.len()].copy_from_slice(some);
        Ok((u128::from_le_bytes(wide) >> shift) as u64)
    }

    /// The bytes that fields were read from, the last one in part.
    pub(super) fn bytes_read(&self) -> usize {
        self.at.div_ceil(8)
    }
}

/// The word of the first 8 bytes.
///
/// # Panics
/// Where there are fewer.
#[inline]
pub(super) fn load(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// Appends a number, 7 bits a byte, the lowest first.
pub(super) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes a number from the front.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Damaged> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Damaged("a number is missing"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Damaged("a number is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_widths_come_back() {
        let fields = || (0..=64_u32).chain((0..=64).rev()).chain([1, 64, 64, 63, 7]);
        let value = |at: usize, bits: u32| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) & low_mask(bits);
        let mut writer = BitWriter::after(Vec::new());
        fields().enumerate().for_each(|(at, bits)| writer.put(value(at, bits), bits));
        let bytes = writer.finish();
        let mut reader = BitReader::new(&bytes);
        for (at, bits) in fields().enumerate() {
            assert_eq!(reader.get(bits), Ok(value(at, bits)));
        }
        assert_eq!(reader.bytes_read(), bytes.len());
        assert!(reader.get(8).is_err());
    }

    #[test]
    fn numbers_of_all_lengths_come_back() {
        for value in (0..64).map(|bits| 1_u64 << bits).chain([0, u64::MAX]) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(take_varint(&mut &bytes[..]), Ok(value));
            assert!(take_varint(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(take_varint(&mut &[0x80; 12][..]).is_err());
    }
}
