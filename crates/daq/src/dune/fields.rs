//! Little-endian numbers one after the other, read and written.
//!
//! *Invariants*: nothing here reads or writes past the end: what does not fit reads as zero and is not written.

/// Reads numbers from the front.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (number, rest) =
            self.0.split_first_chunk().map_or(([0; N], [].as_slice()), |(number, rest)| (*number, rest));
        self.0 = rest;
        number
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// Writes numbers to the front.
pub(super) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer(bytes)
    }

    fn put<const N: usize>(&mut self, number: [u8; N]) {
        if let Some((first, rest)) = std::mem::take(&mut self.0).split_first_chunk_mut() {
            *first = number;
            self.0 = rest;
        }
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.put(number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.put(number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.put(number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_never_passed() {
        let mut bytes = [0xAA; 7];
        let mut out = Writer::new(&mut bytes);
        out.u32(0x0403_0201);
        out.u32(7);
        out.u16(9);
        assert_eq!(bytes, [1, 2, 3, 4, 0xAA, 0xAA, 0xAA]);
        let mut fields = Fields::new(&bytes);
        assert_eq!((fields.u16(), fields.u64(), fields.u16()), (0x0201, 0, 0));
    }
}
