//! The input buffer of a client: bytes that arrived and are not consumed.
//!
//! *Invariants*: memory is proportional to bytes that have come; an empty input has none, and one that waits for the
//! rest of a short command has as much as has come (`settle`).

use super::pool::{self, READ_BYTES};

/// Leftovers up to this length are copied out of the thread's memory while their rest is on its way.
const LEFTOVER_BYTES_MAX: usize = READ_BYTES / 4;

/// Bytes in the order in which they came.
#[derive(Default)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// What has come.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Whether nothing is left.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Memory that it takes.
    pub(super) fn memory(&self) -> usize {
        self.buffer.len()
    }

    /// Uses bytes up.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where the next bytes go: never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            self.make_room();
        }
        &mut self.buffer[self.end..]
    }

    /// Whether more can be read without growing.
    pub(super) fn is_short(&self) -> bool {
        self.end - self.start <= LEFTOVER_BYTES_MAX
    }

    /// This many have arrived there.
    #[inline]
    pub(super) fn came(&mut self, count: usize) {
        debug_assert!(self.end + count <= self.buffer.len(), "no more comes than there was room for");
        self.end += count;
    }

    #[cold]
    fn make_room(&mut self) {
        let length = self.end - self.start;
        let mut buffer = match length {
            // Half of it at least is free then.
            0..=LEFTOVER_BYTES_MAX if self.buffer.len() < READ_BYTES => pool::take_read(),
            _ if self.start >= self.buffer.len() / 2 => std::mem::take(&mut self.buffer),
            _ => vec![0; (2 * self.buffer.len()).max(READ_BYTES)].into(),
        };
        if self.buffer.is_empty() {
            buffer.copy_within(self.start..self.end, 0);
        } else {
            buffer[..length].copy_from_slice(&self.buffer[self.start..self.end]);
        }
        pool::give_read(std::mem::replace(&mut self.buffer, buffer));
        (self.start, self.end) = (0, length);
    }

    /// Nothing will come for a while: memory that is not needed meanwhile goes back.
    pub(super) fn settle(&mut self) {
        let length = self.end - self.start;
        // A large leftover stays in its buffer: copying it out would cost more than the buffer that it frees.
        let has_little = self.buffer.len() < READ_BYTES && length > 0;
        if has_little || length > LEFTOVER_BYTES_MAX {
            return;
        }
        let leftover: Box<[u8]> = self.buffer[self.start..self.end].into();
        pool::give_read(std::mem::replace(&mut self.buffer, leftover));
        (self.start, self.end) = (0, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_whatever_moves() {
        let mut input = Input::default();
        let (mut came, mut used) = (0_u64, 0_u64);
        for step in 0..4000_usize {
            let room = input.room();
            let count = (step * 7919 % 5000 + 1).min(room.len());
            room[..count].iter_mut().for_each(|byte| {
                *byte = came as u8;
                came += 1;
            });
            input.came(count);
            if step % 7 == 3 {
                input.settle();
            }
            let wanted = if step % 50 == 0 { usize::MAX } else { step * 104_729 % 9000 };
            let count = wanted.min(input.bytes().len());
            assert!(input.bytes()[..count].iter().enumerate().all(|(at, byte)| *byte == (used + at as u64) as u8));
            used += count as u64;
            input.consume(count);
        }
        input.consume(input.bytes().len());
        input.settle();
        assert_eq!((input.memory(), input.is_empty()), (0, true));
    }
}
