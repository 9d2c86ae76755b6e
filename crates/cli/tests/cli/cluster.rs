//! A cluster of three server processes on this machine, as people start it: one is killed, taken out of new runs, and comes back.

use super::serve::Serving;
use super::top::Terminal;
use super::{Temp, assert_code, stderr, stdout};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

struct Nodes {
    temp: Temp,
    servers: Vec<Option<Serving>>,
}

impl Nodes {
    fn new() -> Nodes {
        Nodes::with(&["--sources-per-event", "1"])
    }

    /// Stores that are created with these options.
    fn with(options: &[&str]) -> Nodes {
        let temp = Temp::new();
        let mut new = vec!["cluster".to_owned(), "new".to_owned(), "map.json".to_owned()];
        for id in 1..=3 {
            // The last one is full before the others.
            let bytes = if id == 3 { "8M" } else { "16M" };
            assert_code(&temp.run(&[&["create", &format!("n{id}"), "--hot-bytes", bytes], options].concat()), 0);
            // One by its directory, the others by what its own machine prints.
            let number = stdout(&temp.run(&["cluster", "id", &format!("n{id}")]));
            let store = if id == 1 { "n1" } else { number.trim() };
            let socket = temp.root.join(format!("n{id}.sock"));
            new.extend(["--node".to_owned(), format!("n{id}=unix:{}={store}", socket.display())]);
        }
        assert_code(&temp.run(&new.iter().map(String::as_str).collect::<Vec<_>>()), 0);
        let mut nodes = Nodes { temp, servers: (0..3).map(|_| None).collect() };
        (1..=3).for_each(|id| nodes.start(id));
        nodes
    }

    fn start(&mut self, id: usize) {
        let (dir, native) =
            (format!("n{id}"), format!("unix:{}", self.temp.root.join(format!("n{id}.sock")).display()));
        let serve = ["serve", &dir, "--native", &native, "--resp", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0"];
        let mut command = self.temp.command(&serve);
        self.servers[id - 1] = Some(Serving::start(command.args(["--cluster", "map.json"])));
    }

    /// Addresses of two nodes, of which one is up at any time.
    fn places(&self) -> String {
        let at = |id| format!("unix:{}", self.temp.root.join(format!("n{id}.sock")).display());
        format!("{},{}", at(1), at(3))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let places = self.places();
        let arguments: Vec<&str> = arguments.iter().map(|one| if *one == "CLUSTER" { &places } else { *one }).collect();
        self.temp.run(&arguments)
    }

    /// Waits until all nodes answer and know each other.
    fn meet(&self) {
        let end = Instant::now() + Duration::from_secs(40);
        while self.run(&["cluster", "status", "CLUSTER"]).status.code() != Some(0) {
            assert!(Instant::now() < end, "{}", stdout(&self.run(&["cluster", "status", "CLUSTER"])));
        }
    }

    /// The port at which a node speaks Redis's protocol.
    fn redis(&self, id: usize) -> String {
        let address = self.servers[id - 1].as_ref().unwrap().address("resp");
        address.rsplit(':').next().unwrap().to_owned()
    }

    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_code(&output, code);
        serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap()
    }
}

