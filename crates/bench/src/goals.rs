//! The goals of the project and how this run meets each. The goals are the only figures written in this program.

use super::memory::SHARE_BYTES;
use super::results::{Results, Unit};
use super::{recovery, refill, ring, selection, stages};
use serde::Serialize;

const KIB: usize = 1024;
const TEN_KIB: usize = 10 * KIB;
const SMALL: usize = 64;

/// One goal and how this run meets it.
#[derive(Serialize)]
pub(super) struct Goal {
    pub(super) goal: String,
    /// What is judged.
    pub(super) measured: Option<f64>,
    /// Its unit.
    pub(super) unit: &'static str,
    /// What it is compared with: a figure of the goal, or that multiple of another figure of this run.
    pub(super) wanted: Option<f64>,
    /// Measured by wanted; for upper bounds wanted by measured: 1 or more meets the goal.
    pub(super) ratio: Option<f64>,
    pub(super) met: bool,
    /// Whether it is judged in a smoke run as well: it depends neither on speed nor on size.
    pub(super) in_smoke: bool,
}

/// Goals as they are judged, one after the other.
pub(super) struct Judge<'a> {
    pub(super) results: &'a Results,
    pub(super) goals: Vec<Goal>,
}

/// Judges all goals.
pub(super) fn judge(results: &Results) -> Vec<Goal> {
    let mut judge = Judge::new(results);
    judge.puts();
    judge.reads();
    judge.selection();
    judge.threads();
    judge.memory();
    judge.space();
    judge.recovery();
    judge.ring();
    judge.goals
}

impl<'a> Judge<'a> {
    /// Nothing judged yet.
    pub(super) fn new(results: &'a Results) -> Judge<'a> {
        Judge { results, goals: Vec::new() }
    }
}

impl Judge<'_> {
    pub(super) fn median(&self, id: &str, bytes: usize) -> Option<f64> {
        self.results.median(id, bytes)
    }

    /// Judges one goal: a least or (`at_most`) a greatest figure.
    pub(super) fn add(
        &mut self,
        goal: String,
        unit: Unit,
        measured: Option<f64>,
        wanted: Option<f64>,
        at_most: bool,
        in_smoke: bool,
    ) {
        let ratio =
            measured.zip(wanted).map(|(measured, wanted)| if at_most { wanted / measured } else { measured / wanted });
        let unit = unit.word();
        let met = ratio.is_some_and(|ratio| ratio >= 1.0);
        self.goals.push(Goal { goal, measured, unit, wanted, ratio, met, in_smoke });
    }

    pub(super) fn at_least(&mut self, goal: impl Into<String>, unit: Unit, measured: Option<f64>, wanted: Option<f64>) {
        self.add(goal.into(), unit, measured, wanted, false, false);
    }

    /// The better of plain and non-temporal copies, in bytes per second.
    fn copy_limit(&self, warmth: &str, threads: usize, bytes: usize) -> Option<f64> {
        let of = |kind: &str| self.median(&format!("copy.{kind}.{warmth}.{threads}"), bytes);
        Some(of("plain")?.max(of("stream")?))
    }

    /// This multiple of Redis with random keys, which, like the store's, do not all stay in the cache.
    fn times_redis(&self, times: f64, bytes: usize) -> Option<f64> {
        self.median("redis.set.32", bytes).map(|rate| times * rate)
    }

