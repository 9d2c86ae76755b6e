//! A small histogram of the ADC values of detector frames.

use crate::frames::{FrameKind, wib1, wibeth};
use serde::Serialize;

/// Bins of a finished histogram.
const BINS: usize = 24;
/// Most frames that are unpacked for one event: enough to see its shape.
const FRAMES_MAX: usize = 512;

/// ADC values of the frames of one event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// Frames that were unpacked.
    pub frames: usize,
    /// Values.
    pub values: u64,
    /// Lowest value.
    pub min: u16,
    /// Highest value.
    pub max: u16,
    /// Mean value.
    pub mean: f64,
    /// Values by bin of equal widths, from lowest to highest.
    pub bins: Vec<u64>,
    #[serde(skip)]
    counts: Vec<u64>,
}

impl Histogram {
    /// Adds the whole frames of a fragment, as far as there is room for frames.
    pub(super) fn add(&mut self, kind: FrameKind, fragment: &[u8]) {
        // Every ADC value of either kind has at most 14 bits.
        self.counts.resize(usize::from(wibeth::ADC_MAX) + 1, 0);
        for frame in fragment.chunks_exact(kind.frame_bytes()).take(FRAMES_MAX - self.frames.min(FRAMES_MAX)) {
            self.frames += 1;
            match kind {
                FrameKind::Wib1 => self.count(wib1::unpack(frame).iter().flatten()),
                FrameKind::WibEth => {
                    (0..wibeth::SAMPLES).for_each(|at| self.count(wibeth::sample(frame, at).iter().flatten()));
                }
            }
        }
    }

    fn count<'v>(&mut self, values: impl Iterator<Item = &'v u16>) {
        for value in values {
            self.counts[usize::from(*value & wibeth::ADC_MAX)] += 1;
        }
    }

    /// With its figures and bins; `None` where there are no values.
    pub(super) fn finished(mut self) -> Option<Histogram> {
        let counts = std::mem::take(&mut self.counts);
        let min = counts.iter().position(|count| *count > 0)?;
        let max = counts.iter().rposition(|count| *count > 0)?;
        let width = (max - min + 1).div_ceil(BINS);
        self.bins = counts[min..=max].chunks(width).map(|bin| bin.iter().sum()).collect();
        self.values = counts.iter().sum();
        let sum: f64 = counts.iter().enumerate().map(|(value, count)| value as f64 * *count as f64).sum();
        (self.min, self.max, self.mean) = (min as u16, max as u16, sum / self.values as f64);
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_bins() {
        let mut frame = vec![0; wib1::FRAME_BYTES];
        let values: wib1::Channels = std::array::from_fn(|channel| if channel < 64 { 100 } else { 147 });
        assert!(wib1::pack(&mut frame, &values));
        let mut histogram = Histogram::default();
        histogram.add(FrameKind::Wib1, &[frame.clone(), frame, vec![9; 10]].concat());
        let histogram = histogram.finished().unwrap();
        assert_eq!((histogram.frames, histogram.values, histogram.min, histogram.max), (2, 512, 100, 147));
        assert_eq!((histogram.bins.len(), histogram.bins[0], histogram.bins[23]), (24, 128, 384));
        assert!((histogram.mean - 135.25).abs() < 1e-9);
        assert_eq!(Histogram::default().finished(), None);
    }
}
