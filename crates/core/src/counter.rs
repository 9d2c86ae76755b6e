//! Extends event counters that wrap (24-bit L1ID and similar) to 64-bit numbers that never go back.
//!
//! This runs at the producer, once per link, before a key is made: the store never wraps keys. Every link that sees the
//! same counters and resets gets the same numbers, regardless of the order in which they reach it.
//!
//! ```text
//!                 late_max      newest     ahead_max
//! counter line ──┼───────────────┼──────────────────┼──── … 2^bits later the same values come again
//!                └ resolves here or above, across a wrap too; anything else is an error
//!
//! number = period number                      without resets
//! number = resets (24 bits) ‖ period (40)     with resets: every reset starts a new period at 0
//! ```
//!
//! *Invariants*: a counter resolves to at most one number (`late_max + ahead_max < 2^bits`, checked); what is answered is
//! right or an error as long as lateness and gaps keep to the bounds (property tests).
//!
//! *On failure*: numbers stay as they were, so that one insane counter changes nothing for the next.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Bits of a number that count within one period, where there are resets: at 1 MHz, twelve days without a reset.
pub const PERIOD_BITS: u32 = 40;
/// Most resets: one every five seconds for two and a half years.
const RESETS_MAX: u64 = (1 << (64 - PERIOD_BITS)) - 1;

/// Properties of a counter: its width and how disorderly its values arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterBounds {
    /// Width of the counter, 1 to 64 bits.
    pub bits: u32,
    /// How far a counter may lie behind the newest one, in counts.
    pub late_max: u64,
    /// How far a counter may lie ahead of the newest one, in counts.
    pub ahead_max: u64,
    /// Width, 1 to 64 bits, of the count of resets that the sender may give with each counter (ATLAS: 8 bits of ECR);
    /// `None` where the counter is never reset.
    pub reset_bits: Option<u32>,
}

/// How far an extension has come: all that has to be recorded to go on from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterState {
    /// Resets so far.
    pub resets: u64,
    /// Highest period number since the last reset; `None` where nothing came.
    pub newest: Option<u64>,
    /// Highest period number that a counter refused since the last reset may have had.
    #[serde(default)]
    pub doubtful: Option<u64>,
    /// Highest period number between the last reset and the one before; `None` where nothing came.
    pub earlier: Option<u64>,
    /// Whether counters were refused then, so that more may have come than `earlier` says.
    #[serde(default)]
    pub earlier_doubtful: bool,
}

/// Extends the counters of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterExtension {
    bounds: CounterBounds,
    state: CounterState,
}

