//! Configuration of the opening of a ring.

use forebay_core::{Clock, MonotonicClock};
use forebay_media::hot::FlushPolicy;
use std::path::PathBuf;
use std::sync::Arc;

/// Sizes and parts of one ring. Sizes matter at creation only.
#[derive(Clone)]
pub struct RingConfig {
    /// Bytes of the region, rounded down to whole chunks.
    pub hot_bytes: u64,
    /// Where the region file lies, if not in the ring's directory: for hugetlbfs, which holds nothing but mappings.
    /// Matters at creation only; the directory then has a link to it.
    pub region_dir: Option<PathBuf>,
    /// Bytes of one chunk; `None` gives each source 16 chunks, of 16 KiB to 64 MiB.
    pub segment_bytes: Option<u64>,
    /// The clock that timestamps are compared with.
    pub clock: Arc<dyn Clock>,
    /// When written cache lines are flushed.
    pub flush: FlushPolicy,
    /// Serve although the machine restarted over a medium that does not survive that, or data is missing; what is left
    /// is served, the rest is booked as lost.
    pub accept_loss: bool,
    /// Verify the payload checksum of every fragment at opening, not only where power may have been lost.
    pub verify: bool,
    /// Seal chunks, follow the clock and keep the account on a thread of the ring; without it the ring's user calls
    /// `Ring::tick`.
    pub maintenance: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig {
            hot_bytes: 256 << 20,
            region_dir: None,
            segment_bytes: None,
            clock: Arc::new(MonotonicClock::default()),
            flush: FlushPolicy::Auto,
            accept_loss: false,
            verify: false,
            maintenance: true,
        }
    }
}
