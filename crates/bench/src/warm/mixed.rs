//! One writes at full speed while others drain: on one device, on two, and with both on the same container.
//!
//! *Drain* means: whole events are read in the order of their container, by as many threads as fio has operations in
//! flight. Both sides end when the writer has finished; the sum of both is compared.

use super::Measurement;
use super::fio::{Fio, Job, Pattern, preallocated};
use super::level::{EXTENT_BYTES, Level, Payloads};
use super::loops::LoopDevice;
use super::options::Plan;
use super::reading::SHAPE;
use crate::Result;
use crate::engine::Scratch;
use forebay_store::measure::EventPlace;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Event numbers of what is drained, apart from those that are written meanwhile.
const DRAINED: u64 = 1 << 40;

/// Measures one repetition on one device.
pub(super) fn one(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    let level = Level::create(plan, std::slice::from_ref(&plan.dir), 2 * plan.write_bytes, plan.operation_bytes)?;
    let pair = Pair::new(on, level, plan.write_bytes, [None, None])?;
    let fio = Files::new(on, [&plan.dir, &plan.dir], plan.write_bytes)?;
    let id = |word: &str| format!("mixed.{word}.one");
    on.beside(id, SHAPE.event_bytes(), |runner| fio.sum(runner, plan), || pair.run())?;
    on.record("mixed.warm.same", SHAPE.event_bytes(), pair.same_container()?);
    Ok(())
}

/// Measures one repetition on two devices; each holds at most half of what one pass writes elsewhere.
pub(super) fn two(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    let (scratch, payload) = (Scratch::new(&plan.dir)?, plan.write_bytes / 2);
    // Room for the files of fio, for both roles of a warm level's device, and for the file system.
    let bytes = (payload * 4 + 8 * plan.container_bytes) + (64 << 20);
    let devices = [LoopDevice::new(&scratch, "one", bytes)?, LoopDevice::new(&scratch, "other", bytes)?];
    let dirs: Vec<PathBuf> = devices.iter().map(|device| device.path().to_owned()).collect();
    let fio = Files::new(on, [&dirs[0], &dirs[1]], payload)?;
    let level = Level::create(plan, &dirs, 2 * payload, plan.operation_bytes)?;
    let pair = Pair::new(on, level, payload, [Some(0), Some(1)])?;
    let id = |word: &str| format!("mixed.{word}.two");
    on.beside(id, SHAPE.event_bytes(), |runner| fio.sum(runner, plan), || pair.run())?;
    drop(pair);
    let level = Level::create(plan, &dirs, 2 * payload, plan.operation_bytes)?;
    let pair = Pair::new(on, level, payload, [None, None])?;
    on.record("mixed.warm.both", SHAPE.event_bytes(), pair.run()?);
    Ok(())
}

/// The files of fio: one that it writes, one that it reads.
struct Files {
    files: [PathBuf; 2],
    bytes: u64,
    _scratch: [Scratch; 2],
}

impl Files {
    /// Files of this size in these directories, with all blocks allocated.
    fn new(on: &Measurement<'_>, dirs: [&PathBuf; 2], bytes: u64) -> Result<Files> {
        let scratch = [Scratch::new(dirs[0])?, Scratch::new(dirs[1])?];
        let files = [
            preallocated(&scratch[0].path().join("written"), bytes)?,
            preallocated(&scratch[1].path().join("read"), bytes)?,
        ];
        for file in &files {
            on.fio.run(&[Job::once(Pattern::Write, file, bytes, on.plan.operation_bytes, on.plan.depth)])?;
        }
        Ok(Files { files, bytes, _scratch: scratch })
    }

    /// The first written from front to back, the other read so, over and over, until the first is written: the sum.
    fn sum(&self, fio: &Fio, plan: &Plan) -> Result<f64> {
        let [written, read] = &self.files;
        let write = Job::once(Pattern::Write, written, self.bytes, plan.operation_bytes, plan.depth);
        let read = Job::once(Pattern::Read, read, self.bytes, SHAPE.event_bytes(), plan.drainers);
        let moved = fio.race(&[write, Job { time: Some(Duration::from_secs(60)), ..read }])?;
        Ok(moved.iter().map(|moved| moved.rate).sum())
    }
}

