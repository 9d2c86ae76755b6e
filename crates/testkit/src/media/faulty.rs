//! A device with faults where a test wants them: first count the operations, then spoil each in turn.
//!
//! *Invariants*: what is not spoilt goes to the device inside unchanged. A failed sync loses what it should have made
//! durable, and the next one succeeds, as on Linux; a failed write leaves some of its sectors.

use super::faulty_queue::FaultyQueue;
use super::random::Random;
use super::unsynced::{Ended, SECTOR_BYTES, Unsynced, Writes};
use forebay_media::warm::{BLOCK_BYTES, Buffer, Device, FileId, Queue};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest stall.
const STALL_MAX: Duration = Duration::from_secs(24 * 3600);

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A file is made.
    Create,
    /// A file is opened.
    Open,
    /// A file is removed.
    Remove,
    /// Names are listed.
    List,
    /// Bytes are read.
    Read,
    /// Bytes are written, at once or through a queue.
    Write,
    /// A file is made durable, at once or through a queue.
    Sync,
    /// Names are made durable.
    SyncNames,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with an I/O error. Of a write some sectors land; a sync loses what it should have covered.
    Fails,
    /// It finds no space, and does nothing.
    Full,
    /// A read or write moves half of the blocks it should, perhaps none. Other operations are not touched.
    Short,
    /// A write reports success, but only some of its sectors of 512 bytes land, as the seed says. Others: not touched.
    Torn(u64),
    /// A write reports success, but lands this many blocks further on in its file, from the end on at its start.
    /// Others: not touched.
    Misdirected(u64),
    /// The device answers nothing for so long, from this operation on; then everything goes on.
    Stalls(Duration),
    /// The device is gone, from this operation on.
    Vanishes,
}

/// See the module.
pub struct FaultyDevice {
    /// For its queues.
    myself: Weak<FaultyDevice>,
    pub(super) inner: Arc<dyn Device>,
    state: Mutex<FaultState>,
    /// A stall has ended or begun.
    stall: Condvar,
}

#[derive(Default)]
pub(super) struct FaultState {
    counts: BTreeMap<Operation, u64>,
    total: u64,
    plan: Vec<(Option<Operation>, u64, Fault)>,
    refused_reads: Vec<(String, Range<u64>)>,
    /// How the names of files begin whose writes and syncs fail.
    refused_writes: Vec<String>,
    stalled_until: Option<Instant>,
    /// How the names of files begin that take no writes and syncs, and until when.
    stalled_writes: Vec<(String, Instant)>,
    /// Operations that wait for the end of a stall, and those of queues that are kept until then.
    waiting: usize,
    pub(super) held: usize,
    vanished: bool,
    files: BTreeMap<u32, Known>,
    pub(super) writes: Writes,
}

/// A file that was created or opened through this device.
struct Known {
    name: String,
    length: u64,
    unsynced: Unsynced,
}

impl FaultState {
    fn takes_no_writes(&self, file: FileId) -> Option<Instant> {
        let name = self.files.get(&file.0)?.name.as_str();
        let now = Instant::now();
        let stalls = self.stalled_writes.iter().filter(|(names, until)| name.starts_with(&**names) && *until > now);
        stalls.map(|(_, until)| *until).max()
    }
}

impl FaultyDevice {
    /// `inner`, without faults so far.
    pub fn new(inner: Arc<dyn Device>) -> Arc<FaultyDevice> {
        Arc::new_cyclic(|myself| FaultyDevice {
            myself: myself.clone(),
            inner,
            state: Mutex::new(FaultState::default()),
            stall: Condvar::new(),
        })
    }

    /// Spoils operation number `nth` of this kind, or of any, counted from 1 since the device was made.
    pub fn inject(&self, operation: Option<Operation>, nth: u64, fault: Fault) {
        self.state.lock().plan.push((operation, nth, fault));
    }

