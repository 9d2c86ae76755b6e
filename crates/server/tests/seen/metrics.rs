//! `/metrics`: values that are right, names that follow the conventions, as Prometheus's own checker sees them.

use crate::seen::scene::{EVENTS, FRAGMENT_BYTES, Scene, get, value};
use forebay_core::{GapCause, RingOutcome, RingPut, RingSources};
use forebay_store::DebugStats;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn what_a_store_holds_is_on_the_page() {
    let scene = Scene::new();
    let lease = scene.fill();
    scene.until("forebay_live_events{keyspace=\"physics\",state=\"leased\"}", |count| count == 1.0);
    let text = scene.get("/metrics");
    let of = |name: &str| value(&text, name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    let state = |state: &str| of(&format!("forebay_live_events{{keyspace=\"physics\",state=\"{state}\"}}"));
    assert_eq!(
        ["open", "ready", "leased", "accepted", "debug"].map(state),
        [1.0, EVENTS as f64 - 4.0, 1.0, 1.0, 0.0],
        "{text}"
    );
    let total = |name: &str, term: &str| of(&format!("forebay_{name}_total{{keyspace=\"physics\",term=\"{term}\"}}"));
    let stored = 2 * EVENTS - 1;
    assert_eq!(total("fragments", "offered"), stored as f64 + 2.0);
    assert_eq!(total("fragments", "stored"), stored as f64);
    assert_eq!(total("fragments", "duplicate"), 1.0);
    assert_eq!(total("fragments", "conflict"), 1.0);
    assert_eq!(total("fragment_bytes", "stored"), (stored * FRAGMENT_BYTES) as f64);
    assert_eq!(total("events", "accepted"), 1.0);
    assert_eq!(total("events", "rejected"), 1.0);
    let run = "{keyspace=\"physics\",run=\"1\",term=\"rejected\"}";
    assert_eq!(of(&format!("forebay_run_fragments{run}")), 2.0);
    assert_eq!(of(&format!("forebay_run_bytes{run}")), 2.0 * FRAGMENT_BYTES as f64);
    assert_eq!(of("forebay_leases{keyspace=\"physics\"}"), 1.0);
    assert_eq!(of("forebay_level_mark_ratio{keyspace=\"physics\",level=\"hot\",mark=\"inhibit_high\"}"), 0.9);
    assert_eq!(of("forebay_runs{keyspace=\"physics\",state=\"open\"}"), 1.0);
    let fill = of("forebay_level_fill_ratio{keyspace=\"physics\",level=\"hot\"}");
    assert!(fill > 0.0 && fill < 1.0, "{fill}");
    let device = scene.dir().join("disk one");
    let device = format!("keyspace=\"physics\",device=\"{}\"", device.display());
    let states = ["empty", "filling", "full", "draining", "poisoned", "recycling", "lost"];
    let containers = states.map(|state| of(&format!("forebay_containers{{{device},state=\"{state}\"}}")));
    assert_eq!(containers.iter().sum::<f64>(), scene.store.containers().len() as f64);
    assert_eq!(of(&format!("forebay_device_present{{{device}}}")), 1.0);
    assert_eq!(of("forebay_ready"), 1.0);
    assert!(of("process_resident_memory_bytes") > 1e6);
    assert!(of("process_open_fds") > 3.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - of("process_start_time_seconds");
    assert!((-2.0..3600.0).contains(&age), "the process began {age} s ago");
    drop(lease);
}

#[test]
fn what_demotion_did_is_on_the_page() {
    let scene = Scene::new();
    let _lease = scene.fill();
    // The accepted event goes down promptly.
    scene.until("forebay_demoted_events_total{keyspace=\"physics\"}", |count| count >= 1.0);
    let bytes = scene.sample("forebay_demoted_bytes_total{keyspace=\"physics\"}");
    assert_eq!(bytes, 2.0 * FRAGMENT_BYTES as f64);
}

#[test]
fn inhibit_has_its_class_and_its_seconds() {
    let scene = Scene::with("tight", |config| {
        config.warm.clear();
        (config.hot_high, config.hot_low) = (0.3, 0.2);
    });
    let name = "forebay_inhibit{keyspace=\"tight\",class=\"hot-full\"}";
    assert_eq!(scene.sample(name), 0.0);
    let schema = scene.store.schema().clone();
    let options = forebay_store::PutOptions::default();
    for event in 0.. {
        let _ = scene.store.put(&schema.key(&[1, event, 0]).unwrap(), &[1; 32 << 10], &options).unwrap();
        if scene.store.stats().inhibit.is_some() {
            break;
        }
    }
    scene.until(name, |value| value == 1.0);
    assert_eq!(scene.sample("forebay_inhibit{keyspace=\"tight\",class=\"warm-full\"}"), 0.0);
    scene.until("forebay_inhibited_seconds_total{keyspace=\"tight\",class=\"hot-full\"}", |seconds| seconds > 0.0);
    // In words: who can end it and how.
    let state: serde_json::Value = serde_json::from_str(&scene.get("/status")).unwrap();
    let inhibit = &state["keyspaces"]["tight"]["inhibit"];
    assert_eq!(inhibit["class"], "hot-full");
    for field in ["cause", "owner", "ends", "scope"] {
        assert!(inhibit[field].as_str().is_some_and(|text| !text.is_empty()), "{state}");
    }
    assert_eq!(state["ready"], true);
}

#[test]
fn metrics_follow_the_conventions() {
    let scene = Scene::new();
    let _lease = scene.fill();
    let page = scene.get("/metrics");
    let (mut help, mut kinds, mut seen) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').unwrap();
            assert!(help.insert(name, text).is_none(), "{name} has two helps");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(name, kind).is_none(), "{name} has two types");
        } else {
            let sample = line.rsplit_once(' ').unwrap().0;
            assert!(seen.insert(sample), "{sample} appears twice");
        }
    }
    assert_eq!(help.keys().collect::<Vec<_>>(), kinds.keys().collect::<Vec<_>>());
    for (name, kind) in kinds {
        let is_counter = kind == "counter";
        assert_eq!(name.ends_with("_total"), is_counter, "{name} is a {kind}");
        assert!(name.starts_with("forebay_") || name.starts_with("process_"), "{name}");
        assert!(help[name].ends_with('.'), "{name}: {}", help[name]);
    }
}

