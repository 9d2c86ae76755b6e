//! The shadows: each device has a copy of the decisions about events that have a part on a device. It is read only if the
//! hot level is lost.
//!
//! ```text
//! decisions-0.fb   head | snapshot | commit | commit | …      one of them is the log,
//! decisions-1.fb   head | …                                   the other one takes the next snapshot
//! ```
//!
//! *Lifecycle*: created or opened; an opened log gets a snapshot (`replace`) before it takes anything; `append_*`, `wait`;
//! `replace` when `fill` says so; `close`.
//!
//! *Invariants*: every shadow holds the same entries in the same order, up to its own end (`tail.rs`); appending never
//! waits for a device; what `wait` answered for is found by every later opening, or is in a snapshot that is.
//!
//! *On failure*: a device that refuses a write or a sync poisons its log, and only its: `Unavailable`, naming the device.
//! `replace` makes it whole again in the other file, if the device lets it.
//!
//! *Not here*: what decisions mean (`recover`), when a snapshot is due (`levels/shadow.rs`).

mod commit;
mod format;
mod open;
mod replace;
mod scan;
mod tail;
#[cfg(test)]
mod tests;

pub(crate) use format::FILE_NAMES;
pub use scan::LogSlots;

use super::Device;
use crate::bytes::{Blob, Decision};
use forebay_core::{Error, Result};
use open::Which;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tail::{Entry, Health, Log};

/// How long creation waits for a device.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Devices whose logs are read side by side: each is held in memory whole while it is read.
const OPENED_AT_ONCE: usize = 4;

/// What an opening found: the logs, what each of them says, what is lost.
pub(crate) type OpenedLogs = (DeviceLog, Vec<LogSlots>, Vec<String>);

/// Figures of one device's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogInfo {
    /// Blocks of a file that take slots.
    pub blocks: u32,
    /// Those of them that are taken.
    pub used: u32,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Raised by each snapshot.
    pub generation: u64,
    /// Commits in this life of the process.
    pub commits: u64,
    /// Decisions and blobs that were appended in this life of the process.
    pub appended: u64,
    /// Why the log takes nothing.
    pub poisoned: Option<String>,
}

/// The decision logs of a set of devices.
pub struct DeviceLog {
    logs: Vec<Log>,
    /// Position behind the last entry. Held while an entry goes to all logs: they have one order.
    end: Mutex<u64>,
    /// The same, read without the lock.
    seen: AtomicU64,
}

impl DeviceLog {
    /// Makes an empty log on each device, both of its files of `log_bytes`, durably.
    ///
    /// # Errors
    /// `Invalid` where a log is there already or a size cannot be, `Full`, `Unavailable`.
    pub fn create(devices: &[Arc<dyn Device>], store: [u8; 16], key_bytes: usize, log_bytes: u64) -> Result<DeviceLog> {
        open::check_sizes(devices.len(), key_bytes, log_bytes)?;
        let deadline = Instant::now() + CREATE_DEADLINE;
        let which =
            (0_u32..).zip(devices).map(|(number, device)| Which { device, number, store, key_bytes, log_bytes });
        let logs: Result<Vec<Log>> = which.map(|which| which.create(deadline)).collect();
        Ok(DeviceLog::of(logs?, 0))
    }