    /// Takes all injected faults back that have not happened.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.plan.clear();
        state.refused_reads.clear();
        state.refused_writes.clear();
    }

    /// Operations of this kind so far, failed ones included.
    pub fn count(&self, operation: Operation) -> u64 {
        self.state.lock().counts.get(&operation).copied().unwrap_or(0)
    }

    /// Operations of all kinds so far.
    pub fn total(&self) -> u64 {
        self.state.lock().total
    }

    /// Answers reads that touch these bytes of a file with an I/O error.
    pub fn refuse_reads(&self, name: &str, bytes: Range<u64>) {
        self.state.lock().refused_reads.push((name.to_owned(), bytes));
    }

    /// Answers writes and syncs of files whose names begin like this with an I/O error, and does nothing of them.
    pub fn refuse_writes(&self, names: &str) {
        self.state.lock().refused_writes.push(names.to_owned());
    }

    /// Flips the bits of `mask` in one byte of a file, durably.
    ///
    /// # Errors
    /// Those of the device inside; `InvalidInput` for a byte that is not in the file.
    pub fn rot(&self, name: &str, offset: u64, mask: u8) -> io::Result<()> {
        let (file, length) = self.inner.open(name)?;
        if offset >= length {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name} has {length} bytes, not {offset}")));
        }
        let place = offset % BLOCK_BYTES as u64;
        let mut block = self.read_inside(file, offset - place, BLOCK_BYTES)?;
        block[place as usize] ^= mask;
        self.write_inside(file, offset - place, &block)?;
        self.inner.sync(file)
    }

    /// From now on the device answers nothing for so long, at most a day. Zero ends a stall.
    pub fn stall(&self, duration: Duration) {
        self.state.lock().stalled_until = Some(Instant::now() + duration.min(STALL_MAX));
        self.stall.notify_all();
    }

    /// For so long, at most a day, writes and syncs of files whose names begin like this get no answer, and nothing of
    /// them happens; everything else goes on. Zero ends such a stall.
    pub fn stall_writes(&self, names: &str, duration: Duration) {
        let mut state = self.state.lock();
        state.stalled_writes.retain(|(known, _)| known != names);
        if !duration.is_zero() {
            state.stalled_writes.push((names.to_owned(), Instant::now() + duration.min(STALL_MAX)));
        }
        drop(state);
        self.stall.notify_all();
    }

    /// Operations that wait for the end of a stall now.
    pub fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.waiting + state.held
    }

    /// From now on the device is gone.
    pub fn vanish(&self) {
        self.state.lock().vanished = true;
    }

    /// Counts an operation that begins; answers what spoils it, if anything does.
    ///
    /// # Errors
    /// `NotFound` once the device is gone.
    pub(super) fn meet(&self, operation: Operation) -> io::Result<Option<Fault>> {
        let mut state = self.state.lock();
        state.total += 1;
        let total = state.total;
        let count = state.counts.entry(operation).or_default();
        *count += 1;
        let count = *count;
        let due = state.plan.iter().position(|&(kind, nth, _)| match kind {
            Some(kind) => kind == operation && nth == count,
            None => nth == total,
        });
        let fault = due.map(|at| state.plan.remove(at).2);
        match fault {
            Some(Fault::Vanishes) => state.vanished = true,
            Some(Fault::Stalls(duration)) => state.stalled_until = Some(Instant::now() + duration.min(STALL_MAX)),
            _ => {}
        }
        if state.vanished { Err(gone()) } else { Ok(fault) }
    }

    /// [`FaultyDevice::meet`] of an operation that waits, also for the end of a stall.
    fn meet_and_wait(&self, operation: Operation) -> io::Result<Option<Fault>> {
        let fault = self.meet(operation);
        while self.wait_out(STALL_MAX) {}
        let fault = fault?;
        if self.is_gone() {
            return Err(gone());
        }
        match fault {
            Some(Fault::Full) => Err(Errno::NOSPC.into()),
            Some(Fault::Fails) if !matches!(operation, Operation::Write | Operation::Sync) => Err(Errno::IO.into()),
            other => Ok(other),
        }
    }

    /// Waits for the end of a stall, but no longer than `wait`; answers whether the device is stalled still.
    pub(super) fn wait_out(&self, wait: Duration) -> bool {
        let begun = Instant::now();
        let mut state = self.state.lock();
        loop {
            let left = wait.saturating_sub(begun.elapsed());
            let Some(until) = state.stalled_until.filter(|&until| until > Instant::now()) else { return false };
            if left.is_zero() {
                return true;
            }
            let pause = left.min(until.saturating_duration_since(Instant::now()));
            state.waiting += 1;
            self.stall.wait_for(&mut state, pause);
            state.waiting -= 1;
        }
    }

    /// Whether writes and syncs of a file get no answer now, and until when at the latest.
    pub(super) fn takes_no_writes(&self, file: FileId) -> Option<Instant> {
        self.state.lock().takes_no_writes(file)
    }

    /// Waits until writes and syncs of one of these files may have an answer, but no longer than `wait`.
    pub(super) fn wait_for_writes(&self, files: &[FileId], wait: Duration) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        loop {
            let stalls: Vec<Option<Instant>> = files.iter().map(|file| state.takes_no_writes(*file)).collect();
            let Some(first) = stalls.into_iter().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().min())
            else {
                return;
            };
            let left = wait.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            let pause = left.min(first.saturating_duration_since(Instant::now()));
            state.waiting += 1;
            self.stall.wait_for(&mut state, pause);
            state.waiting -= 1;
        }
    }

    /// Whether writes and syncs of a file fail.
    pub(super) fn refuses_writes(&self, file: FileId) -> bool {
        let state = self.state.lock();
        let name = state.files.get(&file.0).map(|known| known.name.as_str());
        name.is_some_and(|name| state.refused_writes.iter().any(|refused| name.starts_with(&**refused)))
    }

    /// The same for an operation that waits.
    fn let_write(&self, file: FileId) -> io::Result<()> {
        while self.takes_no_writes(file).is_some() {
            self.wait_for_writes(&[file], STALL_MAX);
        }
        if self.is_gone() {
            return Err(gone());
        }
        if self.refuses_writes(file) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().vanished
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock()
    }

    /// Notes what is where a write will land. Answers the write's number.
    pub(super) fn note(&self, file: FileId, offset: u64, bytes: usize) -> io::Result<u64> {
        let old = self.read_inside(file, offset, bytes)?;
        let mut state = self.state.lock();
        let write = state.writes.begin();
        if let Some(known) = state.files.get_mut(&file.0) {
            known.unsynced.note(offset, &old, write);
        }
        Ok(write)
    }

    /// The device inside has synced a file, which covers these writes.
    pub(super) fn synced(&self, file: FileId, ended: &Ended) {
        if let Some(known) = self.state.lock().files.get_mut(&file.0) {
            known.unsynced.synced(ended);
        }
    }

    /// A sync fails: what was there before comes back, for good.
    pub(super) fn lose(&self, file: FileId) -> io::Result<()> {
        let mut blocks = BTreeMap::<u64, Vec<(usize, [u8; SECTOR_BYTES])>>::new();
        {
            let mut state = self.state.lock();
            let ended = state.writes.ended();
            let Some(known) = state.files.get_mut(&file.0) else { return Ok(()) };
            for (at, versions) in known.unsynced.iter() {
                // Where a write is still under way, it lands yet.
                if let [(old, _), ..] = versions
                    && versions.iter().all(|(_, write)| ended.holds(*write))
                {
                    let place = at % BLOCK_BYTES;
                    blocks.entry((at - place) as u64).or_default().push((place, *old));
                }
            }
            known.unsynced.synced(&ended);
        }
        for (offset, sectors) in blocks {
            let mut block = self.read_inside(file, offset, BLOCK_BYTES)?;
            for (place, old) in sectors {
                block[place..place + SECTOR_BYTES].copy_from_slice(&old);
            }
            self.write_inside(file, offset, &block)?;
        }
        self.inner.sync(file)
    }

    /// Lets a spoilt write land: what stays of it, where, and what it answers.
    pub(super) fn spoil(&self, fault: Fault, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        match fault {
            Fault::Fails => {
                let seed = self.state.lock().total;
                self.land_torn(file, offset, bytes, seed)?;
                Err(Errno::IO.into())
            }
            Fault::Full => Err(Errno::NOSPC.into()),
            Fault::Torn(seed) => {
                self.land_torn(file, offset, bytes, seed)?;
                Ok(bytes.len())
            }
            Fault::Misdirected(blocks) => {
                let length = self.state.lock().files.get(&file.0).map_or(0, |known| known.length);
                let places = (length.saturating_sub(bytes.len() as u64)) / BLOCK_BYTES as u64 + 1;
                let place = (offset / BLOCK_BYTES as u64 + blocks) % places;
                self.land(file, place * BLOCK_BYTES as u64, bytes)?;
                Ok(bytes.len())
            }
            Fault::Short => {
                let half = half(bytes.len());
                self.land(file, offset, &bytes[..half])?;
                Ok(half)
            }
            Fault::Stalls(_) | Fault::Vanishes => self.land(file, offset, bytes).map(|()| bytes.len()),
        }
    }

    fn land_torn(&self, file: FileId, offset: u64, bytes: &[u8], seed: u64) -> io::Result<()> {
        let mut random = Random::new(seed);
        let mut mixed = self.read_inside(file, offset, bytes.len())?;
        for (to, from) in mixed.chunks_mut(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES)) {
            if random.coin() {
                to[..from.len()].copy_from_slice(from);
            }
        }
        self.land(file, offset, &mixed[..bytes.len()])
    }

    fn land(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let write = self.note(file, offset, bytes.len())?;
        let mut aligned = Buffer::new(bytes.len());
        aligned[..bytes.len()].copy_from_slice(bytes);
        let landed = self.write_inside(file, offset, &aligned[..bytes.len()]);
        self.state.lock().writes.end(write);
        landed
    }

    fn read_inside(&self, file: FileId, offset: u64, bytes: usize) -> io::Result<Buffer> {
        let mut buffer = Buffer::new(bytes);
        let mut have = 0;
        while have < bytes {
            match self.inner.read(file, offset + have as u64, &mut buffer[have..bytes])? {
                0 => break,
                moved => have += moved,
            }
        }
        Ok(buffer)
    }

    fn write_inside(&self, file: FileId, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let moved = self.inner.write(file, offset, bytes)?;
            if moved == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            bytes = &bytes[moved..];
            offset += moved as u64;
        }
        Ok(())
    }

    fn know(&self, file: FileId, name: &str, length: u64) {
        let known = Known { name: name.to_owned(), length, unsynced: Unsynced::default() };
        self.state.lock().files.entry(file.0).or_insert(known);
    }
}

