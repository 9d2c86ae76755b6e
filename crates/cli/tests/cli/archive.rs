//! Archives from the command line: moved, looked at, compared, restored; and kills of real movers and real servers.

use super::serve::{Serving, serve};
use super::{Temp, assert_code, stderr, stdout};
use forebay_client::{Client, Options};
use forebay_core::{GetAny, PutOptions};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SOURCES: u64 = 3;

/// A store with a warm level of small containers.
fn two_levels() -> Temp {
    let temp = Temp::new();
    let created = temp.run(&[
        "create",
        "STORE",
        "--hot-bytes",
        "32M",
        "--warm",
        "warm:64M",
        "--container",
        "1M",
        "--sources-per-event",
        "3",
    ]);
    assert_code(&created, 0);
    temp
}

fn client(server: &Serving) -> Client {
    Client::connect(&format!("tcp://{}", server.address("native")), Options::default()).unwrap()
}

/// Events of run 7 that are put and accepted.
fn accept(client: &Client, events: std::ops::Range<u64>) {
    for event in events.clone() {
        for source in 0..SOURCES {
            let key = client.schema().key(&[7, event, source]).unwrap();
            let value = vec![(event * 3 + source) as u8; 4000];
            let _ = client.put(&key, &value, &PutOptions::default()).unwrap();
        }
    }
    let mut accepted = 0;
    while accepted < events.end - events.start {
        for lease in client.get_any(&GetAny { n: 64, ..GetAny::default() }).unwrap() {
            lease.accept(&["physics"]).unwrap();
            accepted += 1;
        }
    }
}

/// Until all accepted events lie in containers that a mover could claim, or has.
fn until_down(temp: &Temp, events: u64) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let stats = temp.json(&["stats", "STORE"], 0).remove(0);
        let warm = &stats["warm"];
        if warm["demoted_events"].as_u64() >= Some(events) && warm["in_flight_bytes"] == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{stats}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn balanced(audit: &Value) {
    assert_eq!(audit["problems"].as_array().map(Vec::len), Some(0), "{audit}");
    assert_eq!(audit["archive"]["repeated"], 0, "{audit}");
    assert_eq!(audit["archive"]["partial"], 0, "{audit}");
}

const TO: &str = "dir:archive";

/// A store, and an archive beside it.
fn with_archive() -> Temp {
    let temp = two_levels();
    assert_code(&temp.run(&["archive", "create", TO, "--name", "tests"]), 0);
    temp
}

