//! A socket under TLS that is read ahead: rustls asks for one record at a time, and one call of the system brings several.
//!
//! *Invariants*: bytes come in the order of the socket.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

/// Bytes that are read at once: eight records, that together stay in the processor's own cache.
const AHEAD_BYTES: usize = 128 << 10;

/// A stream with what was read ahead of it.
pub(crate) struct Ahead {
    pub(crate) stream: TcpStream,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Ahead {
    pub(crate) fn new(stream: TcpStream) -> Ahead {
        Ahead { stream, bytes: vec![0; AHEAD_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Whether nothing was read that was not handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

impl Read for Ahead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            self.end = self.stream.read(&mut self.bytes)?;
        }
        let bytes = to.len().min(self.end - self.start);
        to[..bytes].copy_from_slice(&self.bytes[self.start..self.start + bytes]);
        self.start += bytes;
        Ok(bytes)
    }
}

impl Write for Ahead {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, places: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(places)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
