//! Runs, selection and what keeps events from it, from the command line.

use super::*;

#[test]
fn selection_and_the_life_of_a_run() {
    let temp = Temp::with_store();
    for event in 1..=4 {
        temp.event(&format!("1/{event}"));
    }
    let accepted = temp.run(&["take", "STORE", "--event", "1/2", "--accept", "physics", "--accept", "express"]);
    assert_code(&accepted, 0);
    assert!(stdout(&accepted).contains("event 1/2 · token ") && stdout(&accepted).contains("accepted"));
    assert_eq!(temp.json(&["event", "STORE", "1/2"], 0)[0]["state"], "accepted");
    let requeued = &temp.json(&["take", "STORE", "--sources", "1", "--requeue"], 0)[0];
    assert_eq!((&requeued["verdict"], &requeued["read"][0]["source"]), (&Value::from("requeued"), &Value::from("1")));
    let looked = temp.run(&["take", "STORE", "--sources", "none"]);
    assert_code(&looked, 0);
    assert!(stderr(&looked).contains("no verdict given: the event is ready again after this process"));

    let busy = temp.run(&["run", "STORE", "close", "1"]);
    assert_code(&busy, 5);
    assert_eq!(temp.json(&["run", "STORE", "stop", "1"], 0)[0]["state"], "stopped");
    assert_eq!(temp.json(&["take", "STORE", "-n", "10", "--reject"], 0).len(), 3);
    assert_code(&temp.run(&["take", "STORE"]), 1);
    assert_eq!(temp.json(&["event", "STORE", "1/2", "--release"], 0)[0]["released"], true);
    assert_code(&temp.run(&["event", "STORE", "1/2", "--release"]), 1);
    let closed = &temp.json(&["run", "STORE", "close", "1"], 0)[0];
    assert_eq!((&closed["state"], &closed["balanced"]), (&Value::from("closed"), &Value::from(true)));
    assert_eq!(
        (&closed["terms"]["rejected"]["events"], &closed["terms"]["released"]["events"]),
        (&3.into(), &1.into())
    );
    assert_code(&temp.run(&["put", "STORE", "1/9/0", "x"]), 9);

    let ledger = temp.run(&["ledger", "STORE", "1"]);
    assert_code(&ledger, 0);
    assert!(stdout(&ledger).starts_with("run 1 · closed") && stdout(&ledger).contains("balanced: both sums are exact"));
    let absent = temp.run(&["ledger", "STORE", "77"]);
    assert_code(&absent, 1);
    assert!(stderr(&absent).contains("no run 77"));
}

#[test]
fn runs_open_list_and_watch() {
    let temp = Temp::with_store();
    assert_code(&temp.run(&["run", "STORE", "list"]), 0);
    assert_code(&temp.run(&["run", "STORE", "open", "7", "--sources", "1,2", "--within", "1h"]), 0);
    assert_code(&temp.run(&["put", "STORE", "7/1/1", "x"]), 0);
    let event = stdout(&temp.run(&["event", "STORE", "7/1"]));
    assert!(event.contains("source 2            missing"), "{event}");
    assert_code(&temp.run(&["run", "STORE", "open", "8", "--seal"]), 0);
    assert_code(&temp.run(&["run", "STORE", "open", "9", "--count", "2"]), 0);
    let listed = temp.json(&["run", "STORE", "list"], 0);
    assert_eq!(listed[0].as_array().map(Vec::len), Some(3));
    let watched = temp.json(&["run", "STORE", "watch", "7", "--for", "10ms"], 0);
    assert_eq!(watched[0]["run"], 7);
    for missing in ["stop", "close", "watch"] {
        let refused = temp.run(&["run", "STORE", missing, "70"]);
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains("no run 70"), "{}", stderr(&refused));
    }
}