#[test]
fn events_leave_a_served_store_and_come_back_as_another_run() {
    let temp = with_archive();
    let server = Serving::start(&mut serve(&temp));
    accept(&client(&server), 0..300);
    until_down(&temp, 300);
    let address = format!("tcp://{}", server.address("native"));
    let moved =
        temp.json(&["move", "--from", &address, "--to", TO, "--once", "--move-after", "0s", "--md5"], 0).remove(0);
    assert_eq!((&moved["moved"]["proved"], &moved["complete"]), (&300.into(), &true.into()), "{moved}");
    let again = temp.run(&["move", "STORE", "--to", TO, "--once", "--move-after", "0s"]);
    assert_code(&again, 0);
    assert!(stdout(&again).contains("moved 0 events"), "{}", stdout(&again));
    let ledger = temp.json(&["ledger", "STORE", "7"], 0).remove(0);
    assert_eq!(ledger["in_custody"]["events"], 300, "{ledger}");
    assert!(stdout(&temp.run(&["ledger", "STORE", "7"])).contains("    in custody"));
    let containers = temp.run(&["containers", "STORE"]);
    assert!(stdout(&containers).contains("custody"), "{}", stdout(&containers));

    let list = temp.json(&["archive", "ls", TO, "7"], 0).remove(0);
    let objects = list["objects"].as_array().unwrap();
    for object in objects {
        for name in ["name", "bytes", "adler32", "md5", "run", "stream", "events"] {
            assert!(!object[name].is_null(), "{name} of {object}");
        }
    }
    assert_eq!(temp.json(&["archive", "ls", TO], 0)[0]["runs"][0]["events"], 300);
    assert!(stdout(&temp.run(&["archive", "verify", TO])).contains("no problems found"));
    balanced(&temp.json(&["archive", "audit", "STORE", TO, "7"], 0)[0]);
    balanced(&temp.json(&["archive", "audit", "--connect", &address, TO, "7"], 0)[0]);
    let shown = temp.json(&["archive", "show", TO, "7/42"], 0).remove(0);
    assert_eq!((&shown["streams"][0], shown["fragments"].as_array().unwrap().len()), (&"physics".into(), 3));
    let cat = temp.run(&["archive", "cat", TO, "7/42", "1"]);
    assert!(cat.stdout == vec![(42 * 3 + 1) as u8; 4000], "{} bytes", cat.stdout.len());
    assert_code(&temp.run(&["archive", "get", TO, "7/42", "--out", "event"]), 0);
    assert_eq!(std::fs::read(temp.root.join("event/2")).unwrap(), vec![128; 4000]);
    assert_code(&temp.run(&["archive", "show", TO, "7/4711"]), 1);
    assert_code(&temp.run(&["archive", "ls", TO, "8"]), 2);

    let restored = temp.run(&["archive", "restore", "STORE", TO, "7", "--as-run", "8"]);
    assert_code(&restored, 0);
    assert!(stdout(&restored).starts_with("restored 300 events with 900 fragments"), "{}", stdout(&restored));
    let back = temp.run(&["get", "STORE", "8/42/1"]);
    assert!(back.stdout == vec![(42 * 3 + 1) as u8; 4000], "{} bytes: {}", back.stdout.len(), stderr(&back));
    let twice = temp.run(&["archive", "restore", "STORE", TO, "7", "--as-run", "8"]);
    assert!(stderr(&twice).contains("knows run 8"), "{}", stderr(&twice));

    // Damage is named, and an operator's release without an archive is seen by the audit.
    let name = objects[0]["name"].as_str().unwrap();
    let path = temp.root.join("archive").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let damaged = temp.run(&["archive", "verify", TO, "7"]);
    assert_code(&damaged, 1);
    assert!(stdout(&damaged).contains(name), "{}", stdout(&damaged));
    std::fs::remove_file(&path).unwrap();
    let audit = temp.json(&["archive", "audit", "STORE", TO, "7"], 1).remove(0);
    assert!(audit["problems"].as_array().unwrap().len() >= 2, "{audit}");
}

#[test]
fn movers_and_servers_that_are_killed_lose_nothing_and_archive_nothing_twice() {
    let temp = with_archive();
    let mut server = Serving::start(&mut serve(&temp));
    let mut events = 0;
    let mut kills = 0;
    for round in 0..8_u64 {
        accept(&client(&server), events..events + 120);
        events += 120;
        until_down(&temp, 1);
        // Killed a little later each time: at the claim, the read, the write, the manifest, the proof. By its address: of a
        // directory whose server was just killed it would have the store itself.
        let address = format!("tcp://{}", server.address("native"));
        let arguments = [
            "move",
            &address,
            "--to",
            TO,
            "--once",
            "--move-after",
            "0s",
            "--claim",
            "1s",
            "--object-bytes",
            "64K",
            "--limit",
            "20M",
        ];
        let mut mover = temp.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(15 + round * 25));
        if round % 3 == 2 {
            assert!(server.end("KILL").0.is_none(), "it was killed");
            server = Serving::start(&mut serve(&temp));
        }
        if mover.try_wait().unwrap().is_none() {
            mover.kill().unwrap();
            kills += 1;
        }
        mover.wait().unwrap();
    }
    assert!(kills >= 2, "{kills} of 8 movers were still at work");
    // The claim of the last one ends by its time; then others go on behind what is named.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let done = temp.run(&["move", "STORE", "--to", TO, "--once", "--move-after", "0s"]);
        assert_code(&done, 0);
        let ledger = temp.json(&["ledger", "STORE", "7"], 0).remove(0);
        let gone =
            ledger["in_custody"]["events"].as_u64().unwrap() + ledger["terms"]["released"]["events"].as_u64().unwrap();
        if gone == events {
            break;
        }
        assert!(Instant::now() < deadline, "{ledger}");
        std::thread::sleep(Duration::from_millis(200));
    }
    balanced(&temp.json(&["archive", "audit", "STORE", TO, "7"], 0)[0]);
    assert!(stdout(&temp.run(&["archive", "verify", TO])).contains("no problems found"));
    let inventory = &temp.json(&["archive", "audit", "STORE", TO, "7"], 0)[0]["archive"];
    assert_eq!((&inventory["events"], &inventory["fragments"]), (&events.into(), &(events * SOURCES).into()));
    // What the killed ones left is removed by name, and only that.
    assert_code(&temp.run(&["archive", "gc", TO, "--older", "0s"]), 2);
    for entry in std::fs::read_dir(temp.root.join("archive/run-7")).unwrap().map(Result::unwrap) {
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::options().write(true).open(entry.path()).unwrap().set_modified(hour_ago).unwrap();
    }
    assert_code(&temp.run(&["archive", "gc", TO, "--older", "10min"]), 0);
    assert!(stdout(&temp.run(&["archive", "verify", TO])).contains("no problems found"));
}

