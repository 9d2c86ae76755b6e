//! The file of a store's keyspace, and changes of its policies while the store is closed.
//!
//! ```text
//! new policies ─▶ keyspace.toml.new, durable ─▶ superblock with its checksum, durable ─▶ renamed to keyspace.toml
//! ```
//!
//! *Invariant*: at each moment one of the two files has the checksum that the superblock has, and is in force
//! (tests/policies.rs).
//!
//! *On failure*: a change that is cut off before the superblock is none; after it, the next opening renames the file.
//!
//! *Not here*: which changes are harmless (`Keyspace::changes_to`).

use crate::Store;
use forebay_core::{Error, Keyspace, Result, crc32c};
use forebay_media::hot::{FlushPolicy, Region};
use forebay_media::region_file::{read_superblock, write_durably, write_superblock_durably};
use std::path::Path;

pub(crate) const KEYSPACE_FILE: &str = "keyspace.toml";
pub(crate) const REGION_FILE: &str = "hot.fb";
const CHANGED_FILE: &str = "keyspace.toml.new";

impl Store {
    /// Changes policies of a closed store: those in which `keyspace` differs, whose names it answers. They are in force from
    /// the next opening on.
    ///
    /// # Errors
    /// `Invalid` where there is no store, or it was not closed in order, or for a difference that stored data depends on;
    /// `Unavailable` while somebody has the store; `Corrupt` where its medium refuses the page.
    pub fn change_policies(dir: &Path, keyspace: &Keyspace) -> Result<Vec<&'static str>> {
        keyspace.check()?;
        let known = read(dir)?;
        let region = Region::open(&dir.join(REGION_FILE), FlushPolicy::Auto)?;
        let (old, text) = finish_change(dir, &region, known)?;
        let mut superblock = read_superblock(&region)?;
        if superblock.keyspace_crc != crc32c(text.as_bytes()) {
            return Err(Error::invalid(format!("{KEYSPACE_FILE} is not the one that this region was made with")));
        }
        if !superblock.clean {
            return Err(Error::invalid(
                "the store was not closed in order: open and close it first (`forebay stats DIR`)",
            ));
        }
        let changes = old.changes_to(keyspace)?;
        if changes.is_empty() {
            return Ok(changes);
        }
        let text = keyspace.to_toml()?;
        write_durably(dir, CHANGED_FILE, &text).map_err(|error| cannot_write(dir, error))?;
        superblock.keyspace_crc = crc32c(text.as_bytes());
        write_superblock_durably(&region, &mut superblock)?;
        rename(dir)?;
        Ok(changes)
    }
}

fn cannot_write(dir: &Path, error: std::io::Error) -> Error {
    Error::invalid(format!("{}: cannot write {KEYSPACE_FILE}", dir.display())).with_source(error)
}

fn rename(dir: &Path) -> Result<()> {
    let renamed = std::fs::rename(dir.join(CHANGED_FILE), dir.join(KEYSPACE_FILE));
    renamed.and_then(|()| std::fs::File::open(dir)?.sync_all()).map_err(|error| cannot_write(dir, error))
}

/// The keyspace of a store, with the text of its file.
pub(crate) fn read(dir: &Path) -> Result<(Keyspace, String)> {
    read_file(dir, KEYSPACE_FILE)
}

fn read_file(dir: &Path, name: &str) -> Result<(Keyspace, String)> {
    let path = dir.join(name);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::invalid(format!("{}: no Forebay store here", dir.display())).with_source(error))?;
    let keyspace = Keyspace::from_toml(&text)
        .map_err(|error| Error::invalid(format!("{}: cannot be read", path.display())).with_source(error))?;
    Ok((keyspace, text))
}

/// The keyspace that a region with this checksum is of: that of a change that was cut off, or the known one.
pub(crate) fn in_force(dir: &Path, keyspace_crc: u32, known: (Keyspace, String)) -> (Keyspace, String) {
    if keyspace_crc == crc32c(known.1.as_bytes()) {
        return known;
    }
    let changed = read_file(dir, CHANGED_FILE).ok();
    changed.filter(|(_, text)| keyspace_crc == crc32c(text.as_bytes())).unwrap_or(known)
}

/// Ends a change that was cut off, and answers the keyspace that is in force. A superblock that cannot be read is left to the
/// opening.
pub(crate) fn finish_change(dir: &Path, region: &Region, known: (Keyspace, String)) -> Result<(Keyspace, String)> {
    if !dir.join(CHANGED_FILE).exists() {
        return Ok(known);
    }
    let Ok(superblock) = read_superblock(region) else { return Ok(known) };
    let text = known.1.clone();
    let (keyspace, in_force) = in_force(dir, superblock.keyspace_crc, known);
    if in_force == text {
        // The change never came into force; the next one writes the file again.
        let _ = std::fs::remove_file(dir.join(CHANGED_FILE));
    } else {
        rename(dir)?;
    }
    Ok((keyspace, in_force))
}