/// A writer and drainers with what they work on.
struct Pair<'a> {
    level: Level,
    payloads: Payloads<'a>,
    drained: Vec<EventPlace>,
    payload: u64,
    writes_to: Option<u32>,
    drainers: usize,
}

impl<'a> Pair<'a> {
    /// Writes everything once, so that all blocks are allocated, and writes the events that will be drained.
    fn new(on: &Measurement<'a>, level: Level, payload: u64, devices: [Option<u32>; 2]) -> Result<Pair<'a>> {
        let payloads = Payloads::new(on.buffer, SHAPE);
        let events = SHAPE.events(payload);
        level.wear(&payloads, SHAPE)?;
        let drained = level.write_one(&payloads, SHAPE, DRAINED..DRAINED + events, devices[1])?;
        level.level.close()?;
        Ok(Pair { level, payloads, drained, payload, writes_to: devices[0], drainers: on.plan.drainers })
    }

    /// Writes while another container is drained; answers the sum of both in bytes per second.
    fn run(&self) -> Result<f64> {
        let next = AtomicUsize::new(0);
        let drained = || Some(self.drained[next.fetch_add(1, Ordering::Relaxed) % self.drained.len()]);
        let (rate, places) = self.side_by_side(drained, || {
            self.level.write_one(&self.payloads, SHAPE, 0..SHAPE.events(self.payload), self.writes_to)
        })?;
        self.level.recycle(places, SHAPE)?;
        Ok(rate)
    }

    /// Writes, and reads back from the same containers, in the same order, as soon as the data is durable.
    fn same_container(&self) -> Result<f64> {
        let durable: Mutex<(usize, Vec<EventPlace>)> = Mutex::default();
        let drained = || {
            let mut durable = durable.lock().ok()?;
            let place = durable.1.get(durable.0).copied();
            durable.0 += usize::from(place.is_some());
            place
        };
        let (rate, _) = self.side_by_side(drained, || {
            let mut writing = self.level.level.writing(0, self.writes_to)?;
            let (events, batch) = (SHAPE.events(self.payload), (EXTENT_BYTES / SHAPE.event_bytes()) as u64);
            for first in (0..events).step_by(batch as usize) {
                writing.append(first, self.payloads.of_events(first / batch, batch, SHAPE), SHAPE.fragments)?;
                let now = writing.durable()?;
                let mut durable = durable.lock().map_err(|_| "a drainer failed")?;
                let known = durable.1.len();
                durable.1.extend_from_slice(&now[known..]);
            }
            Ok(writing.finish()?)
        })?;
        Ok(rate)
    }

    /// Writes in this thread and drains in others until the writer has finished; drainers wait for data.
    fn side_by_side(
        &self,
        drained: impl Fn() -> Option<EventPlace> + Sync,
        write: impl FnOnce() -> Result<Vec<EventPlace>>,
    ) -> Result<(f64, Vec<EventPlace>)> {
        let (over, read) = (AtomicBool::new(false), AtomicU64::new(0));
        let drain = || -> Result<()> {
            while !over.load(Ordering::Relaxed) {
                match drained() {
                    Some(place) => drop(read.fetch_add(self.level.level.read(&place)?, Ordering::Relaxed)),
                    None => std::thread::sleep(Duration::from_micros(200)),
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let drainers: Vec<_> = (0..self.drainers).map(|_| scope.spawn(drain)).collect();
            let from = Instant::now();
            let written = write();
            let (seconds, read) = (from.elapsed().as_secs_f64(), read.load(Ordering::Relaxed));
            over.store(true, Ordering::Relaxed);
            for drainer in drainers {
                drainer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            let written = written?;
            let bytes = (written.len() * SHAPE.event_bytes()) as u64 + read;
            Ok((bytes as f64 / seconds, written))
        })
    }
}
