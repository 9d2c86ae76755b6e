//! Emulated WIBEth frames: pedestals with Gaussian noise as measured in ProtoDUNE, and signals now and then.
//!
//! A pool of frames is made once from a seed; fragments are copies of it with rewritten headers, so that one thread can
//! feed several GB/s. Induction channels have a high pedestal and bipolar pulses, collection channels a low one and
//! unipolar pulses, as the recorded frames show them.
//!
//! *Invariants*: the noise of every channel has [`NOISE_RMS`] (test `noise_has_the_measured_rms`); the same seed gives the
//! same bytes on every machine.

use crate::frames::{FrameKind, Link, wib1, wibeth};
use crate::limits::POOL_FRAMES;
use crate::source::{FrameSource, Links};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};

/// Noise of a channel about its pedestal, in ADC counts: the median of the recorded ProtoDUNE frames.
pub const NOISE_RMS: f64 = 10.4;
/// Timestamp of frame 0, in ticks of 62.5 MHz since 1970: some time in 2024.
pub const FIRST_TIMESTAMP: u64 = 106_000_000_000_000_000;

/// WIB1 frames that are prepared: as many bytes as of WIBEth.
const WIB1_POOL_FRAMES: usize = 1024;
/// Channels from 0 that are induction channels; the others are collection channels.
const INDUCTION: usize = 40;
/// Chance that a pool frame holds signals.
const SIGNAL_CHANCE: f64 = 0.25;
/// Standard deviation of a pulse, in time samples.
const PULSE_SAMPLES: f64 = 4.0;

/// One pulse on one channel.
struct Pulse {
    channel: usize,
    at: f64,
    height: f64,
}

impl Pulse {
    fn value(&self, channel: usize, sample: usize) -> f64 {
        if channel != self.channel {
            return 0.0;
        }
        let x = (sample as f64 - self.at) / PULSE_SAMPLES;
        let bell = self.height * (-x * x / 2.0).exp();
        if channel < INDUCTION { -x * bell } else { bell }
    }
}

/// An emulated stream of WIBEth frames per source; the header's crate, slot and stream are the source number.
pub fn frames(seed: u64) -> FrameSource {
    FrameSource::new(FrameKind::WibEth, pool(seed, true), FIRST_TIMESTAMP, Links::PerSource)
}

/// An emulated stream of WIB1 frames, the same link for every source: pedestals and noise, no signals.
pub fn wib1_frames(seed: u64) -> FrameSource {
    let mut random = StdRng::seed_from_u64(seed);
    let link = Link { detector: 0, crate_number: 4, slot: 4, stream: 1 };
    let mut pool = vec![0; WIB1_POOL_FRAMES * wib1::FRAME_BYTES];
    for (at, frame) in pool.chunks_exact_mut(wib1::FRAME_BYTES).enumerate() {
        wib1::set_header(frame, 1, link, FIRST_TIMESTAMP + at as u64 * wib1::TICKS);
        let values: wib1::Channels = std::array::from_fn(|channel| {
            let pedestal = if channel % wibeth::CHANNELS < INDUCTION { 2350.0 } else { 930.0 };
            let noise: f64 = Normal::new(0.0, NOISE_RMS).map_or(0.0, |noise| noise.sample(&mut random));
            (pedestal + noise).round() as u16
        });
        wib1::pack(frame, &values);
    }
    FrameSource::new(FrameKind::Wib1, pool, FIRST_TIMESTAMP, Links::Recorded(link))
}

fn pool(seed: u64, signals: bool) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let pedestals: wibeth::Sample = std::array::from_fn(|channel| {
        let middle = if channel < INDUCTION { 2350 } else { 930 };
        middle + random.random_range(0_u16..180) - 90
    });
    let mut pool = vec![0; POOL_FRAMES * wibeth::FRAME_BYTES];
    for (at, frame) in pool.chunks_exact_mut(wibeth::FRAME_BYTES).enumerate() {
        let link = Link { detector: 3, crate_number: 0, slot: 0, stream: 0 };
        let at = at as u64;
        wibeth::set_header(frame, 0, link, at, FIRST_TIMESTAMP + at * wibeth::TICKS);
        let pulses = pulses(&mut random);
        let pulses = if signals { pulses.as_slice() } else { &[] };
        fill(frame, &mut random, &pedestals, pulses);
    }
    pool
}

