//! Progress of a scenario: named figures, the same for all scenarios, reported at even intervals.
//!
//! ```text
//! counters ─read twice─▶ rates ┐
//! fills, states ───────────────┴─▶ Progress ─▶ the caller of the scenario
//! ```
//!
//! *Not here*: how a person sees it.

use crate::limits::PROGRESS_EVERY;
use std::time::Instant;

/// Where a scenario is between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The readout produces.
    Taking,
    /// The readout has ended; what is there gets decided.
    Draining,
}

/// One figure, with its unit. Rates are those since the report before.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A number of things.
    Count(u64),
    /// Things per second.
    PerSecond(f64),
    /// Bytes per second.
    BytesPerSecond(f64),
    /// Bytes.
    Bytes(u64),
    /// A part of a whole, 0 to 1.
    Share(f64),
    /// A state, in words.
    Words(String),
}

/// A report on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Where the scenario is.
    pub phase: Phase,
    /// Seconds since it began.
    pub elapsed_s: f64,
    /// Figures by name, what matters most first.
    pub figures: Vec<(&'static str, Figure)>,
}

/// The caller's side of progress.
pub type Told<'t> = dyn FnMut(&Progress) + 't;

/// Tells progress at even intervals.
pub(crate) struct Reporter<'t> {
    told: &'t mut Told<'t>,
    start: Instant,
    last: Instant,
    /// Counters at the report before, in the order in which rates are asked for.
    before: Vec<u64>,
}

impl<'t> Reporter<'t> {
    pub(crate) fn new(told: &'t mut Told<'t>) -> Reporter<'t> {
        let now = Instant::now();
        Reporter { told, start: now, last: now, before: Vec::new() }
    }

    /// Reports if it is time; only then are the figures read.
    pub(crate) fn tick(&mut self, phase: Phase, read: impl FnOnce(&mut Figures<'_>)) {
        let interval = self.last.elapsed();
        if interval < PROGRESS_EVERY {
            return;
        }
        // Not `last + PROGRESS_EVERY`: after a long pause there is one report, not one for each interval that was
        // missed.
        self.last = Instant::now();
        let mut figures =
            Figures { seconds: interval.as_secs_f64(), before: &mut self.before, rates: 0, list: Vec::new() };
        read(&mut figures);
        // Rates are told apart by their order alone: a report that left one out would mix them up.
        debug_assert_eq!(figures.rates, figures.before.len(), "every report asks for the same rates");
        let figures = figures.list;
        (self.told)(&Progress { phase, elapsed_s: self.start.elapsed().as_secs_f64(), figures });
    }
}

/// The figures of one report.
pub(crate) struct Figures<'r> {
    seconds: f64,
    before: &'r mut Vec<u64>,
    rates: usize,
    list: Vec<(&'static str, Figure)>,
}

impl Figures<'_> {
    pub(crate) fn set(&mut self, name: &'static str, figure: Figure) {
        self.list.push((name, figure));
    }

    /// The rate of a counter that is at `now`.
    pub(crate) fn rate(&mut self, name: &'static str, now: u64) {
        let rate = self.since_before(now);
        self.set(name, Figure::PerSecond(rate));
    }

    /// The same of a counter of bytes.
    pub(crate) fn byte_rate(&mut self, name: &'static str, now: u64) {
        let rate = self.since_before(now);
        self.set(name, Figure::BytesPerSecond(rate));
    }

    fn since_before(&mut self, now: u64) -> f64 {
        if self.rates == self.before.len() {
            self.before.push(0);
        }
        let before = std::mem::replace(&mut self.before[self.rates], now);
        self.rates += 1;
        now.saturating_sub(before) as f64 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_since_the_report_before() {
        let mut told = Vec::new();
        let mut keep = |progress: &Progress| told.push(progress.clone());
        let mut reporter = Reporter::new(&mut keep);
        let mut counter = 1000;
        let begun = Instant::now();
        while begun.elapsed() < PROGRESS_EVERY * 5 / 2 {
            std::thread::sleep(PROGRESS_EVERY / 50);
            reporter.tick(Phase::Taking, |figures| {
                figures.rate("first", 7);
                figures.rate("second", counter);
                figures.set("fill", Figure::Share(0.5));
                counter += 1000;
            });
        }
        assert!(told.len() >= 2, "{told:?}");
        let [(_, Figure::PerSecond(first)), (_, Figure::PerSecond(second)), _] = told[1].figures[..] else {
            panic!("{told:?}")
        };
        assert!(first == 0.0 && second > 0.0 && second <= 1000.0 / PROGRESS_EVERY.as_secs_f64(), "{told:?}");
    }
}
