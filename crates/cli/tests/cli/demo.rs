//! The demo and the MiniDAQ, from the command line.

use super::*;

#[test]
fn demo_balances_and_ends_in_order() {
    let temp = Temp::new();
    let small = ["--sources", "8", "--fragment-bytes", "7200", "--hot-bytes", "64M", "--events-per-second", "200"];
    let summary = temp.json(&[&["demo", "--seconds", "0.5"], &small[..]].concat(), 0);
    assert_eq!((summary.len(), &summary[0]["balanced"]), (1, &Value::from(true)));
    let warm = &summary[0]["warm"];
    assert_eq!(warm["devices"].as_array().map(Vec::len), Some(1), "{warm}");
    assert!(warm["demoted_events"].as_u64() > Some(0), "{warm}");

    let mut child = temp
        .command(&[&["demo", "--seconds", "3600"], &small[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = String::new();
    // The rest of stderr is dropped with the reader: lines that cannot be shown stop nothing.
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut progress).unwrap();
    assert!(!progress.trim().is_empty());
    send_interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 130);
    assert!(!stdout(&output).is_empty(), "the summary is shown");
}

#[test]
fn the_warm_level_of_a_demo_lies_where_it_is_wanted() {
    let temp = Temp::new();
    let small = ["demo", "--seconds", "0.5", "--sources", "8", "--hot-bytes", "64M", "--events-per-second", "200"];
    let two = [&small[..], &["--warm", "one:32M", "--warm", "two:32M", "--accept", "0.5"]].concat();
    let summary = &temp.json(&two, 0)[0];
    assert_eq!(summary["warm"]["devices"].as_array().map(Vec::len), Some(2), "{summary}");
    for dir in ["one", "two"] {
        assert_eq!(std::fs::read_dir(temp.root.join(dir)).unwrap().count(), 0, "{dir} is as it was");
    }
    let text = stdout(&temp.run(&[&two[..], &["--dir", "STORE"]].concat()));
    assert!(text.contains("\nwarm\n") && text.contains("\n  devices\n"), "{text}");
    assert!(text.contains("\n  demoted events ") && text.contains("\nbalanced: "), "{text}");
    // The store is kept, with its devices: all that was accepted has been released.
    let shown = &temp.json(&["containers", "STORE"], 0)[0];
    let live = |container: &Value| container["live_fragments"].as_u64().unwrap();
    assert_eq!(shown["containers"].as_array().unwrap().iter().map(live).sum::<u64>(), 0, "{shown}");
    assert_code(&temp.run(&["check", "STORE", "--deep"]), 0);
    let none = &temp.json(&[&small[..], &["--warm-bytes", "0"]].concat(), 0)[0];
    assert_eq!((&none["warm"], &none["balanced"]), (&Value::Null, &Value::from(true)));
    for (refused, words) in [
        (&["--warm-bytes", "3M"][..], "too small"),
        (&["--warm", "one", "--warm-bytes", "1G"], "cannot be used with"),
        (&["--profile", "dune", "--warm", "one"], "--warm"),
    ] {
        let base = if refused[0] == "--profile" { &["demo"][..] } else { &small[..] };
        let output = temp.run(&[base, refused].concat());
        assert_code(&output, 2);
        assert!(stderr(&output).contains(words), "{refused:?}: {}", stderr(&output));
    }
}

#[test]
fn a_beam_with_gaps_needs_a_farm_for_the_mean() {
    let temp = Temp::new();
    let small = ["--sources", "4", "--fragment-bytes", "2K", "--hot-bytes", "64M", "--seconds", "1.6"];
    let beam = [&["demo", "--duty", "50%/500ms", "--events-per-second", "400"], &small[..]].concat();
    let summary = &temp.json(&beam, 0)[0];
    assert_eq!((&summary["balanced"], &summary["dead_time_s"]), (&true.into(), &0.0.into()));
    assert!(summary["warm"]["demoted_events"].as_u64() > Some(0), "also on two levels: {}", summary["warm"]);
    let gaps = summary["duty"]["gaps"].as_array().unwrap();
    let allowed = summary["duty"]["left_allowed"].as_u64();
    assert!(gaps.len() == 3 && gaps.iter().all(|gap| gap["left_events"].as_u64() <= allowed), "{gaps:?}");
    assert_eq!(summary["duty"]["farm_events_per_second"].as_f64().map(f64::round), Some(230.0));
    let slow = temp.run(&[&beam[..], &["--farm-events-per-second", "60"]].concat());
    assert_code(&slow, 1);
    assert!(stdout(&slow).contains("NOT BALANCED\n  the gap until 0.5 s left "), "{}", stdout(&slow));
    for (duty, words) in [
        ("half", "not a share"),
        ("150%", "not a share"),
        ("50%/soon", "not a duration"),
        ("100%", "0.001 to 0.999"),
        ("50%/10s", "at least one period"),
    ] {
        let refused = temp.run(&[&["demo", "--duty", duty], &small[..]].concat());
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains(words), "{duty}: {}", stderr(&refused));
    }
    let dune = temp.run(&["demo", "--profile", "dune", "--duty", "50%"]);
    assert!(stderr(&dune).contains("--duty"), "{}", stderr(&dune));
    assert_code(&dune, 2);
}

#[test]
fn minidaq_balances_and_ends_in_order() {
    let temp = Temp::new();
    let small = ["--profile", "dune", "--links", "2", "--rate-scale", "0.1", "--history", "200ms"];
    let summary = temp.json(&[&["demo", "--seconds", "0.5"], &small[..]].concat(), 0);
    assert_eq!((summary.len(), &summary[0]["balanced"]), (1, &Value::from(true)));
    assert_eq!(summary[0]["ring"]["balanced"], Value::from(true));
    assert_eq!(summary[0]["links"].as_array().map(Vec::len), Some(2));
    assert!(summary[0]["records"]["announced"].as_u64().is_some_and(|records| records > 0));

    let mut child = temp
        .command(&[&["demo", "--seconds", "3600"], &small[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = String::new();
    // The rest of stderr is dropped with the reader: lines that cannot be shown stop nothing.
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut progress).unwrap();
    assert!(progress.contains("in flight"), "{progress}");
    send_interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 130);
    assert!(stdout(&output).contains("balanced: every frame"), "{}", stdout(&output));
}

#[test]
fn demo_refuses_what_is_no_recording() {
    let temp = Temp::new();
    let file = write(&temp.root.join("noise.bin"), &[0x5A; 1000]);
    let output = temp.run(&["demo", "--input", &file, "--seconds", "1", "--hot-bytes", "64M"]);
    assert!(matches!(output.status.code(), Some(2..=10)), "{}", stderr(&output));
    assert!(!stderr(&output).is_empty());
}
