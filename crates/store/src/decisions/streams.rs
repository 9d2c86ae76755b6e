//! Streams by number, and how an accept's detail names them.
//!
//! ```text
//! bits 31 30   bits 0 to 29 (the mask has bit 30 as well)
//!       0       mask of the streams 0 to 30                       whole events in them
//!       1  1    three bytes: numbers of streams, 255 for none     whole events in at most three, one of them from 31 on
//!       1  0    number of an output                               all else; journaled before the accept
//! ```
//!
//! *Invariants*: a set of streams has one detail, so that a repeated accept is recognised by it; a stream keeps its number.

use forebay_core::crc32c;
use forebay_core::limits::STREAMS_MAX;

/// Streams whose sets are masks.
pub(crate) const MASKED: u8 = 31;
/// Most streams of a list.
const LISTED_MAX: usize = 3;
/// In a list: no stream.
const NONE: u8 = u8::MAX;
/// The top bit of an accept's detail that is not a mask.
const OUTPUT: u32 = 1 << 31;
/// The two top bits of a list.
const LISTED: u32 = 0b11 << 30;

/// Numbers of outputs are below this, which is never given.
pub(crate) const OUTPUTS_MAX: u32 = !LISTED;

// The byte that says that there is none is no number of a stream.
const _: () = assert!(STREAMS_MAX <= NONE as usize);
// A list has room beside its two bits, and the mask beside its one.
const _: () = assert!(LISTED_MAX * 8 <= 30 && MASKED <= 31);

/// The detail that names an output.
pub(crate) fn detail_of_output(number: u32) -> u32 {
    debug_assert!(number <= OUTPUTS_MAX, "output {number} would be a list of streams");
    OUTPUT | number
}

/// The output that a detail names, where it names one.
pub(crate) fn output_number(detail: u32) -> Option<u32> {
    (detail & LISTED == OUTPUT).then_some(detail & !LISTED)
}

/// The detail of whole events in these streams, in ascending order; `None` where an output has to name them.
pub(crate) fn detail_of_streams(streams: &[u8]) -> Option<u32> {
    debug_assert!(streams.is_sorted_by(|one, next| one < next), "streams are in order, each once");
    if streams.last().is_none_or(|&last| last < MASKED) {
        return Some(streams.iter().fold(0, |mask, stream| mask | 1 << stream));
    }
    let mut bytes = [NONE, NONE, NONE, 0];
    bytes[..LISTED_MAX].get_mut(..streams.len())?.copy_from_slice(streams);
    Some(LISTED | u32::from_le_bytes(bytes))
}

/// The streams of a detail that is a mask or a list, in ascending order.
pub(crate) fn streams_in(detail: u32) -> Vec<u8> {
    if detail & OUTPUT == 0 {
        return (0..MASKED).filter(|stream| detail >> stream & 1 == 1).collect();
    }
    let bytes = detail.to_le_bytes();
    bytes[..LISTED_MAX].iter().copied().filter(|&stream| stream != NONE).collect()
}

/// Streams that the log names, by number: their position.
#[derive(Default)]
pub(crate) struct Streams {
    names: Vec<String>,
    /// Into which events may be accepted: checksum of the name and number, sorted. Each accept looks here.
    accepting: Vec<(u32, u8)>,
}

impl Streams {
    /// Streams by number; `declared` are those of the keyspace, or none where any may be.
    pub(crate) fn new(names: Vec<String>, declared: &[String]) -> Streams {
        let is_open = |name: &String| declared.is_empty() || declared.contains(name);
        let numbered = names.iter().enumerate().filter(|(_, name)| is_open(name));
        let mut accepting: Vec<(u32, u8)> =
            numbered.map(|(number, name)| (crc32c(name.as_bytes()), number as u8)).collect();
        accepting.sort_unstable();
        Streams { names, accepting }
    }

    /// Names in the order of their numbers.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn name(&self, number: u8) -> Option<&String> {
        self.names.get(usize::from(number))
    }

    /// The number of a stream that the log names.
    pub(crate) fn known(&self, name: &str) -> Option<u8> {
        self.names.iter().position(|known| known == name).map(|number| number as u8)
    }

    /// The number of a stream into which events may be accepted.
    pub(crate) fn accepting(&self, name: &str) -> Option<u8> {
        let crc = crc32c(name.as_bytes());
        let from = self.accepting.partition_point(|&(known, _)| known < crc);
        let same = self.accepting[from..].iter().take_while(|(known, _)| *known == crc);
        same.map(|&(_, number)| number).find(|&number| self.names[usize::from(number)] == name)
    }

    /// Adds a stream, which gets the next number.
    pub(crate) fn add(&mut self, name: &str) -> u8 {
        debug_assert!(self.names.len() < STREAMS_MAX, "stream `{name}` has no number");
        let number = self.names.len() as u8;
        let entry = (crc32c(name.as_bytes()), number);
        self.accepting.insert(self.accepting.partition_point(|known| *known < entry), entry);
        self.names.push(name.to_owned());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_detail_is_a_mask_a_list_or_an_output() {
        // As versions before 4 of the region wrote them.
        assert_eq!(detail_of_streams(&[]), Some(0));
        assert_eq!(detail_of_streams(&[0, 3, 30]), Some(1 | 1 << 3 | 1 << 30));
        assert_eq!(detail_of_output(7), 0x8000_0007);
        assert_eq!(detail_of_streams(&[31]), Some(0xC0FF_FF1F));
        assert_eq!(detail_of_streams(&[5, 200, 254]), Some(0xC0FE_C805));
        assert_eq!(detail_of_streams(&[1, 2, 3, 200]), None);
        for number in [0, 1, OUTPUTS_MAX] {
            assert_eq!(output_number(detail_of_output(number)), Some(number));
        }
    }

    #[test]
    fn what_is_not_declared_any_more_keeps_its_number_and_takes_nothing() {
        let names = || ["typo", "physics"].map(str::to_owned).to_vec();
        let mut streams = Streams::new(names(), &["physics".to_owned(), "express".to_owned()]);
        assert_eq!((streams.known("typo"), streams.accepting("typo")), (Some(0), None));
        assert_eq!((streams.accepting("physics"), streams.accepting("express")), (Some(1), None));
        assert_eq!((streams.add("express"), streams.accepting("express")), (2, Some(2)));
        assert_eq!(Streams::new(names(), &[]).accepting("typo"), Some(0));
    }

    proptest! {
        #[test]
        fn a_set_reads_back_from_its_detail(streams in prop::collection::btree_set(0_u8..255, 0..6)) {
            let streams: Vec<u8> = streams.into_iter().collect();
            match detail_of_streams(&streams) {
                Some(detail) => {
                    prop_assert_eq!(output_number(detail), None);
                    prop_assert_eq!(streams_in(detail), streams);
                }
                None => prop_assert!(streams.len() > LISTED_MAX && streams.last() >= Some(&MASKED)),
            }
        }
    }
}
