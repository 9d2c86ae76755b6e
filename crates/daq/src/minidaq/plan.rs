//! The plan that follows from a [`MiniDaqConfig`]: checked numbers, the frame source, and how ring and store are set up.
//!
//! *Invariants*: a plan that was made can be carried out: the trigger records in flight fit into the hot level (test
//! `what_cannot_work_is_refused_with_numbers`).

use super::{MiniDaqConfig, Reach};
use crate::dune::{FRAGMENT_HEADER_BYTES, FragmentType, SourceId, Subsystem, TriggerRecordHeader};
use crate::figures::{bytes, within};
use crate::frames::{FrameKind, RecordedFrames};
use crate::limits::{
    HOT_BYTES_DEFAULT, HOT_BYTES_MIN, LEASE, LINKS_MAX, PUT_WAIT, RING_OVERHEAD_BYTES, SEGMENTS_MIN, SKEW_MAX,
    THREADS_MAX, TRIGGERS_PER_SECOND_MAX,
};
use crate::{FrameSource, emulator, replay};
use forebay_core::{
    Completeness, Error, Key, KeySchema, Keyspace, Primary, Result, RingKeyspace, RunConfig, SourceSchema,
};
use forebay_ring::RingConfig;
use forebay_store::Config;
use std::time::Duration;

/// The run of every MiniDAQ.
pub(crate) const RUN: u32 = 1;
/// The stream that accepted trigger records go to.
pub(crate) const STREAM: &str = "physics";
/// Frames of a WIB1 superchunk: one frame alone is too little for a put.
const SUPERCHUNK_FRAMES: usize = 12;

/// A MiniDAQ that can be carried out.
pub(crate) struct Plan {
    pub(crate) config: MiniDaqConfig,
    pub(crate) frames: FrameSource,
    pub(crate) links: u32,
    /// Ticks of the detector's clock in a second.
    pub(crate) ticks_per_second: u64,
    /// Frames that go into the ring at once.
    pub(crate) chunk_frames: u64,
    pub(crate) chunk_bytes: usize,
    pub(crate) chunk_ticks: u64,
    /// The window of a trigger, in ticks before and from it on.
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// Age of a trigger, in ticks.
    pub(crate) delay: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) hot_bytes: u64,
    pub(crate) schema: KeySchema,
    segment_bytes: u64,
}

impl Plan {
    pub(crate) fn new(config: &MiniDaqConfig) -> Result<Plan> {
        check(config)?;
        let frames = match &config.input {
            Some(path) => replay::frames(RecordedFrames::open(path)?),
            None => emulator::frames(config.seed),
        };
        let (ticks_per_second, chunk_frames, links) = match frames.kind() {
            FrameKind::Wib1 => (50_000_000, SUPERCHUNK_FRAMES, 1),
            FrameKind::WibEth => (62_500_000, 1, 4),
        };
        let links = if config.links == 0 { links } else { config.links };
        let readout_threads = config.readout_threads.min(links as usize);
        let ticks = |reach: Reach| reach.ticks(ticks_per_second);
        let mut plan = Plan {
            links,
            ticks_per_second,
            chunk_frames: chunk_frames as u64,
            chunk_bytes: chunk_frames * frames.kind().frame_bytes(),
            chunk_ticks: chunk_frames as u64 * frames.kind().ticks(),
            before: ticks(config.window_before),
            after: ticks(config.window_after),
            delay: ticks(config.trigger_delay),
            ring_bytes: 0,
            hot_bytes: 0,
            schema: KeySchema::parse(
                &["run:u32", "trigger:u64", "sequence:u16", "subsystem:u16", "id:u32"],
                &["run", "trigger", "sequence"],
            )?,
            segment_bytes: 0,
            frames,
            config: MiniDaqConfig { links, readout_threads, ..config.clone() },
        };
        for pause in &config.faults.pauses {
            within("link of a pause", pause.link.into(), 0.0, f64::from(links - 1))?;
        }
        within("window", (plan.before as f64 + plan.after as f64) / ticks_per_second as f64, 1e-9, 60.0)?;
        plan.ring_bytes = config.ring_bytes.unwrap_or_else(|| plan.ring_bytes_needed());
        (plan.hot_bytes, plan.segment_bytes) = plan.hot_level()?;
        Ok(plan)
    }

    /// Chunks that a window overlaps at most.
    fn window_chunks(&self) -> u64 {
        (self.before + self.after).div_ceil(self.chunk_ticks) + 1
    }

