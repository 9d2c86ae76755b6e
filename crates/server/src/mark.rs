//! What a server records about each store and ring that it serves, outside of them: whether one whose files are gone may be
//! created again (docs/decisions/0014).
//!
//! ```text
//!            made or opened                  closed in order
//!  (no mark) ──────────────▶ open ─────────────────────────────▶ empty, or live: whether anything live was left
//!                             ▲                                     │
//!                             └─────────────── opened ──────────────┘
//!
//! STATE_DIR/marks/store-NAME-CRC.toml    the mark, replaced as a whole: written beside, synced, renamed, directory synced
//! STATE_DIR/marks/store-NAME-CRC.lock    held while the server has the store
//! ```
//!
//! *Invariants*: the mark says `open` durably before anything can be acknowledged; it says `empty` only of a store that was
//! closed without an error and counted after that; one process at a time writes it (the lock).
//!
//! *On failure*: a mark that cannot be written or read ends the start. After a kill it says `open`: then a store that is
//! gone is not made again.

use crate::served::Served;
use forebay_core::{Error, Result, crc32c};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The marks of a server.
#[derive(Clone, Debug)]
pub struct Marks {
    dir: PathBuf,
}

/// The mark of one store or ring, which no other process changes meanwhile.
#[derive(Debug)]
pub(crate) struct Mark {
    file: PathBuf,
    kind: &'static str,
    path: String,
    written: Option<Written>,
    _lock: File,
}

/// Contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    kind: String,
    path: String,
    /// Identity of the store or ring, in hexadecimal.
    id: String,
    state: MarkState,
}

const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MarkState {
    /// It is served, or was when its server died.
    Open,
    /// Closed in order, with something live in it.
    Live,
    /// Closed in order, with nothing live in it.
    Empty,
}

/// Why a start was refused: a store or ring that was served is gone, and whether something is lost with it has to be said by
/// somebody. The source of that error.
#[derive(Debug)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "it was served before")
    }
}

impl std::error::Error for Gone {}

impl Marks {
    /// The marks in a server's state directory.
    pub fn new(state_dir: &Path) -> Marks {
        Marks { dir: state_dir.join("marks") }
    }

    /// Takes the mark of what is served from `path`.
    ///
    /// # Errors
    /// `Invalid` where the state directory cannot be used, or the mark cannot be understood; `Unavailable` while another
    /// server has it.
    pub(crate) fn take(&self, kind: &'static str, path: &Path) -> Result<Mark> {
        let unusable = |error: io::Error| {
            let dir = self.dir.display();
            Error::invalid(format!(
                "{dir}: cannot be used: {error}; `state_dir` names a directory that this user may write and that survives \
                 a restart of the machine"
            ))
            .with_source(error)
        };
        std::fs::create_dir_all(&self.dir).map_err(unusable)?;
        let file = self.file(kind, path);
        let lock = File::options().create(true).truncate(false).write(true).open(file.with_extension("lock"));
        let lock = lock.map_err(unusable)?;
        // Held as long as the server runs: two servers that serve the same path would overwrite each other's mark.
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Error::unavailable(format!("{}: another server has this {kind}", path.display()))
            }
            TryLockError::Error(error) => unusable(error),
        })?;
        let written = read(&file, path)?;
        Ok(Mark { file, kind, path: text_of(path), written, _lock: lock })
    }

    /// The reason for which a start would be refused: `is_gone` says whether nothing is at `path`.
    ///
    /// # Errors
    /// As a start: `Corrupt` with [`Gone`].
    pub(crate) fn check(&self, kind: &'static str, path: &Path, in_memory: bool) -> Result<()> {
        let file = self.file(kind, path);
        read(&file, path)?.map_or(Ok(()), |written| may_make(&written, &file, in_memory))
    }

    /// One file for each, which people recognize.
    fn file(&self, kind: &str, path: &Path) -> PathBuf {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
        let name: String = path.file_name().unwrap_or_default().to_string_lossy().chars().take(64).map(plain).collect();
        self.dir.join(format!("{kind}-{name}-{:08x}.toml", crc32c(path.as_os_str().as_encoded_bytes())))
    }
}

