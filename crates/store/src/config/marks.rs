//! The marks of both levels and how they relate: checked when a store is opened.
//!
//! ```text
//! hot   0 ── demote_low ──── hot_low ──── demote_high ──── hot_high ── 1
//!            demotion ends   inhibit ends demotion begins  inhibit begins
//! warm  0 ── custody_high ──── warm_low ─────────────────── warm_high ─ 1
//!            custody ends early
//! ```
//!
//! `hot_low` may also lie above `demote_high`: what counts is that demotion begins before inhibit does, and goes on at
//! least as far down as inhibit needs to end.

use super::Config;
use forebay_core::{Error, Result};

type Named = (&'static str, f64);

/// Checks the marks; those of demotion and of warm only where there is a warm level.
///
/// # Errors
/// `Invalid`, naming the mark that is no part of a level, or the two that contradict each other.
pub(crate) fn check_marks(config: &Config, warm: bool) -> Result<()> {
    let hot_high = ("hot_high", config.hot_high);
    let hot_low = ("hot_low", config.hot_low);
    below(hot_low, hot_high, "inhibit by the hot level would have no hysteresis")?;
    if !warm {
        return Ok(());
    }
    let demote_high = ("demote_high", config.demote_high);
    let demote_low = ("demote_low", config.demote_low);
    below(
        ("warm_low", config.warm_low),
        ("warm_high", config.warm_high),
        "inhibit by the warm level would have no hysteresis",
    )?;
    if let Some(custody_high) = config.custody_high.filter(|high| !(0.0..=config.warm_low).contains(high)) {
        let warm_low = ("warm_low", config.warm_low);
        return Err(contradiction(
            ("custody_high", custody_high),
            warm_low,
            "at most",
            "custody would stop the trigger",
        ));
    }
    below(demote_low, demote_high, "demotion would have no hysteresis")?;
    below(demote_high, hot_high, "inhibit would begin before demotion does")?;
    if demote_low.1 > hot_low.1 {
        return Err(contradiction(demote_low, hot_low, "at most", "demotion would end before inhibit can"));
    }
    Ok(())
}

fn below(low: Named, high: Named, otherwise: &str) -> Result<()> {
    for (name, mark) in [low, high] {
        if !(0.0..=1.0).contains(&mark) {
            return Err(Error::invalid(format!("{name} {mark}: a mark is a fill from 0 to 1")));
        }
    }
    if low.1 < high.1 { Ok(()) } else { Err(contradiction(low, high, "less than", otherwise)) }
}

fn contradiction(low: Named, high: Named, relation: &str, otherwise: &str) -> Error {
    Error::invalid(format!(
        "{} {} and {} {}: the first must be {relation} the second, else {otherwise}",
        low.0, low.1, high.0, high.1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    fn refused(warm: bool, change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let error = check_marks(&config, warm).expect_err("marks that contradict each other");
        assert_eq!(error.kind(), Kind::Invalid);
        error.message().to_owned()
    }

    #[test]
    fn the_defaults_agree() {
        check_marks(&Config::default(), false).unwrap();
        check_marks(&Config::default(), true).unwrap();
    }

    #[test]
    fn a_contradiction_is_named_with_both_values() {
        let message = refused(false, |config| config.hot_low = 0.95);
        assert!(message.contains("hot_low 0.95 and hot_high 0.9"), "{message}");
        let message = refused(false, |config| config.hot_low = config.hot_high);
        assert!(message.contains("no hysteresis"), "{message}");
        let message = refused(true, |config| config.warm_high = 0.5);
        assert!(message.contains("warm_low 0.75 and warm_high 0.5"), "{message}");
        let message = refused(true, |config| config.demote_high = 0.4);
        assert!(message.contains("demote_low 0.5 and demote_high 0.4"), "{message}");
        let message = refused(true, |config| config.demote_high = 0.9);
        assert!(message.contains("demote_high 0.9 and hot_high 0.9"), "{message}");
        let message = refused(true, |config| config.hot_low = 0.3);
        assert!(message.contains("demote_low 0.5 and hot_low 0.3"), "{message}");
        for mark in [-0.1, 1.1, f64::NAN] {
            assert!(refused(false, |config| config.hot_high = mark).contains("hot_high"), "{mark}");
        }
    }

    #[test]
    fn without_a_warm_level_its_marks_do_not_matter() {
        let config = Config { hot_high: 0.6, hot_low: 0.3, warm_low: 2.0, ..Config::default() };
        check_marks(&config, false).unwrap();
    }
}
