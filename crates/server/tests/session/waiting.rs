//! Requests that wait: for space, for events, for what a run does.

use crate::session::raw::{Raw, frame, get, get_any, leases, outcomes, put, put_as};
use crate::session::scene::{RUN, Scene, until};
use forebay_core::{Bounds, Call, Kind, PutOptions, PutOutcome};
use forebay_wire::{Control, FrameKind, WireJudgement, WireVerdict, WireWriter};
use std::time::{Duration, Instant};

fn nothing_is_delayed(raw: &mut Raw, scene: &Scene, others: usize) {
    for _ in 0..others {
        raw.ping();
        let answer = raw.ask(Call::Get, &get(&[scene.key(1, 0)]), b"");
        assert_eq!(answer.payload.len(), 100);
    }
}

#[test]
fn a_put_without_space_delays_nothing_else() {
    let scene = Scene::with(|_| {}, |config| config.hot_bytes = 4 << 20);
    scene.event(1, 100);
    let next = scene.fill(50_000);
    let mut raw = scene.client();
    let wait = Some(Duration::from_millis(100));
    let (meta, payload) = put(&scene.keyspace, &[(scene.key(next + 1, 0), &[1; 50_000], wait)]);
    let waiting = raw.send(Call::Put, &meta, &payload);
    let full = outcomes(&raw.answer(waiting)).pop().unwrap().unwrap_err();
    assert_eq!(full.kind(), Kind::Full);
    // With space it goes in while it waits. If it kept others waiting, it would end before they are answered, and would
    // find no space.
    let (meta, payload) =
        put(&scene.keyspace, &[(scene.key(next + 1, 0), &[1; 50_000], Some(Duration::from_secs(20)))]);
    let waiting = raw.send(Call::Put, &meta, &payload);
    nothing_is_delayed(&mut raw, &scene, 20);
    let bounds = Bounds::parse(&scene.keyspace.schema, "1/100000-100020").unwrap();
    assert!(scene.store.remove_range(&bounds).unwrap() > 0);
    let _ = outcomes(&raw.answer(waiting)).pop().unwrap().unwrap();
    scene.check_ledger();
}

/// What waits for a device does so in memory of the store, but for short fragments: the server's is for what finds no space.
#[test]
fn persisted_fragments_leave_the_servers_memory_to_others() {
    let dir = std::env::temp_dir().join(format!("forebay-session-persisted-{}", std::process::id()));
    let scene = Scene::with(
        |limits| (limits.window_bytes, limits.memory_bytes_max) = (1 << 20, 1 << 20),
        |config| {
            config.warm = vec![forebay_store::WarmDevice::directory(dir.clone(), 64 << 20)];
            (config.container_bytes, config.device_log_bytes) = (1 << 20, 256 << 10);
        },
    );
    let values: Vec<Vec<u8>> = [0, 100, 10_000, 40_000].map(|length| vec![5; length]).into();
    let mut all: Vec<Raw> = (0..6).map(|_| scene.client()).collect();
    let mut sent = Vec::new();
    for (client, raw) in all.iter_mut().enumerate() {
        let key = |at| scene.key(1000 * client as u64 + at as u64, 0);
        let puts: Vec<_> = (0..60).map(|at| (key(at), &values[at % values.len()][..], None)).collect();
        let (meta, payload) = put_as(&scene.keyspace, &puts, true);
        sent.push(raw.send(Call::Put, &meta, &payload));
    }
    for (raw, number) in all.iter_mut().zip(sent) {
        for outcome in outcomes(&raw.answer(number)) {
            assert_eq!(outcome.unwrap(), PutOutcome::Stored);
        }
    }
    scene.check_ledger();
    drop(scene);
    std::fs::remove_dir_all(&dir).ok();
}

/// One frame with more fragments than may wait: it waits as a whole no longer than each of them, on a few threads.
#[test]
fn a_frame_of_puts_that_wait_takes_no_more_threads_than_allowed() {
    let scene = Scene::with(
        |limits| (limits.waiting_max, limits.waiting_threads_max) = (4, 4),
        |config| config.hot_bytes = 4 << 20,
    );
    scene.event(1, 100);
    let next = scene.fill(40_000);
    for wait in [Some(Duration::from_secs(1)), None] {
        let keys: Vec<_> = (0..20).map(|more| scene.key(next + 1 + more, 0)).collect();
        let value = [1; 40_000];
        let all: Vec<_> = keys.iter().map(|key| (*key, &value[..], wait)).collect();
        let (meta, payload) = put(&scene.keyspace, &all);
        let mut raw = scene.client();
        let from = Instant::now();
        let before = threads();
        let number = raw.send(Call::Put, &meta, &payload);
        let mut other = scene.client();
        nothing_is_delayed(&mut other, &scene, 5);
        assert!(threads() <= before + 8);
        let outcomes = outcomes(&raw.answer(number));
        assert_eq!(outcomes.len(), 20);
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.kind() == Kind::Full)));
        assert!(from.elapsed() < Duration::from_secs(15), "each waited after the other: {:?}", from.elapsed());
    }
}