impl Mark {
    /// Whether there is one: then what it is of was made before.
    pub(crate) fn is_there(&self) -> bool {
        self.written.is_some()
    }

    /// Whether it says that nothing live was left.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.as_ref().is_some_and(|written| written.state == MarkState::Empty)
    }

    /// Whether what it is of, and is gone now, may be made again; `in_memory` says whether its place is a file system in
    /// memory, which loses everything at a restart of the machine.
    ///
    /// # Errors
    /// `Corrupt` with [`Gone`], saying what to do.
    pub(crate) fn may_make(&self, in_memory: bool) -> Result<()> {
        self.written.as_ref().map_or(Ok(()), |written| may_make(written, &self.file, in_memory))
    }

    /// It is served from now on.
    ///
    /// # Errors
    /// `Unavailable` where the mark cannot be written.
    pub(crate) fn open(&mut self, id: [u8; 16]) -> Result<()> {
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(before) = self.written.as_ref().filter(|before| before.id != id) {
            tracing::warn!(path = self.path, before = before.id, now = id, "another {} than the last time", self.kind);
        }
        self.write(id, MarkState::Open)
    }

    /// It was closed in order, and something live was left in it or not.
    ///
    /// # Errors
    /// As [`Mark::open`].
    pub(crate) fn closed(&mut self, is_live: bool) -> Result<()> {
        let id = self.written.as_ref().map(|written| written.id.clone()).unwrap_or_default();
        self.write(id, if is_live { MarkState::Live } else { MarkState::Empty })
    }

    fn write(&mut self, id: String, state: MarkState) -> Result<()> {
        let written = Written { version: VERSION, kind: self.kind.to_owned(), path: self.path.clone(), id, state };
        let text = toml::to_string(&written).map_err(|error| Error::internal("a mark as TOML").with_source(error))?;
        replace(&self.file, &text).map_err(|error| {
            Error::unavailable(format!("{}: cannot be written: {error}", self.file.display())).with_source(error)
        })?;
        self.written = Some(written);
        Ok(())
    }
}

/// Replaces a file as a whole, durably: after a power loss it is the old one or the new one.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let beside = file.with_extension("new");
    let mut new = File::create(&beside)?;
    new.write_all(
        b"# Written by `forebay serve`; docs/operating.md, \"When a store is gone\", says when to remove it.\n",
    )?;
    new.write_all(text.as_bytes())?;
    // In this order: content durable, then the new name, then the directory. A power loss leaves the old mark or the
    // new one whole.
    new.sync_all()?;
    std::fs::rename(&beside, file)?;
    match file.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn read(file: &Path, path: &Path) -> Result<Option<Written>> {
    let name = file.display();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::invalid(format!("{name}: cannot be read: {error}")).with_source(error)),
    };
    let written: Written = toml::from_str(&text)
        .map_err(|error| Error::invalid(format!("{name}: is no mark of a server: {}", error.message())))?;
    // The name of the file is a checksum of the path: two paths may collide, and the text decides.
    if written.version != VERSION || written.path != text_of(path) {
        let Written { version, path, .. } = written;
        return Err(Error::invalid(format!("{name}: is a mark of version {version} for {path}")));
    }
    Ok(Some(written))
}

fn may_make(written: &Written, file: &Path, in_memory: bool) -> Result<()> {
    let was = match written.state {
        MarkState::Empty if in_memory => return Ok(()),
        MarkState::Empty => {
            "it held nothing live, but its directory is not on a file system in memory: perhaps a disk is not mounted"
        }
        MarkState::Live => "it was closed with live data in it",
        MarkState::Open => "its server did not close it, so it may have held data that was acknowledged",
    };
    let Written { kind, path, .. } = written;
    Err(Error::corrupt(format!(
        "{path}: the {kind} that was served from here is gone; {was}. Bring its files back; or, if it is lost and an empty one \
         is to replace it, run: rm '{}'; then start again",
        file.display()
    ))
    .with_source(Gone))
}

