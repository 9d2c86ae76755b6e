//! `forebay serve` and `forebay cert` as services and people start them: processes, signals, what they say.

use super::{Temp, assert_code, stderr, stdout, write};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const SECRET: &str = "a secret of twenty-nine bytes";

/// A server at work, and the line that says where. Killed where a test does not end it.
pub(super) struct Serving {
    child: Child,
    pub(super) line: Value,
}

impl Serving {
    pub(super) fn start(command: &mut Command) -> Serving {
        let mut child = command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.as_mut().unwrap());
        while out.read_line(&mut line).unwrap() > 0 && !line.contains("listening") {
            line.clear();
        }
        if line.is_empty() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("it did not start: {said}");
        }
        Serving { line: serde_json::from_str(&line).unwrap(), child }
    }

    /// The first address of a list, without its scheme.
    pub(super) fn address(&self, name: &str) -> String {
        let address = self.line["listening"][name][0].as_str().unwrap();
        address.split_once("://").unwrap().1.to_owned()
    }

    pub(super) fn signal(&self, name: &str) {
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status().unwrap();
        assert!(status.success());
    }

    /// Ends it by a signal: exit code, what it said on stdout since it listened, and its log.
    pub(super) fn end(mut self, signal: &str) -> (Option<i32>, String, String) {
        self.signal(signal);
        let (mut said, mut log) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), said, log)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command for a store of the test, at ports that the system chooses.
