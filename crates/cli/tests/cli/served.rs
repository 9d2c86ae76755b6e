//! Operator's commands on a running server: by its address, or by the directory that it serves.

use super::serve::{SECRET, Serving, serve};
use super::{Temp, assert_code, stderr, stdout, write};
use serde_json::Value;
use std::process::Stdio;

/// A store with an event in each state, one of them in the debug stream.
fn filled() -> Temp {
    let temp = Temp::with_stages();
    for event in 1..=6 {
        for source in 0..4 {
            temp.put(&format!("1/{event}/{source}"), &["lumi=5", "class=physics"]);
        }
    }
    temp.put("1/7/0", &["lumi=6"]);
    assert_code(&temp.run(&["take", "STORE", "--event", "1/1", "--accept", "physics"]), 0);
    assert_code(&temp.run(&["take", "STORE", "--event", "1/2", "--accept", "calib:few"]), 0);
    assert_code(&temp.run(&["take", "STORE", "--event", "1/3", "--reject"]), 0);
    // A lease that its process leaves: with one delivery, the event goes to the debug stream at the next opening.
    assert_code(&temp.run(&["take", "STORE", "--event", "1/4"]), 0);
    assert_code(&temp.run(&["mask", "STORE", "1", "3", "--from", "9"]), 0);
    assert_code(&temp.run(&["hold", "STORE", "--run", "1", "lumi=7..9"]), 0);
    temp
}

/// What looks and changes nothing, in the form `command STORE rest`.
const LOOKS: &[&[&str]] = &[
    &["ledger", "STORE", "1"],
    &["ledger", "STORE", "1", "--by", "stream"],
    &["ledger", "STORE", "1", "--by", "lumi"],
    &["ledger", "STORE", "9"],
    &["why", "STORE", "1/3/0"],
    &["event", "STORE", "1/1"],
    &["event", "STORE", "1/7"],
    &["get", "STORE", "1/1/0"],
    &["get", "STORE", "1/1/9"],
    &["range", "STORE", "1/1-2", "--values", "hex"],
    &["debug", "STORE", "list"],
    &["hold", "STORE"],
    &["run", "STORE", "list"],
    &["inspect", "STORE", "events"],
    &["inspect", "STORE", "event", "1/2"],
    &["inspect", "STORE", "fragment", "1/2/0"],
    &["containers", "STORE"],
];

fn with_place(arguments: &[&str], place: &[String]) -> Vec<String> {
    let mut all = vec![arguments[0].to_owned()];
    all.extend(place.iter().cloned());
    all.extend(arguments[2..].iter().map(|&argument| argument.to_owned()));
    all
}

#[test]
fn every_look_says_the_same_of_a_directory_and_of_its_server() {
    let temp = filled();
    // Opened once more: what the lease left behind is settled before anything is compared.
    assert_code(&temp.run(&["stats", "STORE"]), 0);
    let run = |arguments: &[String]| {
        let list: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (text, json) = (temp.run(&list), temp.run(&[&list[..], &["--json"]].concat()));
        (text.status.code(), stdout(&text), json.status.code(), stdout(&json))
    };
    let store = temp.store().to_str().unwrap().to_owned();
    let closed: Vec<_> = LOOKS.iter().map(|look| run(&with_place(look, std::slice::from_ref(&store)))).collect();
    let server = Serving::start(&mut serve(&temp));
    let address = format!("tcp://{}", server.address("native"));
    let flag = ["--connect".to_owned(), address.clone()];
    for place in [&[store][..], &[address][..], &flag[..]] {
        for (look, expected) in LOOKS.iter().zip(&closed) {
            assert_eq!(run(&with_place(look, place)), *expected, "{look:?} at {place:?}");
        }
        // Figures since the opening differ; what they are called does not.
        for look in
            [&["stats", "STORE"][..], &["sources", "STORE", "1"], &["inspect", "STORE"], &["check", "STORE", "--deep"]]
        {
            let arguments = with_place(look, place);
            let list: Vec<&str> = arguments.iter().map(String::as_str).collect();
            assert_eq!(temp.json(&list, 0).len(), 1, "{look:?}");
        }
    }
    server.end("TERM");
    // The note of the server went with it: the directory is opened again.
    assert!(!temp.store().join("served.json").exists());
    let reopened = &temp.json(&["check", "STORE"], 0)[0];
    assert_eq!(reopened["served"], Value::Null);
}

