//! A connection as sessions see it: bytes that come in into several places at once, and go out from several.

use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A stream that reads into several places with one call. Writing is that of `AsyncWrite`.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Fragments of at least this many bytes are read straight into memory of the store, shorter ones are copied there from the
    /// inbox. Where no system copies, as in the simulator, both ways are taken with short fragments.
    const DIRECT_BYTES: u32 = 2048;

    /// Reads into the places in turn; 0 is the end of the stream.
    fn poll_read_into(&mut self, context: &mut Context<'_>, places: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        // Without a call of its own: into the first place that takes something.
        let Some(place) = places.iter_mut().find(|place| !place.is_empty()) else { return Poll::Ready(Ok(0)) };
        let mut buffer = ReadBuf::new(place);
        ready!(Pin::new(self).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

/// The same of a socket. Two copies, to the inbox and from there past the cache with the checksum on the way, cost less than the
/// system's one copy to memory that no cache holds and a pass for the checksum (decision 0012). For longer fragments the inbox of
/// each connection would have to grow.
pub(crate) const SOCKET_DIRECT_BYTES: u32 = 32 << 10;

macro_rules! vectored {
    ($($stream:ty),*) => { $(
        impl Transport for $stream {
            const DIRECT_BYTES: u32 = SOCKET_DIRECT_BYTES;

            fn poll_read_into(&mut self, context: &mut Context<'_>, places: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
                if let [place] = places {
                    // A read that does not fill its place saves the next one: the stream knows that it is empty.
                    let mut buffer = ReadBuf::new(place);
                    ready!(Pin::new(self).poll_read(context, &mut buffer))?;
                    return Poll::Ready(Ok(buffer.filled().len()));
                }
                loop {
                    ready!(self.poll_read_ready(context))?;
                    match self.try_read_vectored(places) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        answer => return Poll::Ready(answer),
                    }
                }
            }
        }
    )* };
}

vectored!(TcpStream, UnixStream);

/// Writes from several places; how much went out.
pub(crate) fn poll_write_from<T: Transport>(
    stream: &mut T,
    context: &mut Context<'_>,
    places: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    Pin::new(stream).poll_write_vectored(context, places)
}
