//! What movers are promised: a claim that is theirs alone, and custody that neither a kill nor an update can fool.

use super::{create, events_of, two_levels};
use crate::common::{TempDir, assert_balanced, eventually, key, put, refused, small_config};
use forebay_store::core::{
    Claim, ClaimRequest, Clock, Keyspace, Kind, LiveState, ManualTime, MovedStore, Primary, Tally, Timer, Unit,
};
use forebay_store::{Config, GetAny, Sources, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const REQUEST: ClaimRequest = ClaimRequest {
    device: None,
    move_after: Duration::ZERO,
    duration: Duration::from_secs(60),
    archive: None,
    another: false,
};

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[1, event]).unwrap()
}

fn accepted(store: &Store, events: std::ops::Range<u64>) {
    for event in events {
        for source in 0..2 {
            let key = key(1, event, source);
            let _ = put(store, &key, &[event as u8; 3000]).unwrap();
        }
        store.lease(&primary(store, event), None).unwrap().expect("a ready event").accept(&["physics"]).unwrap();
    }
}

fn state(store: &Store, event: u64) -> Option<LiveState> {
    store.get_event(&primary(store, event), &Sources::None).unwrap().map(|event| event.state)
}

/// All containers are written, closed and claimed, one after the other.
fn claim(store: &Store) -> Option<Claim> {
    store.tick();
    store.claim(&REQUEST).unwrap()
}

fn events_of_claim(store: &Store, claim: &Claim) -> Vec<Primary> {
    let mut events = Vec::new();
    loop {
        let page = store.claimed(&claim.token, events.len() as u64).unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page.into_iter().filter(|event| event.event_fragments > 0).map(|event| event.primary));
    }
}

fn in_state(store: &Store, state: &str) -> usize {
    store.containers().iter().filter(|container| container.state == state).count()
}

/// No time in custody, so that what is proved goes with the next round.
fn at_once(config: Config) -> Config {
    Config { custody_min: Duration::ZERO, ..config }
}

#[test]
fn what_is_proved_is_in_custody_and_goes_when_its_time_has_come() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    accepted(&store, 0..5);
    let one = claim(&store).expect("a container");
    assert!(store.claim(&REQUEST).unwrap().is_none(), "a unit has one claim");
    assert_eq!(events_of_claim(&store, &one).len(), 5);
    assert_eq!((one.events, one.bytes), (5, 5 * 2 * 3000));
    assert_eq!(store.prove(&one.token).unwrap(), 5);
    assert_eq!(store.prove(&one.token).unwrap(), 5, "a proof may be repeated");
    refused(store.claimed(&one.token, 0), Kind::Fenced);
    let ledger = store.ledger(1).unwrap();
    assert_eq!((ledger.in_custody.events, ledger.released.events), (5, 0));
    assert_eq!(in_state(&store, "custody"), 1);
    assert_balanced(&store);
    assert_eq!(state(&store, 3), Some(LiveState::Accepted), "it can be read");

    // Over a restart; then its time has come.
    store.close().unwrap();
    drop(store);
    let config = at_once(two_levels(dir.path(), 1));
    let store = Store::open(&dir.store(), Config { custody_min: Duration::from_secs(3600), ..config.clone() }).unwrap();
    store.tick();
    assert_eq!(store.ledger(1).unwrap().in_custody.events, 5);
    assert!(claim(&store).is_none());
    drop(store);
    let store = Store::open(&dir.store(), config).unwrap();
    eventually(&store, "the container is empty", || in_state(&store, "empty") == store.containers().len());
    let ledger = store.ledger(1).unwrap();
    assert_eq!((ledger.released.events, ledger.in_custody.events), (5, 0));
    assert_balanced(&store);
}

