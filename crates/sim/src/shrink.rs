//! Fewer faults that are enough: what a person reads of a seed that fails.

use crate::faults::schedule;
use crate::world::{Plan, simulate};
use std::time::Duration;

/// Leaves out faults as long as something is still wrong, in at most `trials` simulations. The plan that it answers ends
/// soon after the moment at which something is wrong.
pub fn shrink(plan: &Plan, trials: usize) -> Plan {
    let mut best = plan.clone();
    let Some((at, _)) = simulate(&best).wrong else { return best };
    best.length = at + Duration::from_secs(1);
    let count = schedule(plan).iter().take_while(|fault| fault.0 <= at).count();
    let mut left = trials;
    // First halves, then smaller parts, as in delta debugging (Zeller and Hildebrandt, 2002).
    let mut part = count.div_ceil(2).max(1);
    loop {
        for first in (0..count).step_by(part) {
            if left == 0 {
                return best;
            }
            let mut trial = best.clone();
            trial.without.extend(first..(first + part).min(count));
            if trial.without == best.without {
                continue;
            }
            left -= 1;
            if let Some((at, _)) = simulate(&trial).wrong {
                trial.length = at + Duration::from_secs(1);
                best = trial;
            }
        }
        if part == 1 {
            return best;
        }
        part = part.div_ceil(2);
    }
}
