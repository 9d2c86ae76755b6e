//! Sizing of a node: rates in, how long each level lasts, what its drives endure, and what binds first.
//!
//! ```text
//! events × bytes ─▶ hot (waits for the selection) ─▶ warm (waits for the archive) ─▶ archive
//!                     seconds to full                  hours to full, drive writes per day
//! ```
//!
//! Every figure follows from the [`Setup`] by the arithmetic beside it; `docs/operating.md` says it in words.
//!
//! *Invariants*: a plan that was made has finite figures only; what there is no figure for is `None`, never 0 (test
//! `what_is_not_known_is_not_invented`).
//!
//! *Not here*: measurements; the text for people.

mod advice;

use crate::demo::Profile;
use crate::figures::within;
use crate::limits::SOURCES_MAX;
use forebay_core::{Error, Result};
use serde::Serialize;

/// Bytes that reach a drive per byte of payload, for fragments of about 10 KiB in whole events: heads, directories and
/// padding of containers. Fragments of 1 KiB have 1.06.
pub const WRITE_AMPLIFICATION: f64 = 1.02;
/// Fill of the hot level above which demotion and inhibit begin.
pub const HOT_HIGH: f64 = 0.90;
/// Fill of the warm level above which inhibit begins.
pub const WARM_HIGH: f64 = 0.90;
/// Bytes of both decision log files of a device.
pub const LOG_BYTES: u64 = 2 * (64 << 20);
/// Bytes of an entry in the hot level's directory, with keys of 16 bytes.
pub const ENTRY_BYTES: u64 = 48;
/// Bytes of memory outside of the hot level for an event there, without its fragments: state, primary key, tree.
pub const INDEX_EVENT_BYTES: u64 = 96;
/// Bytes of memory for each fragment of an event in the hot level.
pub const INDEX_FRAGMENT_BYTES: u64 = 12;
/// Bytes of memory for an event in the warm level.
pub const INDEX_WARM_BYTES: u64 = 64;

const SECONDS_PER_DAY: f64 = 86_400.0;
/// Largest size that is taken: far beyond any node, and products of it stay finite.
const BYTES_MAX: u64 = 1 << 56;
/// Smallest rate or latency that is taken.
const POSITIVE_MIN: f64 = 1e-6;
const RATE_MAX: f64 = 1e9;
const BYTE_RATE_MAX: f64 = 1e15;

/// What a node gets and what it has. Rates are per second while the beam is on, unless said otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// Sources of an event.
    pub sources: u32,
    /// Payload bytes of a fragment.
    pub fragment_bytes: u64,
    /// Events per second.
    pub event_rate: f64,
    /// Share of events that the selection keeps, 0 to 1.
    pub accept: f64,
    /// Share of the time with beam, above 0 to 1.
    pub duty: f64,
    /// Events per second that the selection decides, on all days alike.
    pub filter_rate: Option<f64>,
    /// How long an event waits for its decision, in seconds.
    pub decision_latency_s: Option<f64>,
    /// Bytes of the hot level.
    pub hot_bytes: u64,
    /// Bytes of each device of the warm level.
    pub warm_bytes: Vec<u64>,
    /// Bytes per second that one device writes.
    pub device_write_rate: Option<f64>,
    /// Bytes per second that the archive takes, on all days alike.
    pub archive_rate: Option<f64>,
    /// Drive writes per day that a device is rated for.
    pub endurance: Option<f64>,
    /// How long the warm level is to last without the archive, in seconds.
    pub autonomy_s: f64,
    /// Bytes of a container.
    pub container_bytes: u64,
}

impl Setup {
    /// Events of this shape at this rate into a hot level; everything accepted, beam always on, no warm level.
    pub fn new(sources: u32, fragment_bytes: u64, event_rate: f64, hot_bytes: u64) -> Setup {
        Setup {
            sources,
            fragment_bytes,
            event_rate,
            accept: 1.0,
            duty: 1.0,
            filter_rate: None,
            decision_latency_s: None,
            hot_bytes,
            warm_bytes: Vec::new(),
            device_write_rate: None,
            archive_rate: None,
            endurance: None,
            autonomy_s: 12.0 * 3600.0,
            container_bytes: 1 << 30,
        }
    }

