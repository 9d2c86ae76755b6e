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
    let config = format!(
        "state_dir = {:?}\n[listen]\nnative = [\"tcp://127.0.0.1:0\"]\nresp = []\n[audit]\nfile = {audit:?}\n[[keyspace]]\npath = {:?}\n",
        temp.root.join("state"),
        temp.store()
    );
    let config = write(&temp.root.join("server.toml"), config.as_bytes());
    let server = Serving::start(&mut temp.command(&["serve", "--config", &config, "--http", "127.0.0.1:0"]));
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

#[test]
fn a_store_without_devices_says_so() {
    let temp = Temp::new();
    assert_code(&temp.run(&["put", "STORE", "1/1/0", "x"]), 0);
    assert_code(&temp.run(&["device", "ls", "STORE"]), 1);
    let none = temp.run(&["device", "drain", "STORE", "0"]);
    assert_code(&none, 2);
    assert!(stderr(&none).contains("without devices"), "{}", stderr(&none));
}
