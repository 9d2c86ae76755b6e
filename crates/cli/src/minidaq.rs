//! `forebay demo --profile dune`: the options that only the MiniDAQ has, and how they and the demo's make its choices.
//!
//! *Not here*: the scenario itself (`forebay_daq::minidaq`).

use crate::units;
use forebay_core::{Error, Result};
use forebay_daq::minidaq::{MiniDaqConfig, Reach};
use std::time::Duration;

/// Name of the profile that runs the MiniDAQ.
pub(crate) const PROFILE: &str = "dune";
/// What it is, for the list of profiles.
pub(crate) const DESCRIPTION: &str =
    "DUNE's MiniDAQ: WIBEth links at their rate in a latency buffer, triggers, data requests, trigger records";

/// Options of the MiniDAQ.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Options of --profile dune")]
pub(crate) struct MiniDaqOptions {
    /// Links; 4 of WIBEth or 1 of WIB1 without, 48 are a readout unit.
    #[arg(long, value_name = "N")]
    links: Option<u32>,
    /// Detector time per time: 1 is the detector's rate, 0 as fast as it goes.
    #[arg(long, value_name = "FACTOR")]
    rate_scale: Option<f64>,
    /// How long the latency buffer keeps data, such as 500ms or 10s.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    history: Option<Duration>,
    /// Rate of triggers or bursts.
    #[arg(long, value_name = "RATE")]
    triggers_per_second: Option<f64>,
    /// Triggers that come close together.
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    /// Window before a trigger: a time such as 1ms, or ticks.
    #[arg(long, value_name = "TIME", value_parser = parse_reach)]
    window_before: Option<Reach>,
    /// Window from a trigger on: a time such as 2ms, or ticks.
    #[arg(long, value_name = "TIME", value_parser = parse_reach)]
    window_after: Option<Reach>,
    /// Age of a trigger when its data is asked for: a time, or ticks.
    #[arg(long, value_name = "TIME", value_parser = parse_reach)]
    trigger_delay: Option<Reach>,
    /// How long a request waits for data that has not arrived.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    request_timeout: Option<Duration>,
    /// Trigger records in flight at which the trigger is inhibited.
    #[arg(long, value_name = "N")]
    busy_at: Option<u32>,
    /// Trigger records in flight below which it is free again; half of --busy-at without.
    #[arg(long, value_name = "N")]
    free_below: Option<u32>,
    /// Time that the selection of a trigger record takes, beside checking its bytes.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    filter_time: Option<Duration>,
}

impl MiniDaqOptions {
    /// Names of the options that were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--links", self.links.is_some()),
            ("--rate-scale", self.rate_scale.is_some()),
            ("--history", self.history.is_some()),
            ("--triggers-per-second", self.triggers_per_second.is_some()),
            ("--burst", self.burst.is_some()),
            ("--window-before", self.window_before.is_some()),
            ("--window-after", self.window_after.is_some()),
            ("--trigger-delay", self.trigger_delay.is_some()),
            ("--request-timeout", self.request_timeout.is_some()),
            ("--busy-at", self.busy_at.is_some()),
            ("--free-below", self.free_below.is_some()),
            ("--filter-time", self.filter_time.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }

    /// These options over `base`, which has those of the demo.
    pub(crate) fn over(&self, base: MiniDaqConfig) -> MiniDaqConfig {
        let busy_at = self.busy_at.unwrap_or(base.busy_at);
        let request_timeout = self.request_timeout.unwrap_or(base.request_timeout);
        MiniDaqConfig {
            links: self.links.unwrap_or(base.links),
            rate_scale: self.rate_scale.unwrap_or(base.rate_scale),
            history: self.history.unwrap_or(base.history),
            triggers_per_second: self.triggers_per_second.unwrap_or(base.triggers_per_second),
            burst: self.burst.unwrap_or(base.burst),
            window_before: self.window_before.unwrap_or(base.window_before),
            window_after: self.window_after.unwrap_or(base.window_after),
            trigger_delay: self.trigger_delay.unwrap_or(base.trigger_delay),
            request_timeout,
            // A record waits for the last answer.
            record_timeout: base.record_timeout.max(request_timeout + Duration::from_secs(1)),
            busy_at,
            free_below: self.free_below.unwrap_or((busy_at / 2).max(1)),
            filter_time: self.filter_time.unwrap_or(base.filter_time),
            ..base
        }
    }
}

/// Refuses options that have no meaning with this profile.
pub(crate) fn refuse(profile: &str, options: &[&str]) -> Result<()> {
    if options.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!("{} with {profile}: no such choice there; see forebay help demo", options.join(", "))))
}

/// A bare number is ticks, one with a unit is a time.
fn parse_reach(text: &str) -> std::result::Result<Reach, String> {
    match text.parse() {
        Ok(ticks) => Ok(Reach::Ticks(ticks)),
        Err(_) => units::parse_duration(text).map(Reach::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaches_are_ticks_or_times() {
        assert_eq!(parse_reach("2048"), Ok(Reach::Ticks(2048)));
        assert_eq!(parse_reach("1.5ms"), Ok(Reach::Time(Duration::from_micros(1500))));
        assert!(parse_reach("-1").is_err() && parse_reach("soon").is_err());
    }

    #[test]
    fn thresholds_follow_each_other() {
        let options =
            MiniDaqOptions { busy_at: Some(7), request_timeout: Some(Duration::from_secs(5)), ..Default::default() };
        let config = options.over(MiniDaqConfig::default());
        assert_eq!((config.busy_at, config.free_below), (7, 3));
        assert!(config.record_timeout > config.request_timeout);
        assert_eq!(options.given(), ["--request-timeout", "--busy-at"]);
    }
}
