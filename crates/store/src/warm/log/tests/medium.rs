//! A device in memory that forgets unsynced sectors, fails, shortens and dawdles, as the tests of the log need it.

use crate::warm::{BLOCK_BYTES, Buffer, Device, Done, FileId, Queue};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names and bytes.
pub(super) type Image = Vec<(String, Vec<u8>)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Sync,
    Names,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Error,
    /// Only so many bytes are moved.
    Short(usize),
    /// A write goes nowhere and says that it is done.
    Lost,
    /// A queued operation does not end before `release`.
    Stall,
}

struct File {
    name: String,
    working: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Default)]
struct State {
    files: Vec<File>,
    removed: Vec<u32>,
    steps: u64,
    cut: Option<(u64, u64)>,
    image: Option<Image>,
    faults: Vec<(Operation, u64, Fault)>,
    counts: [u64; 4],
    stalled: bool,
}

#[derive(Clone, Default)]
pub(super) struct Medium {
    state: Arc<Mutex<State>>,
    sync_pause: Duration,
}

impl Medium {
    pub(super) fn from_image(image: Image) -> Medium {
        let medium = Medium::default();
        medium.state.lock().files =
            image.into_iter().map(|(name, bytes)| File { name, working: bytes.clone(), durable: bytes }).collect();
        medium
    }

    pub(super) fn slow(pause: Duration) -> Medium {
        Medium { sync_pause: pause, ..Medium::default() }
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        Arc::new(self.clone())
    }

    /// The power goes during step `step`, counted from 1.
    pub(super) fn cut(&self, step: u64, seed: u64) {
        self.state.lock().cut = Some((step, seed));
    }

    pub(super) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// What the cut left, or everything where none came.
    pub(super) fn image(&self) -> Image {
        let state = self.state.lock();
        let whole = || state.files.iter().map(|file| (file.name.clone(), file.working.clone())).collect();
        state.image.clone().unwrap_or_else(whole)
    }

    /// The operation of this kind after `skip` others of it goes wrong.
    pub(super) fn fault(&self, operation: Operation, skip: u64, fault: Fault) {
        let mut state = self.state.lock();
        let at = state.counts[operation as usize] + skip;
        state.faults.push((operation, at, fault));
    }

    pub(super) fn count(&self, operation: Operation) -> u64 {
        self.state.lock().counts[operation as usize]
    }

    pub(super) fn release(&self) {
        self.state.lock().stalled = false;
    }

    pub(super) fn alter(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        let file = state.files.iter_mut().find(|file| file.name == name).unwrap();
        change(&mut file.working);
        file.durable.clone_from(&file.working);
    }
}

impl State {
    /// One step; an error where the device is dead or the operation is to fail.
    fn step(&mut self, operation: Operation, apply: impl FnOnce(&mut State)) -> io::Result<Option<Fault>> {
        if self.image.is_some() {
            return Err(io::Error::other("no power"));
        }
        let nth = self.counts[operation as usize];
        self.counts[operation as usize] += 1;
        let fault = self.faults.iter().find(|fault| fault.0 == operation && fault.1 == nth).map(|fault| fault.2);
        if operation != Operation::Read {
            self.steps += 1;
            if let Some((step, seed)) = self.cut
                && step == self.steps
            {
                apply(self);
                self.image = Some(self.lose(seed));
                return Err(io::Error::other("the power went"));
            }
        }
        match fault {
            Some(Fault::Error) => Err(io::Error::other("the device refuses")),
            other => Ok(other),
        }
    }

    fn lose(&self, seed: u64) -> Image {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut coin = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 33 & 1 == 1
        };
        let left = |file: &File| {
            let mut left = file.durable.clone();
            for (old, new) in left.chunks_mut(512).zip(file.working.chunks(512)) {
                if old != new && coin() {
                    old.copy_from_slice(new);
                }
            }
            (file.name.clone(), left)
        };
        self.files.iter().map(left).collect::<Vec<_>>()
    }
}

