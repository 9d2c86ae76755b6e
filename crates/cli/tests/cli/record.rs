//! `forebay record` and `forebay play` as people call them.

use super::{Temp, assert_code, stderr, stdout};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Records two links as fast as they go into `rec`, for a moment. Few bytes, so that it fits wherever tests run.
fn recorded() -> Temp {
    let temp = Temp::new();
    let output = temp.run(&["record", "--warm", "rec:256M", "--fast", "--seconds", "0.05"]);
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("\ncomplete: every frame is recorded\n"), "{text}");
    assert!(text.contains("direct") || text.contains("buffered"), "{text}");
    temp
}

#[test]
fn what_is_recorded_plays_back_verified() {
    let temp = recorded();
    let played = temp.run(&["play", "rec", "--verify"]);
    assert_code(&played, 0);
    assert!(stdout(&played).contains("verified: every frame is right"), "{}", stdout(&played));
    let one = &temp.json(&["play", "rec", "--links", "1", "--output", "link1.bin"], 0)[0];
    let bytes = std::fs::read(temp.root.join("link1.bin")).unwrap();
    assert_eq!(one["bytes"].as_u64(), Some(bytes.len() as u64));
    assert!(one["frames"].as_u64() > Some(10) && bytes.len().is_multiple_of(7200));
    // The first ten frames by their ticks.
    let first = forebay_daq::frames::wibeth::timestamp(&bytes);
    let (from, to) = (first.to_string(), (first + 10 * 2048).to_string());
    let window = &temp.json(&["play", "rec", "--links", "0-1", "--from", &from, "--to", &to], 0)[0];
    assert_eq!((&window["frames"], &window["links"][0]["frames"]), (&Value::from(20), &Value::from(10)));
    let last = &temp.json(&["play", "rec", "--links", "0", "--last", "1ms"], 0)[0];
    assert!((30..=32).contains(&last["frames"].as_u64().unwrap()), "{last}");
}

#[test]
fn missed_frames_are_exit_code_1_and_in_the_manifest() {
    let temp = Temp::new();
    let answer = &temp.json(&["record", "--warm", "rec:8M", "--links", "1", "--seconds", "0.2"], 1)[0];
    let link = &answer["manifest"]["links"][0];
    assert_eq!(link["produced"], 6104);
    assert!(link["missed_by"]["disk-full"].as_u64() > Some(3000), "{link}");
    let file: Value =
        serde_json::from_str(&std::fs::read_to_string(temp.root.join("rec/manifest.json")).unwrap()).unwrap();
    assert_eq!((&file["links"][0], &file["format"]), (link, &Value::from("forebay-recording-manifest")));
    // It is what the containers hold.
    let played = temp.run(&["play", "rec", "--verify"]);
    assert_code(&played, 0);
    assert!(stdout(&played).contains("disk-full"), "{}", stdout(&played));
}

#[test]
fn ctrl_c_ends_a_recording_consistently() {
    let temp = Temp::new();
    let child = temp
        .command(&["record", "--warm", "rec:512M", "--links", "1", "--seconds", "1000", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !temp.root.join("rec/recording.json").exists() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success() && child.stdout.is_some());
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 130);
    let answer: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!(answer["stopped"], true);
    assert!(temp.root.join("rec/manifest.json").exists());
    assert_code(&temp.run(&["play", "rec", "--verify"]), 0);
}

