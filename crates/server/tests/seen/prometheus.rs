//! A real Prometheus that scrapes a server, evaluates the alerts, and answers what the dashboard asks.

use crate::seen::alerts::rules;
use crate::seen::dashboard::{expressions, model};
use crate::seen::scene::{EVENTS, Scene};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A Prometheus on loopback, ended with the test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes this server often, under the job's name that the alerts know.
    fn start(scene: &Scene) -> Prometheus {
        let config = scene.dir().join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 500ms\n  evaluation_interval: 500ms\nrule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: forebay\n    static_configs: [{{targets: ['{}']}}]\n",
            rules(),
            scene.address()
        );
        std::fs::write(&config, text).unwrap();
        // Free a moment ago; another process that takes it first would fail the start, and the test with it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", scene.dir().join("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus, of the Debian package of that name: `cargo xtask test` installs it");
        Prometheus { child, address }
    }

    /// What its API answers; `None` while it does not.
    fn api(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .build()
            .into();
        let ask = agent.get(format!("http://{}/api/v1/{path}", self.address)).query_pairs(query.iter().copied());
        serde_json::from_str(&ask.call().ok()?.body_mut().read_to_string().ok()?).ok()
    }

    /// The samples of an expression; an error of the expression fails the test.
    fn query(&self, expression: &str) -> Vec<Value> {
        let Some(answer) = self.api("query", &[("query", expression)]) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Waits for a value that is right.
    fn until(&self, expression: &str, is: impl Fn(f64) -> bool) {
        let from = Instant::now();
        let right = |sample: &Value| sample["value"][1].as_str().unwrap().parse().is_ok_and(&is);
        loop {
            let samples = self.query(expression);
            if !samples.is_empty() && samples.iter().all(right) {
                return;
            }
            assert!(from.elapsed() < Duration::from_secs(30), "{expression}: {samples:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_real_prometheus_reads_the_server() {
    let mut scene = Scene::new();
    let prometheus = Prometheus::start(&scene);
    prometheus.until("up{job=\"forebay\"}", |up| up == 1.0);
    let lease = scene.fill();
    prometheus.until("forebay_live_events{keyspace=\"physics\",state=\"ready\"}", |ready| ready == EVENTS as f64 - 4.0);
    prometheus
        .until("sum(forebay_live_events) + sum(forebay_events_total{term=\"rejected\"})", |all| all == EVENTS as f64);
    // It sees the type of what it scrapes, and a rate.
    prometheus.until("rate(forebay_fragments_total{term=\"stored\"}[20s])", |rate| rate > 0.0);
    let kinds = prometheus.api("metadata", &[]).unwrap();
    assert_eq!(kinds["data"]["forebay_fragments_total"][0]["type"], "counter", "{kinds}");
    assert_eq!(kinds["data"]["forebay_request_duration_seconds"][0]["type"], "histogram");
    let target = &prometheus.api("targets", &[]).unwrap()["data"]["activeTargets"][0];
    assert_eq!(target["health"], "up", "{target}");
    assert_eq!(target["lastError"], "");
    dashboard(&prometheus);
    alerts(&prometheus);
    drop(lease);
    // A server that is away is seen, and is an alert on its way.
    scene.server = None;
    prometheus.until("up{job=\"forebay\"}", |up| up == 0.0);
    prometheus.until("ALERTS{alertname=\"ForebayServerAway\"}", |value| value == 1.0);
}

/// Every expression of the dashboard is answered, as Grafana would ask it; those that say nothing where nothing happens
/// are the exception.
fn dashboard(prometheus: &Prometheus) {
    let model = model();
    let (mut answered, mut all) = (0, 0);
    for expression in expressions(&model) {
        let asked = expression.replace("$instance", ".*").replace("$keyspace", ".*").replace("$__rate_interval", "20s");
        assert!(!asked.contains('$'), "{expression}: a variable that nobody fills in");
        all += 1;
        answered += usize::from(!prometheus.query(&asked).is_empty());
    }
    let quiet = ["requests", "errors", "refused", "annotation"].len();
    assert!(all > 30 && answered >= all - quiet, "{answered} of {all} expressions have an answer");
}

/// The alerts are loaded and evaluated without an error.
fn alerts(prometheus: &Prometheus) {
    let from = Instant::now();
    loop {
        let answer = prometheus.api("rules", &[]).unwrap();
        let rules = answer["data"]["groups"][0]["rules"].as_array().unwrap().clone();
        assert!(rules.len() > 10, "{answer}");
        let bad: Vec<&Value> = rules.iter().filter(|rule| rule["health"] == "err").collect();
        assert!(bad.is_empty(), "{bad:?}");
        if rules.iter().all(|rule| rule["health"] == "ok") {
            return;
        }
        assert!(from.elapsed() < Duration::from_secs(20), "{answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
