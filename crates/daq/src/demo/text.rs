//! The summary as a page of text for a shifter.

use super::plan::mib;
use super::summary::Summary;
use forebay_core::Tally;
use std::fmt::Write;

/// What went wrong on devices, as many as are shown.
const NOTES_SHOWN: usize = 5;
/// Gaps of a beam that are shown one by one.
const GAPS_SHOWN: usize = 10;

impl Summary {
    /// The summary as text: lines of at most about 100 characters, without a final line break.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out.truncate(out.trim_end().len());
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        self.write_head(out)?;
        self.write_happened(out)?;
        self.write_roles(out)?;
        self.write_selection(out)?;
        self.write_warm(out)?;
        self.write_latencies(out)?;
        self.write_dead_time(out)?;
        self.write_ledger(out)
    }

    fn write_head(&self, out: &mut String) -> std::fmt::Result {
        let frames = self.frames.name();
        let what = match &self.input {
            Some(file) => format!("{frames} frames from {file}"),
            None => format!("emulated {frames} frames"),
        };
        let name = self.profile.map_or(String::new(), |name| format!("{name}: "));
        writeln!(
            out,
            "{name}{} sources × {} B = {} per event, {what}, hot level {}",
            grouped(self.sources.into()),
            grouped(self.fragment_bytes as u64),
            mib(self.event_bytes),
            mib(self.hot_bytes)
        )?;
        let interrupted = if self.interrupted { " (interrupted)" } else { "" };
        writeln!(out, "{:.1} s of data taking{interrupted}, {:.1} s to drain", self.taking_s, self.draining_s)?;
        let events = &self.events;
        writeln!(
            out,
            "{} events: {} accepted, {} rejected; {} with a signal",
            grouped(events.produced),
            grouped(events.accepted),
            grouped(events.rejected),
            grouped(events.with_signal)
        )
    }

    fn write_roles(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<12} {:>7} {:>14} {:>12} {:>14} {:>8}",
            "throughput", "threads", "events", "events/s", "fragments/s", "GB/s"
        )?;
        for role in &self.roles {
            writeln!(
                out,
                "{:<12} {:>7} {:>14} {:>12} {:>14} {:>8.2}",
                role.role,
                role.threads,
                grouped(role.events),
                grouped(role.events_per_second as u64),
                grouped(role.fragments_per_second as u64),
                role.gb_per_second
            )?;
        }
        Ok(())
    }

    fn write_happened(&self, out: &mut String) -> std::fmt::Result {
        if !self.happened.is_empty() {
            writeln!(out)?;
        }
        self.happened.iter().try_for_each(|happened| writeln!(out, "{:6.1} s  {}", happened.at_s, happened.what))
    }

    fn write_selection(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8}",
            "stage", "events", "rejected", "passed", "accepted", "incomplete", "fenced"
        )?;
        for stage in &self.stages {
            writeln!(
                out,
                "{:<12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8}",
                stage.stage,
                grouped(stage.events),
                grouped(stage.rejected),
                grouped(stage.passed),
                grouped(stage.accepted),
                grouped(stage.incomplete),
                grouped(stage.fenced)
            )?;
        }
        if !self.classes.is_empty() {
            writeln!(out, "\n{:<12} {:>12} {:>12} {:>12}", "class", "sources", "events", "complete")?;
        }
        for class in &self.classes {
            let (sources, events) = (grouped(class.sources), grouped(class.events));
            writeln!(out, "{:<12} {sources:>12} {events:>12} {:>12}", class.class, grouped(class.complete))?;
        }
        writeln!(out, "\n{:<12} {:>12} {:>12} {:>18}", "stream", "events", "fragments", "bytes")?;
        for stream in &self.streams {
            let (events, fragments) = (grouped(stream.events), grouped(stream.fragments));
            let (name, bytes) = (stream.stream, grouped(stream.bytes));
            writeln!(out, "{name:<12} {events:>12} {fragments:>12} {bytes:>18}  {}", stream.keeps)?;
        }
        if self.results_left_out > 0 {
            writeln!(out, "{} results left out: the store was full", grouped(self.results_left_out))?;
        }
        Ok(())
    }

    fn write_warm(&self, out: &mut String) -> std::fmt::Result {
        let Some(warm) = &self.warm else { return Ok(()) };
        let methods: Vec<&str> = warm.devices.iter().map(|device| device.method.as_str()).collect();
        writeln!(
            out,
            "\nwarm level     {} in {} containers of {} on {} ({})",
            mib(warm.container_bytes * u64::from(warm.containers)),
            warm.containers,
            mib(warm.container_bytes),
            if methods.len() == 1 { "1 device".to_owned() } else { format!("{} devices", methods.len()) },
            methods.join("; ")
        )?;
        writeln!(
            out,
            "demoted        {} events with {}; {} read back whole, {} fragments of them from there",
            grouped(warm.demoted_events),
            mib(warm.demoted_bytes),
            grouped(warm.read_back_events),
            grouped(warm.read_back_fragments)
        )?;
        writeln!(
            out,
            "               containers begun {} times, {:.0} % full at most, write amplification {:.3}",
            grouped(warm.containers_filled),
            warm.fill_most * 100.0,
            warm.write_amplification
        )?;
        warm.notes.iter().take(NOTES_SHOWN).try_for_each(|note| writeln!(out, "note           {note}"))
    }

    fn write_latencies(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<12} {:>14} {:>11} {:>11} {:>11} {:>11}",
            "latency, µs", "calls", "p50", "p99", "p99.9", "max"
        )?;
        for call in &self.latencies {
            writeln!(
                out,
                "{:<12} {:>14} {:>11.1} {:>11.1} {:>11.1} {:>11.1}",
                call.call,
                grouped(call.count),
                call.p50_us,
                call.p99_us,
                call.p999_us,
                call.max_us
            )?;
        }
        Ok(())
    }

    fn write_dead_time(&self, out: &mut String) -> std::fmt::Result {
        if self.dead_time.is_empty() {
            writeln!(out, "\ndead time      none")?;
        } else {
            writeln!(out, "\n{:<14} {:>9} {:>8}", "dead time", "s", "%")?;
            for dead in &self.dead_time {
                let (share, owner, detail) = (dead.share * 100.0, &dead.owner, &dead.detail);
                writeln!(out, "{:<14} {:>9.3} {share:>8.2}  {owner}: {detail}", dead.cause, dead.seconds)?;
            }
            let share = if self.taking_s > 0.0 { self.dead_time_s / self.taking_s * 100.0 } else { 0.0 };
            writeln!(out, "{:<14} {:>9.3} {share:>8.2}", "= in all", self.dead_time_s)?;
        }
        if self.lost_triggers > 0 {
            let why = if self.dead_time.is_empty() { "while the machine did something else" } else { "to dead time" };
            writeln!(out, "{} triggers lost {why}", grouped(self.lost_triggers))?;
        }
        if self.full_answers > 0 {
            let answers = grouped(self.full_answers);
            writeln!(out, "{answers} puts found no space and were repeated: {:.3} s per readout thread", self.full_s)?;
        }
        self.write_duty(out)
    }

    fn write_duty(&self, out: &mut String) -> std::fmt::Result {
        let Some(duty) = &self.duty else { return Ok(()) };
        writeln!(
            out,
            "\nbeam           on {:.0} % of {} s: {} events/s, {:.0} in the mean; the farm takes {:.0}",
            duty.share * 100.0,
            duty.period_s,
            grouped(duty.beam_events_per_second),
            duty.mean_events_per_second,
            duty.farm_events_per_second
        )?;
        writeln!(
            out,
            "backlog        {} events with {} at most, at {:.1} s",
            grouped(duty.backlog_most_events),
            mib(duty.backlog_most_bytes),
            duty.backlog_most_at_s
        )?;
        for gap in duty.gaps.iter().take(GAPS_SHOWN) {
            let (most, left) = (grouped(gap.most_events), grouped(gap.left_events));
            writeln!(out, "gap            until {:.1} s: {left} events left of {most}", gap.end_s)?;
        }
        let more = duty.periods.saturating_sub(GAPS_SHOWN as u64);
        if more > 0 {
            let worst = duty.gaps.iter().map(|gap| gap.left_events).max().unwrap_or(0);
            writeln!(out, "               and {} more; {} events left at most", grouped(more), grouped(worst))?;
        }
        Ok(())
    }

    fn write_ledger(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n{:<12} {:>14} {:>16} {:>20}", "ledger", "events", "fragments", "bytes")?;
        let mut row = |name: &str, tally: Tally| -> std::fmt::Result {
            // Terms that count fragments only have no events to show.
            let events = if tally.events > 0 { grouped(tally.events) } else { String::new() };
            writeln!(out, "{name:<12} {events:>14} {:>16} {:>20}", grouped(tally.fragments), grouped(tally.bytes))
        };
        row("offered", self.ledger.offered).and_then(|()| row("= stored", self.ledger.stored))?;
        for (name, tally) in [
            ("+ duplicate", self.ledger.duplicate),
            ("+ conflict", self.ledger.conflict),
            ("+ late", self.ledger.late),
            ("+ refused", self.ledger.refused),
        ] {
            row(name, tally)?;
        }
        row("stored", self.ledger.stored)?;
        for (at, (name, tally)) in self.ledger.stored_terms().into_iter().enumerate() {
            row(&format!("{} {name}", if at == 0 { '=' } else { '+' }), tally)?;
        }
        self.write_account(out)?;
        if self.balanced {
            return writeln!(out, "\nbalanced: every fragment is accounted for, nothing is left");
        }
        writeln!(out, "\nNOT BALANCED")?;
        self.problems.iter().try_for_each(|problem| writeln!(out, "  {problem}"))
    }
}

