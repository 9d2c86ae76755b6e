//! WIB1, the frame of ProtoDUNE-SP: one time sample of 256 channels of 12 bits, 25 ticks of 50 MHz.
//!
//! ```text
//! 464 B = header 16 + 4 × (COLDATA header 16 + 8 segments × 12)
//! w0  sof 8, version 5, fiber 3, crate 5, slot 3, reserved 8     w1  mm 1, oos 1, reserved 14, wib_errors 16
//! w2  timestamp low 32                                           w3  timestamp mid 16, wib_counter 15, z 1
//! ```
//!
//! Where z is 0, `wib_counter` holds timestamp bits 48 to 62. A segment holds four channels of each of two ADCs, byte by
//! byte in turn: even bytes are a 12-bit stream of the first ADC, odd bytes one of the second. Channel numbers count
//! COLDATA block (64), ADC (8), channel of the ADC.
//!
//! *Invariants*: unpacking what was packed gives the same values (test `adc_values_round_trip`).
//!
//! *Not here*: whether frames follow each other (`detect`).

use super::Link;
use super::bits::{field, set_word, with_field, word};

/// Bytes of one frame.
pub const FRAME_BYTES: usize = 464;
/// Bytes of the header before the first COLDATA block.
pub const HEADER_BYTES: usize = 16;
/// Channels of one frame, one time sample each.
pub const CHANNELS: usize = 256;
/// Ticks (50 MHz) from one frame to the next.
pub const TICKS: u64 = 25;
/// Ticks of the clock in a second.
pub const TICKS_PER_SECOND: u64 = 50_000_000;
/// Highest ADC value: 12 bits.
pub const ADC_MAX: u16 = 0xFFF;
/// Values of one frame by channel number.
pub type Channels = [u16; CHANNELS];

const BLOCK_BYTES: usize = 112;
const SEGMENT_BYTES: usize = 12;

const _: () = assert!(HEADER_BYTES + 4 * BLOCK_BYTES == FRAME_BYTES);
const _: () = assert!(16 + 8 * SEGMENT_BYTES == BLOCK_BYTES);

/// Start-of-frame mark.
pub fn sof(frame: &[u8]) -> u8 {
    field(word(frame, 0), 0, 8) as u8
}

/// Format version, 5 bits.
pub fn version(frame: &[u8]) -> u8 {
    field(word(frame, 0), 8, 5) as u8
}

/// The link that the frame came from: crate, slot and fiber.
pub fn link(frame: &[u8]) -> Link {
    let head = word(frame, 0);
    Link {
        detector: 0,
        crate_number: field(head, 16, 5) as u16,
        slot: field(head, 21, 3) as u8,
        stream: field(head, 13, 3) as u8,
    }
}

/// Mismatch bit, out-of-synchronisation bit and the board's 16 error bits.
pub fn errors(frame: &[u8]) -> (bool, bool, u16) {
    let head = word(frame, 0);
    (field(head, 32, 1) == 1, field(head, 33, 1) == 1, field(head, 48, 16) as u16)
}

/// The z bit: set where the timestamp has 48 bits and `wib_counter` is a counter of the board.
pub fn z(frame: &[u8]) -> bool {
    field(word(frame, 8), 63, 1) == 1
}

/// Bits of this frame's timestamp: 63, or 48 where z is set.
pub fn timestamp_bits(frame: &[u8]) -> u32 {
    if z(frame) { 48 } else { 63 }
}

/// Timestamp in ticks of 50 MHz; a slice shorter than the header reads as if followed by zeros.
pub fn timestamp(frame: &[u8]) -> u64 {
    field(word(frame, 8), 0, timestamp_bits(frame))
}

/// Replaces the timestamp, cut to the bits that the frame has; z stays.
pub fn set_timestamp(frame: &mut [u8], ticks: u64) {
    let bits = timestamp_bits(frame);
    set_word(frame, 8, with_field(word(frame, 8), 0, bits, ticks));
}

/// Writes a header of this link, without errors, z = 0.
pub fn set_header(frame: &mut [u8], version: u8, link: Link, ticks: u64) {
    let head = with_field(0, 8, 5, u64::from(version));
    let head = with_field(head, 13, 3, u64::from(link.stream));
    let head = with_field(head, 16, 5, u64::from(link.crate_number));
    set_word(frame, 0, with_field(head, 21, 3, u64::from(link.slot)));
    set_word(frame, 8, with_field(0, 0, 63, ticks));
}

