//! A process ends, in order or by a kill; the next one finds everything.

use super::{SPAN, TempDir, balanced, config, frame, genuine, keyspace, put, put_in, shape, source, window};
use forebay_core::{GapCause, Kind};
use forebay_ring::{Gap, Ring, RingOutcome, RingSources};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "FOREBAY_RING_CHILD";
const FROM: &str = "FOREBAY_RING_FROM";
const LINKS: u64 = 2;
const CHUNKS: u64 = 40;

#[test]
fn what_was_put_is_there_after_an_orderly_close() {
    let dir = TempDir::new();
    let ring = Ring::create(dir.path(), &keyspace(2), config(20)).unwrap();
    let mut number = 0;
    while ring.stats().evicted < 10 {
        put(&ring, 1, frame(number));
        number += 1;
    }
    assert_eq!(put_in(&ring, 1, 1, frame(number - 1), SPAN).unwrap(), RingOutcome::Duplicate);
    assert_eq!(put_in(&ring, 1, 1, frame(0), SPAN).unwrap(), RingOutcome::Refused(GapCause::TooLate));
    let (before, oldest) = (ring.ledger_of(1), ring.sources()[0].oldest.unwrap());
    ring.close().unwrap();
    drop(ring);
    for _ in 0..3 {
        let ring = Ring::open(dir.path(), config(20)).unwrap();
        assert_eq!((ring.ledger_of(1), ring.losses().len()), (before, 0));
        let kept = window(&ring, oldest, frame(number));
        assert!(kept.is_complete());
        assert_eq!(genuine(&kept.sources[0]).len() as u64, before.live.ready.fragments);
        balanced(&ring);
    }
    super::refused(Ring::open(&dir.path().join("elsewhere"), config(20)), Kind::Invalid);
}

#[test]
fn the_hole_of_a_restart_is_a_gap_of_that_cause() {
    let dir = TempDir::new();
    let ring = Ring::create(dir.path(), &keyspace(2), config(32)).unwrap();
    (0..10).for_each(|number| (1..3).for_each(|link| put(&ring, link, frame(number))));
    drop(ring);
    let ring = Ring::open(dir.path(), config(32)).unwrap();
    assert_eq!(shape(&window(&ring, frame(9), frame(11)).sources[0]), "C N");
    // Link 1 misses five frames, link 2 goes on as if nothing had been.
    put(&ring, 2, frame(10));
    (15..17).for_each(|number| put(&ring, 1, frame(number)));
    put(&ring, 1, frame(18));
    let gaps = ring.gaps(&source(&ring, 1), 0, u64::MAX).unwrap();
    let expected = [
        Gap { begin: frame(10), end: frame(15), cause: GapCause::Restart },
        Gap { begin: frame(17), end: frame(18), cause: GapCause::NeverArrived },
    ];
    assert_eq!(gaps, expected);
    assert!(ring.gaps(&source(&ring, 2), 0, u64::MAX).unwrap().is_empty());
    // Late data that covers the hole ends the gap.
    (10..15).for_each(|number| put(&ring, 1, frame(number)));
    assert_eq!(shape(&window(&ring, frame(9), frame(16)).sources[0]), "C");
    balanced(&ring);
}

