//! A recording while it is made: its links, its devices' threads, and the manifest at its end.
//!
//! ```text
//! create: containers allocated ─▶ link … link: described on the medium ─▶ push … push ─▶ links dropped
//!   ─▶ finish: all images durable or missed ─▶ containers closed ─▶ manifest written, synced, renamed
//! ```
//!
//! *Invariants*: the manifest is written after every container is closed durably, and its sums are checked before
//! (tests/record/).
//!
//! *On failure*: a recording that is dropped without `finish`, or whose process dies, has no manifest; opening makes one
//! from the containers and says so.

use super::books::Books;
use super::cause::GapReason;
use super::config::{LinkConfig, RecordingConfig};
use super::create;
use super::files::{self, Description};
use super::lane::{self, Sink};
use super::limits::{FRAME_OVERHEAD_BYTES, LINKS_MAX};
use super::link::RecordingLink;
use super::manifest::{DeviceManifest, GapManifest, LinkManifest};
use super::measure;
use super::recorder::Recorder;
use forebay_core::{Error, Result};
use forebay_media::warm::{Device, Warm};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The devices themselves.
pub(super) struct Medium {
    pub(super) devices: Vec<Arc<dyn Device>>,
    pub(super) warm: Arc<Warm>,
    /// Names that were there before, by device.
    pub(super) before: Vec<HashSet<String>>,
}

/// How often `finish` looks whether the devices are done.
const LOOK: Duration = Duration::from_millis(2);

/// A device of a recording, and how its thread gets at it.
pub(super) struct LaneStart {
    pub(super) directory: String,
    pub(super) method: String,
    pub(super) containers: u32,
    pub(super) bytes: u64,
    /// Called on the thread.
    pub(super) run: Drive,
}

/// The work of a recording's thread, with the owner of its sink.
type Drive = Box<dyn FnOnce(&mut dyn FnMut(&mut dyn Sink)) + Send>;

/// Links straight to containers. Cheap to share by reference; links are pushed to by one thread each.
pub struct Recording {
    recorder: Arc<Recorder>,
    id: [u8; 16],
    directories: Vec<PathBuf>,
    devices: Vec<DeviceManifest>,
    medium: Option<Medium>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    finished: Mutex<Option<GapManifest>>,
}

/// How a recording is going.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingProgress {
    /// Frames that are durable.
    pub recorded: u64,
    /// Payload bytes of those.
    pub recorded_bytes: u64,
    /// Frames on their way to a device, images being filled not included.
    pub pending: u64,
    /// Frames that were missed, for any reason.
    pub missed: u64,
    /// Devices in their order.
    pub devices: Vec<RecordingDevice>,
}

/// One device of a recording on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingDevice {
    /// The directory.
    pub directory: String,
    /// How it is written.
    pub method: String,
    /// Payload bytes that are durable on it.
    pub recorded_bytes: u64,
    /// Something waits for it, and nothing has moved for longer than the stall limit.
    pub stalled: bool,
    /// Why it takes nothing any more.
    pub failure: Option<String>,
}

impl Recording {
    /// Starts the threads of devices that are ready.
    pub(super) fn start(
        id: [u8; 16],
        directories: Vec<PathBuf>,
        config: RecordingConfig,
        lanes: Vec<LaneStart>,
        medium: Option<Medium>,
    ) -> Result<Recording> {
        let recorder = Arc::new(Recorder::new(config, lanes.len()));
        let mut recording = Recording {
            recorder,
            id,
            directories,
            devices: Vec::new(),
            medium,
            threads: Mutex::default(),
            finished: Mutex::default(),
        };
        // The description of the recording is on the medium before the first frame can be: containers alone say nothing of links.
        recording.describe()?;
        for (index, start) in lanes.into_iter().enumerate() {
            let recorder = recording.recorder.clone();
            let run = start.run;
            let body = move || {
                let Some(lane) = recorder.lanes.get(index) else { return };
                run(&mut |sink| lane::run(&recorder, lane, sink));
            };
            let thread = std::thread::Builder::new()
                .name(format!("record-{index}"))
                .spawn(body)
                .map_err(|error| Error::unavailable("cannot start a device's thread").with_source(error))?;
            recording.threads.get_mut().push(thread);
            recording.devices.push(DeviceManifest {
                directory: start.directory,
                method: start.method,
                containers: start.containers,
                bytes: start.bytes,
                recorded: 0,
                recorded_bytes: 0,
                failure: None,
            });
        }
        Ok(recording)
    }

