//! Hysteresis: each reason to inhibit sets its latch at one mark and clears it at another; inhibit is set while any latch
//! is.
//!
//! *Invariants*: a latch that is cleared needs to cross the whole distance between its marks before it is cleared again
//! (tests); a report about one level does not suppress that of another.

use super::WarmFill;
use crate::config::Config;
use forebay_core::InhibitClass;

/// Part of its quota at which a debug stream that was past it ends to inhibit.
const DEBUG_LOW: f64 = 0.9;

/// The figures of one look.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Fill of the hot level, 0 to 1.
    pub(crate) hot: f64,
    /// Segments of the hot level: all, those in use, and those that a new event must leave free.
    pub(crate) segments: u32,
    pub(crate) used: u32,
    pub(crate) reserve: u32,
    /// Segments that only guards keep.
    pub(crate) pinned: u32,
    pub(crate) debug_bytes: u64,
    pub(crate) debug_quota: u64,
    pub(crate) warm: Option<WarmFill>,
    /// What of the store does not have its name any more.
    pub(crate) gone: Option<String>,
}

impl Reading {
    /// Used part of what new events may use: 1 where they are refused.
    fn admission(&self) -> f64 {
        let usable = self.segments.saturating_sub(self.reserve);
        if usable == 0 { 1.0 } else { f64::from(self.used) / f64::from(usable) }
    }
}

/// The latches that hold the trigger now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Latches {
    pub(super) hot: bool,
    pub(super) warm: bool,
    pub(super) reserves: bool,
    pub(super) debug: bool,
}

fn latch(set: bool, value: f64, high: f64, low: f64) -> bool {
    // At one mark alone, a fill that moves by one event would set and clear inhibit with each of them.
    debug_assert!(low < high, "a latch has a distance between its marks: {low} and {high}");
    if set { value > low } else { value >= high }
}

impl Latches {
    pub(super) fn look(&mut self, reading: &Reading, config: &Config) {
        self.hot = latch(self.hot, reading.hot, config.hot_high, config.hot_low);
        self.warm = match &reading.warm {
            Some(warm) => latch(self.warm, warm.fill, config.warm_high, config.warm_low),
            None => false,
        };
        // Reserves grow and shrink with what is live: the distance is that of the hot marks, in proportion.
        let low = config.hot_low / config.hot_high.max(f64::MIN_POSITIVE);
        self.reserves = latch(self.reserves, reading.admission(), 1.0, low);
        let debug = reading.debug_bytes as f64;
        let quota = reading.debug_quota as f64;
        // At its quota it is not past it.
        self.debug = if self.debug { debug > quota * DEBUG_LOW } else { debug > quota };
    }

    /// The one class that is charged, from the cause to what follows from it: a device that stalls fills both levels, a
    /// full warm level fills the hot one.
    pub(super) fn class(self, reading: &Reading) -> Option<InhibitClass> {
        // The cause first: dead time charged to the hot level would send people to the selection while a disk hangs.
        let hot = self.hot || self.reserves;
        let stalled = reading.warm.as_ref().is_some_and(|warm| warm.stalled.is_some());
        let no_container = reading.warm.as_ref().is_some_and(|warm| warm.free_containers == 0);
        if reading.gone.is_some() {
            Some(InhibitClass::StoreGone)
        } else if stalled && (hot || self.warm) {
            Some(InhibitClass::DeviceStalled)
        } else if self.warm || hot && no_container {
            Some(InhibitClass::WarmFull)
        } else if self.hot {
            Some(InhibitClass::HotFull)
        } else if self.reserves {
            Some(InhibitClass::Reserves)
        } else if self.debug {
            Some(InhibitClass::DebugStream)
        } else {
            None
        }
    }

