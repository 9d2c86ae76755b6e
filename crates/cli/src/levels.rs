//! Levels and devices as people name them: `hot`, `warm`, and a directory with a size.
//!
//! *Not here*: what is on a level (`containers`), and how it is written (`forebay_store`).

use crate::units;
use forebay_core::{Error, Level, ReadFragment};
use std::path::PathBuf;

/// Bytes that a device gives where no size is named.
const DEVICE_BYTES_DEFAULT: u64 = 8 << 30;
/// Containers into which a device is cut where no size of a container is named.
const CONTAINERS_DEFAULT: u64 = 16;
/// Bounds of a container whose size is not named.
const CONTAINER_BYTES_MIN: u64 = 256 << 10;
const CONTAINER_BYTES_MAX: u64 = 1 << 30;
/// Bounds of a decision log, of which there are two files on a device.
const LOG_BYTES_MIN: u64 = 64 << 10;
const LOG_BYTES_MAX: u64 = 64 << 20;
/// Part of a device, as a divisor, that one file of its decision log takes.
const LOG_SHARE: u64 = 64;
/// Every size on a device is a multiple of this.
const BLOCK_BYTES: u64 = 4096;

/// A directory, which is one device of the warm level, perhaps with a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WarmDir {
    /// The directory.
    pub(crate) path: PathBuf,
    /// Bytes to take there.
    pub(crate) bytes: Option<u64>,
}

impl WarmDir {
    /// Bytes to take there, those by default where none are named.
    pub(crate) fn bytes_or_default(&self) -> u64 {
        self.bytes.unwrap_or(DEVICE_BYTES_DEFAULT)
    }
}

/// Bytes of a container and of a file of the decision log for devices of this many bytes.
pub(crate) fn cut(smallest_device: u64, container_bytes: Option<u64>) -> (u64, u64) {
    let whole = |bytes: u64| bytes / BLOCK_BYTES * BLOCK_BYTES;
    let log = whole((smallest_device / LOG_SHARE).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX));
    // The logs and the device's own block come off before containers are cut.
    let room = smallest_device.saturating_sub(2 * log + 2 * BLOCK_BYTES);
    let container = whole((room / CONTAINERS_DEFAULT).clamp(CONTAINER_BYTES_MIN, CONTAINER_BYTES_MAX));
    (container_bytes.unwrap_or(container), log)
}

/// A directory, perhaps with a size after the last colon: `/disk1/warm:100G`.
pub(crate) fn parse_dir(text: &str) -> Result<WarmDir, String> {
    let whole = || WarmDir { path: PathBuf::from(text), bytes: None };
    if text.is_empty() {
        return Err("expected a directory".to_owned());
    }
    let Some((path, size)) = text.rsplit_once(':') else { return Ok(whole()) };
    // A colon that no size follows belongs to the name.
    if !size.starts_with(|letter: char| letter.is_ascii_digit()) || size.contains('/') {
        return Ok(whole());
    }
    Ok(WarmDir { path: PathBuf::from(path), bytes: Some(units::parse_bytes(size)?) })
}

/// A level by its name.
pub(crate) fn parse_level(text: &str) -> Result<Level, String> {
    match text {
        "hot" => Ok(Level::Hot),
        "warm" => Ok(Level::Warm),
        _ => Err(format!("no level `{text}`: expected hot or warm")),
    }
}

/// The name of a level.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Hot => "hot",
        Level::Warm => "warm",
        Level::Elsewhere => "elsewhere",
    }
}

/// Bytes that can be shown: a node's store opened alone has not those that other nodes have.
///
/// # Errors
/// `Unavailable` for them.
pub(crate) fn check_here(text: &str, fragment: &impl ReadFragment) -> forebay_core::Result<()> {
    if fragment.level() == Level::Elsewhere {
        return Err(Error::unavailable(format!("{text}: another node has its bytes: give addresses of its cluster")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_may_have_sizes() {
        let dir = |path: &str, bytes| Ok(WarmDir { path: path.into(), bytes });
        assert_eq!(parse_dir("/a/b:16G"), dir("/a/b", Some(16 << 30)));
        assert_eq!(parse_dir("rec:4096"), dir("rec", Some(4096)));
        assert_eq!(parse_dir("/a/b"), dir("/a/b", None));
        assert_eq!(parse_dir("/a:b/c"), dir("/a:b/c", None));
        assert!(parse_dir("/a:16Q").is_err() && parse_dir("").is_err());
    }

    #[test]
    fn levels_are_known_by_name() {
        for level in [Level::Hot, Level::Warm] {
            assert_eq!(parse_level(level_name(level)), Ok(level));
        }
        assert!(parse_level("cold").is_err());
    }

    #[test]
    fn a_device_of_any_size_is_cut_into_some_containers() {
        for bytes in [4_u64 << 20, 100 << 20, 8 << 30, 4 << 40] {
            let (container, log) = cut(bytes, None);
            let containers = (bytes - 2 * log - 2 * BLOCK_BYTES) / container;
            assert!(containers >= 14, "{bytes}: {containers} of {container}");
            assert!(container.is_multiple_of(BLOCK_BYTES) && log.is_multiple_of(BLOCK_BYTES));
        }
        assert_eq!(cut(8 << 30, Some(64 << 20)).0, 64 << 20);
    }
}
