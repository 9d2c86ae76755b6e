//! Credentials: where they come from, what is refused, and that nobody sees them.

use crate::storage::setting::{SECRET, TOKEN, environment, open, options};
use forebay_core::Kind;
use forebay_dataset::storage::{self, Options};
use forebay_testkit::TempDir;
use forebay_testkit::s3::{Fault, Kind as Wrong, StandIn};
use std::fs;

fn with_files(home: &TempDir, more: &[(&str, &str)]) -> Options {
    let mut variables = environment(more);
    variables.insert("HOME".to_owned(), home.path().display().to_string());
    Options { environment: Some(variables), ..Options::default() }
}

fn write(home: &TempDir, file: &str, text: &str) {
    fs::create_dir_all(home.path().join(".aws")).unwrap();
    fs::write(home.path().join(".aws").join(file), text).unwrap();
}

fn keys(key: &str, token: &str) -> String {
    format!("[cms]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\naws_session_token = {token}\n")
}

#[test]
fn a_profile_gives_keys_region_and_server() {
    let (stand_in, home) = (StandIn::new(), TempDir::new());
    write(
        &home,
        "config",
        &format!("[profile cms]\nregion = cern\nendpoint_url = {}\noutput = json\n", stand_in.endpoint()),
    );
    write(&home, "credentials", &keys("AKPROFILE", TOKEN));
    let place = open(&with_files(&home, &[("AWS_PROFILE", "cms")]));
    place.put(&[("object".to_owned(), "x".into())]).unwrap();
    let shown = format!("{place:?}");
    assert!(shown.contains("cern") && shown.contains("Files"), "{shown}");
    assert!(!shown.contains(SECRET) && !shown.contains(TOKEN), "{shown}");

    let error = storage::open("s3://b", &with_files(&home, &[("AWS_PROFILE", "atlas")])).unwrap_err();
    assert!(error.message().contains("atlas"), "{error}");
    let error = storage::open("s3://b", &with_files(&home, &[])).unwrap_err();
    assert!(error.message().contains("AWS_ACCESS_KEY_ID"), "{error}");
    // In other places.
    let files = [home.path().join("c"), home.path().join("k")];
    fs::rename(home.path().join(".aws/config"), &files[0]).unwrap();
    fs::rename(home.path().join(".aws/credentials"), &files[1]).unwrap();
    let named = |at: usize| files[at].to_str().unwrap();
    let variables = [("AWS_PROFILE", "cms"), ("AWS_CONFIG_FILE", named(0)), ("AWS_SHARED_CREDENTIALS_FILE", named(1))];
    assert!(open(&with_files(&home, &variables)).get("object", 10).unwrap().is_some());
}

#[test]
fn settings_that_are_not_carried_out_are_refused_by_name() {
    let home = TempDir::new();
    for setting in [
        "role_arn",
        "sso_session",
        "credential_process",
        "source_profile",
        "web_identity_token_file",
        "s3",
        "services",
        "use_fips_endpoint",
        "mfa_serial",
    ] {
        write(&home, "config", &format!("[default]\n{setting} = x\n"));
        write(&home, "credentials", &format!("[default]\naws_access_key_id=A\naws_secret_access_key={SECRET}\n"));
        let error = storage::open("s3://b", &with_files(&home, &[])).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.message().contains(setting) && !error.to_string().contains(SECRET), "{error}");
    }
    // With keys in the environment, those of the profile do not matter; where it connects to does.
    let keys = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    write(&home, "config", "[default]\nsso_session = x\nrole_arn = y\n");
    storage::open("s3://b", &with_files(&home, &keys)).unwrap();
    write(&home, "config", "[default]\nuse_dualstack_endpoint = true\n");
    storage::open("s3://b", &with_files(&home, &keys)).unwrap_err();
    write(&home, "config", "");
    let error = storage::open("s3://b", &with_files(&home, &keys[..1])).unwrap_err();
    assert!(error.message().contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    write(&home, "credentials", "");
    let error = storage::open("s3://b", &with_files(&home, &[("AWS_ROLE_ARN", "r")])).unwrap_err();
    assert!(error.message().contains("AWS_ROLE_ARN is set"), "{error}");
}

#[test]
fn without_credentials_only_when_asked() {
    let (stand_in, home) = (StandIn::new(), TempDir::new());
    stand_in.set_object("bucket/some/prefix/public", "x");
    let server = stand_in.endpoint();
    let place = open(&with_files(&home, &[("AWS_SKIP_SIGNATURE", "true"), ("AWS_ENDPOINT_URL", &server)]));
    assert!(place.get("public", 10).unwrap().is_some());
}

#[test]
fn an_expired_token_is_read_again_in_mid_read() {
    let (stand_in, home) = (StandIn::new(), TempDir::new());
    stand_in.set_object("bucket/some/prefix/object", vec![1; 10_000]);
    write(&home, "credentials", &keys("AK1", "old-token"));
    let server = stand_in.endpoint();
    let options = with_files(&home, &[("AWS_PROFILE", "cms"), ("AWS_ENDPOINT_URL", &server)]);
    let place = open(&options);
    assert!(place.get("object", 10_000).unwrap().is_some());
    write(&home, "credentials", &keys("AK2", "new-token"));
    stand_in.expire("old-token");
    let parts: Vec<_> =
        (0..40).map(|at| storage::Part { name: "object".to_owned(), range: at * 200..at * 200 + 100 }).collect();
    assert_eq!(place.parts(&parts).unwrap().len(), 40);
    assert_eq!(place.put(&[("other".to_owned(), "x".into())]).map_err(|error| error.to_string()), Ok(()));
    // Not renewed: said, once for each request.
    stand_in.expire("new-token");
    drop(stand_in.take_log());
    let error = place.get("object", 10_000).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().contains("ExpiredToken") && error.message().contains("renew"), "{error}");
    assert!(!error.to_string().contains("new-token"), "{error}");
    assert_eq!(stand_in.take_log().len(), 1);
}

#[test]
fn secrets_are_in_no_message() {
    let stand_in = StandIn::new();
    let options = options(&stand_in);
    let place = open(&options);
    stand_in.expire(TOKEN);
    let mut shown = vec![format!("{options:?} {place:?}"), place.get("root", 10).unwrap_err().to_string()];
    for status in [400, 403] {
        // Some servers repeat what they do not like.
        stand_in.fault(Fault::next("GET", Wrong::Status { status, code: format!("No{SECRET}And{TOKEN}") }));
        let error = place.get("root", 10).unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }
    for shown in shown {
        assert!(!shown.contains(SECRET) && !shown.contains(TOKEN), "{shown}");
    }
}
