//! One link's account while it is recorded: what was produced, what is on its way, what is durable, what is missing.
//!
//! ```text
//! push ─▶ image ─hand over─▶ pending ─durable─▶ recorded
//!   └ missed ─▶ gap                  └─failed─▶ gap
//! ```
//!
//! *Invariants*: produced = recorded + pending + missed at any moment; a frame leaves `pending` once, so that what was
//! given up cannot be recorded later (test `what_is_given_up_stays_missed`).

use super::cause::GapReason;
use super::config::LinkConfig;
use super::limits::GAPS_MAX;
use super::manifest::{Era, LinkManifest, ManifestGap};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Frames without a gap between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) frames: u64,
}

/// What an image holds, as the account needs it.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) era: u32,
    /// In order, apart.
    pub(super) runs: Vec<Run>,
    pub(super) bytes: u64,
}

impl Contents {
    /// A frame was added; it comes after all others.
    pub(super) fn add(&mut self, begin: u64, end: u64, bytes: u64) {
        debug_assert!(begin < end, "a frame without ticks");
        debug_assert!(self.runs.last().is_none_or(|run| run.end <= begin), "a frame before the one that came last");
        self.bytes += bytes;
        match self.runs.last_mut() {
            Some(run) if run.end == begin => {
                run.end = end;
                run.frames += 1;
            }
            _ => self.runs.push(Run { begin, end, frames: 1 }),
        }
    }

    pub(super) fn frames(&self) -> u64 {
        self.runs.iter().map(|run| run.frames).sum()
    }
}

/// The account of one link.
pub(super) struct Books {
    pub(super) config: LinkConfig,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    eras: Vec<Era>,
    gaps: Vec<ManifestGap>,
    /// The newest gap by era and reason.
    newest: BTreeMap<(u32, GapReason), usize>,
    pending: BTreeMap<u32, Contents>,
    pending_frames: u64,
    recorded: u64,
    recorded_bytes: u64,
    missed: u64,
}

/// A link's figures on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) pending: u64,
    pub(super) recorded: u64,
    pub(super) recorded_bytes: u64,
    pub(super) missed: u64,
}

impl Books {
    pub(super) fn new(config: LinkConfig) -> Books {
        Books { config, account: Mutex::default() }
    }

    /// The link's clock begins, or steps back; the new era's number.
    pub(super) fn begin_era(&self, begin: u64) -> u32 {
        // One lock for the whole account: what a reader sees adds up at any moment. Nothing is taken under it.
        let mut account = self.account.lock();
        account.eras.push(Era { begin, end: begin });
        account.eras.len() as u32 - 1
    }

    /// Nothing will be recorded for these ticks.
    pub(super) fn gap(&self, gap: ManifestGap) {
        let mut account = self.account.lock();
        if let Some(era) = account.eras.get_mut(gap.era as usize) {
            era.end = era.end.max(gap.end);
        }
        account.enter(gap);
    }

    /// An image is on its way to a device.
    pub(super) fn handed_over(&self, image: u32, contents: Contents) {
        let mut account = self.account.lock();
        // The era ends with its last frame, durable or not: what is not durable in the end is a gap within it.
        if let (Some(era), Some(run)) = (account.eras.get_mut(contents.era as usize), contents.runs.last()) {
            era.end = era.end.max(run.end);
        }
        account.pending_frames += contents.frames();
        let before = account.pending.insert(image, contents);
        debug_assert!(before.is_none(), "image {image} is handed over twice");
    }

    /// An image is durable: `count` gets its frames and bytes, in the same hold as they are booked. Not where it was given
    /// up before.
    pub(super) fn durable(&self, image: u32, count: impl FnOnce(u64, u64)) {
        let mut account = self.account.lock();
        // Given up before: the manifest says already that it is missed. That its bytes are durable after all is harmless; a frame
        // that is recorded and missed would make the sums wrong.
        let Some(contents) = account.pending.remove(&image) else { return };
        let (frames, bytes) = (contents.frames(), contents.bytes);
        debug_assert!(account.pending_frames >= frames, "more frames leave than were on their way");
        account.pending_frames -= frames;
        account.recorded += frames;
        account.recorded_bytes += bytes;
        count(frames, bytes);
    }

