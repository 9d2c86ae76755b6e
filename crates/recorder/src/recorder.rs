//! The recorder at work: what the links and the devices' threads of one recording have in common.

use super::books::Books;
use super::cause::GapReason;
use super::config::RecordingConfig;
use super::lane::Lane;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// One recording while it is made.
pub(super) struct Recorder {
    pub(super) config: RecordingConfig,
    pub(super) start: Instant,
    pub(super) lanes: Vec<Lane>,
    pub(super) links: Mutex<Vec<Arc<Books>>>,
    /// Links that somebody pushes to.
    pub(super) held: AtomicUsize,
    /// Images handed over and neither durable nor missed.
    pub(super) outstanding: AtomicU64,
    /// No more pushes.
    pub(super) closing: AtomicBool,
}

impl Recorder {
    pub(super) fn new(config: RecordingConfig, lanes: usize) -> Recorder {
        let bytes = config.extent_bytes;
        Recorder {
            config,
            start: Instant::now(),
            lanes: (0..lanes).map(|index| Lane::new(index, bytes)).collect(),
            links: Mutex::default(),
            held: AtomicUsize::new(0),
            outstanding: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The device for what belongs to `home`: that one, or where it takes nothing any more, another one.
    pub(super) fn lane_for(&self, home: usize) -> Result<&Lane, GapReason> {
        let count = self.lanes.len();
        let candidates = if self.config.spill { count } else { 1 };
        // The reason of its own device: why others do not help either is in their own part of the manifest.
        let mut reason = GapReason::DeviceError;
        debug_assert!(home < count, "a link without a device");
        // From its own device on, so that links of a failed device spread over the others in the order of devices.
        for step in 0..candidates {
            let Some(lane) = self.lanes.get((home + step) % count.max(1)) else { continue };
            match lane.failure_reason() {
                None => return Ok(lane),
                Some(of_lane) if step == 0 => reason = of_lane,
                Some(_) => {}
            }
        }
        Err(reason)
    }

    pub(super) fn books(&self, link: u32) -> Option<Arc<Books>> {
        self.links.lock().get(link as usize).cloned()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Nothing is on its way any more.
    pub(super) fn is_settled(&self) -> bool {
        // Acquire: what was booked before the last image was settled is seen by the thread that ends on this answer.
        self.outstanding.load(Ordering::Acquire) == 0
    }
}
