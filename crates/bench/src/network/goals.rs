//! The goals of the network and what this run says to each.

use crate::goals::{Goal, Judge};
use crate::results::{Results, Unit};

const TEN_KIB: usize = 10 << 10;
const SMALL: usize = 64;

/// Judges all goals.
pub(super) fn judge(results: &Results) -> Vec<Goal> {
    let mut judge = Judge::new(results);
    for (transport, name) in [("unix", "Unix socket"), ("tcp", "TCP")] {
        let of = |judge: &Judge<'_>, id: &str, bytes| judge.median(&format!("{transport}.{id}"), bytes);
        for way in ["put", "get"] {
            let share = of(&judge, &format!("{way}.share"), TEN_KIB);
            judge.at_least(format!("{way} 10 KiB, {name}: 70 % of the bare copy"), Unit::Share, share, Some(0.7));
        }
        let (put, set) = (of(&judge, "put", TEN_KIB), of(&judge, "redis.set", TEN_KIB).map(|rate| 2.0 * rate));
        judge.at_least(format!("put 10 KiB, {name}: 2 × Redis SET, pipeline 32"), Unit::PerSecond, put, set);
        for (way, test) in [("put", "set"), ("get", "get")] {
            let (ours, theirs) =
                (of(&judge, way, SMALL), of(&judge, &format!("redis.{test}"), SMALL).map(|rate| 3.0 * rate));
            let goal = format!("{way} 64 B in batches, {name}: 3 × Redis {}, pipeline 32", test.to_uppercase());
            judge.at_least(goal, Unit::PerSecond, ours, theirs);
        }
        for (cores, words) in [("one", "one core"), ("two", "two cores")] {
            for (quantile, times) in [("p50", 1.0), ("p99", 1.2)] {
                let ours = of(&judge, &format!("latency.{cores}.{quantile}"), SMALL);
                let theirs =
                    of(&judge, &format!("redis.latency.{cores}.{quantile}"), SMALL).map(|micros| times * micros);
                let goal = format!("round trip on {words}, {name}, {quantile}: at most {times} × Redis's");
                judge.add(goal, Unit::Micros, ours, theirs, true, false);
            }
        }
        for (bytes, size, times) in [(SMALL, "64 B", 1.0), (TEN_KIB, "10 KiB", 1.5)] {
            let ours = of(&judge, "resp.custom", bytes);
            let theirs = of(&judge, "redis.custom", bytes).map(|rate| times * rate);
            let goal = format!("redis-benchmark, SET {size}, pipeline 32, {name}: {times} × Redis");
            judge.at_least(goal, Unit::PerSecond, ours, theirs);
        }
        let share = of(&judge, "event.share", TEN_KIB);
        judge.at_least(format!("event of 100 × 10 KiB, {name}: 80 % of the bare copy"), Unit::Share, share, Some(0.8));
        let rate = of(&judge, "select", SMALL);
        judge.at_least(
            format!("get_any and verdict, one connection, {name}: 50 k/s"),
            Unit::PerSecond,
            rate,
            Some(5e4),
        );
    }
    for way in ["put", "get"] {
        let share = judge.median(&format!("tls.{way}.cipher.share"), TEN_KIB);
        let goal = format!("{way} 10 KiB, TLS: 80 % of 1/(1/without TLS + 1/cipher alone)");
        judge.at_least(goal, Unit::Share, share, Some(0.8));
    }
    for (id, bytes, wanted, what) in [
        ("put", TEN_KIB, 0.95, "put 10 KiB over 3 nodes: 95 % of one server"),
        ("put", SMALL, 0.9, "put 64 B in batches over 3 nodes: 90 % of one server"),
        ("select", SMALL, 0.8, "get_any and verdict over 3 nodes: 80 % of one server"),
        ("event", TEN_KIB, 0.8, "event of 100 × 10 KiB on four holders: 80 % of one server"),
        ("table.put", TEN_KIB, 0.9, "put 10 KiB with the home elsewhere: 90 % of at home"),
        ("held.put", TEN_KIB, 0.97, "put 10 KiB in the holder's process: 97 % of a store without a cluster"),
    ] {
        let share = judge.median(&format!("cluster.{id}.share"), bytes);
        judge.at_least(what, Unit::Share, share, Some(wanted));
    }
    let read = judge.median("map.read", 0);
    judge.add("a map of 500 nodes is read in 50 ms".to_owned(), Unit::Micros, read, Some(5e4), true, false);
    let share = judge.median("map.put.share", SMALL);
    judge.add("a put by that map: at most 1.05 × one node".to_owned(), Unit::Share, share, Some(1.05), true, false);
    let idle = judge.median("idle.bytes", 0);
    judge.add("an idle connection: at most 20 KiB".to_owned(), Unit::Bytes, idle, Some(20480.0), true, false);
    let share = judge.median("active.share", SMALL);
    judge.at_least("1,000 active connections: 85 % of what 10 do", Unit::Share, share, Some(0.85));
    judge.goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_figures_no_goal_is_met() {
        let results = Results::of(super::super::SERIES);
        assert!(judge(&results).iter().all(|goal| !goal.met && goal.measured.is_none()));
    }
}
