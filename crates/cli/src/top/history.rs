//! Rates of the last minutes, for the lines that show how it was.

use super::view::Rates;
use std::collections::VecDeque;

/// Readings that are remembered: more than a screen is wide.
const LENGTH: usize = 512;

/// What is shown as rates, in this order.
pub(super) const RATES: [&str; 5] = ["puts", "stored", "in", "out", "verdicts"];

/// One line for each rate.
#[derive(Default)]
pub(super) struct History {
    lines: [VecDeque<u64>; RATES.len()],
}

/// The rates in the order of [`RATES`].
pub(super) fn values(rates: &Rates) -> [Option<f64>; RATES.len()] {
    [rates.puts, rates.stored_bytes, rates.received_bytes, rates.sent_bytes, rates.verdicts]
}

impl History {
    /// Adds one reading; one without rates leaves no trace.
    pub(super) fn add(&mut self, rates: &Rates) {
        for (line, value) in self.lines.iter_mut().zip(values(rates)) {
            let Some(value) = value else { continue };
            if line.len() == LENGTH {
                line.pop_front();
            }
            line.push_back(value as u64);
        }
    }

    /// The last values of a rate, the newest last.
    pub(super) fn last(&self, rate: usize, most: usize) -> Vec<u64> {
        let line = &self.lines[rate];
        line.iter().skip(line.len().saturating_sub(most)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_are_kept() {
        let mut history = History::default();
        for value in 0..2 * LENGTH {
            history.add(&Rates { puts: Some(value as f64), ..Rates::default() });
        }
        assert_eq!(history.last(0, 3), [2 * LENGTH as u64 - 3, 2 * LENGTH as u64 - 2, 2 * LENGTH as u64 - 1]);
        assert_eq!(history.last(0, usize::MAX).len(), LENGTH);
        assert!(history.last(1, 9).is_empty());
    }
}
