//! Devices are listed, and one is drained, on a directory and on its server.

use super::serve::Serving;
use super::{Temp, assert_code, stderr, stdout, write};
use serde_json::Value;

fn two_devices() -> Temp {
    let temp = Temp::new();
    let made = temp.run(&["create", "STORE", "--hot-bytes", "16M", "--warm", "warm-a:8M", "--warm", "warm-b:8M"]);
    assert_code(&made, 0);
    temp
}

fn states(temp: &Temp, place: &str) -> Vec<(String, u64)> {
    let listed = temp.json(&["device", "ls", place], 0);
    let devices = listed[0].as_array().unwrap();
    let of = |device: &Value| (device["state"].as_str().unwrap().to_owned(), device["live_bytes"].as_u64().unwrap());
    devices.iter().map(of).collect()
}

#[test]
fn a_device_is_drained_under_a_server_and_stays_so_without_it() {
    let temp = two_devices();
    assert_code(&temp.run(&["put", "STORE", "1/1/0", &"x".repeat(5000), "--level", "warm"]), 0);
    let held = states(&temp, "STORE");
    let device = held.iter().position(|(_, live)| *live > 0).expect("one has the fragment").to_string();
    let audit = temp.root.join("audit.log");
    let server = serve(&temp, &audit);
    let address = format!("tcp://{}", server.address("native"));
    let drained = &temp.json(&["device", "drain", "--connect", &address, &device, "--wait"], 0)[0];
    assert_eq!((&drained["state"], &drained["live_bytes"]), (&Value::from("drained"), &Value::from(0)));
    assert_eq!(temp.run(&["get", "STORE", "1/1/0"]).stdout, [b'x'; 5000]);
    let other = if device == "0" { "1" } else { "0" };
    let last = temp.run(&["device", "drain", "STORE", other]);
    assert_code(&last, 2);
    assert!(stderr(&last).contains("only one that takes data"), "{}", stderr(&last));
    assert_code(&temp.run(&["device", "drain", "STORE", "7"]), 2);
    let lines: Vec<Value> =
        std::fs::read_to_string(&audit).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_devices: Vec<&Value> = lines.iter().filter(|line| line["call"] == "device").collect();
    assert!(of_devices.len() >= 6, "asked and answered, three times: {lines:?}");
    assert!(of_devices[0]["about"].as_str().unwrap().contains("drain-device"), "{}", of_devices[0]);
    let new = temp.root.join("warm-c");
    let early = temp.run(&["device", "exchange", "STORE", other, new.to_str().unwrap()]);
    assert_code(&early, 3);
    let exchanged = &temp.json(&["device", "exchange", &address, &device, new.to_str().unwrap()], 0)[0];
    assert_eq!((&exchanged["state"], &exchanged["exchanged"]), (&Value::from("exchanged"), &Value::from(new.to_str())));
    server.end("TERM");
    std::fs::remove_dir_all(temp.root.join(["warm-a", "warm-b"][device.parse::<usize>().unwrap()])).unwrap();
    assert_eq!(temp.run(&["get", "STORE", "1/1/0"]).stdout, [b'x'; 5000]);
    assert_eq!(
        temp.json(&["device", "ls", "STORE"], 0)[0][device.parse::<usize>().unwrap()]["name"],
        new.to_str().unwrap()
    );
    assert_eq!(temp.json(&["device", "drain", "STORE", &device], 0)[0]["state"], "drained");

    let shown = temp.run(&["device", "ls", "STORE"]);
    assert!(stdout(&shown).contains("free · 0 B live · drained"), "{}", stdout(&shown));
    let again = &temp.json(&["device", "drain", "STORE", &device, "--undo"], 0)[0];
    assert_eq!(again["state"], "in use");
    assert!(states(&temp, "STORE").iter().all(|(state, _)| state == "in use"));
}

/// The server's command line, with an audit log beside the store.
fn serve(temp: &Temp, audit: &std::path::Path) -> Serving {
    let config = format!(
        "state_dir = {:?}\n[listen]\nnative = [\"tcp://127.0.0.1:0\"]\nresp = []\n[audit]\nfile = {audit:?}\n[[keyspace]]\npath = {:?}\n",
        temp.root.join("state"),
        temp.store()
    );
    let config = write(&temp.root.join("server.toml"), config.as_bytes());
    Serving::start(&mut temp.command(&["serve", "--config", &config, "--http", "127.0.0.1:0"]))
}

#[test]
fn a_device_is_added_to_a_directory_and_under_a_server() {
    let temp = two_devices();
    let path = |name: &str| temp.root.join(name).to_str().unwrap().to_owned();
    assert_code(&temp.run(&["put", "STORE", "1/1/0", &"x".repeat(5000), "--level", "warm"]), 0);
    let added = &temp.json(&["device", "add", "STORE", &path("warm-c")], 0)[0];
    assert_eq!((&added["state"], &added["name"]), (&Value::from("added"), &Value::from(path("warm-c"))));
    // The next opening, of whichever command, has it.
    assert_eq!(states(&temp, "STORE").len(), 3);
    assert_code(&temp.run(&["device", "add", "STORE", &path("warm-c")]), 2);
    assert_code(&temp.run(&["device", "add", "STORE", &path("warm-d:1K")]), 2);

    let audit = temp.root.join("audit.log");
    let server = serve(&temp, &audit);
    let address = format!("tcp://{}", server.address("native"));
    let listed = |place: &str| temp.json(&["device", "ls", place], 0)[0].as_array().unwrap().clone();
    for _ in 0..2 {
        assert_code(&temp.run(&["device", "add", "--connect", &address, &path("warm-d:4M")]), 0);
    }
    let said = temp.run(&["device", "ls", "STORE"]);
    assert!(stdout(&said).contains("warm-d: it takes data from the next opening"), "{}", stdout(&said));
    let devices = listed(&address);
    assert_eq!((devices.len(), &devices[3]["state"]), (4, &Value::from("added")));
    assert!(std::fs::read_to_string(&audit).unwrap().contains("add-device"));
    server.end("TERM");
    let server = serve(&temp, &audit);
    let devices = listed("STORE");
    assert_eq!(devices[3]["name"], path("warm-d"));
    assert!(devices[3]["containers"].as_u64() < devices[2]["containers"].as_u64(), "as large as was asked for");
    assert!(devices.iter().all(|device| device["state"] == "in use"), "{devices:?}");
    assert_eq!(devices[2]["containers"], devices[0]["containers"], "as large as device 0");
    assert_eq!(temp.run(&["get", "STORE", "1/1/0"]).stdout, [b'x'; 5000]);
    server.end("TERM");
    assert_code(&temp.run(&["check", "STORE", "--deep"]), 0);
    let other = two_devices();
    let foreign = other.root.join("warm-a");
    assert_code(&temp.run(&["device", "add", "STORE", foreign.to_str().unwrap()]), 3);
}

#[test]
fn a_store_without_devices_says_so() {
    let temp = Temp::with_store();
    assert_code(&temp.run(&["put", "STORE", "1/1/0", "x"]), 0);
    assert_code(&temp.run(&["device", "ls", "STORE"]), 1);
    let none = temp.run(&["device", "drain", "STORE", "0"]);
    assert_code(&none, 2);
    assert!(stderr(&none).contains("without devices"), "{}", stderr(&none));
}