fn pulses(random: &mut StdRng) -> Vec<Pulse> {
    if !random.random_bool(SIGNAL_CHANCE) {
        return Vec::new();
    }
    let pulse = |random: &mut StdRng| Pulse {
        channel: random.random_range(0..wibeth::CHANNELS),
        at: random.random_range(8.0..56.0),
        height: random.random_range(200.0..800.0),
    };
    (0..random.random_range(1..4)).map(|_| pulse(random)).collect()
}

fn fill(frame: &mut [u8], random: &mut StdRng, pedestals: &wibeth::Sample, pulses: &[Pulse]) {
    let Ok(noise) = Normal::new(0.0, NOISE_RMS) else { return };
    for sample in 0..wibeth::SAMPLES {
        let values = std::array::from_fn(|channel| {
            let signal: f64 = pulses.iter().map(|pulse| pulse.value(channel, sample)).sum();
            let value = f64::from(pedestals[channel]) + signal + noise.sample(random);
            value.round().clamp(1.0, f64::from(wibeth::ADC_MAX)) as u16
        });
        wibeth::set_sample(frame, sample, &values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_measured_rms() {
        let pool = pool(1, false);
        let samples: Vec<_> = pool
            .chunks_exact(wibeth::FRAME_BYTES)
            .flat_map(|frame| (0..wibeth::SAMPLES).map(|at| wibeth::sample(frame, at).unwrap()))
            .collect();
        for channel in 0..wibeth::CHANNELS {
            let n = samples.len() as f64;
            let mean = samples.iter().map(|values| f64::from(values[channel])).sum::<f64>() / n;
            let rms =
                (samples.iter().map(|values| (f64::from(values[channel]) - mean).powi(2)).sum::<f64>() / n).sqrt();
            assert!((rms / NOISE_RMS - 1.0).abs() < 0.05, "channel {channel}: RMS {rms}");
            assert!((800.0..2500.0).contains(&mean), "channel {channel}: pedestal {mean}");
        }
    }

    #[test]
    fn a_seed_gives_its_own_bytes_again() {
        assert_eq!(pool(3, true), pool(3, true));
        assert_ne!(pool(3, true), pool(4, true));
    }

    #[test]
    fn some_fragments_have_a_signal_and_most_have_none() {
        let source = frames(1);
        let mut fragment = vec![0; wibeth::FRAME_BYTES];
        let mut signals = 0;
        for event in 0..source.pool_frames() {
            source.fill(event, 7, &mut fragment);
            signals += u64::from(source.search(&fragment).signal);
        }
        assert!((2..source.pool_frames() / 2).contains(&signals), "{signals}");
    }

    #[test]
    fn wib1_frames_are_recognised_and_have_noise() {
        let source = wib1_frames(1);
        let mut fragment = vec![0; 3000 * wib1::FRAME_BYTES];
        source.fill(0, 9, &mut fragment);
        let recording = crate::frames::detect(&fragment).unwrap();
        assert_eq!((recording.kind, recording.frames), (FrameKind::Wib1, 3000));
        let values: Vec<f64> =
            fragment.chunks_exact(464).take(1024).filter_map(|frame| wib1::adc(frame, 100)).map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let rms = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        assert!((rms / NOISE_RMS - 1.0).abs() < 0.1, "{rms}");
    }

    #[test]
    fn what_it_makes_is_recognised_as_one_link() {
        let source = frames(1);
        let mut fragment = vec![0; 5000 * wibeth::FRAME_BYTES];
        source.fill(0, 0x2A_BCDE, &mut fragment);
        let recording = crate::frames::detect(&fragment).unwrap();
        assert_eq!((recording.kind, recording.frames), (FrameKind::WibEth, 5000));
        assert_eq!(recording.first_timestamp, FIRST_TIMESTAMP);
        assert_eq!(recording.link, Link { detector: 3, crate_number: 0x2AB, slot: 0xC, stream: 0xDE });
        assert!(fragment.chunks_exact(64).all(|part| part != [0; 64]));
    }
}
