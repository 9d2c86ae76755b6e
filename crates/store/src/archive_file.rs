//! The file that says which archive a store's proofs are in.
//!
//! *Invariant*: it is durable before anything is released that was proved there.
//!
//! *On failure*: a file that is not understood is refused at the opening: nobody knows where the archived events are.

use forebay_core::map::Hex128;
use forebay_core::{Error, Result};
use forebay_media::region_file::write_durably;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

const ARCHIVE_FILE: &str = "archive.json";
const NEW_FILE: &str = "archive.json.new";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    archive: Hex128,
}

/// The archive of a store's last proof.
///
/// # Errors
/// `Corrupt` for a file that is not understood or cannot be read.
pub(crate) fn read(dir: &Path) -> Result<Option<Hex128>> {
    let path = dir.join(ARCHIVE_FILE);
    let damaged = |why: &dyn std::fmt::Display| {
        Error::corrupt(format!(
            "{}: {why}; it says which archive has this store's events: write it again, or remove it if nothing was archived",
            path.display()
        ))
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(damaged(&error)),
    };
    let file: File = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    if file.version != 1 {
        return Err(damaged(&format!("version {}, and this build reads 1", file.version)));
    }
    Ok(Some(file.archive))
}

/// Writes it, so that it is there after a power loss as well.
///
/// # Errors
/// `Unavailable` where the directory cannot be written: the earlier file may be there, or this one.
pub(crate) fn write(dir: &Path, archive: Hex128) -> Result<()> {
    let file = File { version: 1, archive };
    let text =
        serde_json::to_string(&file).map_err(|error| Error::internal("the archive's name").with_source(error))?;
    let written = write_durably(dir, NEW_FILE, &text).and_then(|()| {
        std::fs::rename(dir.join(NEW_FILE), dir.join(ARCHIVE_FILE))?;
        std::fs::File::open(dir)?.sync_all()
    });
    written.map_err(|error| {
        Error::unavailable(format!("{}: cannot write {ARCHIVE_FILE}; try again", dir.display())).with_source(error)
    })
}
