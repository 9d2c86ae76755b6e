//! A plan as a page for a person. Rates are in powers of 1000, as the field says them; sizes in powers of 1024.

use super::{Bound, Sizing, WarmPlan, What};
use std::fmt::Write;

impl Sizing {
    /// The plan as text: lines of at most about 110 characters, without a final line break.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out.truncate(out.trim_end().len());
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let (setup, flow) = (&self.setup, &self.flow);
        let row = |out: &mut String, name: &str, text: String| writeln!(out, "  {name:<26} {text}");
        writeln!(
            out,
            "{} sources × {} B = {} per event, {} events/s, {} accepted, beam on {}",
            setup.sources,
            setup.fragment_bytes,
            size(self.event_bytes as f64),
            number(setup.event_rate),
            percent(setup.accept),
            percent(setup.duty)
        )?;
        let mean = |peak: f64, mean: f64| match setup.duty < 1.0 {
            true => format!("{} with beam, {} over all the time", rate(peak), rate(mean)),
            false => rate(peak),
        };
        row(out, "in", mean(flow.in_peak, flow.in_mean))?;
        row(out, "accepted", mean(flow.accepted_peak, flow.accepted_mean))?;

        writeln!(out, "\nhot    {}", size(setup.hot_bytes as f64))?;
        row(
            out,
            "no selection",
            format!("{} ({} events below the high-water mark)", time(self.hot.without_selection_s), self.hot.events),
        )?;
        if let (Some(events), Some(latency)) = (self.hot.undecided_events, setup.decision_latency_s) {
            let share = events / self.hot.events as f64;
            row(out, "undecided", format!("{events:.0} events after {}: {} of them", time(latency), percent(share)))?;
        }
        if let Some(lagging) = self.hot.while_selection_lags_s {
            row(out, "selection lags", format!("{} until the high-water mark", time(lagging)))?;
        }
        match &self.warm {
            Some(warm) => self.write_warm(out, warm)?,
            None => writeln!(out, "\nwarm   none")?,
        }
        writeln!(out, "\nindex  {} of memory with both levels at their marks", size(self.index_bytes as f64))?;
        if !self.bounds.is_empty() {
            writeln!(out, "\nwhat binds, tightest first")?;
        }
        for bound in &self.bounds {
            row(out, &bound.what.to_string(), format!("{:>6.2} ×   {}", bound.headroom, figures(bound)))?;
        }
        writeln!(out)?;
        for line in &self.advice {
            writeln!(out, "→ {line}")?;
        }
        Ok(())
    }

    fn write_warm(&self, out: &mut String, warm: &WarmPlan) -> std::fmt::Result {
        let row = |out: &mut String, name: &str, text: String| writeln!(out, "  {name:<26} {text}");
        writeln!(
            out,
            "\nwarm   {} on {} device{}, {} containers, {} of payload below the high-water mark",
            size(warm.bytes as f64),
            warm.devices,
            if warm.devices == 1 { "" } else { "s" },
            warm.containers,
            size(warm.usable_bytes)
        )?;
        let lasting = match (warm.without_archive_s, warm.without_archive_mean_s) {
            (Some(peak), Some(mean)) if self.setup.duty < 1.0 => {
                format!("{} with beam, {} with its pauses", time(peak), time(mean))
            }
            (Some(peak), _) => time(peak),
            (None, _) => "for ever: nothing is accepted".to_owned(),
        };
        row(out, "no archive", lasting)?;
        let bound = match warm.without_selection_device_bound {
            Some(true) => ": the devices are too slow to take everything",
            Some(false) => ", everything demoted",
            None => ", if the devices can take everything",
        };
        row(out, "no selection, both levels", format!("{}{bound}", time(warm.without_selection_s)))?;
        if let Some(write_rate) = warm.write_rate {
            let needed = self.flow.written_peak;
            row(
                out,
                "devices",
                format!("{} of write rate, {} needed in normal running", rate(write_rate), rate(needed)),
            )?;
        }
        if let Some(drain) = warm.drain_s {
            row(out, "archive back", format!("{} until a full level is empty again", time(drain)))?;
        }
        let rated = match (self.setup.endurance, warm.endurance_margin) {
            (Some(rated), Some(margin)) => format!("; rated {rated}, {margin:.2} × that"),
            _ => String::new(),
        };
        let all = format!("{:.2} if every event were written", warm.writes_per_day_all);
        row(out, "drive writes per day", format!("{:.2} ({all}){rated}", warm.writes_per_day))
    }
}

fn figures(bound: &Bound) -> String {
    match bound.what {
        What::Selection => format!("{} of {} events/s", number(bound.available), number(bound.needed)),
        What::Hot => format!("{:.0} of {:.0} events", bound.available, bound.needed),
        What::DeviceRate | What::Archive => format!("{} of {}", rate(bound.available), rate(bound.needed)),
        What::Warm => format!("{} of {}", size(bound.available), size(bound.needed)),
        What::Endurance => format!("{:.2} of {:.2} drive writes per day", bound.available, bound.needed),
    }
}

fn three(value: f64) -> String {
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut at) = (value, 0);
    while value >= step * 0.9995 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    format!("{} {}", three(value), units[at])
}

/// Bytes, in powers of 1024.
pub(super) fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Bytes per second, in powers of 1000.
pub(super) fn rate(bytes: f64) -> String {
    scaled(bytes, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// A duration in the unit that suits it.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{} ms", three(s * 1e3)),
        s if s < 120.0 => format!("{} s", three(s)),
        s if s < 7200.0 => format!("{} min", three(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", three(s / 3600.0)),
        s => format!("{} days", three(s / 86_400.0)),
    }
}

fn number(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M"]).trim_end().to_owned()
}

fn percent(share: f64) -> String {
    format!("{} %", three(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(
            [0.001, 1.5, 119.0, 150.0, 43_200.0, 864_000.0].map(time),
            ["1.00 ms", "1.50 s", "119 s", "2.50 min", "12.0 h", "10.0 days"]
        );
        assert_eq!([512.0, 5_120_000.0].map(size), ["512 B", "4.88 MiB"]);
        assert_eq!([999.9, 10.24e9, 5.12e12, 7e15].map(rate), ["1.00 kB/s", "10.2 GB/s", "5.12 TB/s", "7000 TB/s"]);
        assert_eq!([12.0, 750e3].map(number), ["12.0", "750 k"]);
        assert_eq!(percent(0.0117), "1.17 %");
    }
}
