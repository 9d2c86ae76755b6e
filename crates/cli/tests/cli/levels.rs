//! Both levels from the command line: a store with devices, what goes to them, what is there, what has rotted.

use super::{Temp, assert_code, stderr, stdout};
use serde_json::Value;

/// A store of two small devices; events have one fragment.
fn two_levels() -> Temp {
    let temp = Temp::new();
    let created = temp.run(&["create", "STORE", "--hot-bytes", "16M", "--warm", "warm-a:8M", "--warm", "warm-b:8M"]);
    assert_code(&created, 0);
    let text = stdout(&created);
    assert!(text.contains("warm level ") && text.contains(" on 2 devices"), "{text}");
    assert!(text.contains("warm-a: ") && text.contains("warm-b: "), "{text}");
    temp
}

/// Serves the store until its thread has taken down what has to go, and then closes it.
fn serve(temp: &Temp) {
    assert_code(&temp.run(&["run", "STORE", "watch", "1", "--for", "500ms"]), 0);
}

fn containers(temp: &Temp) -> Value {
    temp.json(&["containers", "STORE"], 0).remove(0)
}

/// Sum of a figure over the containers.
fn sum(answer: &Value, figure: &str) -> u64 {
    answer["containers"].as_array().unwrap().iter().map(|one| one[figure].as_u64().unwrap()).sum()
}

fn level_of(temp: &Temp, key: &str) -> String {
    temp.json(&["get", "STORE", key], 0)[0]["level"].as_str().unwrap().to_owned()
}

#[test]
fn a_new_warm_level_is_empty() {
    let temp = two_levels();
    let text = stdout(&temp.run(&["containers", "STORE"]));
    assert!(text.starts_with("warm level ") && text.contains("device 1 ") && text.contains(" E empty "), "{text}");
    assert!(!text.contains('\x1b'), "colours belong to a terminal: {text}");
    let answer = containers(&temp);
    let all = answer["containers"].as_array().unwrap();
    assert!(all.len() >= 28 && all.iter().all(|container| container["state"] == "empty"), "{answer}");
    assert_eq!(answer["warm"]["devices"].as_array().unwrap().len(), 2);
    assert_eq!(sum(&answer, "live_fragments"), 0);
}

