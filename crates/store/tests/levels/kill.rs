//! A process that persists and decides is killed, and what was memory is gone with it: what it had been told to be on a
//! device is there, and what it had decided about that is in force.

use super::{events_of, two_levels};
use crate::common::fixture::RUN;
use crate::common::{TempDir, assert_balanced, key, payload};
use forebay_store::core::LiveState;
use forebay_store::{Config, PutOptions, PutOutcome, Sources, Store};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const CHILD: &str = "FOREBAY_PERSIST_CHILD";
const FIRST: &str = "FOREBAY_PERSIST_FIRST";
const LANES: u64 = 2;
const MOST: usize = 5000;
const ROUNDS: u64 = 12;
/// Events of one round and lane.
const EVENTS: u64 = 4000;

fn config(dir: &Path) -> Config {
    Config {
        maintenance: true,
        accept_loss: true,
        put_deadline: std::time::Duration::from_secs(5),
        ..two_levels(dir, 2)
    }
}

fn bytes(event: u64, source: u64) -> Vec<u8> {
    payload(&key(RUN, event, source), event * 16 + source, MOST)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("\n@ {line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// Not a test by itself: what the parent starts. Without the variable that the parent sets there is nothing to do.
#[test]
fn child_role() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let dir = Path::new(&dir);
    let store = Store::open(&dir.join("store"), config(dir)).unwrap();
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let store = &store;
            scope.spawn(move || {
                for event in first + lane * EVENTS..first + (lane + 1) * EVENTS {
                    persist_and_decide(store, event);
                }
            });
        }
    });
    say("end");
}

fn persist_and_decide(store: &Store, event: u64) {
    for source in 0..2 {
        let options = PutOptions { persisted: true, ..PutOptions::default() };
        let outcome = store.put(&key(RUN, event, source), &bytes(event, source), &options).unwrap();
        assert_eq!(outcome, PutOutcome::Stored);
        say(&format!("put {event} {source}"));
    }
    if event.is_multiple_of(3) {
        return;
    }
    let name = store.schema().primary(&[RUN, event]).unwrap();
    let lease = store.lease(&name, None).unwrap().expect("a complete event");
    let accept = event % 3 == 1;
    // From here until it is answered the event may be either.
    say(&format!("deciding {event} 0"));
    if accept { lease.accept(&["main"]) } else { lease.reject() }.unwrap();
    say(&format!("decided {event} {}", u8::from(accept)));
    if accept && event.is_multiple_of(2) {
        say(&format!("deciding {event} 0"));
        assert!(store.release(&name).unwrap());
        say(&format!("decided {event} 0"));
    }
}

/// What the child was told of an event.
#[derive(Clone, Debug, Default)]
struct Told {
    sources: Vec<u64>,
    /// Accepted or gone; `None` in between.
    decided: Option<Option<bool>>,
}

fn life(dir: &Path, first: u64, lines: u64, told: &mut BTreeMap<u64, Told>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["levels::kill::child_role", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, dir)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut count) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        if let Some(said) = line.trim_end().strip_prefix("@ ") {
            let words: Vec<&str> = said.split(' ').collect();
            let [what, event, number] = words[..] else { panic!("the child came to its end: {said}") };
            let (told, number) = (told.entry(event.parse().unwrap()).or_default(), number.parse::<u64>().unwrap());
            match what {
                "put" => told.sources.push(number),
                "deciding" => told.decided = Some(None),
                _ => told.decided = Some(Some(number == 1)),
            }
            count += 1;
            if count == lines {
                child.kill().unwrap();
            }
        }
        line.clear();
    }
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
}

#[test]
fn what_was_persisted_survives_kills_and_the_loss_of_the_hot_level() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &events_of(2), config(dir.path())).unwrap();
    store.run_open(RUN, &store.keyspace().run.clone()).unwrap();
    store.close().unwrap();
    drop(store);
    let mut told: BTreeMap<u64, Told> = BTreeMap::new();
    for round in 0..ROUNDS {
        life(dir.path(), round * LANES * EVENTS, 50 + round * 83 % 400, &mut told);
        // In every other round the memory of the hot level is gone as well.
        let lost = round % 2 == 1;
        if lost {
            std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
        }
        let store = Store::open(&dir.store(), config(dir.path())).unwrap();
        assert_eq!(store.losses().iter().any(|loss| loss.contains("hot level")), lost, "{:?}", store.losses());
        let what = format!("round {round}, hot level lost: {lost}");
        told.retain(|&event, told| check(&store, event, told, &what));
        assert_balanced(&store);
        free(&store, &mut told);
        store.close().unwrap();
    }
    assert!(told.len() > 50, "only {} events are left: this proves little", told.len());
}

/// Whether the event is still there; panics where it is not as it was answered.
fn check(store: &Store, event: u64, told: &mut Told, what: &str) -> bool {
    let name = store.schema().primary(&[RUN, event]).unwrap();
    let found = store.get_event(&name, &Sources::All).unwrap();
    let Some(found) = found else {
        let may_be_gone = matches!(told.decided, Some(None | Some(false))) || told.sources.is_empty();
        assert!(may_be_gone, "{what}: event {event} is not there, {told:?}");
        return false;
    };
    match told.decided {
        Some(Some(false)) => panic!("{what}: event {event} is back as {}", found.state.name()),
        Some(Some(true)) => assert_eq!(found.state, LiveState::Accepted, "{what}: event {event}"),
        Some(None) => told.decided = (found.state == LiveState::Accepted).then_some(Some(true)),
        None => assert_ne!(found.state, LiveState::Accepted, "{what}: event {event}"),
    }
    for &source in &told.sources {
        let fragment = store.get(&key(RUN, event, source)).unwrap();
        let fragment = fragment.unwrap_or_else(|| panic!("{what}: {event}/{source} is not there"));
        assert_eq!(*fragment, bytes(event, source), "{what}: {event}/{source}");
    }
    true
}

/// Makes room for the next round: what is older than the last events goes.
fn free(store: &Store, told: &mut BTreeMap<u64, Told>) {
    while told.len() > 200 {
        let Some((event, told)) = told.pop_first() else { return };
        let name = store.schema().primary(&[RUN, event]).unwrap();
        let gone = match told.decided {
            Some(Some(true)) => store.release(&name),
            _ => store.remove_event(&name),
        };
        assert!(gone.unwrap(), "event {event}");
    }
}
