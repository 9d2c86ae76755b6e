//! A plan as a page for a person. Rates are in powers of 1000, as the field says them; sizes in powers of 1024.

use forebay_daq::figures::{bytes, number, percent, rate, time};
use forebay_daq::plan::{Bound, Sizing, WarmPlan, What};
use std::fmt::Write;

/// The plan as text: lines of at most about 110 characters, without a final line break.
pub(super) fn page(sizing: &Sizing) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, sizing);
    out.truncate(out.trim_end().len());
    out
}

fn write(out: &mut String, sizing: &Sizing) -> std::fmt::Result {
    let (setup, flow) = (&sizing.setup, &sizing.flow);
    let row = |out: &mut String, name: &str, text: String| writeln!(out, "  {name:<26} {text}");
    writeln!(
        out,
        "{} sources × {} B = {} per event, {} events/s, {} accepted, beam on {}",
        setup.sources,
        setup.fragment_bytes,
        bytes(sizing.event_bytes),
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

    writeln!(out, "\nhot    {}", bytes(setup.hot_bytes))?;
    row(
        out,
        "no selection",
        format!("{} ({} events below the high-water mark)", time(sizing.hot.without_selection_s), sizing.hot.events),
    )?;
    if let (Some(events), Some(latency)) = (sizing.hot.undecided_events, setup.decision_latency_s) {
        let share = events / sizing.hot.events as f64;
        row(out, "undecided", format!("{events:.0} events after {}: {} of them", time(latency), percent(share)))?;
    }
    if let Some(lagging) = sizing.hot.while_selection_lags_s {
        row(out, "selection lags", format!("{} until the high-water mark", time(lagging)))?;
    }
    match &sizing.warm {
        Some(warm) => write_warm(out, sizing, warm)?,
        None => writeln!(out, "\nwarm   none")?,
    }
    writeln!(out, "\nindex  {} of memory with both levels at their marks", bytes(sizing.index_bytes))?;
    if !sizing.bounds.is_empty() {
        writeln!(out, "\nwhat binds, tightest first")?;
    }
    for bound in &sizing.bounds {
        row(out, &bound.what.to_string(), format!("{:>6.2} ×   {}", bound.headroom, figures(bound)))?;
    }
    writeln!(out)?;
    for line in &sizing.advice {
        writeln!(out, "→ {line}")?;
    }
    Ok(())
}

fn write_warm(out: &mut String, sizing: &Sizing, warm: &WarmPlan) -> std::fmt::Result {
    let row = |out: &mut String, name: &str, text: String| writeln!(out, "  {name:<26} {text}");
    writeln!(
        out,
        "\nwarm   {} on {} device{}, {} containers, {} of payload below the high-water mark",
        bytes(warm.bytes),
        warm.devices,
        if warm.devices == 1 { "" } else { "s" },
        warm.containers,
        bytes(warm.usable_bytes as u64)
    )?;
    let lasting = match (warm.without_archive_s, warm.without_archive_mean_s) {
        (Some(peak), Some(mean)) if sizing.setup.duty < 1.0 => {
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
        let needed = sizing.flow.written_peak;
        row(out, "devices", format!("{} of write rate, {} needed in normal running", rate(write_rate), rate(needed)))?;
    }
    if let Some(drain) = warm.drain_s {
        row(out, "archive back", format!("{} until a full level is empty again", time(drain)))?;
    }
    let rated = match (sizing.setup.endurance, warm.endurance_margin) {
        (Some(rated), Some(margin)) => format!("; rated {rated}, {margin:.2} × that"),
        _ => String::new(),
    };
    let all = format!("{:.2} if every event were written", warm.writes_per_day_all);
    row(out, "drive writes per day", format!("{:.2} ({all}){rated}", warm.writes_per_day))
}

fn figures(bound: &Bound) -> String {
    match bound.what {
        What::Selection => format!("{} of {} events/s", number(bound.available), number(bound.needed)),
        What::Hot => format!("{:.0} of {:.0} events", bound.available, bound.needed),
        What::DeviceRate | What::Archive => format!("{} of {}", rate(bound.available), rate(bound.needed)),
        What::Warm => format!("{} of {}", bytes(bound.available as u64), bytes(bound.needed as u64)),
        What::Endurance => format!("{:.2} of {:.2} drive writes per day", bound.available, bound.needed),
    }
}
