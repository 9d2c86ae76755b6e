//! Inhibit in words: what fills a level, who can change that, and what ends it.

use super::latch::{Latches, Reading};
use super::{Largest, WarmBytes, WarmFill};
use crate::config::Config;
use forebay_core::{Inhibit, InhibitClass, LIVE_STATES, Live, LiveState, Tally};

/// What is kept of foreign events, in words.
const FOREIGN: &str = "held for events of other nodes";

/// The largest part of the hot level's fill.
enum Filler {
    Data(Largest),
    /// Dead bytes under guards.
    Guards {
        share: f64,
        owner: String,
    },
}

/// The parts of the levels' fill: asked for only while inhibit is set.
pub(crate) struct Facts {
    /// Live data of all runs by state.
    pub(crate) live: Live,
    /// What is kept of foreign events.
    pub(crate) foreign: Tally,
    /// The holder with most bytes under guards, by name.
    pub(crate) most_guards: Option<String>,
    pub(crate) region_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) entry_bytes: u64,
}

/// The words of one look.
pub(super) struct Words<'a> {
    pub(super) config: &'a Config,
    pub(super) facts: Facts,
    pub(super) warm: WarmBytes,
}

impl Words<'_> {
    /// The class that is charged, in words.
    pub(super) fn describe(&self, class: InhibitClass, latches: Latches, reading: &Reading) -> Inhibit {
        let of_warm = matches!(class, InhibitClass::DeviceStalled | InhibitClass::WarmFull);
        debug_assert!(!of_warm || reading.warm.is_some(), "{class:?} is charged to a store without a warm level");
        let (scope, cause, owner, mut ends) = match (class, &reading.warm) {
            (InhibitClass::StoreGone, _) => gone_words(reading.gone.as_deref().unwrap_or_default()),
            (InhibitClass::DebugStream, _) => self.debug_words(reading.debug_quota),
            (InhibitClass::DeviceStalled, Some(warm)) => self.device_words(warm, latches, reading),
            (InhibitClass::WarmFull, Some(warm)) => self.warm_words(warm, latches, reading),
            (InhibitClass::Reserves, _) => {
                let text = format!(
                    "{}, new events must leave {} of {} segments free",
                    self.hot_marks(reading),
                    reading.reserve,
                    reading.segments
                );
                self.hot_words(text, reading, latches)
            }
            _ => self.hot_words(self.hot_marks(reading), reading, latches),
        };
        for other in latches.others(class) {
            ends.push_str(&format!("; the {other} holds the trigger as well"));
        }
        Inhibit { class, scope, cause, owner, ends }
    }

    fn hot_marks(&self, reading: &Reading) -> String {
        fill_and_marks("hot", reading.hot, self.config.hot_high, self.config.hot_low)
    }

    fn debug_words(&self, quota: u64) -> (String, String, String, String) {
        let debug = self.facts.live.debug;
        let cause = format!("debug stream: {} events with {} bytes, quota {quota}", debug.events, debug.bytes);
        let ends = "somebody replays, releases or removes debug events";
        ("debug stream".to_owned(), cause, "debug stream".to_owned(), ends.to_owned())
    }

    fn device_words(&self, warm: &WarmFill, latches: Latches, reading: &Reading) -> (String, String, String, String) {
        let device = format!("device {}", warm.stalled.as_deref().unwrap_or("unknown"));
        let level = if latches.warm {
            fill_and_marks("warm", warm.fill, self.config.warm_high, self.config.warm_low)
        } else {
            self.hot_marks(reading)
        };
        let ends = "it answers again, and what waits for it is written";
        (
            device.clone(),
            format!("the device answers nothing, or refuses what is written: {level}"),
            device,
            ends.to_owned(),
        )
    }

    fn warm_words(&self, warm: &WarmFill, latches: Latches, reading: &Reading) -> (String, String, String, String) {
        let Largest { share, what } = self.warm.largest();
        let mut cause = format!(
            "{}, {} containers free: {:.0} % {what}",
            fill_and_marks("warm", warm.fill, self.config.warm_high, self.config.warm_low),
            warm.free_containers,
            share * 100.0
        );
        let (owner, does) = mover_of(what);
        let mut ends = format!("{does}, until warm fill is {:.0} %", self.config.warm_low * 100.0);
        if !latches.warm {
            cause.push_str(&format!("; {}", self.hot_marks(reading)));
            ends = format!("{does}, until a container is free and the hot level is emptied into it");
        }
        ("warm level".to_owned(), cause, owner.to_owned(), ends)
    }

    fn hot_words(&self, level: String, reading: &Reading, latches: Latches) -> (String, String, String, String) {
        let until = if latches.hot {
            format!("until hot fill is {:.0} %", self.config.hot_low * 100.0)
        } else {
            "until new events have space again".to_owned()
        };
        let (cause, owner, ends) = match self.filler(reading) {
            Filler::Guards { share, owner } => {
                let ends = format!("`{owner}` drops its guards, {until}");
                (format!("{level}: {:.0} % dead bytes under guards", share * 100.0), owner, ends)
            }
            Filler::Data(Largest { share, what }) => {
                let (owner, does) = worker_of(what, reading.warm.is_some());
                (format!("{level}: {:.0} % {what}", share * 100.0), owner.to_owned(), format!("{does}, {until}"))
            }
        };
        ("hot level".to_owned(), cause, owner, ends)
    }

    /// Live data on the hot level by state: all of it, without what is on the warm level. An estimate with one, for
    /// words: an event that went down undecided is accepted there.
    fn hot_live(&self) -> Live {
        let (mut live, warm) = (self.facts.live, &self.warm);
        let mut take = |state: LiveState, bytes: u64| {
            let tally = &mut live[state];
            // Never below zero: the two figures are taken at different moments.
            let taken = bytes.min(tally.bytes);
            // Fragments go in proportion: they are weighed with their entries.
            tally.fragments -= (tally.fragments as f64 * taken as f64 / tally.bytes.max(1) as f64) as u64;
            tally.bytes -= taken;
            bytes - taken
        };
        take(LiveState::Debug, warm.debug);
        // What is undecided there may have become any of these since.
        let left = take(LiveState::Ready, warm.undecided);
        let left = take(LiveState::Leased, left);
        take(LiveState::Accepted, warm.accepted + left);
        live
    }

    fn filler(&self, reading: &Reading) -> Filler {
        let live = self.hot_live();
        let region = self.facts.region_bytes as f64;
        let weight = |tally: &Tally| tally.bytes + tally.fragments * self.facts.entry_bytes;
        let all: u64 = LIVE_STATES.into_iter().map(|state| weight(&live[state])).sum();
        let foreign = weight(&self.facts.foreign);
        // Of live events the account has what other nodes hold for them as well: here they have what the others leave.
        let left = (reading.hot * region - foreign as f64).max(0.0);
        let here = |state: LiveState| (weight(&live[state]) as f64 * (left / all.max(1) as f64).min(1.0)) as u64;
        let parts = LIVE_STATES.into_iter().map(|state| (here(state), state.name()));
        let (bytes, what) = [(foreign, FOREIGN)].into_iter().chain(parts).max_by_key(|part| part.0).unwrap_or_default();
        let pinned_bytes = u64::from(reading.pinned) * self.facts.segment_bytes;
        // No event's end frees what only guards keep: then the person to ask is the one who holds them.
        if pinned_bytes > bytes {
            let owner = self.facts.most_guards.clone().unwrap_or_else(|| "guards".to_owned());
            return Filler::Guards { share: pinned_bytes as f64 / region, owner };
        }
        Filler::Data(Largest { share: bytes as f64 / region, what })
    }
}