#[test]
fn without_a_warm_level_there_is_nothing_to_show_and_nothing_is_persisted() {
    let temp = Temp::with_store();
    let none = temp.run(&["containers", "STORE"]);
    assert_code(&none, 1);
    assert!(stderr(&none).contains("no warm level"), "{}", stderr(&none));
    let refused = temp.run(&["put", "STORE", "1/1/0", "precious", "--persisted"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("needs a warm level"), "{}", stderr(&refused));
    assert_code(&temp.run(&["get", "STORE", "1/1/0"]), 1);
}

#[test]
fn persisted_and_warm_puts_stand_on_a_device() {
    let temp = two_levels();
    let persisted = temp.run(&["put", "STORE", "1/1/0", "precious", "--persisted"]);
    assert_code(&persisted, 0);
    assert!(stdout(&persisted).contains("persisted"), "{}", stdout(&persisted));
    let after = containers(&temp);
    assert_eq!(sum(&after, "live_fragments"), 1, "{after}");
    assert_code(&temp.run(&["put", "STORE", "1/2/0", "for the device", "--level", "warm"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/3/0", "at hand", "--level", "hot"]), 0);
    serve(&temp);
    assert_eq!((level_of(&temp, "1/2/0"), level_of(&temp, "1/3/0")), ("warm".to_owned(), "hot".to_owned()));
    assert_eq!(temp.run(&["get", "STORE", "1/2/0"]).stdout, b"for the device");
    assert_eq!(sum(&containers(&temp), "live_fragments"), 2);
    let bars = stdout(&temp.run(&["containers", "STORE"]));
    assert!(bars.contains('█') && bars.contains("in containers  "), "{bars}");
}

#[test]
fn accepted_events_go_down_and_space_comes_back() {
    let temp = two_levels();
    for event in 1..=4 {
        assert_code(&temp.run(&["put", "STORE", &format!("1/{event}/0"), &format!("event {event}")]), 0);
    }
    assert_code(&temp.run(&["take", "STORE", "-n", "3", "--accept", "physics"]), 0);
    serve(&temp);
    let answer = containers(&temp);
    let used = answer["containers"].as_array().unwrap().iter().find(|container| container["state"] != "empty").unwrap();
    assert_eq!((&used["stream"], &used["run"]), (&Value::from("physics"), &Value::from(1)), "{answer}");
    assert_eq!(sum(&answer, "live_fragments"), 3);
    assert_eq!(level_of(&temp, "1/1/0"), "warm");
    let ledger = temp.run(&["ledger", "STORE", "1"]);
    assert_code(&ledger, 0);
    for event in 1..=3 {
        assert_code(&temp.run(&["event", "STORE", &format!("1/{event}")]), 0);
    }
}

#[test]
fn a_farm_takes_from_the_level_that_it_names() {
    let temp = two_levels();
    assert_code(&temp.run(&["put", "STORE", "1/1/0", "down", "--level", "warm"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/2/0", "up"]), 0);
    serve(&temp);
    let warm = temp.json(&["take", "STORE", "--level", "warm", "-n", "10", "--requeue"], 0);
    assert_eq!(warm.iter().map(|event| &event["event"]).collect::<Vec<_>>(), ["1/1"]);
    assert_eq!(warm[0]["read"][0]["level"], "warm");
    let hot = temp.json(&["take", "STORE", "--level", "hot", "-n", "10", "--requeue"], 0);
    assert_eq!(hot.iter().map(|event| &event["event"]).collect::<Vec<_>>(), ["1/2"]);
    assert_code(&temp.run(&["take", "STORE", "--level", "cold"]), 2);
}

#[test]
fn bit_rot_on_a_device_is_named() {
    let temp = two_levels();
    let value = "a payload that rots on its device";
    assert_code(&temp.run(&["put", "STORE", "1/1/0", value, "--level", "warm"]), 0);
    serve(&temp);
    let whole = temp.json(&["check", "STORE", "--deep"], 0).remove(0);
    assert_eq!((&whole["warm_live"], &whole["devices"]), (&Value::from(1), &Value::from(2)), "{whole}");
    let files = ["warm-a", "warm-b"].map(|dir| std::fs::read_dir(temp.root.join(dir)).unwrap());
    let paths = files.into_iter().flatten().map(|entry| entry.unwrap().path());
    let (path, mut bytes, at) = paths
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("container-"))
        .find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(value.len()).position(|window| window == value.as_bytes())?;
            Some((path, bytes, at))
        })
        .expect("the payload lies in a container");
    bytes[at + 3] ^= 0x40;
    std::fs::write(&path, &bytes).unwrap();
    assert_code(&temp.run(&["check", "STORE"]), 0);
    let deep = temp.run(&["check", "STORE", "--deep"]);
    assert_code(&deep, 1);
    let text = stdout(&deep);
    let problem = text.lines().find(|line| line.starts_with("  problem: container ")).expect("the container is named");
    let device = path.parent().unwrap().to_str().unwrap();
    assert!(problem.contains(device) && problem.contains("fragment 1/1/0"), "{text}");
    assert_code(&temp.run(&["get", "STORE", "1/1/0"]), 8);
}

#[test]
fn what_is_watched_ends_when_it_should() {
    let temp = two_levels();
    let looks = temp.run(&["containers", "STORE", "--watch", "--every", "20ms", "--count", "3"]);
    assert_code(&looks, 0);
    assert_eq!(stdout(&looks).matches("warm level ").count(), 3);
    assert_code(&temp.run(&["containers", "STORE", "--count", "3"]), 2);
}

#[test]
fn devices_that_cannot_be_are_refused_and_leave_nothing() {
    let temp = Temp::new();
    for (arguments, words) in [
        (&["create", "STORE", "--warm", "here:16Q"][..], "not a size"),
        (&["create", "STORE", "--container", "1M"], "--warm"),
        (&["create", "STORE", "--hot-bytes", "16M", "--warm", "here:8M", "--container", "1K"], "container"),
    ] {
        let refused = temp.run(arguments);
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains(words), "{arguments:?}: {}", stderr(&refused));
    }
    let made = temp.run(&["create", "STORE", "--hot-bytes", "16M", "--warm", "here:8M"]);
    assert_code(&made, 0);
    let taken = temp.run(&["create", "second", "--hot-bytes", "16M", "--warm", "here:8M"]);
    assert!(matches!(taken.status.code(), Some(2..=10)), "{}", stderr(&taken));
    assert_code(&temp.run(&["check", "STORE", "--deep"]), 0);
}