    /// What else must end before inhibit does, beside the class that is charged.
    pub(super) fn others(self, class: InhibitClass) -> Vec<&'static str> {
        let hot = (self.hot || self.reserves) && !matches!(class, InhibitClass::HotFull | InhibitClass::Reserves);
        let all = [
            (hot, "hot level"),
            (self.warm && class != InhibitClass::WarmFull, "warm level"),
            (self.debug && class != InhibitClass::DebugStream, "debug stream"),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(fill: f64) -> Reading {
        Reading {
            hot: fill,
            segments: 100,
            used: 0,
            reserve: 10,
            pinned: 0,
            debug_bytes: 0,
            debug_quota: 100,
            warm: None,
            gone: None,
        }
    }

    fn warm(hot_fill: f64, fill: f64) -> Reading {
        Reading { warm: Some(WarmFill { fill, free_containers: 3, stalled: None }), ..hot(hot_fill) }
    }

    /// How often inhibit was set over these readings.
    fn times_set(readings: impl Iterator<Item = Reading>) -> usize {
        let (mut latches, mut times) = (Latches::default(), 0);
        for reading in readings {
            let before = latches.class(&reading).is_some();
            latches.look(&reading, &Config::default());
            times += usize::from(!before && latches.class(&reading).is_some());
        }
        times
    }

    #[test]
    fn a_sawtooth_at_a_border_does_not_flap() {
        let teeth = |low: f64, high: f64| (0..2000).map(move |at| if at % 2 == 0 { low } else { high });
        assert_eq!(times_set(teeth(0.89, 0.91).map(hot)), 1, "around the high mark");
        assert_eq!(times_set(teeth(0.76, 0.8999).map(hot)), 0, "between the marks, from below");
        assert_eq!(times_set(std::iter::once(0.95).chain(teeth(0.7501, 0.89)).map(hot)), 1, "between, from above");
        assert_eq!(times_set(teeth(0.75, 0.90).map(hot)), 1000, "over both marks each time");
        assert_eq!(times_set(teeth(0.89, 0.91).map(|fill| warm(0.2, fill))), 1);
        let used = |fill: f64| Reading { used: (fill * 100.0) as u32, ..hot(0.5) };
        assert_eq!(times_set(teeth(0.89, 0.91).map(used)), 1, "around the reserves");
        let debug = |fill: f64| Reading { debug_bytes: (fill * 100.0) as u64, ..hot(0.5) };
        assert_eq!(times_set(teeth(0.95, 1.05).map(debug)), 1, "around the debug stream's quota");
    }

    #[test]
    fn levels_are_cleared_each_by_its_own_mark() {
        let config = Config::default();
        let mut latches = Latches::default();
        let mut look = |reading: &Reading| {
            latches.look(reading, &config);
            latches.class(reading)
        };
        // A warm level between its marks, having never been full, holds nobody.
        assert_eq!(look(&warm(0.95, 0.80)), Some(InhibitClass::HotFull));
        assert_eq!(look(&warm(0.70, 0.80)), None);
        assert_eq!(look(&warm(0.95, 0.92)), Some(InhibitClass::WarmFull));
        assert_eq!(look(&warm(0.70, 0.80)), Some(InhibitClass::WarmFull), "hot is low, warm is not");
        assert_eq!(look(&warm(0.92, 0.75)), Some(InhibitClass::HotFull), "warm is low, hot is not");
        assert_eq!(look(&warm(0.75, 0.75)), None);
    }

    #[test]
    fn the_cause_comes_before_what_follows_from_it() {
        let config = Config::default();
        let mut latches = Latches::default();
        let with = |change: fn(&mut WarmFill)| {
            let mut reading = warm(0.92, 0.5);
            reading.warm.iter_mut().for_each(change);
            reading
        };
        latches.look(&with(|_| ()), &config);
        assert_eq!(latches.class(&with(|_| ())), Some(InhibitClass::HotFull));
        assert_eq!(latches.class(&with(|warm| warm.free_containers = 0)), Some(InhibitClass::WarmFull));
        assert_eq!(
            latches.class(&with(|warm| warm.stalled = Some("warm-1".into()))),
            Some(InhibitClass::DeviceStalled)
        );
        let mut calm = Latches::default();
        let stalled = Reading { hot: 0.2, ..with(|warm| warm.stalled = Some("warm-1".into())) };
        calm.look(&stalled, &config);
        assert_eq!(calm.class(&stalled), None, "while hot has room nobody needs to wait for a device");
    }

    #[test]
    fn reserves_that_leave_nothing_refuse() {
        assert_eq!(Reading { reserve: 100, ..hot(0.1) }.admission(), 1.0);
        let mut latches = Latches::default();
        let reading = Reading { used: 90, ..hot(0.85) };
        latches.look(&reading, &Config::default());
        assert_eq!(latches.class(&reading), Some(InhibitClass::Reserves));
        assert_eq!(latches.others(InhibitClass::Reserves), Vec::<&str>::new());
        assert_eq!(latches.others(InhibitClass::DebugStream), ["hot level"]);
    }
}