#[test]
fn an_archive_that_cannot_be_written_is_said_and_loses_nothing() {
    let temp = with_archive();
    let server = Serving::start(&mut serve(&temp));
    accept(&client(&server), 0..20);
    until_down(&temp, 20);
    // A file where the directory of the run would be.
    std::fs::write(temp.root.join("archive/run-7"), b"in the way").unwrap();
    let refused = temp.command(&["move", "STORE", "--to", TO, "--once", "--move-after", "0s"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    std::thread::sleep(Duration::from_millis(500));
    super::interrupt(refused);
    assert!(Instant::now() < deadline);
    assert_eq!(temp.json(&["ledger", "STORE", "7"], 0)[0]["in_custody"]["events"], 0);
    std::fs::remove_file(temp.root.join("archive/run-7")).unwrap();
    assert_code(&temp.run(&["move", "STORE", "--to", TO, "--once", "--move-after", "0s"]), 0);
    balanced(&temp.json(&["archive", "audit", "STORE", TO, "7"], 0)[0]);
    for (arguments, words) in [
        (&["move", "STORE", "--to", "ftp://host/x"][..], "no place for objects"),
        (&["move", "STORE", "--to", "s3:/raw/2026", "--once"], "no place for objects"),
        (&["move", "STORE", "--to", "s3//raw", "--once"], "no place for objects"),
        (&["move", "STORE", "--to", "dri:/archive", "--once"], "no place for objects"),
        (&["move", "STORE", "--to", TO, "--claim", "1ms"], "1s to 1h"),
        (&["move", "STORE", "--to", TO, "--device", "9", "--once"], "no device 9"),
    ] {
        let refused = temp.run(arguments);
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains(words), "{arguments:?}: {}", stderr(&refused));
    }
}

#[test]
fn a_place_without_the_archive_of_before_gets_nothing() {
    let temp = with_archive();
    let server = Serving::start(&mut serve(&temp));
    accept(&client(&server), 0..20);
    until_down(&temp, 20);
    // Its disk is not mounted.
    let (there, away) = (temp.root.join("archive"), temp.root.join("away"));
    std::fs::rename(&there, &away).unwrap();
    std::fs::create_dir(&there).unwrap();
    let all = ["move", "STORE", "--to", TO, "--once", "--move-after", "0s"];
    for command in [&all[..], &["archive", "gc", TO]] {
        let refused = temp.run(command);
        assert!(refused.status.code() != Some(0) && stderr(&refused).contains("is no archive"), "{}", stderr(&refused));
    }
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0, "nothing is written into a mount point");
    std::fs::remove_dir(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    assert_code(&temp.run(&all), 0);
    balanced(&temp.json(&["archive", "audit", "STORE", TO, "7"], 0)[0]);
    let twice = temp.run(&["archive", "create", TO]);
    assert!(stderr(&twice).contains("--adopt") && twice.status.code() != Some(0), "{}", stderr(&twice));

    // From before archives had ids: every object is verified.
    std::fs::remove_file(there.join("archive")).unwrap();
    let objects = temp.json(&["archive", "ls", TO, "7"], 0).remove(0);
    let object = there.join(objects["objects"][0]["name"].as_str().unwrap());
    let whole = std::fs::read(&object).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&object, damaged).unwrap();
    let refused = temp.run(&["archive", "create", TO, "--adopt"]);
    assert!(refused.status.code() != Some(0) && !there.join("archive").exists(), "{}", stderr(&refused));
    std::fs::write(&object, whole).unwrap();
    assert_code(&temp.run(&["archive", "create", TO, "--adopt", "--name", "old"]), 0);
    // It has another id now than the one that the store remembers.
    let other = temp.run(&all);
    assert_code(&other, 3);
    assert!(stderr(&other).contains("--another-archive"), "{}", stderr(&other));
    assert_code(&temp.run(&[&all[..], &["--another-archive"]].concat()), 0);
}