impl Summary {
    /// Completeness, producers, and the source that was to die.
    fn write_account(&self, out: &mut String) -> std::fmt::Result {
        let ledger = &self.ledger;
        writeln!(
            out,
            "\nevents       {} announced = {} complete + {} incomplete + {} never seen",
            grouped(ledger.announced()),
            grouped(ledger.complete),
            grouped(ledger.incomplete),
            grouped(ledger.never_seen)
        )?;
        for producer in &self.producers {
            let what = match (producer.announced, producer.fragments) {
                (announced, 0) => format!("announced {} events", grouped(announced)),
                (_, fragments) => {
                    format!("offered {} fragments, {} bytes", grouped(fragments), grouped(producer.bytes))
                }
            };
            let unknown = if producer.unknown { " (no last report)" } else { "" };
            writeln!(out, "{:<12} {what}{unknown}", producer.name)?;
        }
        if let Some(killed) = &self.killed {
            writeln!(
                out,
                "{:<12} {} fragments stored, missing in {} events, late {}; {}",
                format!("source {}", killed.source),
                grouped(killed.fragments),
                grouped(killed.missing),
                grouped(killed.late),
                killed.masked.as_ref().map_or_else(|| "not masked".to_owned(), |by| format!("masked {by}"))
            )?;
        }
        Ok(())
    }
}