    /// Bytes of one link's fragment, at most.
    pub(crate) fn fragment_bytes(&self) -> u64 {
        FRAGMENT_HEADER_BYTES as u64 + self.window_chunks() * self.chunk_bytes as u64
    }

    /// Payload bytes of one link per second of time; in free running those of the detector's rate.
    fn link_bytes_per_second(&self) -> u64 {
        let scale = if self.config.rate_scale > 0.0 { self.config.rate_scale } else { 1.0 };
        let chunks = self.ticks_per_second as f64 / self.chunk_ticks as f64 * scale;
        (chunks * self.chunk_bytes as f64).ceil().max(1.0) as u64
    }

    /// Frames of one link per second of time at this scale; `None` in free running.
    pub(crate) fn frames_per_second(&self) -> Option<f64> {
        let frames = self.ticks_per_second as f64 / self.frames.kind().ticks() as f64 * self.config.rate_scale;
        (frames > 0.0).then_some(frames)
    }

    fn ring_bytes_needed(&self) -> u64 {
        let payload = self.link_bytes_per_second() as f64 * self.config.history.as_secs_f64() * f64::from(self.links);
        // A quarter more: entries, ends of chunks, and the chunk of each link that is being evicted.
        (payload * 1.25) as u64 + RING_OVERHEAD_BYTES * (u64::from(self.links) + 16)
    }

    /// Size of the hot level and of its segments, raised where a fragment would not fit well; refuses a level that is too
    /// small.
    fn hot_level(&self) -> Result<(u64, u64)> {
        const STEP: u64 = 64 << 10;
        let fragment = self.fragment_bytes();
        let hot_bytes = self.config.hot_bytes.unwrap_or(HOT_BYTES_DEFAULT);
        let default = (hot_bytes / 64).clamp(256 << 10, 64 << 20) / STEP * STEP;
        let segment = default.max((fragment.saturating_mul(9) / 4).div_ceil(STEP).saturating_mul(STEP));
        let record = fragment.saturating_mul(self.links.into());
        // In flight, as much again for what is being written and read, and an eighth that the store keeps free.
        let smallest = record
            .saturating_mul(u64::from(self.config.busy_at) * 9 / 4)
            .max(segment.saturating_mul(SEGMENTS_MIN + u64::from(self.links)))
            .max(HOT_BYTES_MIN);
        match self.config.hot_bytes {
            None => return Ok((hot_bytes.max(smallest), segment)),
            Some(hot_bytes) if hot_bytes >= smallest => return Ok((hot_bytes, segment)),
            Some(_) => {}
        }
        Err(Error::invalid(format!(
            "a hot level of {} is too small for {} trigger records in flight of {} ({} links × {fragment} B): at least \
             {smallest} bytes ({})",
            bytes(hot_bytes),
            self.config.busy_at,
            bytes(record),
            self.links,
            bytes(smallest)
        )))
    }

    /// The latency buffer: sources `subsystem/id`, with the clock at the chosen scale.
    pub(crate) fn ring_keyspace(&self) -> Result<RingKeyspace> {
        let scale = self.config.rate_scale;
        let keyspace = RingKeyspace {
            name: "readout".to_owned(),
            source: SourceSchema::parse(&["subsystem:u16", "id:u32"])?,
            ticks_per_second: if scale > 0.0 {
                (self.ticks_per_second as f64 * scale).round() as u64
            } else {
                self.ticks_per_second
            },
            sources_max: self.links,
            history: self.config.history,
            source_bytes_per_second: self.link_bytes_per_second(),
            // Without a rate, ticks and time have nothing to do with each other.
            max_skew: if scale > 0.0 { SKEW_MAX } else { Duration::from_secs(30 * 24 * 3600) },
            fragment_bytes_max: self.chunk_bytes,
            pin_percent: 50,
        };
        keyspace.check()?;
        Ok(keyspace)
    }

    pub(crate) fn ring_config(&self) -> RingConfig {
        RingConfig { hot_bytes: self.ring_bytes, ..RingConfig::default() }
    }

    /// A link as the ring knows it.
    pub(crate) fn ring_source(&self, keyspace: &RingKeyspace, link: u32) -> Result<forebay_core::SourceId> {
        keyspace.source(&[Subsystem::DETECTOR_READOUT.0.into(), link.into()])
    }

