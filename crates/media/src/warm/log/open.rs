//! Finding the log of a device again: which of its two files is in force, and what it says.
//!
//! *Invariants*: opening writes nothing; the log takes nothing before a snapshot has replaced it (`Log::replace`), because its
//! end may be torn.
//!
//! *On failure*: what cannot be accounted for is `Corrupt`, or, where losses are accepted, named.

use super::commit::Io;
use super::format::{
    DEVICES_MAX, FILE_NAMES, FileHead, FileState, HEAD_BLOCKS, LOG_BYTES_MAX, LOG_BYTES_MIN, Pages, block_offset,
};
use super::scan::{LogSlots, scan};
use super::tail::{Cursor, Health, Log, Tail};
use crate::bytes::SlotLayout;
use crate::warm::{BLOCK_BYTES, Buffer, Device, FileId};
use forebay_core::limits::KEY_BYTES_MAX;
use forebay_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that one read asks for.
const READ_BYTES: usize = 1 << 20;

/// Which log of which store.
pub(super) struct Which<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) number: u32,
    pub(super) store: [u8; 16],
    pub(super) key_bytes: usize,
    pub(super) log_bytes: u64,
}

/// A file as it was found.
struct Found {
    file: FileId,
    bytes: u64,
    head: Option<FileHead>,
}

/// # Errors
/// `Invalid` where the sizes cannot be.
pub(super) fn check_sizes(devices: usize, key_bytes: usize, log_bytes: u64) -> Result<()> {
    if devices == 0 || devices > DEVICES_MAX as usize {
        return Err(Error::invalid(format!("{devices} devices for decision logs; 1 to {DEVICES_MAX} can be")));
    }
    if key_bytes == 0 || key_bytes > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("keys of {key_bytes} bytes in decision logs; 1 to {KEY_BYTES_MAX} can be")));
    }
    if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log_bytes) || !log_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(Error::invalid(format!(
            "a decision log of {log_bytes} bytes; {LOG_BYTES_MIN} to {LOG_BYTES_MAX} in steps of {BLOCK_BYTES} can be"
        )));
    }
    Ok(())
}

