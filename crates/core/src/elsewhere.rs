//! A fragment whose bytes another node has, as the home of its event keeps and sends it.

/// Length and checksum of bytes that another node has. The home of an event keeps this in their place, on [`Level::Elsewhere`].
///
/// [`Level::Elsewhere`]: crate::Level::Elsewhere
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Bytes of the payload.
    pub length: u32,
    /// CRC-32C of the payload.
    pub checksum: u32,
}

impl Elsewhere {
    /// Bytes that it takes.
    pub const BYTES: usize = 8;

    /// As it is kept and sent: both numbers little-endian.
    pub fn to_bytes(self) -> [u8; Elsewhere::BYTES] {
        (u64::from(self.checksum) << 32 | u64::from(self.length)).to_le_bytes()
    }

    /// From its bytes; `None` where these are another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Elsewhere> {
        let word = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(Elsewhere { length: word as u32, checksum: (word >> 32) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_elsewhere_is_eight_bytes() {
        let away = Elsewhere { length: 0x0102_0304, checksum: 0x0506_0708 };
        assert_eq!(away.to_bytes(), [4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(Elsewhere::from_bytes(&away.to_bytes()), Some(away));
        assert_eq!(Elsewhere::from_bytes(&[0; 7]), None);
    }
}
