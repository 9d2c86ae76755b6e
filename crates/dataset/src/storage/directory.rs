//! A directory as a place for objects.
//!
//! ```text
//! put     folder/.name.new  write, fsync ─▶ rename to folder/name ─▶ fsync of each folder, once
//! put_if  flock .lock ─▶ compare the present content ─▶ as put ─▶ unlock
//! ```
//!
//! *Invariants*: an object's name never shows a part of its bytes; when a put returns, its bytes and its name are on the
//! medium. Files that are being written have a name that follows from the object's: a killed writer leaves at most one for
//! each object, which the next put of that object overwrites and its removal removes.
//!
//! *On failure* of a write: the old object is there or the new one; an error after the rename is `OutcomeUnknown`.

use super::spans::{self, Limits};
use super::{ALIGNED, Back, Comparison, Condition, Counters, Options, Part, Put, Storage, Tag, Traffic, names};
use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use rustix::buffer::spare_capacity;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Threads that write and sync files at once: a journal takes many syncs in one commit, if they come together.
const WRITERS: usize = 8;
/// Longest wait between two looks at a lock.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(20);
/// Bytes that are read or written directly at once: what the processor's cache holds, and enough for a disk to be busy with.
const PIECE_BYTES: usize = 1 << 20;
/// Objects from this size on are written directly.
const DIRECT_BYTES_MIN: usize = 16 << 20;
const LOCK: &str = ".lock";
/// How the names of objects end while they are written.
const NEW: &str = ".new";
/// How often a folder is made again that somebody removes.
const FOLDER_TRIES: u32 = 5;

/// Objects as files below a directory, which is made at the first put.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    url: String,
    limits: Limits,
    deadline: Duration,
    counters: Counters,
    /// Folders whose names are known to be on the medium. Held for look-ups alone.
    durable: Mutex<BTreeSet<PathBuf>>,
}

impl Directory {
    /// The place at this path.
    #[must_use]
    pub fn new(path: PathBuf, options: &Options) -> Directory {
        let url = path.display().to_string();
        // The program may change its directory.
        let path = std::path::absolute(&path).unwrap_or(path);
        // A gap within pages that are read anyway costs less than a call; there are no bytes to save on a wire.
        let limits = Limits { gap_bytes_max: 4 << 10, gap_percent_max: 10, span_bytes_max: options.request_bytes_max };
        Directory {
            path,
            url,
            limits,
            deadline: options.deadline,
            counters: Counters::default(),
            durable: Mutex::default(),
        }
    }

    /// Where the object is, and where it is written.
    fn places(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        names::check(name)?;
        let place = self.path.join(name);
        let file = place.file_name().unwrap_or_default().to_string_lossy();
        let new = place.with_file_name(format!(".{file}{NEW}"));
        Ok((place, new))
    }

    fn open(&self, name: &str) -> Result<Option<File>> {
        let (place, _) = self.places(name)?;
        match File::open(&place) {
            Ok(file) => Ok(Some(file)),
            // A file where a folder is needed: no object has this name either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(failed("open", &place, error)),
        }
    }