    /// Its identity, random.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// How it was made.
    pub fn config(&self) -> &RecordingConfig {
        &self.recorder.config
    }

    /// Adds links and describes them durably beside the containers, before their first frame.
    ///
    /// # Errors
    /// `Invalid` for a configuration that cannot be, or a source that is there already; `Closed` after the end; `Full` or
    /// `Unavailable` where the description cannot be written.
    pub fn links(&self, configs: Vec<LinkConfig>) -> Result<Vec<RecordingLink>> {
        if self.recorder.is_closing() {
            return Err(Error::closed("the recording has ended"));
        }
        let lanes = &self.recorder.lanes;
        // Held while the description is written, so that two threads that add links write it one after the other.
        let mut links = self.recorder.links.lock();
        if links.len() + configs.len() > LINKS_MAX {
            return Err(Error::invalid(format!("{} links: at most {LINKS_MAX}", links.len() + configs.len())));
        }
        let first = links.len();
        for mut config in configs {
            // The source is the key of a link's images: two links of one source could not be told apart on the medium, where
            // it is padded.
            let taken = links.iter().any(|books| books.config.padded_source() == config.padded_source());
            let checked = config.check(lanes.len());
            if taken || checked.is_err() {
                let name = config.name;
                links.truncate(first);
                checked?;
                return Err(Error::invalid(format!("link `{name}`: its source is that of another link")));
            }
            config.device = config.device.or(Some((links.len() % lanes.len().max(1)) as u32));
            links.push(Arc::new(Books::new(config)));
        }
        let added: Vec<Arc<Books>> = links.iter().skip(first).cloned().collect();
        let all: Vec<LinkConfig> = links.iter().map(|books| books.config.clone()).collect();
        // Durable before the first frame can be pushed: an image whose link is in no description is `Corrupt` at opening.
        if let Err(error) = files::describe(&self.directories, &self.description(all)) {
            links.truncate(first);
            return Err(error);
        }
        drop(links);
        let link = |(at, books): (usize, Arc<Books>)| {
            let home = books.config.device.unwrap_or_default() as usize;
            if let Some(lane) = lanes.get(home) {
                lane.pool.allow(self.recorder.config.buffers_per_link);
            }
            RecordingLink::new(self.recorder.clone(), books, (first + at) as u32, home)
        };
        Ok(added.into_iter().enumerate().map(link).collect())
    }

    /// Adds one link; see [`Recording::links`].
    ///
    /// # Errors
    /// As [`Recording::links`].
    pub fn link(&self, config: LinkConfig) -> Result<RecordingLink> {
        self.links(vec![config])?.pop().ok_or_else(|| Error::internal("a link was added and is not there"))
    }

    /// Payload bytes that still fit in frames of this length, at least: what the ends of containers and extents leave empty
    /// is taken off.
    pub fn room_bytes(&self, frame_bytes: usize) -> u64 {
        let config = &self.recorder.config;
        let containers = self.medium.as_ref().map_or(0, |medium| medium.warm.free_containers());
        // A 64th for the directory, an extent for the end that no extent fits any more.
        let usable = config.container_bytes - config.container_bytes / 64 - config.extent_bytes as u64;
        let frame = frame_bytes.max(1) as u64;
        let frames = usable / (frame.next_multiple_of(8) + FRAME_OVERHEAD_BYTES as u64);
        u64::from(containers) * frames * frame
    }

    /// Writes to a file of its own on each device, one after the other, for so long, and answers the bytes per second that
    /// all of them together take, syncs included. For before the first frame.
    ///
    /// # Errors
    /// `Full` without room for the file; `Unavailable` where a device fails.
    pub fn measure(&self, each: Duration) -> Result<u64> {
        let devices = self.medium.as_ref().map_or(&[][..], |medium| &medium.devices);
        let rate = |device: &Arc<dyn Device>| measure::rate(device.as_ref(), &self.recorder.config, each);
        devices.iter().map(rate).sum()
    }

    /// How it is going.
    pub fn progress(&self) -> RecordingProgress {
        let mut progress = RecordingProgress::default();
        for books in self.recorder.links.lock().iter() {
            let figures = books.figures();
            progress.recorded += figures.recorded;
            progress.recorded_bytes += figures.recorded_bytes;
            progress.pending += figures.pending;
            progress.missed += figures.missed;
        }
        let now_ns = self.recorder.now_ns();
        let device = |(device, lane): (&DeviceManifest, &lane::Lane)| RecordingDevice {
            directory: device.directory.clone(),
            method: device.method.clone(),
            recorded_bytes: lane.recorded_bytes.load(Ordering::Relaxed),
            stalled: lane.is_stalled(now_ns, self.recorder.config.stall),
            failure: lane.failure_text(),
        };
        progress.devices = self.devices.iter().zip(&self.recorder.lanes).map(device).collect();
        progress
    }

