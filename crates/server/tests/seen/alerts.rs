//! The alerts, as Prometheus's own checker and tester see them.

use crate::seen::dashboard::{exported, names_in};
use crate::seen::scene::Scene;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn rules() -> PathBuf {
    root().join("packaging/prometheus/forebay-alerts.yml")
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_path_buf()
}

fn promtool(arguments: &[&str], file: &Path) -> (bool, String) {
    let done = Command::new("promtool").args(arguments).arg(file).output();
    let done = done.expect("promtool, of the Debian package prometheus: `cargo xtask test` installs it");
    (done.status.success(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

#[test]
fn the_rules_are_well_formed_and_each_fires() {
    let (good, said) = promtool(&["check", "rules"], &rules());
    assert!(good, "{said}");
    let cases = root().join("crates/server/tests/seen/alerts.yml");
    let (good, said) = promtool(&["test", "rules"], &cases);
    assert!(good, "{said}");
    let cases = std::fs::read_to_string(cases).unwrap();
    let text = std::fs::read_to_string(rules()).unwrap();
    let alerts: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(cases.contains(&format!("alertname=\"{alert}\"")), "{alert} is not tested");
    }
}

#[test]
fn alerts_ask_for_what_there_is() {
    let scene = Scene::new();
    let there = exported(&scene.get("/metrics"));
    let text = std::fs::read_to_string(rules()).unwrap();
    // Names in words for people are names of alerts, in another case: only metrics begin in lower case.
    let asked = names_in(&text);
    assert!(asked.len() > 8, "{asked:?}");
    for name in asked {
        assert!(there.contains(&name), "{name} is not on the page");
    }
}
