//! Datasets in a bucket whose server does what servers do on a bad day.

use super::{Folder, assert_reads, events, small, write};
use forebay_dataset::storage::Options;
use forebay_dataset::{Dataset, Kind, ReadOptions, WriteOptions, Writer, compact, gc};
use forebay_testkit::s3::{Fault, Kind as Wrong, StandIn};
use std::time::Duration;

const URL: &str = "s3://bucket/data/set";

fn options(stand_in: &StandIn) -> Options {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "A".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "B".to_owned()),
        ("AWS_ENDPOINT_URL", stand_in.endpoint()),
    ];
    let environment = Some(variables.map(|(name, value)| (name.to_owned(), value)).into());
    let backoff = Duration::from_millis(2);
    let stall = Duration::from_millis(500);
    Options { environment, backoff, backoff_max: Duration::from_millis(50), stall, ..Options::default() }
}

fn writing(stand_in: &StandIn) -> WriteOptions {
    WriteOptions { storage: options(stand_in), ..small() }
}

fn open(stand_in: &StandIn) -> Dataset {
    Dataset::open(URL, ReadOptions { storage: options(stand_in), ..ReadOptions::default() }).unwrap()
}

fn append(stand_in: &StandIn, from: u64, n: u64) -> forebay_dataset::Result<u32> {
    let options = writing(stand_in);
    let mut writer = if from == 0 { Writer::create(URL, options)? } else { Writer::append(URL, options)? };
    writer.push("Events", &events(from, n))?;
    match writer.commit("test") {
        Err(error) if error.kind() == Kind::Conflict => writer.commit("test"),
        other => other,
    }
    .map(|committed| committed.version)
}

#[test]
fn everything_works_on_a_bucket_without_a_list() {
    let stand_in = StandIn::new();
    append(&stand_in, 0, 600).unwrap();
    append(&stand_in, 600, 300).unwrap();
    let folder = Folder::new("s3-same");
    write(&folder.url(), &super::events_of(&[(0, 600), (600, 300)]), small());
    let names = ["event", "nMuon", "Muon_pt", "HLT_Mu"];
    let local = super::open(&folder.url()).read("Events", &names, 0..900).unwrap();
    let there = open(&stand_in).read("Events", &names, 0..900).unwrap();
    for (one, other) in there.iter().zip(&local) {
        assert_eq!(one.to_array(), other.to_array());
    }
    compact(URL, &writing(&stand_in), &mut |_, _| {}).unwrap();
    assert_eq!(open(&stand_in).verify(&mut |_, _| {}).unwrap().damages, []);
    let mut dead = Writer::append(URL, writing(&stand_in)).unwrap();
    dead.push("Events", &events(900, 300)).unwrap();
    drop(dead);
    let names = stand_in.names().len();
    // The server's clock decides, not this machine's.
    stand_in.set_clock(7200);
    let collected = gc(URL, Duration::from_secs(3600), &options(&stand_in)).unwrap();
    assert_eq!(collected.removed.len(), 1);
    assert!(stand_in.names().len() < names);
    assert!(stand_in.take_log().iter().all(|request| !request.name.ends_with('?')));
    assert_eq!(open(&stand_in).events("Events").unwrap(), 900);
}

#[test]
fn a_writer_survives_every_fault_of_every_request() {
    let wrongs = [Wrong::slow_down(), Wrong::Stall, Wrong::Reset, Wrong::Cut, Wrong::LoseAnswer];
    for wrong in wrongs {
        let stand_in = StandIn::new();
        append(&stand_in, 0, 300).unwrap();
        // Each third request goes wrong once; a repeat of it may be one of them.
        for skip in 0..6 {
            stand_in.fault(Fault::next("PUT", wrong.clone()).after(skip * 3));
        }
        stand_in.fault(Fault::next("GET", wrong.clone()).after(2));
        stand_in.fault(Fault::next("PUT", wrong.clone()).of("/root"));
        append(&stand_in, 300, 300).unwrap_or_else(|error| panic!("{wrong:?}: {error}"));
        stand_in.clear_faults();
        assert_reads(&open(&stand_in), &super::events_of(&[(0, 300), (300, 300)]));
    }
}

#[test]
fn a_commit_whose_answer_is_lost_for_good_says_so_and_a_repeat_tells() {
    let stand_in = StandIn::new();
    append(&stand_in, 0, 300).unwrap();
    let short = Options { deadline: Duration::from_millis(700), ..options(&stand_in) };
    let mut writer = Writer::append(URL, WriteOptions { storage: short, ..small() }).unwrap();
    writer.push("Events", &events(300, 300)).unwrap();
    stand_in.fault(Fault::next("PUT", Wrong::LoseAnswer).of("/root").times(1000));
    stand_in.fault(Fault::next("GET", Wrong::Reset).of("/root").times(1000));
    let error = writer.commit("lost").unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error}");
    stand_in.clear_faults();
    assert_eq!(writer.commit("lost").unwrap().version, 1);
    assert_reads(&open(&stand_in), &super::events_of(&[(0, 300), (300, 300)]));
}

#[test]
fn a_flipped_byte_of_an_answer_is_found() {
    let stand_in = StandIn::new();
    append(&stand_in, 0, 600).unwrap();
    let names = ["event", "Muon_pt", "HLT_El"];
    let right: Vec<_> =
        open(&stand_in).read("Events", &names, 0..600).unwrap().iter().map(|column| column.to_array()).collect();
    for skip in 0..8 {
        stand_in.fault(Fault::next("GET", Wrong::Flip).after(skip));
        let opened = Dataset::open(URL, ReadOptions { storage: options(&stand_in), ..ReadOptions::default() });
        match opened.and_then(|dataset| dataset.read("Events", &names, 0..600)) {
            Ok(read) => assert_eq!(read.iter().map(|column| column.to_array()).collect::<Vec<_>>(), right),
            Err(error) => assert!(matches!(error.kind(), Kind::Corrupt | Kind::Invalid), "{error}"),
        }
        stand_in.clear_faults();
    }
}

#[test]
fn a_bucket_that_ignores_conditions_is_refused_before_anything_is_written() {
    let stand_in = StandIn::new();
    stand_in.ignore_conditions(true);
    let error = append(&stand_in, 0, 300).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("two writers"), "{error}");
    assert!(!stand_in.names().iter().any(|name| name.ends_with("/root")));
}

#[test]
fn a_column_takes_three_requests() {
    let stand_in = StandIn::new();
    let options = WriteOptions { batch_events: Some(8192), storage: options(&stand_in), ..WriteOptions::default() };
    let mut writer = Writer::create(URL, options).unwrap();
    writer.push("Events", &events(0, 5000)).unwrap();
    writer.commit("test").unwrap();
    drop(writer);
    let dataset = open(&stand_in);
    drop(stand_in.take_log());
    dataset.read("Events", &["Muon_pt"], 0..5000).unwrap();
    let log = stand_in.take_log();
    assert!(log.len() <= 3, "{log:?}");
}
