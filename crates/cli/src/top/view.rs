//! The content of one screen, computed from a reading and the one before it.

use super::feed::{InhibitWords, Reading};
use super::page::Page;
use serde::Serialize;
use std::collections::BTreeMap;

/// States of live events in the order of the ledger.
const EVENT_STATES: [&str; 5] = ["open", "ready", "leased", "debug", "accepted"];

/// One keyspace of a server, and the server around it.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) url: String,
    pub(super) version: String,
    pub(super) ready: bool,
    pub(super) uptime_seconds: f64,
    pub(super) keyspace: String,
    pub(super) keyspaces: Vec<String>,
    pub(super) levels: Vec<LevelView>,
    pub(super) rates: Rates,
    pub(super) events: Vec<EventsView>,
    /// Where the keyspace is a ring.
    pub(super) ring: Option<RingView>,
    pub(super) leases: f64,
    pub(super) held: f64,
    pub(super) devices: Vec<DeviceView>,
    pub(super) inhibit: Option<InhibitView>,
    pub(super) inhibited_seconds: BTreeMap<String, f64>,
    pub(super) debug_alarm: bool,
    pub(super) connections: BTreeMap<String, f64>,
    pub(super) connections_limit: f64,
    pub(super) errors: BTreeMap<String, f64>,
    pub(super) calls: Vec<CallView>,
}

/// Fill and marks of a level, 0 to 1.
#[derive(Debug, Serialize)]
pub(super) struct LevelView {
    pub(super) level: String,
    pub(super) fill: f64,
    pub(super) capacity_bytes: f64,
    pub(super) inhibit_high: Option<f64>,
    pub(super) inhibit_low: Option<f64>,
    pub(super) demote_high: Option<f64>,
    pub(super) demote_low: Option<f64>,
}

/// What happens in a second; nothing where there was no reading before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) puts: Option<f64>,
    pub(super) stored_bytes: Option<f64>,
    pub(super) received_bytes: Option<f64>,
    pub(super) sent_bytes: Option<f64>,
    pub(super) verdicts: Option<f64>,
}

/// Live events of one state.
#[derive(Debug, Serialize)]
pub(super) struct EventsView {
    pub(super) state: &'static str,
    pub(super) events: f64,
    pub(super) fragments: f64,
    pub(super) bytes: f64,
}

/// What there is of a ring beyond its fill.
#[derive(Debug, Serialize)]
pub(super) struct RingView {
    pub(super) sources: f64,
    /// Since a source's last put, the longest.
    pub(super) silence_seconds: f64,
    pub(super) fragments: f64,
    pub(super) bytes: f64,
    pub(super) pins: f64,
    pub(super) pinned_bytes: f64,
    pub(super) pin_quota_bytes: f64,
    /// Chunks that windows keep in place.
    pub(super) guards: f64,
    pub(super) evicted_chunks_per_second: Option<f64>,
    pub(super) lost: f64,
    /// Fragments refused since the ring was opened, by cause.
    pub(super) refused: BTreeMap<String, f64>,
    pub(super) refused_per_second: Option<f64>,
}

/// One device of the warm level.
#[derive(Debug, Serialize)]
pub(super) struct DeviceView {
    pub(super) device: String,
    pub(super) present: bool,
    pub(super) stalled: bool,
    pub(super) containers: BTreeMap<String, f64>,
}

/// Why the trigger is held.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct InhibitView {
    pub(super) class: String,
    #[serde(flatten)]
    pub(super) words: Option<InhibitWords>,
}

/// One call since the reading before.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct CallView {
    pub(super) call: String,
    pub(super) per_second: f64,
    pub(super) errors_per_second: f64,
    pub(super) p50_seconds: Option<f64>,
    pub(super) p99_seconds: Option<f64>,
}

