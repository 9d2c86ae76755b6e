//! The goals of the warm level and what this run says to each.

use super::super::goals::{Goal, Judge};
use super::super::results::{Results, Unit};

const KIB: usize = 1 << 10;
const TEN_KIB: usize = 10 * KIB;
const MIB: usize = 1 << 20;

/// Judges all goals. A goal that wants a second device is left out without one.
pub(super) fn judge(results: &Results, demoted_events: u64, two_devices: bool) -> Vec<Goal> {
    let mut judge = Judge::new(results);
    let share = |judge: &Judge<'_>, id: &str, bytes| judge.median(id, bytes);
    for (id, words) in [("again", "recycled containers"), ("first", "first filling")] {
        let measured = share(&judge, &format!("{id}.share"), TEN_KIB);
        let goal = format!("10 KiB fragments as events, 1 thread, {words}: 95 % of fio's sequential write");
        judge.at_least(goal, Unit::Share, measured, Some(0.95));
    }
    for (bytes, name, most) in [(TEN_KIB, "10 KiB", 1.02), (KIB, "1 KiB", 1.06)] {
        let measured = share(&judge, "amplification", bytes);
        let goal = format!("write amplification at {name}: at most {most}");
        judge.add(goal, Unit::Share, measured, Some(most), true, true);
    }
    for threads in [1, 4] {
        let measured = share(&judge, &format!("read.share.{threads}"), MIB);
        let goal = format!("whole events of 1 MiB, {threads} at a time: 90 % of fio's random read");
        judge.at_least(goal, Unit::Share, measured, Some(0.9));
    }
    let measured = share(&judge, "read.operations", MIB);
    judge.add("one device operation per event read".to_owned(), Unit::Share, measured, Some(1.0), true, true);
    let measured = share(&judge, "mixed.share.one", MIB);
    judge.at_least("writing while another container drains: 90 % of fio's sum", Unit::Share, measured, Some(0.9));
    if two_devices {
        let measured = share(&judge, "mixed.share.two", MIB);
        let goal = "writing one device while the other drains: 90 % of fio's sum";
        judge.at_least(goal, Unit::Share, measured, Some(0.9));
    }
    let measured = share(&judge, "cpu.beyond", TEN_KIB);
    let goal = "CPU beyond the copy: at most 0.15 core per GB/s written".to_owned();
    judge.add(goal, Unit::CoreSeconds, measured, Some(0.15), true, false);
    for (id, words) in [("pp", "`alice-pp` (2.5 MB)"), ("pbpb", "`alice-pbpb` (86.5 MB)")] {
        for (way, fraction) in [("write", 0.95), ("read", 0.9)] {
            let measured = only(results, &format!("{id}.{way}.share"));
            let goal = format!("{words}, {way}: {:.0} % of fio's sequential {way}", fraction * 100.0);
            judge.at_least(goal, Unit::Share, measured, Some(fraction));
        }
    }
    let measured = only(results, "memory.event");
    judge.add("memory per demoted event: at most 64 B".to_owned(), Unit::Bytes, measured, Some(64.0), true, false);
    let (measured, millions) = (only(results, "open.all"), demoted_events as f64 / 1e6);
    let goal = format!("reopening with {millions} M demoted events: at most 0.5 s per million");
    judge.add(goal, Unit::Seconds, measured, Some(0.5 * millions), true, false);
    let measured = only(results, "open.proportion");
    judge.add("reopening in proportion to their number".to_owned(), Unit::Share, measured, Some(1.2), true, false);
    judge.goals
}

/// Median of a series that was measured at one size.
fn only(results: &Results, id: &str) -> Option<f64> {
    results.rows().find(|row| row.series.id == id).map(|row| row.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_figures_no_goal_is_met() {
        let results = Results::of(super::super::SERIES);
        assert!(judge(&results, 10_000_000, true).iter().all(|goal| !goal.met && goal.measured.is_none()));
        assert!(judge(&results, 10_000_000, false).len() < judge(&results, 10_000_000, true).len());
    }

    #[test]
    fn bars_follow_the_figures_of_the_run() {
        let mut results = Results::of(super::super::SERIES);
        results.record("again.share", TEN_KIB, 0.96);
        results.record("first.share", TEN_KIB, 0.94);
        results.record("amplification", KIB, 1.07);
        results.record("read.operations", MIB, 1.0);
        let goals = judge(&results, 10_000_000, true);
        let find = |text: &str| goals.iter().find(|goal| goal.goal.contains(text)).unwrap();
        assert!(find("recycled").met && !find("first filling").met && !find("at 1 KiB").met);
        assert!(find("one device operation").met && !find("10 M demoted").met);
    }
}
