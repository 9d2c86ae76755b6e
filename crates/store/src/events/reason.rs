//! Why an event is in the debug stream.

/// Why an event is in the debug stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// Its holders went silent.
    WorkerSilent = 1,
    /// Its holders kept their leases for longer than `max_hold`.
    HeldTooLong = 2,
    /// Processes died while it was out.
    ProcessDied = 3,
    /// The last worker said that it failed.
    WorkerFailed = 4,
}

impl Reason {
    pub(crate) fn words(number: u8) -> &'static str {
        match number {
            1 => "worker silent",
            2 => "held too long",
            3 => "process died",
            4 => "worker failed",
            _ => "unknown",
        }
    }
}
