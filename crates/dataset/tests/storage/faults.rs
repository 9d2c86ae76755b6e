//! Faults between client and server: each is survived, or said with the kind that tells the caller's next move.

use crate::storage::conformance::{append, check_log};
use crate::storage::setting::{open, options};
use bytes::Bytes;
use forebay_core::{Error, Kind};
use forebay_dataset::storage::{Condition, Options, Part, Put, Storage};
use forebay_testkit::s3::{Fault, Kind as Wrong, StandIn};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::time::{Duration, Instant};

const NAME: &str = "bucket/some/prefix/object";

fn whole(place: &dyn Storage) -> Bytes {
    place.get("object", 1 << 20).unwrap().unwrap().0
}

fn part(place: &dyn Storage) -> forebay_core::Result<Bytes> {
    place.parts(&[Part { name: "object".to_owned(), range: 100..900 }]).map(|mut parts| parts.remove(0))
}

fn content() -> Bytes {
    (0..100_000_u32).map(|at| (at % 253) as u8).collect()
}

#[test]
fn reads_are_repeated() {
    let stand_in = StandIn::new();
    stand_in.set_object(NAME, content());
    let place = open(&Options { stall: Duration::from_millis(400), ..options(&stand_in) });
    let bad_gateway = Wrong::Status { status: 502, code: String::new() };
    let wrongs =
        [Wrong::slow_down(), bad_gateway, Wrong::Stall, Wrong::StallBody, Wrong::Reset, Wrong::Cut, Wrong::LoseAnswer];
    for wrong in wrongs {
        stand_in.fault(Fault::next("GET", wrong.clone()).times(2));
        assert_eq!(whole(&*place), content(), "{wrong:?}");
        stand_in.fault(Fault::next("GET", wrong.clone()).times(2));
        assert_eq!(part(&*place).unwrap(), content().slice(100..900), "{wrong:?}");
    }
    for wrong in [Wrong::Short, Wrong::Whole] {
        stand_in.fault(Fault::next("GET", wrong.clone()).times(2));
        assert_eq!(part(&*place).unwrap(), content().slice(100..900), "{wrong:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_is_not_asked_for_ever() {
    let stand_in = StandIn::new();
    stand_in.set_object(NAME, content());
    let place = open(&options(&stand_in));
    for wrong in [Wrong::Short, Wrong::Whole] {
        drop(stand_in.take_log());
        stand_in.fault(Fault::next("GET", wrong.clone()).times(1000));
        assert_eq!(part(&*place).unwrap_err().kind(), Kind::Corrupt, "{wrong:?}");
        assert!(stand_in.take_log().len() < 10);
        stand_in.clear_faults();
    }
}

#[test]
fn a_damaged_byte_of_an_answer_passes_and_is_for_checksums_to_find() {
    let stand_in = StandIn::new();
    stand_in.set_object(NAME, content());
    let place = open(&options(&stand_in));
    stand_in.fault(Fault::next("GET", Wrong::Flip));
    let came = whole(&*place);
    assert_eq!(came.iter().zip(&content()).filter(|(came, put)| came != put).count(), 1);
}

#[test]
fn puts_are_repeated() {
    let stand_in = StandIn::new();
    let place = open(&Options { stall: Duration::from_millis(400), ..options(&stand_in) });
    let wrongs = [
        Wrong::slow_down(),
        Wrong::Stall,
        Wrong::Reset,
        Wrong::LoseAnswer,
        Wrong::FlipSent,
        Wrong::Cut,
        Wrong::StallBody,
    ];
    for (at, wrong) in wrongs.into_iter().enumerate() {
        let bytes = content().slice(at..);
        stand_in.fault(Fault::next("PUT", wrong.clone()).times(2));
        place.put(&[("object".to_owned(), bytes.clone())]).unwrap();
        assert_eq!(stand_in.object(NAME), Some(bytes), "{wrong:?}");
        stand_in.fault(Fault::next("DELETE", wrong.clone()));
        place.remove(&["object".to_owned()]).unwrap();
        assert_eq!(stand_in.object(NAME), None, "{wrong:?}");
    }
}

#[test]
fn a_repeat_that_meets_its_own_success_is_success() {
    let stand_in = StandIn::new();
    let place = open(&Options { stall: Duration::from_millis(400), ..options(&stand_in) });
    for wrong in [Wrong::LoseAnswer, Wrong::Reset, Wrong::slow_down(), Wrong::Stall] {
        let (one, two) = (Bytes::from(format!("one {wrong:?}")), Bytes::from(format!("two {wrong:?}")));
        stand_in.fault(Fault::next("PUT", wrong.clone()));
        let Put::Done(tag) = place.put_if("object", &one, Condition::Absent).unwrap() else { panic!("{wrong:?}") };
        assert_eq!(place.get("object", 100).unwrap(), Some((one, tag.clone())), "{wrong:?}");
        stand_in.fault(Fault::next("PUT", wrong.clone()).times(1));
        let Put::Done(next) = place.put_if("object", &two, Condition::Unchanged(&tag)).unwrap() else {
            panic!("{wrong:?}")
        };
        assert_eq!(place.get("object", 100).unwrap(), Some((two, next)), "{wrong:?}");
        place.remove(&["object".to_owned()]).unwrap();
    }
}

#[test]
fn somebody_else_after_an_answer_that_was_lost_is_an_unknown_outcome() {
    let stand_in = StandIn::new();
    let place =
        open(&Options { backoff: Duration::from_secs(1), backoff_max: Duration::from_secs(1), ..options(&stand_in) });
    stand_in.fault(Fault::next("PUT", Wrong::LoseAnswer));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ours is there for a moment, then somebody else's on top of it.
            let from = Instant::now();
            while stand_in.object(NAME).is_none() && from.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            stand_in.set_object(NAME, "ours, and theirs");
        });
        let error = place.put_if("object", &"ours".into(), Condition::Absent).unwrap_err();
        assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error}");
    });
    // The first attempt heard it: nothing is unknown.
    assert_eq!(place.put_if("object", &"ours".into(), Condition::Absent).unwrap(), Put::Refused);
}