#[test]
fn a_claim_ends_with_its_time_with_its_life_or_when_it_is_given_back() {
    let dir = TempDir::new();
    let time = Arc::new(ManualTime::default());
    let config = Config { clock: time.clone(), ..two_levels(dir.path(), 1) };
    let store = create(&dir, &events_of(2), &config);
    accepted(&store, 0..5);
    let first = claim(&store).unwrap();
    store.give_back(&first.token).unwrap();
    refused(store.give_back(&first.token), Kind::Fenced);
    let second = claim(&store).unwrap();
    assert_ne!(first.token, second.token);
    assert_eq!(first.unit, second.unit, "the same filling of the same container");
    time.advance(Duration::from_secs(50));
    store.extend_claim(&second.token, Duration::from_secs(60)).unwrap();
    time.advance(Duration::from_secs(50));
    assert!(claim(&store).is_none(), "it was extended");
    time.advance(Duration::from_secs(20));
    let third = claim(&store).expect("its time was over");
    // The second mover finishes late.
    refused(store.prove(&second.token), Kind::Fenced);
    refused(store.extend_claim(&second.token, Duration::from_secs(60)), Kind::Fenced);
    assert_eq!(store.ledger(1).unwrap().in_custody.events, 0);
    store.close().unwrap();
    drop(store);
    let store = Store::open(&dir.store(), config).unwrap();
    refused(store.prove(&third.token), Kind::Fenced);
    assert_eq!(claim(&store).expect("it is full again").unit, third.unit);
    assert!(store.warm_stats().unwrap().devices.iter().all(|device| device.draining == 1));
}

/// Events that nobody could process.
fn debugged(store: &Store, events: std::ops::Range<u64>) {
    for event in events.clone() {
        for source in 0..2 {
            let _ = put(store, &key(1, event, source), &[1; 3000]).unwrap();
        }
    }
    // Kept, not dropped: a worker that is not heard of any more.
    let lost = store.get_any(&GetAny { n: events.count(), ..GetAny::default() }).unwrap();
    eventually(store, "they are in the debug stream", || store.debug_events().len() == lost.len());
    lost.into_iter().for_each(std::mem::forget);
}

/// One delivery, and a short lease.
fn fragile(dir: &TempDir, config: Config) -> Store {
    let keyspace = Keyspace { deliveries_max: 1, ..events_of(2) };
    create(dir, &keyspace, &Config { lease: Duration::from_millis(20), ..config })
}

#[test]
fn what_changes_after_its_claim_is_moved_again() {
    let dir = TempDir::new();
    let store = fragile(&dir, at_once(two_levels(dir.path(), 1)));
    debugged(&store, 0..5);
    let first = claim(&store).unwrap();
    assert_eq!(events_of_claim(&store, &first).len(), 5);
    // While a mover has the container: one is replayed, updated and accepted, one replayed, one removed, one loses a fragment.
    assert!(store.replay(&primary(&store, 0)).unwrap() && store.replay(&primary(&store, 1)).unwrap());
    let lease = store.lease(&primary(&store, 0), Some(Duration::from_secs(600))).unwrap().unwrap();
    let _ = store.update(&key(1, 0, 0), &[2; 1000], Some(&lease.token)).unwrap();
    lease.accept(&["physics"]).unwrap();
    assert!(store.remove_event(&primary(&store, 2)).unwrap());
    assert!(store.remove(&key(1, 3, 0)).unwrap());
    assert_eq!(store.prove(&first.token).unwrap(), 2, "events 3 and 4");
    eventually(&store, "what was proved is released", || state(&store, 4).is_none());
    assert_eq!(store.ledger(1).unwrap().released.events, 2);
    assert_eq!((state(&store, 0), state(&store, 1)), (Some(LiveState::Accepted), Some(LiveState::Ready)));
    // It goes down again, to another container, which is the archive's next.
    let second = claim(&store).expect("what has changed");
    assert_eq!(events_of_claim(&store, &second), [primary(&store, 0)]);
    let seen = store.get_event(&primary(&store, 0), &Sources::All).unwrap().unwrap();
    assert_eq!((&seen.fragments[0][..], seen.fragments[0].verify().is_ok()), (&[2; 1000][..], true));
    drop(seen);
    assert_eq!(store.prove(&second.token).unwrap(), 1);
    eventually(&store, "it is released", || state(&store, 0).is_none());
    assert_balanced(&store);
}