impl Device for Medium {
    fn name(&self) -> String {
        "/dev/memory".to_owned()
    }

    fn method(&self) -> String {
        "memory".to_owned()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().files.iter().map(|file| file.name.clone()).collect())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        let mut state = self.state.lock();
        state.step(Operation::Names, |_| {})?;
        if state.files.iter().any(|file| file.name == name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let zeros = vec![0; bytes as usize];
        state.files.push(File { name: name.to_owned(), working: zeros.clone(), durable: zeros });
        Ok(FileId(state.files.len() as u32 - 1))
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        let state = self.state.lock();
        let at = state.files.iter().position(|file| file.name == name).ok_or(io::ErrorKind::NotFound)?;
        Ok((FileId(at as u32), state.files[at].working.len() as u64))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step(Operation::Names, |_| {})?;
        let at = state.files.iter().position(|file| file.name == name).ok_or(io::ErrorKind::NotFound)?;
        state.removed.push(at as u32);
        state.files[at].name = format!("removed-{at}");
        Ok(())
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        assert!(offset.is_multiple_of(4096) && into.len().is_multiple_of(4096));
        let mut state = self.state.lock();
        let fault = state.step(Operation::Read, |_| {})?;
        let bytes = state.files[file.0 as usize].working.get(offset as usize..).unwrap_or_default();
        let mut count = into.len().min(bytes.len());
        if let Some(Fault::Short(short)) = fault {
            count = count.min(short);
        }
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        assert!(offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096));
        let mut state = self.state.lock();
        assert!(!state.removed.contains(&file.0), "a removed file is written");
        let at = offset as usize;
        let put = |state: &mut State, count: usize| {
            state.files[file.0 as usize].working[at..at + count].copy_from_slice(&bytes[..count]);
        };
        let fault = state.step(Operation::Write, |state| put(state, bytes.len()))?;
        let count = match fault {
            Some(Fault::Short(short)) => bytes.len().min(short),
            _ => bytes.len(),
        };
        if !matches!(fault, Some(Fault::Lost)) {
            put(&mut state, count);
        }
        Ok(count)
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        if !self.sync_pause.is_zero() {
            std::thread::sleep(self.sync_pause);
        }
        let mut state = self.state.lock();
        state.step(Operation::Sync, |_| {})?;
        let file = &mut state.files[file.0 as usize];
        file.durable.clone_from(&file.working);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.state.lock().step(Operation::Names, |_| {}).map(|_| ())
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        assert_eq!(depth, 1);
        Ok(Box::new(InOrder { medium: self.clone(), done: None }))
    }
}

/// Does it at once, and says so when asked.
struct InOrder {
    medium: Medium,
    done: Option<Done>,
}

impl InOrder {
    fn stall(&self, operation: Operation) {
        let mut state = self.medium.state.lock();
        let nth = state.counts[operation as usize];
        let stalls =
            |fault: &(Operation, u64, Fault)| (fault.0, fault.1) == (operation, nth) && matches!(fault.2, Fault::Stall);
        state.stalled |= state.faults.iter().any(stalls);
    }
}

impl Queue for InOrder {
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        assert!(self.done.is_none() && buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES));
        self.stall(Operation::Write);
        let result = self.medium.write(file, offset, &buffer[..length]);
        self.done = Some(Done { tag, buffer: Some(buffer), result });
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        assert!(self.done.is_none());
        self.stall(Operation::Sync);
        let result = self.medium.sync(file).map(|()| 0);
        self.done = Some(Done { tag, buffer: None, result });
    }

    fn complete(&mut self, wait: Duration) -> Option<Done> {
        let end = Instant::now() + wait;
        while self.medium.state.lock().stalled {
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.done.take()
    }

    fn in_flight(&self) -> usize {
        usize::from(self.done.is_some())
    }
}