    /// The keyspace of trigger records; the run is opened by hand.
    pub(crate) fn keyspace(&self) -> Result<Keyspace> {
        let header = TriggerRecordHeader::bytes_for(self.links as usize);
        let keyspace = Keyspace {
            schema: self.schema.clone(),
            run: self.run_config()?,
            streams: vec![STREAM.to_owned()],
            fragment_bytes_max: usize::try_from(self.fragment_bytes()).unwrap_or(usize::MAX).max(header),
            ..Keyspace::events("trigger-records", self.links + 1)
        };
        keyspace.check()?;
        Ok(keyspace)
    }

    /// A trigger record is complete with a fragment of each link and its header.
    pub(crate) fn run_config(&self) -> Result<RunConfig> {
        let links = (0..self.links).map(SourceId::link).chain([SourceId::BUILDER]);
        let sources: Vec<Vec<u64>> = links.map(|source| vec![source.subsystem.0.into(), source.id.into()]).collect();
        Ok(RunConfig::new(Completeness::sources(&self.schema, &sources)?, self.config.record_timeout))
    }

    /// How the store of trigger records is opened.
    pub(crate) fn store_config(&self) -> Config {
        Config {
            hot_bytes: self.hot_bytes,
            segment_bytes: Some(self.segment_bytes),
            write_heads: (self.links as usize).min(8),
            put_deadline: PUT_WAIT,
            lease: LEASE,
            ..Config::default()
        }
    }

    /// The key of one fragment.
    pub(crate) fn key(&self, trigger: u64, source: SourceId) -> Result<Key> {
        self.schema.key(&[RUN.into(), trigger, 0, source.subsystem.0.into(), source.id.into()])
    }

    /// The trigger and the source that a key names.
    pub(crate) fn names(&self, key: &[u8]) -> (u64, SourceId) {
        match self.schema.values(key)[..] {
            [_, trigger, _, subsystem, id] => {
                (trigger, SourceId { subsystem: Subsystem(subsystem as u16), id: id as u32 })
            }
            _ => (0, SourceId::BUILDER),
        }
    }

    /// The trigger that a primary key names.
    pub(crate) fn trigger_of(&self, primary: &Primary) -> u64 {
        self.schema.values(primary.as_bytes()).get(1).copied().unwrap_or_default()
    }

    /// First tick of a chunk.
    pub(crate) fn timestamp(&self, chunk: u64) -> u64 {
        self.frames.timestamp(chunk * self.chunk_frames)
    }

    /// What the frames of a fragment are.
    pub(crate) fn fragment_type(&self) -> FragmentType {
        match self.frames.kind() {
            FrameKind::Wib1 => FragmentType::PROTO_WIB,
            FrameKind::WibEth => FragmentType::WIB_ETH,
        }
    }
}

fn check(config: &MiniDaqConfig) -> Result<()> {
    let seconds = |duration: Duration| duration.as_secs_f64();
    within("seconds", config.seconds, 0.0, 1e7)?;
    within("links", config.links.into(), 0.0, LINKS_MAX.into())?;
    within("rate scale", config.rate_scale, 0.0, 1000.0)?;
    within("readout threads", config.readout_threads as f64, 1.0, THREADS_MAX as f64)?;
    within("filter threads", config.filter_threads as f64, 1.0, THREADS_MAX as f64)?;
    within("history in seconds", seconds(config.history), 1e-3, 3600.0)?;
    within("triggers per second", config.triggers_per_second, 1e-3, TRIGGERS_PER_SECOND_MAX)?;
    within("burst", config.burst.into(), 1.0, 1e6)?;
    within("accept", config.accept, 0.0, 1.0)?;
    within("busy at, in trigger records", config.busy_at.into(), 2.0, 1e5)?;
    within("free below, in trigger records", config.free_below.into(), 1.0, 1e5)?;
    within("request time-out in seconds", seconds(config.request_timeout), 0.0, 60.0)?;
    within("record time-out in seconds", seconds(config.record_timeout), 1e-3, 600.0)?;
    within("filter time in seconds", seconds(config.filter_time), 0.0, seconds(LEASE) / 2.0)?;
    if config.free_below >= config.busy_at {
        return Err(Error::invalid(format!(
            "free below {} trigger records in flight, busy at {}: the first is the smaller one, or busy and free flutter",
            config.free_below, config.busy_at
        )));
    }
    if config.record_timeout <= config.request_timeout {
        return Err(Error::invalid(format!(
            "a record time-out of {:?} leaves no time for answers after the request time-out of {:?}",
            config.record_timeout, config.request_timeout
        )));
    }
    if config.rate_scale > 0.0 && config.rate_scale * 1e3 < 1.0 {
        return Err(Error::invalid(format!("rate scale: 0 or at least 0.001, not {}", config.rate_scale)));
    }
    Ok(())
}
