//! A device in memory that loses what was not synced, for tests of power loss.
//!
//! *Invariants*: a power loss keeps what a sync has covered; of every other sector of 512 bytes it keeps what was there
//! after any of the writes since, sector by sector; a name that was made or removed since the last `sync_names` is there
//! or not. Operations of a queue end in an order of the device's choice.

use super::random::Random;
use super::unsynced::{Ended, Unsynced, Writes};
use forebay_media::warm::{BLOCK_BYTES, Buffer, Device, Done, FileId, Queue, check_aligned};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// A directory that exists in memory.
pub struct SimDevice {
    shared: Arc<DeviceShared>,
}

struct DeviceShared {
    name: String,
    bytes: u64,
    state: Mutex<DeviceState>,
}

type Hook = Box<dyn FnOnce(&SimDevice) + Send>;

#[derive(Default)]
struct DeviceState {
    files: Vec<File>,
    writes: Writes,
    steps: u64,
    hook: Option<(u64, Hook)>,
    queues: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Naming {
    /// The directory shows it.
    here: bool,
    /// It would be shown after a power loss.
    durable: bool,
}

struct File {
    name: String,
    naming: Naming,
    bytes: Vec<u8>,
    unsynced: Unsynced,
}

impl SimDevice {
    /// An empty device of this many bytes.
    pub fn new(name: &str, bytes: u64) -> Arc<SimDevice> {
        SimDevice::with(name, bytes, Vec::new())
    }

    fn with(name: &str, bytes: u64, files: Vec<File>) -> Arc<SimDevice> {
        let state = Mutex::new(DeviceState { files, ..DeviceState::default() });
        Arc::new(SimDevice { shared: Arc::new(DeviceShared { name: name.to_owned(), bytes, state }) })
    }

    /// What a power loss now would leave, as a device of its own; this one goes on. Of four seeds in a row one keeps
    /// nothing that was not synced, one all of it, the others an arbitrary part.
    pub fn power_off(&self, seed: u64) -> Arc<SimDevice> {
        let state = self.shared.state.lock();
        let mut random = Random::new(seed);
        let mut pick = |choices: usize| match seed % 4 {
            0 => 0,
            1 => choices - 1,
            _ => random.below(choices),
        };
        // For each name the file that is durable under it and the one that is to be.
        let mut names: BTreeMap<&str, (Option<&File>, Option<&File>)> = BTreeMap::new();
        for file in &state.files {
            let pair = names.entry(&file.name).or_default();
            if file.naming.durable {
                pair.0 = Some(file);
            }
            if file.naming.here {
                pair.1 = Some(file);
            }
        }
        let mut left = Vec::new();
        for (name, (old, new)) in names {
            let certain = old.is_some_and(|file| file.naming.here);
            let Some(file) = (if certain || pick(2) == 0 { old } else { new }) else { continue };
            let mut bytes = file.bytes.clone();
            for (at, versions) in file.unsynced.iter() {
                if let Some((kept, _)) = versions.get(pick(versions.len() + 1)) {
                    bytes[at..at + kept.len()].copy_from_slice(kept);
                }
            }
            let naming = Naming { here: true, durable: true };
            left.push(File { name: name.to_owned(), naming, bytes, unsynced: Unsynced::default() });
        }
        SimDevice::with(&self.shared.name, self.shared.bytes, left)
    }

    /// Changes begun so far: creations, removals, writes and syncs.
    pub fn steps(&self) -> u64 {
        self.shared.state.lock().steps
    }

    /// Calls `hook` once, just before change number `step` (counted from 1) takes effect: the moment for
    /// [`SimDevice::power_off`].
    pub fn before_step(&self, step: u64, hook: impl FnOnce(&SimDevice) + Send + 'static) {
        self.shared.state.lock().hook = Some((step, Box::new(hook)));
    }

    fn step(&self) {
        self.shared.step();
    }
}

impl DeviceShared {
    /// Counts a change that is about to happen. Not under the lock: the hook looks at the device.
    fn step(self: &Arc<Self>) {
        let hook = {
            let mut state = self.state.lock();
            state.steps += 1;
            let steps = state.steps;
            state.hook.take_if(|(at, _)| *at == steps)
        };
        if let Some((_, hook)) = hook {
            hook(&SimDevice { shared: self.clone() });
        }
    }
}

impl DeviceState {
    fn find(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.naming.here && file.name == name)
    }

    fn file(&mut self, id: FileId) -> io::Result<&mut File> {
        let none = || io::Error::new(ErrorKind::NotFound, format!("file {} of a device is none", id.0));
        self.files.get_mut(id.0 as usize).filter(|file| file.naming.here).ok_or_else(none)
    }

    /// Lets the bytes land, as those of a write that has not ended.
    fn write(&mut self, id: FileId, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        check_aligned(offset, bytes.len() as u64, bytes)?;
        let write = self.writes.begin();
        let landed = self.file(id).and_then(|file| {
            let what = || format!("{}: {} bytes at {offset} of {}", file.name, bytes.len(), file.bytes.len());
            let place = usize::try_from(offset)
                .ok()
                .and_then(|start| Some(start..start.checked_add(bytes.len())?))
                .filter(|place| place.end <= file.bytes.len())
                .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, what()))?;
            file.unsynced.note(offset, &file.bytes[place.clone()], write);
            file.bytes[place].copy_from_slice(bytes);
            Ok(write)
        });
        if landed.is_err() {
            self.writes.end(write);
        }
        landed
    }

    fn sync(&mut self, id: FileId, ended: &Ended) -> io::Result<()> {
        self.file(id)?.unsynced.synced(ended);
        Ok(())
    }

    fn used(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }
}

