//! The warm level as people see it: devices, containers, what went down and what went wrong.

use crate::Store;
use crate::placement::Level;
use forebay_core::{ContainerStatus, DeviceStatus, WarmStats};
use forebay_media::bytes::Stream;
use forebay_media::warm::{ContainerInfo, Phase};
use std::sync::atomic::Ordering;

impl Store {
    /// All containers of the warm level as they are now; none without one.
    pub fn containers(&self) -> Vec<ContainerStatus> {
        let engine = self.engine();
        let Some(level) = &engine.placement.level else { return Vec::new() };
        let streams = engine.decisions.streams.read().names().to_vec();
        level.warm.containers().iter().map(|info| status(info, &streams)).collect()
    }

    /// The warm level at a glance; `None` where the store has none.
    pub fn warm_stats(&self) -> Option<WarmStats> {
        self.engine().placement.level.as_ref().map(Level::stats)
    }
}

fn status(info: &ContainerInfo, streams: &[String]) -> ContainerStatus {
    let header = &info.header;
    let holds = !matches!(info.phase, Phase::Empty | Phase::Lost | Phase::Reclaiming);
    let stream = match header.stream {
        Stream::Accepted(number) => {
            streams.get(usize::from(number)).cloned().unwrap_or_else(|| header.stream.to_string())
        }
        other => other.to_string(),
    };
    ContainerStatus {
        container: header.container,
        device: header.device,
        state: match info.phase {
            Phase::Empty => "empty",
            Phase::Filling => "filling",
            Phase::Full => "full",
            Phase::Draining => "draining",
            Phase::Poisoned => "poisoned",
            Phase::Reclaiming => "recycling",
            Phase::Lost => "lost",
            Phase::Custody => "custody",
        }
        .into(),
        stream: if holds { stream } else { String::new() },
        run: (holds && header.run != forebay_media::bytes::ContainerHeader::SHARED_RUN).then_some(header.run),
        generation: header.generation,
        bytes: header.container_bytes,
        used_bytes: if holds { header.data_end } else { 0 },
        fragments: if holds { header.fragments } else { 0 },
        live_fragments: info.live_fragments,
        pins: info.pins,
    }
}

impl Level {
    pub(crate) fn stats(&self) -> WarmStats {
        let devices = self.warm.devices();
        let exchanged = self.exchanged.lock().clone();
        let device = |(number, info): (u32, &forebay_media::warm::DeviceInfo)| DeviceStatus {
            name: info.name.clone(),
            method: info.method.clone(),
            stalled: info.stalled,
            poisoned: info.poisoned,
            draining: info.draining,
            free: info.free,
            leaving: info.leaving,
            drained: info.drained,
            exchanged: exchanged.get(&number).map(|path| path.display().to_string()),
            payload_bytes: info.counts.payload,
            written_bytes: info.counts.written(),
            commits: info.counts.commits,
            reads: info.counts.reads,
            read_bytes: info.counts.read_bytes,
            log_permille: (self.log.fill(number) * 1000.0) as u32,
            log_commits: self.log.info(number).map_or(0, |info| info.commits),
        };
        let containers = self.warm.containers();
        WarmStats {
            fill: self.warm.fill(),
            containers: containers.len() as u32,
            free: self.warm.free_containers(),
            container_bytes: self.warm.shape().container_bytes,
            demoted_events: self.demoted_events.load(Ordering::Relaxed),
            demoted_bytes: self.demoted_bytes.load(Ordering::Relaxed),
            saved_bytes: self.saved_bytes.load(Ordering::Relaxed),
            in_flight_bytes: self.in_flight.load(Ordering::Relaxed),
            to_archive: self.warm.drainable(None).len() as u32,
            in_custody: self.warm.in_custody().len() as u32,
            custody_shortened: self.custody_shortened.load(Ordering::Relaxed),
            unproved_claims: self.unproved_claims.load(Ordering::Relaxed),
            proved_ms: self.proved_ms.load(Ordering::Relaxed),
            devices: (0..).zip(&devices).map(device).collect(),
            added: self.added.lock().iter().map(|added| added.name.clone()).collect(),
            notes: self.notes.lock().clone(),
        }
    }
}
