//! How full the warm level is, and of what: what inhibit asks.

use crate::pressure::{Largest, WarmFill, WarmGauge};
use crate::warm::{Phase, Warm};
use forebay_core::Stream;

impl WarmGauge for Warm {
    fn warm_fill(&self) -> WarmFill {
        let mut by_kind = [("ready", 0.0), ("accepted", 0.0), ("debug", 0.0), ("recorded", 0.0)];
        let containers = self.containers();
        let share = 1.0 / containers.len().max(1) as f64;
        for info in &containers {
            if matches!(info.phase, Phase::Empty | Phase::Lost) {
                continue;
            }
            let kind = match info.header.stream {
                Stream::Undecided => 0,
                Stream::Accepted(_) | Stream::Shared => 1,
                Stream::Debug => 2,
                Stream::Recording(_) => 3,
            };
            by_kind[kind].1 += share;
        }
        let largest = by_kind.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(by_kind[0]);
        WarmFill {
            fill: self.fill(),
            free_containers: self.free_containers(),
            stalled: self.devices().into_iter().find(|device| device.stalled).map(|device| device.name),
            largest: Largest { share: largest.1, what: largest.0 },
        }
    }
}
