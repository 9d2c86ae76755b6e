//! A store in memory whose files are gone at the next start, as after a restart of the machine, or where a service manager
//! removed them: with a configuration it is not made again without anybody's word.

use super::serve::Serving;
use super::{Temp, assert_code, stderr, stdout, write};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const GONE: i32 = 11;

/// A directory in memory, and a configuration that serves a store and a ring from it, or one of them.
struct Scene {
    temp: Temp,
    memory: PathBuf,
    config: String,
}

impl Scene {
    fn new(name: &str, sections: &[&str]) -> Scene {
        let temp = Temp::new();
        let memory = Path::new("/dev/shm").join(format!("forebay-gone-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&memory);
        std::fs::create_dir_all(&memory).unwrap();
        let keyspace = forebay_core::Keyspace::events("events", 1).opening_runs().to_toml().unwrap();
        write(&temp.root.join("events.toml"), keyspace.as_bytes());
        let ring = b"kind = \"ring\"\nname = \"links\"\nsource = [\"link:u32\"]\nticks_per_second = 62500000\nsources_max = 1\n\
            history_ms = 1\nsource_bytes_per_second = 1000000\nmax_skew_ms = 3600000\nfragment_bytes_max = 1000\n";
        write(&temp.root.join("links.toml"), ring);
        let mut text =
            "state_dir = \"state\"\n[listen]\nnative = [\"tcp://127.0.0.1:0\"]\nresp = [\"tcp://127.0.0.1:0\"]\n\
            http = \"off\"\n"
                .to_owned();
        for section in sections {
            let file = if *section == "ring" { "links.toml" } else { "events.toml" };
            text.push_str(&format!(
                "[[{section}]]\npath = \"{}\"\n[{section}.create]\nkeyspace = \"{file}\"\nhot_bytes = \"16 MiB\"\n",
                memory.join(section).display()
            ));
        }
        let config = write(&temp.root.join("server.toml"), text.as_bytes());
        Scene { temp, memory, config }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.temp.command(&["serve", "--config", &self.config]);
        command.args(more);
        command
    }

    fn start(&self) -> Serving {
        Serving::start(&mut self.command(&[]))
    }

    /// What is served, killed or ended in order; its log.
    fn run(&self, signal: &str) -> String {
        self.start().end(signal).2
    }

    fn dir(&self, section: &str) -> PathBuf {
        self.memory.join(section)
    }

    /// As systemd removes what a user has in /dev/shm.
    fn remove_all(&self) {
        std::fs::remove_dir_all(&self.memory).unwrap();
        std::fs::create_dir_all(&self.memory).unwrap();
    }

    /// The start and the check are refused with the exit code of their own; answers the command that the message names.
    #[track_caller]
    fn refused(&self) -> String {
        let checked = self.command(&["--check"]).output().unwrap();
        assert_code(&checked, GONE);
        let refused = self.command(&[]).output().unwrap();
        assert_code(&refused, GONE);
        assert_eq!(stdout(&refused), "", "nothing is served");
        let said = stderr(&refused);
        assert!(said.contains("is gone") && !said.contains("made"), "{said}");
        let json = self.command(&["--json"]).output().unwrap();
        let line = stderr(&json);
        let line = line.lines().find(|line| line.starts_with("{\"error\"")).unwrap_or_default().to_owned();
        let error: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(error["error"]["exit_code"], GONE, "{line}");
        let command = said.split("run: ").nth(1).and_then(|rest| rest.split(';').next());
        command.unwrap_or_else(|| panic!("names no command: {said}")).to_owned()
    }

    fn obey(&self, command: &str) {
        assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.memory);
    }
}

/// One command in Redis's protocol, and the first line of its answer.
fn ask(server: &Serving, command: &str) -> String {
    let mut stream = TcpStream::connect(server.address("resp")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let (mut line, mut byte) = (String::new(), [0]);
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    line.trim_end().to_owned()
}

#[test]
fn a_store_with_live_data_that_is_gone_is_not_made_again() {
    let scene = Scene::new("live", &["keyspace"]);
    let server = scene.start();
    assert_eq!(ask(&server, "FB.RUN OPEN 1"), "+OK");
    assert_eq!(ask(&server, "SET 1/42/0 hello"), "+OK");
    let (code, _, log) = server.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("made") && !log.contains("opened"), "{log}");
    // While its files are there it opens like any other.
    let log = scene.run("TERM");
    assert!(log.contains("opened") && !log.contains("made"), "{log}");
    scene.remove_all();
    let command = scene.refused();
    assert!(!scene.dir("keyspace").exists(), "a refused start makes nothing");
    scene.refused();
    scene.obey(&command);
    let server = scene.start();
    assert_eq!(ask(&server, "GET 1/42/0"), "$-1");
    let (_, _, log) = server.end("TERM");
    assert!(log.contains("made") && !log.contains("opened"), "{log}");
}

#[test]
fn a_store_that_was_killed_and_is_gone_is_not_made_again() {
    let scene = Scene::new("killed", &["keyspace"]);
    scene.run("KILL");
    // Only the region: what is left of the directory says nothing about what was acknowledged.
    std::fs::remove_file(scene.dir("keyspace").join("hot.fb")).unwrap();
    scene.refused();
    scene.remove_all();
    let command = scene.refused();
    scene.obey(&command);
    assert!(scene.run("TERM").contains("made"));
}

#[test]
fn a_store_that_was_killed_in_its_second_life_is_not_made_again() {
    let scene = Scene::new("second", &["keyspace"]);
    scene.run("TERM");
    scene.run("KILL");
    scene.remove_all();
    scene.refused();
}

#[test]
fn a_store_in_memory_that_was_closed_with_nothing_live_is_made_again() {
    let scene = Scene::new("empty", &["keyspace"]);
    let server = scene.start();
    assert_eq!(ask(&server, "FB.RUN OPEN 1"), "+OK");
    assert_eq!(ask(&server, "SET 1/42/0 hello"), "+OK");
    assert_eq!(ask(&server, "DEL 1/42/0"), ":1");
    server.end("TERM");
    scene.remove_all();
    assert_code(&scene.command(&["--check"]).output().unwrap(), 0);
    let log = scene.run("TERM");
    assert!(log.contains("made") && !log.contains("opened"), "{log}");
    // The same where only the region is gone, as from hugetlbfs.
    std::fs::remove_file(scene.dir("keyspace").join("hot.fb")).unwrap();
    let log = scene.run("TERM");
    assert!(log.contains("made") && !log.contains("opened"), "{log}");
}

#[test]
fn a_ring_that_is_gone_is_made_again_only_if_it_held_nothing() {
    let scene = Scene::new("ring", &["ring"]);
    let log = scene.run("TERM");
    assert!(log.contains("made") && !log.contains("opened"), "{log}");
    scene.remove_all();
    let server = scene.start();
    assert_eq!(ask(&server, "FB.PUT 7 1000000 10 first RUN 4"), "+OK");
    let (_, _, log) = server.end("TERM");
    assert!(log.contains("made") && !log.contains("opened"), "{log}");
    assert!(scene.run("TERM").contains("opened"));
    scene.remove_all();
    let command = scene.refused();
    scene.obey(&command);
    scene.run("KILL");
    std::fs::remove_file(scene.dir("ring").join("ring.fb")).unwrap();
    scene.refused();
}

#[test]
fn a_start_that_fails_elsewhere_leaves_no_mark_of_an_open_store() {
    let scene = Scene::new("elsewhere", &["keyspace"]);
    let other = Scene::new("other", &["ring"]);
    let server = other.start();
    let taken = format!("tcp://{}", server.address("native"));
    assert_code(&scene.command(&["--native", &taken]).output().unwrap(), 2);
    scene.remove_all();
    assert!(scene.run("TERM").contains("made"));
    // Two servers with one state directory have one mark each for what they serve.
    let second = other.command(&[]).output().unwrap();
    assert_code(&second, 5);
    assert!(stderr(&second).contains("another server has this ring"), "{}", stderr(&second));
}

#[test]
fn a_state_directory_that_cannot_be_used_ends_the_start() {
    let scene = Scene::new("state", &["keyspace"]);
    write(&scene.temp.root.join("state"), b"a file in its place");
    let refused = scene.command(&[]).output().unwrap();
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("state_dir"), "{}", stderr(&refused));
    assert!(!scene.dir("keyspace").exists());
}

#[test]
fn a_directory_that_is_served_without_a_configuration_has_no_mark() {
    let scene = Scene::new("plain", &[]);
    let dir = scene.dir("plain");
    let start = || {
        let arguments = ["--native", "tcp://127.0.0.1:0", "--resp", "tcp://127.0.0.1:0"];
        Serving::start(scene.temp.command(&["serve", dir.to_str().unwrap()]).args(arguments))
    };
    assert_code(&scene.temp.run(&["create", dir.to_str().unwrap()]), 0);
    start().end("KILL");
    let (_, _, log) = start().end("TERM");
    assert!(log.contains("opened"), "{log}");
    std::fs::remove_dir_all(&dir).unwrap();
    let gone = scene.temp.run(&["serve", dir.to_str().unwrap()]);
    assert_code(&gone, 2);
    assert!(!dir.exists(), "nobody makes another one");
}