/// Claims of everything, with the sources of each event in them, and the device.
fn claims_of(store: &Store, devices: usize) -> Vec<(Claim, BTreeMap<Primary, usize>, usize)> {
    let mut claims = Vec::new();
    for device in 0..devices {
        store.tick();
        while let Some(claim) = store.claim(&ClaimRequest { device: Some(device as u32), ..REQUEST }).unwrap() {
            let page = store.claimed(&claim.token, 0).unwrap();
            let sources = page.iter().map(|event| (event.primary, event.sources.as_ref().map_or(10, Vec::len)));
            claims.push((claim, sources.collect(), device));
        }
    }
    claims
}

#[test]
fn parts_on_several_devices_may_change_between_claim_and_proof() {
    let dir = TempDir::new();
    let keyspace = Keyspace { deliveries_max: 1, ..events_of(10) };
    let config = Config { lease: Duration::from_millis(20), ..at_once(two_levels(dir.path(), 2)) };
    let store = create(&dir, &keyspace, &config);
    for event in 0..4 {
        for source in 0..10 {
            let _ = put(&store, &key(1, event, source), &[7; 40_000]).unwrap();
        }
    }
    let lost = store.get_any(&GetAny { n: 4, ..GetAny::default() }).unwrap();
    eventually(&store, "they are in the debug stream", || store.debug_events().len() == 4);
    drop(lost);
    let claims = claims_of(&store, 2);
    let parts = |event: u64| {
        let of_event =
            claims.iter().filter_map(|(_, sources, device)| Some((sources.get(&primary(&store, event))?, device)));
        of_event.fold([0, 0], |mut parts, (sources, device)| {
            parts[*device] += sources;
            parts
        })
    };
    for event in 0..4 {
        let [one, other] = parts(event);
        assert_eq!(one + other, 10, "each fragment of event {event} is in one claim");
    }
    assert!((0..4).any(|event| parts(event).iter().all(|part| *part > 0)), "an event has parts on both devices");
    // While movers have all parts: one is replayed, updated in its first and last source, and accepted; one loses a fragment of
    // each end; one is removed.
    assert!(store.replay(&primary(&store, 0)).unwrap());
    let lease = store.lease(&primary(&store, 0), Some(Duration::from_secs(600))).unwrap().unwrap();
    for source in [0, 9] {
        let _ = store.update(&key(1, 0, source), &[2; 1000], Some(&lease.token)).unwrap();
    }
    lease.accept(&["physics"]).unwrap();
    assert!(store.remove(&key(1, 1, 0)).unwrap() && store.remove(&key(1, 1, 9)).unwrap());
    assert!(store.remove_event(&primary(&store, 2)).unwrap());
    claims.iter().for_each(|(claim, ..)| _ = store.prove(&claim.token).unwrap());
    eventually(&store, "what did not change is released", || state(&store, 1).is_none() && state(&store, 3).is_none());
    assert_eq!(store.ledger(1).unwrap().released, Tally { events: 2, fragments: 18, bytes: 18 * 40_000 });
    let whole = |store: &Store| {
        let event = store.get_event(&primary(store, 0), &Sources::All).unwrap().unwrap();
        assert_eq!((event.state, event.fragments.len()), (LiveState::Accepted, 10));
        event.fragments.iter().for_each(|fragment| fragment.verify().unwrap());
        [0, 9].map(|at| event.fragments[at].to_vec())
    };
    assert_eq!(whole(&store), [[2; 1000], [2; 1000]], "the new versions stay until they are proved");
    assert_balanced(&store);
    store.close().unwrap();
    drop(store);
    let store = Store::open(&dir.store(), config).unwrap();
    assert_eq!(whole(&store), [[2; 1000], [2; 1000]]);
    let again = claims_of(&store, 2);
    assert!(
        again.iter().all(|(_, sources, _)| sources.keys().eq([&primary(&store, 0)])),
        "the archive lacks event 0 alone"
    );
    let sources: usize = again.iter().flat_map(|(_, sources, _)| sources.values()).sum();
    assert_eq!(sources, 10, "all of it is archived again, as it was accepted");
    again.iter().for_each(|(claim, ..)| _ = store.prove(&claim.token).unwrap());
    eventually(&store, "it is released", || state(&store, 0).is_none());
    assert_balanced(&store);
}