pub(super) fn gone() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "the device is gone")
}

/// Half of the blocks of this many bytes, rounded down.
pub(super) fn half(bytes: usize) -> usize {
    bytes / BLOCK_BYTES / 2 * BLOCK_BYTES
}

impl Device for FaultyDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn method(&self) -> String {
        self.inner.method()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.meet_and_wait(Operation::List)?;
        self.inner.list()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        if self.is_gone() { Err(gone()) } else { self.inner.free_bytes() }
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        self.meet_and_wait(Operation::Create)?;
        let file = self.inner.create(name, bytes)?;
        self.know(file, name, bytes);
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        self.meet_and_wait(Operation::Open)?;
        let (file, length) = self.inner.open(name)?;
        self.know(file, name, length);
        Ok((file, length))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.meet_and_wait(Operation::Remove)?;
        self.inner.remove(name)?;
        self.state.lock().files.retain(|_, known| known.name != name);
        Ok(())
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let fault = self.meet_and_wait(Operation::Read)?;
        let end = offset.saturating_add(into.len() as u64);
        {
            let state = self.state.lock();
            let name = state.files.get(&file.0).map(|known| known.name.as_str());
            let bad = |(of, bytes): &(String, Range<u64>)| {
                name == Some(of.as_str()) && bytes.start < end && offset < bytes.end
            };
            if state.refused_reads.iter().any(bad) {
                return Err(Errno::IO.into());
            }
        }
        let length = if fault == Some(Fault::Short) { half(into.len()) } else { into.len() };
        self.inner.read(file, offset, &mut into[..length])
    }

    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let fault = self.meet_and_wait(Operation::Write)?;
        self.let_write(file)?;
        if let Some(fault) = fault {
            return self.spoil(fault, file, offset, bytes);
        }
        let write = self.note(file, offset, bytes.len());
        let written = self.inner.write(file, offset, bytes);
        if let Ok(write) = write {
            self.state.lock().writes.end(write);
        }
        written
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        let fault = self.meet_and_wait(Operation::Sync)?;
        self.let_write(file)?;
        if fault == Some(Fault::Fails) {
            self.lose(file)?;
            return Err(Errno::IO.into());
        }
        let ended = self.state.lock().writes.ended();
        self.inner.sync(file)?;
        self.synced(file, &ended);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.meet_and_wait(Operation::SyncNames)?;
        self.inner.sync_names()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let device = self.myself.upgrade().filter(|device| !device.is_gone()).ok_or_else(gone)?;
        Ok(Box::new(FaultyQueue::new(device, self.inner.queue(depth)?)))
    }
}