    /// The object as the medium has it, with its length: past the pages that the kernel keeps of it where the file system can do that,
    /// otherwise after these were dropped.
    fn open_medium(&self, name: &str) -> Result<Option<(File, u64)>> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let meta = file.metadata().map_err(|error| failed("look at", &self.path.join(name), error))?;
        if !set_direct(&file, true) {
            drop_pages(&file);
        }
        Ok(meta.is_file().then_some((file, meta.len())))
    }

    /// Gives a file's first `end` bytes to `take`, in pieces, until it has enough or the file ends.
    fn medium_pieces(&self, name: &str, file: &File, end: u64, mut take: impl FnMut(&[u8]) -> bool) -> Result<()> {
        let mut memory = Vec::new();
        let piece = aligned(&mut memory);
        let mut at = 0;
        while at < end {
            // What is read directly begins at a block, whatever the last read answered.
            let from = at - at % ALIGNED as u64;
            let got = match file.read_at(piece, from) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // One that takes the flag, and no direct read.
                Err(error) if error.kind() == ErrorKind::InvalidInput && set_direct(file, false) => {
                    drop_pages(file);
                    file.read_at(piece, from)
                }
                got => got,
            }
            .map_err(|error| failed("read", &self.path.join(name), error))?;
            let until = end.min(from + got as u64);
            if until <= at {
                break;
            }
            let is_enough = !take(&piece[(at - from) as usize..(until - from) as usize]);
            self.counters.read(until - at);
            at = until;
            if is_enough {
                break;
            }
        }
        Ok(())
    }

    fn check_length(&self, name: &str, there: u64, bytes_max: u64) -> Result<()> {
        if there <= bytes_max {
            return Ok(());
        }
        Err(Error::corrupt(format!("{}: {name} has {there} bytes, expected at most {bytes_max}", self.url)))
    }

    /// Makes the folder of an object, so that it is still there after a power cut.
    fn make_folder(&self, folder: &Path) -> Result<()> {
        let durable = || self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if durable().contains(folder) {
            return Ok(());
        }
        let fail = |error| failed("make", folder, error);
        let above: Vec<&Path> = folder.ancestors().skip(1).collect();
        let is_new = !folder.is_dir();
        // Each folder with a new name in it, and all of ours: somebody else may have made one and not synced it yet.
        let nearest = above.iter().position(|above| above.is_dir()).unwrap_or(above.len());
        let news = if is_new { nearest + 1 } else { 0 };
        let ours = above.iter().position(|above| *above == self.path).map_or(0, |own| own + 1);
        fs::create_dir_all(folder).map_err(fail)?;
        for above in above.iter().take(news.max(ours)) {
            sync_folder(above).map_err(fail)?;
        }
        durable().insert(folder.to_owned());
        Ok(())
    }

    /// The time by the clock of the place: that of a server of files may differ from ours, and what it writes on a new file is
    /// its time.
    fn now(&self) -> Result<SystemTime> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let clock = self.path.join(format!(".clock-{host}-{}-{number}", std::process::id()));
        let now = File::create(&clock).and_then(|mut file| {
            file.write_all(b"now")?;
            file.sync_all()?;
            modified(&file)
        });
        fs::remove_file(&clock).ok();
        now.map_err(|error| failed("write", &clock, error))
    }

    /// Calls for each file below a folder, by its name below the place.
    fn walk(&self, folder: &str, each: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let place = self.path.join(&folder);
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                Err(error) => return Err(failed("list", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| failed("list", &place, error))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let kind = entry.file_type().map_err(|error| failed("look at", &place, error))?;
                if kind.is_dir() { folders.push(name) } else { each(name)? }
            }
        }
        Ok(())
    }

    /// Takes the lock of the place. It is gone with the file that is answered, also where the process is killed.
    fn lock(&self) -> Result<File> {
        self.make_folder(&self.path)?;
        let place = self.path.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&place);
        let file = file.map_err(|error| failed("open", &place, error))?;
        let from = Instant::now();
        let mut wait = Duration::from_millis(1);
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if from.elapsed() < self.deadline => {
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(LOCK_WAIT_MAX);
                }
                Err(Errno::WOULDBLOCK) => {
                    let seconds = self.deadline.as_secs_f64();
                    let place = place.display();
                    return Err(Error::unavailable(format!("another writer held {place} for {seconds} s")));
                }
                Err(error) => {
                    let message = format!("{} cannot be locked: the file system has no locks", place.display());
                    return Err(Error::invalid(message).with_source(io::Error::from(error)));
                }
            }
        }
    }

    /// Writes one object beside its place, durably.
    fn write_new(&self, place: &Path, new: &Path, bytes: &[u8]) -> Result<()> {
        let write = || -> io::Result<()> {
            let mut file = File::create(new)?;
            if bytes.len() < DIRECT_BYTES_MIN || !write_direct(&file, bytes)? {
                file.write_all(bytes)?;
            }
            file.sync_all()
        };
        let folder = place.parent().unwrap_or(&self.path);
        for again in 0.. {
            self.make_folder(folder)?;
            match write() {
                Ok(()) => break,
                // Somebody removed the last other object of this folder, and the folder with it.
                Err(error) if error.kind() == ErrorKind::NotFound && again < FOLDER_TRIES => {
                    self.durable.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
                }
                Err(error) => {
                    // A full disk needs the space.
                    fs::remove_file(new).ok();
                    return Err(failed("write", place, error));
                }
            }
        }
        self.counters.write(bytes.len() as u64);
        Ok(())
    }

    /// The whole object.
    fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let place = || self.path.join(name);
        let meta = file.metadata().map_err(|error| failed("look at", &place(), error))?;
        if !meta.is_file() {
            return Ok(None);
        }
        let there = meta.len();
        self.check_length(name, there, bytes_max)?;
        // Objects are replaced, never changed: an open file keeps its length.
        let mut bytes = Vec::with_capacity(length_in_memory(there)?);
        io::Read::read_to_end(&mut &file, &mut bytes).map_err(|error| failed("read", &place(), error))?;
        Ok(Some(bytes))
    }

    /// An object that has parts to read, and its length.
    fn open_there(&self, name: &str) -> Result<(File, u64)> {
        let file = self.open(name)?.ok_or_else(|| Error::corrupt(format!("{}: {name} is not there", self.url)))?;
        let meta = file.metadata().map_err(|error| failed("look at", &self.path.join(name), error))?;
        Ok((file, meta.len()))
    }

    fn read_span(&self, name: &str, (file, there): &(File, u64), span: &spans::Span) -> Result<Bytes> {
        let length = span.range.end - span.range.start;
        if *there < span.range.end {
            let end = span.range.end;
            return Err(Error::corrupt(format!("{}: {name} has {there} bytes, expected at least {end}", self.url)));
        }
        let mut bytes =
            Vec::with_capacity(usize::try_from(length).map_err(|_| Error::invalid("a part beyond memory"))?);
        while (bytes.len() as u64) < length {
            // Room may be more than was asked for.
            let got = bytes.len() as u64;
            let read = rustix::io::pread(file, spare_capacity(&mut bytes), span.range.start + got);
            match read {
                Ok(0) => return Err(Error::corrupt(format!("{}: {name} became shorter", self.url))),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(failed("read", &self.path.join(name), error.into())),
            }
        }
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        self.counters.read(length);
        Ok(bytes.into())
    }
}

