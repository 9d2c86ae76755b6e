//! A real Ceph that fails in the middle, and a mover that goes on.

use crate::scene::{RUN, Scene, options};
use forebay_core::Kind;
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, Mover, MoverOptions};
use forebay_store::Store;
use forebay_testkit::ceph::{ACCESS_KEY, Ceph, INDEX_LESS, INDEXED, SECRET_KEY, USER};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const EVENTS: u64 = 600;

fn place(ceph: &Ceph, url: &str) -> Archive {
    let variables = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ("AWS_ENDPOINT_URL", ceph.endpoint()),
    ];
    let environment = variables.map(|(name, value)| (name.to_owned(), value));
    let deadline = Duration::from_secs(20);
    let options = Options { environment: Some(environment.into()), deadline, ..Options::default() };
    let archive = Archive::open(url, &options).unwrap();
    archive.create("").unwrap();
    archive
}

fn filled() -> Scene {
    let scene = Scene::new(true);
    scene.accept(0..EVENTS, &["physics"]);
    scene.settle();
    scene
}

/// Moves all that there is, whatever fails on the way; what failed.
fn all(mover: &Mover<Store>) -> Vec<Kind> {
    let (mut failed, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(120));
    loop {
        assert!(Instant::now() < deadline, "{failed:?}");
        match mover.round() {
            Ok(true) => {}
            Ok(false) => return failed,
            Err(error) => {
                failed.push(error.kind());
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Moves everything while `fail` is done once the mover has named something.
fn moved_beside(ceph: &Mutex<Ceph>, name: &str, fail: impl FnOnce(&mut Ceph)) {
    let archive = place(&ceph.lock().unwrap(), &format!("s3://archive/{name}"));
    let scene = filled();
    let mover = scene.mover(&archive, MoverOptions { object_bytes: 100 << 10, ..options() });
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| all(&mover));
        scene.until("something is named", || mover.moved().objects > 1);
        fail(&mut ceph.lock().unwrap());
        moving.join().unwrap();
    });
    scene.check(&archive, 0..EVENTS);
}

#[test]
fn a_real_ceph_that_fails_in_the_middle_gets_everything_once() {
    let buckets = [("archive", INDEXED), ("plain", INDEX_LESS)];
    let ceph = Ceph::start_on_disk(&buckets).unwrap_or_else(|error| panic!("{error}"));
    let ceph = Mutex::new(ceph);
    moved_beside(&ceph, "gateway", |ceph| {
        ceph.stop_gateway().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        ceph.start_gateway().unwrap();
    });
    moved_beside(&ceph, "killed-osd", |ceph| {
        ceph.stop_osd().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        ceph.start_osd().unwrap();
    });
    moved_beside(&ceph, "osd", |ceph| {
        ceph.stall_osd(true).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        ceph.stall_osd(false).unwrap();
    });
    // A user that is suspended is answered 403, and so is one that is over its quota.
    let ceph = ceph.into_inner().unwrap();
    let refused = |name: &str, close: &[&[&str]], open: &[&[&str]]| {
        let archive = place(&ceph, &format!("s3://archive/{name}"));
        let scene = filled();
        close.iter().for_each(|arguments| drop(ceph.admin(arguments).unwrap()));
        let mover = scene.mover(&archive, MoverOptions { patience: Duration::from_millis(200), ..options() });
        let error = mover.run(true, &mut |_, _| {}).expect_err(name);
        println!("{name}: {error}");
        let ledger = scene.store.ledger(RUN).unwrap();
        assert_eq!((ledger.in_custody.events, ledger.imbalance()), (0, None));
        open.iter().for_each(|arguments| drop(ceph.admin(arguments).unwrap()));
        all(&mover);
        scene.check(&archive, 0..EVENTS);
    };
    let user = |what: &'static str| ["user", what, "--uid", USER];
    refused("suspended", &[&user("suspend")], &[&user("enable")]);
    ceph.admin(&["user", "stats", "--uid", USER, "--sync-stats"]).unwrap();
    let quota = |what: &'static str| ["quota", what, "--quota-scope", "user", "--uid", USER];
    let limited =
        [&["quota", "set", "--quota-scope", "user", "--uid", USER, "--max-objects", "1"][..], &quota("enable")];
    refused("quota", &limited, &[&quota("disable")]);
    // Without an index nothing is listed, and everything is found by name.
    let archive = place(&ceph, "s3://plain/archive");
    let scene = filled();
    all(&scene.mover(&archive, options()));
    scene.check(&archive, 0..EVENTS);
    assert!(archive.runs().unwrap_or_default().is_empty());
}
