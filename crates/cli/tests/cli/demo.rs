//! `forebay demo` in all its forms: the accounts balance, and Ctrl-C ends it in order.

use super::{Temp, assert_code, send_interrupt, stderr, stdout, write};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn demo_balances_and_ends_in_order() {
    let temp = Temp::new();
    let small = ["--sources", "8", "--fragment-bytes", "7200", "--hot-bytes", "64M", "--events-per-second", "200"];
    let summary = temp.json(&[&["demo", "--seconds", "0.5"], &small[..]].concat(), 0);
    assert_eq!((summary.len(), &summary[0]["balanced"]), (1, &Value::from(true)));

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
fn chaos_is_explained_term_by_term() {
    let temp = Temp::new();
    let report = &temp.json(&["demo", "--chaos", "0.5", "--seed", "5"], 0)[0];
    assert_eq!((&report["balanced"], &report["seed"]), (&true.into(), &5.into()));
    let terms = report["terms"].as_array().unwrap();
    assert!(terms.iter().any(|term| term["term"] == "rejected" && term["counted"]["events"].as_u64() > Some(0)));
    assert_code(&temp.run(&["demo", "--chaos", "1", "--seconds", "1"]), 2);
}

#[test]
fn demo_refuses_what_is_no_recording() {
    let temp = Temp::new();
    let file = write(&temp.root.join("noise.bin"), &[0x5A; 1000]);
    let output = temp.run(&["demo", "--input", &file, "--seconds", "1", "--hot-bytes", "64M"]);
    assert!(matches!(output.status.code(), Some(2..=10)), "{}", stderr(&output));
    assert!(!stderr(&output).is_empty());
}
