//! What goes wrong, and when: drawn from the seed before the simulation begins, so that single faults can be left out.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// One fault.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The server's process is killed, before this step of its medium; it comes back after a while.
    Kill { step: u64, down: Duration },
    /// Its machine loses power likewise: what was not flushed is gone, word by word.
    PowerLoss { step: u64, seed: u64, down: Duration },
    /// Nothing of it runs for a while.
    Pause(Duration),
    /// Nothing arrives at the server (0) or at clients (1).
    Stall(usize, Duration),
    /// New connections get no answer.
    Cut(Duration),
    /// All connections are reset, now or after some more bytes.
    Reset(Option<usize>),
    /// Everything goes in small pieces.
    SlowDrain(usize, Duration),
    /// The calendar jumps, in milliseconds.
    StepCalendar(i64),
}

/// Mean time between two faults.
const MEAN: f64 = 45.0;

/// All faults of a simulation of this length, in order, with their moments.
pub(crate) fn schedule(seed: u64, length: Duration) -> Vec<(Duration, Fault)> {
    let mut random = SmallRng::seed_from_u64(seed ^ 0xFA17);
    let mut at = Duration::from_secs(10);
    let mut all = Vec::new();
    while at < length {
        all.push((at, draw(&mut random)));
        at += Duration::from_secs_f64(random.random_range(0.1..2.0 * MEAN));
    }
    all
}

fn draw(random: &mut SmallRng) -> Fault {
    let mut time = |least: u64, most: u64| Duration::from_millis(random.random_range(least..most));
    let (short, long) = (time(10, 3000), time(1000, 40_000));
    let down = if random.random_bool(0.8) { short } else { long };
    match random.random_range(0..10) {
        0 | 1 => Fault::Kill { step: random.random_range(1..60), down },
        2 | 3 => Fault::PowerLoss { step: random.random_range(1..60), seed: random.random(), down },
        4 => Fault::Pause(if random.random_bool(0.7) { short } else { long }),
        5 => Fault::Stall(random.random_range(0..2), if random.random_bool(0.7) { short } else { long }),
        6 => Fault::Cut(long),
        7 => Fault::Reset(random.random_bool(0.8).then(|| random.random_range(1..2000))),
        8 => Fault::SlowDrain(random.random_range(1..64), long),
        _ => Fault::StepCalendar(random.random_range(-86_400_000..86_400_000)),
    }
}
