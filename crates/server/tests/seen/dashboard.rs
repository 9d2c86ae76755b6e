//! The dashboard: what Grafana needs of its model, and that its panels ask for metrics that there are.
//!
//! *Not here*: Grafana itself, which Debian does not have; its expressions are asked of a real Prometheus
//! (`prometheus.rs`).

use crate::seen::alerts::root;
use crate::seen::scene::Scene;
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) fn model() -> Value {
    let text = std::fs::read_to_string(root().join("packaging/grafana/forebay.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// All expressions: of panels, of the annotation and of variables.
pub(crate) fn expressions(model: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = vec![model];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                all.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                rest.extend(fields.values());
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    all
}

/// Names of metrics in a text.
pub(crate) fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("forebay_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// Names of samples on a page.
pub(crate) fn exported(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

#[test]
fn panels_ask_for_what_there_is() {
    let scene = Scene::new();
    let _lease = scene.fill();
    let there = exported(&scene.get("/metrics"));
    let model = model();
    let mut asked: BTreeSet<String> = expressions(&model).iter().flat_map(|text| names_in(text)).collect();
    for variable in model["templating"]["list"].as_array().unwrap() {
        asked.extend(names_in(variable["definition"].as_str().unwrap_or_default()));
    }
    assert!(asked.len() > 30, "{asked:?}");
    for name in &asked {
        assert!(there.contains(name), "{name} is not on the page");
    }
    assert!(!there.contains("forebay_nothing") && names_in("rate(forebay_nothing[5m])").contains("forebay_nothing"));
}

#[test]
fn the_model_is_whole() {
    let model = model();
    assert!(model["schemaVersion"].as_u64().is_some_and(|version| version >= 36), "{}", model["schemaVersion"]);
    assert!(!model["title"].as_str().unwrap().is_empty() && !model["uid"].as_str().unwrap().is_empty());
    let variables = model["templating"]["list"].as_array().unwrap();
    let of = |name: &str| variables.iter().find(|variable| variable["name"] == name).unwrap();
    assert_eq!(of("datasource")["type"], "datasource");
    assert_eq!(of("datasource")["query"], "prometheus");
    for name in ["instance", "keyspace"] {
        assert_eq!(of(name)["type"], "query");
    }
    let panels = model["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is taken");
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(side("x") + side("w") <= 24, "{title} sticks out");
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(places.insert((x, y)), "{title} overlaps another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} asks for nothing");
        let references: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(references.len(), targets.len(), "{title}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            assert!(!target["expr"].as_str().unwrap().is_empty(), "{title}");
        }
    }
}
