//! The beam that is on for a part of each period, and the farm that is sized for the mean of it.
//!
//! ```text
//! beam     ████████░░░░░░░░████████░░░░░░░░      share of each period, `rate` events a second
//! farm     ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄ ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄       a little more than rate × share, at all times
//! backlog  ╱╲ grows with rate − farm, drains in the gap
//! ```

use super::DemoConfig;
use crate::figures::within;
use crate::limits::{
    BEAM_BYTES_PER_SECOND, BEAM_HOT_SHARE, DUTY_PERIOD_MAX, DUTY_PERIOD_MIN, FARM_BURST, FARM_HEADROOM,
};
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use std::time::Instant;

/// When the beam is on. Times are nanoseconds since data taking began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beam {
    on_ns: u64,
    period_ns: u64,
}

impl Beam {
    /// Time with beam, up to `now`.
    pub(crate) fn time(self, now: u64) -> u64 {
        now / self.period_ns * self.on_ns + (now % self.period_ns).min(self.on_ns)
    }

    /// When the beam went off, where it is off.
    pub(crate) fn off_since(self, now: u64) -> Option<u64> {
        let begin = now / self.period_ns * self.period_ns;
        (now - begin >= self.on_ns).then_some(begin + self.on_ns)
    }

    /// Periods that are over.
    pub(crate) fn periods(self, now: u64) -> u64 {
        now / self.period_ns
    }

    /// When a period ends.
    pub(crate) fn end_of(self, period: u64) -> u64 {
        period.saturating_add(1).saturating_mul(self.period_ns)
    }
}

/// The beam of these choices, and the rates that they leave open: of the beam, and of the farm. `stored_bytes` is what
/// an event takes of the hot level.
///
/// # Errors
/// `Invalid` for a beam that is always on or off, a period out of bounds, less than one period of data taking.
pub(super) fn size(config: &mut DemoConfig, stored_bytes: u64) -> Result<Option<Beam>> {
    within("the farm's events per second", config.farm_events_per_second, 0.0, 1e9)?;
    let Some(duty) = config.duty else { return Ok(None) };
    within(
        "the period of the beam in seconds",
        duty.period_s,
        DUTY_PERIOD_MIN.as_secs_f64(),
        DUTY_PERIOD_MAX.as_secs_f64(),
    )?;
    within("the share of each period with beam", duty.share, 0.001, 0.999)?;
    if config.seconds < duty.period_s {
        return Err(Error::invalid(format!(
            "{} s of data taking with a beam of {} s a period: at least one period",
            config.seconds, duty.period_s
        )));
    }
    let on_s = duty.share * duty.period_s;
    if config.events_per_second == 0 {
        let backlog = (1.0 - FARM_HEADROOM * duty.share).max(0.05);
        let fits = config.hot_bytes as f64 * BEAM_HOT_SHARE / (stored_bytes.max(1) as f64 * on_s * backlog);
        let most = BEAM_BYTES_PER_SECOND / stored_bytes.max(1) as f64;
        config.events_per_second = (fits.min(most) as u64).max(1);
    }
    if config.farm_events_per_second == 0.0 {
        config.farm_events_per_second = config.events_per_second as f64 * duty.share * FARM_HEADROOM;
    }
    Ok(Some(Beam { on_ns: (on_s * 1e9) as u64, period_ns: (duty.period_s * 1e9) as u64 }))
}

/// Events that a farm begins, at most at its rate: what it did not use is saved for a moment only.
pub(crate) struct Farm {
    start: Instant,
    /// Nanoseconds from event to event; 0 without a limit.
    period_ns: f64,
    state: Mutex<FarmState>,
}

#[derive(Default)]
struct FarmState {
    /// When the next event may begin.
    next_ns: f64,
    /// Data taking is over: what is left goes as fast as it can.
    unlimited: bool,
}

impl Farm {
    /// A farm that takes this many events a second; 0 is without a limit.
    pub(crate) fn new(events_per_second: f64) -> Farm {
        let period_ns = if events_per_second > 0.0 { 1e9 / events_per_second } else { 0.0 };
        Farm { start: Instant::now(), period_ns, state: Mutex::default() }
    }

    /// Events that may begin now, at most `most`. What is not begun is given back.
    pub(crate) fn take(&self, most: usize) -> usize {
        if self.period_ns == 0.0 { most } else { self.take_at(self.start.elapsed().as_nanos() as f64, most) }
    }

