//! Configuration of a recording: directories, sizes, and what a link is.

use super::limits::{
    BUFFERS_PER_LINK, COMMIT_BYTES, CONTAINER_BYTES, EXTENT_BYTES, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, IO_BYTES,
    NAME_BYTES_MAX, SOURCE_BYTES_MAX,
};
use forebay_core::{Error, Result};
use forebay_media::warm::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A directory of the warm level and the bytes that a recording may take there: one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarmDir {
    /// The directory; made where it is not there.
    pub path: PathBuf,
    /// Bytes for containers, rounded down to whole ones; all of them are allocated when the recording is created.
    pub bytes: u64,
}

/// Choices of one recording. The default is whole; change what should differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingConfig {
    /// Name, for people.
    pub name: String,
    /// Run number.
    pub run: u64,
    /// Bytes of one container; a directory takes the number that fits its bytes.
    pub container_bytes: u64,
    /// Bytes of one extent: what a link gathers before it is written, and what is read at once.
    pub extent_bytes: usize,
    /// Bytes of one write to the device.
    pub io_bytes: usize,
    /// Writes to a device at a time.
    pub depth: usize,
    /// Extents in memory per link: being filled, waiting for the device, or written and not yet durable. They are what a
    /// slow moment of the device is survived with.
    pub buffers_per_link: usize,
    /// Bytes after which what was written is made durable.
    pub commit_bytes: u64,
    /// Longest time until what was pushed is written and made durable, while the link goes on.
    pub commit_every: Duration,
    /// How long a push waits for a buffer before its frame is missed.
    pub push_deadline: Duration,
    /// A device that completes nothing for so long counts as stalled.
    pub stall: Duration,
    /// How long `Recording::finish` waits for devices before it gives up on what they have not made durable.
    pub finish_deadline: Duration,
    /// Links of a device that is full or failed go to another one that is not.
    pub spill: bool,
}

impl Default for RecordingConfig {
    fn default() -> RecordingConfig {
        RecordingConfig {
            name: "recording".to_owned(),
            run: 1,
            container_bytes: CONTAINER_BYTES,
            extent_bytes: EXTENT_BYTES,
            io_bytes: IO_BYTES,
            depth: 8,
            buffers_per_link: BUFFERS_PER_LINK,
            commit_bytes: COMMIT_BYTES,
            commit_every: Duration::from_secs(1),
            push_deadline: Duration::from_millis(10),
            stall: Duration::from_secs(5),
            finish_deadline: Duration::from_secs(60),
            spill: true,
        }
    }
}

impl RecordingConfig {
    /// Checks values against limits and each other.
    ///
    /// # Errors
    /// `Invalid`, naming the value.
    pub(super) fn check(&self) -> Result<()> {
        let blocks = |name: &str, bytes: u64| {
            if bytes.is_multiple_of(BLOCK_BYTES as u64) && bytes > 0 {
                return Ok(());
            }
            Err(Error::invalid(format!("{name} is {bytes}: expected a multiple of {BLOCK_BYTES}, at least one")))
        };
        blocks("container bytes", self.container_bytes)?;
        blocks("extent bytes", self.extent_bytes as u64)?;
        blocks("bytes of one write", self.io_bytes as u64)?;
        let range = |name: &str, value: u64, from: u64, to: u64| {
            if (from..=to).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{name} is {value}: expected {from} to {to}")))
        };
        range("extent bytes", self.extent_bytes as u64, EXTENT_BYTES_MIN as u64, EXTENT_BYTES_MAX as u64)?;
        range("depth", self.depth as u64, 1, 256)?;
        range("buffers per link", self.buffers_per_link as u64, 2, 4096)?;
        range("run", self.run, 0, u64::MAX - 1)?;
        range("bytes of the name", self.name.len() as u64, 0, NAME_BYTES_MAX as u64)?;
        // Header, directory and at least one extent. Smaller containers would be directories for the most part, and a device
        // would be closing one all the time.
        if self.container_bytes < 2 * self.extent_bytes as u64 {
            return Err(Error::invalid(format!(
                "container bytes are {}: at least two extents of {} bytes",
                self.container_bytes, self.extent_bytes
            )));
        }
        if self.stall.is_zero() || self.finish_deadline.is_zero() || self.commit_every.is_zero() {
            return Err(Error::invalid("stall limit, commit interval and finish deadline last longer than nothing"));
        }
        Ok(())
    }
}