#[test]
fn operators_change_a_store_that_is_served() {
    let temp = filled();
    let server = Serving::start(&mut serve(&temp));
    let address = format!("tcp://{}", server.address("native"));
    let run = |arguments: &[&str]| temp.run(arguments);
    assert_code(&run(&["mask", "STORE", "1", "2"]), 0);
    assert_code(&run(&["unmask", &address, "1", "2"]), 0);
    assert_code(&run(&["hold", "STORE", "--release", "1"]), 0);
    assert_code(&run(&["put", "STORE", "1/8/0", "over the network"]), 0);
    assert_eq!(run(&["get", &address, "1/8/0"]).stdout, b"over the network");
    assert_code(&run(&["rm", "STORE", "1/8"]), 0);
    assert_code(&run(&["event", "STORE", "1/7", "--seal"]), 0);
    let taken = &temp.json(&["take", "STORE", "--stage", "fast", "--pass", "final"], 0)[0];
    assert_eq!(taken["verdict"], "passed");
    assert_code(&run(&["debug", "STORE", "list"]), 0);
    assert_code(&run(&["run", "STORE", "pause", "1"]), 0);
    assert_code(&run(&["run", "--connect", &address, "resume", "1"]), 0);
    assert_code(&run(&["run", "STORE", "open", "2", "--count", "1"]), 0);
    assert_code(&run(&["run", "STORE", "stop", "2"]), 0);
    let closed = &temp.json(&["run", "STORE", "close", "2"], 0)[0];
    assert_eq!((&closed["state"], &closed["summary"]["run"]), (&Value::from("closed"), &Value::from(2)));
    let shown = run(&["watch", "STORE", "1", "--count", "1"]);
    assert_code(&shown, 0);

    // Releases: undecided events stay, whatever the bounds say.
    let none = run(&["release", "STORE", "1/5-6"]);
    assert_code(&none, 1);
    let unknown = run(&["release", "STORE", "--stream", "phyiscs"]);
    assert_code(&unknown, 2);
    assert!(stderr(&unknown).contains("physics, calib, debug"), "{}", stderr(&unknown));
    assert_eq!(temp.json(&["release", "STORE", "--stream", "calib"], 0)[0]["released"], 1);
    assert_eq!(temp.json(&["release", &address, "1", "--stream", "debug"], 0)[0]["released"], 1);
    assert_eq!(temp.json(&["release", "--connect", &address, "1"], 0)[0]["released"], 1);
    let account = &temp.json(&["ledger", "STORE", "1"], 0)[0];
    assert_eq!((&account["terms"]["released"]["events"], &account["balanced"]), (&Value::from(3), &Value::from(true)));
    assert_eq!(account["terms"]["accepted"]["events"], 0);
}

#[test]
fn a_directory_whose_server_wants_a_token_says_so_and_takes_one() {
    let temp = filled();
    let file = write(&temp.root.join("secret"), SECRET.as_bytes());
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = format!(
        "state_dir = {:?}\n[listen]\nnative = [\"tcp://127.0.0.1:0\", \"unix:{}\"]\nresp = []\n[[keyspace]]\npath = {:?}\n\
         [[token]]\nname = \"operator\"\nsecret_file = \"secret\"\nrights = {{ \"*\" = [\"read\"] }}\n",
        temp.root.join("state"),
        temp.root.join("s").display(),
        temp.store()
    );
    let config = write(&temp.root.join("server.toml"), config.as_bytes());
    let _server = Serving::start(&mut temp.command(&["serve", "--config", &config, "--http", "127.0.0.1:0"]));
    let refused = temp.run(&["ledger", "STORE", "1"]);
    assert_code(&refused, 2);
    let said = stderr(&refused);
    assert!(said.contains("is served by process") && said.contains("tcp://127.0.0.1:"), "{said}");
    // Each address with its reason: that of the first one is not hidden by that of the last one.
    assert!(said.contains("unix:") && said.matches("token").count() >= 2, "{said}");
    assert_code(&temp.run(&["ledger", "STORE", "1", "--token-file", &file]), 0);
    // What the token may not do is refused by the name of the right.
    let refused = temp.run(&["release", "STORE", "1", "--token-file", &file]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("`archive`"), "{}", stderr(&refused));
}

#[test]
fn a_store_that_a_program_has_is_no_servers_store() {
    let temp = Temp::with_store();
    temp.event("1/1");
    let child = super::watcher(&temp);
    let refused = temp.run(&["stats", "STORE"]);
    assert_code(&refused, 5);
    assert!(stderr(&refused).contains("is no server of it"), "{}", stderr(&refused));
    super::interrupt(child);
    // A note that a killed server left is not believed.
    let mut server = serve(&temp);
    let mut child = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    while !temp.store().join("served.json").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_code(&temp.run(&["ledger", "STORE", "1"]), 0);
}

#[test]
fn a_missing_device_is_not_called_another_process() {
    let temp = Temp::new();
    let warm = temp.root.join("warm");
    let size = format!("{}:64M", warm.display());
    assert_code(&temp.run(&["create", "STORE", "--hot-bytes", "16M", "--warm", &size]), 0);
    std::fs::rename(&warm, temp.root.join("elsewhere")).unwrap();
    let refused = temp.run(&["stats", "STORE"]);
    assert_code(&refused, 5);
    let said = stderr(&refused);
    assert!(!said.contains("another process") && said.contains("warm"), "{said}");
}
