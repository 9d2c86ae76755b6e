//! A bucket: requests, their number and their bytes.

use crate::storage::conformance;
use crate::storage::setting::{open, options};
use bytes::Bytes;
use forebay_core::Kind;
use forebay_dataset::storage::{self, Options, Part};
use forebay_testkit::s3::{Fault, StandIn};
use std::time::Duration;

fn columns(count: u64, pitch: u64, length: u64) -> Vec<Part> {
    (0..count).map(|at| Part { name: "group".to_owned(), range: at * pitch..at * pitch + length }).collect()
}

#[test]
fn conforms() {
    let stand_in = StandIn::new();
    let options = options(&stand_in);
    conformance::check(&|| open(&options));
    assert!(stand_in.names().iter().all(|name| name.starts_with("bucket/some/prefix/")));
    // Nothing was listed, no objects were removed by a list: all requests are about one object.
    assert!(stand_in.take_log().iter().all(|request| request.name.starts_with("bucket/some/prefix/")));
    conformance::check_listing(&*open(&options));
}

#[test]
fn conforms_where_tags_have_no_quotes() {
    let stand_in = StandIn::new();
    stand_in.compare_bare_tags(true);
    let options = options(&stand_in);
    conformance::check(&|| open(&options));
}

#[test]
fn without_a_prefix() {
    let stand_in = StandIn::new();
    let place = storage::open("s3://bucket", &options(&stand_in)).unwrap();
    assert_eq!(place.url(), "s3://bucket");
    place.put(&[("root".to_owned(), "x".into())]).unwrap();
    assert_eq!(stand_in.names(), ["bucket/root"]);
}

#[test]
fn scattered_columns_are_read_with_little_in_vain() {
    let stand_in = StandIn::new();
    stand_in.set_object("bucket/some/prefix/group", vec![1; 4 << 20]);
    let place = open(&options(&stand_in));
    // Gaps of 300 bytes beside 700: joining them all would cost 43 %.
    let parts = columns(1000, 1000, 700);
    assert!(place.parts(&parts).unwrap().iter().all(|part| part.len() == 700));
    let log = stand_in.take_log();
    let bytes: u64 = log.iter().map(|request| request.bytes_out).sum();
    assert!(bytes <= 770_000 && bytes > 760_000, "{bytes}");
    assert_eq!(place.traffic().bytes_read, bytes);
    assert_eq!(place.traffic().reads, log.len() as u64);
    // Gaps of 50 bytes beside 950 are read over, in pieces that can be fetched at once.
    assert!(place.parts(&columns(4000, 1000, 950)).unwrap().iter().all(|part| part.len() == 950));
    assert_eq!(stand_in.take_log().len(), 1);
    let place = open(&Options { request_bytes_max: 500_000, ..options(&stand_in) });
    place.parts(&columns(4000, 1000, 950)).unwrap();
    assert_eq!(stand_in.take_log().len(), 8);
}

#[test]
fn requests_at_once_are_bounded_and_many() {
    let stand_in = StandIn::new();
    stand_in.set_object("bucket/some/prefix/group", vec![1; 1 << 20]);
    stand_in.set_delay(Duration::from_millis(50));
    let place = open(&Options { in_flight: 6, gap_bytes_max: 0, ..options(&stand_in) });
    place.parts(&columns(60, 1000, 500)).unwrap();
    assert_eq!(stand_in.in_flight_max(), 6);
    let objects: Vec<(String, Bytes)> = (0..20).map(|at| (format!("o/{at}"), Bytes::from_static(b"x"))).collect();
    place.put(&objects).unwrap();
    assert_eq!(stand_in.in_flight_max(), 6);
}

#[test]
fn a_bucket_without_conditions_is_refused_with_words() {
    let stand_in = StandIn::new();
    stand_in.ignore_conditions(true);
    let place = open(&options(&stand_in));
    let error = place.check_conditions("writers/check").unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().contains("If-None-Match") && error.message().contains("s3://bucket"), "{error}");
    assert_eq!(stand_in.names(), [""; 0]);
    // A server that does not have them says so.
    stand_in.ignore_conditions(false);
    let kind = forebay_testkit::s3::Kind::Status { status: 501, code: "NotImplemented".to_owned() };
    stand_in.fault(Fault::next("PUT", kind));
    assert_eq!(place.check_conditions("writers/check").unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn age_is_by_the_clock_of_the_server() {
    let stand_in = StandIn::new();
    let place = open(&options(&stand_in));
    stand_in.set_clock(-7200);
    place.put(&[("object".to_owned(), Bytes::new())]).unwrap();
    assert!(place.age("object").unwrap().unwrap() < Duration::from_secs(60));
    stand_in.set_clock(-3600);
    let age = place.age("object").unwrap().unwrap();
    assert!((3590..3660).contains(&age.as_secs()), "{age:?}");
}

#[test]
fn a_place_that_is_not_there_has_words() {
    let stand_in = StandIn::new();
    let place = storage::open("s3://other/p", &options(&stand_in)).unwrap();
    for error in [place.get("root", 10).map(drop), place.put(&[("root".to_owned(), Bytes::new())])] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains("bucket other") && error.message().contains("p/root"), "{error}");
        assert!(error.message().contains("NoSuchBucket"), "{error}");
    }
}