    /// Finds the log of each device. Nothing is written; each log takes entries once `replace` has written a snapshot.
    /// `log_bytes` is for files that have to be created again.
    ///
    /// # Errors
    /// `Invalid` where a device is of another store or is in another's place, `Corrupt` where something that was
    /// durable does not verify; with `accept_loss` that is named in the answer instead.
    pub fn open(
        devices: &[Arc<dyn Device>],
        store: [u8; 16],
        key_bytes: usize,
        log_bytes: u64,
        accept_loss: bool,
    ) -> Result<OpenedLogs> {
        open::check_sizes(devices.len(), key_bytes, log_bytes)?;
        let (mut logs, mut slots, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        let all: Vec<(u32, &Arc<dyn Device>)> = (0_u32..).zip(devices).collect();
        // Side by side, because each is one long sequential read of another disk.
        for group in all.chunks(OPENED_AT_ONCE) {
            let opened: Vec<_> = std::thread::scope(|scope| {
                let one = |&(number, device): &(u32, &Arc<dyn Device>)| {
                    let device = device.clone();
                    scope
                        .spawn(move || Which { device: &device, number, store, key_bytes, log_bytes }.open(accept_loss))
                };
                let threads: Vec<_> = group.iter().map(one).collect();
                threads.into_iter().map(|thread| thread.join()).collect()
            });
            for result in opened {
                let (log, said, lost) = result.map_err(|_| Error::internal("a decision log's reader panicked"))??;
                logs.push(log);
                slots.push(said);
                losses.extend(lost);
            }
        }
        // A life begins behind all that is known: a device has its beginning once a snapshot of it is written there. One
        // position more, so that even a device that has everything of the life before is behind until then.
        let end = slots.iter().map(LogSlots::end).max().unwrap_or(0) + 1;
        Ok((DeviceLog::of(logs, end), slots, losses))
    }

    fn of(logs: Vec<Log>, end: u64) -> DeviceLog {
        DeviceLog { logs, end: Mutex::new(end), seen: AtomicU64::new(end) }
    }

    /// Tells all shadows of a decision, in memory; answers the position to wait for. One that takes nothing has it with its
    /// next snapshot.
    pub fn append_decision(&self, decision: &Decision) -> u64 {
        self.append(Entry::Decision(decision.clone()))
    }

    /// The same for a blob, its pieces side by side.
    pub fn append_blob(&self, blob: Blob, data: &[u8]) -> u64 {
        self.append(Entry::Blob(blob, data.to_vec()))
    }

    fn append(&self, entry: Entry) -> u64 {
        // One allocation for all devices, and made before the lock.
        let entry = Arc::new(entry);
        // Held over all logs: two entries in different orders on two devices, and neither shadow is a prefix of the other any
        // more. Below it only the state of one log at a time, in memory; no thread waits for a device under it.
        let mut end = self.end.lock();
        self.logs.iter().for_each(|log| log.append(&entry, *end));
        *end += 1;
        self.seen.store(*end, Ordering::Release);
        *end
    }

    /// Position behind the last entry that was appended.
    pub fn end(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Returns once everything before the position is durable on the device. One of those who wait writes and syncs for
    /// all.
    ///
    /// # Errors
    /// `Unavailable` where the device refused, or where the deadline passes: then it may still become durable, and can be
    /// waited for again.
    pub fn wait(&self, device: u32, position: u64, deadline: Instant) -> Result<()> {
        self.log(device)?.wait(position, deadline)
    }

    /// Whether everything before the position is durable on the device.
    pub fn is_durable(&self, device: u32, position: u64) -> bool {
        self.log(device).is_ok_and(|log| log.state.lock().durable >= position)
    }

    /// Nothing is written to the device any more; `false` where what was given up may still be.
    pub fn retire(&self, device: u32) -> bool {
        let idle = |io: &mut Option<commit::Io>| io.as_mut().is_none_or(|io| io.settle(Instant::now()));
        self.log(device).is_ok_and(|log| {
            let mut state = log.state.lock();
            let ended =
                !state.busy && idle(&mut state.io) && log.snapshot_io.try_lock().is_some_and(|mut io| idle(&mut io));
            // Poisoned, so that a thread that still waits gets an answer and begins nothing: the device may be another life's.
            if ended {
                state.poison("the store is closed".to_owned());
            }
            ended
        })
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// As `wait`.
    pub fn flush(&self, device: u32, deadline: Instant) -> Result<()> {
        self.wait(device, self.end(), deadline)
    }

    /// Replaces the device's log by a snapshot: it goes on in its other file, behind what `capture` makes, which has at least
    /// what was appended before it is called. Appends and commits go on beside it. `boot` is the life of the store.
    ///
    /// # Errors
    /// Those of `capture`; `Full` where the snapshot does not fit, `Unavailable` where the device refuses or a snapshot is
    /// under way, `Corrupt` where it reads back other than written. Then the log is what it was, or poisoned.
    pub fn replace(
        &self,
        device: u32,
        boot: u32,
        capture: impl FnOnce() -> Result<Vec<u8>>,
        deadline: Instant,
    ) -> Result<()> {
        let log = self.log(device)?;
        // The boundary under the lock of all logs: an entry before it was appended before the snapshot is captured, and is in
        // it; every later one is kept for the other file.
        {
            let end = self.end.lock();
            log.begin_snapshot(*end)?;
        }
        let done = capture().and_then(|snapshot| log.replace(&snapshot, boot, deadline));
        log.end_snapshot();
        done
    }

    /// Makes the log of device `number` on one that takes part from the next opening on: a snapshot, as [`DeviceLog::replace`]
    /// makes it. The logs that there are go on where they are.
    ///
    /// # Errors
    /// Those of [`DeviceLog::create`] and [`DeviceLog::replace`].
    pub fn make_beside(
        &self,
        number: u32,
        to: &Arc<dyn Device>,
        boot: u32,
        capture: impl FnOnce() -> Result<Vec<u8>>,
        deadline: Instant,
    ) -> Result<()> {
        // All logs of a store have these in common.
        let known = self.log(0)?;
        let (store, key_bytes, log_bytes) = (known.store, known.key_bytes, known.file_bytes);
        let which = Which { device: to, number, store, key_bytes, log_bytes };
        drop(which.create(deadline)?);
        // As an opening finds it: it has nothing, and takes nothing before its snapshot.
        let (log, ..) = which.open(false)?;
        log.begin_snapshot(*self.end.lock())?;
        let done = capture().and_then(|snapshot| log.replace(&snapshot, boot, deadline));
        log.end_snapshot();
        done
    }

    /// How much of the device's log is taken, 0 to 1; 1 where it has no room for what waits.
    pub fn fill(&self, device: u32) -> f64 {
        self.log(device).map_or(1.0, |log| {
            let state = log.state.lock();
            let share = f64::from(state.at.block) / f64::from(state.at.blocks);
            if state.has_room(log.layout()) { share } else { 1.0 }
        })
    }

    /// Whether the device's log refuses until its next snapshot.
    pub fn is_poisoned(&self, device: u32) -> bool {
        self.log(device).is_ok_and(|log| log.state.lock().health != Health::Good)
    }

    /// Figures of the device's log; `None` where there is no such device.
    pub fn info(&self, device: u32) -> Option<LogInfo> {
        let log = self.logs.get(device as usize)?;
        let state = log.state.lock();
        Some(LogInfo {
            blocks: state.at.blocks,
            used: state.at.block,
            file_bytes: state.files[state.file].map_or(0, |file| file.1),
            generation: state.generation,
            commits: state.commits,
            appended: state.appended,
            poisoned: match &state.health {
                Health::Poisoned(why) => Some(why.clone()),
                Health::Good | Health::NoSnapshot => None,
            },
        })
    }

    /// Makes everything durable and marks the ends, so that rot in the last commit of a store that was closed in order
    /// is never taken for a torn write. Poisoned logs and those without a snapshot of this life are left as they are.
    ///
    /// # Errors
    /// As `wait`, of the first device that refuses; the others are closed anyway.
    pub fn close(&self, deadline: Instant) -> Result<()> {
        let takes = |log: &&Log| log.state.lock().health == Health::Good;
        let results: Vec<Result<()>> = self.logs.iter().filter(takes).map(|log| log.mark_end(deadline)).collect();
        results.into_iter().collect()
    }

    fn log(&self, device: u32) -> Result<&Log> {
        let log = self.logs.get(device as usize);
        log.ok_or_else(|| Error::internal(format!("no decision log of device {device}; there are {}", self.logs.len())))
    }
}

/// Reads a file's head and blocks as an opening does, for the fuzzer: errors are answers, a panic is a find.
pub(crate) fn decode(bytes: &[u8], store: [u8; 16], key_bytes: usize) {
    use super::BLOCK_BYTES;
    let Ok(Some(head)) = format::FileHead::decode(bytes) else { return };
    let layout = crate::bytes::SlotLayout::for_key_bytes(key_bytes);
    let pages = format::Pages::new(layout, &store, head.device, head.file, head.generation);
    let blocks = bytes.get(format::HEAD_BLOCKS as usize * BLOCK_BYTES..).unwrap_or_default();
    let (slots, _) = scan::scan(pages, head.snapshot_blocks, blocks.to_vec(), &[]);
    let _ = slots.each(&mut |_| Ok(()));
}