#[test]
fn the_checker_of_prometheus_finds_nothing() {
    let scene = Scene::with("key\"space\\ with\nall", |_| {});
    let _lease = scene.fill();
    let page = scene.get("/metrics");
    assert!(page.contains("keyspace=\"key\\\"space\\\\ with\\nall\""), "{page}");
    let (success, said) = check(&page);
    assert!(success && said.trim().is_empty(), "{said}");
    // The checker bites: a page that breaks a rule is found.
    assert!(!check("# TYPE forebay_wrong counter\nforebay_wrong{ 1\n").0);
    assert!(!check("# TYPE forebay_things counter\nforebay_things 1\n").1.trim().is_empty());
}

/// What `promtool check metrics` says.
fn check(page: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().expect("promtool, of the Debian package prometheus: `cargo xtask test` installs it");
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn connections_are_counted_by_listener() {
    let scene = Scene::new();
    for _ in 0..3 {
        drop(std::net::TcpStream::connect(scene.native()).unwrap());
    }
    scene.until("forebay_connections_taken_total{listener=\"native\"}", |count| count >= 3.0);
    scene.until("forebay_connections{listener=\"native\"}", |count| count == 0.0);
    // The one that asks is open, once those that asked before have ended.
    scene.until("forebay_connections{listener=\"http\"}", |count| count == 1.0);
}

#[test]
fn a_page_is_made_beside_the_work() {
    let scene = Scene::new();
    let _lease = scene.fill();
    let address = scene.address();
    let pages: Vec<_> = (0..16).map(|_| std::thread::spawn(move || get(address, "/metrics"))).collect();
    for page in pages {
        let (status, text) = page.join().unwrap();
        assert_eq!(status, 200);
        assert!(text.ends_with('\n') && text.contains("forebay_leases"), "a page that is cut off: {text}");
    }
}

#[test]
fn the_debug_stream_has_a_quota_and_an_alarm() {
    let scene = Scene::new();
    assert_eq!(scene.sample("forebay_debug_alarm{keyspace=\"physics\"}"), 0.0);
    let _lease = scene.fill();
    // The conflicting copy is for a person to look at.
    let DebugStats { quota_bytes, conflicts, alarm, .. } = scene.store.stats().debug;
    assert_eq!(scene.sample("forebay_debug_quota_bytes{keyspace=\"physics\"}"), quota_bytes as f64);
    assert_eq!(scene.sample("forebay_debug_conflicts{keyspace=\"physics\"}"), conflicts as f64);
    assert_eq!(scene.sample("forebay_debug_alarm{keyspace=\"physics\"}"), f64::from(u8::from(alarm.is_some())));
    assert_eq!(conflicts, 1);
}

/// What fails of a request by itself is counted under its call, and a put's time begins with its first bytes.
#[test]
fn single_failures_and_the_time_of_puts_are_seen() {
    let scene = Scene::new();
    let address = format!("tcp://{}", scene.native());
    let options = forebay_client::Options { keyspace: "physics".to_owned(), ..Default::default() };
    let client = forebay_client::Client::connect(&address, options).unwrap();
    let key = client.schema().key(&[1, 500, 0]).unwrap();
    for source in 0..2 {
        let key = client.schema().key(&[1, 500, source]).unwrap();
        let _ = client.put(&key, &vec![1; 200_000], &Default::default()).err();
        let _ = client.put(&key, &[1; 1000], &Default::default()).unwrap();
    }
    client.put(&key, &[2; 1000], &Default::default()).unwrap_err();
    let lease = client.lease(&client.schema().primary_of(&key), None).unwrap().unwrap();
    let (primary, token) = (lease.primary, lease.token);
    lease.reject().unwrap();
    client.requeue(&primary, &token).unwrap_err();
    let errors = |call: &str, kind: &str| format!("forebay_errors_total{{call=\"{call}\",kind=\"{kind}\"}}");
    assert_eq!(scene.sample(&errors("verdict", "Fenced")), 1.0);
    assert_eq!(scene.sample(&errors("put", "Conflict")), 1.0);
    let sum = scene.sample("forebay_request_duration_seconds_sum{call=\"put\"}");
    let count = scene.sample("forebay_request_duration_seconds_count{call=\"put\"}");
    assert!(count >= 5.0 && sum / count > 1e-6, "{sum} s for {count} puts");
}

#[test]
fn a_ring_is_shown_as_it_is() {
    let scene = Scene::new();
    let source = scene.ring.keyspace().source(&[7]).unwrap();
    let put = |timestamp| scene.ring.put(&source, timestamp, 10, &[1; 500], &RingPut::default()).unwrap();
    (0..5).for_each(|at| assert_eq!(put(at * 10), RingOutcome::Stored));
    assert_eq!(put(62_500_000 * 3600), RingOutcome::Refused(GapCause::Skew));
    let pin = scene.ring.pin(0, 20, &RingSources::All, Duration::from_secs(60)).unwrap();
    let window = scene.ring.window(0, 50, &RingSources::All, Duration::ZERO).unwrap();
    let stats = scene.ring.stats();
    let expected = [
        ("fragments{keyspace=\"links\"}", 5.0),
        ("bytes{keyspace=\"links\"}", 2500.0),
        ("pins{keyspace=\"links\"}", 1.0),
        ("pinned_bytes{keyspace=\"links\"}", pin.bytes() as f64),
        ("pin_quota_bytes{keyspace=\"links\"}", stats.pin_quota_bytes as f64),
        ("capacity_bytes{keyspace=\"links\"}", (u64::from(stats.segments) * stats.segment_bytes) as f64),
        ("fill_ratio{keyspace=\"links\"}", stats.fill),
        ("guards{keyspace=\"links\"}", 1.0),
        ("sources{keyspace=\"links\"}", 1.0),
        ("refused_fragments_total{keyspace=\"links\",cause=\"skew\"}", 1.0),
        ("refused_fragments_total{keyspace=\"links\",cause=\"no_space\"}", 0.0),
        ("ledger_fragments{keyspace=\"links\",term=\"stored\"}", 5.0),
    ];
    for (name, value) in expected {
        assert_eq!(scene.sample(&format!("forebay_ring_{name}")), value, "{name}");
    }
    let silent = scene.sample("forebay_ring_silence_seconds{keyspace=\"links\"}");
    assert!((0.0..60.0).contains(&silent), "{silent}");
    drop(window);
}

/// The table of docs/monitoring.md has every metric, with its labels and its help, and no other.
#[test]
fn every_metric_is_documented() {
    let scene = Scene::new();
    let _lease = scene.fill();
    let page = scene.get("/metrics");
    let docs = std::fs::read_to_string(crate::seen::alerts::root().join("docs/monitoring.md")).unwrap();
    let rows: BTreeMap<&str, &str> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter(|(name, _)| name.starts_with("forebay_") || name.starts_with("process_"))
        .collect();
    let helps: BTreeMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' ')).collect();
    assert_eq!(rows.keys().collect::<Vec<_>>(), helps.keys().collect::<Vec<_>>());
    for (name, help) in helps {
        let row = rows[name];
        assert!(row.ends_with(&format!("| {} |", help.trim_end_matches('.'))), "{name}: {row}\nsays: {help}");
        // A histogram has its labels without bounds at its count.
        let starts = [format!("{name}{{"), format!("{name}_count{{")];
        let of_name = |line: &&str| starts.iter().any(|start| line.starts_with(start));
        let sample = page.lines().find(of_name).unwrap_or_default();
        let labels: Vec<&str> = sample.split("=\"").filter_map(|part| part.rsplit(['{', ',', ' ']).next()).collect();
        let labels = labels[..labels.len().saturating_sub(1)].join(", ");
        assert!(row.starts_with(&format!("{labels} | ")), "{name}: {row}\nhas: {labels}");
    }
}
