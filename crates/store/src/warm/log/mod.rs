//! The decision logs of the warm level, one per device: what was decided about what stands on it.
//!
//! ```text
//! decisions-0.fb   head | snapshot | commit | commit | …      one of them is the log,
//! decisions-1.fb   head | …                                   the other one takes the next snapshot
//! ```
//!
//! *Lifecycle*: created or opened; an opened log is folded (`replace`) before it takes anything; `append_*`, `wait`;
//! `replace` when `fill` says so; `close`.
//!
//! *Invariants*: what `wait` answered for is found by every later opening, or is in a snapshot that is; the caller keeps
//! decisions away from between taking a snapshot until `replace` returns.
//!
//! *On failure*: a device that refuses a write or a sync poisons its log, and only its: `Unavailable`, naming the device.
//! `replace` makes it whole again in the other file, if the device lets it. What answered `Unavailable` may nevertheless be
//! found by an opening that comes before the next `replace`.
//!
//! *Not here*: what decisions mean (`recover`), when the log is folded (`ops/maintain.rs`).

mod commit;
mod format;
mod open;
mod replace;
mod scan;
mod tail;
#[cfg(test)]
mod tests;

pub(crate) use format::FILE_NAMES;
pub(crate) use scan::LogSlots;
pub(crate) use tail::LogTicket;

use super::Device;
use forebay_core::{Blob, Decision, Error, Result};
use open::Which;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tail::{Health, Log};

/// How long creation waits for a device.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Devices whose logs are read side by side: each is held in memory whole while it is read.
const OPENED_AT_ONCE: usize = 4;

/// What an opening found: the logs, what each of them says, what is lost.
pub(crate) type OpenedLogs = (DeviceLog, Vec<LogSlots>, Vec<String>);

/// Figures of one device's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogInfo {
    /// Blocks of a file that take slots.
    pub(crate) blocks: u32,
    /// Those of them that are taken.
    pub(crate) used: u32,
    /// Bytes of one file.
    pub(crate) file_bytes: u64,
    /// Raised by each fold.
    pub(crate) generation: u64,
    /// Commits in this life of the process.
    pub(crate) commits: u64,
    /// Decisions and blobs that were appended in this life of the process.
    pub(crate) appended: u64,
    /// Why the log takes nothing.
    pub(crate) poisoned: Option<String>,
}

/// The decision logs of a set of devices.
pub(crate) struct DeviceLog {
    logs: Vec<Log>,
}

impl DeviceLog {
    /// Makes an empty log on each device, both of its files of `log_bytes`, durably.
    ///
    /// # Errors
    /// `Invalid` where a log is there already or a size cannot be, `Full`, `Unavailable`.
    pub(crate) fn create(
        devices: &[Arc<dyn Device>],
        store: [u8; 16],
        key_bytes: usize,
        log_bytes: u64,
    ) -> Result<DeviceLog> {
        open::check_sizes(devices.len(), key_bytes, log_bytes)?;
        let deadline = Instant::now() + CREATE_DEADLINE;
        let which =
            (0_u32..).zip(devices).map(|(number, device)| Which { device, number, store, key_bytes, log_bytes });
        let logs: Result<Vec<Log>> = which.map(|which| which.create(deadline)).collect();
        Ok(DeviceLog { logs: logs? })
    }