impl Storage for Directory {
    fn url(&self) -> &str {
        &self.url
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>> {
        let Some(bytes) = self.read(name, bytes_max)? else { return Ok(None) };
        self.counters.read(bytes.len() as u64);
        let tag = tag_of(&bytes);
        Ok(Some((bytes.into(), tag)))
    }

    fn parts(&self, parts: &[Part]) -> Result<Vec<Bytes>> {
        let mut answer = vec![Bytes::new(); parts.len()];
        // Spans come by object: each is opened once.
        let mut open: Option<(&str, (File, u64))> = None;
        for span in spans::plan(parts, self.limits) {
            let name = parts[span.first].name.as_str();
            let there = match open.take().filter(|(last, _)| *last == name) {
                Some((_, there)) => there,
                None => self.open_there(name)?,
            };
            let bytes = self.read_span(name, &there, &span)?;
            open = Some((name, there));
            for at in span.parts {
                answer[at] = slice(&bytes, span.range.start, &parts[at]);
            }
        }
        Ok(answer)
    }

    fn put(&self, objects: &[(String, Bytes)]) -> Result<()> {
        let mut places = Vec::with_capacity(objects.len());
        for (name, bytes) in objects {
            let (place, new) = self.places(name)?;
            places.push((place, new, bytes));
        }
        let next = AtomicU64::new(0);
        let failure = Mutex::new(None);
        let write = || {
            while let Some((place, new, bytes)) = places.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                if let Err(error) = self.write_new(place, new, bytes) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    next.store(places.len() as u64, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            // This thread is one of them.
            for _ in 1..WRITERS.min(places.len()) {
                scope.spawn(write);
            }
            write();
        });
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let mut folders = BTreeSet::new();
        for (place, new, _) in &places {
            fs::rename(new, place).map_err(|error| unknown("rename", place, error))?;
            folders.extend(place.parent());
        }
        for folder in folders {
            sync_folder(folder).map_err(|error| unknown("sync", folder, error))?;
        }
        Ok(())
    }

    fn put_if(&self, name: &str, bytes: &Bytes, condition: Condition<'_>) -> Result<Put> {
        let (place, new) = self.places(name)?;
        let lock = self.lock()?;
        let there = self.read(name, u64::MAX)?.map(|bytes| tag_of(&bytes));
        let holds = match condition {
            Condition::Absent => there.is_none(),
            Condition::Unchanged(tag) => there.as_ref() == Some(tag),
        };
        if !holds {
            return Ok(Put::Refused);
        }
        self.write_new(&place, &new, bytes)?;
        fs::rename(&new, &place).map_err(|error| failed("rename", &place, error))?;
        let folder = place.parent().unwrap_or(&self.path);
        sync_folder(folder).map_err(|error| unknown("sync", folder, error))?;
        drop(lock);
        Ok(Put::Done(tag_of(bytes)))
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        let mut folders = BTreeSet::new();
        for name in names {
            let (place, new) = self.places(name)?;
            for place in [&place, &new] {
                match fs::remove_file(place) {
                    Ok(()) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                    Err(error) => return Err(failed("remove", place, error)),
                }
            }
            self.counters.write(0);
            folders.extend(place.parent().map(Path::to_owned));
        }
        // A folder goes with its last object. No sync: an object that is there again after a power cut is removed again.
        for folder in folders {
            let below = folder.ancestors().take_while(|above| *above != self.path);
            for folder in below {
                if fs::remove_dir(folder).is_err() {
                    break;
                }
                self.durable.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
            }
        }
        Ok(())
    }

    fn age(&self, name: &str) -> Result<Option<Duration>> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let written = modified(&file).map_err(|error| failed("look at", &self.path.join(name), error))?;
        let now = self.now()?;
        self.counters.read(0);
        Ok(Some(now.duration_since(written).unwrap_or_default()))
    }