    fn puts(&mut self) {
        let put = |judge: &Self, bytes| judge.median("put.cached.1", bytes);
        let ten = put(self, TEN_KIB);
        self.at_least("put 10 KiB, cached source, 1 thread: 1 M/s", Unit::PerSecond, ten, Some(1e6));
        for (name, bytes, times) in [("10 KiB", TEN_KIB, 9.0), ("1 KiB", KIB, 7.0), ("64 B", SMALL, 6.0)] {
            let (measured, wanted) = (put(self, bytes), self.times_redis(times, bytes));
            self.at_least(format!("put {name}: {times} × Redis SET, pipeline 32"), Unit::PerSecond, measured, wanted);
        }
        for warmth in ["cached", "cold"] {
            let measured = self.median(&format!("put.{warmth}.1"), TEN_KIB).map(|rate| rate * TEN_KIB as f64);
            let wanted = self.copy_limit(warmth, 1, TEN_KIB).map(|limit| 0.7 * limit);
            let goal = format!("put 10 KiB, {warmth} source: 70 % of the copy limit");
            self.at_least(goal, Unit::BytesPerSecond, measured, wanted);
        }
        for (name, bytes, times) in [("1 KiB", KIB, 3.5), ("10 KiB", TEN_KIB, 8.0)] {
            for (side, id) in [("put", "concurrent.put"), ("get and remove", "concurrent.getremove")] {
                let (measured, wanted) = (self.median(id, bytes), self.times_redis(times, bytes));
                let goal = format!("concurrent test {name}, {side} side: {times} × Redis SET, pipeline 32");
                self.at_least(goal, Unit::PerSecond, measured, wanted);
            }
        }
    }

    fn reads(&mut self) {
        let measured = self.median("get.untouched", KIB);
        self.at_least("get with guard, 1 KiB, bytes untouched: 5 M/s", Unit::PerSecond, measured, Some(5e6));
        for batch in [1, 64] {
            let measured = self.median(&format!("select.{batch}"), selection::BYTES);
            let goal = format!("get_any + accept of single-fragment events, batch {batch}: 500 k/s");
            self.at_least(goal, Unit::PerSecond, measured, Some(5e5));
        }
    }

    fn selection(&mut self) {
        let one = self.median("grant.1", selection::BYTES);
        let (measured, wanted) = (self.median("grant.64", selection::BYTES), one.map(|rate| 3.0 * rate));
        self.at_least("get_any, 64 events per call: 3 × one per call", Unit::PerSecond, measured, wanted);
        let measured = self.median("stages.2", stages::BYTES);
        let goal = "two-stage selection of small events, 2 threads: 1 M events/s decided";
        self.at_least(goal, Unit::PerSecond, measured, Some(1e6));
        for word in ["decided", "live"] {
            let measured = self.median(&format!("sampled.{word}"), selection::BYTES);
            let goal = format!("sampler of {word} events at 1 kHz: 99 % of selection's rate without");
            self.at_least(goal, Unit::Share, measured, Some(0.99));
        }
    }

    /// Either of two bars is enough; the one that is nearer counts.
    fn threads(&mut self) {
        for (name, bytes) in [("64 B", SMALL), ("1 KiB", KIB), ("10 KiB", TEN_KIB)] {
            let scaled = self.median("put.cached.1", bytes).map(|one| 1.6 * one);
            let limit = self.copy_limit("cached", 2, bytes).map(|limit| 0.8 * limit / bytes as f64);
            let wanted = scaled.zip(limit).map(|(scaled, limit)| scaled.min(limit));
            let measured = self.median("put.cached.2", bytes);
            let goal = format!("put {name}, 2 threads: 1.6 × one, or 80 % of the 2-thread copy limit");
            self.at_least(goal, Unit::PerSecond, measured, wanted);
        }
    }

    /// The store's count and the growth that the kernel sees: the greater one is judged.
    fn memory(&mut self) {
        for (case, name, most) in
            [("events16", "per fragment, events of 16", 24.0), ("single", "per single-fragment event", 160.0)]
        {
            for word in ["dense", "random"] {
                let of = |kind: &str| self.median(&format!("{kind}.{case}.{word}"), SMALL);
                let measured = of("memory").zip(of("rss")).map(|(counted, grown)| counted.max(grown));
                self.add(
                    format!("memory {name}, {word}: at most {most} B"),
                    Unit::Bytes,
                    measured,
                    Some(most),
                    true,
                    false,
                );
            }
        }
        for (word, most) in [("dense", 2.0), ("random", 16.0)] {
            let measured = self.median(&format!("memory.decided.{word}"), SMALL);
            self.add(
                format!("memory per decided event, {word}: at most {most} B"),
                Unit::Bytes,
                measured,
                Some(most),
                true,
                false,
            );
        }
        let measured = self.median("memory.decided.all", SMALL);
        let goal = "memory of 10⁹ dense decided events: at most 256 MiB";
        self.add(goal.into(), Unit::Bytes, measured, Some(256.0 * 1024.0 * 1024.0), true, false);
    }

