//! CRC-32C (Castagnoli), the checksum of every format: by hardware where the processor can.

use crate::{Error, Result};
use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of what made `crc`, followed by `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // The register holds the complement of the checksum.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Compares bytes with the CRC-32C that came with them from a producer or over a network.
///
/// # Errors
/// `Corrupt` where they do not have it: nothing of them is kept.
pub fn check_sent(bytes: &[u8], expected: u32) -> Result<()> {
    check_sent_as(bytes.len(), expected, crc32c(bytes))
}

/// The same for this many bytes whose CRC-32C was `found` in another pass.
///
/// # Errors
/// As [`check_sent`].
pub fn check_sent_as(length: usize, expected: u32, found: u32) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{length} bytes came with checksum {expected:08x} and have {found:08x}: not stored; send them again"
    )))
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
