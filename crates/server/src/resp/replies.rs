//! Answers on their way to a client: small ones as bytes, large payloads in place, behind their guards.
//!
//! ```text
//! bytes   $10240\r\n │ \r\n+OK\r\n$4096\r\n │ \r\n
//! large              └ fragment             └ fragment          ─▶ one vectored write
//! ```
//!
//! *Invariants*: what was answered is written in order and once; `unsent` counts payloads as well, so that a slow reader
//! pins a bounded amount of the store (`connection.rs` stops at the window).

use super::pool;
use forebay_core::{Level, ReadFragment};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Deref;

/// Payloads from this length on are written from their place, without a copy.
const IN_PLACE_BYTES_MIN: usize = 2048;
/// Places of one vectored write.
pub(super) const PLACES: usize = 64;

/// Answers in the words of RESP2 or RESP3. `F` keeps the bytes of a fragment in place.
pub(super) struct Replies<F> {
    bytes: Vec<u8>,
    /// Payloads, each with its place among the bytes.
    large: VecDeque<(usize, F)>,
    /// Bytes of `bytes`, and of the first payload, that are written.
    written: usize,
    written_large: usize,
    /// Payload bytes that are not written.
    large_unsent: usize,
    /// Bytes written in the life of the connection.
    sent: u64,
    /// RESP3.
    three: bool,
}

/// A place to which answers can be taken back.
#[derive(Clone, Copy)]
pub(super) struct Bookmark {
    bytes: usize,
    large: usize,
}

impl<F> Default for Replies<F> {
    fn default() -> Replies<F> {
        Replies {
            bytes: Vec::new(),
            large: VecDeque::new(),
            written: 0,
            written_large: 0,
            large_unsent: 0,
            sent: 0,
            three: false,
        }
    }
}

impl<F: ReadFragment> Replies<F> {
    /// A fragment's bytes; an error in their place where another node of the cluster has them.
    #[inline]
    pub(super) fn fragment(&mut self, fragment: F) {
        match fragment.level() {
            Level::Elsewhere => self.error("FENCED another node has these bytes: read with a client of the cluster"),
            Level::Hot | Level::Warm => self.payload(fragment),
        }
    }
}

impl<F: Deref<Target = [u8]>> Replies<F> {
    /// Which protocol answers are written in: 2 or 3.
    pub(super) fn protocol(&self) -> u8 {
        if self.three { 3 } else { 2 }
    }

    pub(super) fn set_protocol(&mut self, three: bool) {
        self.three = three;
    }

