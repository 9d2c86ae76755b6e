//! Bit-fields of little-endian 64-bit words, counted from the least significant bit.

/// The word at byte `at`; bytes past the end read as zero.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(there) = bytes.get(at..) {
        let n = there.len().min(8);
        word[..n].copy_from_slice(&there[..n]);
    }
    u64::from_le_bytes(word)
}

/// Replaces the word at byte `at`; nothing happens where it does not fit.
pub(super) fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(there) = bytes.get_mut(at..at + 8) {
        there.copy_from_slice(&value.to_le_bytes());
    }
}

/// A field of `width` bits at bit `at` of a word.
pub(super) fn field(word: u64, at: u32, width: u32) -> u64 {
    word >> at & (u64::MAX >> (64 - width))
}

/// The word with a field replaced; value bits past the width are dropped.
pub(super) fn with_field(word: u64, at: u32, width: u32, value: u64) -> u64 {
    let mask = u64::MAX >> (64 - width);
    word & !(mask << at) | (value & mask) << at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_replace_only_themselves() {
        let word = with_field(u64::MAX, 12, 10, 0x155);
        assert_eq!(field(word, 12, 10), 0x155);
        assert_eq!(with_field(word, 12, 10, 0x3FF), u64::MAX);
        assert_eq!(with_field(0, 0, 64, u64::MAX), u64::MAX);
        assert_eq!(with_field(0, 4, 4, 0x1F), 0xF0);
    }

    #[test]
    fn words_past_the_end_are_zero_and_not_written() {
        let mut bytes = [0xFF; 10];
        assert_eq!(super::word(&bytes, 8), 0xFFFF);
        assert_eq!(super::word(&bytes, 11), 0);
        set_word(&mut bytes, 4, 0);
        assert_eq!(bytes, [0xFF; 10]);
    }
}
