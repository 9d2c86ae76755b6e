//! A full ring beside it all: frames that push out older ones, the same again, other bytes, ticks that are too old; a ring
//! keyspace has its own books.

use super::books::Books;
use super::clock::JumpingClock;
use super::scene::{Scene, mixed};
use forebay_core::{Kind, Ledger, Result, RingKeyspace, Tally};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut};
use rand::RngExt;
use rand::rngs::StdRng;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Links of the ring, ticks of one frame, and the first tick.
const LINKS: u64 = 3;
const SPAN: u32 = 2048;
const FIRST: u64 = 1 << 40;

/// What was put into the ring so far, over all lives.
#[derive(Default)]
pub(super) struct RingBooks {
    frames: [u64; LINKS as usize],
    pub(super) offered: Tally,
    pub(super) stored: Tally,
    pub(super) duplicate: Tally,
    pub(super) conflict: Tally,
    /// Too late, out of step or without space: answered `Refused`.
    pub(super) refused: Tally,
}

/// Makes the ring, small enough to be full soon.
pub(super) fn create(dir: &Path) -> Result<()> {
    let mut keyspace = RingKeyspace::wibeth("chaos-ring", LINKS as u32)?;
    keyspace.history = Duration::from_millis(1);
    keyspace.max_skew = Duration::from_secs(3600);
    keyspace.fragment_bytes_max = 2000;
    Ring::create(dir, &keyspace, config())?.close()
}

fn config() -> RingConfig {
    // Its own clock: ticks are compared with it, and jumps are for the events.
    RingConfig { hot_bytes: 4 << 20, clock: Arc::new(JumpingClock::default()), ..RingConfig::default() }
}

/// One life of the ring: frames of every link, most of them new.
pub(super) fn live(scene: &Scene, dir: &Path, books: &mut RingBooks, random: &mut StdRng) -> Books {
    let mut notes = Books::default();
    let outcome = (|| -> Result<()> {
        let ring = Ring::open(dir, config())?;
        while !scene.over() {
            for _ in 0..64 {
                put(&ring, books, &mut notes, random)?;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        ring.close()
    })();
    notes.expect("ring", outcome);
    notes
}

fn put(ring: &Ring, books: &mut RingBooks, notes: &mut Books, random: &mut StdRng) -> Result<()> {
    let link = random.random_range(0..LINKS);
    let next = &mut books.frames[link as usize];
    let chance = random.random_range(0..100);
    let (number, wrong) = match chance {
        0..4 => (next.saturating_sub(1), false),
        4..6 => (next.saturating_sub(1), true),
        6..8 => (next.saturating_sub(random.random_range(1..20_000)), false),
        _ => {
            *next += 1;
            (*next - 1, false)
        }
    };
    let seed = mixed(link << 56 ^ number);
    let mut bytes = vec![seed as u8; (seed >> 8) as usize % 1500];
    if wrong {
        bytes.push(!(seed as u8));
    }
    let source = ring.keyspace().source(&[link])?;
    let offered = Tally::fragment(bytes.len() as u64);
    books.offered += offered;
    match ring.put(&source, FIRST + number * u64::from(SPAN), SPAN, &bytes, &RingPut { run: 1, status: 0 }) {
        Ok(RingOutcome::Stored) => books.stored += offered,
        Ok(RingOutcome::Duplicate) => books.duplicate += offered,
        Ok(RingOutcome::Refused(_)) => books.refused += offered,
        Err(error) if error.kind() == Kind::Conflict => books.conflict += offered,
        Err(error) => {
            books.offered -= offered;
            notes.problem(format!("ring put: {error}"));
        }
    }
    Ok(())
}

/// The ring's own account, for the comparison.
pub(super) fn account(dir: &Path) -> Result<Ledger> {
    let ring = Ring::open(dir, config())?;
    let ledger = ring.ledger();
    ring.close()?;
    Ok(ledger)
}