impl Which<'_> {
    fn log(&self, files: [Option<(FileId, u64)>; 2], file: usize, generation: u64, position: u64) -> Result<Log> {
        let name = self.device.name();
        let io = Io::new(&**self.device).map_err(|error| {
            Error::unavailable(format!("device {} ({name}): no queue", self.number)).with_source(error)
        })?;
        let layout = SlotLayout::for_key_bytes(self.key_bytes);
        let pages = Pages::new(layout, &self.store, self.number, file as u32, generation);
        let bytes = files[file].map_or(self.log_bytes, |file| file.1);
        let blocks = (bytes / BLOCK_BYTES as u64) as u32 - HEAD_BLOCKS;
        let at = Cursor { pages, blocks, block: 0, commit: 1 };
        Ok(Log {
            device: self.device.clone(),
            number: self.number,
            store: self.store,
            key_bytes: self.key_bytes,
            file_bytes: self.log_bytes,
            state: Mutex::new(Tail::new(io, at, files, file, generation, position)),
            changed: Condvar::new(),
            snapshot_io: Mutex::default(),
        })
    }

    /// Makes both files; the first one is an empty log.
    pub(super) fn create(&self, deadline: Instant) -> Result<Log> {
        let make = |name: &&str| self.device.create(name, self.log_bytes);
        let files: io::Result<Vec<FileId>> = FILE_NAMES.iter().map(make).collect();
        let files = files.and_then(|files| self.device.sync_names().map(|()| files)).map_err(|error| {
            let name = self.device.name();
            match error.kind() {
                io::ErrorKind::AlreadyExists => Error::invalid(format!("{name} holds a decision log already")),
                io::ErrorKind::StorageFull => Error::full(format!("{name} has no room for a decision log")),
                _ => Error::unavailable(format!("{name}: cannot create the decision log")),
            }
            .with_source(error)
        })?;
        let sized = |file: FileId| Some((file, self.log_bytes));
        let log = self.log([sized(files[0]), sized(files[1])], 0, 1, 0)?;
        {
            let mut state = log.state.lock();
            let Some(mut io) = state.io.take() else { return Err(Error::internal("a new log has no queue")) };
            let head = FileHead {
                store: self.store,
                device: self.number,
                file: 0,
                state: FileState::InForce,
                key_bytes: self.key_bytes as u16,
                generation: 1,
                file_bytes: self.log_bytes,
                snapshot_blocks: 0,
                boot: 0,
                position: 0,
            };
            log.write_head(files[0], &head, &mut io, deadline)?;
            (state.io, state.health) = (Some(io), Health::Good);
        }
        Ok(log)
    }

    /// Finds the log; answers what it says and what is lost.
    pub(super) fn open(&self, accept_loss: bool) -> Result<(Log, LogSlots, Vec<String>)> {
        let named = |error: Error| Error::new(error.kind(), format!("{}: {}", self.place(), error.message()));
        let found = [self.find(0).map_err(named)?, self.find(1).map_err(named)?];
        let heads: Vec<&FileHead> = found.iter().flatten().filter_map(|found| found.head.as_ref()).collect();
        // A file that was begun does not count, but its generation is used: the next attempt takes a higher one.
        let newest = heads.iter().filter(|head| head.state != FileState::Begun).max_by_key(|head| head.generation);
        let next_generation = heads.iter().map(|head| head.generation).max().unwrap_or(0) + 1;
        let Some(head) = newest.filter(|head| head.state == FileState::InForce) else {
            let why = format!("{}: neither file is in force: what was decided is not known", self.place());
            if !accept_loss {
                return Err(Error::corrupt(why));
            }
            // Each snapshot creates the file that it needs, with a generation above any that the other file may have.
            let log = self.log([None, None], 1, 0, 0)?;
            let mut state = log.state.lock();
            state.next_generation = next_generation + 1;
            let pages = state.at.pages;
            drop(state);
            return Ok((log, LogSlots::none(pages), vec![why]));
        };
        let at = head.file as usize;
        let file_bytes = head.file_bytes;
        if check_sizes(1, self.key_bytes, file_bytes).is_err() {
            return Err(Error::corrupt(format!("{}: {file_bytes} bytes, as its head says, cannot be", self.place())));
        }
        let whole = |bytes: u64| check_sizes(1, self.key_bytes, bytes).is_ok();
        let usable = |found: &Option<Found>| found.as_ref().filter(|f| whole(f.bytes)).map(|f| (f.file, f.bytes));
        let files = [usable(&found[0]), usable(&found[1])];
        let log = self.log(files, at, head.generation, 0)?;
        let Some(there) = &found[at] else { return Err(Error::internal("the file in force is gone")) };
        let mut lost = Vec::new();
        if there.bytes != file_bytes {
            lost.push(format!("{} has {} bytes of {file_bytes}", FILE_NAMES[at], there.bytes));
        }
        let (image, unreadable) = self.read_blocks(there.file, there.bytes.min(file_bytes));
        let pages = {
            let mut state = log.state.lock();
            state.next_generation = next_generation;
            state.at.pages
        };
        let blocks = (file_bytes / BLOCK_BYTES as u64) as u32 - HEAD_BLOCKS;
        let (slots, losses) = scan(pages, head.snapshot_blocks.min(blocks), image, &unreadable);
        let slots = slots.from(head.boot, head.position);
        lost.extend(losses);
        let lost: Vec<String> = lost.into_iter().map(|loss| format!("{}: {loss}", self.place())).collect();
        match lost.first() {
            Some(first) if !accept_loss => Err(Error::corrupt(match lost.len() - 1 {
                0 => first.clone(),
                more => format!("{first}; and {more} more like it"),
            })),
            _ => Ok((log, slots, lost)),
        }
    }

    fn place(&self) -> String {
        format!("the decision log of device {} ({})", self.number, self.device.name())
    }

    /// Opens a file and reads its head; `None` where the file is missing.
    fn find(&self, file: usize) -> Result<Option<Found>> {
        let name = FILE_NAMES[file];
        let (id, bytes) = match self.device.open(name) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::unavailable(format!("cannot open {name}: {error}"))),
        };
        let mut head: Option<FileHead> = None;
        for copy in 0..HEAD_BLOCKS {
            let mut block = Buffer::new(BLOCK_BYTES);
            // A copy that cannot be read is like one that does not verify: the other one has it.
            if read_all(&**self.device, id, u64::from(copy) * BLOCK_BYTES as u64, &mut block).is_err() {
                continue;
            }
            let Some(read) = FileHead::decode(&block)? else { continue };
            self.check_head(&read, file)?;
            let rank = |head: &FileHead| (head.generation, head.state);
            if head.as_ref().is_none_or(|known| rank(known) < rank(&read)) {
                head = Some(read);
            }
        }
        Ok(Some(Found { file: id, bytes, head }))
    }

    /// # Errors
    /// `Invalid` where the file is of another store, device, place or key length.
    fn check_head(&self, head: &FileHead, file: usize) -> Result<()> {
        let name = FILE_NAMES[file];
        let hex = |id: &[u8; 16]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        if head.store != self.store {
            let (theirs, ours) = (hex(&head.store), hex(&self.store));
            return Err(Error::invalid(format!("{name} belongs to store {theirs}, not to {ours}")));
        }
        if (head.device, head.file as usize) != (self.number, file) {
            let (device, number) = (head.device, head.file);
            return Err(Error::invalid(format!(
                "{name} is file {number} of device {device}: is a directory in another's place?"
            )));
        }
        if usize::from(head.key_bytes) != self.key_bytes {
            let (theirs, ours) = (head.key_bytes, self.key_bytes);
            return Err(Error::invalid(format!("{name} is for keys of {theirs} bytes, not {ours}")));
        }
        Ok(())
    }

    /// All blocks behind the head. Those that cannot be read are zeros, and named.
    fn read_blocks(&self, file: FileId, bytes: u64) -> (Vec<u8>, Vec<u32>) {
        let blocks = (bytes / BLOCK_BYTES as u64).saturating_sub(u64::from(HEAD_BLOCKS)) as u32;
        let mut image = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
        let mut unreadable = Vec::new();
        let per_read = (READ_BYTES / BLOCK_BYTES) as u32;
        let mut buffer = Buffer::new(READ_BYTES);
        for first in (0..blocks).step_by(per_read as usize) {
            let count = per_read.min(blocks - first);
            let whole = &mut buffer[..count as usize * BLOCK_BYTES];
            // One bad sector fails the whole piece: block by block, so that only what cannot be read is named as lost.
            if read_all(&**self.device, file, block_offset(first), whole).is_err() {
                for (block, bytes) in (first..).zip(whole.chunks_exact_mut(BLOCK_BYTES)) {
                    if read_all(&**self.device, file, block_offset(block), bytes).is_err() {
                        bytes.fill(0);
                        unreadable.push(block);
                    }
                }
            }
            image.extend_from_slice(whole);
        }
        (image, unreadable)
    }
}

/// Fills `into`, however short the device reads.
pub(super) fn read_all(device: &dyn Device, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<()> {
    // Direct I/O reads from a block on, so a short read goes on at the block in which it ended.
    let mut done = 0;
    let mut again = 0;
    while done < into.len() {
        // Goes on at a block, which is read again where it was read in part.
        let from = done / BLOCK_BYTES * BLOCK_BYTES;
        let count = device.read(file, offset + from as u64, &mut into[from..])?;
        let end = from + count;
        again = if end > done { 0 } else { again + 1 };
        if again == 16 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done = done.max(end);
    }
    Ok(())
}