    fn take_at(&self, now: f64, most: usize) -> usize {
        let mut state = self.state.lock();
        if state.unlimited {
            return most;
        }
        state.next_ns = state.next_ns.max(now - FARM_BURST.as_nanos() as f64);
        if state.next_ns > now {
            return 0;
        }
        let n = (((now - state.next_ns) / self.period_ns) as usize + 1).min(most);
        state.next_ns += n as f64 * self.period_ns;
        n
    }

    /// Gives back what was taken and not begun.
    pub(crate) fn give_back(&self, n: usize) {
        if n > 0 && self.period_ns > 0.0 {
            self.state.lock().next_ns -= n as f64 * self.period_ns;
        }
    }

    /// Data taking is over.
    pub(crate) fn lift(&self) {
        self.state.lock().unlimited = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Duty;

    const S: u64 = 1_000_000_000;

    #[test]
    fn beam_time_stands_still_in_the_gap() {
        let mut config = DemoConfig { duty: Some(Duty { share: 0.25, period_s: 4.0 }), ..DemoConfig::default() };
        let beam = size(&mut config, 1 << 20).unwrap().unwrap();
        for (now, time, off) in [
            (0, 0, None),
            (S - 1, S - 1, None),
            (S, S, Some(S)),
            (4 * S - 1, S, Some(S)),
            (4 * S, S, None),
            (5 * S, 2 * S, Some(5 * S)),
            (8 * S + S / 2, 2 * S + S / 2, None),
        ] {
            assert_eq!((beam.time(now), beam.off_since(now)), (time, off), "{now}");
        }
        assert_eq!((beam.periods(4 * S - 1), beam.periods(4 * S), beam.end_of(0)), (0, 1, 4 * S));
    }

    #[test]
    fn what_is_not_chosen_follows_from_the_mean() {
        let duty = Some(Duty { share: 0.5, period_s: 4.0 });
        let mut config = DemoConfig { duty, events_per_second: 1000, ..DemoConfig::default() };
        size(&mut config, 1000).unwrap();
        assert_eq!(config.farm_events_per_second, 500.0 * FARM_HEADROOM);
        let mut config = DemoConfig { duty, ..DemoConfig::default() };
        size(&mut config, 350_000).unwrap();
        let rate = config.events_per_second as f64;
        let backlog = (rate - config.farm_events_per_second) * 2.0 * 350_000.0;
        assert!(rate >= 100.0 && backlog <= config.hot_bytes as f64 * 0.3, "{rate} events/s, {backlog} bytes");
        let mut none = DemoConfig::default();
        assert_eq!(size(&mut none, 1000).unwrap(), None);
        assert_eq!((none.events_per_second, none.farm_events_per_second), (0, 0.0));
    }

    #[test]
    fn beams_that_cannot_be_are_refused() {
        let refused = |share, period_s, seconds| {
            let duty = Some(Duty { share, period_s });
            let error = size(&mut DemoConfig { duty, seconds, ..DemoConfig::default() }, 1000).unwrap_err();
            error.message().to_owned()
        };
        assert!(refused(1.0, 4.0, 10.0).contains("0.001 to 0.999, not 1"));
        assert!(refused(0.0, 4.0, 10.0).contains("share"));
        assert!(refused(0.5, 0.0, 10.0).contains("period"));
        assert!(refused(0.5, 4.0, 3.0).contains("at least one period"));
    }

    #[test]
    fn a_farm_keeps_its_rate_and_saves_nothing() {
        let farm = Farm::new(100.0);
        let ms = 1e6;
        assert_eq!(farm.take_at(0.0, 8), 1);
        assert_eq!(farm.take_at(5.0 * ms, 8), 0);
        assert_eq!(farm.take_at(30.0 * ms, 2), 2);
        assert_eq!(farm.take_at(30.0 * ms, 8), 1);
        assert_eq!(farm.take_at(30.0 * ms, 8), 0);
        farm.give_back(1);
        assert_eq!(farm.take_at(30.0 * ms, 8), 1);
        // After ten idle seconds no more than what a moment is worth.
        let burst = FARM_BURST.as_secs_f64() * 100.0;
        assert_eq!(farm.take_at(10_000.0 * ms, 1000), burst as usize + 1);
        farm.lift();
        assert_eq!(farm.take_at(10_000.0 * ms, 1000), 1000);
        assert_eq!(Farm::new(0.0).take(7), 7);
    }
}