/// Its container was reclaimed under the claim: there is nothing left to prove, and no failure.
#[test]
fn a_claim_of_which_everything_ended_proves_nothing() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    accepted(&store, 0..5);
    let one = claim(&store).expect("a container");
    for event in 0..5 {
        store.release(&primary(&store, event)).unwrap();
    }
    eventually(&store, "the container is empty", || in_state(&store, "draining") == 0);
    assert_eq!(store.prove(&one.token).unwrap(), 0);
    // The next filling of the container is none of the claim's business.
    accepted(&store, 5..10);
    let other = claim(&store).expect("a container");
    assert_eq!(store.prove(&one.token).unwrap(), 0, "a proof may be repeated");
    assert_eq!((in_state(&store, "custody"), store.prove(&other.token).unwrap()), (0, 5));
    assert_balanced(&store);
}

#[test]
fn a_replay_of_what_is_in_custody_takes_it_out() {
    let dir = TempDir::new();
    let store = fragile(&dir, two_levels(dir.path(), 1));
    debugged(&store, 0..5);
    let first = claim(&store).unwrap();
    assert_eq!(store.prove(&first.token).unwrap(), 5);
    assert!(store.replay(&primary(&store, 0)).unwrap());
    assert!(store.remove(&key(1, 1, 0)).unwrap());
    assert_eq!(store.ledger(1).unwrap().in_custody.events, 3, "what is left of event 1 is booked again later");
    assert_balanced(&store);
    store.lease(&primary(&store, 0), None).unwrap().unwrap().accept(&["physics"]).unwrap();
    let second = claim(&store).expect("the event that was accepted since");
    assert_eq!(events_of_claim(&store, &second), [primary(&store, 0)]);
    assert_eq!(store.prove(&second.token).unwrap(), 1);
    assert_balanced(&store);
}

#[test]
fn an_event_over_several_containers_is_released_when_the_last_part_is_proved() {
    let dir = TempDir::new();
    let keyspace = events_of(10);
    let store = create(&dir, &keyspace, &at_once(two_levels(dir.path(), 1)));
    for event in 0..2 {
        for source in 0..10 {
            let _ = put(&store, &key(1, event, source), &[7; 40_000]).unwrap();
        }
        store.lease(&primary(&store, event), None).unwrap().unwrap().accept(&["physics"]).unwrap();
    }
    let mut claims = Vec::new();
    while let Some(claim) = claim(&store) {
        let page = store.claimed(&claim.token, 0).unwrap();
        assert!(page.iter().all(|event| event.event_fragments == 10));
        claims.push((claim, page));
    }
    assert!(claims.len() >= 3, "{} containers of 256 KiB for 800 kB", claims.len());
    let parts: usize =
        claims.iter().flat_map(|(_, page)| page).map(|event| event.sources.as_ref().map_or(10, Vec::len)).sum();
    assert_eq!(parts, 20, "each fragment is in one of them");
    let last = claims.pop().unwrap();
    for (claim, _) in &claims {
        store.prove(&claim.token).unwrap();
    }
    store.tick();
    assert_eq!(state(&store, 1), Some(LiveState::Accepted));
    store.prove(&last.0.token).unwrap();
    eventually(&store, "both are released", || state(&store, 0).is_none() && state(&store, 1).is_none());
    assert_balanced(&store);
}

#[test]
fn above_its_mark_the_level_gives_up_the_oldest_early() {
    let dir = TempDir::new();
    let config = Config { custody_high: Some(0.05), ..two_levels(dir.path(), 1) };
    let store = create(&dir, &events_of(2), &config);
    accepted(&store, 0..60);
    let mut claimed = 0;
    while let Some(claim) = claim(&store) {
        claimed += store.prove(&claim.token).unwrap();
    }
    assert_eq!(claimed, 60);
    eventually(&store, "the level is below its mark", || store.warm_stats().unwrap().fill <= 0.05);
    let stats = store.warm_stats().unwrap();
    assert!(stats.custody_shortened >= 1 && stats.proved_ms > 0, "{stats:?}");
    assert_balanced(&store);
}

