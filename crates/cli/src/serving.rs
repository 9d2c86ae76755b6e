//! Where a store is served: a note in its directory, for commands that find it locked.
//!
//! *Invariants*: the note is written once the listeners are open and removed in order at the end. It proves nothing: a note that
//! a killed server left behind is seen by the lock that nobody has, and is never asked then.

use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const NAME: &str = "served.json";

/// Where a keyspace is served.
#[derive(Serialize, Deserialize)]
pub(crate) struct Serving {
    /// Process of the server.
    pub(crate) pid: u32,
    /// Name of the keyspace there.
    pub(crate) keyspace: String,
    /// Addresses of Forebay's own protocol.
    pub(crate) native: Vec<String>,
}

/// The notes of a server. Dropping it removes them.
pub(crate) struct Notes(Vec<PathBuf>);

impl Notes {
    /// Writes a note into each directory. One that cannot be written is no reason not to serve.
    pub(crate) fn write<'a>(native: &[String], served: impl Iterator<Item = (&'a Path, &'a str)>) -> Notes {
        let mut written = Vec::new();
        for (dir, keyspace) in served {
            let note = Serving { pid: std::process::id(), keyspace: keyspace.to_owned(), native: native.to_vec() };
            let (beside, path) = (dir.join(format!("{NAME}.new")), dir.join(NAME));
            let text = serde_json::to_vec(&note).unwrap_or_default();
            // Renamed into its place: a command that reads it meanwhile sees the old one or the new one.
            let done = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path));
            match done {
                Ok(()) => written.push(path),
                Err(error) => tracing::warn!(
                    %error,
                    dir = %dir.display(),
                    "commands on this directory will not find this server by themselves"
                ),
            }
        }
        Notes(written)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The note in a directory, where there is one.
///
/// # Errors
/// `Invalid` for a file that is no note.
pub(crate) fn read(dir: &Path) -> Result<Option<Serving>> {
    let path = dir.join(NAME);
    let Ok(text) = std::fs::read(&path) else { return Ok(None) };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| Error::invalid(format!("{} cannot be read", path.display())).with_source(error))
}