impl View {
    /// Of a keyspace by its number, modulo their count.
    pub(super) fn new(url: &str, number: usize, reading: &Reading, before: Option<&Reading>) -> View {
        let page = &reading.page;
        let keyspaces = keyspaces(page);
        let keyspace = keyspaces.get(number % keyspaces.len().max(1)).cloned().unwrap_or_default();
        let name = [("keyspace", keyspace.as_str())];
        let started = page.value("process_start_time_seconds", &[]);
        // Another process counts from zero.
        let before = before.filter(|before| before.page.value("process_start_time_seconds", &[]) == started);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let inhibit = page.samples("forebay_inhibit", &name).find(|sample| sample.value > 0.0).map(|sample| {
            let words = reading.words.keyspaces.get(&keyspace).and_then(|words| words.inhibit.clone());
            InhibitView { class: sample.label("class").replace('-', " "), words }
        });
        View {
            url: url.to_owned(),
            version: page.labels("forebay_build_info", &[], "version").pop().unwrap_or_default(),
            ready: page.value("forebay_ready", &[]) == Some(1.0),
            uptime_seconds: started.map_or(0.0, |started| (now - started).max(0.0)),
            levels: levels(page, &keyspace),
            rates: rates(reading, before, &keyspace),
            events: EVENT_STATES.map(|state| events(page, &keyspace, state)).into(),
            leases: page.sum("forebay_leases", &name),
            held: page.sum("forebay_held_events", &name),
            devices: devices(page, &keyspace),
            ring: ring(reading, before, &keyspace),
            inhibit,
            inhibited_seconds: page.sums("forebay_inhibited_seconds_total", &name, "class"),
            debug_alarm: page.sum("forebay_debug_alarm", &name) > 0.0,
            connections: page.sums("forebay_connections", &[], "listener"),
            connections_limit: page.sum("forebay_connections_limit", &[]),
            errors: page.sums("forebay_errors_total", &[], "kind").into_iter().filter(|kind| kind.1 > 0.0).collect(),
            calls: calls(reading, before),
            keyspace,
            keyspaces,
        }
    }
}

/// Keyspaces of events, then rings.
pub(super) fn keyspaces(page: &Page) -> Vec<String> {
    let fills = ["forebay_level_fill_ratio", "forebay_ring_fill_ratio"];
    fills.iter().flat_map(|fill| page.labels(fill, &[], "keyspace")).collect()
}

fn ring(reading: &Reading, before: Option<&Reading>, keyspace: &str) -> Option<RingView> {
    let (page, name) = (&reading.page, [("keyspace", keyspace)]);
    page.value("forebay_ring_fill_ratio", &name)?;
    let refused: BTreeMap<String, f64> = page.sums("forebay_ring_refused_fragments_total", &name, "cause");
    Some(RingView {
        sources: page.sum("forebay_ring_sources", &name),
        silence_seconds: page.sum("forebay_ring_silence_seconds", &name),
        fragments: page.sum("forebay_ring_fragments", &name),
        bytes: page.sum("forebay_ring_bytes", &name),
        pins: page.sum("forebay_ring_pins", &name),
        pinned_bytes: page.sum("forebay_ring_pinned_bytes", &name),
        pin_quota_bytes: page.sum("forebay_ring_pin_quota_bytes", &name),
        guards: page.sum("forebay_ring_guards", &name),
        evicted_chunks_per_second: rise(reading, before, "forebay_ring_evicted_chunks_total", &name),
        lost: page.sum("forebay_ring_ledger_fragments", &[name[0], ("term", "lost")]),
        refused: refused.into_iter().filter(|cause| cause.1 > 0.0).collect(),
        refused_per_second: rise(reading, before, "forebay_ring_refused_fragments_total", &name),
    })
}

/// The rise of a sum in a second; nothing without a reading before.
fn rise(reading: &Reading, before: Option<&Reading>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let before = before?;
    let seconds = reading.at.saturating_duration_since(before.at).as_secs_f64();
    let rise = reading.page.sum(name, labels) - before.page.sum(name, labels);
    (seconds > 0.0).then(|| rise.max(0.0) / seconds)
}

fn levels(page: &Page, keyspace: &str) -> Vec<LevelView> {
    let fills = page.samples("forebay_level_fill_ratio", &[]).filter(|sample| sample.label("keyspace") == keyspace);
    let level = |sample: &super::page::Sample| {
        let level = sample.label("level");
        let labels = [("keyspace", keyspace), ("level", level)];
        let mark = |mark: &str| page.value("forebay_level_mark_ratio", &[labels[0], labels[1], ("mark", mark)]);
        LevelView {
            level: level.to_owned(),
            fill: sample.value,
            capacity_bytes: page.sum("forebay_level_capacity_bytes", &labels),
            inhibit_high: mark("inhibit_high"),
            inhibit_low: mark("inhibit_low"),
            demote_high: mark("demote_high"),
            demote_low: mark("demote_low"),
        }
    };
    let ring = page.value("forebay_ring_fill_ratio", &[("keyspace", keyspace)]).map(|fill| LevelView {
        level: "ring".to_owned(),
        fill,
        capacity_bytes: page.sum("forebay_ring_capacity_bytes", &[("keyspace", keyspace)]),
        inhibit_high: None,
        inhibit_low: None,
        demote_high: None,
        demote_low: None,
    });
    fills.map(level).chain(ring).collect()
}

