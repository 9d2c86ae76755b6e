//! What goes wrong, and when: drawn from the seed before the simulation begins, so that single faults can be left out.

use crate::net::Place;
use crate::world::Plan;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// One fault.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A node's process is killed, before this step of its medium; it comes back after a while.
    Kill { node: Place, step: u64, down: Duration },
    /// Its machine loses power likewise: what was not flushed is gone, word by word.
    PowerLoss { node: Place, step: u64, seed: u64, down: Duration },
    /// Its ticks stop for a while, and nothing goes into it or out of it. Timers of its sessions and its tasks go on.
    Pause(Place, Duration),
    /// Nothing arrives at a node.
    Deaf(Place, Duration),
    /// Nothing of a node arrives.
    Mute(Place, Duration),
    /// Nothing arrives at a node over the connections that are there, and new ones overtake them.
    Overtaken(Place, Duration),
    /// Nothing of the first node arrives at the second; clients reach both.
    OneWay(Place, Place, Duration),
    /// New connections to a node get no answer, and those that it has are reset.
    Cut(Place, Duration),
    /// All connections of a node are reset, now or after some more bytes.
    Reset(Place, Option<usize>),
    /// Everything to and from a node goes in small pieces.
    SlowDrain(Place, usize, Duration),
    /// A node's calendar jumps, in milliseconds.
    StepCalendar(Place, i64),
    /// No worker asks for events: stores fill.
    Strike(Duration),
    /// Devices of a node take nothing: writes and syncs fail.
    DevicesFail(Place, Duration),
    /// Nobody empties the warm levels.
    ArchiveAway(Duration),
}

/// Mean time between two faults.
const MEAN: f64 = 45.0;

/// All faults of a simulation, in order, with their moments.
pub(crate) fn schedule(plan: &Plan) -> Vec<(Duration, Fault)> {
    let mut random = SmallRng::seed_from_u64(plan.seed ^ 0xFA17);
    let mut at = Duration::from_secs(10);
    let mut all = Vec::new();
    while at < plan.length {
        all.push((at, draw(&mut random, plan.places().len(), plan.devices() > 0)));
        at += Duration::from_secs_f64(random.random_range(0.1..2.0 * MEAN));
    }
    all
}

fn draw(random: &mut SmallRng, nodes: usize, has_warm: bool) -> Fault {
    let mut time = |least: u64, most: u64| Duration::from_millis(random.random_range(least..most));
    let (short, long, strike) = (time(10, 3000), time(1000, 40_000), time(20_000, 300_000));
    let down = if random.random_bool(0.8) { short } else { long };
    let lasts = if random.random_bool(0.7) { short } else { long };
    let node = random.random_range(1..=nodes);
    if has_warm && random.random_bool(0.25) {
        return if random.random_bool(0.6) { Fault::DevicesFail(node, lasts) } else { Fault::ArchiveAway(strike) };
    }
    match random.random_range(0..if nodes > 1 { 14 } else { 11 }) {
        0 | 1 => Fault::Kill { node, step: random.random_range(1..60), down },
        2 | 3 => Fault::PowerLoss { node, step: random.random_range(1..60), seed: random.random(), down },
        4 => Fault::Pause(node, lasts),
        5 => match random.random_range(0..3) {
            0 => Fault::Deaf(node, lasts),
            1 => Fault::Mute(node, lasts),
            _ => Fault::Overtaken(node, long),
        },
        6 => Fault::Cut(node, long),
        7 => Fault::Reset(node, random.random_bool(0.8).then(|| random.random_range(1..2000))),
        8 => Fault::SlowDrain(node, random.random_range(1..64), long),
        9 => Fault::StepCalendar(node, random.random_range(-86_400_000..86_400_000)),
        10 => Fault::Strike(strike),
        11 => Fault::Overtaken(node, long),
        _ => Fault::OneWay(node, 1 + (node - 1 + random.random_range(1..nodes)) % nodes, lasts),
    }
}
