//! What a recording of rings needs before it begins: devices with room and rate for it, pins, and a link for each source.

use super::RingRecordingOptions;
use crate::RingSources;
use forebay_core::{Error, Kind, Result, RingKeyspace, RingStamp, RingStore, SourceId};
use forebay_recorder::{LinkConfig, Recording, RecordingLink};
use std::time::{Duration, Instant};

/// How long the pin lasts from each move on: longer than any piece, and short enough that a recording that died lets go.
pub(super) const PIN: Duration = Duration::from_secs(60);
/// Part of the ring's history, as a divisor, that is pinned ahead of its newest tick.
const AHEAD_SHARE: u32 = 8;
/// Parts of the ticks to be pinned by which the oldest are given up where the quota does not hold all.
const PIN_STEPS: u64 = 16;
/// How long a push waits for the device.
const PUSH_WAIT: Duration = Duration::from_secs(10);
/// How long each device is written to for its rate.
const MEASURE: Duration = Duration::from_millis(300);
/// A bound for sums of time.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a recording is asked for.
pub(super) struct Asked<'a> {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) how: &'a RingRecordingOptions,
}

impl Asked<'_> {
    /// The sources that are meant, each once and in order.
    fn sources<R: RingStore>(&self, ring: &R) -> Result<Vec<SourceId>> {
        let mut sources = match &self.how.sources {
            RingSources::All => ring.sources()?.into_iter().map(|status| status.source).collect(),
            RingSources::Only(named) => named.clone(),
        };
        sources.sort_unstable();
        if sources.is_empty() {
            return Err(Error::invalid("no source to record: the ring has seen none yet"));
        }
        Ok(sources)
    }

    pub(super) fn prepare<R: RingStore>(
        &self,
        rings: &[R],
        recording: &Recording,
    ) -> Result<(Vec<Prepared<R>>, Option<u64>)> {
        self.check(rings)?;
        let sources = rings.iter().map(|ring| self.sources(ring)).collect::<Result<Vec<_>>>()?;
        let declared = |(ring, sources): (&R, &Vec<SourceId>)| declared(ring.keyspace(), sources);
        let declared = rings.iter().zip(&sources).map(declared).fold(0_u64, u64::saturating_add);
        self.check_room(rings, &sources, declared, recording)?;
        // Before anything that takes time: what is there goes on to age.
        let pins =
            rings.iter().zip(&sources).map(|(ring, sources)| self.pin(ring, sources)).collect::<Result<Vec<_>>>()?;
        let rate = check_rate(recording, declared, self.how)?;
        let plans = rings
            .iter()
            .zip(&sources)
            .flat_map(|(ring, sources)| sources.iter().map(|source| link_plan(ring.keyspace(), source, self.how)));
        let mut links = recording.links(plans.collect())?;
        for link in &mut links {
            if let Some(ring) = rings.iter().find(|ring| link.payload_bytes_max() < ring.keyspace().fragment_bytes_max)
            {
                return Err(Error::invalid(format!(
                    "fragments of {} bytes: an extent of the recording takes {}",
                    ring.keyspace().fragment_bytes_max,
                    link.payload_bytes_max()
                )));
            }
            link.wait_for_device(PUSH_WAIT);
        }
        let mut links = links.into_iter();
        let prepared = rings.iter().zip(sources).zip(pins).map(|((ring, sources), pin)| Prepared {
            links: links.by_ref().take(sources.len()).collect(),
            sources: RingSources::Only(sources),
            ring: ring.clone(),
            pin,
        });
        Ok((prepared.collect(), rate))
    }

    /// Rings that go together have one clock, and no source in common.
    fn check<R: RingStore>(&self, rings: &[R]) -> Result<()> {
        let Some(first) = rings.first() else { return Err(Error::invalid("no ring to record")) };
        if rings.len() > 1 && self.how.sources != RingSources::All {
            return Err(Error::invalid("of several rings all sources are recorded"));
        }
        let clock = first.keyspace().ticks_per_second;
        if let Some(other) = rings.iter().find(|ring| ring.keyspace().ticks_per_second != clock) {
            return Err(Error::invalid(format!(
                "rings of one recording have one clock: `{}` has {clock} ticks a second, `{}` {}",
                first.keyspace().name,
                other.keyspace().name,
                other.keyspace().ticks_per_second
            )));
        }
        Ok(())
    }

    fn check_room<R: RingStore>(
        &self,
        rings: &[R],
        sources: &[Vec<SourceId>],
        declared: u64,
        recording: &Recording,
    ) -> Result<()> {
        let (ticks, keyspaces) = (self.end - self.begin, || rings.iter().map(RingStore::keyspace));
        let per_second = keyspaces().map(|keyspace| keyspace.ticks_per_second).max().unwrap_or(1);
        // In 128 bits: a day of ticks by bytes per second passes 64.
        let bytes = u128::from(ticks) * u128::from(declared) / u128::from(per_second.max(1));
        let longest = keyspaces().map(|keyspace| keyspace.fragment_bytes_max).max().unwrap_or(1);
        let room = recording.room_bytes(longest);
        if u128::from(room) < bytes {
            return Err(Error::full(format!(
                "{ticks} ticks of {} sources at {declared} bytes per second together are {bytes} bytes: the recording has \
                 room for {room}",
                sources.iter().map(Vec::len).sum::<usize>(),
            )));
        }
        Ok(())
    }

    /// Pins what the quota holds.
    fn pin<R: RingStore>(&self, ring: &R, sources: &[SourceId]) -> Result<R::Pin> {
        let end = pin_end(ring, sources, self.end)?.max(self.begin.saturating_add(1));
        let named = RingSources::Only(sources.to_vec());
        let mut refused = None;
        for begin in pin_begins(self.begin, end) {
            match ring.pin(begin, end, &named, PIN) {
                Err(error) if error.kind() == Kind::Full => refused = refused.or(Some(error)),
                other => return other,
            }
        }
        Err(refused.unwrap_or_else(|| Error::internal("a pin has no begin")))
    }

    /// When the recording is over in any case.
    pub(super) fn deadline(&self, keyspace: &RingKeyspace) -> Instant {
        let ns = u128::from(self.end - self.begin) * 1_000_000_000 / u128::from(keyspace.ticks_per_second.max(1));
        let length = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        Instant::now() + length.saturating_add(self.how.patience).saturating_add(self.how.grace).min(YEAR)
    }
}