    /// Sources and fragment bytes of a profile's event.
    pub fn event_of(profile: Profile) -> (u32, u64) {
        let shape = profile.shape();
        (shape.sources, shape.fragment_bytes as u64)
    }

    fn check(&self) -> Result<()> {
        within("sources", self.sources.into(), 1.0, SOURCES_MAX.into())?;
        within("event rate", self.event_rate, POSITIVE_MIN, RATE_MAX)?;
        within("accept", self.accept, 0.0, 1.0)?;
        within("duty", self.duty, POSITIVE_MIN, 1.0)?;
        within("autonomy in seconds", self.autonomy_s, 0.0, 1e9)?;
        let positive = [
            ("filter rate", self.filter_rate, RATE_MAX),
            ("decision latency in seconds", self.decision_latency_s, 1e9),
            ("device write rate", self.device_write_rate, BYTE_RATE_MAX),
            ("archive rate", self.archive_rate, BYTE_RATE_MAX),
            ("endurance in drive writes per day", self.endurance, 1e6),
        ];
        for (what, value, most) in positive {
            value.map_or(Ok(()), |value| within(what, value, POSITIVE_MIN, most))?;
        }
        let sizes = [("fragment bytes", self.fragment_bytes), ("hot bytes", self.hot_bytes)];
        for (what, bytes) in sizes {
            within(what, bytes as f64, 1.0, BYTES_MAX as f64)?;
        }
        within("container bytes", self.container_bytes as f64, f64::from(64 << 10), (4_u64 << 30) as f64)?;
        for (number, &bytes) in self.warm_bytes.iter().enumerate() {
            within("bytes of a warm device", bytes as f64, 1.0, BYTES_MAX as f64)?;
            if bytes < LOG_BYTES + self.container_bytes {
                return Err(Error::invalid(format!(
                    "warm device {number} of {bytes} bytes has no room for its decision log ({LOG_BYTES}) and one \
                     container ({})",
                    self.container_bytes
                )));
            }
        }
        if self.warm_bytes.is_empty() {
            let without = [
                ("device write rate", self.device_write_rate),
                ("archive rate", self.archive_rate),
                ("endurance", self.endurance),
            ];
            if let Some((what, _)) = without.iter().find(|(_, value)| value.is_some()) {
                return Err(Error::invalid(format!("{what} without a device of the warm level")));
            }
        }
        Ok(())
    }
}

/// Bytes per second that flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Payload of all events, beam on.
    pub in_peak: f64,
    /// The same over all the time.
    pub in_mean: f64,
    /// Payload of accepted events, beam on.
    pub accepted_peak: f64,
    /// The same over all the time.
    pub accepted_mean: f64,
    /// What reaches the devices in normal running, amplification included, beam on.
    pub written_peak: f64,
    /// The same over all the time.
    pub written_mean: f64,
}

/// The hot level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HotPlan {
    /// Events that fit below the high-water mark.
    pub events: u64,
    /// Seconds until the high-water mark with no selection and no demotion, beam on.
    pub without_selection_s: f64,
    /// Events that wait for a decision, with the latency given.
    pub undecided_events: Option<f64>,
    /// Share of events that are demoted undecided, because the hot level cannot hold them until they are decided, or
    /// because the selection does not follow while the beam is on.
    pub spilled: f64,
    /// Seconds until the high-water mark while the selection is slower than the beam; `None` where it is not.
    pub while_selection_lags_s: Option<f64>,
}

/// The warm level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WarmPlan {
    /// Devices.
    pub devices: usize,
    /// Bytes of all devices.
    pub bytes: u64,
    /// Containers of all devices.
    pub containers: u64,
    /// Payload bytes below the high-water mark.
    pub usable_bytes: f64,
    /// Events that fit below it.
    pub events: u64,
    /// Seconds until the mark without the archive, beam on all the time; `None` where nothing is accepted.
    pub without_archive_s: Option<f64>,
    /// The same with the pauses of the beam.
    pub without_archive_mean_s: Option<f64>,
    /// Seconds from the selection's end until puts wait, both levels together, everything demoted, beam on.
    pub without_selection_s: f64,
    /// With no selection, the devices are too slow to demote everything; `None` where their rate is not known.
    pub without_selection_device_bound: Option<bool>,
    /// Bytes per second that all devices write together.
    pub write_rate: Option<f64>,
    /// Seconds in which the archive empties a full level while data goes on to come; `None` where it does not.
    pub drain_s: Option<f64>,
    /// Drive writes per day in normal running.
    pub writes_per_day: f64,
    /// The same if every event were written, as without a selection.
    pub writes_per_day_all: f64,
    /// How many times over the rating covers that.
    pub endurance_margin: Option<f64>,
    /// Bytes of devices that the autonomy asked for takes.
    pub bytes_for_autonomy: f64,
}