    /// An image will not be durable.
    pub(super) fn failed(&self, image: u32, reason: GapReason) {
        let mut account = self.account.lock();
        if let Some(contents) = account.pending.remove(&image) {
            account.give_up(&contents, reason);
        }
    }

    /// Nothing that is still on its way counts any more.
    pub(super) fn give_up(&self, reason: GapReason) {
        let mut account = self.account.lock();
        // Taken out: an image that becomes durable after this finds itself in no list and is not counted.
        for (_, contents) in std::mem::take(&mut account.pending) {
            account.give_up(&contents, reason);
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let account = self.account.lock();
        Figures {
            pending: account.pending_frames,
            recorded: account.recorded,
            recorded_bytes: account.recorded_bytes,
            missed: account.missed,
        }
    }

    /// The account as the manifest has it.
    pub(super) fn manifest(&self) -> LinkManifest {
        let account = self.account.lock();
        let on_the_way: u64 = account.pending.values().map(Contents::frames).sum();
        debug_assert_eq!(account.pending_frames, on_the_way, "the sum of what is on its way is wrong");
        let gaps = in_order(account.gaps.clone());
        LinkManifest {
            config: self.config.clone(),
            produced: account.recorded + account.pending_frames + account.missed,
            recorded: account.recorded,
            recorded_bytes: account.recorded_bytes,
            missed: account.missed,
            missed_by: missed_by(&gaps),
            eras: account.eras.clone(),
            gaps,
            unknown_from: None,
        }
    }
}

impl Account {
    fn enter(&mut self, gap: ManifestGap) {
        if gap.reason.is_missed() {
            self.missed += gap.frames;
        }
        // Frames that are missed one after the other are one gap, as long as the reason stays.
        if let Some(last) = self.gaps.last_mut()
            && (last.era, last.reason, last.end) == (gap.era, gap.reason, gap.begin)
        {
            last.end = gap.end;
            last.frames += gap.frames;
            return;
        }
        // Bounded memory, exact sums: past the bound a gap of the same era and reason replaces several, and says so.
        if self.gaps.len() >= GAPS_MAX
            && let Some(newest) = self.newest.get(&(gap.era, gap.reason)).and_then(|&at| self.gaps.get_mut(at))
        {
            newest.begin = newest.begin.min(gap.begin);
            newest.end = newest.end.max(gap.end);
            newest.frames += gap.frames;
            newest.stretches += gap.stretches;
            return;
        }
        // Which gap to widen past the bound, without a search through all of them for each frame.
        self.newest.insert((gap.era, gap.reason), self.gaps.len());
        self.gaps.push(gap);
    }

    fn give_up(&mut self, contents: &Contents, reason: GapReason) {
        debug_assert!(reason.is_missed(), "frames that were produced are missed for a reason that misses none");
        self.pending_frames -= contents.frames();
        for run in &contents.runs {
            let Run { begin, end, frames } = *run;
            self.enter(ManifestGap { era: contents.era, begin, end, reason, frames, stretches: 1 });
        }
    }
}

/// Gaps sorted, those that touch and have one reason joined.
pub(super) fn in_order(mut gaps: Vec<ManifestGap>) -> Vec<ManifestGap> {
    gaps.sort_by_key(|gap| (gap.era, gap.begin, gap.end));
    gaps.dedup_by(|next, gap| {
        // A gap that replaces several is not joined: its ticks are no longer exact, those of its neighbour are.
        let joins = (gap.era, gap.reason, gap.end) == (next.era, next.reason, next.begin)
            && gap.stretches == 1
            && next.stretches == 1;
        if joins {
            gap.end = next.end;
            gap.frames += next.frames;
        }
        joins
    });
    gaps
}

/// Missed frames by reason.
pub(super) fn missed_by(gaps: &[ManifestGap]) -> BTreeMap<GapReason, u64> {
    let mut by = BTreeMap::new();
    for gap in gaps.iter().filter(|gap| gap.reason.is_missed()) {
        *by.entry(gap.reason).or_default() += gap.frames;
    }
    by
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        Books::new(LinkConfig {
            source: vec![1],
            name: "one".into(),
            format: String::new(),
            ticks_per_frame: 10,
            ticks_per_second: 0,
            device: None,
        })
    }