#[test]
fn runs_pause_resume_and_close_with_a_summary() {
    let temp = Temp::with_stages();
    let config = b"sources = [\"0..1\"]\ncomplete_within_ms = 5000\nstop_grace_ms = 100\nauto_mask_after = 9\n";
    let file = write(&temp.root.join("run.toml"), config);
    let open = [
        "run",
        "STORE",
        "open",
        "7",
        "--config",
        &file,
        "--class",
        "calib=#2",
        "--grace",
        "0ms",
        "--prescale",
        "mu=20",
        "--stage",
        "final",
    ];
    assert_code(&temp.run(&open), 0);
    assert_code(&temp.run(&open), 0);
    let other = temp.run(&["run", "STORE", "open", "7", "--config", &file]);
    assert_code(&other, 3);
    assert_eq!(temp.json(&["run", "STORE", "pause", "7"], 0)[0]["state"], "paused");
    let set = &temp.json(&["run", "STORE", "prescale", "7", "mu", "off", "--from", "5"], 0)[0];
    assert_eq!((&set["factor"], &set["from"]), (&"off".into(), &"7/5".into()));
    assert_code(&temp.run(&["run", "STORE", "prescale", "7", "mu", "0.5"]), 2);
    assert_code(&temp.run(&["run", "STORE", "prescale", "70", "mu", "5"]), 2);
    temp.put("7/1/0", &[]);
    assert_eq!(temp.json(&["run", "STORE", "resume", "7"], 0)[0]["state"], "open");
    temp.put("7/2/5", &["class=calib"]);
    temp.put("7/2/6", &[]);
    assert_eq!(temp.json(&["event", "STORE", "7/2"], 0)[0]["state"], "ready");
    assert_code(&temp.run(&["run", "STORE", "stop", "7"]), 0);
    assert_eq!(temp.json(&["take", "STORE", "--stage", "final", "-n", "9", "--reject"], 0).len(), 2);
    let closed = &temp.json(&["run", "STORE", "close", "7"], 0)[0];
    assert_eq!((&closed["complete"], &closed["incomplete"]), (&1.into(), &1.into()));
    assert!(closed["summary"]["config"].as_str().unwrap().contains("auto_mask_after = 9"), "{closed}");
    let written = std::fs::read(closed["file"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), closed["summary"]);
    let prescales = &closed["summary"]["prescales"];
    assert_eq!((&prescales[0]["factor"], &prescales[1]["factor"]), (&20.0.into(), &"off".into()));
    let (ran, dead) = (&closed["summary"]["ran_ns"], &closed["summary"]["dead_time"]);
    assert!(ran.as_u64() > Some(0) && dead.as_array().is_some_and(Vec::is_empty), "{closed}");
    let text = stdout(&temp.run(&["run", "STORE", "summary", "7"]));
    assert!(text.contains("\nopen for ") && text.contains(" s, dead time 0.0 s (0.00 %)\n"), "{text}");
    assert!(
        text.contains("prescale: mu 20 from now on by ") && text.contains("prescale: mu off from 7/5 by "),
        "{text}"
    );
    let text = stdout(&temp.run(&["ledger", "STORE", "7"]));
    assert!(text.contains("events: 2 known = 1 complete + 1 incomplete"), "{text}");
    assert_code(&temp.run(&["run", "STORE", "pause", "7"]), 9);
}