#[test]
fn damage_is_found_named_and_booked_where_it_is_accepted() {
    let dir = TempDir::new();
    let ring = Ring::create(dir.path(), &keyspace(2), config(16)).unwrap();
    (0..60).for_each(|number| put(&ring, 1, frame(number)));
    let victim = frame(7);
    let bytes = super::payload(&source(&ring, 1), victim);
    ring.close().unwrap();
    drop(ring);
    let path = dir.path().join("ring.fb");
    let mut region = std::fs::read(&path).unwrap();
    let at = region.windows(bytes.len()).position(|window| window == bytes).unwrap();
    region[at + 3] ^= 0x10;
    std::fs::write(&path, &region).unwrap();
    let verified = || forebay_ring::RingConfig { verify: true, ..config(16) };
    // Without looking at bytes nobody notices, until a reader verifies.
    let ring = Ring::open(dir.path(), config(16)).unwrap();
    let seen = window(&ring, victim, victim + 1);
    let fragment = seen.sources[0].fragments().next().unwrap();
    assert!(super::refused(fragment.verify(), Kind::Corrupt).contains(&victim.to_string()));
    drop((seen, ring));
    assert!(super::refused(Ring::open(dir.path(), verified()), Kind::Corrupt).contains(&victim.to_string()));
    let accepting = forebay_ring::RingConfig { accept_loss: true, ..verified() };
    let ring = Ring::open(dir.path(), accepting.clone()).unwrap();
    assert_eq!(ring.losses().len(), 1);
    assert_eq!(shape(&window(&ring, frame(6), frame(9)).sources[0]), "C lost C");
    let ledger = ring.ledger_of(1);
    assert_eq!((ledger.imbalance(), ledger.lost.fragments, ledger.live.ready.fragments), (None, 1, 59));
    assert_eq!(ledger.lost.bytes, bytes.len() as u64);
    drop(ring);
    // Once accepted it is known, and the account stays.
    let ring = Ring::open(dir.path(), verified()).unwrap();
    assert_eq!((ring.ledger_of(1).lost.fragments, ring.losses().len()), (1, 0));
    balanced(&ring);
}

#[test]
fn a_directory_entry_that_rots_in_a_sealed_chunk_is_corruption() {
    let dir = TempDir::new();
    let ring = Ring::create(dir.path(), &keyspace(2), config(16)).unwrap();
    (0..60).for_each(|number| put(&ring, 1, frame(number)));
    ring.close().unwrap();
    drop(ring);
    let path = dir.path().join("ring.fb");
    let mut region = std::fs::read(&path).unwrap();
    // Entry 0 of segment 0 is at its end.
    region[8192 + (16 << 10) - 30] ^= 1;
    std::fs::write(&path, &region).unwrap();
    let message = super::refused(Ring::open(dir.path(), config(16)), Kind::Corrupt);
    assert!(message.contains("segment 0 entry 0"), "{message}");
    let accepting = forebay_ring::RingConfig { accept_loss: true, ..config(16) };
    let ring = Ring::open(dir.path(), accepting).unwrap();
    // Nobody can read what it was, but the account knows that one is missing.
    let ledger = ring.ledger_of(1);
    assert_eq!((ledger.imbalance(), ledger.lost.fragments, ledger.stored.fragments), (None, 1, 60));
    assert_eq!(shape(&window(&ring, frame(0), frame(2)).sources[0]), "G C");
}

/// Not a test by itself: what the parent starts. Without the variable that the parent sets there is nothing to do.
#[test]
fn child_role() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let from: u64 = std::env::var(FROM).unwrap().parse().unwrap();
    let ring = Ring::open(Path::new(&dir), forebay_ring::RingConfig { maintenance: true, ..config(CHUNKS) }).unwrap();
    std::thread::scope(|scope| {
        for link in 0..LINKS {
            let ring = ring.clone();
            scope.spawn(move || {
                for number in from..from + 1_000_000 {
                    assert_eq!(put_in(&ring, 1, link, frame(number), SPAN).unwrap(), RingOutcome::Stored);
                    let line = format!("\n@ {link} {number}\n");
                    let mut out = std::io::stdout().lock();
                    // Without a parent there is no reason to go on.
                    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
                        std::process::exit(3);
                    }
                }
            });
        }
    });
}

/// Starts a child, kills it after this many lines; the last acknowledged frame of each link.
fn one_life(dir: &Path, from: u64, lines: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["restart::child_role", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, dir)
        .env(FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut said = vec![None; LINKS as usize];
    let (mut line, mut count) = (String::new(), 0);
    // A line without its end was cut off by the kill: it was not said.
    while reader.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        if let Some((link, number)) = line.trim_end().strip_prefix("@ ").and_then(|rest| rest.split_once(' ')) {
            said[link.parse::<usize>().unwrap()] = Some(number.parse().unwrap());
            count += 1;
            if count == lines {
                child.kill().unwrap();
            }
        }
        line.clear();
    }
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "the child ended by itself: {status}");
    said.into_iter().map(|number| number.unwrap_or(from - 1)).collect()
}