    fn contents(runs: &[(u64, u64)]) -> Contents {
        let mut contents = Contents::default();
        for &(begin, end) in runs {
            (begin..end).step_by(10).for_each(|tick| contents.add(tick, tick + 10, 5));
        }
        contents
    }

    fn gap(begin: u64, end: u64, reason: GapReason) -> ManifestGap {
        ManifestGap { era: 0, begin, end, reason, frames: (end - begin) / 10, stretches: 1 }
    }

    #[test]
    fn what_is_given_up_stays_missed() {
        let books = books();
        assert_eq!(books.begin_era(100), 0);
        books.handed_over(0, contents(&[(100, 200), (220, 300)]));
        books.handed_over(1, contents(&[(300, 400)]));
        books.gap(gap(200, 220, GapReason::NotProduced));
        assert_eq!(books.figures(), Figures { pending: 28, ..Figures::default() });
        let mut counted = Vec::new();
        books.durable(1, |frames, bytes| counted.push((frames, bytes)));
        books.durable(1, |frames, bytes| counted.push((frames, bytes)));
        books.give_up(GapReason::DeviceStalled);
        books.durable(0, |frames, bytes| counted.push((frames, bytes)));
        assert_eq!(counted, [(10, 50)]);
        let manifest = books.manifest();
        assert_eq!((manifest.produced, manifest.recorded, manifest.missed), (28, 10, 18));
        let reasons: Vec<_> = manifest.gaps.iter().map(|gap| (gap.begin, gap.end, gap.reason)).collect();
        assert_eq!(
            reasons,
            [
                (100, 200, GapReason::DeviceStalled),
                (200, 220, GapReason::NotProduced),
                (220, 300, GapReason::DeviceStalled)
            ]
        );
        assert_eq!(manifest.eras, [Era { begin: 100, end: 400 }]);
    }

    #[test]
    fn neighbours_of_one_reason_are_one_gap_however_they_came() {
        let books = books();
        books.begin_era(0);
        books.gap(gap(0, 10, GapReason::DeviceSlow));
        books.gap(gap(10, 40, GapReason::DeviceSlow));
        books.gap(gap(60, 70, GapReason::NotTaken));
        books.gap(gap(40, 50, GapReason::DeviceSlow));
        let manifest = books.manifest();
        assert_eq!(manifest.gaps, [gap(0, 50, GapReason::DeviceSlow), gap(60, 70, GapReason::NotTaken)]);
        assert_eq!(manifest.missed_by[&GapReason::DeviceSlow], 5);
    }

    #[test]
    fn more_gaps_than_are_kept_still_add_up() {
        let books = books();
        books.begin_era(0);
        let n = GAPS_MAX as u64 + 1000;
        for at in 0..n {
            let reason = if at % 2 == 0 { GapReason::DeviceSlow } else { GapReason::NotTaken };
            books.gap(gap(at * 20, at * 20 + 10, reason));
        }
        let manifest = books.manifest();
        assert!(manifest.gaps.len() <= GAPS_MAX);
        assert_eq!(manifest.missed, n);
        assert_eq!(manifest.gaps.iter().map(|gap| gap.stretches).sum::<u64>(), n);
        let whole = super::super::manifest::GapManifest {
            totals: super::super::manifest::GapManifest::sum(std::slice::from_ref(&manifest)),
            links: vec![manifest],
            devices: vec![],
            ..super::super::manifest::tests::example()
        };
        whole.check().unwrap();
    }
}