#[test]
fn the_end_of_time_has_the_kind_of_what_may_have_happened() {
    let stand_in = StandIn::new();
    stand_in.set_object(NAME, content());
    let place = open(&Options {
        stall: Duration::from_millis(100),
        deadline: Duration::from_millis(500),
        ..options(&stand_in)
    });
    let cases = [
        (Wrong::Stall, Kind::OutcomeUnknown),
        (Wrong::Reset, Kind::OutcomeUnknown),
        (Wrong::LoseAnswer, Kind::OutcomeUnknown),
        (Wrong::Status { status: 500, code: "InternalError".to_owned() }, Kind::OutcomeUnknown),
        (Wrong::slow_down(), Kind::Unavailable),
    ];
    for (wrong, kind) in cases {
        stand_in.fault(Fault::next("", wrong.clone()).times(u32::MAX));
        // On a busy machine the last attempt may have had no answer yet: then it is unknown, whatever the others said.
        let by_time =
            |error: &Error| error.kind() == Kind::OutcomeUnknown && error.message().contains("it took too long");
        let is_right = |error: &Error| error.kind() == kind || by_time(error);
        let from = Instant::now();
        let error = place.get("object", 1 << 20).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{wrong:?}: {error}");
        assert!(error.message().contains("bucket bucket") && error.message().contains("some/prefix/object"), "{error}");
        let put = place.put(&[("other".to_owned(), content())]).unwrap_err();
        assert!(is_right(&put), "{wrong:?}: {put}");
        let put = place.put_if("root", &content(), Condition::Absent).unwrap_err();
        assert!(is_right(&put), "{wrong:?}: {put}");
        assert!(from.elapsed() < Duration::from_secs(30));
        stand_in.clear_faults();
        place.remove(&["root".to_owned()]).unwrap();
    }
}

#[test]
fn a_server_that_is_not_there_has_had_no_effect() {
    let stand_in = StandIn::new();
    let options = Options { deadline: Duration::from_millis(300), ..options(&stand_in) };
    let place = open(&options);
    // The connection that is kept goes with the server.
    place.put(&[("object".to_owned(), content())]).unwrap();
    let endpoint = stand_in.endpoint();
    drop(stand_in);
    let error = place.put_if("root", &content(), Condition::Absent).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.message().contains(&endpoint), "{error}");
}

#[test]
fn a_stalled_upload_is_given_up_and_a_slow_one_is_not() {
    let stand_in = StandIn::new();
    // Each answer takes longer than a stall may: nothing comes back in the meantime, but that is known of no request.
    let place = open(&Options { stall: Duration::from_millis(300), ..options(&stand_in) });
    stand_in.fault(Fault::next("PUT", Wrong::Stall));
    let large = Bytes::from(vec![3; 8 << 20]);
    place.put(&[("object".to_owned(), large.clone())]).unwrap();
    assert_eq!(stand_in.object(NAME), Some(large));
}

/// Writers on one object with faults of all kinds between: nothing is lost, nothing is there twice.
#[test]
fn a_storm() {
    let stand_in = StandIn::new();
    let options = Options { stall: Duration::from_millis(400), ..options(&stand_in) };
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let wrongs = [
        Wrong::LoseAnswer,
        Wrong::Reset,
        Wrong::Cut,
        Wrong::slow_down(),
        Wrong::Status { status: 500, code: String::new() },
        Wrong::Status { status: 409, code: "ConditionalRequestConflict".to_owned() },
        Wrong::FlipSent,
        Wrong::StallBody,
    ];
    for _ in 0..60 {
        let method = *["PUT", "PUT", "GET"].choose(&mut random).unwrap();
        let wrong = wrongs.choose(&mut random).unwrap().clone();
        stand_in.fault(Fault::next(method, wrong).after(random.random_range(0..4)));
    }
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let options = &options;
            scope.spawn(move || append(&*open(options), "root", writer, 15));
        }
    });
    stand_in.clear_faults();
    check_log(&*open(&options), "root", 3, 15);
}