    /// Bytes that the client has not taken.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.written + self.large_unsent
    }

    /// Bytes that it has taken so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn bookmark(&self) -> Bookmark {
        Bookmark { bytes: self.bytes.len(), large: self.large.len() }
    }

    /// Takes back what was answered since.
    pub(super) fn back_to(&mut self, bookmark: Bookmark) {
        self.bytes.truncate(bookmark.bytes);
        while self.large.len() > bookmark.large {
            self.large_unsent -= self.large.pop_back().map_or(0, |(_, fragment)| fragment.len());
        }
    }

    /// What is to be written next, in at most [`PLACES`] places.
    pub(super) fn places<'a>(&'a self, places: &mut [IoSlice<'a>; PLACES]) -> usize {
        let (mut at, mut count, mut skip) = (self.written, 0, self.written_large);
        for (place, fragment) in &self.large {
            // A payload takes up to two places; what does not fit goes with the next write.
            if count + 2 >= PLACES {
                return count;
            }
            if *place > at {
                places[count] = IoSlice::new(&self.bytes[at..*place]);
                count += 1;
            }
            places[count] = IoSlice::new(&fragment[skip..]);
            count += 1;
            (at, skip) = (*place, 0);
        }
        if at < self.bytes.len() {
            places[count] = IoSlice::new(&self.bytes[at..]);
            count += 1;
        }
        count
    }

    /// This many bytes were written.
    #[inline]
    pub(super) fn advance(&mut self, mut count: usize) {
        self.sent += count as u64;
        while count > 0 {
            let end = self.large.front().map_or(self.bytes.len(), |(place, _)| *place);
            let plain = count.min(end - self.written);
            self.written += plain;
            debug_assert!(self.written <= self.bytes.len(), "no more is written than there is");
            count -= plain;
            let Some((_, fragment)) = self.large.front().filter(|_| count > 0) else { break };
            let of_payload = count.min(fragment.len() - self.written_large);
            self.written_large += of_payload;
            self.large_unsent -= of_payload;
            count -= of_payload;
            if self.written_large == fragment.len() {
                self.large.pop_front();
                self.written_large = 0;
            }
        }
        if self.unsent() == 0 {
            self.rest();
        } else if self.written > 1 << 20 && self.written > self.bytes.len() / 2 {
            self.forget_written();
        }
    }

    /// Nothing is left: the memory goes back.
    fn rest(&mut self) {
        self.large.clear();
        if self.large.capacity() > 16 {
            self.large = VecDeque::new();
        }
        pool::give_replies(std::mem::take(&mut self.bytes));
        (self.written, self.written_large) = (0, 0);
    }

    fn forget_written(&mut self) {
        self.bytes.drain(..self.written);
        self.large.iter_mut().for_each(|(place, _)| *place -= self.written);
        self.written = 0;
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool::take_replies();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// A type's sign, a number, the end of the line.
    #[inline]
    fn head(&mut self, sign: u8, number: u64) {
        let mut digits = [0; 23];
        let mut at = digits.len() - 2;
        digits[at..].copy_from_slice(b"\r\n");
        let mut left = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        at -= 1;
        digits[at] = sign;
        self.push(&digits[at..]);
    }

    /// `+OK`.
    #[inline]
    pub(super) fn ok(&mut self) {
        self.push(b"+OK\r\n");
    }

    /// A word that says how it went.
    pub(super) fn simple(&mut self, text: &str) {
        self.push(b"+");
        self.push(text.as_bytes());
        self.push(b"\r\n");
    }

    /// An error, which begins with its code.
    pub(super) fn error(&mut self, line: &str) {
        self.push(b"-");
        let line: Vec<u8> = line.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect();
        self.push(&line);
        self.push(b"\r\n");
    }

    /// A number.
    pub(super) fn number(&mut self, number: u64) {
        self.head(b':', number);
    }

    /// A number below nothing, or not.
    pub(super) fn signed(&mut self, number: i64) {
        if number < 0 {
            self.push(b":-");
            let mark = self.bytes.len();
            self.head(b':', number.unsigned_abs());
            self.bytes.remove(mark);
        } else {
            self.number(number.unsigned_abs());
        }
    }

    /// Bytes.
    #[inline]
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as u64);
        self.push(bytes);
        self.push(b"\r\n");
    }

    /// Text.
    pub(super) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Lines for a person.
    pub(super) fn verbatim(&mut self, text: &str) {
        if self.three {
            self.head(b'=', text.len() as u64 + 4);
            self.push(b"txt:");
            self.push(text.as_bytes());
            self.push(b"\r\n");
        } else {
            self.text(text);
        }
    }

    /// Bytes, in place if they are many.
    #[inline]
    fn payload(&mut self, fragment: F) {
        if fragment.len() < IN_PLACE_BYTES_MIN {
            return self.bulk(&fragment);
        }
        self.head(b'$', fragment.len() as u64);
        self.large_unsent += fragment.len();
        self.large.push_back((self.bytes.len(), fragment));
        self.push(b"\r\n");
    }

    /// Nothing is there.
    #[inline]
    pub(super) fn nothing(&mut self) {
        self.push(if self.three { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// This many things follow.
    pub(super) fn array(&mut self, length: usize) {
        self.head(b'*', length as u64);
    }

    /// This many names, each with its value, follow.
    pub(super) fn map(&mut self, length: usize) {
        if self.three { self.head(b'%', length as u64) } else { self.array(2 * length) }
    }

    /// This many different things follow.
    pub(super) fn set(&mut self, length: usize) {
        if self.three { self.head(b'~', length as u64) } else { self.array(length) }
    }

    /// Texts in an array.
    pub(super) fn texts<S: AsRef<str>>(&mut self, texts: impl ExactSizeIterator<Item = S>) {
        self.array(texts.len());
        texts.for_each(|text| self.text(text.as_ref()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(replies: &Replies<Vec<u8>>) -> String {
        let mut places = [IoSlice::new(&[]); PLACES];
        let count = replies.places(&mut places);
        places[..count].iter().map(|place| std::str::from_utf8(place).unwrap()).collect()
    }

    #[test]
    fn both_protocols_have_their_words() {
        let mut replies = Replies::<Vec<u8>>::default();
        for (three, expected) in [
            (false, "+OK\r\n-ERR a b\r\n:0\r\n:-12\r\n$2\r\nhi\r\n$-1\r\n*2\r\n:1\r\n:2\r\n*1\r\n$1\r\nx\r\n"),
            (true, "+OK\r\n-ERR a b\r\n:0\r\n:-12\r\n=6\r\ntxt:hi\r\n_\r\n%1\r\n:1\r\n:2\r\n~1\r\n$1\r\nx\r\n"),
        ] {
            replies.set_protocol(three);
            replies.ok();
            replies.error("ERR a\nb");
            replies.number(0);
            replies.signed(-12);
            replies.verbatim("hi");
            replies.nothing();
            replies.map(1);
            replies.number(1);
            replies.number(2);
            replies.set(1);
            replies.text("x");
            assert_eq!(written(&replies), expected);
            assert_eq!(replies.unsent(), expected.len());
            replies.advance(3);
            assert_eq!(written(&replies), expected[3..]);
            replies.advance(expected.len() - 3);
            assert_eq!(replies.unsent(), 0);
        }
        assert_eq!(replies.protocol(), 3);
    }

    #[test]
    fn what_failed_is_taken_back() {
        let mut replies = Replies::<Vec<u8>>::default();
        replies.ok();
        let bookmark = replies.bookmark();
        replies.array(3);
        replies.text("x");
        replies.back_to(bookmark);
        replies.error("ERR no");
        assert_eq!(written(&replies), "+OK\r\n-ERR no\r\n");
    }
}
