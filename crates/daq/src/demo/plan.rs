//! The plan that follows from a [`DemoConfig`]: checked numbers, the frame source, what is read and kept.
//!
//! *Invariants*: a plan that was made can be carried out: events fit many times into the hot level, fragments into a
//! segment (test `what_cannot_work_is_refused_with_numbers`).
//!
//! *Not here*: how the store is set up (`setup`).

use super::DemoConfig;
use super::duty::{self, Beam};
use super::warm::{self, WarmPlan};
use crate::figures::{bytes, within};
use crate::frames::RecordedFrames;
use crate::limits::{
    BATCH_BYTES, BATCH_EVENTS_MAX, EVENTS_IN_HOT_MIN, HOT_BYTES_MIN, SEGMENTS_MIN, SOURCES_MAX, THREADS_MAX,
    WINDOW_EVENTS_MAX, WINDOW_SHARE,
};
use crate::{FrameSource, emulator, replay};
use forebay_core::{Error, KeySchema, Prescale, Result};

/// The run of every demo.
pub(crate) const RUN: u64 = 1;
/// One source in this many takes part in calibration.
const CALIBRATION_SOURCES: u64 = 4;
/// One accepted physics event in this many goes to calibration as well.
const CALIBRATION_PRESCALE: f64 = 10.0;

/// Bytes that the store needs beside each fragment, at most: its entry and the padding to a cache line.
const FRAGMENT_OVERHEAD_BYTES: u64 = 128;

/// A demo that can be carried out.
pub(crate) struct Plan {
    pub(crate) config: DemoConfig,
    pub(crate) frames: FrameSource,
    pub(crate) schema: KeySchema,
    pub(crate) fragment_bytes: usize,
    /// Payload bytes of one event.
    pub(crate) event_bytes: u64,
    /// When there is beam; `None` is always.
    pub(crate) beam: Option<Beam>,
    pub(crate) segment_bytes: u64,
    /// How the warm level is cut; `None` without one.
    pub(crate) warm: Option<WarmPlan>,
    /// Most events that the fastest readout thread is ahead of the slowest.
    pub(crate) window: u64,
    /// Events per `get_any`.
    pub(crate) batch: usize,
    /// Sources that the first stage reads, in ascending order.
    pub(crate) fast: Vec<u32>,
    /// Sources that take part in calibration, in ascending order.
    pub(crate) calib: Vec<u32>,
    /// Which accepted physics events go to calibration as well.
    pub(crate) prescale: Prescale,
}

impl Plan {
    pub(crate) fn new(config: &DemoConfig) -> Result<Plan> {
        check(config)?;
        let frames = match &config.input {
            Some(path) => replay::frames(RecordedFrames::open(path)?),
            None => emulator::frames(config.seed),
        };
        let fragment_bytes = match config.fragment_bytes {
            0 => frames.kind().frame_bytes(),
            bytes => bytes,
        };
        // Refuses sizes whose products would not fit, too.
        let segment_bytes = segment_bytes(config, fragment_bytes as u64)?;
        let event_bytes = u64::from(config.sources) * fragment_bytes as u64;
        let warm = warm::cut(config, fragment_bytes as u64)?;
        // The plan's choices have rates where those of the person leave them open.
        let mut config = config.clone();
        let stored_bytes = event_bytes + u64::from(config.sources) * FRAGMENT_OVERHEAD_BYTES;
        let beam = duty::size(&mut config, stored_bytes)?;
        let share = config.hot_bytes / WINDOW_SHARE / event_bytes.max(1);
        let n = (f64::from(config.sources) * config.fast_fraction).ceil().clamp(1.0, f64::from(config.sources)) as u64;
        let spread = |n: u64| (0..n).map(|at| (at * u64::from(config.sources) / n) as u32).collect();
        Ok(Plan {
            frames,
            schema: KeySchema::run_event_source(),
            fragment_bytes,
            event_bytes,
            beam,
            segment_bytes,
            warm,
            window: share.clamp(1, WINDOW_EVENTS_MAX),
            batch: (BATCH_BYTES / event_bytes.max(1)).clamp(1, BATCH_EVENTS_MAX) as usize,
            fast: spread(n),
            calib: spread(u64::from(config.sources).div_ceil(CALIBRATION_SOURCES)),
            prescale: Prescale::new("calib", CALIBRATION_PRESCALE)?,
            config,
        })
    }

    /// Whether the selection keeps this event: a hash of seed and event number, the same in every run.
    pub(crate) fn keeps(&self, event: u64) -> bool {
        keeps(self.config.seed, event, self.config.accept)
    }

    /// The source under which the last stage writes its result: one past those of the detector.
    pub(crate) fn result_source(&self) -> u32 {
        self.config.sources
    }
}

fn check(config: &DemoConfig) -> Result<()> {
    within("seconds", config.seconds, 0.0, 1e7)?;
    within("accept", config.accept, 0.0, 1.0)?;
    within("fast_fraction", config.fast_fraction, 0.0, 1.0)?;
    within("sources", config.sources.into(), 1.0, SOURCES_MAX.into())?;
    within("readout threads", config.readout_threads as f64, 1.0, THREADS_MAX as f64)?;
    within("filter threads", config.filter_threads as f64, 1.0, THREADS_MAX as f64)?;
    if config.readout_threads > config.sources as usize {
        return Err(Error::invalid(format!(
            "{} readout threads for {} source(s): each thread owns at least one source",
            config.readout_threads, config.sources
        )));
    }
    Ok(())
}

