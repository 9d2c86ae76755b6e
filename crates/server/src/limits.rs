//! What a server takes from one connection and from all of them.

use std::time::Duration;

/// Limits of one connection and of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, over all listeners.
    pub connections_max: usize,
    /// Bytes that one client may have under way to the server: a frame is smaller.
    pub window_bytes: u32,
    /// Bytes of requests that wait in the server's memory, over all connections.
    pub memory_bytes_max: u64,
    /// Requests of one connection that wait (for space, for an event, for a device).
    pub waiting_max: usize,
    /// Threads for calls that wait.
    pub waiting_threads_max: usize,
    /// Time for a client to say who it is.
    pub handshake_deadline: Duration,
    /// Time for a frame to arrive whole, from its first byte on, and for an answer to be taken.
    pub frame_deadline: Duration,
    /// Longest wait that a client may ask for in one call.
    pub wait_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 20_000,
            window_bytes: 16 << 20,
            memory_bytes_max: 512 << 20,
            waiting_max: 64,
            waiting_threads_max: 64,
            handshake_deadline: Duration::from_secs(5),
            frame_deadline: Duration::from_secs(30),
            wait_max: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// Requests that wait for threads, over all connections.
    pub(crate) fn waiting_total(&self) -> usize {
        self.waiting_threads_max.saturating_mul(16)
    }
}