/// A number with a comma after each group of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        DeadTime, Decided, DutySummary, Gap, Happened, LatencySummary, RoleSummary, StageSummary, StreamSummary,
        WarmDeviceSummary, WarmSummary,
    };
    use crate::frames::FrameKind;
    use forebay_core::Ledger;
    use forebay_store::ProducerStatus;

    fn summary() -> Summary {
        let one = Tally::fragment(7_200_000);
        let rejected = Tally::event(1, 7_200_000);
        let ledger = Ledger { offered: one, stored: one, rejected, complete: 12_345, ..Ledger::default() };
        Summary {
            profile: Some("atlas"),
            frames: FrameKind::WibEth,
            input: None,
            sources: 500,
            fragment_bytes: 10_240,
            event_bytes: 5_120_000,
            hot_bytes: 1 << 30,
            warm: Some(WarmSummary {
                devices: vec![WarmDeviceSummary { name: "/disk1/warm".into(), method: "io_uring, direct".into() }],
                containers: 15,
                container_bytes: 8 << 20,
                demoted_events: 1200,
                demoted_bytes: 98 << 20,
                saved_bytes: 0,
                read_back_events: 120,
                read_back_fragments: 58_000,
                containers_filled: 14,
                fill_most: 0.43,
                write_amplification: 1.0021,
                notes: vec!["container 3 of device 0: no".into()],
            }),
            directory: "/somewhere".into(),
            seed: 1,
            interrupted: true,
            taking_s: 10.0,
            draining_s: 0.25,
            roles: vec![RoleSummary {
                role: "readout",
                threads: 2,
                events: 12_345,
                fragments: 6_172_500,
                bytes: 63_206_400_000,
                seconds: 10.0,
                events_per_second: 1234.5,
                fragments_per_second: 617_250.0,
                gb_per_second: 6.32,
            }],
            latencies: vec![LatencySummary {
                call: "put",
                count: 6_172_500,
                p50_us: 1.2,
                p99_us: 3.4,
                p999_us: 56.0,
                max_us: 789.0,
            }],
            dead_time: vec![DeadTime {
                cause: "hot full",
                owner: "selection".into(),
                detail: "hot fill 92 %".into(),
                seconds: 1.5,
                share: 0.15,
            }],
            dead_time_s: 1.5,
            inhibit: Default::default(),
            lost_triggers: 7,
            full_answers: 3,
            full_s: 0.25,
            duty: Some(DutySummary {
                share: 0.5,
                period_s: 4.0,
                beam_events_per_second: 1234,
                mean_events_per_second: 617.0,
                farm_events_per_second: 710.0,
                backlog_most_events: 1050,
                backlog_most_bytes: 333 << 20,
                backlog_most_at_s: 2.01,
                left_allowed: 64,
                periods: 12,
                gaps: (1..=12).map(|n| Gap { end_s: f64::from(n) * 4.0, most_events: 1050, left_events: 3 }).collect(),
            }),
            events: Decided { produced: 12_345, accepted: 1200, rejected: 11_145, ..Decided::default() },
            stages: vec![StageSummary {
                stage: "fast",
                events: 12_345,
                fragments: 1,
                bytes: 1,
                rejected: 11_145,
                passed: 1200,
                accepted: 0,
                incomplete: 3,
                fenced: 0,
            }],
            classes: Vec::new(),
            streams: vec![StreamSummary {
                stream: "physics",
                events: 1200,
                fragments: 58_800,
                bytes: 1_000_000,
                keeps: "whole events".into(),
            }],
            results_left_out: 0,
            happened: vec![Happened { at_s: 3.04, what: "source 7 stops sending".into() }],
            killed: None,
            masks: Vec::new(),
            producers: vec![ProducerStatus {
                name: "readout-0".into(),
                finished: true,
                unknown: false,
                announced: 0,
                fragments: 5000,
                bytes: 10_000,
            }],
            ledger,
            balanced: true,
            problems: Vec::new(),
        }
    }

    #[test]
    fn a_shifter_finds_what_matters() {
        let text = summary().text();
        for line in [
            "atlas: 500 sources × 10,240 B = 4.88 MiB per event, emulated WIBEth frames, hot level 1024 MiB",
            "warm level     120 MiB in 15 containers of 8.00 MiB on 1 device (io_uring, direct)",
            "demoted        1,200 events with 98 MiB; 120 read back whole, 58,000 fragments of them from there",
            "               containers begun 14 times, 43 % full at most, write amplification 1.002",
            "note           container 3 of device 0: no",
            "10.0 s of data taking (interrupted), 0.2 s to drain",
            "12,345 events: 1,200 accepted, 11,145 rejected; 0 with a signal",
            "   3.0 s  source 7 stops sending",
            "fast               12,345       11,145        1,200            0            3        0",
            "physics             1,200       58,800          1,000,000  whole events",
            "events       12,345 announced = 12,345 complete + 0 incomplete + 0 never seen",
            "readout-0    offered 5,000 fragments, 10,000 bytes",
            "readout            2         12,345        1,234        617,250     6.32",
            "put               6,172,500         1.2         3.4        56.0       789.0",
            "hot full           1.500    15.00  selection: hot fill 92 %",
            "= in all           1.500    15.00",
            "7 triggers lost to dead time",
            "3 puts found no space and were repeated: 0.250 s per readout thread",
            "beam           on 50 % of 4 s: 1,234 events/s, 617 in the mean; the farm takes 710",
            "backlog        1,050 events with 333 MiB at most, at 2.0 s",
            "gap            until 40.0 s: 3 events left of 1,050",
            "               and 2 more; 3 events left at most",
            "= stored                                   1            7,200,000",
            "+ rejected                1                1            7,200,000",
            "balanced: every fragment is accounted for, nothing is left",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }

    #[test]
    fn an_imbalance_is_not_overlooked() {
        let problems = vec!["late fragments: 3, expected 0".to_owned()];
        let text = Summary { balanced: false, problems, dead_time: Vec::new(), ..summary() }.text();
        assert!(text.ends_with("NOT BALANCED\n  late fragments: 3, expected 0"), "{text}");
        assert!(text.contains("dead time      none") && !text.contains("balanced:"));
    }

    #[test]
    fn digits_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")] {
            assert_eq!(grouped(number), text);
        }
    }
}