/// What a link of a recording is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkConfig {
    /// The source as a packed key, 1 to 16 bytes: each link of a recording its own. Two that differ only in zeros at their
    /// ends are one.
    #[serde(with = "super::json::hex")]
    pub source: Vec<u8>,
    /// Name, for people.
    pub name: String,
    /// What the frames are, for readers, such as `WIBEth`; may be empty.
    pub format: String,
    /// Ticks from one frame to the next: how many frames a gap is.
    pub ticks_per_frame: u32,
    /// Ticks of the link's clock in a second; 0 where that is not known.
    pub ticks_per_second: u64,
    /// The device that it is written to; `None` spreads links over devices in the order in which they come.
    pub device: Option<u32>,
}

impl LinkConfig {
    /// The source as it is in the keys of images: padded with zeros. `check` has bounded its length.
    pub(super) fn padded_source(&self) -> [u8; SOURCE_BYTES_MAX] {
        let mut source = [0; SOURCE_BYTES_MAX];
        source.iter_mut().zip(&self.source).for_each(|(to, from)| *to = *from);
        source
    }

    pub(super) fn check(&self, devices: usize) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid(format!("link `{}`: {what}", self.name)));
        // The key of an image has 16 bytes for it; an empty one would be padding alone.
        if self.source.is_empty() || self.source.len() > SOURCE_BYTES_MAX {
            return refuse(format!("its source has {} bytes, expected 1 to {SOURCE_BYTES_MAX}", self.source.len()));
        }
        if self.ticks_per_frame == 0 {
            return refuse("0 ticks per frame".to_owned());
        }
        if self.name.len().max(self.format.len()) > NAME_BYTES_MAX {
            return refuse(format!("name and format have at most {NAME_BYTES_MAX} bytes each"));
        }
        match self.device {
            Some(device) if device as usize >= devices => {
                refuse(format!("device {device}, and there are {devices} (from 0)"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        RecordingConfig::default().check().unwrap();
        let wrong = |change: fn(&mut RecordingConfig), expected: &str| {
            let mut config = RecordingConfig::default();
            change(&mut config);
            let error = config.check().unwrap_err();
            assert!(error.message().contains(expected), "{error}");
        };
        wrong(|config| config.container_bytes = 5000, "container bytes is 5000");
        wrong(|config| config.container_bytes = config.extent_bytes as u64, "at least two extents");
        wrong(|config| config.extent_bytes = 1, "extent bytes is 1");
        wrong(|config| config.buffers_per_link = 1, "buffers per link is 1");
        wrong(|config| config.run = u64::MAX, "run is");
        wrong(|config| config.stall = Duration::ZERO, "stall limit");
    }

    #[test]
    fn a_link_needs_a_source_a_step_and_a_device_that_is_there() {
        let config = LinkConfig {
            source: vec![1],
            name: "a".into(),
            format: String::new(),
            ticks_per_frame: 25,
            ticks_per_second: 0,
            device: Some(1),
        };
        config.check(2).unwrap();
        assert!(config.check(1).unwrap_err().message().contains("device 1, and there are 1"));
        assert!(LinkConfig { source: vec![], ..config.clone() }.check(2).is_err());
        assert!(LinkConfig { source: vec![0; 17], ..config.clone() }.check(2).is_err());
        assert!(LinkConfig { ticks_per_frame: 0, ..config }.check(2).is_err());
    }
}
