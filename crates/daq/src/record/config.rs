//! Configuration of a recording, and the plan that follows from it.

use crate::emulator;
use crate::figures::{bytes, within};
use crate::frames::{FrameKind, RecordedFrames, wib1, wibeth};
use crate::limits::{LINKS_RECORDED_MAX, RECORD_CONTAINERS_SPARE, THREADS_MAX};
use crate::replay;
use crate::source::FrameSource;
use forebay_core::{Error, Result};
use forebay_recorder::{LinkConfig, RecordingConfig, WarmDir};
use forebay_store::BLOCK_BYTES;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Frames of WIB1 that come together: a superchunk.
const SUPERCHUNK_FRAMES: u64 = 12;
/// Containers that a directory's bytes are cut into, until they reach their default size.
const CONTAINERS_PER_DIRECTORY: u64 = 16;
const CONTAINER_BYTES_MIN: u64 = 256 << 10;
const EXTENTS_PER_CONTAINER_MIN: u64 = 8;
/// Part of a container, as a divisor, that its directory may take: 24 bytes a frame.
const DIRECTORY_SHARE: u64 = 180;
/// Header of a container, and padding of its directory.
const CONTAINER_FIXED_BYTES: u64 = 4 * BLOCK_BYTES as u64;
/// Rate to be reckoned with where links go as fast as the device does, bytes per second and directory.
const FAST_BYTES_PER_SECOND: f64 = 4e9;

/// A directory to record into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordDir {
    /// The directory: one device. Made where it is not there.
    pub path: PathBuf,
    /// Bytes to take there; `None` takes what the links need.
    pub bytes: Option<u64>,
}

/// A recording that begins before its trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct Retroactive {
    /// What lies before the trigger: the ring holds it until then.
    pub last: Duration,
    /// What comes after it.
    pub next: Duration,
    /// The trigger, from the first frame on; `None`: as soon as the ring holds what lies before it.
    pub after: Option<Duration>,
    /// Directory of the ring, which stays; `None` takes shared memory and removes it.
    pub ring: Option<PathBuf>,
}

/// Choices of one recording. The default is whole except for its directories.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordChoices {
    /// Directories, each one device.
    pub dirs: Vec<RecordDir>,
    /// Links.
    pub links: u32,
    /// How long, in seconds.
    pub seconds: f64,
    /// Emulated frames, where there is no input.
    pub format: FrameKind,
    /// Recorded frames to replay on every link.
    pub input: Option<PathBuf>,
    /// As fast as the devices go, instead of the links' own rate.
    pub fast: bool,
    /// Threads that read links out; at most one per link.
    pub threads: usize,
    /// Run number.
    pub run: u64,
    /// Name, for people.
    pub name: String,
    /// Seed of emulated frames.
    pub seed: u64,
    /// Bytes in memory per link, while the device is slow: 64 MiB are 290 ms of WIBEth.
    pub buffer_bytes_per_link: u64,
    /// How long a push waits for the device before its frame is missed; `None`: 10 ms at the links' rate, 30 s as fast as
    /// the devices go.
    pub push_deadline: Option<Duration>,
    /// Links go to other devices where their own is full or fails.
    pub spill: bool,
    /// Link time per time: 1 is the links' own rate.
    pub rate_scale: f64,
    /// Links go to a ring, and from there to the devices when the trigger falls, instead of straight there for `seconds`.
    pub retroactive: Option<Retroactive>,
}

impl Default for RecordChoices {
    /// Two WIBEth links at their rate for ten seconds.
    fn default() -> RecordChoices {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        RecordChoices {
            dirs: Vec::new(),
            links: 2,
            seconds: 10.0,
            format: FrameKind::WibEth,
            input: None,
            fast: false,
            threads: (threads / 2).clamp(1, 8),
            run: 1,
            name: "recording".to_owned(),
            seed: 1,
            buffer_bytes_per_link: 64 << 20,
            push_deadline: None,
            spill: true,
            rate_scale: 1.0,
            retroactive: None,
        }
    }
}

/// Choices, checked, and what follows from them.
pub(super) struct Plan {
    pub(super) choices: RecordChoices,
    pub(super) frames: FrameSource,
    /// Detector frames of one push.
    pub(super) frames_per_push: u64,
    pub(super) push_bytes: usize,
    pub(super) push_ticks: u32,
    pub(super) ticks_per_second: u64,
    pub(super) dirs: Vec<WarmDir>,
    pub(super) config: RecordingConfig,
}

