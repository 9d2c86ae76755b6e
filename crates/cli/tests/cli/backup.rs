//! Backup and restore as docs/operating.md has them: `tar` of a closed store, a check of the copy, and another place.

use super::{Temp, assert_code, stderr, stdout};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn tar(dir: &Path, arguments: &[&str]) {
    let output = Command::new("tar").current_dir(dir).args(arguments).output().unwrap();
    assert!(output.status.success(), "tar {arguments:?}: {}", stderr(&output));
}

/// Account, states of events and bytes of a store: what a restore must bring back.
fn told(temp: &Temp, dir: &str) -> Vec<Value> {
    let mut told = temp.json(&["ledger", dir, "1"], 0);
    told.extend(temp.json(&["inspect", dir, "events"], 0));
    for (event, bytes) in [(1, "on the hot level"), (2, "on a device"), (3, "accepted")] {
        let read = temp.run(&["get", dir, &format!("1/{event}/0")]);
        assert_code(&read, 0);
        assert_eq!(stdout(&read), bytes);
    }
    told
}

#[test]
fn a_closed_store_comes_back_from_its_archive_in_place_and_elsewhere() {
    let temp = Temp::new();
    let devices = ["--warm", "warm-a:8M", "--warm", "warm-b:8M"];
    assert_code(&temp.run(&[&["create", "STORE", "--hot-bytes", "16M"][..], &devices].concat()), 0);
    assert_code(&temp.run(&["put", "STORE", "1/1/0", "on the hot level"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/2/0", "on a device", "--persisted"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/3/0", "accepted"]), 0);
    assert_code(&temp.run(&["take", "STORE", "--event", "1/3", "--accept", "physics"]), 0);
    let before = told(&temp, "first");
    tar(&temp.root, &["-cSf", "backup.tar", "first", "warm-a", "warm-b"]);

    // The store goes on after the backup, and is lost with its devices.
    assert_code(&temp.run(&["rm", "STORE", "1/1/0"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/4/0", "after the backup"]), 0);
    for dir in ["first", "warm-a", "warm-b"] {
        std::fs::remove_dir_all(temp.root.join(dir)).unwrap();
    }
    tar(&temp.root, &["-xSf", "backup.tar"]);
    let check = temp.json(&["check", "STORE", "--deep"], 0).remove(0);
    assert_eq!((&check["clean"], &check["problems"]), (&Value::Bool(true), &Value::Array(Vec::new())), "{check}");
    assert!(stdout(&temp.run(&["check", "STORE"])).contains("closed in order"));
    assert_eq!(told(&temp, "first"), before);
    assert_code(&temp.run(&["get", "STORE", "1/4/0"]), 1);

    // On another machine the devices have other paths: the list is what names them.
    let elsewhere = temp.root.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    tar(&elsewhere, &["-xSf", "../backup.tar"]);
    for dir in ["first", "warm-a", "warm-b"] {
        std::fs::remove_dir_all(temp.root.join(dir)).unwrap();
    }
    let refused = temp.run(&["check", "elsewhere/first"]);
    assert_code(&refused, 1);
    assert!(stdout(&refused).contains("warm-a: is not there"), "{}", stdout(&refused));
    let list = elsewhere.join("first/devices.toml");
    let text = std::fs::read_to_string(&list).unwrap();
    let root = temp.root.display().to_string();
    std::fs::write(&list, text.replace(&root, &elsewhere.display().to_string())).unwrap();
    assert_code(&temp.run(&["check", "elsewhere/first", "--deep"]), 0);
    assert_eq!(told(&temp, "elsewhere/first"), before);
    assert_code(&temp.run(&["put", "elsewhere/first", "1/5/0", "goes on"]), 0);
    assert_code(&temp.run(&["take", "elsewhere/first", "--event", "1/5", "--reject"]), 0);
}
