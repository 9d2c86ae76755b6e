//! Configuration of the opening of a store: sizes, water marks, durations, and the parts that tests replace.

mod marks;

pub(crate) use marks::check_marks;

use forebay_core::map::ClusterMap;
use forebay_core::{Clock, InhibitListener, Key, MonotonicClock, Random, Result, SystemRandom};
use forebay_media::hot::FlushPolicy;
use forebay_media::warm::Device;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One fragment that became visible: what a holder reports to the event's home.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The fragment's key.
    pub key: Key,
    /// Payload length in bytes.
    pub length: u32,
    /// CRC-32C of the payload.
    pub checksum: u32,
    /// The producer's status bits.
    pub status: u32,
}

/// Where arrivals leave the store: a home on another node, a monitor, a test.
pub trait Arrivals: Send + Sync {
    /// Called once per stored fragment, after it is durable at the medium's level and visible. Must not block.
    fn arrived(&self, arrival: &Arrival);
}

/// One device of the warm level, and how much of it the store may take.
#[derive(Clone)]
pub struct WarmDevice {
    pub(crate) place: WarmPlace,
    pub(crate) bytes: u64,
    /// It is being drained.
    pub(crate) leaving: bool,
}

#[derive(Clone)]
pub(crate) enum WarmPlace {
    Directory(PathBuf),
    Device(Arc<dyn Device>),
}

impl WarmDevice {
    /// A directory on a device of its own, of which `bytes` become containers. `bytes` matter at creation only.
    pub fn directory(path: impl Into<PathBuf>, bytes: u64) -> WarmDevice {
        WarmDevice { place: WarmPlace::Directory(path.into()), bytes, leaving: false }
    }

    /// Another medium, for tests.
    pub fn device(device: Arc<dyn Device>, bytes: u64) -> WarmDevice {
        WarmDevice { place: WarmPlace::Device(device), bytes, leaving: false }
    }
}

/// Sizes, water marks and durations of one store. Sizes matter at creation only.
#[derive(Clone)]
pub struct Config {
    /// Bytes of the hot region, rounded down to whole segments.
    pub hot_bytes: u64,
    /// Where the region file lies, if not in the store's directory: for hugetlbfs, which holds nothing but mappings.
    /// Matters at creation only; the directory then has a link to it.
    pub region_dir: Option<PathBuf>,
    /// Bytes of one segment; `None` takes 1/64 of the region, between 256 KiB and 64 MiB.
    pub segment_bytes: Option<u64>,
    /// Segments written side by side: one per putting thread is best.
    pub write_heads: usize,
    /// Fill (0 to 1) of the hot level at which inhibit starts.
    pub hot_high: f64,
    /// Fill (0 to 1) of the hot level at which inhibit stops: less than `hot_high`.
    pub hot_low: f64,
    /// Fill (0 to 1) of the hot level at which undecided events begin to be demoted, where there is a warm level: less
    /// than `hot_high`, so that demotion begins before inhibit does.
    pub demote_high: f64,
    /// Fill (0 to 1) of the hot level down to which they are demoted: less than `demote_high`, and at most `hot_low`, so
    /// that demotion goes on as far as inhibit needs to end.
    pub demote_low: f64,
    /// Fill (0 to 1) of the warm level at which inhibit starts.
    pub warm_high: f64,
    /// Fill (0 to 1) of the warm level at which inhibit stops: less than `warm_high`.
    pub warm_low: f64,
    /// How long what the archive has stays on the warm level as well.
    pub custody_min: Duration,
    /// Fill (0 to 1) of the warm level above which it goes earlier, the oldest first: at most `warm_low`, which `None` takes, so
    /// that custody never stops a trigger.
    pub custody_high: Option<f64>,
    /// How long a put waits for space before it answers `Full`.
    pub put_deadline: Duration,
    /// How long a lease lasts without a heartbeat (`extend`).
    pub lease: Duration,
    /// How long a lease can be extended in total.
    pub max_hold: Duration,
    /// Most leases out at once.
    pub leases_max: usize,
    /// Share of the region (0 to 1) that conflicting bytes may occupy in the debug stream.
    pub conflict_share: f64,
    /// Share of the region (0 to 1) that the debug stream may occupy before it inhibits.
    pub debug_share: f64,
    /// Share of the region (0 to 1) that dead bytes under guards may occupy before `get` copies.
    pub pinned_share: f64,
    /// Serve although the machine restarted over a medium that does not survive that; what is left is served.
    pub accept_loss: bool,
    /// When written cache lines are flushed.
    pub flush: FlushPolicy,
    /// Devices of the warm level; empty at opening takes those that the store was made with.
    pub warm: Vec<WarmDevice>,
    /// Bytes of a container, a multiple of 4 KiB from 64 KiB to 4 GiB: fragments are smaller. Matters at creation only.
    pub container_bytes: u64,
    /// Bytes of a device's decision log, of which there are two files. Matters at creation only.
    pub device_log_bytes: u64,
    /// How long a fragment that is to be persisted waits for others to share its commit with.
    pub persist_delay: Duration,
    /// How long a fragment of a warm group stays on the hot level: what is rejected meanwhile is never written.
    pub flush_delay: Duration,
    /// A device that answers nothing for so long is reported as stalled.
    pub device_stall: Duration,
    /// Verify the payload checksum of every live fragment at opening, not only where power may have been lost.
    pub verify: bool,
    /// Run time-outs, sealing and evacuation on a thread of the store; without it somebody calls `Store::tick`.
    pub maintenance: bool,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Random numbers: of the store's identity, and of its tables of keys.
    pub random: Arc<dyn Random>,
    /// The map that a node of a cluster went by last, where the store has no directory that keeps it.
    pub map: Option<Arc<ClusterMap>>,
    /// Where arrivals are reported to, beside this store's own home.
    pub arrivals: Option<Arc<dyn Arrivals>>,
    /// A listener to every change of inhibit.
    pub inhibit: Option<Arc<dyn InhibitListener>>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            hot_bytes: 256 << 20,
            region_dir: None,
            segment_bytes: None,
            write_heads: std::thread::available_parallelism().map_or(2, usize::from).min(16),
            hot_high: 0.90,
            hot_low: 0.75,
            demote_high: 0.70,
            demote_low: 0.50,
            warm_high: 0.90,
            warm_low: 0.75,
            custody_min: Duration::from_secs(3 * 24 * 3600),
            custody_high: None,
            put_deadline: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            max_hold: Duration::from_secs(600),
            leases_max: 4 << 20,
            conflict_share: 1.0 / 64.0,
            debug_share: 0.125,
            pinned_share: 0.125,
            accept_loss: false,
            flush: FlushPolicy::Auto,
            warm: Vec::new(),
            container_bytes: 1 << 30,
            device_log_bytes: 64 << 20,
            persist_delay: Duration::from_millis(1),
            flush_delay: Duration::from_millis(500),
            device_stall: Duration::from_secs(5),
            verify: false,
            maintenance: true,
            clock: Arc::new(MonotonicClock::default()),
            random: Arc::new(SystemRandom),
            map: None,
            arrivals: None,
            inhibit: None,
        }
    }
}

impl Config {
    /// Checks the marks, as each opening does; those of demotion and of the warm level only if there is one.
    ///
    /// # Errors
    /// `Invalid`, naming the mark that is no part of a level, or the two that contradict each other.
    pub fn check_marks(&self, warm: bool) -> Result<()> {
        check_marks(self, warm)
    }
}