impl Plan {
    pub(super) fn new(choices: &RecordChoices) -> Result<Plan> {
        let mut choices =
            RecordChoices { threads: choices.threads.min(choices.links.max(1) as usize), ..choices.clone() };
        if let Some(window) = &choices.retroactive {
            if choices.fast {
                return Err(Error::invalid(
                    "a ring is recorded at the rate of its links: not as fast as the devices go",
                ));
            }
            choices.seconds = (window.last + window.next).as_secs_f64();
        }
        within("rate scale", choices.rate_scale, 0.0001, 1000.0)?;
        within("seconds", choices.seconds, 0.001, 1e7)?;
        within("links", choices.links.into(), 1.0, LINKS_RECORDED_MAX.into())?;
        within("threads", choices.threads as f64, 1.0, THREADS_MAX as f64)?;
        if choices.dirs.is_empty() {
            return Err(Error::invalid("a recording needs a directory to go to"));
        }
        let frames = match (&choices.input, choices.format) {
            (Some(path), _) => replay::frames(RecordedFrames::open(path)?),
            (None, FrameKind::WibEth) => emulator::frames(choices.seed),
            (None, FrameKind::Wib1) => emulator::wib1_frames(choices.seed),
        };
        let (ticks_per_second, frames_per_push) = match frames.kind() {
            FrameKind::Wib1 => (wib1::TICKS_PER_SECOND, SUPERCHUNK_FRAMES),
            FrameKind::WibEth => (wibeth::TICKS_PER_SECOND, 1),
        };
        let ticks_per_second = (ticks_per_second as f64 * choices.rate_scale).round() as u64;
        let push_bytes = frames.kind().frame_bytes() * frames_per_push as usize;
        let push_ticks = (frames.kind().ticks() * frames_per_push) as u32;
        let mut plan = Plan {
            choices,
            frames,
            frames_per_push,
            push_bytes,
            push_ticks,
            ticks_per_second,
            dirs: Vec::new(),
            config: RecordingConfig::default(),
        };
        plan.cut()?;
        Ok(plan)
    }

    /// Bytes that one link makes in a second.
    pub(super) fn link_bytes_per_second(&self) -> f64 {
        self.pushes_per_second() * self.push_bytes as f64
    }

    /// Pushes of one link in a second.
    pub(super) fn pushes_per_second(&self) -> f64 {
        self.ticks_per_second as f64 / f64::from(self.push_ticks)
    }

    /// Pushes of one link in the whole recording, at its rate.
    pub(super) fn pushes(&self) -> u64 {
        (self.pushes_per_second() * self.choices.seconds).ceil() as u64
    }

    /// First tick of a push.
    pub(super) fn tick(&self, push: u64) -> u64 {
        self.frames.timestamp(push * self.frames_per_push)
    }

    /// A link as the recording describes it.
    pub(super) fn link(&self, link: u32) -> LinkConfig {
        LinkConfig {
            source: link.to_be_bytes().to_vec(),
            name: format!("link {link}"),
            format: self.frames.kind().name().to_owned(),
            ticks_per_frame: self.push_ticks,
            ticks_per_second: self.ticks_per_second,
            device: None,
        }
    }

    /// Decides how many bytes each directory gives, and how they are cut.
    fn cut(&mut self) -> Result<()> {
        let choices = &self.choices;
        let share = choices.links.div_ceil(choices.dirs.len() as u32);
        let payload = if choices.fast {
            FAST_BYTES_PER_SECOND * choices.seconds
        } else {
            self.link_bytes_per_second() * choices.seconds * f64::from(share)
        };
        let more = if choices.retroactive.is_some() { RING_MORE } else { 1.03 };
        let what = format!("{:.3} s of {share} links", choices.seconds);
        let cut = Cut::new(&choices.dirs, needed(payload * more, share), &what, self.push_bytes, choices.fast)?;
        let default = RecordingConfig::default();
        let patience = if choices.fast { Duration::from_secs(30) } else { default.push_deadline };
        self.config = RecordingConfig {
            name: choices.name.clone(),
            run: choices.run,
            push_deadline: choices.push_deadline.unwrap_or(patience),
            spill: choices.spill,
            ..cut.config(choices.buffer_bytes_per_link)
        };
        self.dirs = cut.dirs;
        Ok(())
    }
}

/// What a ring's recording takes more than its payload: a ring asks first whether all will fit, even with the room that is left
/// at the ends.
pub(super) const RING_MORE: f64 = 1.25;

/// Bytes that a directory needs for a payload: with tables and heads, and what the last extents of links leave empty.
pub(super) fn needed(payload: f64, links: u32) -> u64 {
    payload as u64 + u64::from(links) * (8 << 20)
}

/// How directories are cut into containers.
pub(super) struct Cut {
    pub(super) dirs: Vec<WarmDir>,
    container_bytes: u64,
    extent_bytes: usize,
}