/// However many wait for space, threads are left for what frees it.
#[test]
fn puts_without_space_leave_threads_for_what_frees_it() {
    let scene = Scene::with(|limits| limits.waiting_threads_max = 4, |config| config.hot_bytes = 4 << 20);
    scene.event(1, 100);
    let next = scene.fill(50_000);
    let wait = Some(Duration::from_secs(20));
    let mut producers: Vec<Raw> = (0..8).map(|_| scene.client()).collect();
    let waiting = producers.iter_mut().zip(next + 1..).map(|(raw, event)| {
        let (meta, payload) = put(&scene.keyspace, &[(scene.key(event, 0), &[1; 50_000], wait)]);
        raw.send(Call::Put, &meta, &payload)
    });
    let waiting: Vec<_> = waiting.collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut operator = scene.client();
    let from = Instant::now();
    let holds = serde_json::to_vec(&Control::Holds).unwrap();
    assert!(!operator.ask(FrameKind::Control, &holds, b"").head.flags.is_error());
    let bounds = Bounds::parse(&scene.keyspace.schema, "1/100000-100030").unwrap();
    assert!(scene.store.remove_range(&bounds).unwrap() > 0);
    assert!(from.elapsed() < Duration::from_secs(10), "it waited behind the puts: {:?}", from.elapsed());
    for (raw, number) in producers.iter_mut().zip(waiting) {
        let _ = outcomes(&raw.answer(number)).pop().unwrap().unwrap();
    }
    scene.check_ledger();
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn nobody_waits_longer_than_the_server_allows() {
    let scene = Scene::with(|limits| limits.wait_max = Duration::from_millis(300), |config| config.hot_bytes = 4 << 20);
    let next = scene.fill(50_000);
    let mut raw = scene.client();
    let from = Instant::now();
    let (meta, payload) =
        put(&scene.keyspace, &[(scene.key(next + 1, 0), &[1; 50_000], Some(Duration::from_secs(3600)))]);
    let put = raw.send(Call::Put, &meta, &payload);
    let full = outcomes(&raw.answer(put)).pop().unwrap().unwrap_err();
    assert_eq!(full.kind(), Kind::Full);
    assert!(raw.get_any(&scene.keyspace, 0, Duration::from_secs(3600)).is_empty());
    let object = watch(&mut raw);
    let number = raw.send(Call::Watch, &next_of(object, Duration::from_secs(3600)), b"");
    assert!(!raw.answer(number).head.flags.is_error());
    let number = raw.send(Call::Watch, &next_of(object, Duration::from_secs(3600)), b"");
    assert_eq!(raw.answer(number).meta, b"null");
    assert!(from.elapsed() < Duration::from_secs(60));
}

fn watch(raw: &mut Raw) -> u32 {
    let meta = serde_json::to_vec(&Control::Watch { run: RUN }).unwrap();
    let answer = raw.ask(FrameKind::Control, &meta, b"");
    serde_json::from_slice(&answer.meta).unwrap()
}

fn next_of(object: u32, wait: Duration) -> Vec<u8> {
    let mut out = WireWriter::new();
    out.u32(object);
    out.milliseconds(wait).unwrap();
    out.finish()
}

/// Many who watch do not keep the few threads that there are from anybody.
#[test]
fn watchers_keep_no_thread() {
    let scene = Scene::with(|limits| limits.waiting_threads_max = 2, |_| {});
    let mut all: Vec<Raw> = (0..20).map(|_| scene.client()).collect();
    for raw in &mut all {
        let object = watch(raw);
        let number = raw.send(Call::Watch, &next_of(object, Duration::ZERO), b"");
        raw.answer(number);
        raw.send(Call::Watch, &next_of(object, Duration::from_secs(30)), b"");
    }
    let from = Instant::now();
    let mut other = scene.client();
    let holds = serde_json::to_vec(&Control::Holds).unwrap();
    assert!(!other.ask(FrameKind::Control, &holds, b"").head.flags.is_error());
    assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
    scene.store.run_pause(RUN).unwrap();
    for raw in &mut all {
        assert!(raw.frame().meta.starts_with(b"{"));
    }
    assert!(from.elapsed() < Duration::from_secs(25), "{:?}", from.elapsed());
}

#[test]
fn events_are_given_soon_after_they_are_ready() {
    let scene = Scene::new();
    let mut raw = scene.client();
    let from = Instant::now();
    assert!(raw.get_any(&scene.keyspace, 3, Duration::from_millis(200)).is_empty());
    let waited = from.elapsed();
    assert!((Duration::from_millis(190)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
    for event in 0..10 {
        let number = raw.send(Call::GetAny, &get_any(3, Duration::from_secs(60)), b"");
        // What else is asked is answered meanwhile.
        raw.ping();
        std::thread::sleep(Duration::from_millis(20));
        let from = Instant::now();
        scene.event(event, 100);
        assert_eq!(leases(&scene.keyspace, &raw.answer(number)).len(), 1);
        assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
    }
}

#[test]
fn all_who_wait_are_served() {
    for warm in [false, true] {
        let dir = std::env::temp_dir().join(format!("forebay-session-warm-{}", std::process::id()));
        let scene = Scene::with(
            |limits| limits.waiting_threads_max = 4,
            |config| {
                if warm {
                    config.warm = vec![forebay_store::WarmDevice::directory(dir.clone(), 16 << 20)];
                    (config.container_bytes, config.device_log_bytes) = (1 << 20, 256 << 10);
                }
            },
        );
        let mut all: Vec<Raw> = (0..60).map(|_| scene.client()).collect();
        for raw in &mut all {
            raw.send(Call::GetAny, &get_any(1, Duration::from_secs(40)), b"");
        }
        let from = Instant::now();
        // What needs a thread is answered although all of them wait.
        let mut other = scene.client();
        let holds = serde_json::to_vec(&Control::Holds).unwrap();
        assert!(!other.ask(FrameKind::Control, &holds, b"").head.flags.is_error());
        for event in 0..60 {
            scene.event(event, 100);
        }
        let mut seen = Vec::new();
        for raw in &mut all {
            let answer = raw.frame();
            let leases = leases(&scene.keyspace, &answer);
            assert_eq!(leases.len(), 1);
            seen.push(leases[0].event.primary);
        }
        assert!(from.elapsed() < Duration::from_secs(30), "warm {warm}: {:?}", from.elapsed());
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 60, "each event is leased once");
        drop(scene);
        std::fs::remove_dir_all(&dir).ok();
    }
}

/// More events than an answer can say are not leased.
#[test]
fn no_more_is_leased_than_the_client_takes() {
    let scene = Scene::new();
    for event in 0..200 {
        scene.event(event, 8000);
    }
    let mut raw = scene.stranger().hello(64 << 10);
    let leases = raw.get_any(&scene.keyspace, 4000, Duration::ZERO);
    assert!((4..=40).contains(&leases.len()), "{}", leases.len());
    until("no others are out", || scene.store.stats().leases == leases.len() as u64);
    let mut seen = leases.len();
    while seen < 200 {
        let more = raw.get_any(&scene.keyspace, 4000, Duration::ZERO);
        assert!(!more.is_empty(), "{seen}");
        assert!(more.iter().all(|lease| lease.delivery == 1));
        seen += more.len();
    }
}

/// An answer that has to wait for a client while others of the same connection reach their deadline.
#[test]
fn a_deadline_behind_a_full_connection_does_not_spin() {
    let scene = Scene::alone();
    scene.event(1, 100_000);
    scene.client().get_any(&scene.keyspace, 1, Duration::ZERO);
    let mut raw = scene.stranger().hello(64 << 10);
    let asked = raw.send(Call::GetAny, &get_any(1, Duration::from_millis(50)), b"");
    let number = raw.send(Call::Get, &get(&[scene.key(1, 0), scene.key(1, 1)]), b"");
    std::thread::sleep(Duration::from_millis(100));
    let before = cpu();
    std::thread::sleep(Duration::from_millis(500));
    let spent = cpu() - before;
    assert!(spent < 30, "{spent} of 50 ticks were spent waiting");
    let first = raw.frame();
    assert_eq!(first.head.request, number);
    raw.credit(first.head.frame_bytes() as u32);
    let mut left = 2;
    while left > 0 {
        let next = raw.frame();
        raw.credit(next.head.frame_bytes() as u32);
        left -= usize::from(!next.head.flags.has_more());
        assert!(next.head.request == asked || next.head.request == number);
    }
}

/// Ticks of 10 ms that the threads of servers of this process spent.
fn cpu() -> u64 {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        if name.starts_with("serve") {
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            ticks = ticks.max(fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap());
        }
    }
    ticks
}

/// A verdict covers exactly what its event has: it lets a put end that began before the lease. Nobody else waits with it.
#[test]
fn a_verdict_that_lets_a_put_end_delays_nothing_else() {
    let scene = Scene::with(|_| {}, |config| config.put_deadline = Duration::from_secs(20));
    scene.event(1, 100);
    let mut raw = scene.client();
    raw.get_any(&scene.keyspace, 1, Duration::ZERO);
    let begun = scene.store.reserve(&scene.key(2, 9), 100, &PutOptions::default()).unwrap();
    scene.event(2, 100);
    let lease = raw.get_any(&scene.keyspace, 1, Duration::ZERO).pop().unwrap();
    let verdict = WireVerdict {
        primary: lease.event.primary,
        token: lease.token,
        judgement: WireJudgement::Reject,
        results: vec![],
    };
    let judged = raw.send(Call::Verdict, &WireVerdict::encode_all(&[verdict]).unwrap(), b"");
    let mut other = scene.client();
    nothing_is_delayed(&mut other, &scene, 20);
    nothing_is_delayed(&mut raw, &scene, 20);
    assert_eq!(scene.store.stats().leases, 2, "it waits for the put");
    drop(begun);
    let answer = raw.answer(judged);
    assert!(!answer.head.flags.is_error());
    until("the event is decided", || scene.store.stats().leases == 1);
    scene.check_ledger();
}

/// Clients that come, ask for what waits, and go, get no more threads than one that stays.
#[test]
fn who_goes_while_it_waits_is_counted_until_its_work_is_done() {
    let scene = Scene::with(|limits| limits.connections_max = 8, |config| config.hot_bytes = 4 << 20);
    let next = scene.fill(50_000);
    let (meta, payload) =
        put(&scene.keyspace, &[(scene.key(next + 1, 0), &[1; 50_000], Some(Duration::from_millis(900)))]);
    let bytes = frame(Call::Put, 1, &meta, &payload);
    let mut served = 0;
    for _ in 0..60 {
        let mut raw = scene.stranger();
        let hello = crate::session::raw::hello(1 << 20);
        if std::io::Write::write_all(&mut raw.socket, &[&hello[..], &bytes].concat()).is_ok()
            && raw.try_frame().is_some()
        {
            served += 1;
        }
    }
    assert!((1..=8).contains(&served), "{served} at once");
    until("they can come back", || {
        let mut raw = scene.stranger();
        std::io::Write::write_all(&mut raw.socket, &crate::session::raw::hello(1 << 20)).is_ok()
            && raw.try_frame().is_some()
    });
}

/// Puts of many connections that wait for space take no more memory than the server has for that; it comes back with them.
#[test]
fn what_waits_is_refused_where_memory_for_it_is_taken() {
    let scene = Scene::with(
        |limits| (limits.memory_bytes_max, limits.window_bytes) = (2 << 20, 1 << 20),
        |config| config.hot_bytes = 4 << 20,
    );
    scene.event(1, 100);
    let next = scene.fill(50_000);
    let wait = Some(Duration::from_secs(2));
    let value = [1; 50_000];
    let mut waiting = Vec::new();
    for client in 0..10 {
        let keys: Vec<_> = (0..8).map(|more| scene.key(next + 1 + 8 * client + more, 0)).collect();
        let all: Vec<_> = keys.iter().map(|key| (*key, &value[..], wait)).collect();
        let (meta, payload) = put(&scene.keyspace, &all);
        let mut raw = scene.client();
        let number = raw.send(Call::Put, &meta, &payload);
        waiting.push((raw, number));
    }
    let mut refused = 0;
    for (raw, number) in &mut waiting {
        for outcome in outcomes(&raw.answer(*number)) {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), Kind::Full);
            refused += u32::from(error.message().contains("memory_bytes_max"));
        }
    }
    // 80 times 50 kB were put where 2 MiB may wait.
    assert!((30..=50).contains(&refused), "{refused} of 80");
    // All of it came back: as many may wait again.
    let (meta, payload) = put(&scene.keyspace, &[(scene.key(next + 1000, 0), &value, Some(Duration::ZERO))]);
    let (raw, _) = &mut waiting[0];
    let number = raw.send(Call::Put, &meta, &payload);
    let error = outcomes(&raw.answer(number)).pop().unwrap().unwrap_err();
    assert!(!error.message().contains("memory_bytes_max"), "{error}");
}
