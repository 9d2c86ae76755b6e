//! Starts the store or ring of a section: opens what exists, and creates what never existed.
//!
//! ```text
//! region there ─────────────────────────────▶ open; one whose creation was cut off is made again, without a mark
//! region gone, mark: closed, nothing live ──▶ made again, in memory
//! region gone, any other mark ──────────────▶ refused (mark.rs, `Gone`)
//! nothing there, no mark ───────────────────▶ made, where the section says of what
//! ```
//!
//! *On failure*: an existing store is never replaced by a new one.

use crate::mark::{Mark, Marks, Started};
use crate::served::Served;
use forebay_core::{Error, Kind, Result};
use rustix::fs::statfs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long what another process has is tried again: one that was killed takes a moment to let go.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// File systems that lose everything at a restart of the machine (statfs(2)): tmpfs, ramfs, hugetlbfs.
const MEMORY_FILE_SYSTEMS: [i64; 3] = [0x0102_1994, 0x8584_58F6, 0x9584_58F6];

/// A section of the configuration that names a store or a ring.
pub(super) trait Section {
    /// The kind of data that is kept there.
    type Kept;
    /// How people call it.
    const KIND: &'static str;
    /// Files of which each says that there is, or was, one; the region first.
    const FILES: &'static [&'static str];

    /// Its directory.
    fn dir(&self) -> &Path;
    /// Where its region is made, if not there.
    fn region_dir(&self) -> Option<&Path>;
    /// Whether something of it is served without its region.
    fn has_more_than_region(&self) -> bool;
    /// Whether the section says what to make.
    fn can_make(&self) -> bool;
    /// Makes it.
    ///
    /// # Errors
    /// Those of its creation.
    fn make(&self) -> Result<Self::Kept>;
    /// Opens what is there.
    ///
    /// # Errors
    /// Those of its opening.
    fn open_there(&self) -> Result<Self::Kept>;
    /// The error if there is none.
    fn nothing_there(&self) -> Error;
}

/// The result of a start: whether it was created, and its mark if marks are kept.
pub(super) struct Begun<T> {
    pub(super) kept: T,
    pub(super) made: bool,
    pub(super) mark: Option<Mark>,
}

impl<T: Into<Served>> Begun<T> {
    /// Served from now on: the mark says so first.
    pub(super) fn started(self) -> Result<Started> {
        match self.mark {
            Some(mark) => Started::marked(self.kept.into(), self.made, mark),
            None => Ok(Started::unmarked(self.kept, self.made)),
        }
    }
}

/// Opens what a section names, or makes it.
///
/// # Errors
/// Those of opening and making; `Corrupt` with [`crate::Gone`] where it was served before and is gone.
pub(super) fn start<S: Section>(section: &S, marks: Option<&Marks>) -> Result<Begun<S::Kept>> {
    // The mark's lock first: nobody else may create or serve this store while its state is decided.
    let mark = marks.map(|marks| patiently(|| marks.take(S::KIND, section.dir()))).transpose()?;
    let known = mark.as_ref().is_some_and(Mark::is_there);
    if let Some(mark) = mark.as_ref().filter(|_| known && is_gone(section)) {
        // Here a new store would replace a lost one: only where the mark says that nothing live was left.
        mark.may_make(is_in_memory(section))?;
        if section.can_make() {
            // A keyspace file, a link that leads nowhere: nothing that anybody could read is left of it.
            S::FILES.iter().for_each(|name| drop(std::fs::remove_file(section.dir().join(name))));
        }
    }
    // Any file counts: a directory with half a store is opened and refused there, never created over.
    if !holds_any(section) {
        if !section.can_make() {
            return Err(section.nothing_there());
        }
        return Ok(Begun { kept: section.make()?, made: true, mark });
    }
    let error = match patiently(|| section.open_there()) {
        Ok(kept) => return Ok(Begun { kept, made: false, mark }),
        Err(error) => error,
    };
    // A creation that was cut off never was a store, or a ring: where its region is there and it was never served, or was made
    // again after nothing live was left, it is begun again. Making refuses to replace one.
    let may_be_cut_off = !known || is_in_memory(section) && mark.as_ref().is_some_and(Mark::is_empty);
    let is_cut_off = may_be_cut_off && error.kind() != Kind::Unavailable && section.dir().join(S::FILES[0]).exists();
    if !is_cut_off || !section.can_make() {
        return Err(error);
    }
    // The first error is the one to answer: that a second creation is refused says nothing about the store.
    section.make().map(|kept| Begun { kept, made: true, mark }).map_err(|_| error)
}

/// The reason for which a start would be refused, found without locking anything.
///
/// # Errors
/// As [`start`], where what was served is gone.
pub(super) fn check<S: Section>(section: &S, marks: &Marks) -> Result<()> {
    if is_gone(section) { marks.check(S::KIND, section.dir(), is_in_memory(section)) } else { Ok(()) }
}

/// Whether any file of it is there.
pub(super) fn holds_any<S: Section>(section: &S) -> bool {
    S::FILES.iter().any(|name| section.dir().join(name).symlink_metadata().is_ok())
}

/// Whether what it held cannot be there any more.
fn is_gone<S: Section>(section: &S) -> bool {
    // With devices a store whose region is gone can still be opened with consent, so it is not gone.
    !section.dir().join(S::FILES[0]).exists() && !section.has_more_than_region()
}

/// Whether its region would be made on a file system in memory. Of a path that is not there its nearest directory counts: a
/// disk that is not mounted is none.
fn is_in_memory<S: Section>(section: &S) -> bool {
    let place = section.region_dir().unwrap_or(section.dir());
    let there = place.ancestors().find(|path| path.exists());
    there.and_then(|path| statfs(path).ok()).is_some_and(|info| MEMORY_FILE_SYSTEMS.contains(&info.f_type))
}

/// Tries again for a moment what another process has.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match attempt() {
            Err(error) if error.kind() == Kind::Unavailable && Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
            answer => return answer,
        }
    }
}
