//! `forebay catalog` and `forebay dataset lumis`.

use super::*;
use forebay_dataset::{Array, Product, Scalar, Type, WriteOptions, Writer};
use serde_json::json;

const ACTIONS: [&str; 7] = ["publish", "ls", "find", "show", "withdraw", "changes", "verify"];

/// 100 events of two runs, with lumi sections.
fn dataset(temp: &Temp, name: &str) -> String {
    let url = temp.root.join(name).to_str().unwrap().to_owned();
    let column = |name: &str, values: Vec<u32>| {
        (Product::new(name, Type::parse("uint32").unwrap()), Array::values(Scalar::U32, values))
    };
    let columns = [
        column("run", (0..100).map(|event| 7 + event / 50).collect()),
        column("luminosityBlock", (0..100).map(|event| 1 + event / 10).collect()),
        column("nMuon", (0..100_u32).map(|event| event.wrapping_mul(2_654_435_761) >> 28).collect()),
    ];
    let mut writer = Writer::create(&url, WriteOptions::default()).unwrap();
    writer.push("Events", &columns).unwrap();
    writer.fact("sources", json!([{ "name": "/store/a.root", "uuid": "8f6c-11" }]));
    writer.commit("imported").unwrap();
    url
}

/// The arguments of a command of a catalogue.
fn with<'a>(place: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["catalog", arguments[0], place], &arguments[1..]].concat()
}

#[test]
fn every_command_teaches() {
    for action in ACTIONS {
        let output = forebay().args(["catalog", action, "--help"]).output().unwrap();
        assert_code(&output, 0);
        let help = stdout(&output);
        assert!(
            help.contains("Example") && help.contains(&format!("\n  forebay catalog {action}")),
            "{action}\n{help}"
        );
        assert!(help.contains("--json"), "{action}\n{help}");
    }
}

#[test]
fn a_dataset_is_published_found_shown_and_withdrawn() {
    let temp = Temp::new();
    let url = dataset(&temp, "ds");
    let place = temp.root.join("catalogue").to_str().unwrap().to_owned();
    assert_code(&temp.run(&with(&place, &["ls"])), 2);
    let software = ["publish", "user.ann:z", url.as_str(), "--software", "CMSSW_14", "--tag", "quality=good"];
    let published = &temp.json(&with(&place, &software), 0)[0];
    assert_eq!(
        (&published["change"], &published["is_new"], &published["lumis"]),
        (&json!(0), &json!(true), &json!(10))
    );
    let again = stdout(&temp.run(&with(&place, &software)));
    assert!(again.contains("user.ann:z @0  100 events") && again.contains("published already, as change 0"), "{again}");
    let other = dataset(&temp, "other");
    assert_code(&temp.run(&with(&place, &["publish", "user.ann:z", &other])), 3);
    assert_code(&temp.run(&with(&place, &["publish", "z", &other])), 2);

    assert!(stdout(&temp.run(&with(&place, &["ls"]))).contains(&url));
    assert_eq!(temp.json(&with(&place, &["ls", "user.*"]), 0)[0]["url"], json!(url));
    for (arguments, code) in [
        (&["find", "--column", "nMu*", "--tag", "software=CMSSW_*"][..], 0),
        (&["find", "--file", "a.root"], 0),
        (&["find", "--run", "8", "--lumi", "6"], 0),
        (&["find", "--run", "8", "--lumi", "5"], 1),
        (&["find", "--lumi", "5"], 2),
        (&["find", "--tag", "quality"], 2),
        (&["find", "--column", "Jet_pt"], 1),
        (&["ls", "cms:*"], 1),
        (&["show", "user.ann:y"], 1),
        (&["verify"], 0),
    ] {
        assert_code(&temp.run(&with(&place, arguments)), code);
    }
    let show = ["show", "user.ann:z", "--columns", "--files", "--lumis", "--checksums"];
    let shown = &temp.json(&with(&place, &show), 0)[0];
    assert_eq!((&shown["tags"]["quality"], &shown["note"]), (&json!("good"), &json!("imported")));
    assert_eq!(shown["lumi_sections"], json!({ "7": [[1, 5]], "8": [[6, 10]] }));
    assert_eq!((&shown["columns"][0]["names"][2], &shown["files"][0]["guid"]), (&json!("nMuon"), &json!("8f6c-11")));
    assert_eq!(shown["checksums"][0]["name"], "root");
    let text = stdout(&temp.run(&with(&place, &show)));
    assert!(
        text.contains("Events.nMuon  uint32")
            && text.contains("adler32:")
            && text.contains("runs: 7 to 8, 10 lumi sections"),
        "{text}"
    );

    let withdrawn = temp.json(&with(&place, &["withdraw", "user.ann:z", "--version", "0", "--why", "\u{1b}[2J"]), 0);
    assert_eq!(withdrawn, [json!({ "change": 1 })]);
    assert_code(&temp.run(&with(&place, &["withdraw", "user.ann:z", "--version", "0"])), 1);
    assert_code(&temp.run(&with(&place, &["ls"])), 1);
    let feed = temp.json(&with(&place, &["changes"]), 0);
    assert_eq!((&feed[0]["action"]["publish"]["url"], &feed[1]["number"]), (&json!(url), &json!(1)));
    assert_eq!(temp.json(&with(&place, &["changes", "--since", "1"]), 0).len(), 1);
    let text = stdout(&temp.run(&with(&place, &["changes"])));
    assert!(text.contains("withdraw  user.ann:z @0") && !text.contains('\u{1b}'), "{text}");
    std::fs::write(temp.root.join("catalogue/changes/000000000000"), b"damaged").unwrap();
    let damaged = temp.run(&with(&place, &["ls"]));
    assert_code(&damaged, 8);
    assert!(stderr(&damaged).contains("changes/000000000000"), "{}", stderr(&damaged));
    assert_code(&temp.run(&with(&place, &["verify"])), 1);
}

#[test]
fn lumi_sections_are_listed_and_selected() {
    let temp = Temp::new();
    let url = dataset(&temp, "ds");
    let listed = &temp.json(&["dataset", "lumis", &url], 0)[0];
    assert_eq!((&listed["lumis"], &listed["events"]), (&json!({ "7": [[1, 5]], "8": [[6, 10]] }), &json!(100)));
    assert!(stdout(&temp.run(&["dataset", "lumis", &url])).contains("run 8: 50 events, lumi sections 6-10"));
    let golden = temp.root.join("golden.json").to_str().unwrap().to_owned();
    std::fs::write(&golden, r#"{"7": [[2, 3]], "8": [[10, 99]]}"#).unwrap();
    let selected = &temp.json(&["dataset", "lumis", &url, "--select", &golden], 0)[0];
    assert_eq!((&selected["ranges"], &selected["events"]), (&json!([[10, 30], [90, 100]]), &json!(30)));
    std::fs::write(&golden, r#"{"9": [[2, 3]]}"#).unwrap();
    assert_code(&temp.run(&["dataset", "lumis", &url, "--select", &golden]), 1);
    std::fs::write(&golden, "[]").unwrap();
    assert_code(&temp.run(&["dataset", "lumis", &url, "--select", &golden]), 2);
}
