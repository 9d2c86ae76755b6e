//! Numbers, bytes and names of a meta, one after another, little-endian.

use forebay_core::{Error, Result};

/// Writes a meta.
#[derive(Clone, Debug, Default)]
pub struct WireWriter {
    bytes: Vec<u8>,
}

/// Reads a meta.
#[derive(Clone, Copy, Debug)]
pub struct WireReader<'a> {
    left: &'a [u8],
}

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        impl WireWriter {
            $(
                #[doc = concat!("Appends a `", stringify!($type), "`.")]
                pub fn $name(&mut self, value: $type) {
                    self.bytes.extend_from_slice(&value.to_le_bytes());
                }
            )*
        }

        impl<'a> WireReader<'a> {
            $(
                #[doc = concat!("The next `", stringify!($type), "`.")]
                ///
                /// # Errors
                /// `Corrupt` where the meta ends before.
                pub fn $name(&mut self) -> Result<$type> {
                    let mut value = [0; size_of::<$type>()];
                    value.copy_from_slice(self.take(size_of::<$type>())?);
                    Ok(<$type>::from_le_bytes(value))
                }
            )*
        }
    };
}

numbers!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128);

impl WireWriter {
    /// An empty meta.
    pub fn new() -> WireWriter {
        WireWriter::default()
    }

    /// An empty meta with room for this many bytes.
    pub fn with_capacity(bytes: usize) -> WireWriter {
        WireWriter { bytes: Vec::with_capacity(bytes) }
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends up to 255 bytes behind their number: keys, sources.
    ///
    /// # Errors
    /// `Invalid` for more.
    pub fn short(&mut self, bytes: &[u8]) -> Result<()> {
        let length = u8::try_from(bytes.len())
            .map_err(|_| Error::invalid(format!("{} bytes where at most 255 can be said", bytes.len())))?;
        self.u8(length);
        self.raw(bytes);
        Ok(())
    }

    /// Appends bytes behind their number: names, messages, JSON.
    ///
    /// # Errors
    /// `Invalid` from 4 GiB on.
    pub fn long(&mut self, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len())
            .map_err(|_| Error::invalid(format!("{} bytes are too many for a meta", bytes.len())))?;
        self.u32(length);
        self.raw(bytes);
        Ok(())
    }

    /// What was written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The meta.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

impl<'a> WireReader<'a> {
    /// Reads these bytes.
    pub fn new(meta: &'a [u8]) -> WireReader<'a> {
        WireReader { left: meta }
    }

    /// The next bytes as they are.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before.
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let ends = || Error::corrupt(format!("a meta ends {} bytes early", bytes - self.left.len()));
        let (head, rest) = self.left.split_at_checked(bytes).ok_or_else(ends)?;
        self.left = rest;
        Ok(head)
    }

    /// Up to 255 bytes behind their number.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before.
    pub fn short(&mut self) -> Result<&'a [u8]> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }

    /// Bytes behind their number.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before.
    pub fn long(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    /// A name or a message.
    ///
    /// # Errors
    /// `Corrupt` where the meta ends before, or for what is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.long()?).map_err(|error| Error::corrupt("a name is not UTF-8").with_source(error))
    }

    /// A number of things of which each takes at least `least` bytes: no more than can follow.
    ///
    /// # Errors
    /// `Corrupt` for a number of which the meta cannot have as many.
    pub fn count(&mut self, least: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count.saturating_mul(least.max(1)) > self.left.len() {
            return Err(Error::corrupt(format!(
                "a meta promises {count} things and ends after {} bytes",
                self.left.len()
            )));
        }
        Ok(count)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// `Corrupt` where something is.
    pub fn end(&self) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(format!("a meta has {} bytes that nobody knows", self.left.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    #[test]
    fn what_is_written_is_read() {
        let mut out = WireWriter::new();
        out.u8(1);
        out.u16(2);
        out.u32(3);
        out.u64(4);
        out.u128(5);
        out.short(b"key").unwrap();
        out.long("größer".as_bytes()).unwrap();
        out.u32(2);
        out.raw(b"abcd");
        let meta = out.finish();
        let mut read = WireReader::new(&meta);
        assert_eq!((read.u8().unwrap(), read.u16().unwrap(), read.u32().unwrap()), (1, 2, 3));
        assert_eq!((read.u64().unwrap(), read.u128().unwrap()), (4, 5));
        assert_eq!((read.short().unwrap(), read.text().unwrap()), (&b"key"[..], "größer"));
        assert_eq!(read.end().unwrap_err().kind(), Kind::Corrupt);
        assert_eq!((read.count(2).unwrap(), read.take(4).unwrap()), (2, &b"abcd"[..]));
        assert!(read.is_empty() && read.end().is_ok());
    }

    #[test]
    fn an_early_end_is_an_error_and_takes_no_memory() {
        let meta = [0xFF; 7];
        assert_eq!(WireReader::new(&meta).u64().unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(WireReader::new(&meta).short().unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(WireReader::new(&meta).long().unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(WireReader::new(&meta).count(1).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(WireReader::new(&[1, 0, 0, 0, 0xFF]).text().unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(WireWriter::new().short(&[0; 256]).unwrap_err().kind(), Kind::Invalid);
    }
}
