//! A place that is used on both sides of a fork, as Python's multiprocessing does.
#![expect(unsafe_code, reason = "fork is unsafe")]

use bytes::Bytes;
use forebay_dataset::storage::{self, Options, Storage};
use forebay_testkit::s3::StandIn;
use rustix::process::{Pid, WaitOptions, waitpid};

fn uses_it(place: &dyn Storage, name: &str) -> bool {
    let own = || name.to_owned();
    let put = place.put(&[(own(), Bytes::from(own()))]);
    put.is_ok() && place.get(name, 100).is_ok_and(|there| there.is_some_and(|(bytes, _)| bytes == own()))
}

#[test]
fn a_child_makes_its_own_connections() {
    let stand_in = StandIn::new();
    let variables = [
        ("AWS_ACCESS_KEY_ID", "A".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "B".to_owned()),
        ("AWS_ENDPOINT_URL", stand_in.endpoint()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let options = Options { environment: Some(variables.into()), ..Options::default() };
    let place = storage::open("s3://bucket/p", &options).unwrap();
    assert!(uses_it(&*place, "parent-before"));
    // SAFETY: the child calls only what a child of many threads may with glibc, which makes its allocator usable there; it
    // prints nothing and ends without the harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let used = uses_it(&*place, "child");
        // The parent's connections must survive that the child lets its copy go.
        drop(place);
        // SAFETY: no destructor of the parent's may run here.
        unsafe { libc::_exit(i32::from(!used)) };
    }
    assert!(uses_it(&*place, "parent-beside"));
    let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
    assert!(uses_it(&*place, "parent-after"));
    assert_eq!(stand_in.object("bucket/p/child").unwrap(), "child");
}
