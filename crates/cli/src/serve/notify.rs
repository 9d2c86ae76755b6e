//! Notifications to systemd (ready, alive, stopping), as datagrams to the socket that the environment names.
//!
//! *On failure*: nothing; a service manager that does not listen asks for nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The way to the service manager, if there is one.
pub(super) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` say.
    pub(super) fn from_environment() -> Notify {
        let variable = |name| std::env::var(name).ok();
        let ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let microseconds =
            variable("WATCHDOG_USEC").and_then(|text| text.parse().ok()).filter(|time| ours && *time > 0);
        Notify {
            to: variable("NOTIFY_SOCKET").and_then(|name| open(&name)),
            watchdog: microseconds.map(Duration::from_micros),
        }
    }

    /// Says this, lines of `NAME=value`.
    pub(super) fn say(&self, text: &str) {
        if let Some((socket, address)) = &self.to {
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    /// The silence after which the service manager ends this process.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }
}

/// A path, or a name without a file, which begins with `@`.
fn open(name: &str) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}
