//! What several nodes have of one source of a ring as one: between them it moved from one to another.

use crate::ring::SourceWindow;
use forebay_core::{Coverage, GapCause, Stretch};

impl SourceWindow {
    /// What is gone was there.
    fn has_evicted(&self) -> bool {
        self.first.is_none() && self.coverage.iter().any(|stretch| stretch.state == Coverage::Gone)
    }

    /// What two nodes have of a source.
    pub(super) fn joined(self, other: SourceWindow) -> SourceWindow {
        let coverage = join_coverage((&self.coverage, self.has_evicted()), (&other.coverage, other.has_evicted()));
        // Where one of them has evicted something, what was there before is not known; one that has seen nothing has no say.
        let is_new = |window: &SourceWindow| window.coverage.iter().all(|stretch| stretch.state == Coverage::NotYet);
        let first = match (is_new(&self), is_new(&other)) {
            (true, _) => other.first,
            (_, true) => self.first,
            _ => self.first.zip(other.first).map(|(one, other)| one.min(other)),
        };
        let mut fragments = [self.fragments, other.fragments].into_iter().flatten().collect::<Vec<_>>();
        fragments.sort_by_key(|fragment| (fragment.about.timestamp, fragment.about.span));
        fragments.dedup_by_key(|fragment| (fragment.about.timestamp, fragment.about.span, fragment.about.checksum));
        SourceWindow { source: self.source, coverage, first, fragments }
    }
}

/// What is known of each tick by the one or the other, each with whether it has evicted something: what one has not got yet the other may
/// have evicted, and what never arrived at one may have been there.
fn join_coverage(one: (&[Stretch], bool), other: (&[Stretch], bool)) -> Vec<Stretch> {
    let rank = |(state, has_evicted): (Coverage, bool)| match state {
        Coverage::Complete => 0,
        Coverage::Gap(cause) if cause != GapCause::NeverArrived => 1,
        Coverage::Gone if has_evicted => 2,
        Coverage::Gap(_) => 3,
        Coverage::Gone => 4,
        Coverage::NotYet => 5,
    };
    let ends = |all: &[Stretch]| all.iter().flat_map(|stretch| [stretch.begin, stretch.end]).collect::<Vec<_>>();
    let mut cuts = [ends(one.0), ends(other.0)].concat();
    cuts.sort_unstable();
    cuts.dedup();
    let mut all: Vec<Stretch> = Vec::new();
    for cut in cuts.windows(2) {
        let (begin, end) = (cut[0], cut[1]);
        let of = |(stretches, has_evicted): (&[Stretch], bool)| {
            let found = stretches.iter().find(|stretch| (stretch.begin..stretch.end).contains(&begin));
            found.map(|stretch| (stretch.state, has_evicted))
        };
        let known = [of(one), of(other)].into_iter().flatten().min_by_key(|known| rank(*known));
        let Some((state, _)) = known else { continue };
        match all.last_mut() {
            Some(last) if last.state == state && last.end == begin => last.end = end,
            _ => all.push(Stretch { begin, end, state }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coverage::{Complete, Gap, Gone, NotYet};

    /// What is known of ticks of ten each.
    fn known(states: &[Coverage]) -> Vec<Stretch> {
        let mut all: Vec<Stretch> = Vec::new();
        for (state, begin) in states.iter().zip((0..).step_by(10)) {
            match all.last_mut() {
                Some(last) if last.state == *state => last.end = begin + 10,
                _ => all.push(Stretch { begin, end: begin + 10, state: *state }),
            }
        }
        all
    }

    #[test]
    fn two_nodes_know_of_a_tick_what_one_of_them_has_of_it() {
        let lost = Gap(GapCause::NoSpace);
        // The source moved behind the fourth ten: what came between the two is gone, and the end is still to come.
        let before = known(&[Gone, Complete, lost, Complete, NotYet, NotYet, NotYet, NotYet]);
        let after = known(&[Gone, Gone, Gone, Gone, Gone, Complete, Complete, NotYet]);
        let both = known(&[Gone, Complete, lost, Complete, Gone, Complete, Complete, NotYet]);
        for evicted in [false, true] {
            assert_eq!(join_coverage((&before, true), (&after, evicted)), both);
            assert_eq!(join_coverage((&after, evicted), (&before, true)), both);
        }
        assert_eq!(join_coverage((&before, true), (&before, true)), before);
        assert_eq!(join_coverage((&before, true), (&[], false)), before);
        // One that has seen nothing of a source has no say of its beginning.
        let window = |coverage: Vec<Stretch>, first| SourceWindow {
            source: forebay_core::SourceSchema::parse(&["link:u8"]).unwrap().source(&[1]).unwrap(),
            coverage,
            first,
            fragments: Vec::new(),
        };
        let (seen, new) = (|first| window(known(&[Gone, Complete]), first), || window(known(&[NotYet, NotYet]), None));
        assert_eq!(seen(Some(10)).joined(new()).first, Some(10));
        assert_eq!(new().joined(seen(Some(10))).first, Some(10));
        assert_eq!(seen(Some(10)).joined(seen(None)).first, None);
        // It moved away and back: what came to the other one meanwhile never arrived here, and is evicted there.
        let (here, there) = ([Complete, Gap(GapCause::NeverArrived), Complete], [Gone, Gone, NotYet]);
        let joined = |evicted| join_coverage((&known(&here), false), (&known(&there), evicted));
        assert_eq!(joined(true), known(&[Complete, Gone, Complete]));
        assert_eq!(joined(false), known(&here), "it had nothing before");
    }
}
