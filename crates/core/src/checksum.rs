//! CRC-32C (Castagnoli), the checksum of every format: hardware where the processor has it.

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of what made `crc`, followed by `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn matches_the_published_check_value() {
        // RFC 3720, appendix B.4: CRC-32C of "123456789".
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(super::crc32c_append(super::crc32c(b"1234"), b"56789"), 0xE306_9283);
    }
}
