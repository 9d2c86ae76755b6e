//! Sessions over streams that are no sockets, on one thread: for the simulator.
//!
//! *Not here*: listeners, and what limits connections beside each other.

use crate::access::Access;
use crate::keyspaces::Keyspaces;
use crate::limits::Limits;
use crate::orders::Orders;
use crate::served::Served;
use crate::shared::Shared;
use crate::transport::Transport;
use forebay_core::ServedStore;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A server without sockets and threads: calls that may wait are made at once, and answer what they find.
pub struct Sessions<S> {
    shared: Arc<Shared>,
    keyspaces: Arc<Keyspaces<S>>,
}

impl<S: ServedStore> Sessions<S> {
    /// Sessions of one keyspace.
    pub fn new(served: Served<S>, limits: Limits) -> Sessions<S> {
        let mut shared = Shared::new(Access::default(), None, limits, 1);
        shared.at_once = true;
        Sessions { shared: Arc::new(shared), keyspaces: Arc::new(Keyspaces::of(served)) }
    }

    /// The same on a node of a cluster.
    #[must_use]
    pub fn on(self, node: Arc<dyn Orders>) -> Sessions<S> {
        let _ = self.shared.orders.set(node);
        self
    }

    /// Serves one connection to its end; why it ended. Within a tokio runtime, whose time is the time of the session.
    pub async fn serve<T: AsyncRead + AsyncWrite + Unpin + 'static>(&self, stream: T) -> &'static str {
        super::serve(Stream(stream), &self.shared, &self.keyspaces).await
    }
}

struct Stream<T>(T);

impl<T: AsyncRead + Unpin> AsyncRead for Stream<T> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, to)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stream<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> Transport for Stream<T> {}
