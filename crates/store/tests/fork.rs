//! A process with a store forks, as Python's multiprocessing does, and is killed: its child keeps nothing locked.
#![expect(unsafe_code, reason = "fork is unsafe")]

use crate::common::TempDir;
use forebay_store::core::Keyspace;
use forebay_store::{Config, Store, WarmDevice};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const PARENT: &str = "FOREBAY_FORK_PARENT";

fn config(dir: &Path) -> Config {
    Config {
        hot_bytes: 16 << 20,
        warm: vec![WarmDevice::directory(dir.join("warm"), 16 << 20)],
        container_bytes: 512 << 10,
        device_log_bytes: 512 << 10,
        ..Config::default()
    }
}

/// Not a test by itself: what is killed. It has the store open, and a child that sleeps.
#[test]
fn parent_role() {
    let Some(dir) = std::env::var_os(PARENT) else { return };
    let dir = Path::new(&dir);
    let store = Store::create(&dir.join("store"), &Keyspace::events("forked", 1).opening_runs(), config(dir)).unwrap();
    // SAFETY: the child calls nothing but what may be called in a child of many threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: it only waits.
            unsafe { libc::pause() };
        }
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nchild {child}").and_then(|()| out.flush()).unwrap();
    loop {
        std::thread::park();
        let _ = store.stats();
    }
}

#[test]
fn a_child_keeps_nothing_locked_once_its_parent_is_killed() {
    let dir = TempDir::new();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fork::parent_role", "--nocapture"])
        .env(PARENT, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let child = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.parse().ok());
    let child = Pid::from_raw(child.expect("the parent forked")).unwrap();
    let (store, open) = (dir.path().join("store"), config(dir.path()));
    assert!(Store::open(&store, open.clone()).is_err(), "while the parent is there the store is its own");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let opened = Store::open(&store, open);
    // The child is there, with everything of its parent that it has.
    kill_process(child, Signal::KILL).unwrap();
    opened.unwrap().close().unwrap();
}
