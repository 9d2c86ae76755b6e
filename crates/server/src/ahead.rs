//! A socket under TLS that is read ahead: rustls asks for one record at a time, and one call of the system brings several.
//!
//! *Invariants*: bytes come in the order of the socket; a stream that has nothing ahead holds no memory, so that an idle
//! connection costs next to nothing.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at once: four records, and as many as a session holds itself while it cannot go on.
const AHEAD_BYTES: usize = 64 << 10;
/// Buffers that a thread keeps for its connections.
const BUFFERS_KEPT: usize = 16;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A stream with what was read ahead of it.
pub(crate) struct Ahead<S> {
    stream: S,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<S> Ahead<S> {
    pub(crate) fn new(stream: S) -> Ahead<S> {
        Ahead { stream, bytes: Box::default(), start: 0, end: 0 }
    }

    /// Gives the memory to the next connection of this thread.
    fn rest(&mut self) {
        debug_assert!(self.start == self.end, "what was read ahead is handed out first");
        let bytes = std::mem::take(&mut self.bytes);
        if !bytes.is_empty() {
            BUFFERS.with_borrow_mut(|kept| {
                if kept.len() < BUFFERS_KEPT {
                    kept.push(bytes);
                }
            });
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.start == this.end {
            if this.bytes.is_empty() {
                let fresh = || vec![0; AHEAD_BYTES].into_boxed_slice();
                this.bytes = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(fresh);
            }
            let mut buffer = ReadBuf::new(&mut this.bytes);
            let read = Pin::new(&mut this.stream).poll_read(context, &mut buffer);
            (this.start, this.end) = (0, buffer.filled().len());
            if this.end == 0 {
                this.rest();
            }
            ready!(read)?;
        }
        let bytes = (this.end - this.start).min(to.remaining());
        to.put_slice(&this.bytes[this.start..this.start + bytes]);
        this.start += bytes;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_was_read_ahead_comes_in_order_and_memory_goes_with_the_last_byte() {
        let (mut there, here) = duplex(1 << 20);
        let mut ahead = Ahead::new(here);
        let sent: Vec<u8> = (0..=255).cycle().take(AHEAD_BYTES + 1000).collect();
        there.write_all(&sent).await.unwrap();
        let mut came = vec![0; sent.len()];
        let (first, rest) = came.split_at_mut(100);
        ahead.read_exact(first).await.unwrap();
        assert_eq!((ahead.start, ahead.end), (100, AHEAD_BYTES), "one read brings what fits");
        ahead.read_exact(rest).await.unwrap();
        assert!(came == sent, "the order is that of the stream");
        drop(there);
        assert_eq!(ahead.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(ahead.bytes.is_empty(), "a stream without bytes ahead holds no memory");
    }
}
