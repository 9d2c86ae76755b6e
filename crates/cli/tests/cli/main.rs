//! The real binary over real directories: every command, its JSON, its exit codes, its messages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use forebay_core::Kind;
use forebay_store::{Config, PutOptions, Store};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod archive;
mod backup;
mod catalog;
mod cluster;
mod dataset;
mod demo;
mod device;
mod exchange;
mod gone;
mod levels;
mod plan;
mod record;
mod reload;
mod rings;
mod selection;
mod serve;
mod served;
mod top;
mod unit;

const COMMANDS: [&str; 36] = [
    "demo",
    "create",
    "keyspace",
    "put",
    "get",
    "range",
    "rm",
    "event",
    "take",
    "run",
    "ledger",
    "why",
    "sources",
    "watch",
    "mask",
    "unmask",
    "hold",
    "debug",
    "release",
    "move",
    "archive",
    "check",
    "inspect",
    "stats",
    "top",
    "plan",
    "window",
    "pin",
    "record",
    "play",
    "containers",
    "serve",
    "cluster",
    "cert",
    "dataset",
    "catalog",
];

/// A directory of its own per test; `first` in it is where stores go.
struct Temp {
    root: PathBuf,
}

impl Temp {
    fn new() -> Temp {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("forebay-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        Temp { root }
    }

    /// A store whose events need three fragments and have all the time in the world.
    fn with_store() -> Temp {
        let temp = Temp::new();
        let created = temp.run(&[
            "create",
            "STORE",
            "--sources-per-event",
            "3",
            "--complete-within",
            "10h",
            "--hot-bytes",
            "16M",
            "--attribute",
            "lumi:u32",
            "--attribute",
            "class",
            "--class",
            "physics",
            "--class",
            "calib",
        ]);
        assert_code(&created, 0);
        temp
    }

    /// A store of two stages, classes, groups and a ledger by lumi section; events wait for sources 0 to 3, 10 hours.
    fn with_stages() -> Temp {
        let temp = Temp::new();
        let text = b"name = \"staged\"\nkey = [\"run:u32\", \"event:u64\", \"source:u32\"]\nprimary = [\"run\", \"event\"]\n\
            attributes = [\"lumi:u32\", \"class\"]\nclasses = [\"physics\", \"calib\"]\nstages = [\"fast\", \"final\"]\n\
            ledger_by = \"lumi\"\ndeliveries_max = 1\nauto_open_runs = true\nauto_open_after = 1\n[[groups]]\nname = \"few\"\nsources = [\"0..1\"]\n\
            [run]\nsources = [\"0..3\"]\ncomplete_within_ms = 36000000\n[run.classes.calib]\nsources = [\"2\"]\n";
        let file = write(&temp.root.join("keyspace.toml"), text);
        assert_code(&temp.run(&["create", "STORE", "--keyspace", &file, "--hot-bytes", "16M"]), 0);
        temp
    }

    /// A fragment with attributes.
    fn put(&self, key: &str, attributes: &[&str]) {
        let mut arguments = vec!["put", "STORE", key, "payload"];
        attributes.iter().for_each(|attribute| arguments.extend(["--attribute", attribute]));
        assert_code(&self.run(&arguments), 0);
    }

    /// Event `run/event` with its three fragments.
    fn event(&self, event: &str) {
        for source in 0..3 {
            let key = format!("{event}/{source}");
            assert_code(&self.run(&["put", "STORE", &key, &format!("value of {key}")]), 0);
        }
    }

    fn store(&self) -> PathBuf {
        self.root.join("first")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = forebay();
        for argument in arguments {
            match *argument {
                "STORE" => command.arg(self.store()),
                other => command.arg(other),
            };
        }
        // Most of these tests are not about opening runs: in stores that say nothing of it, the first fragment does it.
        if arguments.first() == Some(&"create") && !["--keyspace", "--config"].iter().any(|of| arguments.contains(of)) {
            command.args(["--auto-open", "1"]);
        }
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs with `--json`; every line of stdout must be JSON.
    fn json(&self, arguments: &[&str], code: i32) -> Vec<Value> {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert_code(&output, code);
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        stdout(&output).lines().map(parse).collect()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}

/// A process that serves the store until it is interrupted, and says so on its first line.
fn watcher(temp: &Temp) -> Child {
    let mut child = temp.command(&["run", "STORE", "watch", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("run 1"), "{line}");
    child
}

fn interrupt(mut child: Child) -> Option<i32> {
    send_interrupt(&child);
    child.wait().unwrap().code()
}

/// Ctrl-C for one process, by the shell's own `kill`: there is no other without unsafe code.
fn send_interrupt(child: &Child) {
    let status = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(status.success());
}

fn write(path: &Path, bytes: &[u8]) -> String {
    std::fs::write(path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_teaches() {
    let top = stdout(&forebay().arg("--help").output().unwrap());
    for text in ["Exit codes", "forebay demo", "5    Unavailable", "130  ended by Ctrl-C"] {
        assert!(top.contains(text), "{text}\n{top}");
    }
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{command}\n{top}");
        let output = forebay().args([command, "--help"]).output().unwrap();
        assert_code(&output, 0);
        let help = stdout(&output);
        assert!(help.contains("Example") && help.contains(&format!("\n  forebay {command}")), "{command}\n{help}");
        assert!(help.contains("--json"), "{command}\n{help}");
    }
}

#[test]
fn put_and_get_in_every_form() {
    let temp = Temp::with_store();
    let value: Vec<u8> = (0..=255).collect();
    let file = write(&temp.root.join("value.bin"), &value);
    assert!(stdout(&temp.run(&["put", "STORE", "1/42/0", "hello"])).starts_with("stored 1/42/0: 5 B"));
    assert_code(&temp.run(&["put", "STORE", "1/42/1", "--file", &file, "--status", "0x3"]), 0);
    let mut piped = temp.command(&["put", "STORE", "1/42/2", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(&value).unwrap();
    assert!(piped.wait().unwrap().success());
    assert_code(&temp.run(&["put", "STORE", "1/43/0", ""]), 0);

    let got = temp.run(&["get", "STORE", "1/42/0"]);
    assert_code(&got, 0);
    assert_eq!(got.stdout, b"hello");
    assert_eq!(temp.run(&["get", "STORE", "1/42/2"]).stdout, value);
    assert_eq!(temp.run(&["get", "STORE", "1/43/0"]).stdout, b"");
    assert_code(&temp.run(&["get", "STORE", "1/42/1", "--output", "copy.bin"]), 0);
    assert_eq!(std::fs::read(temp.root.join("copy.bin")).unwrap(), value);
    let hex = stdout(&temp.run(&["get", "STORE", "1/42/0", "--hex"]));
    assert!(hex.contains("68 65 6c 6c 6f") && hex.contains("|hello|"), "{hex}");

    let absent = temp.run(&["get", "STORE", "1/42/9"]);
    assert_code(&absent, 1);
    assert_eq!(absent.stdout, b"");
    assert!(stderr(&absent).contains("no fragment 1/42/9"));
}

#[test]
fn a_put_says_what_became_of_it() {
    let temp = Temp::with_store();
    temp.event("1/1");
    assert!(stdout(&temp.run(&["put", "STORE", "1/1/0", "value of 1/1/0"])).starts_with("duplicate"));
    let conflict = temp.run(&["put", "STORE", "1/1/0", "other bytes"]);
    assert_code(&conflict, 3);
    assert!(stderr(&conflict).contains("Conflict"), "{}", stderr(&conflict));
    assert!(stdout(&temp.run(&["put", "STORE", "1/1/0", "new", "--update"])).starts_with("updated 1/1/0 to version"));
    assert_eq!(temp.run(&["get", "STORE", "1/1/0"]).stdout, b"new");
    assert_code(&temp.run(&["take", "STORE", "--reject"]), 0);
    let late = temp.run(&["put", "STORE", "1/1/7", "late"]);
    assert_code(&late, 1);
    assert!(stdout(&late).starts_with("late 1/1/7"));
}

#[test]
fn no_command_makes_a_store_by_accident() {
    let temp = Temp::new();
    for command in [&["put", "STORE", "1/42/0", "hello"][..], &["serve", "STORE"]] {
        let refused = temp.run(command);
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains("`forebay create "), "{}", stderr(&refused));
        assert!(!temp.root.join("STORE").exists());
    }
    assert_code(&temp.run(&["create", "STORE"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/42/0", "hello"]), 0);
    assert_eq!(temp.run(&["get", "STORE", "1/42/0"]).stdout, b"hello");
    let second = temp.run(&["put", "STORE", "1/43/0", "hello"]);
    assert_code(&second, 0);
    assert_eq!(stderr(&second), "");
    let taken = temp.run(&["take", "STORE", "--accept", "physics"]);
    assert_code(&taken, 0);
}

#[test]
fn a_keyspace_file_makes_the_keys() {
    let temp = Temp::new();
    let text = b"name = \"records\"\nkey = [\"run:u32\", \"trigger:u64\", \"subsystem:u16\", \"id:u32\"]\n\
        primary = [\"run\", \"trigger\"]\n[run]\nsources = [\"1/7\", \"1/8\"]\ncomplete_within_ms = 36000000\n";
    let file = write(&temp.root.join("keyspace.toml"), text);
    let created = temp.run(&["create", "STORE", "--keyspace", &file, "--hot-bytes", "16M"]);
    assert_code(&created, 0);
    assert!(stdout(&created).contains("run:u32/trigger:u64/subsystem:u16/id:u32"));
    let unknown = temp.run(&["put", "STORE", "5/1/1/7", "x"]);
    assert_code(&unknown, 9);
    assert!(stderr(&unknown).contains("run 5 is not open: open it first"), "{}", stderr(&unknown));
    assert_code(&temp.run(&["run", "STORE", "open", "5"]), 0);
    assert_code(&temp.run(&["put", "STORE", "5/1/1/7", "x"]), 0);
    let event = &temp.json(&["event", "STORE", "5/1"], 0)[0];
    assert_eq!((&event["state"], &event["missing"][0]), (&Value::from("open"), &Value::from("1/8")));
    assert_code(&temp.run(&["run", "STORE", "open", "6", "--sources", "2/1,2/2", "--within", "5m"]), 0);
    assert_code(&temp.run(&["put", "STORE", "6/1/2/1", "x"]), 0);
    assert_code(&temp.run(&["put", "STORE", "6/1/2/2", "x"]), 0);
    assert_eq!(temp.json(&["event", "STORE", "6/1"], 0)[0]["state"], "ready");
    let taken = &temp.json(&["take", "STORE", "--sources", "2/1", "--requeue"], 0)[0];
    assert_eq!((&taken["event_fragments"], taken["read"].as_array().map(Vec::len)), (&Value::from(2), Some(1)));

    let broken = write(&temp.root.join("broken.toml"), b"name = 1");
    let refused = temp.run(&["create", "other", "--keyspace", &broken]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("keyspace file"));
}

#[test]
fn ranges_and_removal() {
    let temp = Temp::with_store();
    for event in 1..=3 {
        temp.event(&format!("1/{event}"));
    }
    let listed = stdout(&temp.run(&["range", "STORE", "1/2-3/1"]));
    assert!(
        listed.contains("1/2/1 ") && listed.contains("1/3/1 ") && listed.ends_with("2 fragments, 28 B\n"),
        "{listed}"
    );
    assert_eq!(temp.json(&["range", "STORE"], 0).len(), 9);
    assert_eq!(temp.json(&["range", "STORE", "--limit", "4"], 0).len(), 4);
    let values = stdout(&temp.run(&["range", "STORE", "1/2/0", "--values", "hex"]));
    assert!(values.contains("|value of 1/2/0|"), "{values}");
    assert_eq!(temp.json(&["range", "STORE", "8"], 0).len(), 0);

    assert!(stdout(&temp.run(&["rm", "STORE", "1/1/0"])).starts_with("removed 1 fragment\n"));
    assert_code(&temp.run(&["rm", "STORE", "1/1/0"]), 1);
    assert_eq!(temp.json(&["rm", "STORE", "1/2"], 0)[0]["removed"], 3);
    assert_eq!(temp.json(&["rm", "STORE", "1/1-9/*"], 0)[0]["removed"], 5);
    assert_eq!(temp.json(&["rm", "STORE", "1"], 1)[0]["removed"], 0);
    assert_eq!(temp.json(&["ledger", "STORE", "1"], 0)[0]["terms"]["removed"]["fragments"], 9);
}

#[test]
fn events_seal_and_carry_attributes() {
    let temp = Temp::with_store();
    assert_code(&temp.run(&["put", "STORE", "1/1/0", "x", "--attribute", "lumi=7", "--attribute", "class=physics"]), 0);
    let event = stdout(&temp.run(&["event", "STORE", "1/1"]));
    assert!(event.starts_with("event 1/1 · open") && event.contains("lumi = 7"), "{event}");
    assert_code(&temp.run(&["take", "STORE"]), 1);
    let sealed = &temp.json(&["event", "STORE", "1/1", "--seal", "--attribute", "lumi=8"], 0)[0];
    assert_eq!((&sealed["state"], &sealed["attributes"]["lumi"]), (&Value::from("ready"), &Value::from("8")));
    assert_code(&temp.run(&["take", "STORE", "--filter", "lumi=1..7", "--reject"]), 1);
    assert_code(&temp.run(&["take", "STORE", "--filter", "class=physics", "--reject"]), 0);
    let gone = temp.run(&["event", "STORE", "1/1"]);
    assert_code(&gone, 1);
    assert!(stderr(&gone).contains("no live event 1/1"));
    assert_eq!(temp.json(&["event", "STORE", "1/9", "--seal"], 1)[0]["found"], false);
}

#[test]
fn the_documented_keyspace_file_makes_a_store() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keyspace.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let keyspace = forebay_core::Keyspace::from_toml(&text).unwrap();
    // Every value that a keyspace file can have is in it.
    let written = keyspace.to_toml().unwrap();
    let named = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned());
        names.filter(|name| !name.starts_with('#')).collect()
    };
    for name in named(&written) {
        assert!(named(&text).contains(&name), "{name}");
    }
    let temp = Temp::new();
    assert_code(&temp.run(&["create", "STORE", "--keyspace", file, "--hot-bytes", "16M"]), 0);
    let read = std::fs::read_to_string(temp.store().join("keyspace.toml")).unwrap();
    assert_eq!(forebay_core::Keyspace::from_toml(&read).unwrap(), keyspace);
    for id in 0..8 {
        temp.put(&format!("1/1/2/{id}"), &["class=calib", "lumi=3"]);
    }
    assert_eq!(temp.json(&["take", "STORE", "--sources", "muon", "--pass", "final"], 0)[0]["event"], "1/1");
}

#[test]
fn check_inspect_and_stats_show_the_inside() {
    let temp = Temp::with_store();
    temp.event("1/42");
    let checked = temp.run(&["check", "STORE", "--deep"]);
    assert_code(&checked, 0);
    assert!(stdout(&checked).contains("no problems found"));
    let report = &temp.json(&["check", "STORE"], 0)[0];
    assert!(report["live"].as_u64() >= Some(3) && report["problems"] == Value::from(Vec::<Value>::new()), "{report}");

    let overview = stdout(&temp.run(&["inspect", "STORE"]));
    assert!(overview.contains("ready    1 event, 3 fragments, 45 B"), "{overview}");
    let segments = stdout(&temp.run(&["inspect", "STORE", "segments"]));
    assert!(segments.contains('░'), "{segments}");
    let events = stdout(&temp.run(&["inspect", "STORE", "events", "1"]));
    assert!(events.starts_with("1 live event: ") && events.contains("1/42 "), "{events}");
    assert_eq!(
        stdout(&temp.run(&["inspect", "STORE", "event", "1/42"])),
        stdout(&temp.run(&["event", "STORE", "1/42"]))
    );
    let fragment = stdout(&temp.run(&["inspect", "STORE", "fragment", "1/42/0"]));
    assert!(fragment.contains("(verified)") && fragment.contains("|value of 1/42/0|"), "{fragment}");
    assert_code(&temp.run(&["inspect", "STORE", "fragment", "1/42/9"]), 1);
    assert_code(&temp.run(&["inspect", "STORE", "event", "1/43"]), 1);
    let stats = stdout(&temp.run(&["stats", "STORE"]));
    assert!(stats.contains("hot fill") && stats.contains("inhibit            no"), "{stats}");
}

#[test]
fn stats_say_who_holds_the_trigger() {
    let temp = Temp::with_store();
    let store = Store::open(&temp.store(), Config { put_deadline: Duration::ZERO, ..Config::default() }).unwrap();
    let full = (0..).find_map(|event| {
        let key = store.schema().key(&[1, event, 0]).unwrap();
        store.put(&key, &[7; 65536], &PutOptions::default()).err()
    });
    assert_eq!(full.unwrap().kind(), Kind::Full);
    store.close().unwrap();
    let stats = stdout(&temp.run(&["stats", "STORE"]));
    let row = |name: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("{name:<18} ")));
        line.unwrap_or_else(|| panic!("{name} in\n{stats}"))[19..].to_owned()
    };
    assert!(row("inhibit").starts_with("yes: hot level, "), "{stats}");
    assert!(row("  cause").starts_with("hot fill ") && row("  cause").ends_with(" % open"), "{stats}");
    assert_eq!(row("  owner"), "readout");
    assert!(row("  ends when").starts_with("events complete or run out of time"), "{stats}");
    // How much is a matter of how long the opening takes.
    assert!(row("dead time").contains(" s since opening"), "{stats}");
    let json = &temp.json(&["stats", "STORE"], 0)[0];
    assert_eq!((&json["inhibit"]["scope"], &json["inhibit"]["owner"]), (&"hot level".into(), &"readout".into()));
    assert!(json["inhibit"]["ends"].is_string() && json["inhibit"]["cause"].is_string());
    let parts: u64 = json["dead_time"].as_object().unwrap().values().map(|part| part.as_u64().unwrap()).sum();
    assert_eq!((json["dead_time"].as_object().unwrap().len(), json["inhibited_ns"].as_u64()), (6, Some(parts)));
    let run = stdout(&temp.run(&["run", "STORE", "watch", "1", "--for", "200ms"]));
    assert!(run.contains(" · INHIBIT by readout, hot level: hot fill "), "{run}");
}

#[test]
fn damage_is_found_and_named() {
    let temp = Temp::with_store();
    temp.event("1/42");
    let region = temp.store().join("hot.fb");
    let mut bytes = std::fs::read(&region).unwrap();
    let value = b"value of 1/42/1";
    let at = bytes.windows(value.len()).position(|window| window == value).expect("the payload lies in the region");
    bytes[at] ^= 0x40;
    std::fs::write(&region, &bytes).unwrap();
    let checked = temp.run(&["check", "STORE", "--deep"]);
    assert_code(&checked, 1);
    assert!(stdout(&checked).contains("  problem: "), "{}", stdout(&checked));
    assert_code(&temp.run(&["get", "STORE", "1/42/1"]), 8);
}

#[test]
fn json_parses() {
    let temp = Temp::with_store();
    for event in ["1/1", "1/2"] {
        temp.event(event);
    }
    let commands: [&[&str]; 24] = [
        &["create", "other", "--hot-bytes", "16M"],
        &["put", "STORE", "1/3/0", "x"],
        &["put", "STORE", "1/3/0", "y", "--update"],
        &["get", "STORE", "1/3/0"],
        &["get", "STORE", "1/3/0", "--output", "copy.bin"],
        &["get", "STORE", "1/3/0", "--hex"],
        &["range", "STORE", "1", "--values", "hex"],
        &["rm", "STORE", "1/3/0"],
        &["event", "STORE", "1/2"],
        &["take", "STORE", "--accept", "physics"],
        &["run", "STORE", "list"],
        &["run", "STORE", "open", "7"],
        &["run", "STORE", "pause", "7"],
        &["ledger", "STORE", "1"],
        &["sources", "STORE", "1"],
        &["hold", "STORE"],
        &["debug", "STORE", "list"],
        &["watch", "STORE", "1", "--count", "1"],
        &["check", "STORE", "--deep"],
        &["inspect", "STORE"],
        &["inspect", "STORE", "segments"],
        &["inspect", "STORE", "events"],
        &["inspect", "STORE", "fragment", "1/2/0"],
        &["stats", "STORE"],
    ];
    for arguments in commands {
        assert!(!temp.json(arguments, 0).is_empty(), "{arguments:?}");
    }
    let error = temp.command(&["get", "STORE", "1/2", "--json"]).output().unwrap();
    assert_code(&error, 2);
    let value: Value = serde_json::from_slice(&error.stderr).unwrap();
    assert_eq!((&value["error"]["kind"], &value["error"]["exit_code"]), (&Value::from("Invalid"), &Value::from(2)));
    let usage = temp.command(&["get", "--json"]).output().unwrap();
    assert_code(&usage, 2);
    assert_eq!(serde_json::from_slice::<Value>(&usage.stderr).unwrap()["error"]["kind"], "Invalid");
}

#[test]
fn bad_input_is_named() {
    let temp = Temp::with_store();
    let cases: [(&[&str], &str); 31] = [
        (&["get", "STORE", "1/2"], "expected run/event/source"),
        (&["get", "STORE", "1/x/0"], "event is `x`"),
        (&["get", "STORE", "1/2/4294967296"], "0 to 4294967295"),
        (&["get", "nowhere", "1/2/3"], "forebay create nowhere"),
        (&["check", "nowhere"], "forebay create nowhere"),
        (&["put", "STORE", "1/2/3"], "<VALUE>"),
        (&["put", "STORE", "1/2/3", "--file", "absent.bin"], "cannot read absent.bin"),
        (&["put", "STORE", "1/2/3", "x", "--attribute", "mass=1"], "no attribute `mass`"),
        (&["put", "STORE", "1/2/3", "x", "--status", "many"], "32 bits"),
        (&["range", "STORE", "1/9-3"], "not an interval"),
        (&["rm", "STORE", "1/2/3/4"], "more parts than the key"),
        (&["take", "STORE", "--filter", "lumi"], "name=low..high"),
        (&["take", "STORE", "--accept", "a", "--reject"], "cannot be used with"),
        (&["take", "STORE", "--wait", "1d"], "not a duration"),
        (&["run", "STORE", "open", "1", "--sources", "1,1"], "each source once"),
        (&["run", "STORE", "open", "1", "--count", "0"], "at least 1"),
        (&["run", "STORE", "open", "1", "--sources", "5..1"], "FIRST..LAST"),
        (&["run", "STORE", "open", "1", "--class", "calib"], "CLASS=SOURCES"),
        (&["run", "STORE", "open", "1", "--class", "beam=1"], "no class `beam`"),
        (&["run", "STORE", "open", "1", "--config", "absent.toml"], "cannot read absent.toml"),
        (&["take", "STORE", "--stage", "last"], "no stage `last`"),
        (&["take", "STORE", "--result", "9=absent.bin", "--accept", "a"], "cannot read absent.bin"),
        (&["create", "other", "--hot-bytes", "lots"], "not a size"),
        (&["create", "tcp://127.0.0.1:1"], "create works on directories only"),
        (&["create", "unix:/a,tls://b:1", "--config", "ring.toml"], "create works on directories only"),
        (&["create", "other", "--attribute", "lumi"], "lumi"),
        (&["demo", "--accept", "7"], "a share from 0 to 1"),
        (&["demo", "--links", "2"], "--links with a profile other than dune"),
        (&["demo", "--profile", "dune", "--sources", "3"], "--sources with --profile dune"),
        (&["demo", "--profile", "dune", "--busy-at", "4", "--free-below", "4"], "busy at 4"),
        (&["demo", "--profile", "dune", "--window-before", "soon"], "not a duration"),
    ];
    for (arguments, message) in cases {
        let output = temp.run(arguments);
        assert_code(&output, 2);
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
    assert!(!temp.root.join("other").exists(), "a refused create leaves nothing");
    let again = temp.run(&["create", "STORE", "--hot-bytes", "16M"]);
    assert!(matches!(again.status.code(), Some(2..=10)), "{}", stderr(&again));
}

#[test]
fn the_second_process_is_refused() {
    let temp = Temp::with_store();
    temp.event("1/1");
    let holder = watcher(&temp);
    for arguments in [&["get", "STORE", "1/1/0"][..], &["put", "STORE", "1/2/0", "x"], &["stats", "STORE"]] {
        let refused = temp.run(arguments);
        assert_code(&refused, 5);
        assert!(stderr(&refused).contains("one process at a time"), "{}", stderr(&refused));
    }
    assert_eq!(interrupt(holder), Some(130));
    assert_eq!(temp.run(&["get", "STORE", "1/1/0"]).stdout, b"value of 1/1/0");
}

#[test]
fn a_killed_process_leaves_the_store_usable() {
    let temp = Temp::with_store();
    temp.event("1/1");
    let mut holder = watcher(&temp);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(temp.run(&["get", "STORE", "1/1/2"]).stdout, b"value of 1/1/2");
    assert_code(&temp.run(&["ledger", "STORE", "1"]), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let temp = Temp::with_store();
    temp.event("1/1");
    let mut child = temp.command(&["range", "STORE"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert_eq!(stderr(&output), "");
}
