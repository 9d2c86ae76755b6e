//! The summary as a page of text for a shifter.

use super::summary::MiniDaqSummary;
use crate::demo::plan::mib;
use crate::demo::text::grouped;
use std::fmt::{Result, Write};

/// Links that are shown one by one; of more, as many with something amiss.
const LINKS_SHOWN: usize = 8;

impl MiniDaqSummary {
    /// The summary as text: lines of at most about 110 characters, without a final line break.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out.truncate(out.trim_end().len());
        out
    }

    fn write(&self, out: &mut String) -> Result {
        self.write_head(out)?;
        self.write_links(out)?;
        self.write_ring(out)?;
        self.write_windows(out)?;
        self.write_records(out)?;
        self.write_latencies(out)?;
        self.write_dead_time(out)?;
        if self.balanced {
            return writeln!(out, "\nbalanced: every frame and every trigger record is accounted for, nothing is left");
        }
        writeln!(out, "\nNOT BALANCED")?;
        self.problems.iter().try_for_each(|problem| writeln!(out, "  {problem}"))
    }

    fn write_head(&self, out: &mut String) -> Result {
        let frames = self.frames.name();
        let what = match &self.input {
            Some(file) => format!("{frames} frames from {file}"),
            None => format!("emulated {frames} frames"),
        };
        let rate = match self.frames_per_second {
            Some(rate) => format!("{:.3} kHz each", rate / 1e3),
            None => "as fast as it goes".to_owned(),
        };
        let n = self.links.len();
        let links = if n == 1 { "link" } else { "links" };
        writeln!(
            out,
            "dune: {n} {links}, {what}, {rate}; ring {}, hot level {}",
            mib(self.ring.bytes),
            mib(self.hot_bytes)
        )?;
        let ms = |ticks: u64| ticks as f64 / self.ticks_per_second as f64 * 1e3;
        let interrupted = if self.interrupted { " (interrupted)" } else { "" };
        writeln!(
            out,
            "windows from {:.3} ms before to {:.3} ms after a trigger; {:.1} s of data taking{interrupted}, {:.1} s to drain",
            ms(self.window_before_ticks),
            ms(self.window_after_ticks),
            self.taking_s,
            self.draining_s
        )
    }

    fn write_links(&self, out: &mut String) -> Result {
        writeln!(
            out,
            "\n{:<8} {:>14} {:>18} {:>9} {:>10} {:>10} {:>10}",
            "link", "frames", "bytes", "kHz", "refused", "lost", "paused"
        )?;
        let mut row = |name: &str, frames: u64, bytes: u64, rest: [u64; 3]| {
            let khz = if self.readout_s > 0.0 { frames as f64 / self.readout_s / 1e3 } else { 0.0 };
            writeln!(
                out,
                "{name:<8} {:>14} {:>18} {khz:>9.3} {:>10} {:>10} {:>10}",
                grouped(frames),
                grouped(bytes),
                grouped(rest[0]),
                grouped(rest[1]),
                grouped(rest[2])
            )
        };
        let (mut frames, mut bytes, mut rest, mut shown) = (0, 0, [0; 3], 0);
        for link in &self.links {
            let amiss = [link.refused, link.lost, link.paused];
            if self.links.len() <= LINKS_SHOWN || amiss != [0; 3] && shown < LINKS_SHOWN {
                row(&link.link.to_string(), link.frames, link.bytes, amiss)?;
                shown += 1;
            }
            (frames, bytes) = (frames + link.frames, bytes + link.bytes);
            rest = std::array::from_fn(|at| rest[at] + amiss[at]);
        }
        row("all", frames, bytes, rest)
    }

    fn write_ring(&self, out: &mut String) -> Result {
        let ledger = &self.ring.ledger;
        let live: u64 = ledger.live.iter().map(|tally| tally.fragments).sum();
        writeln!(
            out,
            "\nring      {:.2} GB/s in; {} ms of history; {} chunks evicted; {} beside the region",
            self.ring.gb_per_second,
            self.ring.history_ms,
            grouped(self.ring.evicted_chunks),
            mib(self.ring.memory_bytes)
        )?;
        writeln!(
            out,
            "ledger    {} offered = {} stored + {} refused; {} stored = {} kept + {} expired",
            grouped(ledger.offered.fragments),
            grouped(ledger.stored.fragments),
            grouped(ledger.refused.fragments),
            grouped(ledger.stored.fragments),
            grouped(live),
            grouped(ledger.expired.fragments)
        )?;
        if self.ring.gaps.is_empty() {
            return writeln!(out, "gaps      none in what is kept");
        }
        self.ring.gaps.iter().try_for_each(|gap| {
            let (gaps, ticks) = (grouped(gap.gaps), grouped(gap.ticks));
            writeln!(out, "gaps      {}: {gaps} in what is kept, {ticks} ticks", gap.cause.name())
        })
    }

    fn write_windows(&self, out: &mut String) -> Result {
        let windows = &self.windows;
        writeln!(
            out,
            "windows   {} asked: {} complete, {} incomplete, {} empty, {} invalid, {} not answered, {} late",
            grouped(windows.asked),
            grouped(windows.complete),
            grouped(windows.incomplete),
            grouped(windows.empty),
            grouped(windows.invalid),
            grouped(windows.unanswered),
            grouped(windows.late)
        )?;
        if windows.timed_out + windows.gone > 0 {
            let (timed_out, gone) = (grouped(windows.timed_out), grouped(windows.gone));
            writeln!(out, "          {timed_out} timed out, {gone} partly or wholly gone or before the first frame")?;
        }
        windows.gaps.iter().try_for_each(|gap| {
            let (gaps, ticks) = (grouped(gap.gaps), grouped(gap.ticks));
            writeln!(out, "          gaps {}: {gaps} in windows, {ticks} ticks", gap.cause.name())
        })
    }

    fn write_records(&self, out: &mut String) -> Result {
        let records = &self.records;
        writeln!(
            out,
            "triggers  {} due: {} issued, {} lost to dead time, {} overslept",
            grouped(records.due),
            grouped(records.announced),
            grouped(records.lost),
            grouped(records.late)
        )?;
        writeln!(
            out,
            "records   {} announced: {} complete, {} incomplete; {} without fragments at their time-out",
            grouped(records.announced),
            grouped(records.complete),
            grouped(records.incomplete),
            grouped(records.short)
        )?;
        writeln!(
            out,
            "          {} accepted, {} rejected; {} verified and released by the archive; most in flight {}",
            grouped(records.accepted),
            grouped(records.rejected),
            grouped(records.released),
            records.in_flight_most
        )?;
        let seconds = (self.taking_s + self.draining_s).max(f64::MIN_POSITIVE);
        writeln!(
            out,
            "          {} bytes checked ({:.2} GB/s), {} bytes to the archive",
            grouped(self.record_bytes),
            self.record_bytes as f64 / seconds / 1e9,
            grouped(self.archived_bytes)
        )
    }

    fn write_latencies(&self, out: &mut String) -> Result {
        writeln!(
            out,
            "\n{:<12} {:>14} {:>11} {:>11} {:>11} {:>11}",
            "latency, µs", "calls", "p50", "p99", "p99.9", "max"
        )?;
        self.latencies.iter().filter(|call| call.count > 0).try_for_each(|call| {
            writeln!(
                out,
                "{:<12} {:>14} {:>11.1} {:>11.1} {:>11.1} {:>11.1}",
                call.call,
                grouped(call.count),
                call.p50_us,
                call.p99_us,
                call.p999_us,
                call.max_us
            )
        })
    }

    fn write_dead_time(&self, out: &mut String) -> Result {
        if self.dead_time.is_empty() {
            return writeln!(out, "\ndead time    none");
        }
        writeln!(out, "\n{:<20} {:>9} {:>8} {:>7} {:>9}", "dead time", "s", "%", "times", "triggers")?;
        self.dead_time.iter().try_for_each(|dead| {
            writeln!(
                out,
                "{:<20} {:>9.3} {:>8.2} {:>7} {:>9}  {}",
                dead.cause,
                dead.seconds,
                dead.share * 100.0,
                grouped(dead.times),
                grouped(dead.triggers_lost),
                dead.detail
            )
        })
    }
}