/// What the devices take, where that is known or can be measured.
fn check_rate(recording: &Recording, declared: u64, how: &RingRecordingOptions) -> Result<Option<u64>> {
    let rate = match how.device_bytes_per_second {
        Some(known) => Some(known),
        // Measured with the ticks pinned: what is there must not age away while the devices are tried.
        None => match recording.measure(MEASURE) {
            Ok(rate) => Some(rate),
            // The containers have all there is: nothing is left to measure on.
            Err(error) if error.kind() == Kind::Full => None,
            Err(error) => return Err(error),
        },
    };
    if let Some(rate) = rate.filter(|&rate| rate < declared) {
        return Err(Error::full(format!(
            "the declared rates of the sources are {declared} together: the devices take {rate} bytes per second"
        )));
    }
    Ok(rate)
}

/// Bytes per second of these sources together.
fn declared(keyspace: &RingKeyspace, sources: &[SourceId]) -> u64 {
    keyspace.source_bytes_per_second.saturating_mul(sources.len() as u64)
}

fn link_plan(keyspace: &RingKeyspace, source: &SourceId, how: &RingRecordingOptions) -> LinkConfig {
    let key = keyspace.source.key(source, &RingStamp { timestamp: 0, span: 1, run: 0 });
    let rate = u128::from(keyspace.source_bytes_per_second.max(1));
    let reckoned = keyspace.fragment_bytes_max as u128 * u128::from(keyspace.ticks_per_second) / rate;
    LinkConfig {
        source: key.as_bytes().get(..keyspace.source.bytes()).unwrap_or_default().to_vec(),
        name: format!("source {source}"),
        format: how.format.clone(),
        ticks_per_frame: how.ticks_per_fragment.unwrap_or(u32::try_from(reckoned).unwrap_or(u32::MAX)).max(1),
        ticks_per_second: keyspace.ticks_per_second,
        device: None,
    }
}

/// Up to where a pin reaches now: what there is, and a part of the history ahead of it.
pub(super) fn pin_end<R: RingStore>(ring: &R, sources: &[SourceId], end: u64) -> Result<u64> {
    let keyspace = ring.keyspace();
    let statuses = ring.sources()?.into_iter().filter(|status| sources.binary_search(&status.source).is_ok());
    let head = statuses.filter_map(|status| status.newest).max();
    let ahead = keyspace.ticks(keyspace.history / AHEAD_SHARE);
    Ok(head.max(ring.now()?).map_or(end, |now| now.saturating_add(ahead).min(end)))
}

/// Where a pin may begin, best first: what the quota does not hold is given up from the oldest tick on.
pub(super) fn pin_begins(begin: u64, end: u64) -> impl Iterator<Item = u64> {
    let step = (end - begin) / PIN_STEPS;
    (0..if step > 0 { PIN_STEPS } else { 1 }).map(move |at| begin + at * step)
}

/// A ring whose recording can begin.
pub(super) struct Prepared<R: RingStore> {
    pub(super) ring: R,
    pub(super) sources: RingSources,
    pub(super) links: Vec<RecordingLink>,
    pub(super) pin: R::Pin,
}
