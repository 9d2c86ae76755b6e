//! `close` beside calls in flight: nothing of a life touches the region once another life can have it, and `close` says
//! what it could not wait for.
//!
//! Races run at idle priority on one processor, where a thread stops anywhere for as long as others run.

mod put;
mod range;
mod reopen;
mod ring;
mod stall;

use forebay_store::PutOutcome;
use forebay_store::core::{Kind, Result};
use std::process::Command;
use std::time::{Duration, Instant};

/// Rounds of each race, and where they take longer than this on a busy machine, the fewest (`FOREBAY_CLOSE_ROUNDS`).
const ROUNDS: u64 = 100;
const ROUNDS_MIN: u64 = 10;
const TIME: Duration = Duration::from_secs(8);

/// Runs rounds in a thread that, with all threads that it starts, has one processor at idle priority.
fn race(round: impl Fn(u64) + Send + Sync) {
    std::thread::scope(|scope| {
        let racing = scope.spawn(|| {
            let mut one = rustix::thread::CpuSet::new();
            let here = rustix::thread::sched_getcpu();
            one.set(here);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            let me = rustix::thread::gettid().as_raw_nonzero().to_string();
            let idle = Command::new("chrt").args(["--idle", "-p", "0", &me]).status();
            assert!(idle.is_ok_and(|status| status.success()), "chrt (Debian's util-linux) sets the priority");
            let begun = Instant::now();
            let least = std::env::var("FOREBAY_CLOSE_ROUNDS").map_or(ROUNDS_MIN, |text| text.parse().unwrap());
            for number in 0..ROUNDS.max(least) {
                if number >= least && begun.elapsed() > TIME {
                    break;
                }
                round(number);
            }
        });
        if let Err(panic) = racing.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Opens another life once the last one has let go; any other refusal is one too many.
#[track_caller]
fn open_when_free<T>(open: impl Fn() -> Result<T>) -> T {
    let begun = Instant::now();
    loop {
        match open() {
            Ok(life) => return life,
            Err(error) if error.kind() == Kind::Unavailable && begun.elapsed() < Duration::from_secs(60) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
fn stored(put: Result<PutOutcome>) {
    assert_eq!(put.unwrap(), PutOutcome::Stored);
}

/// Starved calls may outlast the closing: it says so, and the lock stays theirs.
#[track_caller]
fn closed_or_outlasted(answer: Result<()>) {
    if let Err(error) = answer {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.message().contains("calls in flight"), "{error}");
    }
}
