//! WIBEth, the Ethernet frame of DUNE's far detector: 64 time samples of 64 channels of 14 bits, 2048 ticks of 62.5 MHz.
//!
//! ```text
//! 7200 B = DAQEth header 16 + WIB header 16 + u64[64 samples][14]
//! DAQEth  version 6, det_id 6, crate 10, slot 4, stream 8, reserved 6, seq_id 12, block_length 12; timestamp 64
//! WIB     colddata_ts0 15+1, colddata_ts1 15+1, 12 status bits, context 8, version 4, channel 8; extra_data 64
//! ```
//!
//! Value i of a time sample is at bit 14·i of its 14 words.
//!
//! *Invariants*: unpacking what was packed gives the same values (test `adc_values_round_trip`).
//!
//! *Not here*: whether frames follow each other (`detect`).

use super::Link;
use super::bits::{field, set_word, with_field, word};

/// Bytes of one frame.
pub const FRAME_BYTES: usize = 7200;
/// Bytes of the DAQEth header, which carries link, sequence number and timestamp.
pub const HEADER_BYTES: usize = 16;
/// Channels of one frame.
pub const CHANNELS: usize = 64;
/// Time samples of one frame, 32 ticks apart.
pub const SAMPLES: usize = 64;
/// Ticks (62.5 MHz) from one frame to the next.
pub const TICKS: u64 = 2048;
/// Ticks of the clock in a second.
pub const TICKS_PER_SECOND: u64 = 62_500_000;
/// Highest ADC value: 14 bits.
pub const ADC_MAX: u16 = 0x3FFF;
/// Sequence numbers count modulo this.
pub const SEQUENCES: u64 = 4096;
/// Length field of a whole frame: 64-bit words after the first header word pair.
pub const BLOCK_WORDS: u64 = ((FRAME_BYTES - HEADER_BYTES) / 8) as u64;
/// Values of one time sample by channel number.
pub type Sample = [u16; CHANNELS];

const WORDS: usize = CHANNELS * 14 / 64;
const PAYLOAD: usize = HEADER_BYTES + 16;

const _: () = assert!(PAYLOAD + SAMPLES * WORDS * 8 == FRAME_BYTES);
const _: () = assert!(BLOCK_WORDS < 1 << 12);

/// Header version, 6 bits.
pub fn version(frame: &[u8]) -> u8 {
    field(word(frame, 0), 0, 6) as u8
}

/// The link that the frame came from: detector, crate, slot and stream.
pub fn link(frame: &[u8]) -> Link {
    let head = word(frame, 0);
    Link {
        detector: field(head, 6, 6) as u8,
        crate_number: field(head, 12, 10) as u16,
        slot: field(head, 22, 4) as u8,
        stream: field(head, 26, 8) as u8,
    }
}

/// Replaces detector, crate, slot and stream.
pub fn set_link(frame: &mut [u8], link: Link) {
    let head = with_field(word(frame, 0), 6, 6, u64::from(link.detector));
    let head = with_field(head, 12, 10, u64::from(link.crate_number));
    let head = with_field(head, 22, 4, u64::from(link.slot));
    set_word(frame, 0, with_field(head, 26, 8, u64::from(link.stream)));
}

/// Sequence number, 12 bits: one more from frame to frame.
pub fn sequence(frame: &[u8]) -> u16 {
    field(word(frame, 0), 40, 12) as u16
}

/// Replaces the sequence number, cut to 12 bits.
pub fn set_sequence(frame: &mut [u8], sequence: u64) {
    set_word(frame, 0, with_field(word(frame, 0), 40, 12, sequence));
}

/// Length field, in 64-bit words.
pub fn block_words(frame: &[u8]) -> u16 {
    field(word(frame, 0), 52, 12) as u16
}

/// Timestamp in ticks of 62.5 MHz; a slice shorter than the header reads as if followed by zeros.
pub fn timestamp(frame: &[u8]) -> u64 {
    word(frame, 8)
}

/// Replaces the timestamp.
pub fn set_timestamp(frame: &mut [u8], ticks: u64) {
    set_word(frame, 8, ticks);
}

/// Writes both headers of a whole frame: this version and link, both COLDATA times from the timestamp, links valid, ready.
pub fn set_header(frame: &mut [u8], version: u8, link: Link, sequence: u64, ticks: u64) {
    let head = with_field(with_field(0, 0, 6, u64::from(version)), 52, 12, BLOCK_WORDS);
    set_word(frame, 0, head);
    set_link(frame, link);
    set_sequence(frame, sequence);
    set_timestamp(frame, ticks);
    let status = with_field(with_field(0, 0, 15, ticks), 16, 15, ticks);
    let status = with_field(with_field(status, 35, 2, 3), 43, 1, 1);
    set_word(frame, 16, status);
    set_word(frame, 24, 0);
}