#[test]
fn a_killed_recording_is_rebuilt_and_says_so() {
    let temp = Temp::new();
    let mut child = temp
        .command(&["record", "--warm", "rec:512M", "--links", "1", "--seconds", "1000"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().unwrap();
    child.wait().unwrap();
    let played = temp.run(&["play", "rec", "--verify"]);
    assert_code(&played, 0);
    let text = stdout(&played);
    assert!(text.contains("rebuilt from the containers") && text.contains("link 0: unknown from tick"), "{text}");
    assert_eq!(temp.json(&["play", "rec"], 0)[0]["rebuilt"], true);
}

#[test]
fn wrong_calls_are_named() {
    let temp = recorded();
    let refused = |arguments: &[&str], code: i32, message: &str| {
        let output = temp.run(arguments);
        assert_code(&output, code);
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
    };
    refused(&["record"], 2, "--warm");
    refused(&["record", "--warm", "rec"], 2, "holds a recording already");
    refused(&["record", "--warm", "new:8Q"], 2, "not a size");
    refused(&["record", "--warm", "new:8M", "--links", "0"], 2, "links");
    refused(&["record", "--warm", "new:8M", "--format", "tde"], 2, "expected wibeth or wib1");
    refused(&["record", "--warm", "new:8M", "--input", "absent.bin"], 2, "absent.bin");
    refused(&["record", "--warm", "new", "--seconds", "9999999", "--links", "192"], 4, "needed for");
    refused(&["play", "nowhere"], 2, "no recording there");
    refused(&["play", "rec", "--links", "7"], 2, "no link 7");
    refused(&["play", "rec", "--links", "x"], 2, "0-3");
    refused(&["play", "rec", "--from", "1", "--last", "1s"], 2, "cannot be used with");
}

#[test]
fn rotten_bytes_are_exit_code_1() {
    let temp = recorded();
    let container = temp.root.join("rec/container-000000.fb");
    let mut bytes = std::fs::read(&container).unwrap();
    // Between images there are zeros that nothing needs: a byte among others that are not zero is one of a frame.
    let of_frame = |at: &usize| bytes[at - 32..at + 32].iter().all(|byte| *byte != 0);
    // Behind the header and some frames; how many there are depends on the machine.
    let inside = (64 << 10..bytes.len() - 32).find(of_frame).unwrap();
    bytes[inside] ^= 4;
    std::fs::write(&container, bytes).unwrap();
    let played = temp.run(&["play", "rec", "--verify"]);
    assert_code(&played, 1);
    assert!(
        stdout(&played).contains("NOT VERIFIED\n  wrong frames: 1, differences from the manifest: 0\n"),
        "{}",
        stdout(&played)
    );
}

#[test]
fn a_trigger_records_what_was_and_what_comes() {
    let temp = Temp::new();
    let call = ["record", "--warm", "rec", "--last", "200ms", "--next", "200ms", "--rate-scale", "0.01"];
    let output = temp.run(&call);
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("trigger tick ") && text.contains(" 4.39 MB/s"), "{text}");
    assert!(text.contains("\ncomplete: every frame is recorded\n"), "{text}");
    let played = temp.run(&["play", "rec", "--verify"]);
    assert_code(&played, 0);
    assert!(stdout(&played).contains("verified: every frame is right"), "{}", stdout(&played));
    let early = ["--after", "50ms", "--ring", "ring"];
    let output = temp.run(&[&["record", "--warm", "early"], &call[3..], &early[..]].concat());
    assert_code(&output, 0);
    assert!(stdout(&output).contains("ring-before"), "{}", stdout(&output));
    assert!(temp.root.join("ring").is_dir());
    for (wrong, message) in [
        (&["--next", "1s"][..], "--last"),
        (&["--last", "1s", "--fast"], "cannot be used with"),
        (&["--last", "1s", "--rate-scale", "0"], "rate scale"),
    ] {
        let output = temp.run(&[&["record", "--warm", "wrong"], wrong].concat());
        assert_code(&output, 2);
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn a_triggered_recording_that_is_killed_plays_what_was_durable() {
    let temp = Temp::new();
    // On a busy machine a life is longer, until enough of it was durable.
    for (life, seconds) in [3.5, 10.0, 30.0].into_iter().enumerate() {
        let (warm, ring) = (format!("rec{life}"), format!("ring{life}"));
        let mut child = temp
            .command(&["record", "--warm", &warm, "--last", "300ms", "--next", "60s", "--rate-scale", "0.01"])
            .args(["--ring", &ring])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        child.kill().unwrap();
        child.wait().unwrap();
        let played = temp.run(&["play", &warm, "--verify"]);
        if played.status.code() == Some(0) && temp.json(&["play", &warm], 0)[0]["frames"].as_u64() > Some(600) {
            assert!(stdout(&played).contains("rebuilt from the containers"), "{}", stdout(&played));
            return;
        }
    }
    panic!("no life of 30 s left 600 frames");
}