    fn space(&mut self) {
        let entry = self.median("entry.bytes", SHARE_BYTES);
        self.add("entry at 16-byte keys: at most 48 B".into(), Unit::Bytes, entry, Some(48.0), true, true);
        let share = self.median("payload.share", SHARE_BYTES);
        self.add("payload at 1 KiB: 95 % of the occupied region".into(), Unit::Share, share, Some(0.95), false, true);
        // The first fill finds the decision log empty; later ones find up to one segment of it in use. The best fill of
        // the later half shows a leak, because leaked space never comes back. The smallest shows how much decisions take.
        let of = |id: &str| self.median(id, refill::BYTES);
        let whole = of("refill.first").zip(of("refill.segment")).map(|(first, segment)| first - segment);
        let later = self.results.samples("refill.later", refill::BYTES);
        let best = later[later.len() / 2..].iter().copied().max_by(f64::total_cmp);
        let least = later.iter().copied().min_by(f64::total_cmp);
        let goal = "fill, remove, fill again, for ever: the first capacity is reached (less one segment of decisions)";
        self.add(goal.into(), Unit::Count, best, whole, false, true);
        let goal = "fill, remove, fill again, each time: the first capacity is reached (less one segment of decisions)";
        self.add(goal.into(), Unit::Count, least, whole, false, false);
        let none = self.median("held.none", selection::BYTES).map(|rate| 0.9 * rate);
        let some = self.median("held.some", selection::BYTES);
        self.at_least("1 % of events held under lease: 90 % of the rate without", Unit::PerSecond, some, none);
    }

    fn ring(&mut self) {
        let of = |judge: &Self, id| judge.median(id, ring::BYTES);
        let (measured, wanted) = (of(self, "ring.put"), of(self, "ring.events"));
        self.at_least(
            "ring put of 7200 B: as fast as put of the same frames as events",
            Unit::PerSecond,
            measured,
            wanted,
        );
        let (measured, wanted) = (of(self, "ring.window"), of(self, "ring.plain").map(|rate| 0.7 * rate));
        let goal = "ring, 1 ms of 48 links copied out: 70 % of a plain copy";
        self.at_least(goal, Unit::BytesPerSecond, measured, wanted);
        let measured = of(self, "ring.open");
        let goal = "ring, 1 ms of 48 links, bytes untouched: at most 100 µs";
        self.add(goal.into(), Unit::Micros, measured, Some(100.0), true, false);
        let measured = of(self, "ring.memory");
        let goal = "ring, memory per fragment: at most 24 B";
        self.add(goal.into(), Unit::Bytes, measured, Some(24.0), true, false);
    }

    fn recovery(&mut self) {
        for bytes in recovery::SIZES {
            let name = format!("{} KiB", bytes / KIB);
            let measured = self.median("open.rate", bytes);
            let goal = format!("reopening, {name}: 5 M fragments/s per core");
            self.at_least(goal, Unit::PerSecond, measured, Some(5e6));
            let (measured, read) = (self.median("open.verify", bytes), self.median("read.1", bytes));
            let goal = format!("reopening with verification, {name}: half of the read bandwidth, per core");
            self.at_least(goal, Unit::BytesPerSecond, measured, read.map(|read| 0.5 * read));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_figures_no_goal_is_met() {
        assert!(
            judge(&Results::default()).iter().all(|goal| !goal.met && goal.ratio.is_none() | goal.measured.is_none())
        );
    }

    #[test]
    fn bars_follow_the_figures_of_the_run() {
        let mut results = Results::default();
        results.record("put.cached.1", TEN_KIB, 0.95e6);
        results.record("redis.set.32", TEN_KIB, 1e5);
        results.record("memory.decided.dense", SMALL, 1.0);
        let goals = judge(&results);
        let find = |text: &str| goals.iter().find(|goal| goal.goal.contains(text)).unwrap();
        assert!(!find("1 M/s").met);
        assert!(find("9 × Redis").met && !find("7 × Redis").met);
        assert!(find("decided event, dense").met && !find("decided event, random").met);
    }
}