/// The segment size of this hot level, raised where a fragment would not fit well.
fn segment_bytes(config: &DemoConfig, fragment_bytes: u64) -> Result<u64> {
    const STEP: u64 = 64 << 10;
    let stored = fragment_bytes.saturating_add(FRAGMENT_OVERHEAD_BYTES);
    let default = (config.hot_bytes / 64).clamp(256 << 10, 64 << 20) / STEP * STEP;
    // Two fragments, and an eighth more for header and directory.
    let needed = (stored.saturating_mul(9) / 4).div_ceil(STEP).saturating_mul(STEP);
    let segment = default.max(needed);
    let event = stored.saturating_mul(config.sources.into());
    let smallest = event
        .saturating_mul(EVENTS_IN_HOT_MIN)
        .max(needed.saturating_mul(SEGMENTS_MIN))
        .max((256 << 10) * (SEGMENTS_MIN + 2 * config.readout_threads as u64))
        .max(HOT_BYTES_MIN);
    if config.hot_bytes >= smallest {
        return Ok(segment);
    }
    Err(Error::invalid(format!(
        "a hot level of {} is too small for events of {} ({} × {fragment_bytes} B): {EVENTS_IN_HOT_MIN} events and \
         {SEGMENTS_MIN} segments must fit, at least {} bytes ({})",
        bytes(config.hot_bytes),
        bytes(u64::from(config.sources).saturating_mul(fragment_bytes)),
        config.sources,
        smallest,
        bytes(smallest)
    )))
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): spreads neighbouring numbers over all 64 bits.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

pub(crate) fn keeps(seed: u64, event: u64, accept: f64) -> bool {
    let number = mix(mix(seed).wrapping_add(event.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    // 53 bits: what a double holds; 1.0 keeps everything, 0.0 nothing.
    ((number >> 11) as f64) < accept * (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;
    use forebay_store::Sources;

    fn refused(change: impl FnOnce(&mut DemoConfig)) -> String {
        let mut config = DemoConfig::default();
        change(&mut config);
        let error = Plan::new(&config).err().expect("refused");
        assert_eq!(error.kind(), Kind::Invalid);
        error.message().to_owned()
    }

    #[test]
    fn the_default_is_one_frame_per_fragment() {
        let plan = Plan::new(&DemoConfig::default()).unwrap();
        assert_eq!((plan.fragment_bytes, plan.event_bytes), (7200, 48 * 7200));
        assert_eq!(plan.fast, [0, 9, 19, 28, 38]);
        assert_eq!(plan.segment_bytes, 16 << 20);
        plan.keyspace().unwrap();
        assert_eq!(plan.calib.len(), 12);
        assert_eq!(plan.group(&plan.fast).unwrap(), Sources::only(&plan.schema, [0, 9, 19, 28, 38]).unwrap());
    }

    #[test]
    fn what_cannot_work_is_refused_with_numbers() {
        assert!(refused(|config| config.accept = 1.5).contains("accept: 0 to 1, not 1.5"));
        assert!(refused(|config| config.accept = f64::NAN).contains("accept"));
        assert!(refused(|config| config.seconds = -1.0).contains("seconds"));
        assert!(refused(|config| config.sources = 0).contains("sources"));
        assert!(refused(|config| config.filter_threads = 0).contains("filter threads"));
        assert!(
            refused(|config| (config.sources, config.readout_threads) = (2, 3)).contains("3 readout threads for 2")
        );
        let small = refused(|config| config.hot_bytes = 1 << 20);
        assert!(small.contains("a hot level of 1.00 MiB is too small for events of 338 KiB (48 × 7200 B)"), "{small}");
        let large = refused(|config| config.fragment_bytes = 64 << 20);
        assert!(large.contains("12 events"), "{large}");
        assert!(refused(|config| config.fragment_bytes = usize::MAX).contains("too small"));
        assert!(refused(|config| config.input = Some("/no/such/file".into())).contains("/no/such/file"));
    }

    #[test]
    fn the_least_that_is_named_is_enough() {
        for (sources, fragment_bytes) in [(1, 64), (48, 7200), (500, 173_000), (2, 10_000_000)] {
            let mut config = DemoConfig { sources, fragment_bytes, readout_threads: 1, ..DemoConfig::default() };
            config.hot_bytes = 1;
            let message = Plan::new(&config).err().unwrap().message().to_owned();
            let (_, least) = message.split_once("at least ").unwrap();
            config.hot_bytes = least.split(' ').next().unwrap().parse().unwrap();
            let plan = Plan::new(&config).unwrap();
            assert!(config.hot_bytes / plan.segment_bytes >= SEGMENTS_MIN, "{message}");
        }
    }

    #[test]
    fn the_accepted_part_is_as_asked_and_repeatable() {
        for accept in [0.0, 0.1, 0.5, 1.0] {
            let kept = (1..=100_000).filter(|event| keeps(7, *event, accept)).count() as f64;
            assert!((kept / 100_000.0 - accept).abs() < 0.005, "{accept}: {kept}");
        }
        let kept = |seed| (0..1000).filter(|event| keeps(seed, *event, 0.1)).collect::<Vec<u64>>();
        assert_eq!(kept(1), kept(1));
        assert_ne!(kept(1), kept(2));
    }
}