#[test]
fn everything_acknowledged_before_a_kill_is_there() {
    let dir = TempDir::new();
    drop(Ring::create(dir.path(), &keyspace(LINKS as u32), config(CHUNKS)).unwrap());
    let mut from = 1000;
    let mut wrapped = 0;
    for (round, lines) in [1, 50, 700, 3000, 5000, 200, 4001].into_iter().enumerate() {
        let acknowledged = one_life(dir.path(), from, lines);
        let ring = Ring::open(dir.path(), config(CHUNKS)).unwrap();
        balanced(&ring);
        let statuses = ring.sources();
        let mut newest = from;
        for status in &statuses {
            let link = status.source.values()[1] as usize;
            let (last, end) = (acknowledged[link], status.newest.unwrap());
            if last + 1 == from && end <= frame(from) {
                // The kill came before its first put of this life.
                continue;
            }
            // At most one put of each link was on its way.
            assert!(end == frame(last + 1) || end == frame(last + 2), "round {round}, link {link}");
            newest = newest.max(last + 2);
            let only = RingSources::Only(vec![status.source]);
            let begin = status.oldest.unwrap().max(frame(from));
            let kept = ring.window(begin, end, &only, Duration::ZERO).unwrap();
            assert!(kept.is_complete(), "round {round}, link {link}: {kept:?}");
            genuine(&kept.sources[0]);
        }
        // Nothing was refused or repeated, so each link offered what it acknowledged, and at most one more.
        let ledger = ring.ledger_of(1);
        assert_eq!((ledger.stored, ledger.lost.fragments), (ledger.offered, 0), "round {round}");
        wrapped = ledger.expired.fragments;
        from = newest + 10;
    }
    assert!(wrapped > 2000, "{wrapped}: the ring never came round");
}

#[test]
fn a_kill_while_chunks_are_evicted_counts_each_fragment_once() {
    let dir = TempDir::new();
    drop(Ring::create(dir.path(), &keyspace(LINKS as u32), config(16)).unwrap());
    let mut put_in_all = 0;
    let mut from = 1;
    for lines in [2500, 2600, 2703, 2811] {
        let acknowledged = one_life(dir.path(), from, lines);
        put_in_all += acknowledged.iter().map(|last| last + 1 - from).sum::<u64>();
        from = acknowledged.iter().max().unwrap() + 10;
        let ring = Ring::open(dir.path(), config(16)).unwrap();
        let stored = ring.ledger_of(1).stored.fragments;
        // One more of each link may have been stored and not acknowledged.
        assert!((put_in_all..=put_in_all + LINKS).contains(&stored), "{stored} of {put_in_all}");
        put_in_all = stored;
        balanced(&ring);
    }
}

#[test]
fn what_was_evicted_stays_gone_after_a_restart() {
    let dir = TempDir::new();
    let ring = Ring::create(dir.path(), &keyspace(2), config(20)).unwrap();
    let mut number = 0;
    while ring.stats().evicted < 20 {
        (1..3).for_each(|link| put(&ring, link, frame(number)));
        number += 1;
    }
    let oldest: Vec<u64> = ring.sources().iter().map(|status| status.oldest.unwrap()).collect();
    let stored = ring.ledger().stored;
    drop(ring);
    let ring = Ring::open(dir.path(), config(20)).unwrap();
    for (link, oldest) in [1, 2].into_iter().zip(oldest) {
        for timestamp in [frame(3), oldest - u64::from(SPAN)] {
            let again = put_in(&ring, 1, link, timestamp, SPAN).unwrap();
            assert_eq!(again, RingOutcome::Refused(GapCause::TooLate), "link {link} at {timestamp}");
        }
    }
    assert_eq!(ring.ledger().stored, stored, "what had expired would be stored, and counted, a second time");
    let all = window(&ring, frame(3), frame(number));
    assert!(all.sources.iter().all(|source| shape(source) == "G C"), "{all:?}");
    drop(all);
    (1..3).for_each(|link| put(&ring, link, frame(number)));
    balanced(&ring);
}
