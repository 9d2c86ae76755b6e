//! A server that is killed at random under load, and started again; clients go on by themselves.

use crate::network::scene::{Dir, Process, say_ready, seed, serve, store, time, until_told};
use crate::network::workload::{PATIENCE, Said, run};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::time::Duration;

const SERVER: &str = "FOREBAY_NETWORK_SERVER";

/// Not a test by itself: what the parent starts. Without the variable that the parent sets there is nothing to do.
#[test]
fn server_role() {
    let Ok(dir) = std::env::var(SERVER) else { return };
    let store = store(Path::new(&dir));
    let server = serve(&store, &Path::new(&dir).join("server"));
    say_ready();
    until_told();
    server.stop(Duration::from_secs(5));
    store.close().unwrap();
}

#[test]
fn what_was_acknowledged_survives_a_server_that_is_killed() {
    let (dir, seed) = (Dir::new(), seed());
    let start = || Process::start("network::kills::server_role", SERVER, dir.path());
    let server = Mutex::new(Some(start()));
    let random = Mutex::new(SmallRng::seed_from_u64(seed));
    let said = Said::default();
    let time = time(Duration::from_secs(4));
    let kills = Mutex::new(0);
    run(&dir.address(), &said, |elapsed| {
        let pause = random.lock().random_range(20..700);
        std::thread::sleep(Duration::from_millis(pause));
        let mut server = server.lock();
        server.take().unwrap().kill();
        // Nobody is there for a while.
        std::thread::sleep(Duration::from_millis(random.lock().random_range(0..60)));
        *server = Some(start());
        let mut kills = kills.lock();
        *kills += 1;
        elapsed < time || said.is_too_little(*kills, 3) && elapsed < PATIENCE
    });
    let kills = *kills.lock();
    println!("{} events, {:?} fragments read, {kills} kills", said.events(), said.read);
    assert!(!said.is_too_little(kills, 3), "this proves nothing");
    server.lock().take().unwrap().end();
    let report = engine::check(&dir.path().join("store"), true).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    said.check(&store(dir.path()));
}