/// Values of one time sample by channel number; `None` for a slice that is no whole frame or a sample past the last.
pub fn sample(frame: &[u8], sample: usize) -> Option<Sample> {
    if frame.len() != FRAME_BYTES || sample >= SAMPLES {
        return None;
    }
    let bytes = &frame[PAYLOAD + sample * WORDS * 8..][..WORDS * 8];
    // One word more than there is, so that the last value needs no case of its own.
    let mut words = [0; WORDS + 1];
    for (word, from) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*from);
    }
    let values = std::array::from_fn(|channel| {
        let (at, bit) = (channel * 14 / 64, channel * 14 % 64);
        let pair = u128::from(words[at]) | u128::from(words[at + 1]) << 64;
        (pair >> bit) as u16 & ADC_MAX
    });
    Some(values)
}

/// One value; `None` for a slice that is no whole frame, or a sample or channel past the last.
pub fn adc(frame: &[u8], sample: usize, channel: usize) -> Option<u16> {
    self::sample(frame, sample).and_then(|values| values.get(channel).copied())
}

/// Writes one time sample, each value cut to 14 bits; `false`, and nothing written, where [`sample`] has no values.
pub fn set_sample(frame: &mut [u8], sample: usize, values: &Sample) -> bool {
    if frame.len() != FRAME_BYTES || sample >= SAMPLES {
        return false;
    }
    let mut bits = [0_u64; WORDS];
    for (channel, value) in values.iter().enumerate() {
        let (value, at) = (u64::from(value & ADC_MAX), channel * 14);
        let (word, bit) = (at / 64, at % 64);
        bits[word] |= value << bit;
        if bit > 50 {
            bits[word + 1] |= value >> (64 - bit);
        }
    }
    for (at, value) in bits.iter().enumerate() {
        set_word(frame, PAYLOAD + (sample * WORDS + at) * 8, *value);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adc_values_round_trip_and_leave_headers_alone() {
        let mut frame = vec![0x5A; FRAME_BYTES];
        let values = |at: usize| -> Sample { std::array::from_fn(|i| ((at * 977 + i * 5381) & 0x3FFF) as u16) };
        for at in 0..SAMPLES {
            assert!(set_sample(&mut frame, at, &values(at)));
        }
        for at in 0..SAMPLES {
            assert_eq!(sample(&frame, at).unwrap(), values(at));
            assert_eq!(adc(&frame, at, 63), Some(values(at)[63]));
        }
        assert_eq!(frame[..PAYLOAD], [0x5A; PAYLOAD]);
    }

    #[test]
    fn value_i_stands_at_bit_14_i() {
        let mut frame = vec![0; FRAME_BYTES];
        let mut values = [0; CHANNELS];
        values[4] = ADC_MAX;
        assert!(set_sample(&mut frame, 1, &values));
        assert_eq!(word(&frame, PAYLOAD + WORDS * 8), 0xFF << 56);
        assert_eq!(word(&frame, PAYLOAD + WORDS * 8 + 8), 0x3F);
    }

    #[test]
    fn header_fields_round_trip() {
        let link = Link { detector: 3, crate_number: 1000, slot: 9, stream: 200 };
        let mut frame = vec![0; FRAME_BYTES];
        set_header(&mut frame, 2, link, 4097, 1 << 60);
        assert_eq!((version(&frame), super::link(&frame)), (2, link));
        assert_eq!((sequence(&frame), block_words(&frame), timestamp(&frame)), (1, 898, 1 << 60));
        let other = Link { detector: 10, crate_number: 5, slot: 0, stream: 1 };
        set_link(&mut frame, other);
        assert_eq!((super::link(&frame), sequence(&frame), block_words(&frame)), (other, 1, 898));
    }

    #[test]
    fn slices_that_are_no_frame_have_no_values() {
        assert_eq!(sample(&[0; 100], 0), None);
        assert_eq!(sample(&[0; FRAME_BYTES], SAMPLES), None);
        assert_eq!(adc(&[0; FRAME_BYTES], 0, CHANNELS), None);
        assert!(!set_sample(&mut [0; 100], 0, &[0; CHANNELS]));
        assert_eq!((timestamp(&[9; 4]), sequence(&[])), (0, 0));
    }
}