/// Where a channel's 12 bits begin: byte of the segment's ADC stream, and bit in it.
fn place(channel: usize) -> (usize, u32) {
    let (block, adc, at) = (channel / 64, channel / 8 % 8, channel % 8);
    let segment = HEADER_BYTES + block * BLOCK_BYTES + 16 + (adc / 2 * 2 + at / 4) * SEGMENT_BYTES;
    let bit = at % 4 * 12;
    // Every second byte belongs to the other ADC of the pair.
    (segment + adc % 2 + bit / 8 * 2, (bit % 8) as u32)
}

/// One channel's value; `None` for a slice that is no whole frame or a channel number past the last.
pub fn adc(frame: &[u8], channel: usize) -> Option<u16> {
    if frame.len() != FRAME_BYTES || channel >= CHANNELS {
        return None;
    }
    let (byte, bit) = place(channel);
    let pair = u16::from(frame[byte]) | u16::from(frame[byte + 2]) << 8;
    Some(pair >> bit & ADC_MAX)
}

/// All values by channel number; `None` for a slice that is no whole frame.
pub fn unpack(frame: &[u8]) -> Option<Channels> {
    let mut values = [0; CHANNELS];
    for (channel, value) in values.iter_mut().enumerate() {
        *value = adc(frame, channel)?;
    }
    Some(values)
}

/// Writes all values, each cut to 12 bits; `false`, and nothing written, for a slice that is no whole frame.
pub fn pack(frame: &mut [u8], values: &Channels) -> bool {
    if frame.len() != FRAME_BYTES {
        return false;
    }
    for (channel, value) in values.iter().enumerate() {
        let (byte, bit) = place(channel);
        let pair = u16::from(frame[byte]) | u16::from(frame[byte + 2]) << 8;
        let pair = pair & !(ADC_MAX << bit) | (value & ADC_MAX) << bit;
        [frame[byte], frame[byte + 2]] = pair.to_le_bytes();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(seed: u16) -> Channels {
        std::array::from_fn(|channel| (channel as u16).wrapping_mul(seed) & ADC_MAX)
    }

    #[test]
    fn adc_values_round_trip_and_leave_headers_alone() {
        let mut frame = [0xA5; FRAME_BYTES];
        assert!(pack(&mut frame, &values(2477)));
        assert_eq!(unpack(&frame).unwrap(), values(2477));
        for channel in 0..CHANNELS {
            assert_eq!(adc(&frame, channel), Some(values(2477)[channel]));
        }
        assert_eq!(frame[..16], [0xA5; 16]);
        for block in 0..4 {
            assert_eq!(frame[16 + block * 112..][..16], [0xA5; 16]);
        }
    }

    #[test]
    fn two_adcs_take_turns_byte_by_byte() {
        let mut frame = [0; FRAME_BYTES];
        let mut values = [0; CHANNELS];
        (values[0], values[1], values[8]) = (0xABC, 0xDEF, 0x123);
        assert!(pack(&mut frame, &values));
        assert_eq!(frame[32..38], [0xBC, 0x23, 0xFA, 0x01, 0xDE, 0x00]);
    }

    #[test]
    fn header_fields_round_trip() {
        let link = Link { detector: 0, crate_number: 21, slot: 4, stream: 6 };
        let mut frame = [0; FRAME_BYTES];
        set_header(&mut frame, 17, link, 0x7123_4567_89AB_CDEF);
        assert_eq!((sof(&frame), version(&frame), super::link(&frame)), (0, 17, link));
        assert_eq!((timestamp(&frame), z(&frame)), (0x7123_4567_89AB_CDEF, false));
        assert_eq!(errors(&frame), (false, false, 0));
        frame[15] |= 0x80;
        let counter = frame[14..].to_vec();
        set_timestamp(&mut frame, u64::MAX);
        assert_eq!((timestamp(&frame), z(&frame)), ((1 << 48) - 1, true));
        assert_eq!(frame[14..], counter, "the board's counter is no timestamp");
    }

    #[test]
    fn slices_that_are_no_frame_have_no_values() {
        assert_eq!(adc(&[0; FRAME_BYTES - 1], 0), None);
        assert_eq!(adc(&[0; FRAME_BYTES], CHANNELS), None);
        assert_eq!(unpack(&[]), None);
        assert!(!pack(&mut [0; 5], &values(1)));
        assert_eq!(timestamp(&[1, 2, 3]), 0);
    }
}