/// One thing that has to suffice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// What it is.
    pub what: What,
    /// What there is.
    pub available: f64,
    /// What is needed.
    pub needed: f64,
    /// How many times over it suffices; below 1 it does not.
    pub headroom: f64,
}

/// What can bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Events per second decided, against events per second over all the time.
    Selection,
    /// Events that fit into the hot level, against those that wait for a decision.
    Hot,
    /// Bytes per second that the devices write, against what they have to, beam on.
    DeviceRate,
    /// Bytes per second that the archive takes, against what is accepted over all the time.
    Archive,
    /// Payload bytes of the warm level, against those of the autonomy asked for.
    Warm,
    /// Drive writes per day that the devices are rated for, against those that come.
    Endurance,
}

/// What follows from a [`Setup`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// What was asked.
    pub setup: Setup,
    /// Payload bytes of an event.
    pub event_bytes: u64,
    /// Bytes per second.
    pub flow: Flow,
    /// The hot level.
    pub hot: HotPlan,
    /// The warm level, if there is one.
    pub warm: Option<WarmPlan>,
    /// Bytes of memory for the index, with both levels at their marks.
    pub index_bytes: u64,
    /// Everything that has to suffice, the tightest first.
    pub bounds: Vec<Bound>,
    /// What to do, in words.
    pub advice: Vec<String>,
}

impl Sizing {
    /// Works it out.
    ///
    /// # Errors
    /// `Invalid` where a figure is out of its range, or where not one event fits into the hot level.
    pub fn new(setup: &Setup) -> Result<Sizing> {
        setup.check()?;
        let fragments = u64::from(setup.sources);
        let too_large = || Error::invalid(format!("{fragments} fragments of {} bytes an event", setup.fragment_bytes));
        let event_bytes =
            fragments.checked_mul(setup.fragment_bytes).filter(|&b| b <= BYTES_MAX).ok_or_else(too_large)?;
        let stored_bytes = fragments * (setup.fragment_bytes.next_multiple_of(64) + ENTRY_BYTES);
        let hot = hot(setup, stored_bytes);
        if hot.events == 0 {
            return Err(Error::invalid(format!(
                "a hot level of {} bytes, used up to {:.0} %, does not hold one event of {stored_bytes} bytes",
                setup.hot_bytes,
                HOT_HIGH * 100.0
            )));
        }
        let in_peak = setup.event_rate * event_bytes as f64;
        // What spills is written no matter how it is decided; of the rest, what is accepted.
        let written = (hot.spilled + (1.0 - hot.spilled) * setup.accept) * WRITE_AMPLIFICATION * in_peak;
        let flow = Flow {
            in_peak,
            in_mean: in_peak * setup.duty,
            accepted_peak: in_peak * setup.accept,
            accepted_mean: in_peak * setup.accept * setup.duty,
            written_peak: written,
            written_mean: written * setup.duty,
        };
        let warm = (!setup.warm_bytes.is_empty()).then(|| warm(setup, &flow, &hot, event_bytes));
        let index_bytes = hot.events * (INDEX_EVENT_BYTES + fragments * INDEX_FRAGMENT_BYTES)
            + warm.as_ref().map_or(0, |warm| warm.events * INDEX_WARM_BYTES);
        let bounds = bounds(setup, &flow, &hot, warm.as_ref());
        let mut sizing =
            Sizing { setup: setup.clone(), event_bytes, flow, hot, warm, index_bytes, bounds, advice: vec![] };
        sizing.advice = advice::advice(&sizing);
        Ok(sizing)
    }

    /// What binds first when rates grow; `None` where nothing is known that could.
    pub fn binds_first(&self) -> Option<&Bound> {
        self.bounds.first()
    }
}