#[test]
fn a_store_without_a_warm_level_is_moved_in_batches() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &small_config());
    accepted(&store, 0..6);
    let patient = ClaimRequest { move_after: Duration::from_secs(3600), ..REQUEST };
    assert!(store.claim(&patient).unwrap().is_none(), "few events wait for more");
    let first = store.claim(&REQUEST).unwrap().unwrap();
    assert_eq!((first.events, &first.unit), (6, &Unit::Batch));
    assert!(store.claim(&REQUEST).unwrap().is_none(), "all are claimed");
    assert_eq!(events_of_claim(&store, &first).len(), 6);
    assert!(store.remove(&key(1, 0, 0)).unwrap() && store.remove(&key(1, 1, 0)).unwrap());
    assert!(store.release(&primary(&store, 2)).unwrap());
    assert_eq!(store.prove(&first.token).unwrap(), 3, "those that have the content that was seen");
    let second = store.claim(&REQUEST).unwrap().unwrap();
    assert_eq!(events_of_claim(&store, &second), [primary(&store, 0), primary(&store, 1)]);
    store.give_back(&second.token).unwrap();
    let third = store.claim(&REQUEST).unwrap().unwrap();
    assert_eq!(store.prove(&third.token).unwrap(), 0, "nothing that its mover has not asked for");
    let fourth = store.claim(&REQUEST).unwrap().unwrap();
    assert_eq!(events_of_claim(&store, &fourth).len(), 2);
    assert_eq!(store.prove(&fourth.token).unwrap(), 2);
    assert!(store.claim(&REQUEST).unwrap().is_none());
    assert_balanced(&store);
}

#[test]
fn what_nobody_has_decided_is_never_claimed() {
    let dir = TempDir::new();
    let config = Config { demote_high: 0.001, demote_low: 0.0, ..at_once(two_levels(dir.path(), 1)) };
    let store = create(&dir, &events_of(2), &config);
    for event in 0..5 {
        for source in 0..2 {
            let _ = put(&store, &key(1, event, source), &[1; 3000]).unwrap();
        }
    }
    assert!(claim(&store).is_none());
    let leases = store.get_any(&GetAny { n: 2, ..GetAny::default() }).unwrap();
    leases.into_iter().for_each(|lease| lease.accept(&["physics"]).unwrap());
    let claim = claim(&store).expect("the two that are accepted, written where such events go");
    assert_eq!(events_of_claim(&store, &claim).len(), 2);
    assert_eq!(store.prove(&claim.token).unwrap(), 2);
    eventually(&store, "they are released", || store.ledger(1).unwrap().released.events == 2);
    assert_balanced(&store);
}

#[test]
fn a_proof_of_a_batch_covers_only_what_was_seen_first() {
    let dir = TempDir::new();
    let store = fragile(&dir, small_config());
    debugged(&store, 0..4);
    let first = store.claim(&REQUEST).unwrap().unwrap();
    assert_eq!(events_of_claim(&store, &first).len(), 4);
    // Replayed and accepted with the same bytes: the archive knows it as an event of the debug stream, if at all.
    assert!(store.replay(&primary(&store, 0)).unwrap());
    let lease = store.lease(&primary(&store, 0), Some(Duration::from_secs(600))).unwrap().unwrap();
    lease.accept(&["physics"]).unwrap();
    // Changed, and listed again: the mover may have read it before.
    assert!(store.remove(&key(1, 1, 0)).unwrap());
    assert_eq!(events_of_claim(&store, &first).len(), 4);
    assert_eq!(store.prove(&first.token).unwrap(), 2, "events 2 and 3");
    assert_eq!(state(&store, 0), Some(LiveState::Accepted));
    let second = store.claim(&REQUEST).unwrap().unwrap();
    assert_eq!(events_of_claim(&store, &second), [primary(&store, 0), primary(&store, 1)]);
    assert_eq!(store.prove(&second.token).unwrap(), 2);
    assert_balanced(&store);
}