#[test]
fn a_node_is_killed_taken_out_of_new_runs_and_comes_back() {
    let mut nodes = Nodes::new();
    for event in 0..20 {
        // Blocks of neighbours are on one node.
        assert_code(&nodes.run(&["put", "CLUSTER", &format!("1/{}/0", event * 64), "bytes"]), 0);
    }
    let stored = |nodes: &Nodes| nodes.json(&["ledger", "CLUSTER", "1"], 0)["outcomes"]["stored"]["fragments"].clone();
    assert_eq!(stored(&nodes), 20);
    let status = nodes.json(&["cluster", "status", "CLUSTER"], 0);
    assert_eq!((status["nodes"].as_array().map(Vec::len), &status["well"]), (Some(3), &Value::from(true)), "{status}");
    // One address is one node, which names the home of what it has not.
    let one = format!("unix:{}", nodes.temp.root.join("n1.sock").display());
    let alone = nodes.temp.run(&["why", &one, "1/0/0"]);
    let elsewhere = stdout(&alone).contains("its home is node");
    assert!(elsewhere || stdout(&alone).starts_with("present"), "{}", stdout(&alone));
    assert!(stderr(&nodes.run(&["device", "drain", "CLUSTER", "0"])).contains("about one node"));

    nodes.servers[1] = None;
    let status = nodes.run(&["cluster", "status", "CLUSTER"]);
    assert_code(&status, 1);
    for words in ["node 2 (`n2`)", "its part of new runs: slots 1366..2730 (33 %)"] {
        assert!(stdout(&status).contains(words), "{}", stdout(&status));
    }
    let status = nodes.json(&["cluster", "status", "CLUSTER"], 1);
    assert_eq!(status["nodes"][1]["part"], json!({ "slots": ["1366..2730"], "sources": [] }), "{status}");
    let waits = "node 2 (`n2`) does not answer; what waits for it of run 1: slots 1366..2730 (33 %)";
    let stopped = nodes.run(&["run", "CLUSTER", "stop", "1"]);
    assert_code(&stopped, 0);
    assert!(stdout(&stopped).contains(waits), "{}", stdout(&stopped));
    let stopped = nodes.json(&["run", "CLUSTER", "stop", "1"], 0);
    assert_eq!((&stopped["away"][0]["node"], &stopped["away"][1]), (&2.into(), &Value::Null), "{stopped}");
    let closed = nodes.run(&["run", "CLUSTER", "close", "1"]);
    assert_code(&closed, 5);
    assert!(stderr(&closed).contains(waits), "{}", stderr(&closed));
    // Taken out of new runs: one node reads the new map, the other learns it.
    assert_code(&nodes.run(&["cluster", "change", "map.json", "next.json", "--take-out", "2", "--from-run", "100"]), 0);
    let begun = nodes.run(&["cluster", "change", "map.json", "wrong.json", "--take-out", "2", "--from-run", "1"]);
    assert_code(&begun, 0);
    let wrong = nodes.run(&["cluster", "check", "wrong.json", &nodes.places()]);
    assert_code(&wrong, 1);
    assert!(stdout(&wrong).contains("run 1 has begun"), "{}", stdout(&wrong));
    // It need not answer where it gets nothing. What the map gives something to must, at each of its addresses.
    let next = nodes.run(&["cluster", "check", "next.json", &nodes.places()]);
    assert_code(&next, 0);
    assert_eq!(stderr(&next).matches("note: node 2 (`n2`): unix:").count(), 1, "{}", stderr(&next));
    let mut moved: Value = serde_json::from_slice(&std::fs::read(nodes.temp.root.join("next.json")).unwrap()).unwrap();
    moved.as_object_mut().unwrap().remove("hash");
    moved["nodes"][2]["at"].as_array_mut().unwrap().push("unix:/nobody/listens.sock".into());
    std::fs::write(nodes.temp.root.join("moved.json"), moved.to_string()).unwrap();
    let moved = nodes.run(&["cluster", "check", "moved.json", &nodes.places()]);
    assert_code(&moved, 1);
    let problems: Vec<String> =
        stdout(&moved).lines().filter(|line| line.contains("problem: ")).map(str::to_owned).collect();
    assert!(matches!(&problems[..], [one] if one.contains("node 3 (`n3`): unix:/nobody/listens.sock")), "{problems:?}");
    // A map that the node may not take: it goes on by its own, and its status says why.
    std::fs::rename(nodes.temp.root.join("wrong.json"), nodes.temp.root.join("map.json")).unwrap();
    nodes.servers[0].as_ref().unwrap().signal("HUP");
    let end = Instant::now() + Duration::from_secs(40);
    let refused = |status: &Value| status["nodes"][0]["status"]["map_refused"].as_str().map(str::to_owned);
    let why = loop {
        let status = nodes.json(&["cluster", "status", "CLUSTER"], 1);
        assert_eq!(status["nodes"][0]["status"]["epoch"], 2, "{status}");
        if let Some(why) = refused(&status) {
            break why;
        }
        assert!(Instant::now() < end, "{status}");
    };
    assert!(why.contains("run 1 has begun"), "{why}");
    let said = stdout(&nodes.run(&["cluster", "status", "CLUSTER"]));
    assert!(said.contains(&format!("refused the map of its file: {why}")), "{said}");
    std::fs::rename(nodes.temp.root.join("next.json"), nodes.temp.root.join("map.json")).unwrap();
    nodes.servers[0].as_ref().unwrap().signal("HUP");
    let end = Instant::now() + Duration::from_secs(40);
    while !stdout(&nodes.run(&["cluster", "status", "CLUSTER"]))
        .lines()
        .filter(|line| line.contains("epoch 3"))
        .count()
        .eq(&2)
    {
        assert!(Instant::now() < end, "{}", stdout(&nodes.run(&["cluster", "status", "CLUSTER"])));
    }
    assert_eq!(refused(&nodes.json(&["cluster", "status", "CLUSTER"], 1)), None, "it took the next one");
    assert_code(&nodes.run(&["run", "CLUSTER", "open", "100"]), 0);
    for event in 0..20 {
        assert_code(&nodes.run(&["put", "CLUSTER", &format!("100/{}/0", event * 64), "bytes"]), 0);
    }
    nodes.start(2);
    assert_eq!(stored(&nodes), 20, "it came back with what it had");
    nodes.meet();
    let taken = nodes.run(&["take", "CLUSTER", "-n", "40", "--reject"]);
    assert_code(&taken, 0);
    for run in ["1", "100"] {
        assert_code(&nodes.run(&["run", "CLUSTER", "close", run]), 0);
    }
    // The bytes of all runs from 200 on stay with node 3, wherever the homes of their events are.
    let table = ["cluster", "change", "map.json", "table.json", "--table", "0=3", "--from-run", "200"];
    assert_code(&nodes.run(&table), 0);
    std::fs::rename(nodes.temp.root.join("table.json"), nodes.temp.root.join("map.json")).unwrap();
    nodes.servers[0].as_ref().unwrap().signal("HUP");
    let end = Instant::now() + Duration::from_secs(40);
    while stdout(&nodes.run(&["cluster", "status", "CLUSTER"])).matches("epoch 4").count() != 3 {
        assert!(Instant::now() < end, "{}", stdout(&nodes.run(&["cluster", "status", "CLUSTER"])));
    }
    for event in 0..9 {
        assert_code(&nodes.run(&["put", "CLUSTER", &format!("200/{}/0", event * 64), "bytes of a detector"]), 0);
    }
    let held = nodes.temp.run(&["get", &format!("unix:{}", nodes.temp.root.join("n3.sock").display()), "200/0/0"]);
    assert!(stdout(&held).contains("bytes of a detector"), "{}", stderr(&held));
    assert_code(&nodes.run(&["take", "CLUSTER", "-n", "20", "--accept", "main"]), 0);
    assert_code(&nodes.run(&["run", "CLUSTER", "stop", "200"]), 0);
    assert_code(&nodes.temp.run(&["archive", "create", "dir:archive"]), 0);
    // A mover at each node takes the node's events, and reads their bytes where they are.
    for id in 1..=3 {
        let from = format!("unix:{}", nodes.temp.root.join(format!("n{id}.sock")).display());
        let moving = ["move", "--from", &from, "--to", "dir:archive", "--once", "--move-after", "0s"];
        assert_code(&nodes.temp.run(&moving), 0);
    }
    for event in 0..9 {
        let archived = nodes.temp.run(&["archive", "cat", "dir:archive", &format!("200/{}", event * 64), "0"]);
        assert_eq!(stdout(&archived), "bytes of a detector", "{}", stderr(&archived));
    }
    assert_code(&nodes.run(&["run", "CLUSTER", "close", "200"]), 0);
    // The directory of a node that nobody serves changes no runs.
    let (code, ..) = nodes.servers[2].take().unwrap().end("TERM");
    assert_eq!(code, Some(0));
    let status = nodes.json(&["cluster", "status", "CLUSTER"], 1);
    assert_eq!(status["nodes"][2]["part"]["sources"], json!(["0"]), "{status}");
    let refused = nodes.temp.run(&["run", "n3", "open", "200"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("node of a cluster"), "{}", stderr(&refused));
    // Nor does a server that does not know that it is one.
    let refused = nodes.temp.run(&["serve", "n3", "--native", "tcp://127.0.0.1:0"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("is node 3 of a cluster"), "{}", stderr(&refused));
}

#[test]
fn top_shows_all_nodes_and_names_the_one_that_inhibits_and_the_one_that_is_killed() {
    let mut nodes = Nodes::new();
    let top = |nodes: &Nodes| nodes.json(&["top", "CLUSTER", "--interval", "300ms"], 0);
    let view = top(&nodes);
    let totals = &view["totals"];
    assert_eq!((&totals["nodes"], &totals["answering"]), (&Value::from(3), &Value::from(3)), "{view}");
    assert_eq!((&view["inhibit"], &view["keyspace"], &view["epoch"]), (&Value::Null, &"events".into(), &2.into()));
    // Events come while it looks: their rates are those of the nodes together, and of each.
    let mut event = 0;
    let mut put = |nodes: &Nodes, bytes: &str| {
        event += 64;
        nodes.run(&["put", "CLUSTER", &format!("1/{event}/0"), bytes])
    };
    let at_work = std::thread::scope(|scope| {
        let looking = scope.spawn(|| nodes.json(&["top", "CLUSTER", "--interval", "2s"], 0));
        while !looking.is_finished() {
            assert_code(&put(&nodes, "bytes of a detector"), 0);
        }
        looking.join().unwrap()
    });
    assert!(at_work["totals"]["rates"]["puts"].as_f64().unwrap() > 0.0, "{at_work}");
    let each = |view: &Value, what: &str| -> f64 {
        view["nodes"].as_array().unwrap().iter().filter_map(|node| node["events"][what].as_f64()).sum()
    };
    let view = top(&nodes);
    assert!(
        each(&view, "ready") > 0.0 && view["totals"]["events"]["ready"].as_f64() == Some(each(&view, "ready")),
        "{view}"
    );

    // One of them fills up: it holds the trigger of all, and is named.
    let bytes = "x".repeat(100_000);
    let end = Instant::now() + Duration::from_secs(60);
    let by = loop {
        assert!(Instant::now() < end, "{}", top(&nodes));
        (0..12).for_each(|_| drop(put(&nodes, &bytes)));
        let view = top(&nodes);
        if view["inhibit"]["name"].is_string() {
            break view;
        }
    };
    let full = by["nodes"].as_array().unwrap().iter().find(|node| node["name"] == by["inhibit"]["name"]).unwrap();
    assert_eq!((&full["name"], &by["totals"]["inhibiting"]), (&"n3".into(), &1.into()), "the smallest one alone: {by}");
    assert_eq!(
        (&full["inhibit"]["class"], full["inhibit"]["class"].is_string()),
        (&by["inhibit"]["class"], true),
        "{by}"
    );
    let text = stdout(&nodes.run(&["top", "CLUSTER", "--once", "--interval", "200ms"]));
    assert!(text.contains("INHIBIT by node n3: ") && text.contains("owner: selection; ends when"), "{text}");
    let runs = stdout(&nodes.run(&["run", "CLUSTER", "list"]));
    assert!(runs.contains(" · INHIBIT by selection, hot level of node `n3`: "), "{runs}");

    let looked = nodes.run(&["take", "CLUSTER"]);
    assert_code(&looked, 0);
    assert!(stderr(&looked).contains("the event is leased on the server until the lease ends"), "{}", stderr(&looked));

    let program = env!("CARGO_BIN_EXE_forebay");
    let terminal = Terminal::start(&format!("{program} top {} --interval 200ms", nodes.places()), 100, 30);
    for words in ["3 nodes, epoch 2", "INHIBIT by node n3: ", "verdicts/s", "q quit"] {
        terminal.until(words, |screen| screen.contains(words));
    }
    nodes.servers[1] = None;
    terminal.until("a node that is killed", |screen| screen.contains("n2             DOES NOT ANSWER: Unavailable"));
    terminal.until("the others", |screen| screen.contains("1 NOT ANSWERING") && screen.contains("INHIBIT by node n3"));
    terminal.key("q");
    terminal.until("the end", |screen| screen.contains("ended 0"));
    let view = top(&nodes);
    assert_eq!((&view["totals"]["answering"], &view["nodes"][1]["name"]), (&2.into(), &"n2".into()), "{view}");
    assert!(view["nodes"][1]["error"].as_str().unwrap().starts_with("Unavailable: node 2 (`n2`)"), "{view}");
    assert_eq!(view["nodes"][1].get("fill"), None, "figures that nobody said: {view}");
    let text = stdout(&nodes.run(&["top", "CLUSTER", "--once", "--interval", "200ms"]));
    for words in
        ["forebay top events  3 nodes, epoch 2  1 NOT ANSWERING", "n2             DOES NOT ANSWER: Unavailable"]
    {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    // However long: nobody scrolls in a log.
    let whole = view["nodes"][1]["error"].as_str().unwrap();
    assert!(whole.len() > 80 && text.contains(whole), "no `{whole}` in\n{text}");
    // One address is one server, in the same form.
    let one = format!("unix:{}", nodes.temp.root.join("n1.sock").display());
    let alone = nodes.json(&["top", &one, "--interval", "200ms"], 0);
    assert_eq!((&alone["totals"]["nodes"], &alone["cluster"]), (&1.into(), &Value::Null), "{alone}");
    nodes.servers = Vec::new();
    let nobody = nodes.run(&["top", "CLUSTER", "--once", "--interval", "200ms"]);
    assert_code(&nobody, 5);
    assert!(stderr(&nobody).contains("no node of the cluster answers"), "{}", stderr(&nobody));
}

#[test]
fn redis_cli_at_any_node_has_all_events_and_names_the_node_that_is_killed() {
    let mut nodes = Nodes::new();
    let ask = |nodes: &Nodes, id: usize, words: &str| {
        let mut command = std::process::Command::new("redis-cli");
        let output = command.args(["-p", &nodes.redis(id)]).args(words.split(' ')).output();
        stdout(&output.expect("redis-cli, of the Debian package redis-tools: `cargo xtask test` installs it"))
            .trim()
            .to_owned()
    };
    nodes.meet();
    let names: Vec<String> = (0..12).map(|event| format!("1/{}/0", event * 64)).collect();
    for name in &names {
        assert_eq!(ask(&nodes, 1, &format!("SET {name} bytes")), "OK");
        assert_eq!(ask(&nodes, 3, &format!("GET {name}")), "bytes");
    }
    let ledger = nodes.json(&["ledger", "CLUSTER", "1"], 0);
    assert_eq!(ledger["outcomes"]["stored"]["fragments"], 12);
    let leased = ask(&nodes, 2, "FB.GETANY COUNT 100 SOURCES NONE");
    assert_eq!(leased.matches("primary").count(), 12, "of all nodes: {leased}");
    // One that is kept on a node which is not the first one.
    assert_code(&nodes.run(&["put", "CLUSTER", "1/0/0", "other bytes"]), 3);
    let debug = stdout(&nodes.run(&["debug", "CLUSTER", "list"]));
    assert!(debug.contains("conflict 1/0/0") && !debug.contains("is empty"), "{debug}");
    nodes.servers[1] = None;
    let begun = Instant::now();
    let found: Vec<String> = names.iter().map(|name| ask(&nodes, 1, &format!("GET {name}"))).collect();
    let (there, away): (Vec<_>, Vec<_>) = found.iter().partition(|answer| *answer == "bytes");
    assert!(!there.is_empty() && !away.is_empty(), "{found:?}");
    assert!(away.iter().all(|answer| answer.starts_with("UNAVAILABLE node 2 (`n2`)")), "{away:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "the first one waits: {:?}", begun.elapsed());
}

/// The script of docs/resp.md, which knows nothing of clusters, at each node in turn.
#[test]
fn the_documented_script_operates_a_cluster_at_any_node() {
    let nodes = Nodes::with(&["--sources-per-event", "2", "--attribute", "lumi:u32", "--complete-within", "1h"]);
    nodes.meet();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/resp.py");
    let redis_py = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("python");
    for id in 1..=3 {
        let mut command = std::process::Command::new("python3");
        command.env("PYTHONPATH", &redis_py).arg(&script).args([nodes.redis(id), id.to_string()]);
        let output = command.output().unwrap();
        let problems = stderr(&output);
        assert!(
            !problems.contains("No module named 'redis'"),
            "redis-py is missing; `cargo xtask test --only prepare` installs it (pip: redis==8.1.0)"
        );
        assert!(output.status.success() && stdout(&output).ends_with("released 2 events\n"), "node {id}: {problems}");
        let ledger = nodes.json(&["ledger", "CLUSTER", &id.to_string()], 0);
        assert_eq!(ledger["imbalance"], Value::Null, "{ledger}");
        assert_code(&nodes.run(&["run", "CLUSTER", "close", &id.to_string()]), 0);
    }
}

#[test]
fn maps_that_cannot_be_are_refused_with_words() {
    let temp = Temp::new();
    assert_code(&temp.run(&["create", "n1", "--hot-bytes", "16M"]), 0);
    for (arguments, words) in [
        (&["new", "m.json", "--node", "a"][..], "give NAME=ADDRESS=STORE"),
        (&["new", "m.json", "--node", "a=tcp://h:1=n9"], "neither a directory with a store nor the number"),
        (&["new", "m.json", "--node", "a=nonsense=n1"], "nonsense"),
        (&["new", "m.json", "--node", "a=tcp://h:1=n1", "--node", "b=tcp://h:1=n1"], "another one hold store"),
        (&["check", "missing.json"], "cannot be read"),
        (&["status", "n1"], "give addresses of its nodes"),
        (&["change", "missing.json", "m.json", "--from-run", "9"], "--table"),
    ] {
        let refused = temp.run(&[&["cluster"], arguments].concat());
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains(words), "{words}: {}", stderr(&refused));
    }
    let new = ["cluster", "new", "m.json", "--node", "a=tcp://h:1=n1"];
    assert_code(&temp.run(&new), 0);
    let again = temp.run(&new);
    assert_code(&again, 2);
    assert!(stderr(&again).contains("m.json: this file is there already") && !stderr(&again).contains("os error"));
    let mut wrong: Value = serde_json::from_slice(&std::fs::read(temp.root.join("m.json")).unwrap()).unwrap();
    wrong.as_object_mut().unwrap().remove("hash");
    wrong["nodes"][0]["at"] = json!(["tcp//h"]);
    std::fs::write(temp.root.join("wrong.json"), wrong.to_string()).unwrap();
    let wrong = temp.run(&["cluster", "check", "wrong.json"]);
    assert_code(&wrong, 1);
    assert!(stdout(&wrong).contains("node 1 (`a`): address `tcp//h`"), "{}", stdout(&wrong));
    let no_map = temp.run(&["serve", "n1", "--cluster", "missing.json"]);
    assert_code(&no_map, 2);
    assert!(stderr(&no_map).contains("the map cannot be read"), "{}", stderr(&no_map));
}