fn ones(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

impl CounterExtension {
    /// Starts before the first counter. Where nothing was recorded, the first counter is taken as it is.
    ///
    /// # Errors
    /// As [`CounterExtension::resume`].
    pub fn new(bounds: CounterBounds) -> Result<CounterExtension> {
        CounterExtension::resume(bounds, CounterState::default())
    }

    /// Goes on from a recorded state.
    ///
    /// # Errors
    /// `Invalid` for widths outside 1 to 64 bits, bounds that together reach around the counter, and states that no
    /// extension with these bounds can be in.
    pub fn resume(bounds: CounterBounds, state: CounterState) -> Result<CounterExtension> {
        let CounterBounds { bits, late_max, ahead_max, reset_bits } = bounds;
        for (what, bits) in [("a counter", Some(bits)), ("a count of resets", reset_bits)] {
            if let Some(bits) = bits.filter(|bits| !(1..=64).contains(bits)) {
                return Err(Error::invalid(format!("{what} has 1 to 64 bits, not {bits}")));
            }
        }
        if ahead_max == 0 || late_max.checked_add(ahead_max).is_none_or(|both| both > ones(bits)) {
            return Err(Error::invalid(format!(
                "late_max {late_max} and ahead_max {ahead_max}: together less than 2^{bits}, and ahead at least 1"
            )));
        }
        let extension = CounterExtension { bounds, state };
        let highest = extension.highest();
        let fits = |number: Option<u64>| number.is_none_or(|number| number <= highest);
        let resets_fit = if reset_bits.is_some() { state.resets <= RESETS_MAX } else { state.resets == 0 };
        let reset = state.earlier.is_some() || state.earlier_doubtful || state.doubtful.is_some();
        let resets_fit = resets_fit && (state.resets > 0 || !reset);
        if !(fits(state.newest) && fits(state.earlier) && fits(state.doubtful) && resets_fit) {
            return Err(Error::invalid(format!("{state:?} is no state of a counter with {bounds:?}")));
        }
        Ok(extension)
    }

    /// The state to record in order to continue later.
    pub fn state(&self) -> CounterState {
        self.state
    }

    /// The number of a counter that comes without a count of resets.
    ///
    /// # Errors
    /// `Invalid` for a value wider than the counter and for one outside of the bounds, naming both ends; `Conflict` so
    /// shortly after a reset that the counter may be from before it; `Full` where numbers run out.
    pub fn extend(&mut self, counter: u64) -> Result<u64> {
        let CounterState { resets, newest, doubtful, earlier, .. } = self.state;
        self.check_width(counter)?;
        let period = self.resolve(newest, counter);
        // What was refused may have been new: only a number that follows from both is certain.
        let beyond = doubtful.filter(|doubtful| newest < Some(*doubtful));
        let other = beyond.and_then(|beyond| self.resolve(Some(beyond), counter).ok());
        let certain = beyond.is_none() || other == period.as_ref().ok().copied();
        if !certain || self.may_be_from_before(counter) {
            self.state.doubtful = doubtful.max(period.ok()).max(other);
            let came = earlier.map_or("where nothing came".to_owned(), |earlier| {
                format!("which came to {} or more", earlier & ones(self.bounds.bits))
            });
            return Err(Error::conflict(format!(
                "counter {counter} after reset {resets} may be one from before it, {came}: give the sender's count of \
                 resets"
            )));
        }
        let period = period?;
        self.state.newest = newest.max(Some(period));
        Ok(self.number(resets, period))
    }

    /// The number of a counter whose sender says how often it was reset, modulo 2^`reset_bits`. A count that is one
    /// ahead is a reset; one that is one behind is a late counter from before the last reset.
    ///
    /// # Errors
    /// `Invalid` as [`CounterExtension::extend`], for counts of resets further off, and where there are none; `Full` where
    /// numbers run out.
    pub fn extend_with_resets(&mut self, resets: u64, counter: u64) -> Result<u64> {
        let mask = self.reset_mask()?;
        let known = self.state.resets;
        if resets > mask {
            return Err(Error::invalid(format!("a count of resets of {resets}: at most {mask} here")));
        }
        // The nearer side decides; of a one-bit count, which knows no sides, the current period and the next one.
        let ahead = resets.wrapping_sub(known) & mask;
        let behind = known.wrapping_sub(resets) & mask;
        let mut next = self.clone();
        let number = match (ahead, behind) {
            (0, _) => {
                let period = next.resolve(next.state.newest, counter)?;
                next.state.newest = next.state.newest.max(Some(period));
                next.number(known, period)
            }
            (1, _) => {
                next.reset()?;
                let period = next.resolve(None, counter)?;
                next.state.newest = Some(period);
                next.number(known + 1, period)
            }
            (_, 1) if known > 0 => {
                let period = next.resolve(next.state.earlier, counter)?;
                next.state.earlier = next.state.earlier.max(Some(period));
                next.number(known - 1, period)
            }
            _ => {
                return Err(Error::invalid(format!(
                    "counter {counter} after reset {resets}; {known} resets are known here ({} in {} bits), and one more \
                     or less can be told",
                    known & mask,
                    mask.count_ones()
                )));
            }
        };
        *self = next;
        Ok(number)
    }

    /// The counter is reset: the next one is 0. Answers how many resets there were.
    ///
    /// # Errors
    /// `Invalid` for a counter without resets, `Full` past 2^24 − 1 resets.
    pub fn reset(&mut self) -> Result<u64> {
        self.reset_mask()?;
        if self.state.resets == RESETS_MAX {
            return Err(Error::full(format!("{RESETS_MAX} resets are all that a number can tell: start a new run")));
        }
        let CounterState { resets, newest, doubtful, .. } = self.state;
        self.state = CounterState {
            resets: resets + 1,
            newest: None,
            doubtful: None,
            earlier: newest,
            earlier_doubtful: doubtful.is_some() && doubtful > newest,
        };
        Ok(self.state.resets)
    }

    fn check_width(&self, counter: u64) -> Result<()> {
        if counter <= ones(self.bounds.bits) {
            return Ok(());
        }
        Err(Error::invalid(format!("counter {counter} is wider than {} bits", self.bounds.bits)))
    }

    fn reset_mask(&self) -> Result<u64> {
        let bits = self.bounds.reset_bits;
        bits.map(ones).ok_or_else(|| Error::invalid("this counter has no resets (reset_bits)"))
    }

    /// Whether a counter without a count of resets is possibly one from before the last reset.
    fn may_be_from_before(&self, counter: u64) -> bool {
        let CounterState { resets, newest, earlier, earlier_doubtful, .. } = self.state;
        let late_max = self.bounds.late_max;
        // So far past a reset nothing from before it is late enough any more.
        if resets == 0 || newest.is_some_and(|newest| newest >= late_max) {
            return false;
        }
        if earlier_doubtful {
            return true;
        }
        let mask = ones(self.bounds.bits);
        // Where nothing came, the last one before the reset is at most just before 0 plus what is on its way.
        let last = earlier.unwrap_or(u64::MAX);
        (counter.wrapping_sub(last) & mask).min(last.wrapping_sub(counter) & mask) <= late_max
    }

    /// Highest period number.
    fn highest(&self) -> u64 {
        if self.bounds.reset_bits.is_some() { ones(PERIOD_BITS) } else { u64::MAX }
    }

    fn number(&self, resets: u64, period: u64) -> u64 {
        if self.bounds.reset_bits.is_some() { resets << PERIOD_BITS | period } else { period }
    }

    /// The one period number near `newest` that has these low bits.
    fn resolve(&self, newest: Option<u64>, counter: u64) -> Result<u64> {
        let CounterBounds { bits, late_max, ahead_max, .. } = self.bounds;
        self.check_width(counter)?;
        let mask = ones(bits);
        let refused = |newest: String| {
            Err(Error::invalid(format!(
                "counter {counter} is neither at most {late_max} behind nor at most {ahead_max} ahead of {newest}"
            )))
        };
        let number = match newest {
            // Nothing was ever seen: where counting began is not known.
            None if self.state.resets == 0 => Some(counter),
            // A reset makes the next counter 0, which is one ahead of nothing.
            None if counter < ahead_max => Some(counter),
            None => return refused("the reset, after which counting begins at 0".to_owned()),
            Some(newest) => {
                let behind = newest.wrapping_sub(counter) & mask;
                let ahead = counter.wrapping_sub(newest) & mask;
                if behind <= late_max && behind <= newest {
                    Some(newest - behind)
                } else if ahead <= ahead_max {
                    newest.checked_add(ahead)
                } else {
                    return refused(format!("{} (number {newest} since the reset or start)", newest & mask));
                }
            }
        };
        number.filter(|number| *number <= self.highest()).ok_or_else(|| {
            Error::full(format!("counter {counter}: numbers end at {}, start a new run", self.highest()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;

    const L1ID: CounterBounds = CounterBounds { bits: 24, late_max: 64, ahead_max: 1000, reset_bits: Some(8) };
    const PLAIN: CounterBounds = CounterBounds { reset_bits: None, ..L1ID };

    fn kind(result: Result<u64>) -> Kind {
        result.expect_err("refused").kind()
    }

    #[test]
    fn a_late_counter_before_a_wrap_keeps_its_epoch() {
        let mut extension = CounterExtension::new(PLAIN).unwrap();
        assert_eq!(extension.extend(0xFF_FFF0).unwrap(), 0xFF_FFF0);
        assert_eq!(extension.extend(3).unwrap(), 0x100_0003);
        assert_eq!(extension.extend(0xFF_FFFF).unwrap(), 0xFF_FFFF);
        assert_eq!(extension.extend(4).unwrap(), 0x100_0004);
    }

    #[test]
    fn the_bounds_are_kept_to_the_count() {
        let at = |newest| CounterState { newest: Some(newest), ..CounterState::default() };
        let once = |counter: u64| CounterExtension::resume(PLAIN, at(0x500_0000)).unwrap().extend(counter);
        assert_eq!(once(1000).unwrap(), 0x500_03E8);
        assert_eq!(kind(once(1001)), Kind::Invalid);
        assert_eq!(once(0xFF_FFC0).unwrap(), 0x4FF_FFC0);
        let error = once(0xFF_FFBF).unwrap_err();
        assert!(error.message().contains("counter 16777151 is neither at most 64 behind nor at most 1000"), "{error}");
        assert!(once(1 << 24).unwrap_err().message().contains("wider than 24 bits"));
        // Before the first number there is nothing to be late for.
        assert_eq!(kind(CounterExtension::resume(PLAIN, at(5)).unwrap().extend(0xFF_FFFF)), Kind::Invalid);
    }

    #[test]
    fn a_refused_counter_changes_nothing() {
        let mut extension = CounterExtension::new(L1ID).unwrap();
        extension.extend_with_resets(0, 10).unwrap();
        let before = extension.state();
        for (resets, counter) in [(0, 500_000), (1, 500_000), (2, 0), (255, 9), (300, 0)] {
            assert_eq!(kind(extension.extend_with_resets(resets, counter)), Kind::Invalid);
            assert_eq!(extension.state(), before);
        }
        assert_eq!(extension.extend_with_resets(0, 11).unwrap(), 11);
    }

    #[test]
    fn counters_from_before_a_reset_are_told_or_refused() {
        let mut extension = CounterExtension::new(L1ID).unwrap();
        extension.extend(5000).unwrap();
        extension.reset().unwrap();
        assert_eq!(extension.extend(0).unwrap(), 1 << PERIOD_BITS);
        let error = extension.extend(4999).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.message().contains("before it, which came to 5000 or more"), "{error}");
        assert_eq!(extension.extend_with_resets(0, 4999).unwrap(), 4999);
        // On the way while the reset was: newer than all that came before it.
        assert_eq!(extension.extend_with_resets(0, 5003).unwrap(), 5003);
        assert_eq!(extension.extend_with_resets(1, 1).unwrap(), 1 << PERIOD_BITS | 1);
        extension.reset().unwrap();
        assert_eq!(kind(extension.extend_with_resets(0, 5004)), Kind::Invalid);
        // After this many counters nothing is late any more, and the same value is a new one.
        for counter in 0..=L1ID.late_max {
            extension.extend_with_resets(2, counter).unwrap();
        }
        assert_eq!(extension.extend(L1ID.late_max + 1).unwrap(), 2 << PERIOD_BITS | 65);
        assert_eq!(kind(CounterExtension::new(PLAIN).unwrap().reset().map(|_| 0)), Kind::Invalid);
    }

    #[test]
    fn the_count_of_resets_wraps_as_well() {
        let state = CounterState { resets: 255, newest: Some(7), earlier: Some(9), ..CounterState::default() };
        let mut extension = CounterExtension::resume(L1ID, state).unwrap();
        assert_eq!(extension.extend_with_resets(0, 0).unwrap(), 256 << PERIOD_BITS);
        assert_eq!(extension.extend_with_resets(255, 8).unwrap(), 255 << PERIOD_BITS | 8);
        let last = CounterState { resets: RESETS_MAX, ..CounterState::default() };
        assert_eq!(kind(CounterExtension::resume(L1ID, last).unwrap().reset()), Kind::Full);
        let full = CounterState { newest: Some(ones(PERIOD_BITS)), ..CounterState::default() };
        assert_eq!(kind(CounterExtension::resume(L1ID, full).unwrap().extend(0)), Kind::Full);
    }

    #[test]
    fn bounds_and_states_that_cannot_be_are_refused() {
        for bounds in [
            CounterBounds { bits: 0, ..PLAIN },
            CounterBounds { bits: 65, ..PLAIN },
            CounterBounds { reset_bits: Some(0), ..PLAIN },
            CounterBounds { ahead_max: 0, ..PLAIN },
            CounterBounds { bits: 8, late_max: 156, ahead_max: 100, ..PLAIN },
            CounterBounds { bits: 64, late_max: u64::MAX, ahead_max: 1, ..PLAIN },
        ] {
            assert_eq!(CounterExtension::new(bounds).unwrap_err().kind(), Kind::Invalid, "{bounds:?}");
        }
        let state = |resets, newest, earlier| CounterState { resets, newest, earlier, ..CounterState::default() };
        for (bounds, state) in [
            (PLAIN, state(1, None, None)),
            (PLAIN, state(0, None, Some(1))),
            (L1ID, state(0, None, Some(1))),
            (L1ID, state(1, Some(1 << PERIOD_BITS), None)),
            (L1ID, state(RESETS_MAX + 1, None, None)),
        ] {
            assert_eq!(CounterExtension::resume(bounds, state).unwrap_err().kind(), Kind::Invalid, "{state:?}");
        }
    }

    #[test]
    fn the_state_is_a_few_numbers_as_text() {
        let state = CounterState { resets: 3, newest: Some(17), ..CounterState::default() };
        let text = toml::to_string(&state).unwrap();
        assert_eq!(text, "resets = 3\nnewest = 17\nearlier_doubtful = false\n");
        assert_eq!(toml::from_str::<CounterState>(&text).unwrap(), state);
    }

    /// Farthest that an arrival is put off, in arrivals, and the largest step between counters.
    const DISORDER: u64 = 12;
    const STEP: u64 = 5;

    /// Period numbers with their reset, in the order in which they arrive: steps, wraps and resets, then disorder.
    fn arrivals(resets: bool) -> impl Strategy<Value = Vec<(u64, u64)>> {
        let one = (1..=STEP, 0..40_u32, 0..=DISORDER);
        proptest::collection::vec(one, 1..600).prop_map(move |steps| {
            let (mut reset, mut period, mut since) = (0, 0_u64, 0);
            let mut arrivals: Vec<(u64, (u64, u64))> = Vec::new();
            for (at, (step, chance, delay)) in steps.into_iter().enumerate() {
                since += 1;
                // Of two resets, all that came before the first has arrived when the second comes.
                if resets && chance == 0 && since > 2 * DISORDER {
                    (reset, period, since) = (reset + 1, step - 1, 0);
                } else {
                    period += step;
                }
                // The first one shows where counting begins.
                let delay = if at == 0 { 0 } else { delay };
                arrivals.push((at as u64 + delay, (reset, period)));
            }
            arrivals.sort_by_key(|(at, _)| *at);
            arrivals.into_iter().map(|(_, arrival)| arrival).collect()
        })
    }

    fn tight(resets: bool) -> CounterBounds {
        let reach = (DISORDER + 1) * STEP;
        CounterBounds { bits: 8, late_max: reach, ahead_max: reach, reset_bits: resets.then_some(2) }
    }

    proptest! {
        #[test]
        fn disorder_and_wraps_resolve_to_the_truth(arrivals in arrivals(false), cut in 0_usize..600) {
            let mut extension = CounterExtension::new(tight(false)).unwrap();
            for (at, (_, truth)) in arrivals.into_iter().enumerate() {
                if at == cut {
                    extension = CounterExtension::resume(tight(false), extension.state()).unwrap();
                }
                prop_assert_eq!(extension.extend(truth & 0xFF).unwrap(), truth);
            }
        }

        #[test]
        fn resets_told_by_the_sender_resolve_to_the_truth(arrivals in arrivals(true)) {
            let mut extension = CounterExtension::new(tight(true)).unwrap();
            for (reset, period) in arrivals {
                let number = extension.extend_with_resets(reset & 3, period & 0xFF).unwrap();
                prop_assert_eq!(number, reset << PERIOD_BITS | period);
            }
        }

        #[test]
        fn without_the_senders_count_an_answer_is_right_or_refused(arrivals in arrivals(true)) {
            let mut extension = CounterExtension::new(tight(true)).unwrap();
            let (mut known, mut right) = (0, 0);
            let all = arrivals.len();
            for (reset, period) in arrivals {
                while known < reset {
                    known = extension.reset().unwrap();
                }
                if let Ok(number) = extension.extend(period & 0xFF) {
                    prop_assert_eq!(number, reset << PERIOD_BITS | period);
                    right += 1;
                }
            }
            prop_assert!(known > 0 || right == all, "refused without a reset");
        }

        #[test]
        fn hostile_counters_never_panic(calls in proptest::collection::vec((any::<u64>(), any::<u64>(), 0..4_u8), 0..60)) {
            for reset_bits in [None, Some(1), Some(64)] {
                let bounds = CounterBounds { bits: 64, late_max: 1 << 62, ahead_max: 1 << 63, reset_bits };
                let mut extension = CounterExtension::new(bounds).unwrap();
                for (counter, resets, call) in &calls {
                    let _ = match call {
                        0 => extension.reset(),
                        1 => extension.extend_with_resets(*resets, *counter),
                        2 => extension.extend_with_resets(resets % 3, counter % 100),
                        _ => extension.extend(*counter),
                    };
                    prop_assert!(CounterExtension::resume(bounds, extension.state()).is_ok());
                }
            }
        }
    }
}