/// A container is full before its last images count. A mover that proved it at that moment would cover events that no mover saw.
#[test]
fn what_is_on_its_way_is_claimed_by_nobody() {
    const EVENTS: u64 = 4000;
    let dir = TempDir::new();
    let put_deadline = Duration::from_secs(60);
    let config = Config { maintenance: true, put_deadline, ..at_once(two_levels(dir.path(), 1)) };
    let store = create(&dir, &events_of(2), &config);
    let mut seen = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| accepted(&store, 0..EVENTS));
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        while !writer.is_finished() || store.ledger(1).unwrap().live.total().events > 0 {
            assert!(std::time::Instant::now() < deadline, "{:?}", store.ledger(1));
            let Some(claim) = store.claim(&REQUEST).unwrap() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            seen.extend(events_of_claim(&store, &claim));
            store.prove(&claim.token).unwrap();
        }
    });
    assert_eq!(store.ledger(1).unwrap().released.events, EVENTS);
    assert_eq!(seen.len() as u64, EVENTS, "what was released was seen by a mover");
    assert_balanced(&store);
}

/// A wall clock that is set by hand, beside the one of the machine that only goes forward.
#[derive(Debug, Default)]
struct SetByHand {
    time: ManualTime,
    wall_ms: AtomicU64,
}

impl Clock for SetByHand {
    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn timer(&self) -> &dyn Timer {
        self.time.timer()
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Relaxed)
    }
}

#[test]
fn a_wall_clock_that_jumps_makes_custody_no_shorter() {
    const HOUR: Duration = Duration::from_secs(3600);
    let dir = TempDir::new();
    let clock = Arc::new(SetByHand::default());
    let config = Config { clock: clock.clone(), custody_min: HOUR, ..two_levels(dir.path(), 1) };
    let store = create(&dir, &events_of(2), &config);
    accepted(&store, 0..5);
    let one = claim(&store).unwrap();
    clock.wall_ms.store(1, Ordering::Relaxed);
    // Proved by a clock that stands at 1970, which is set right a little later.
    assert_eq!(store.prove(&one.token).unwrap(), 5);
    clock.wall_ms.store(1_800_000_000_000, Ordering::Relaxed);
    clock.time.advance(HOUR / 2);
    (0..3).for_each(|_| store.tick());
    assert_eq!(store.ledger(1).unwrap().in_custody.events, 5);
    clock.time.advance(HOUR / 2);
    eventually(&store, "an hour is over", || store.ledger(1).unwrap().released.events == 5);
    // One that is set back makes it longer.
    accepted(&store, 5..10);
    let two = claim(&store).unwrap();
    assert_eq!(store.prove(&two.token).unwrap(), 5);
    clock.wall_ms.store(1_700_000_000_000, Ordering::Relaxed);
    clock.time.advance(2 * HOUR);
    (0..3).for_each(|_| store.tick());
    assert_eq!(store.ledger(1).unwrap().in_custody.events, 5);
    clock.wall_ms.store(1_800_003_600_000, Ordering::Relaxed);
    clock.time.advance(Duration::from_secs(1));
    eventually(&store, "it is right again", || store.ledger(1).unwrap().released.events == 10);
    assert_balanced(&store);
}

#[test]
fn a_container_that_its_mover_gives_back_lets_others_go_first() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 1));
    let mut units = Vec::new();
    for first in [0, 5, 10] {
        accepted(&store, first..first + 5);
        // Closed by a claim, which ends by nobody's fault.
        let claim = claim(&store).unwrap();
        units.push(claim.unit.clone());
        assert_eq!(claim.events, 5);
        store.give_back(&claim.token).unwrap();
    }
    let next = |_| {
        let claim = claim(&store).unwrap();
        store.give_back(&claim.token).unwrap();
        claim.unit
    };
    assert_ne!(units[0], units[1]);
    assert_ne!(units[1], units[2]);
    let seen: Vec<Unit> = (0..6).map(next).collect();
    assert!(units.iter().all(|unit| seen.iter().filter(|seen| *seen == unit).count() == 2), "{seen:?}");
}
