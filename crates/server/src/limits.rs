//! Limits of one connection and of all of them.

use crate::units;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Shortest deadline: less than any network needs is a mistake, not a limit.
const DEADLINE_MIN: Duration = Duration::from_millis(10);
/// Smallest window: less holds no frame that is worth it.
const WINDOW_BYTES_MIN: u32 = 64 << 10;

/// Limits of one connection and of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at once, over all listeners.
    pub connections_max: usize,
    /// Connections at once from one address. Those over Unix sockets have none and are limited together only.
    pub connections_per_peer_max: usize,
    /// Bytes that one client may have under way to the server: a frame is smaller.
    #[serde(with = "units::size")]
    pub window_bytes: u32,
    /// Bytes of requests that wait in the server's memory, over all connections.
    #[serde(with = "units::size")]
    pub memory_bytes_max: u64,
    /// Requests of one connection that wait (for space, for an event, for a device).
    pub waiting_max: usize,
    /// Threads for calls that wait.
    pub waiting_threads_max: usize,
    /// Time for a client to say who it is.
    #[serde(with = "units::time")]
    pub handshake_deadline: Duration,
    /// Time for a frame to arrive whole, from its first byte on, and for an answer to be taken.
    #[serde(with = "units::time")]
    pub frame_deadline: Duration,
    /// Longest wait that a client may ask for in one call.
    #[serde(with = "units::time")]
    pub wait_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 20_000,
            connections_per_peer_max: 16_000,
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
        // Some queueing is fine: calls wait in short turns. Beyond it each connection gets one at a time.
        self.waiting_threads_max.saturating_mul(16)
    }

    /// Checks how the limits relate: name of the one that cannot be, and why.
    pub(crate) fn problem(&self) -> Option<(&'static str, String)> {
        let counts = [
            ("connections_max", self.connections_max),
            ("connections_per_peer_max", self.connections_per_peer_max),
            ("waiting_max", self.waiting_max),
            ("waiting_threads_max", self.waiting_threads_max),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Some((name, "0 would let nobody in: at least 1".to_owned()));
        }
        let deadlines = [
            ("handshake_deadline", self.handshake_deadline),
            ("frame_deadline", self.frame_deadline),
            ("wait_max", self.wait_max),
        ];
        if let Some((name, time)) = deadlines.into_iter().find(|(_, time)| *time < DEADLINE_MIN) {
            let (time, least) = (units::time_text(time), units::time_text(DEADLINE_MIN));
            return Some((name, format!("{time} is too short for any client: at least {least}")));
        }
        if self.window_bytes < WINDOW_BYTES_MIN {
            let least = units::size_text(WINDOW_BYTES_MIN.into());
            return Some(("window_bytes", format!("too small for frames with payload: at least {least}")));
        }
        // One client at its window must not take all that there is for others.
        if u64::from(self.window_bytes) > self.memory_bytes_max {
            let (window, memory) = (self.window_bytes.into(), self.memory_bytes_max);
            let (window, memory) = (units::size_text(window), units::size_text(memory));
            let message = format!("{memory} does not hold one connection's window_bytes of {window}: raise it");
            return Some(("memory_bytes_max", message));
        }
        None
    }

    /// Checks how the limits relate.
    ///
    /// # Errors
    /// `Invalid`, naming the limit that cannot be.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            Some((name, message)) => Err(Error::invalid(format!("limits: {name}: {message}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_contradict_each_other_are_named() {
        Limits::default().check().unwrap();
        let refused = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.check().unwrap_err().message().to_owned()
        };
        assert!(refused(|limits| limits.connections_per_peer_max = 0).contains("connections_per_peer_max"));
        assert!(refused(|limits| limits.frame_deadline = Duration::ZERO).contains("frame_deadline"));
        assert!(refused(|limits| limits.window_bytes = 4096).contains("at least 64 KiB"));
        assert!(refused(|limits| limits.memory_bytes_max = 1 << 20).contains("window_bytes of 16 MiB"));
    }
}
