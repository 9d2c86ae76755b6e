//! Advice on a plan, in words: what falls short, by how much, and what would help.

use super::{Bound, HOT_HIGH, Sizing, WRITE_AMPLIFICATION, What};
use crate::figures::{bytes, rate, time};

/// Below this headroom a bound is close.
const CLOSE: f64 = 1.2;

pub(super) fn advice(sizing: &Sizing) -> Vec<String> {
    let mut lines: Vec<String> =
        sizing.bounds.iter().filter(|bound| bound.headroom < CLOSE).map(|bound| of_bound(sizing, bound)).collect();
    lines.extend(of_lag(sizing));
    lines.extend(of_missing_selection(sizing));
    match sizing.binds_first() {
        None => lines.push("give a latency or rate of the selection, or a warm level, to learn what binds".to_owned()),
        Some(bound) if bound.headroom >= CLOSE => {
            lines.push(format!(
                "everything suffices; at {:.1} times the rate {} binds first",
                bound.headroom, bound.what
            ));
        }
        Some(_) => {}
    }
    lines
}

fn of_bound(sizing: &Sizing, bound: &Bound) -> String {
    let setup = &sizing.setup;
    let verdict = if bound.headroom < 1.0 { "falls short" } else { "is close" };
    let more = bound.needed * CLOSE;
    let what = bound.what;
    match what {
        What::Selection => format!(
            "{what} {verdict}: {:.0} of {:.0} events/s over all the time; plan for {more:.0}",
            bound.available, bound.needed
        ),
        What::Hot => {
            let room = bytes((setup.hot_bytes as f64 / bound.headroom * CLOSE) as u64);
            let spilled = 100.0 * (1.0 - bound.headroom);
            match &sizing.warm {
                _ if spilled <= 0.0 => format!("{what} {verdict} for this latency; {room} would leave some room"),
                Some(_) => format!(
                    "{what} {verdict} for this latency: {spilled:.0} % of the events go to warm undecided; {room} would hold them"
                ),
                None => {
                    format!("{what} {verdict} for this latency: puts wait for space; {room} would hold everything")
                }
            }
        }
        What::DeviceRate => {
            let devices = (more / setup.device_write_rate.unwrap_or(more)).ceil();
            format!(
                "{what} {verdict}: {} of {}; {devices:.0} devices would do",
                rate(bound.available),
                rate(bound.needed)
            )
        }
        What::Archive => format!(
            "{what} {verdict}: {} of {} over all the time{}; plan for {}",
            rate(bound.available),
            rate(bound.needed),
            match &sizing.warm {
                Some(warm) if bound.headroom < 1.0 => format!(
                    ", so that warm is full after {}",
                    time(warm.usable_bytes / (bound.needed - bound.available))
                ),
                _ => String::new(),
            },
            rate(more)
        ),
        What::Warm => {
            let needed = sizing.warm.map_or(0.0, |warm| warm.bytes_for_autonomy);
            format!(
                "{what} {verdict}: {} without the archive take {} of devices",
                time(setup.autonomy_s),
                bytes(needed as u64)
            )
        }
        What::Endurance => format!(
            "{what} {verdict}: {:.2} drive writes per day, rated {:.2}; {} of devices would bring it to the rating",
            bound.needed,
            bound.available,
            bytes((sizing.warm.map_or(0.0, |warm| warm.bytes as f64) / bound.headroom) as u64)
        ),
    }
}

/// A selection that is slower than the beam works its backlog off in the pauses.
fn of_lag(sizing: &Sizing) -> Option<String> {
    let (setup, hot) = (&sizing.setup, &sizing.hot);
    let lagging = hot.while_selection_lags_s?;
    let filter = setup.filter_rate?;
    let mut line = format!(
        "while the beam is on the selection lags by {:.0} events/s: hot reaches {:.0} % after {}",
        setup.event_rate - filter,
        HOT_HIGH * 100.0,
        time(lagging)
    );
    if filter > setup.event_rate * setup.duty {
        line.push_str("; the backlog drains in the pauses");
        if let Some(warm) = &sizing.warm {
            // What is not decided, and what is accepted of the rest.
            let grows = sizing.flow.in_peak * (1.0 - filter / setup.event_rate)
                + sizing.flow.accepted_peak * filter / setup.event_rate;
            line.push_str(&format!(", and warm takes it for {} before that", time(warm.usable_bytes / grows)));
        }
    }
    Some(line)
}

fn of_missing_selection(sizing: &Sizing) -> Option<String> {
    let warm = sizing.warm.as_ref().filter(|warm| warm.without_selection_device_bound == Some(true))?;
    let device = sizing.setup.device_write_rate?;
    let needed = sizing.flow.in_peak * WRITE_AMPLIFICATION;
    Some(format!(
        "without a selection the devices take {} of {}: puts wait after {}; {:.0} devices would take everything",
        rate(warm.write_rate?),
        rate(needed),
        time(warm.without_selection_s),
        (needed / device).ceil()
    ))
}

impl std::fmt::Display for What {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(match self {
            What::Selection => "the selection",
            What::Hot => "the hot level",
            What::DeviceRate => "the devices' write rate",
            What::Archive => "the archive",
            What::Warm => "the warm level",
            What::Endurance => "the drives' endurance",
        })
    }
}
