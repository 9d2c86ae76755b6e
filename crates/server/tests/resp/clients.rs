//! Clients as people have them: `redis-cli`, `redis-benchmark`, redis-py.

use crate::resp::bed::{Bed, config};
use forebay_core::{AttributeSchema, Keyspace};
use forebay_server::Limits;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What installs what a test needs.
const INSTALL: &str = "`cargo xtask test --only prepare` installs it";

fn run(command: &mut Command) -> Output {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => panic!("{program}: {error}; {INSTALL} (Debian: redis-tools, redis-server)"),
    }
}

fn cli(bed: &Bed, options: &[&str], words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &bed.port.to_string()]).args(options).args(words);
    let output = run(&mut command);
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn redis_cli_in_both_protocols() {
    let bed = Bed::with(
        &[Keyspace::events("data", 2).opening_runs(), Keyspace::events("more", 1).opening_runs()],
        config(),
        Limits::default(),
    );
    for options in [&["-2"][..], &["-3"]] {
        let ask = |words: &str| cli(&bed, options, &words.split(' ').collect::<Vec<_>>());
        assert_eq!(ask("PING"), "PONG");
        assert_eq!(ask("SET 1/42/3 hello"), "OK");
        assert_eq!(ask("GET 1/42/3"), "hello");
        assert!(ask("SET 1/42/3 other").starts_with("CONFLICT 1/42/3"), "{}", ask("SET 1/42/3 other"));
        assert_eq!(ask("GET 1/42/9"), "");
        assert!(ask("INFO server").contains("redis_mode:standalone"));
        assert_eq!(ask("FB.RUN LIST"), "1\nopen".replace('\n', if options == ["-3"] { " " } else { "\n" }));
        assert_eq!(ask("-n 1 GET 1/42/3"), "");
        assert!(ask("FB.EVENT 1/42").contains("hello"));
    }
    let socket = bed.socket.display().to_string();
    assert_eq!(cli(&bed, &["-s", &socket], &["GET", "1/42/3"]), "hello");
    // A pipe of commands in the protocol's own form, as for a mass insertion.
    let mut bytes = Vec::new();
    for event in 0..5000 {
        bytes.extend(crate::resp::bed::request(&["SET", &format!("2/{event}/0"), "bulk"]));
    }
    let file = bed.dir().join("commands");
    std::fs::write(&file, bytes).unwrap();
    let mut command = Command::new("redis-cli");
    command.args(["-p", &bed.port.to_string(), "--pipe"]).stdin(std::fs::File::open(&file).unwrap());
    let output = command.output().unwrap_or_else(|error| panic!("redis-cli: {error}; {INSTALL}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("errors: 0, replies: 5000"), "{text}");
}

#[test]
fn unknown_commands_are_answered_as_by_redis_itself() {
    let bed = Bed::new();
    let scratch = bed.dir().join("redis.sock");
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
        .arg(&scratch)
        .current_dir(bed.dir());
    let mut redis =
        command.stdout(Stdio::null()).spawn().unwrap_or_else(|error| panic!("redis-server: {error}; {INSTALL}"));
    let theirs = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        String::from_utf8(run(command.arg("-s").arg(&scratch).args(words)).stdout).unwrap().trim_end().to_owned()
    };
    for _ in 0..500 {
        if theirs(&["PING"]) == "PONG" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let long = "z".repeat(300);
    let mut differences = Vec::new();
    for words in [
        &["NOTHING"][..],
        &["NOTHING", "a", "b c", "d"],
        &[&long, "x"],
        &["NOTHING", &long, "x"],
        &["NOTHING", "a", &long[..120], "xyz", "more"],
        &["GET"],
        &["SET", "x"],
        &["PING", "a", "b"],
        &["ECHO"],
        &["CLIENT", "NOTHING"],
        &["CONFIG", "NOTHING"],
        &["SELECT", "99"],
        &["HELLO", "9"],
        &["AUTH", "wrong", "words"],
        &["AUTH", "a", "b", "c"],
        &["CLIENT", "GETNAME"],
        &["CONFIG", "GET", "appendonly"],
        &["CONFIG", "GET", "nothing"],
    ] {
        let (ours, theirs) = (cli(&bed, &[], words), theirs(words));
        if ours != theirs {
            differences.push(format!("{words:?}: `{ours}`, Redis says `{theirs}`"));
        }
    }
    redis.kill().unwrap();
    redis.wait().unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn redis_benchmark_as_it_is() {
    let bed = Bed::new();
    for (value, pipeline, key) in [
        ("x".repeat(64), "32", "1/__rand_int__/1"),
        ("y".repeat(10_240), "16", "2/__rand_int__/1"),
        ("z".to_owned(), "1", "3/__rand_int__/1"),
    ] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &bed.port.to_string(), "-c", "8", "-P", pipeline, "-n", "2000", "-r", "1000000", "--csv"]);
        let output = run(command.args(["SET", key, &value]));
        let (text, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.lines().count() == 2, "{text}{problems}");
        assert!(!problems.contains("WARNING"), "{problems}");
    }
    let stored = bed.store.stats().events.total().fragments;
    assert!((5900..=6200).contains(&stored), "{stored}");
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &bed.port.to_string(), "-n", "1000", "-P", "8", "-r", "1000000", "--csv", "-3"]);
    let output = run(command.args(["GET", "1/__rand_int__/1"]));
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Where `cargo xtask test --only prepare` puts Python's packages.
fn python_path() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().map(Path::to_path_buf);
    target.unwrap_or_default().join("python")
}

#[test]
fn redis_py_in_both_protocols() {
    let mut keyspace = Keyspace::events("data", 2).opening_runs();
    keyspace.run.complete_within = std::time::Duration::from_secs(60);
    let bed = Bed::with(&[keyspace, Keyspace::events("more", 1).opening_runs()], config(), Limits::default());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("resp/client.py");
    for (run_number, protocol) in [("1", "2"), ("2", "3")] {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", python_path()).arg(&script);
        let output =
            run(command.args([&bed.port.to_string(), &bed.socket.display().to_string(), protocol, run_number]));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!text.contains("No module named 'redis'"), "redis-py is missing; {INSTALL} (pip: redis==8.1.0)");
        assert!(output.status.success(), "protocol {protocol}: {text}");
    }
}

/// The script of docs/resp.md does what it says; the document shows the same text.
#[test]
fn the_documented_script_operates_a_store() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let script = docs.join("resp.py");
    let (text, page) =
        (std::fs::read_to_string(&script).unwrap(), std::fs::read_to_string(docs.join("resp.md")).unwrap());
    assert!(page.contains(&format!("```python\n{text}```\n")), "docs/resp.md shows another text than docs/resp.py");

    let mut keyspace = Keyspace::events("data", 2).opening_runs();
    keyspace.attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
    keyspace.run.complete_within = std::time::Duration::from_secs(3600);
    let bed = Bed::with(&[keyspace], config(), Limits::default());
    let mut command = Command::new("python3");
    let output = run(command.env("PYTHONPATH", python_path()).arg(&script).args([&bed.port.to_string(), "1"]));
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!problems.contains("No module named 'redis'"), "redis-py is missing; {INSTALL} (pip: redis==8.1.0)");
    assert!(output.status.success(), "{said}{problems}");
    assert!(said.ends_with("released 2 events\n"), "{said}");
    let ledger = bed.store.ledger(1).unwrap();
    assert_eq!((ledger.released.events, ledger.imbalance()), (2, None));
    assert!(bed.store.debug_events().is_empty() && bed.store.holds().is_empty());
}
