//! `forebay plan` from the command line.

use super::*;

const ATLAS: [&str; 19] = [
    "plan",
    "--profile",
    "atlas",
    "--event-rate",
    "2000",
    "--accept",
    "1.171875%",
    "--decision-latency",
    "3s",
    "--hot",
    "64G",
    "--warm",
    "2T",
    "--warm",
    "2T",
    "--device-write-rate",
    "2.5G",
    "--archive-rate",
    "240M",
];

#[test]
fn a_plan_for_people_and_for_programs() {
    let temp = Temp::new();
    let page = temp.run(&ATLAS);
    assert_code(&page, 0);
    let text = stdout(&page);
    for part in [
        "500 sources × 10240 B = 4.88 MiB per event, 2.00 k events/s, 1.17 % accepted",
        "10.2 GB/s",
        "120 MB/s",
        "6.01 s (12023 events",
        "4094 containers",
        "8.98 h",
        "the devices are too slow to take everything",
        "2.40 (205.",
        "what binds, tightest first",
        "→ ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
    let answer = &temp.json(&ATLAS, 0)[0];
    assert_eq!(answer["hot"]["events"], 12_023);
    assert_eq!(answer["warm"]["containers"], 4094);
    assert_eq!(answer["setup"]["warm_bytes"], serde_json::json!([2_u64 << 40, 2_u64 << 40]));
    assert_eq!(answer["bounds"][0]["what"], "warm");
    assert_eq!(answer["warm"]["endurance_margin"], Value::Null);
    assert!(answer["advice"].as_array().is_some_and(|lines| !lines.is_empty()));
}

#[test]
fn options_win_over_the_profile_and_a_hot_level_alone_is_a_plan() {
    let temp = Temp::new();
    let command = ["plan", "--profile", "atlas", "--sources", "10", "--event-rate", "100", "--hot", "1G"];
    let answer = &temp.json(&command, 0)[0];
    assert_eq!((&answer["event_bytes"], &answer["warm"]), (&102_400.into(), &Value::Null));
    assert!(stdout(&temp.run(&command)).contains("warm   none"));
}

#[test]
fn what_cannot_be_planned_is_named() {
    let temp = Temp::new();
    let base = ["plan", "--profile", "atlas", "--event-rate", "2000", "--hot", "64G"];
    let cases: [(&[&str], &str); 11] = [
        (&["--accept", "150%"], "`150%` is not a share"),
        (&["--duty", "0"], "duty: "),
        (&["--warm", "1G"], "warm device 0 of 1073741824 bytes has no room"),
        (&["--warm", "many"], "`many` is not a size"),
        (&["--archive-rate", "1G"], "--warm <SIZE>"),
        (&["--warm", "1T", "--endurance", "0"], "endurance"),
        (&["--warm", "1T", "--endurance", "nan"], "endurance"),
        (&["--decision-latency", "soon"], "`soon` is not a duration"),
        (&["--decision-latency", "0s"], "decision latency"),
        (&["--filter-rate", "0"], "filter rate"),
        (&["--container-bytes", "8G", "--warm", "1T"], "container bytes"),
    ];
    for (more, expected) in cases {
        let refused = temp.run(&[&base[..], more].concat());
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains(expected), "{more:?}: {}", stderr(&refused));
    }
    let small = temp.run(&["plan", "--profile", "alice-pbpb", "--event-rate", "1", "--hot", "64M"]);
    assert_code(&small, 2);
    assert!(stderr(&small).contains("does not hold one event"));
    assert_code(&temp.run(&["plan", "--event-rate", "1", "--hot", "64M"]), 2);
    assert_code(&temp.run(&["plan", "--profile", "atlas", "--hot", "64M"]), 2);
    assert_code(&temp.run(&["plan", "--profile", "altas", "--event-rate", "1", "--hot", "64M"]), 2);
}