fn rates(reading: &Reading, before: Option<&Reading>, keyspace: &str) -> Rates {
    let rate = |name: &str, labels: &[(&str, &str)]| rise(reading, before, name, labels);
    let term = |term: &'static str| [("keyspace", keyspace), ("term", term)];
    let decided = |term_of: &'static str| rate("forebay_events_total", &term(term_of));
    // A keyspace is one or the other: the sums of the other one do not rise.
    let either = |events: (&str, &'static str), ring: &str| {
        let ring = rate(ring, &term("stored"));
        rate(events.0, &term(events.1)).map(|rate| rate + ring.unwrap_or_default())
    };
    Rates {
        puts: either(("forebay_fragments_total", "offered"), "forebay_ring_ledger_fragments"),
        stored_bytes: either(("forebay_fragment_bytes_total", "stored"), "forebay_ring_ledger_bytes"),
        received_bytes: rate("forebay_received_bytes_total", &[]),
        sent_bytes: rate("forebay_sent_bytes_total", &[]),
        verdicts: decided("accepted").zip(decided("rejected")).map(|(accepted, rejected)| accepted + rejected),
    }
}

fn events(page: &Page, keyspace: &str, state: &'static str) -> EventsView {
    let labels = [("keyspace", keyspace), ("state", state)];
    EventsView {
        state,
        events: page.sum("forebay_live_events", &labels),
        fragments: page.sum("forebay_live_fragments", &labels),
        bytes: page.sum("forebay_live_bytes", &labels),
    }
}

fn devices(page: &Page, keyspace: &str) -> Vec<DeviceView> {
    let names = page.labels("forebay_containers", &[("keyspace", keyspace)], "device");
    let device = |device: String| {
        let labels = [("keyspace", keyspace), ("device", device.as_str())];
        let containers = page.sums("forebay_containers", &labels, "state");
        DeviceView {
            present: page.value("forebay_device_present", &labels) != Some(0.0),
            stalled: page.sum("forebay_device_stalled", &labels) > 0.0,
            containers: containers.into_iter().filter(|state| state.1 > 0.0).collect(),
            device,
        }
    };
    names.into_iter().map(device).collect()
}

/// Calls that were made since the reading before, those with most requests first.
fn calls(reading: &Reading, before: Option<&Reading>) -> Vec<CallView> {
    let Some(before) = before else { return Vec::new() };
    let seconds = reading.at.saturating_duration_since(before.at).as_secs_f64();
    if seconds <= 0.0 {
        return Vec::new();
    }
    let rise = |name: &str, labels: &[(&str, &str)]| {
        (reading.page.sum(name, labels) - before.page.sum(name, labels)).max(0.0) / seconds
    };
    let one = |call: String| {
        let labels = [("call", call.as_str())];
        let buckets: Vec<(f64, f64)> = reading
            .page
            .samples("forebay_request_duration_seconds_bucket", &labels)
            .map(|sample| {
                let le = sample.label("le");
                let was = before.page.value("forebay_request_duration_seconds_bucket", &[labels[0], ("le", le)]);
                (le.parse().unwrap_or(f64::INFINITY), sample.value - was.unwrap_or(0.0))
            })
            .collect();
        CallView {
            per_second: rise("forebay_request_duration_seconds_count", &labels),
            errors_per_second: rise("forebay_errors_total", &labels),
            p50_seconds: quantile(&buckets, 0.5),
            p99_seconds: quantile(&buckets, 0.99),
            call,
        }
    };
    let names = reading.page.labels("forebay_request_duration_seconds_count", &[], "call");
    let mut calls: Vec<CallView> = names.into_iter().map(one).collect();
    calls.retain(|call| call.per_second > 0.0 || call.errors_per_second > 0.0);
    calls.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
    calls
}

