//! The two files beside a recording's containers, in each of its directories: what it is, and its manifest.

use super::config::LinkConfig;
use super::json;
use super::limits::{MANIFEST_RESERVE_BYTES, MANIFEST_RESERVE_LINK_BYTES};
use super::manifest::GapManifest;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const DESCRIPTION_FILE: &str = "recording.json";
const DESCRIPTION_FORMAT: &str = "forebay-recording";
const MANIFEST_FILE: &str = "manifest.json";
const MANIFEST_FORMAT: &str = "forebay-recording-manifest";

/// What a recording is, known before its first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    #[serde(with = "super::json::hex16")]
    pub(super) recording: [u8; 16],
    pub(super) name: String,
    pub(super) run: u64,
    pub(super) devices: u32,
    pub(super) container_bytes: u64,
    pub(super) extent_bytes: usize,
    pub(super) links: Vec<LinkConfig>,
}

/// Whether a directory holds a recording.
pub(super) fn holds_recording(directory: &Path) -> bool {
    directory.join(DESCRIPTION_FILE).symlink_metadata().is_ok()
}

/// Writes the description into every directory, and keeps room there for the manifest.
pub(super) fn describe(directories: &[PathBuf], description: &Description) -> Result<()> {
    let bytes = json::encode(DESCRIPTION_FORMAT, description)?;
    // Reserved now: a recording that fills its disks must still be able to say what it missed.
    let room = MANIFEST_RESERVE_BYTES + description.links.len() as u64 * MANIFEST_RESERVE_LINK_BYTES;
    for directory in directories {
        let failed = |what: &str, error| failure(directory, what, error);
        // In every directory: any of them alone says what it is a part of.
        json::write(&directory.join(DESCRIPTION_FILE), &bytes)
            .map_err(|error| failed("cannot write what the recording is", error))?;
        json::reserve(&directory.join(MANIFEST_FILE), room)
            .map_err(|error| failed("no room for the manifest", error))?;
    }
    Ok(())
}

/// Removes both files, for a recording that is taken back.
pub(super) fn remove(directories: &[PathBuf]) {
    for directory in directories {
        [DESCRIPTION_FILE, MANIFEST_FILE].iter().for_each(|name| json::remove(&directory.join(name)));
    }
}

/// Reads what a recording is, from the first directory that says so.
pub(super) fn description(directories: &[PathBuf]) -> Result<Description> {
    first(directories, DESCRIPTION_FILE, DESCRIPTION_FORMAT)?.ok_or_else(|| {
        let names: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
        Error::invalid(format!("{}: no recording there ({DESCRIPTION_FILE} is missing)", names.join(", ")))
    })
}

/// Writes the manifest into every directory. Answers the directories that have none because writing failed; at least one
/// has it.
///
/// # Errors
/// Where none has it: the first failure.
pub(super) fn write_manifest(directories: &[PathBuf], manifest: &GapManifest) -> Result<Vec<String>> {
    let bytes = json::encode(MANIFEST_FORMAT, manifest)?;
    let mut failures = Vec::new();
    for directory in directories {
        if let Err(error) = json::write(&directory.join(MANIFEST_FILE), &bytes) {
            failures.push(failure(directory, "cannot write the manifest", error));
        }
    }
    // One is enough: they are equal, and an opening reads the first that verifies.
    if failures.len() < directories.len() {
        return Ok(failures.iter().map(ToString::to_string).collect());
    }
    Err(failures.into_iter().next().unwrap_or_else(|| Error::invalid("a recording needs a directory")))
}

/// Reads the manifest; `None` where no directory has one.
pub(super) fn manifest(directories: &[PathBuf]) -> Result<Option<GapManifest>> {
    // Checked like one that is made: a file whose checksum is right may have been written by a version with a defect.
    let manifest: Option<GapManifest> = first(directories, MANIFEST_FILE, MANIFEST_FORMAT)?;
    manifest.map(|manifest| manifest.check().map(|()| manifest)).transpose()
}

/// The first whole file of this name; where all there are do not verify, why.
fn first<T: serde::de::DeserializeOwned>(directories: &[PathBuf], name: &str, format: &str) -> Result<Option<T>> {
    let mut wrong = None;
    for directory in directories {
        match json::read(&directory.join(name), format) {
            Ok(Some(value)) => return Ok(Some(value)),
            Ok(None) => {}
            // Another directory may have a whole one; only where none has does the damage matter.
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong.map_or(Ok(None), Err)
}

fn failure(directory: &Path, what: &str, error: std::io::Error) -> Error {
    let full = matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::FileTooLarge
    );
    let message = format!("{}: {what}", directory.display());
    if full { Error::full(message) } else { Error::unavailable(message) }.with_source(error)
}