    fn read_back(&self, name: &str, bytes_max: u64) -> Result<Option<Bytes>> {
        let Some((file, there)) = self.open_medium(name)? else { return Ok(None) };
        self.check_length(name, there, bytes_max)?;
        let mut bytes = Vec::with_capacity(length_in_memory(there)?);
        self.medium_pieces(name, &file, there, |piece| {
            bytes.extend_from_slice(piece);
            true
        })?;
        Ok(Some(bytes.into()))
    }

    fn compare_back(&self, name: &str, sent: &Bytes) -> Result<Back> {
        let Some((file, there)) = self.open_medium(name)? else { return Ok(Back::Missing) };
        let mut comparison = Comparison::new(sent);
        self.medium_pieces(name, &file, there.min(sent.len() as u64), |piece| comparison.take(piece))?;
        Ok(comparison.end(there))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        if !folder.is_empty() {
            names::check(folder.trim_end_matches('/'))?;
        }
        let mut found = Vec::new();
        // What begins with a dot is no object.
        self.walk(folder.trim_end_matches('/'), &mut |name| {
            if names::check(&name).is_ok() {
                found.push(name);
            }
            Ok(())
        })?;
        self.counters.read(0);
        found.sort_unstable();
        Ok(found)
    }

    fn clear_unfinished(&self, older: Duration, dry_run: bool) -> Result<Vec<String>> {
        if !self.path.is_dir() {
            return Ok(Vec::new());
        }
        let (mut found, now) = (Vec::new(), self.now()?);
        self.walk("", &mut |name| {
            let file = name.rsplit('/').next().unwrap_or_default();
            let place = self.path.join(&name);
            if !file.starts_with('.') || !file.ends_with(NEW) {
                return Ok(());
            }
            // Gone since: its writer has finished.
            let Ok(written) = File::open(&place).and_then(|file| modified(&file)) else { return Ok(()) };
            if now.duration_since(written).unwrap_or_default() >= older {
                if !dry_run {
                    fs::remove_file(&place).map_err(|error| failed("remove", &place, error))?;
                }
                found.push(name);
            }
            Ok(())
        })?;
        found.sort_unstable();
        Ok(found)
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}

/// One part of the bytes that begin at `start` of its object.
pub(super) fn slice(bytes: &Bytes, start: u64, part: &Part) -> Bytes {
    // The plan put the part into these bytes, which are in memory.
    let at = |offset: u64| (offset - start) as usize;
    bytes.slice(at(part.range.start)..at(part.range.end))
}

/// A tag of the content. Not a CRC: an object that ends with its own checksum has the same one whatever it says.
fn tag_of(bytes: &[u8]) -> Tag {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    Tag(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The error of a call that had no effect, or one that may be repeated.
fn modified(file: &File) -> io::Result<SystemTime> {
    file.metadata().and_then(|meta| meta.modified())
}

fn failed(verb: &str, place: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Kind::Full,
        ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::NotFound
        | ErrorKind::InvalidFilename => Kind::Invalid,
        _ => Kind::Unavailable,
    };
    Error::new(kind, format!("cannot {verb} {}", place.display())).with_source(error)
}

fn unknown(verb: &str, place: &Path, error: io::Error) -> Error {
    Error::unknown(format!("cannot {verb} {}: objects may be there, or not after a power cut", place.display()))
        .with_source(error)
}

/// Has reads and writes of a file go past the kernel's pages, or not; `false` where its file system cannot.
fn set_direct(file: &File, is_direct: bool) -> bool {
    rustix::fs::fcntl_setfl(file, if is_direct { OFlags::DIRECT } else { OFlags::empty() }).is_ok()
}

/// A piece of memory as direct reads and writes want it.
fn aligned(memory: &mut Vec<u8>) -> &mut [u8] {
    memory.resize(PIECE_BYTES + ALIGNED, 0);
    let skip = memory.as_ptr().align_offset(ALIGNED);
    &mut memory[skip..skip + PIECE_BYTES]
}

/// Writes a new file past the kernel's pages: nobody reads so much again soon, and pages cost more than what is saved. `false`
/// where the file system cannot: then all of it is still to be written.
fn write_direct(file: &File, bytes: &[u8]) -> io::Result<bool> {
    if !set_direct(file, true) {
        return Ok(false);
    }
    let mut memory = Vec::new();
    let mut at = 0;
    while let rest = &bytes[at..]
        && !rest.is_empty()
    {
        let whole = rest.len() / ALIGNED * ALIGNED;
        let (block, taken) = if whole > 0 && rest.as_ptr().align_offset(ALIGNED) == 0 {
            (&rest[..whole], whole)
        } else {
            let piece = aligned(&mut memory);
            let taken = rest.len().min(PIECE_BYTES);
            let whole = taken.next_multiple_of(ALIGNED);
            piece[..taken].copy_from_slice(&rest[..taken]);
            piece[taken..whole].fill(0);
            (&piece[..whole], taken)
        };
        match file.write_all_at(block, at as u64) {
            // One that takes the flag, and no direct write.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                set_direct(file, false);
                return Ok(false);
            }
            written => written?,
        }
        at += taken;
    }
    set_direct(file, false);
    // The last block was written whole.
    file.set_len(bytes.len() as u64)?;
    Ok(true)
}

/// A length as memory has it.
fn length_in_memory(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::invalid("an object beyond memory"))
}

/// Synced pages can be dropped; where the file system does not, or they are in use, the kernel's copy is read.
fn drop_pages(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}
