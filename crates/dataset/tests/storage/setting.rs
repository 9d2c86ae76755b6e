//! The stand-in for S3 and options for it.

use forebay_dataset::storage::{self, Options, Storage};
use forebay_testkit::s3::StandIn;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What nobody may see.
pub(crate) const SECRET: &str = "the-secret-key-of-tests";
pub(crate) const TOKEN: &str = "the-session-token-of-tests";

pub(crate) fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Keys and server from the environment; short waits between repeats.
pub(crate) fn options(stand_in: &StandIn) -> Options {
    let environment = environment(&[
        ("AWS_ACCESS_KEY_ID", "AKTEST"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", TOKEN),
        ("AWS_ENDPOINT_URL", &stand_in.endpoint()),
    ]);
    let backoff = Duration::from_millis(2);
    Options { backoff, backoff_max: Duration::from_millis(50), environment: Some(environment), ..Options::default() }
}

pub(crate) fn open(options: &Options) -> Arc<dyn Storage> {
    storage::open("s3://bucket/some/prefix", options).unwrap()
}
