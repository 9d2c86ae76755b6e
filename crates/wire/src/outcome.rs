//! The outcome of a put, as one byte of an answer: the only place where these numbers are written.
//!
//! ```text
//! 0 stored │ 1 duplicate │ 2 late │ … │ 16 + cause: refused by a ring
//! ```

use super::ring::{CAUSES_FROM, cause_of};
use forebay_core::{Error, PutOutcome, Result, RingOutcome};

const STORED: u8 = 0;
const DUPLICATE: u8 = 1;
const LATE: u8 = 2;

/// The outcome of a put, of either kind of keyspace.
pub trait WireOutcome: Copy {
    /// The byte.
    fn to_byte(self) -> u8;

    /// From the byte.
    ///
    /// # Errors
    /// `Corrupt` for a byte that is none.
    fn of_byte(byte: u8) -> Result<Self>;
}

impl WireOutcome for PutOutcome {
    fn to_byte(self) -> u8 {
        match self {
            PutOutcome::Stored => STORED,
            PutOutcome::Duplicate => DUPLICATE,
            // Only the client of a put knows that an earlier try has no answer: the wire has no number for it.
            PutOutcome::Late | PutOutcome::LateUnknown => LATE,
        }
    }

    fn of_byte(byte: u8) -> Result<PutOutcome> {
        match byte {
            STORED => Ok(PutOutcome::Stored),
            DUPLICATE => Ok(PutOutcome::Duplicate),
            LATE => Ok(PutOutcome::Late),
            other => Err(Error::corrupt(format!("outcome {other}, which is not known here"))),
        }
    }
}

impl WireOutcome for RingOutcome {
    fn to_byte(self) -> u8 {
        match self {
            RingOutcome::Stored => STORED,
            RingOutcome::Duplicate => DUPLICATE,
            RingOutcome::Refused(cause) => CAUSES_FROM + cause as u8,
        }
    }

    fn of_byte(byte: u8) -> Result<RingOutcome> {
        match byte {
            STORED => Ok(RingOutcome::Stored),
            DUPLICATE => Ok(RingOutcome::Duplicate),
            CAUSES_FROM.. => cause_of(byte).map(RingOutcome::Refused),
            other => Err(Error::corrupt(format!("outcome {other}, which is none of a ring"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::GAP_CAUSES;

    /// The numbers of `docs/format-wire.md`.
    #[test]
    fn outcomes_have_these_bytes() {
        for (byte, outcome) in [(0, PutOutcome::Stored), (1, PutOutcome::Duplicate), (2, PutOutcome::Late)] {
            assert_eq!((outcome.to_byte(), PutOutcome::of_byte(byte).unwrap()), (byte, outcome));
        }
        let refused = GAP_CAUSES.map(RingOutcome::Refused);
        let of_rings = [(0, RingOutcome::Stored), (1, RingOutcome::Duplicate)].into_iter().chain((16..).zip(refused));
        for (byte, outcome) in of_rings {
            assert_eq!((outcome.to_byte(), RingOutcome::of_byte(byte).unwrap()), (byte, outcome));
        }
        assert!(
            PutOutcome::of_byte(3).is_err() && RingOutcome::of_byte(2).is_err() && RingOutcome::of_byte(99).is_err()
        );
    }
}