/// A quantile of cumulative buckets with their upper bounds, even within a bucket, as Prometheus does it.
fn quantile(buckets: &[(f64, f64)], quantile: f64) -> Option<f64> {
    let all = buckets.last()?.1;
    let rank = quantile * all;
    if all <= 0.0 {
        return None;
    }
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (low, below) = at.checked_sub(1).map_or((0.0, 0.0), |before| buckets[before]);
    let (high, count) = buckets[at];
    // The last bucket has no end: what is known is where it begins.
    Some(if high.is_infinite() { low } else { low + (high - low) * (rank - below) / (count - below).max(1.0) })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::feed::Words;
    use std::time::{Duration, Instant};

    /// A page of a server some seconds after its start, with one put call of 3 ms each 10 ms.
    pub(in crate::top) fn reading(second: u64) -> Reading {
        let count = second * 100;
        let mut text = format!(
            "forebay_build_info{{version=\"0.1.0\"}} 1\nforebay_ready 1\nprocess_start_time_seconds 1000\n\
             forebay_fragments_total{{keyspace=\"physics\",term=\"offered\"}} {count}\n\
             forebay_fragment_bytes_total{{keyspace=\"physics\",term=\"stored\"}} {}\n\
             forebay_events_total{{keyspace=\"physics\",term=\"accepted\"}} {second}\n\
             forebay_events_total{{keyspace=\"physics\",term=\"rejected\"}} {}\n\
             forebay_received_bytes_total {}\nforebay_sent_bytes_total 0\n\
             forebay_request_duration_seconds_bucket{{call=\"put\",le=\"0.002048\"}} 0\n\
             forebay_request_duration_seconds_bucket{{call=\"put\",le=\"0.004096\"}} {count}\n\
             forebay_request_duration_seconds_bucket{{call=\"put\",le=\"+Inf\"}} {count}\n\
             forebay_request_duration_seconds_count{{call=\"put\"}} {count}\n\
             forebay_errors_total{{call=\"put\",kind=\"Full\"}} {second}\n\
             forebay_errors_total{{call=\"put\",kind=\"Closed\"}} 0\n\
             forebay_connections{{listener=\"native\"}} 12\nforebay_connections_limit 20000\n",
            count * 1000,
            second * 9,
            count * 1000,
        );
        for (keyspace, fill) in [("physics", 0.925), ("calib", 0.1)] {
            text += &format!(
                "forebay_level_fill_ratio{{keyspace=\"{keyspace}\",level=\"hot\"}} {fill}\n\
                 forebay_level_fill_ratio{{keyspace=\"{keyspace}\",level=\"warm\"}} 0.25\n\
                 forebay_level_capacity_bytes{{keyspace=\"{keyspace}\",level=\"hot\"}} 1073741824\n\
                 forebay_level_capacity_bytes{{keyspace=\"{keyspace}\",level=\"warm\"}} 1099511627776\n\
                 forebay_level_mark_ratio{{keyspace=\"{keyspace}\",level=\"hot\",mark=\"inhibit_high\"}} 0.9\n\
                 forebay_level_mark_ratio{{keyspace=\"{keyspace}\",level=\"hot\",mark=\"inhibit_low\"}} 0.75\n\
                 forebay_live_events{{keyspace=\"{keyspace}\",state=\"ready\"}} 41\n\
                 forebay_live_fragments{{keyspace=\"{keyspace}\",state=\"ready\"}} 82\n\
                 forebay_live_bytes{{keyspace=\"{keyspace}\",state=\"ready\"}} 84000\n\
                 forebay_leases{{keyspace=\"{keyspace}\"}} 7\n\
                 forebay_containers{{keyspace=\"{keyspace}\",device=\"/disk1/warm\",state=\"full\"}} 3\n\
                 forebay_containers{{keyspace=\"{keyspace}\",device=\"/disk1/warm\",state=\"empty\"}} 13\n\
                 forebay_containers{{keyspace=\"{keyspace}\",device=\"/disk1/warm\",state=\"lost\"}} 0\n\
                 forebay_device_present{{keyspace=\"{keyspace}\",device=\"/disk1/warm\"}} 1\n\
                 forebay_device_stalled{{keyspace=\"{keyspace}\",device=\"/disk1/warm\"}} 1\n"
            );
        }
        text += "forebay_inhibit{keyspace=\"physics\",class=\"hot-full\"} 1\n\
                 forebay_inhibit{keyspace=\"physics\",class=\"warm-full\"} 0\n\
                 forebay_inhibited_seconds_total{keyspace=\"physics\",class=\"hot-full\"} 1.25\n";
        let words = r#"{"keyspaces":{"physics":{"inhibit":{"class":"hot-full","scope":"hot level",
            "cause":"hot fill 92 % (marks 90 and 75 %): 71 % ready","owner":"selection","ends":"hot fill is below 75 %"}}}}"#;
        let words: Words = serde_json::from_str(words).unwrap();
        let at = start() + Duration::from_secs(second);
        Reading { at, page: Page::read(&text).unwrap(), words }
    }

    fn start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    #[test]
    fn rates_are_those_between_two_readings() {
        let (before, now) = (reading(3), reading(5));
        let view = View::new("u", 0, &now, Some(&before));
        assert_eq!(view.rates.puts, Some(100.0));
        assert_eq!(view.rates.stored_bytes, Some(100_000.0));
        assert_eq!(view.rates.verdicts, Some(10.0));
        assert_eq!(view.rates.sent_bytes, Some(0.0));
        let put = &view.calls[0];
        assert_eq!((put.call.as_str(), put.per_second, put.errors_per_second), ("put", 100.0, 1.0));
        assert_eq!(put.p50_seconds, Some(0.003_072));
        assert_eq!(View::new("u", 0, &now, None).rates, Rates::default());
    }

    #[test]
    fn another_process_has_no_rate_yet() {
        let (before, mut now) = (reading(300), reading(301));
        now.page =
            Page::read("process_start_time_seconds 2000\nforebay_fragments_total{term=\"offered\"} 7\n").unwrap();
        assert_eq!(View::new("u", 0, &now, Some(&before)).rates, Rates::default());
    }

    #[test]
    fn a_keyspace_has_its_own_levels_and_its_own_inhibit() {
        let view = View::new("u", 0, &reading(1), None);
        assert_eq!(view.keyspace, "physics");
        let inhibit = view.inhibit.unwrap();
        assert_eq!(inhibit.class, "hot full");
        assert_eq!(inhibit.words.unwrap().owner, "selection");
        assert_eq!((view.levels[0].fill, view.levels[0].inhibit_high), (0.925, Some(0.9)));
        assert_eq!(view.levels[1].demote_high, None);
        let other = View::new("u", 1, &reading(1), None);
        assert_eq!((other.keyspace.as_str(), other.inhibit), ("calib", None));
        assert_eq!(other.levels[0].fill, 0.1);
        assert_eq!(View::new("u", 2, &reading(1), None).keyspace, "physics");
        assert!(view.devices[0].stalled && !view.devices[0].containers.contains_key("lost"));
        assert_eq!(view.errors.len(), 1, "kinds without errors are left out");
    }

    #[test]
    fn a_ring_is_a_keyspace_with_figures_of_its_own() {
        let ring = |second: u64| {
            let mut reading = reading(second);
            let text = format!(
                "process_start_time_seconds 1000\nforebay_ring_fill_ratio{{keyspace=\"links\"}} 0.97\n\
                 forebay_level_fill_ratio{{keyspace=\"physics\",level=\"hot\"}} 0.1\n\
                 forebay_ring_capacity_bytes{{keyspace=\"links\"}} 1073741824\nforebay_ring_sources{{keyspace=\"links\"}} 48\n\
                 forebay_ring_ledger_fragments{{keyspace=\"links\",term=\"stored\"}} {}\n\
                 forebay_ring_ledger_bytes{{keyspace=\"links\",term=\"stored\"}} {}\n\
                 forebay_ring_pins{{keyspace=\"links\"}} 2\nforebay_ring_silence_seconds{{keyspace=\"links\"}} 0.5\n\
                 forebay_ring_evicted_chunks_total{{keyspace=\"links\"}} {}\n\
                 forebay_ring_refused_fragments_total{{keyspace=\"links\",cause=\"skew\"}} {second}\n\
                 forebay_ring_refused_fragments_total{{keyspace=\"links\",cause=\"no_space\"}} 0\n",
                second * 1000,
                second * 7_200_000,
                second * 3
            );
            reading.page = Page::read(&text).unwrap();
            reading
        };
        let (before, now) = (ring(4), ring(6));
        let view = View::new("u", 1, &now, Some(&before));
        assert_eq!((view.keyspaces.join(" "), view.keyspace.as_str()), ("physics links".to_owned(), "links"));
        assert_eq!((view.rates.puts, view.rates.stored_bytes), (Some(1000.0), Some(7.2e6)));
        assert_eq!((view.levels[0].level.as_str(), view.levels[0].fill), ("ring", 0.97));
        let links = view.ring.unwrap();
        assert_eq!((links.sources, links.pins, links.silence_seconds, links.lost), (48.0, 2.0, 0.5, 0.0));
        assert_eq!((links.evicted_chunks_per_second, links.refused_per_second), (Some(3.0), Some(1.0)));
        assert_eq!(links.refused.into_iter().collect::<Vec<_>>(), [("skew".to_owned(), 6.0)]);
        assert!(View::new("u", 0, &now, Some(&before)).ring.is_none());
    }

    #[test]
    fn a_page_of_something_else_makes_an_empty_view() {
        let reading = Reading { at: Instant::now(), page: Page::read("up 1\n").unwrap(), words: Words::default() };
        let view = View::new("u", 5, &reading, Some(&reading));
        assert!(view.levels.is_empty() && !view.ready && view.keyspace.is_empty());
    }

    #[test]
    fn quantiles_of_few_and_of_slow() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 4.0)], 0.5), Some(1.0));
        assert_eq!(quantile(&[(1.0, 10.0), (f64::INFINITY, 10.0)], 0.5), Some(0.5));
    }
}
