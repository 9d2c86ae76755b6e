//! What happened, as one number: two simulations of one seed did the same if it is equal.

use std::fmt::Arguments;

/// The trace of one simulation.
pub(crate) struct Trace {
    start: tokio::time::Instant,
    hash: u64,
    pub(crate) lines: u64,
    is_shown: bool,
}

impl Trace {
    pub(crate) fn new(is_shown: bool) -> Trace {
        Trace { start: tokio::time::Instant::now(), hash: 0xCBF2_9CE4_8422_2325, lines: 0, is_shown }
    }

    /// Notes something that happened now.
    pub(crate) fn note(&mut self, what: Arguments<'_>) {
        let line = format!("{:12.3} {what}", self.start.elapsed().as_secs_f64());
        // FNV-1a, 64 bits (Fowler, Noll, Vo): equality of two runs is all that is asked of it.
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self.lines += 1;
        if self.is_shown {
            eprintln!("{line}");
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
