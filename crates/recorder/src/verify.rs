//! Continuity: whether what the containers hold and what the manifest says fit together, tick by tick.
//!
//! ```text
//! era of a link   [begin ──────────────────────────────── end)
//! containers       ████████      ███████████   ██████████         covered
//! manifest                 ░░░░░░           ░░░          ░░       gaps:  together they tile it
//! ```

use super::index::LinkIndex;
use super::manifest::{Era, LinkManifest, ManifestGap};

/// Differences that are kept word for word.
const DIFFERENCES_MAX: usize = 100;

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuity {
    /// Frames in containers.
    pub frames: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// Stretches of ticks that no frame covers, of all links.
    pub gaps: u64,
    /// Where containers and manifest differ, in words: the first hundred.
    pub differences: Vec<String>,
    /// All differences.
    pub differences_total: u64,
}

impl Continuity {
    /// Whether the gaps that were found are those of the manifest, and nothing else differs.
    pub fn holds(&self) -> bool {
        self.differences_total == 0
    }

    pub(super) fn differ(&mut self, what: String) {
        self.differences_total += 1;
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(what);
        }
    }

    /// Compares one link.
    pub(super) fn compare(&mut self, found: &LinkIndex, told: &LinkManifest) {
        let name = &told.config.name;
        // Frames and bytes as well as ticks: an image that is there twice covers the same ticks.
        let (frames, bytes) = found.recorded();
        self.frames += frames;
        self.bytes += bytes;
        if (frames, bytes) != (told.recorded, told.recorded_bytes) {
            self.differ(format!(
                "{name}: containers hold {frames} frames of {bytes} bytes, the manifest says {} of {}",
                told.recorded, told.recorded_bytes
            ));
        }
        let mut covered: Vec<Vec<(u64, u64)>> = vec![Vec::new(); told.eras.len()];
        for (era, stretch) in found.covered() {
            match covered.get_mut(era as usize) {
                Some(of_era) => of_era.push((stretch.begin, stretch.end)),
                None => self.differ(format!("{name}: ticks from {} on are of an era that nobody knows", stretch.begin)),
            }
        }
        for (number, (era, covered)) in told.eras.iter().zip(&covered).enumerate() {
            let of_era = told.gaps.iter().filter(|gap| gap.era as usize == number);
            let (exact, wide): (Vec<&ManifestGap>, Vec<&ManifestGap>) = of_era.partition(|gap| gap.stretches == 1);
            // The exact ones must tile with what is covered; of the wide ones only the ends are known.
            // Where one gap represents several, frames may be between them.
            let blurred = join(wide.iter().map(|gap| (gap.begin, gap.end)).collect());
            let missing = holes(era, covered);
            self.gaps += missing.len() as u64;
            let told_missing = join(exact.iter().map(|gap| (gap.begin, gap.end)).collect());
            for (begin, end) in without(&without(&missing, &told_missing), &blurred) {
                self.differ(format!("{name}: ticks {begin} to {end} are missing, the manifest does not say so"));
            }
            for (begin, end) in without(&without(&told_missing, &missing), &blurred) {
                self.differ(format!("{name}: ticks {begin} to {end} are recorded, the manifest says they are missing"));
            }
        }
    }
}

/// Half-open stretches in order and apart.
fn join(mut stretches: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    // Images of a link that was passed to another device are told out of order, and one written twice covers its ticks twice.
    stretches.sort_unstable();
    stretches.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
    stretches
}

/// What of an era nothing covers.
fn holes(era: &Era, covered: &[(u64, u64)]) -> Vec<(u64, u64)> {
    if era.begin >= era.end {
        return Vec::new();
    }
    without(&[(era.begin, era.end)], &join(covered.to_vec()))
}

/// `from` without `what`; both in order and apart.
fn without(from: &[(u64, u64)], what: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let apart = |list: &[(u64, u64)]| list.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    debug_assert!(apart(from) && apart(what), "the walk below sees each stretch once, in order");
    let mut left = Vec::new();
    let mut at = 0;
    for &(mut begin, end) in from {
        while what.get(at).is_some_and(|other| other.1 <= begin) {
            at += 1;
        }
        for &(from, to) in what.iter().skip(at).take_while(|other| other.0 < end) {
            if begin < from {
                left.push((begin, from));
            }
            begin = begin.max(to);
        }
        if begin < end {
            left.push((begin, end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::index::{Covered, ImageEntry};
    use super::super::manifest::tests::example;
    use super::*;

    /// The frames that the example manifest says are recorded.
    fn found() -> LinkIndex {
        let covered = |begin, end| Covered { begin, end, frames: (end - begin) / 100, gap_code: 0 };
        let image = |number, covered: Vec<Covered>| ImageEntry {
            era: 0,
            number,
            places: vec![],
            bytes: 0,
            payload_bytes: 100 * covered.iter().map(|covered| covered.frames).sum::<u64>(),
            covered,
        };
        let config = example().links[0].config.clone();
        LinkIndex {
            config,
            images: vec![image(0, vec![covered(1000, 1200), covered(1400, 1500)]), image(1, vec![covered(2100, 2500)])],
        }
    }

    #[test]
    fn what_fits_holds_and_each_tick_that_does_not_is_named() {
        let manifest = example();
        let mut continuity = Continuity::default();
        continuity.compare(&found(), &manifest.links[0]);
        assert!(continuity.holds(), "{continuity:?}");
        assert_eq!((continuity.frames, continuity.bytes, continuity.gaps), (7, 700, 2));

        let mut lost = found();
        lost.images[0].covered[0].end = 1150;
        let mut continuity = Continuity::default();
        continuity.compare(&lost, &manifest.links[0]);
        assert_eq!(continuity.differences, ["link 7: ticks 1150 to 1200 are missing, the manifest does not say so"]);

        let mut more = found();
        more.images[0].covered[1].end = 1600;
        let mut continuity = Continuity::default();
        continuity.compare(&more, &manifest.links[0]);
        assert_eq!(
            continuity.differences,
            ["link 7: ticks 1500 to 1600 are recorded, the manifest says they are missing"]
        );

        let mut fewer = found();
        fewer.images.pop();
        let mut continuity = Continuity::default();
        continuity.compare(&fewer, &manifest.links[0]);
        assert_eq!(continuity.differences_total, 2, "{continuity:?}");
    }

    #[test]
    fn stretches_are_subtracted() {
        assert_eq!(without(&[(0, 10), (20, 30)], &[(5, 6), (8, 25)]), [(0, 5), (6, 8), (25, 30)]);
        assert_eq!(without(&[(0, 10)], &[(0, 10)]), []);
        assert_eq!(without(&[(0, 10)], &[]), [(0, 10)]);
        assert_eq!(without(&[(5, 10), (12, 14)], &[(0, 13)]), [(13, 14)]);
        assert_eq!(join(vec![(5, 7), (0, 5), (9, 10), (6, 8)]), [(0, 8), (9, 10)]);
    }

    #[test]
    fn a_manifest_that_is_rebuilt_fits_what_it_was_made_from() {
        let rebuilt = found().rebuilt();
        assert_eq!((rebuilt.produced, rebuilt.recorded, rebuilt.missed, rebuilt.unknown_from), (15, 7, 8, Some(2500)));
        let mut continuity = Continuity::default();
        continuity.compare(&found(), &rebuilt);
        assert!(continuity.holds(), "{continuity:?}");
    }
}