pub(super) fn serve(temp: &Temp) -> Command {
    temp.command(&[
        "serve",
        "STORE",
        "--native",
        "tcp://127.0.0.1:0",
        "--resp",
        "tcp://127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ])
}

#[test]
fn a_server_starts_and_ends_in_order_and_says_what_it_holds() {
    let temp = Temp::with_store();
    temp.event("1/1");
    assert_code(&temp.run(&["put", "STORE", "1/2/0", "x"]), 0);
    let server = Serving::start(&mut serve(&temp));
    assert_eq!(server.line["keyspaces"][0], "events");
    assert_eq!(server.line["pid"], server.child.id());
    TcpStream::connect(server.address("native")).unwrap();
    TcpStream::connect(server.address("resp")).unwrap();
    let http = server.line["listening"]["http"].as_str().unwrap();
    for (path, expected) in [("/readyz", "ready\n"), ("/livez", "alive\n")] {
        let mut answer = ureq::get(&format!("{http}{path}")).call().unwrap();
        assert_eq!(answer.body_mut().read_to_string().unwrap(), expected);
    }
    let (code, said, log) = server.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    let report: Value = serde_json::from_str(&said).unwrap();
    let keyspace = &report["stopped"]["keyspaces"][0];
    assert_eq!((&keyspace["events"]["open"], &keyspace["events"]["ready"]), (&Value::from(1), &Value::from(1)));
    let run = &keyspace["runs"][0];
    assert_eq!((&run["run"], &run["stored"], &run["imbalance"]), (&Value::from(1), &Value::from(4), &Value::Null));
    assert!(log.contains("serving") && log.contains("stopped"), "{log}");
    // It was closed in order: others open it.
    assert_code(&temp.run(&["check", "STORE"]), 0);
}

#[test]
fn people_read_the_same() {
    let temp = Temp::with_store();
    temp.event("1/1");
    let mut child = serve(&temp).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("resp ") {
        assert!(out.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let opens = "  events: runs open by themselves, after 1 different fragment (auto_open_runs)\n";
    assert!(text.starts_with(&format!("serving events\n{opens}  native  tcp://127.0.0.1:")), "{text}");
    super::send_interrupt(&child);
    out.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report =
        "stopped: 0 connections cut\nevents: events: 1 ready\n  run 1 open: stored 3 fragments = 3 ready; balances\n";
    assert!(text.ends_with(report), "{text}");
}

#[test]
fn after_kill_9_it_starts_again_at_once_with_everything() {
    let temp = Temp::with_store();
    temp.event("1/1");
    let socket = temp.root.join("socket");
    let endpoint = format!("unix:{}", socket.display());
    let start =
        || Serving::start(&mut temp.command(&["serve", "STORE", "--native", &endpoint, "--resp", "tcp://127.0.0.1:0"]));
    let first = start();
    let (code, _, _) = first.end("KILL");
    assert_eq!(code, None);
    assert!(socket.exists(), "a killed server leaves it");
    let second = start();
    UnixStream::connect(&socket).unwrap();
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    let (code, said, _) = second.end("INT");
    assert_eq!(code, Some(0));
    assert!(said.contains("\"ready\":1"), "{said}");
    assert!(!socket.exists());
}

#[test]
fn a_second_server_says_why_it_does_not_start() {
    let temp = Temp::with_store();
    let first = Serving::start(&mut serve(&temp));
    let from = Instant::now();
    let second = serve(&temp).output().unwrap();
    assert_code(&second, 5);
    assert!(stderr(&second).contains("it serves one process at a time"), "{}", stderr(&second));
    assert!(from.elapsed() > Duration::from_millis(900), "a store that is being let go of is waited for");
    let other = Temp::with_store();
    let taken = format!("tcp://{}", first.address("native"));
    let same_port = other.run(&["serve", "STORE", "--native", &taken, "--resp", "tcp://127.0.0.1:0"]);
    assert_code(&same_port, 2);
    assert!(stderr(&same_port).contains("another server has it"), "{}", stderr(&same_port));
}

#[test]
fn no_secret_comes_out_of_a_server() {
    let temp = Temp::with_store();
    let file = write(&temp.root.join("token"), format!("{SECRET}\n").as_bytes());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let environment = "another secret, in a variable";
    let config = configuration(&temp, "level = \"trace\"\nformat = \"json\"\n", "secret_file = \"token\"");
    let config = [config, token("variable", "secret_env = \"FOREBAY_TEST_TOKEN\"")].concat();
    let config = write(&temp.root.join("server.toml"), config.as_bytes());
    let command = |more: &[&str]| {
        let mut command = temp.command(&["serve", "--config", &config]);
        command.args(more).env("FOREBAY_TEST_TOKEN", environment);
        command
    };
    let server = Serving::start(&mut command(&[]));
    // A login that is right, one that is wrong, and bytes that are no protocol, all with secrets in them.
    for text in [format!("AUTH {SECRET}\r\n"), format!("AUTH wrong-{environment}\r\n"), SECRET.repeat(100)] {
        for listener in ["native", "resp"] {
            let mut stream = TcpStream::connect(server.address(listener)).unwrap();
            let _ = stream.write_all(text.as_bytes());
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = stream.read(&mut [0; 64]);
        }
    }
    let (code, said, log) = server.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
    assert!(log.contains("connected"), "{log}");
    let printed = command(&["--print-config"]).output().unwrap();
    let checked = command(&["--check"]).output().unwrap();
    assert_code(&checked, 0);
    let all = [said, log, stdout(&printed), stderr(&printed), stdout(&checked), stderr(&checked)].concat();
    for secret in [SECRET, environment, "another secret"] {
        assert!(!all.contains(secret), "{secret}");
    }
}

fn configuration(temp: &Temp, log: &str, token_secret: &str) -> String {
    format!(
        "state_dir = \"state\"\n[listen]\nnative = [\"tcp://127.0.0.1:0\"]\nresp = [\"tcp://127.0.0.1:0\"]\nhttp = \"127.0.0.1:0\"\n[log]\n{log}\
         [[keyspace]]\npath = \"{}\"\n{}",
        temp.store().display(),
        token("file", token_secret)
    )
}

fn token(name: &str, secret: &str) -> String {
    format!("[[token]]\nname = \"{name}\"\n{secret}\nrights = {{ \"*\" = [\"read\"] }}\n")
}

#[test]
fn a_configuration_is_checked_and_printed_without_being_served() {
    let temp = Temp::with_store();
    let good =
        format!("state_dir = \"state\"\nstop_grace = \"3 s\"\n[[keyspace]]\npath = \"{}\"\n", temp.store().display());
    let file = write(&temp.root.join("server.toml"), good.as_bytes());
    let printed = temp.run(&["serve", "--config", &file, "--print-config"]);
    assert_code(&printed, 0);
    let printed = stdout(&printed);
    assert!(printed.contains("stop_grace = \"3 s\"") && printed.contains("hot_high = 0.9"), "{printed}");
    let again = write(&temp.root.join("printed.toml"), printed.as_bytes());
    assert_eq!(stdout(&temp.run(&["serve", "--config", &again, "--print-config"])), printed);
    assert_eq!(temp.json(&["serve", "--config", &file, "--print-config"], 0)[0]["stop_grace"], "3 s");
    assert_code(&temp.run(&["serve", "--config", &file, "--check"]), 0);

    let wrong = good.replace("stop_grace", "stop_grac");
    let file = write(&temp.root.join("wrong.toml"), wrong.as_bytes());
    let refused = temp.run(&["serve", "--config", &file, "--check"]);
    assert_code(&refused, 2);
    let said = stderr(&refused);
    assert!(said.contains("wrong.toml:2:1: unknown `stop_grac`: did you mean `stop_grace`?"), "{said}");
    let open = temp.run(&["serve", "STORE", "--native", "tcp://0.0.0.0:0"]);
    assert_code(&open, 2);
    assert!(stderr(&open).contains("without TLS and tokens"), "{}", stderr(&open));
    let nowhere = write(&temp.root.join("nowhere.toml"), b"[[keyspace]]\npath = \"nowhere\"\n");
    assert_code(&temp.run(&["serve", "--config", &nowhere, "--check"]), 2);
}

#[test]
fn a_service_manager_hears_of_ready_alive_and_stopping() {
    let temp = Temp::with_store();
    let path = temp.root.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let hear = |wanted: &str| {
        let mut bytes = [0; 256];
        let mut heard = String::new();
        while !heard.contains(wanted) {
            let count = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("no {wanted}: {error}; {heard}"));
            heard.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    };
    let server = Serving::start(serve(&temp).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000"));
    hear("READY=1");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    server.signal("TERM");
    hear("STOPPING=1");
    let (code, _, log) = { server }.end("TERM");
    // The second signal may come before the first one has ended it, and then ends it at once.
    assert!(matches!(code, Some(0 | 130)), "{code:?} {log}");
}

#[test]
fn certificates_work_and_are_never_overwritten() {
    let temp = Temp::with_store();
    let made = temp.run(&["cert", "--out", "tls", "--days", "2"]);
    assert_code(&made, 0);
    assert!(stdout(&made).contains("for first starts and tests, valid for 2 days"), "{}", stdout(&made));
    for (file, mode) in [("ca.key", 0o600), ("server.key", 0o600), ("client.key", 0o600), ("server.pem", 0o644)] {
        let found = temp.root.join("tls").join(file).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{file}");
    }
    let before = std::fs::read(temp.root.join("tls/server.pem")).unwrap();
    std::fs::remove_file(temp.root.join("tls/ca.pem")).unwrap();
    let again = temp.run(&["cert", "--out", "tls"]);
    assert_code(&again, 3);
    assert!(stderr(&again).contains("not overwritten"), "{}", stderr(&again));
    assert_eq!(std::fs::read(temp.root.join("tls/server.pem")).unwrap(), before);
    assert!(!temp.root.join("tls/ca.pem").exists(), "nothing is written where something is there");
    assert_code(&temp.run(&["cert", "--out", "other", "--host", "no name\u{e9}"]), 2);
    assert_code(&temp.run(&["cert", "--out", "other", "--days", "0"]), 2);

    assert_code(&temp.run(&["cert", "--out", "two", "--host", "localhost", "--host", "127.0.0.1"]), 0);
    let config = format!(
        "state_dir = \"state\"\n[listen]\nnative = [\"tls://127.0.0.1:0\"]\nresp = []\nhttp = \"127.0.0.1:0\"\n[[keyspace]]\npath = \"{}\"\n\
         [tls]\ncertificate = \"two/server.pem\"\nkey = \"two/server.key\"\nclient_ca = \"two/ca.pem\"\n\
         require_client_certificate = true\n",
        temp.store().display()
    );
    let config = write(&temp.root.join("server.toml"), config.as_bytes());
    let server = Serving::start(&mut temp.command(&["serve", "--config", &config]));
    let address = server.address("native");
    let client = |more: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address, "-CAfile", "two/ca.pem", "-verify_return_error"]).args(more);
        let output =
            command.args(["-verify_hostname", "localhost"]).current_dir(&temp.root).stdin(Stdio::null()).output();
        let output = output.unwrap();
        [stdout(&output), stderr(&output)].concat()
    };
    let known = client(&["-cert", "two/client.pem", "-key", "two/client.key"]);
    assert!(known.contains("Verify return code: 0 (ok)") && !known.contains("alert"), "{known}");
    let (code, _, log) = server.end("TERM");
    assert_eq!(code, Some(0), "{log}");
}