#[test]
fn two_stages_streams_and_results() {
    let temp = Temp::with_stages();
    for event in 1..=3 {
        for source in 0..4 {
            let lumi = format!("lumi={event}");
            temp.put(
                &format!("1/{event}/{source}"),
                if source == 0 { &[] } else { std::slice::from_ref(&lumi) }
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .as_slice(),
            );
        }
    }
    assert_code(&temp.run(&["take", "STORE", "--stage", "final"]), 1);
    let passed = &temp.json(&["take", "STORE", "--event", "1/1", "--pass", "final"], 0)[0];
    assert_eq!((&passed["verdict"], &passed["stage"]), (&"passed".into(), &"fast".into()));
    let fast = &temp.json(&["take", "STORE", "--stage", "fast", "--sources", "few", "--reject"], 0)[0];
    assert_eq!(fast["read"].as_array().map(Vec::len), Some(2));
    let file = write(&temp.root.join("tracks.bin"), b"tracks");
    let result = format!("1000={file}");
    let accept = ["--result", &result, "--accept", "physics", "--accept", "calib:few"];
    let accepted = temp.json(&[&["take", "STORE", "--stage", "final"], &accept[..]].concat(), 0);
    assert_eq!((&accepted[0]["event"], &accepted[0]["stage"]), (&"1/1".into(), &"final".into()));
    assert_eq!(temp.run(&["get", "STORE", "1/1/1000"]).stdout, b"tracks");
    let event = stdout(&temp.run(&["event", "STORE", "1/1"]));
    assert!(event.starts_with("event 1/1 · accepted · stage final into "), "{event}");
    assert!(event.contains("physics") && event.contains("calib"), "{event}");

    let streams = &temp.json(&["ledger", "STORE", "1", "--by", "stream"], 0)[0];
    let row = |name: &str| streams["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!((&row("physics")["live"]["fragments"], &row("calib")["live"]["fragments"]), (&5.into(), &3.into()));
    let lumi = stdout(&temp.run(&["ledger", "STORE", "1", "--by", "lumi"]));
    assert!(lumi.starts_with("run 1 · by lumi\n") && lumi.contains("complete"), "{lumi}");
    let sources = &temp.json(&["ledger", "STORE", "1", "--by", "source"], 0)[0];
    let fragments = |term: &str| {
        sources["rows"].as_array().unwrap().iter().filter_map(|row| row[term]["fragments"].as_u64()).sum::<u64>()
    };
    assert_eq!(fragments("live") + fragments("ended"), 13);
    let wrong = temp.run(&["ledger", "STORE", "1", "--by", "colour"]);
    assert_code(&wrong, 2);
    assert!(stderr(&wrong).contains("stream, source or lumi"), "{}", stderr(&wrong));
}

#[test]
fn announced_events_wait_for_their_own_sources() {
    let temp = Temp::with_stages();
    let announced = &temp.json(&["event", "STORE", "1/5", "--announce", "2,8..9", "--attribute", "lumi=4"], 0)[0];
    assert_eq!((&announced["state"], &announced["sources"]["9"]), (&"open".into(), &"missing".into()));
    assert_code(&temp.run(&["event", "STORE", "1/6", "--announce", "--attribute", "class=calib"]), 0);
    temp.put("1/6/2", &[]);
    assert_eq!(temp.json(&["event", "STORE", "1/6"], 0)[0]["state"], "ready");
    for source in [2, 8, 9] {
        temp.put(&format!("1/5/{source}"), &[]);
    }
    assert_eq!(temp.json(&["event", "STORE", "1/5"], 0)[0]["state"], "ready");
    assert_code(&temp.run(&["take", "STORE", "--event", "1/5", "--reject"]), 0);
    assert_code(&temp.run(&["event", "STORE", "1/5", "--announce"]), 1);
    let other = temp.run(&["event", "STORE", "1/7", "--announce", "nobody"]);
    assert_code(&other, 2);
    assert!(stderr(&other).contains("its groups: few"), "{}", stderr(&other));
}

#[test]
fn policies_of_a_closed_store_change_and_nothing_else() {
    let temp = Temp::with_stages();
    temp.put("1/1/0", &[]);
    let shown = temp.run(&["keyspace", "show", "STORE"]);
    assert_code(&shown, 0);
    let file = temp.root.join("next.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write(&stdout(&shown));
    assert_eq!(stdout(&temp.run(&["keyspace", "set", "STORE", "next.toml"])), "nothing differs\n");
    write(&stdout(&shown).replace("deliveries_max = 1", "deliveries_max = 5"));
    let answer = temp.json(&["keyspace", "set", "STORE", "next.toml"], 0).remove(0);
    assert_eq!(answer, serde_json::json!({ "changed": ["deliveries_max"] }));
    assert!(stdout(&temp.run(&["keyspace", "show", "STORE"])).contains("deliveries_max = 5"));
    assert_eq!(temp.run(&["get", "STORE", "1/1/0"]).stdout, b"payload");
    write(&stdout(&shown).replace("ledger_by = \"lumi\"", ""));
    let refused = temp.run(&["keyspace", "set", "STORE", "next.toml"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("(ledger_by)"), "{}", stderr(&refused));
}

#[test]
fn masks_sources_and_why() {
    let temp = Temp::with_stages();
    for source in [0, 1, 3] {
        temp.put(&format!("1/1/{source}"), &[]);
    }
    let missing = temp.json(&["why", "STORE", "1/1/2"], 1);
    assert_eq!(missing[0]["answer"], "missing");
    assert_eq!(temp.json(&["why", "STORE", "1/1/0"], 0)[0]["answer"], "present");
    assert_eq!(temp.json(&["why", "STORE", "9/1/0"], 1)[0]["answer"], "run-unknown");
    assert_eq!(temp.json(&["mask", "STORE", "1", "2", "--from", "5"], 0)[0]["from"], "1/5");
    assert_eq!(temp.json(&["event", "STORE", "1/1"], 0)[0]["state"], "open");
    let masked = temp.run(&["mask", "STORE", "1", "2"]);
    assert_code(&masked, 0);
    assert!(stdout(&masked).contains("source 2 masked; masked now: 2"), "{}", stdout(&masked));
    assert_eq!(temp.json(&["event", "STORE", "1/1"], 0)[0]["state"], "ready");
    let why = temp.run(&["why", "STORE", "1/1/2"]);
    assert!(stdout(&why).starts_with("masked: event 1/1 is ready"), "{}", stdout(&why));
    assert_code(&temp.run(&["take", "STORE", "--event", "1/1", "--reject"]), 0);
    assert_code(&temp.run(&["put", "STORE", "1/1/2", "late"]), 1);
    let late = &temp.json(&["why", "STORE", "1/1/2"], 1)[0];
    assert_eq!(late["answer"], "rejected");
    assert!(late["incidents"][0].as_str().unwrap().contains("late"), "{late}");

    let table = stdout(&temp.run(&["sources", "STORE", "1"]));
    assert!(table.contains("by hand") && table.ends_with("4 sources\n"), "{table}");
    let wrong = &temp.json(&["sources", "STORE", "1", "--wrong"], 0)[0];
    assert_eq!((wrong.as_array().map(Vec::len), &wrong[0]["late"]), (Some(1), &1.into()));
    assert_eq!(temp.json(&["unmask", "STORE", "1", "2"], 0)[0]["masked"], Value::from(Vec::<Value>::new()));
    assert_code(&temp.run(&["sources", "STORE", "70"]), 1);
    assert_code(&temp.run(&["mask", "STORE", "70", "2"]), 2);

    // Who masked what when.
    let masks = &temp.json(&["run", "STORE", "summary", "1"], 0)[0]["summary"]["masks"];
    let seen: Vec<_> = masks.as_array().unwrap().iter().map(|mask| (&mask["masked"], &mask["from"])).collect();
    let (yes, no, all) = (Value::from(true), Value::from(false), Value::Null);
    assert_eq!(seen, [(&yes, &"1/5".into()), (&yes, &all), (&no, &all)]);
    let by = masks[0]["by"].as_str().unwrap();
    assert!(!by.is_empty() && masks[0]["at_ms"].as_u64() >= Some(1_700_000_000_000), "{masks}");
    let text = stdout(&temp.run(&["run", "STORE", "summary", "1"]));
    assert!(text.contains(&format!("mask: source 2 unmasked from now on by {by} at 2")), "{text}");
}

#[test]
fn holds_keep_events_back() {
    let temp = Temp::with_stages();
    for (event, lumi) in [(1, "lumi=4"), (2, "lumi=5")] {
        for source in 0..4 {
            temp.put(&format!("1/{event}/{source}"), &[lumi]);
        }
    }
    assert!(stdout(&temp.run(&["hold", "STORE"])).starts_with("nothing is held"));
    let id = temp.json(&["hold", "STORE", "--run", "1", "lumi=5..9"], 0)[0]["id"].to_string();
    let taken = temp.json(&["take", "STORE", "-n", "5", "--reject"], 0);
    assert_eq!((taken.len(), &taken[0]["event"]), (1, &"1/1".into()));
    let listed = stdout(&temp.run(&["hold", "STORE"]));
    assert!(listed.starts_with(&format!("hold {id}: run 1, lumi=5..9")), "{listed}");
    assert_eq!(temp.json(&["hold", "STORE", "--release", &id], 0)[0]["released"], true);
    assert_code(&temp.run(&["hold", "STORE", "--release", &id]), 1);
    assert_eq!(temp.json(&["take", "STORE", "--reject"], 0)[0]["event"], "1/2");
    assert_code(&temp.run(&["hold", "STORE", "mass=1"]), 2);
}

#[test]
fn the_debug_stream_is_looked_at_replayed_and_released() {
    let temp = Temp::with_stages();
    for source in 0..4 {
        temp.put(&format!("1/1/{source}"), &[]);
    }
    assert_code(&temp.run(&["put", "STORE", "1/1/0", "other bytes"]), 3);
    assert_code(&temp.run(&["take", "STORE"]), 0);
    let listed = &temp.json(&["debug", "STORE", "list"], 0)[0];
    let event = &listed["events"][0];
    assert_eq!((&event["event"], &event["stage"]), (&"1/1".into(), &"fast".into()));
    assert!(listed["alarm"].is_string(), "{listed}");
    let shown = stdout(&temp.run(&["debug", "STORE", "show", "1/1"]));
    assert!(shown.contains("event 1/1 · debug"), "{shown}");
    assert_code(&temp.run(&["debug", "STORE", "replay", "1/1"]), 0);
    assert_code(&temp.run(&["debug", "STORE", "replay", "1/1"]), 1);
    assert_code(&temp.run(&["take", "STORE"]), 0);
    assert_code(&temp.run(&["debug", "STORE", "release", "1/1"]), 0);
    assert_code(&temp.run(&["debug", "STORE", "release", "1/1"]), 1);
    assert_code(&temp.run(&["debug", "STORE", "show", "1/1"]), 1);
}

#[test]
fn watching_shows_events_as_they_stand() {
    let temp = Temp::with_stages();
    temp.put("1/1/0", &["lumi=7"]);
    let watched = temp.run(&["watch", "STORE", "1", "--count", "2", "--rate", "100"]);
    assert_code(&watched, 0);
    let text = stdout(&watched);
    let shown = |name: &str, value: &str| {
        text.lines().filter(|line| line.trim().starts_with(name) && line.trim().ends_with(value)).count()
    };
    for (name, value) in [("event ", " 1/1"), ("state", "open"), ("stage", "fast"), ("lumi", "7"), ("missing", "3")] {
        assert_eq!(shown(name, value), 2, "{name} {value}\n{text}");
    }
    assert!(text.contains("70 61 79 6c 6f 61 64"), "{text}");
    assert_eq!(temp.json(&["watch", "STORE", "1", "--count", "1"], 0)[0]["fragments"][0]["bytes"], 7);
    assert_code(&temp.run(&["watch", "STORE", "1", "--filter", "lumi=8", "--for", "20ms"]), 1);
    assert_code(&temp.run(&["watch", "STORE", "1", "--decided", "--for", "20ms"]), 1);
    assert_code(&temp.run(&["watch", "STORE", "70"]), 1);
    assert_code(&temp.run(&["watch", "STORE", "1", "--rate", "0"]), 2);
}