    /// Finds the log of each device. Nothing is written; each log takes entries once it was folded by `replace`.
    /// `log_bytes` is for files that have to be made anew.
    ///
    /// # Errors
    /// `Invalid` where a device is of another store or stands in another's place, `Corrupt` where something that was
    /// durable does not verify; with `accept_loss` that is named in the answer instead.
    pub(crate) fn open(
        devices: &[Arc<dyn Device>],
        store: [u8; 16],
        key_bytes: usize,
        log_bytes: u64,
        accept_loss: bool,
    ) -> Result<OpenedLogs> {
        open::check_sizes(devices.len(), key_bytes, log_bytes)?;
        let (mut logs, mut slots, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        let all: Vec<(u32, &Arc<dyn Device>)> = (0_u32..).zip(devices).collect();
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
        Ok((DeviceLog { logs }, slots, losses))
    }

    /// Puts a decision into the device's log, in memory. Waits only where much is waiting already.
    ///
    /// # Errors
    /// `Full` where the log has to be folded first, `Unavailable` where it is poisoned or the deadline passes.
    pub(crate) fn append_decision(&self, device: u32, decision: &Decision, deadline: Instant) -> Result<LogTicket> {
        self.log(device)?.decision(decision, deadline)
    }

    /// Puts a blob into the device's log, in memory, its pieces side by side.
    ///
    /// # Errors
    /// As `append_decision`; blobs stop short of a reserve for decisions.
    pub(crate) fn append_blob(&self, device: u32, blob: Blob, data: &[u8], deadline: Instant) -> Result<LogTicket> {
        self.log(device)?.blob(blob, data, deadline)
    }

    /// Returns once the entry is durable, and all that was appended to this device before it. One of those who wait
    /// writes and syncs for all.
    ///
    /// # Errors
    /// `Unavailable` where the device refused, or where the deadline passes: then it may still become durable, and the
    /// same ticket can be waited for again.
    pub(crate) fn wait(&self, ticket: LogTicket, deadline: Instant) -> Result<()> {
        self.log(ticket.device)?.wait(ticket, deadline)
    }

    /// Makes everything durable that was appended to the device.
    ///
    /// # Errors
    /// As `wait`.
    pub(crate) fn flush(&self, device: u32, deadline: Instant) -> Result<()> {
        self.log(device)?.flush(deadline)
    }

    /// Folds the device's log: it goes on in its other file, behind a snapshot of what everything before it said. Entries
    /// that were refused by a poisoned log are given up.
    ///
    /// # Errors
    /// `Full` where the snapshot does not fit, `Unavailable` where entries are not durable yet or the device refuses,
    /// `Corrupt` where it reads back other than written. Then the log is what it was, or poisoned.
    pub(crate) fn replace(&self, device: u32, snapshot: &[u8], deadline: Instant) -> Result<()> {
        self.log(device)?.replace(snapshot, deadline)
    }

    /// How much of the device's log is taken, 0 to 1.
    pub(crate) fn fill(&self, device: u32) -> f64 {
        self.info(device).map_or(1.0, |info| f64::from(info.used) / f64::from(info.blocks))
    }

    /// Whether the device's log refuses until it is folded.
    pub(crate) fn is_poisoned(&self, device: u32) -> bool {
        self.info(device).is_none_or(|info| info.poisoned.is_some())
    }

    /// Figures of the device's log; `None` where there is no such device.
    pub(crate) fn info(&self, device: u32) -> Option<LogInfo> {
        let log = self.logs.get(device as usize)?;
        let state = log.state.lock();
        Some(LogInfo {
            blocks: log.blocks,
            used: state.block + state.slots.div_ceil(state.pages.slots_per_block()),
            file_bytes: log.file_bytes,
            generation: state.generation,
            commits: state.commits,
            appended: state.appended,
            poisoned: match &state.health {
                Health::Poisoned(why) => Some(why.clone()),
                Health::Good | Health::Unfolded => None,
            },
        })
    }

    /// Makes everything durable and marks the ends, so that rot in the last commit of a store that was closed in order
    /// is never taken for a torn write. Poisoned logs and those that were never folded are left as they are.
    ///
    /// # Errors
    /// As `wait`, of the first device that refuses; the others are closed all the same.
    pub(crate) fn close(&self, deadline: Instant) -> Result<()> {
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
    let layout = forebay_core::SlotLayout::for_key_bytes(key_bytes);
    let pages = format::Pages::new(layout, &store, head.device, head.file, head.generation);
    let blocks = bytes.get(format::HEAD_BLOCKS as usize * BLOCK_BYTES..).unwrap_or_default();
    let (slots, _) = scan::scan(pages, head.snapshot_blocks, blocks.to_vec(), &[]);
    let _ = slots.each(&mut |_| Ok(()));
}
