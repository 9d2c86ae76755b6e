//! A file of recorded frames, read and checked as a whole before the first one is used.
//!
//! *On failure*: `Invalid` with the file's name, and for wrong contents the byte offset (`detect`). A file that is not
//! what it should be is never used in part.

use super::{Recording, detect};
use crate::limits::INPUT_BYTES_MAX;
use forebay_core::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Recorded frames in memory.
pub struct RecordedFrames {
    recording: Recording,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for RecordedFrames {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RecordedFrames").field("recording", &self.recording).finish_non_exhaustive()
    }
}

impl RecordedFrames {
    /// Reads a file of WIB1 or WIBEth frames.
    ///
    /// # Errors
    /// `Invalid` for a file that cannot be read, is longer than [`INPUT_BYTES_MAX`], or does not hold frames of one
    /// link that follow each other.
    pub fn open(path: &Path) -> Result<RecordedFrames> {
        let unreadable = |error| Error::invalid(format!("input {}", path.display())).with_source(error);
        let file = File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > INPUT_BYTES_MAX {
            let message =
                format!("input {}: longer than {INPUT_BYTES_MAX} bytes, cut a part out of it", path.display());
            return Err(Error::invalid(message));
        }
        RecordedFrames::from_bytes(bytes)
            .map_err(|error| Error::invalid(format!("input {}: {}", path.display(), error.message())))
    }

    /// The same from bytes in memory.
    ///
    /// # Errors
    /// As [`detect`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<RecordedFrames> {
        Ok(RecordedFrames { recording: detect(&bytes)?, bytes })
    }

    /// What they are.
    pub fn recording(&self) -> Recording {
        self.recording
    }

    /// All frames, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The recording and its bytes.
    pub fn into_parts(self) -> (Recording, Vec<u8>) {
        (self.recording, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{FrameKind, Link, wib1};

    fn real_frames() -> RecordedFrames {
        let folder = std::env::var_os("FOREBAY_DATA").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
            std::path::PathBuf::from,
        );
        let path = folder.join("protodune-wib1-frames.bin");
        assert!(
            path.is_file(),
            "this test needs the recorded frames {}; set FOREBAY_DATA to the folder that holds them",
            path.display()
        );
        RecordedFrames::open(&path).unwrap()
    }

    #[test]
    fn real_frames_are_what_is_known_of_them() {
        let frames = real_frames();
        let recording = frames.recording();
        assert_eq!((recording.kind, recording.frames), (FrameKind::Wib1, 2160));
        assert_eq!(recording.first_timestamp, 79_554_162_068_719_943);
        assert_eq!(recording.link, Link { detector: 0, crate_number: 4, slot: 4, stream: 1 });
        assert_eq!(frames.bytes().len(), 1_002_240);
        let values: Vec<_> = frames.bytes().chunks_exact(464).map(|frame| wib1::unpack(frame).unwrap()).collect();
        let all = || values.iter().flatten().copied();
        assert_eq!((all().min(), all().max()), (Some(840), Some(2754)));
        let rms = |channel: usize| {
            let n = values.len() as f64;
            let mean = values.iter().map(|frame| f64::from(frame[channel])).sum::<f64>() / n;
            (values.iter().map(|frame| (f64::from(frame[channel]) - mean).powi(2)).sum::<f64>() / n).sqrt()
        };
        let mut rms: Vec<f64> = (0..wib1::CHANNELS).map(rms).collect();
        rms.sort_by(f64::total_cmp);
        assert!((rms[128] - 10.4).abs() < 0.4, "median RMS {}", rms[128]);
    }

    #[test]
    fn real_frames_pack_to_the_same_bytes() {
        for frame in real_frames().bytes().chunks_exact(464) {
            let mut again = frame.to_vec();
            again[32..128].fill(0);
            assert!(wib1::pack(&mut again, &wib1::unpack(frame).unwrap()));
            assert_eq!(again, frame);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = RecordedFrames::open(Path::new("/no/such/frames.bin")).unwrap_err();
        assert_eq!(error.kind(), forebay_core::Kind::Invalid);
        assert!(error.to_string().contains("/no/such/frames.bin"), "{error}");
    }
}