fn hot(setup: &Setup, stored_bytes: u64) -> HotPlan {
    let events = (setup.hot_bytes as f64 * HOT_HIGH / stored_bytes as f64).floor();
    let seconds = events / setup.event_rate;
    let lag = setup.filter_rate.map_or(0.0, |rate| setup.event_rate - rate).max(0.0);
    // Spells of beam are taken to be much longer than the hot level lasts: then what the selection cannot follow spills.
    let waits = setup.decision_latency_s.map_or(0.0, |latency| 1.0 - seconds / latency);
    HotPlan {
        events: events as u64,
        without_selection_s: seconds,
        undecided_events: setup.decision_latency_s.map(|latency| latency * setup.event_rate),
        spilled: waits.max(lag / setup.event_rate),
        while_selection_lags_s: (lag > 0.0).then(|| events / lag),
    }
}

fn warm(setup: &Setup, flow: &Flow, hot: &HotPlan, event_bytes: u64) -> WarmPlan {
    let bytes: u64 = setup.warm_bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes));
    let containers = setup.warm_bytes.iter().map(|bytes| (bytes - LOG_BYTES) / setup.container_bytes).sum::<u64>();
    let payload_share = WARM_HIGH / WRITE_AMPLIFICATION;
    let usable_bytes = containers as f64 * setup.container_bytes as f64 * payload_share;
    let over = |rate: f64| (rate > 0.0).then(|| usable_bytes / rate);
    let write_rate = setup.device_write_rate.map(|rate| rate * setup.warm_bytes.len() as f64);
    // Demotion takes away what the devices can write, in bytes of payload.
    let taken = write_rate.map_or(flow.in_peak, |rate| flow.in_peak.min(rate / WRITE_AMPLIFICATION));
    let (hot_bytes, left) = (hot.events as f64 * event_bytes as f64, flow.in_peak - taken);
    let both_full_s = (hot_bytes + usable_bytes) / flow.in_peak;
    let writes = |per_second: f64| per_second * SECONDS_PER_DAY / bytes as f64;
    let writes_per_day = writes(flow.written_mean);
    WarmPlan {
        devices: setup.warm_bytes.len(),
        bytes,
        containers,
        usable_bytes,
        events: (usable_bytes / event_bytes as f64).floor() as u64,
        without_archive_s: over(flow.accepted_peak),
        without_archive_mean_s: over(flow.accepted_mean),
        without_selection_s: if left > 0.0 { both_full_s.min(hot_bytes / left) } else { both_full_s },
        without_selection_device_bound: write_rate.map(|_| left > 0.0),
        write_rate,
        drain_s: setup.archive_rate.and_then(|rate| over(rate - flow.accepted_mean)),
        writes_per_day,
        writes_per_day_all: writes(flow.in_mean * WRITE_AMPLIFICATION),
        endurance_margin: setup.endurance.filter(|_| writes_per_day > 0.0).map(|rated| rated / writes_per_day),
        bytes_for_autonomy: flow.accepted_mean * setup.autonomy_s / payload_share
            + (LOG_BYTES * setup.warm_bytes.len() as u64) as f64,
    }
}

fn bounds(setup: &Setup, flow: &Flow, hot: &HotPlan, warm: Option<&WarmPlan>) -> Vec<Bound> {
    let mut bounds = Vec::new();
    let mut bound = |what, available: Option<f64>, needed: f64| {
        if let Some(available) = available.filter(|_| needed > 0.0) {
            bounds.push(Bound { what, available, needed, headroom: available / needed });
        }
    };
    bound(What::Selection, setup.filter_rate, setup.event_rate * setup.duty);
    bound(What::Hot, Some(hot.events as f64), hot.undecided_events.unwrap_or(0.0));
    if let Some(warm) = warm {
        bound(What::DeviceRate, warm.write_rate, flow.written_peak);
        bound(What::Archive, setup.archive_rate, flow.accepted_mean);
        bound(What::Warm, Some(warm.usable_bytes), flow.accepted_mean * setup.autonomy_s);
        bound(What::Endurance, setup.endurance, warm.writes_per_day);
    }
    bounds.sort_by(|a, b| a.headroom.total_cmp(&b.headroom));
    bounds
}

#[cfg(test)]
mod tests;