impl Cut {
    /// For frames of this length. A directory without a size gives what is needed; `fast`: at most what is free.
    pub(super) fn new(chosen: &[RecordDir], needed: u64, what: &str, frame_bytes: usize, fast: bool) -> Result<Cut> {
        let mut dirs = Vec::new();
        for dir in chosen {
            let bytes = match (dir.bytes, room(&dir.path)) {
                (Some(bytes), _) => bytes,
                (None, Some(room)) if fast => needed.min(room / 4 * 3),
                (None, Some(room)) if room < needed => {
                    return Err(Error::full(format!(
                        "{}: {} free, {} needed for {what}; name a size to record what fits",
                        dir.path.display(),
                        bytes(room),
                        bytes(needed),
                    )));
                }
                (None, _) => needed,
            };
            dirs.push(WarmDir { path: dir.path.clone(), bytes });
        }
        let smallest = dirs.iter().map(|dir| dir.bytes).min().unwrap_or_default();
        let (block, default) = (BLOCK_BYTES as u64, RecordingConfig::default());
        // An extent must take the longest frame.
        let fewest = 2 * EXTENTS_PER_CONTAINER_MIN * (frame_bytes as u64 + block);
        let least = CONTAINER_BYTES_MIN.max(fewest.next_multiple_of(block));
        let container_bytes =
            (smallest / CONTAINERS_PER_DIRECTORY / block * block).clamp(least, default.container_bytes.max(least));
        // As many extents as nearly fill a container with its header and its directory, which takes less than this part.
        let usable = container_bytes - container_bytes / DIRECTORY_SHARE - CONTAINER_FIXED_BYTES;
        let extents = container_bytes.div_ceil(default.extent_bytes as u64).max(EXTENTS_PER_CONTAINER_MIN);
        let extent_bytes = (usable / extents / block * block) as usize;
        // A size that was named is kept to; one that was reckoned makes room for the last containers of each device.
        for (dir, chosen) in dirs.iter_mut().zip(chosen) {
            if chosen.bytes.is_none() && !fast {
                dir.bytes = dir.bytes.next_multiple_of(container_bytes) + RECORD_CONTAINERS_SPARE * container_bytes;
            }
        }
        Ok(Cut { dirs, container_bytes, extent_bytes })
    }

    /// The recording's configuration, with memory for each link.
    pub(super) fn config(&self, buffer_bytes_per_link: u64) -> RecordingConfig {
        let default = RecordingConfig::default();
        RecordingConfig {
            container_bytes: self.container_bytes,
            extent_bytes: self.extent_bytes,
            io_bytes: default.io_bytes.min(self.extent_bytes),
            buffers_per_link: (buffer_bytes_per_link / self.extent_bytes as u64).clamp(2, 4096) as usize,
            ..default
        }
    }
}

/// Bytes free for us where the directory is, or will be.
fn room(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let file_system = rustix::fs::statvfs(there).ok()?;
    Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> RecordChoices {
        RecordChoices {
            dirs: vec![RecordDir { path: "/tmp".into(), bytes: Some(64 << 20) }],
            ..RecordChoices::default()
        }
    }

    #[test]
    fn rates_are_those_of_the_links() {
        let plan = Plan::new(&choices()).unwrap();
        assert_eq!(plan.link_bytes_per_second().round(), 219_726_563.0);
        assert_eq!((plan.push_bytes, plan.push_ticks, plan.pushes()), (7200, 2048, 305_176));
        let plan = Plan::new(&RecordChoices { format: FrameKind::Wib1, ..choices() }).unwrap();
        assert_eq!((plan.link_bytes_per_second(), plan.push_ticks), (928e6, 300));
        assert_eq!(plan.tick(1) - plan.tick(0), 300);
    }

    #[test]
    fn directories_are_cut_into_containers_of_whole_blocks() {
        for bytes in [2 << 20, 64 << 20, 100_000_000, 1 << 34] {
            let dirs = vec![RecordDir { path: "/tmp".into(), bytes: Some(bytes) }];
            let plan = Plan::new(&RecordChoices { dirs, ..choices() }).unwrap();
            assert_eq!(plan.dirs[0].bytes, bytes);
            assert!(plan.config.container_bytes.is_multiple_of(4096) && plan.config.extent_bytes.is_multiple_of(4096));
            let (container, extent) = (plan.config.container_bytes, plan.config.extent_bytes as u64);
            assert!((8 * extent..=container).contains(&(container / extent * extent)));
            assert!(container % extent < container / 8, "{container} {extent}");
        }
        let dirs = vec![RecordDir { path: "/tmp".into(), bytes: None }; 2];
        let plan = Plan::new(&RecordChoices { dirs, links: 3, seconds: 1.0, ..choices() }).unwrap();
        assert!(plan.dirs[0].bytes as f64 > 2.0 * plan.link_bytes_per_second() * 1.03);
        let refused = Plan::new(&RecordChoices {
            dirs: vec![RecordDir { path: "/tmp/not/yet".into(), bytes: None }],
            seconds: 1e6,
            ..choices()
        });
        assert!(refused.err().unwrap().message().contains("needed for 1000000.000 s of 2 links"));
    }

    #[test]
    fn choices_that_cannot_be_are_refused() {
        for wrong in [
            RecordChoices { links: 0, ..choices() },
            RecordChoices { seconds: 0.0, ..choices() },
            RecordChoices { dirs: vec![], ..choices() },
            RecordChoices { input: Some("/no/such/file".into()), ..choices() },
        ] {
            assert!(Plan::new(&wrong).is_err());
        }
    }
}