    /// Ends the recording: everything handed over is made durable or missed, containers are closed, and the manifest is
    /// written beside them. Links are dropped before. Calling it again answers the same manifest.
    ///
    /// # Errors
    /// `Invalid` while links are held; the last error if no directory could take the manifest.
    pub fn finish(&self) -> Result<GapManifest> {
        // Held to the end: a second caller waits for the manifest of the first instead of ending the threads again.
        let mut finished = self.finished.lock();
        if let Some(manifest) = &*finished {
            return Ok(manifest.clone());
        }
        let held = self.recorder.held.load(Ordering::Acquire);
        if held > 0 {
            return Err(Error::invalid(format!("{held} links are still held: drop them, then finish")));
        }
        self.end(Instant::now() + self.recorder.config.finish_deadline);
        let manifest = self.manifest();
        // A manifest whose sums are wrong is not written: without one, opening rebuilds it from what is really there.
        manifest.check()?;
        files::write_manifest(&self.directories, &manifest)?;
        *finished = Some(manifest.clone());
        Ok(manifest)
    }

    /// Takes a recording back to which nothing went: its containers and files are removed, so that the directories can be
    /// used again.
    pub fn discard(self) {
        self.end(Instant::now() + self.recorder.config.finish_deadline);
        if let Some(medium) = &self.medium {
            for (device, before) in medium.devices.iter().zip(&medium.before) {
                create::remove_new(device.as_ref(), before);
            }
        }
        files::remove(&self.directories);
    }

    /// Ends the threads; what is not settled at the deadline is missed.
    fn end(&self, deadline: Instant) {
        // Release, before the lanes are woken: a lane that finds it finds every image that was handed over before.
        self.recorder.closing.store(true, Ordering::Release);
        self.recorder.lanes.iter().for_each(|lane| lane.wake());
        let mut threads = self.threads.lock();
        // Polled: a thread that hangs in a device signals nothing, and joining it would wait without a deadline.
        while Instant::now() < deadline && !threads.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(LOOK);
        }
        for (thread, lane) in threads.drain(..).zip(&self.recorder.lanes) {
            // One that hangs in a device is left to it: its buffers are its own, and nothing that it does later counts, because
            // `Books::give_up` below takes its images out of the account.
            if !thread.is_finished() || thread.join().is_err() || !lane.ended.load(Ordering::Acquire) {
                lane.give_up();
            }
        }
        self.recorder.links.lock().iter().for_each(|books| books.give_up(GapReason::DeviceStalled));
    }

    fn manifest(&self) -> GapManifest {
        let links: Vec<LinkManifest> = self.recorder.links.lock().iter().map(|books| books.manifest()).collect();
        let device = |(device, lane): (&DeviceManifest, &lane::Lane)| DeviceManifest {
            recorded: lane.recorded.load(Ordering::Acquire),
            recorded_bytes: lane.recorded_bytes.load(Ordering::Acquire),
            failure: lane.failure_text(),
            ..device.clone()
        };
        GapManifest {
            recording: self.id,
            name: self.recorder.config.name.clone(),
            run: self.recorder.config.run,
            rebuilt: false,
            totals: GapManifest::sum(&links),
            devices: self.devices.iter().zip(&self.recorder.lanes).map(device).collect(),
            links,
        }
    }

    fn describe(&self) -> Result<()> {
        files::describe(&self.directories, &self.description(Vec::new()))
    }

    fn description(&self, links: Vec<LinkConfig>) -> Description {
        let config = &self.recorder.config;
        Description {
            recording: self.id,
            name: config.name.clone(),
            run: config.run,
            devices: self.recorder.lanes.len() as u32,
            container_bytes: config.container_bytes,
            extent_bytes: config.extent_bytes,
            links,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.finished.get_mut().is_none() {
            self.end(Instant::now() + self.recorder.config.finish_deadline);
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = self.recorder.links.lock().len();
        write!(out, "Recording(`{}`, {links} links, {} devices)", self.recorder.config.name, self.devices.len())
    }
}