/// A store or ring that is served, with its mark where it has one. Dropping it closes it in order and
/// ignores errors; call [`Started::close`] to see them.
#[derive(Debug)]
pub struct Started {
    served: Served,
    made: bool,
    mark: Option<Mark>,
    closed: bool,
}

impl Started {
    /// Without a mark; `made` says whether it is new.
    pub(crate) fn unmarked(served: impl Into<Served>, made: bool) -> Started {
        Started { served: served.into(), made, mark: None, closed: false }
    }

    /// With a mark that says from now on that it is open.
    ///
    /// # Errors
    /// `Unavailable` where the mark cannot be written: then nothing may be served.
    pub(crate) fn marked(served: Served, made: bool, mut mark: Mark) -> Result<Started> {
        // Before the first request: from here on there may be acknowledged data, so a loss of the files must be
        // noticed.
        mark.open(served.id())?;
        Ok(Started { served, made, mark: Some(mark), closed: false })
    }

    /// The store or ring that is served.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// Whether this start made it.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Closes it durably, then writes into its mark whether anything live was left.
    ///
    /// # Errors
    /// Those of its close; `Unavailable` where the mark cannot be written.
    pub fn close(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        // A close that fails leaves the mark `open`: nothing is known about what was left.
        self.served.close()?;
        // Counted once nothing can become visible any more.
        let is_live = self.served.is_live();
        self.mark.as_mut().map_or(Ok(()), |mark| mark.closed(is_live))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A start that failed elsewhere: its error is the one to answer, and the mark says `open` where this one fails.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("forebay-mark-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_mark_lets_only_what_was_closed_empty_be_made_again() {
        let dir = Dir::new("states");
        let marks = Marks::new(&dir.0);
        let path = Path::new("/dev/shm/a store");
        let take = || marks.take("store", path).unwrap();
        let answers = || [true, false].map(|in_memory| take().may_make(in_memory).map_err(|error| error.kind()));
        assert!(!take().is_there());
        assert_eq!(answers(), [Ok(()), Ok(())], "the first start");
        take().open([7; 16]).unwrap();
        assert_eq!(answers(), [Err(Kind::Corrupt); 2]);
        take().closed(true).unwrap();
        assert_eq!(answers(), [Err(Kind::Corrupt); 2]);
        take().closed(false).unwrap();
        assert_eq!(answers(), [Ok(()), Err(Kind::Corrupt)]);
        assert_eq!(take().written.unwrap().id, "07".repeat(16));
        let said = take().may_make(false).unwrap_err();
        let is_gone = std::error::Error::source(&said).is_some_and(|source| source.is::<Gone>());
        assert!(is_gone && said.message().contains("rm '"), "{said}");
        // A ring at the same path has a mark of its own.
        assert!(!marks.take("ring", path).unwrap().is_there());
        assert_eq!(marks.check("store", path, true).map_err(|error| error.kind()), Ok(()));
    }

    #[test]
    fn one_server_at_a_time_has_a_mark_and_a_broken_one_is_refused() {
        let dir = Dir::new("locks");
        let marks = Marks::new(&dir.0);
        let path = Path::new("/dev/shm/one");
        let first = marks.take("store", path).unwrap();
        assert_eq!(marks.take("store", path).unwrap_err().kind(), Kind::Unavailable);
        let file = first.file.clone();
        drop(first);
        std::fs::write(&file, "state = \"empty\"\n").unwrap();
        assert_eq!(marks.take("store", path).unwrap_err().kind(), Kind::Invalid);
        // What a write that was cut off left beside it counts for nothing.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(file.with_extension("new"), "half").unwrap();
        assert!(!marks.take("store", path).unwrap().is_there());
    }
}