impl Device for SimDevice {
    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn method(&self) -> String {
        "simulated".to_owned()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.shared.state.lock();
        let mut names: Vec<String> =
            state.files.iter().filter(|file| file.naming.here).map(|file| file.name.clone()).collect();
        names.sort();
        Ok(names)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.shared.bytes.saturating_sub(self.shared.state.lock().used()))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        if name.is_empty() || name.contains('/') || bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
            let what = format!("a file of {bytes} bytes named `{name}`");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        self.step();
        let mut state = self.shared.state.lock();
        if state.find(name).is_some() {
            return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{name} exists")));
        }
        let free = self.shared.bytes.saturating_sub(state.used());
        if free < bytes {
            let what = format!("{}: {name} wants {bytes} bytes, {free} are free", self.shared.name);
            return Err(io::Error::new(ErrorKind::StorageFull, what));
        }
        state.files.push(File {
            name: name.to_owned(),
            naming: Naming { here: true, durable: false },
            bytes: vec![0; bytes as usize],
            unsynced: Unsynced::default(),
        });
        Ok(FileId(state.files.len() as u32 - 1))
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        let state = self.shared.state.lock();
        let id = state.find(name).ok_or_else(|| not_found(name))?;
        Ok((FileId(id as u32), state.files[id].bytes.len() as u64))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.step();
        let mut state = self.shared.state.lock();
        let id = state.find(name).ok_or_else(|| not_found(name))?;
        let file = &mut state.files[id];
        file.naming.here = false;
        if !file.naming.durable {
            file.bytes = Vec::new();
            file.unsynced = Unsynced::default();
        }
        Ok(())
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        check_aligned(offset, into.len() as u64, into)?;
        let mut state = self.shared.state.lock();
        let bytes = &state.file(file)?.bytes;
        let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
        let moved = rest.len().min(into.len());
        into[..moved].copy_from_slice(&rest[..moved]);
        Ok(moved)
    }

    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.step();
        let mut state = self.shared.state.lock();
        let write = state.write(file, offset, bytes)?;
        state.writes.end(write);
        Ok(bytes.len())
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        self.step();
        let mut state = self.shared.state.lock();
        let ended = state.writes.ended();
        state.sync(file, &ended)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.step();
        for file in &mut self.shared.state.lock().files {
            file.naming.durable = file.naming.here;
            if !file.naming.here {
                file.bytes = Vec::new();
                file.unsynced = Unsynced::default();
            }
        }
        Ok(())
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        if depth == 0 {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a queue of depth 0"));
        }
        let mut state = self.shared.state.lock();
        state.queues += 1;
        let random = Random::new(state.queues);
        Ok(Box::new(SimQueue { shared: self.shared.clone(), depth, pending: Vec::new(), random }))
    }
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("{name} does not exist"))
}

struct SimQueue {
    shared: Arc<DeviceShared>,
    depth: usize,
    pending: Vec<Pending>,
    random: Random,
}

struct Pending {
    tag: u64,
    buffer: Option<Buffer>,
    what: What,
}

enum What {
    /// The write of this number has landed this many bytes.
    Write(u64, usize),
    /// Covers these writes once it ends.
    Sync(FileId, Ended),
    Failed(io::Error),
}

impl SimQueue {
    fn is_full(&self) -> bool {
        self.pending.len() >= self.depth
    }
}

fn full() -> io::Error {
    io::Error::new(ErrorKind::QuotaExceeded, "the queue is full")
}

impl Queue for SimQueue {
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        let landed = if self.is_full() {
            Err(full())
        } else if let Some(bytes) = buffer.get(..length) {
            self.shared.step();
            self.shared.state.lock().write(file, offset, bytes)
        } else {
            let what = format!("{length} bytes of a buffer of {}", buffer.len());
            Err(io::Error::new(ErrorKind::InvalidInput, what))
        };
        let what = landed.map_or_else(What::Failed, |write| What::Write(write, length));
        self.pending.push(Pending { tag, buffer: Some(buffer), what });
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        let what = if self.is_full() {
            What::Failed(full())
        } else {
            What::Sync(file, self.shared.state.lock().writes.ended())
        };
        self.pending.push(Pending { tag, buffer: None, what });
    }

    fn complete(&mut self, _wait: Duration) -> Option<Done> {
        if self.pending.is_empty() {
            return None;
        }
        let Pending { tag, buffer, what } = self.pending.swap_remove(self.random.below(self.pending.len()));
        let result = match what {
            What::Write(write, bytes) => {
                self.shared.state.lock().writes.end(write);
                Ok(bytes)
            }
            What::Sync(file, ended) => {
                self.shared.step();
                self.shared.state.lock().sync(file, &ended).map(|()| 0)
            }
            What::Failed(error) => Err(error),
        };
        Some(Done { tag, buffer, result })
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        while self.complete(Duration::ZERO).is_some() {}
    }
}