fn gone_words(what: &str) -> (String, String, String, String) {
    let cause = format!("{what}: what is put now is lost with this process");
    let ends = "it is back under its name; else end the readout, and stop this process last";
    ("store".to_owned(), cause, "operator".to_owned(), ends.to_owned())
}

fn fill_and_marks(level: &str, fill: f64, high: f64, low: f64) -> String {
    format!("{level} fill {:.0} % (marks {:.0} and {:.0} %)", fill * 100.0, high * 100.0, low * 100.0)
}

/// The role that empties the hot level of events in this state, and how.
fn worker_of(state: &str, warm: bool) -> (&'static str, &'static str) {
    match (state, warm) {
        ("open", _) => ("readout", "events complete or run out of time, and are decided"),
        ("ready", false) => ("selection", "workers take and decide ready events"),
        ("ready", true) => ("selection", "workers take and decide ready events, or they are demoted"),
        ("leased", _) => ("selection", "workers decide what they hold, or their leases run out"),
        ("debug", _) => ("debug stream", "somebody releases or removes debug events"),
        (FOREIGN, _) => ("homes", "the nodes that own these events decide them"),
        (_, false) => ("archive", "accepted events are taken over and released"),
        (_, true) => ("warm level", "accepted events are demoted"),
    }
}

/// The role that empties the warm level of this, and how.
fn mover_of(what: &str) -> (&'static str, &'static str) {
    match what {
        "open" | "ready" | "leased" | "debug" => worker_of(what, false),
        "accepted" => ("archive", "accepted events are taken over and released"),
        "dead" => ("warm level", "containers without live events are recycled, and others compacted"),
        _ => ("operator", "somebody moves or removes what was recorded"),
    }
}
