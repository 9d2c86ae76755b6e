//! A real Ceph as a place for objects, in buckets with and without an index.

use crate::storage::conformance;
use forebay_dataset::storage::{self, Options};
use forebay_testkit::ceph::{ACCESS_KEY, Ceph, INDEX_LESS, INDEXED, SECRET_KEY};
use std::time::Instant;

#[test]
fn conforms_with_and_without_an_index() {
    let from = Instant::now();
    let ceph = Ceph::start(&[("indexed", INDEXED), ("plain", INDEX_LESS)]).unwrap_or_else(|error| panic!("{error}"));
    println!("Ceph is there after {:?}", from.elapsed());
    let variables = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ("AWS_ENDPOINT_URL", ceph.endpoint()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let options = Options { environment: Some(variables.into()), ..Options::default() };
    for bucket in ["indexed", "plain"] {
        let from = Instant::now();
        let url = format!("s3://{bucket}/some/prefix");
        conformance::check(&|| storage::open(&url, &options).unwrap());
        if bucket == "indexed" {
            conformance::check_listing(&*storage::open(&url, &options).unwrap());
        }
        println!("{bucket}: {:?}", from.elapsed());
    }
}
