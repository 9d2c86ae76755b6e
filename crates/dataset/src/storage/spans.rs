//! Spans: neighbouring parts of an object become one request, where the bytes between them are few.
//!
//! ```text
//! asked   [a][b]  gap  [c]        gap         [d]
//! spans   [a  b   gap   c]                    [d]
//! ```
//!
//! *Invariants*: bytes that nobody asked for stay below a share of those asked for, over all parts of a call; the smallest
//! gaps are taken first, which saves most requests. A span has at most `span_bytes_max` bytes, unless one part has more.

use super::Part;
use std::ops::Range;

/// What may be read in vain, and how long a request may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Longest gap that is read over.
    pub(super) gap_bytes_max: u64,
    /// Bytes of gaps, in hundredths of the bytes asked for.
    pub(super) gap_percent_max: u64,
    /// Longest span, so that a large read remains several requests at once.
    pub(super) span_bytes_max: u64,
}

/// One request: bytes of an object, and which parts are in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// A part that names the object.
    pub(super) first: usize,
    /// Which bytes.
    pub(super) range: Range<u64>,
    /// Places of the parts in the caller's list.
    pub(super) parts: Vec<usize>,
}

/// The requests that fetch these parts. Empty parts are in none.
pub(super) fn plan(parts: &[Part], limits: Limits) -> Vec<Span> {
    let length = |at: &usize| parts[*at].range.end.saturating_sub(parts[*at].range.start);
    let mut order: Vec<usize> = (0..parts.len()).filter(|at| length(at) > 0).collect();
    order.sort_by(|a, b| (&parts[*a].name, parts[*a].range.start).cmp(&(&parts[*b].name, parts[*b].range.start)));
    let joined = joined(parts, &order, limits);
    let mut spans: Vec<Span> = Vec::new();
    for (place, &at) in order.iter().enumerate() {
        let range = &parts[at].range;
        let last = if place > 0 && joined[place - 1] { spans.last_mut() } else { None };
        if let Some(last) = last {
            let end = last.range.end.max(range.end);
            if end - last.range.start <= limits.span_bytes_max || range.end <= last.range.end {
                last.range.end = end;
                last.parts.push(at);
                continue;
            }
        }
        spans.push(Span { first: at, range: range.clone(), parts: vec![at] });
    }
    spans
}

/// For each part in this order, whether it may go into one request with the next.
fn joined(parts: &[Part], order: &[usize], limits: Limits) -> Vec<bool> {
    let asked: u64 = order.iter().map(|&at| parts[at].range.end - parts[at].range.start).sum();
    let mut joined = vec![false; order.len()];
    let mut gaps: Vec<(u64, usize)> = Vec::new();
    let mut end = 0;
    for (place, pair) in order.windows(2).enumerate() {
        let [here, next] = [&parts[pair[0]], &parts[pair[1]]];
        // An earlier part may reach further than its neighbour.
        let starts = place == 0 || parts[order[place - 1]].name != here.name;
        end = if starts { here.range.end } else { here.range.end.max(end) };
        if here.name == next.name {
            gaps.push((next.range.start.saturating_sub(end), place));
        }
    }
    gaps.sort_unstable();
    let mut left = asked / 100 * limits.gap_percent_max + asked % 100 * limits.gap_percent_max / 100;
    for (gap, place) in gaps {
        if gap > limits.gap_bytes_max || gap > left {
            break;
        }
        left -= gap;
        joined[place] = true;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { gap_bytes_max: 16, gap_percent_max: 10, span_bytes_max: 1000 };

    fn part(name: &str, range: Range<u64>) -> Part {
        Part { name: name.to_owned(), range }
    }

    fn ranges(parts: &[Part]) -> Vec<(String, Range<u64>)> {
        plan(parts, LIMITS).into_iter().map(|span| (parts[span.first].name.clone(), span.range)).collect()
    }

    #[test]
    fn neighbours_and_small_gaps_become_one_request() {
        let parts = [part("a", 200..300), part("a", 0..100), part("a", 100..195), part("b", 300..400)];
        assert_eq!(ranges(&parts), [("a".to_owned(), 0..300), ("b".to_owned(), 300..400)]);
    }

    #[test]
    fn gaps_cost_at_most_a_tenth_the_smallest_first() {
        // 110 bytes asked for: 11 may be read in vain, which is enough for one of the two gaps.
        let parts = [part("a", 0..50), part("a", 58..88), part("a", 94..124)];
        assert_eq!(ranges(&parts), [("a".to_owned(), 0..50), ("a".to_owned(), 58..124)]);
    }

    #[test]
    fn a_span_has_an_end_but_no_part_is_cut() {
        let parts = [part("a", 0..600), part("a", 600..900), part("a", 900..3000), part("a", 3000..3001)];
        assert_eq!(
            ranges(&parts),
            [("a".to_owned(), 0..900), ("a".to_owned(), 900..3000), ("a".to_owned(), 3000..3001)]
        );
    }

    #[test]
    fn empty_parts_cost_nothing() {
        assert_eq!(ranges(&[part("a", 5..5)]), []);
    }

    proptest! {
        #[test]
        fn each_part_is_in_one_span_and_little_is_read_in_vain(
            asked in proptest::collection::vec((0..3_u8, 0..4000_u64, 0..300_u64), 0..40)
        ) {
            let parts: Vec<Part> =
                asked.iter().map(|(name, start, length)| part(&name.to_string(), *start..start + length)).collect();
            let spans = plan(&parts, LIMITS);
            let mut seen = vec![0; parts.len()];
            for span in &spans {
                for &at in &span.parts {
                    seen[at] += 1;
                    prop_assert_eq!(&parts[at].name, &parts[span.first].name);
                    prop_assert!(span.range.start <= parts[at].range.start && parts[at].range.end <= span.range.end);
                }
            }
            for (part, seen) in parts.iter().zip(seen) {
                prop_assert_eq!(seen, i32::from(!part.range.is_empty()));
            }
            let total = |ranges: &mut dyn Iterator<Item = &Range<u64>>| -> u64 { ranges.map(|r| r.end - r.start).sum() };
            let asked = total(&mut parts.iter().map(|part| &part.range));
            let read = total(&mut spans.iter().map(|span| &span.range));
            prop_assert!(read <= asked + asked / 10, "{read} of {asked}");
        }
    }
}
