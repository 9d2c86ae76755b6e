//! A network that delays, stalls and cuts: nothing that was acknowledged is lost, every event is decided once.

use crate::network::proxy::{Faults, Proxy};
use crate::network::scene::{Dir, seed, serve, store, tcp, time, until};
use crate::network::workload::{PATIENCE, Said, run};
use std::time::Duration;

fn checked(faults: Faults, cuts_min: u64) {
    over(false, faults, cuts_min);
}

fn over(is_tcp: bool, faults: Faults, cuts_min: u64) {
    let (dir, seed) = (Dir::new(), seed());
    let store = store(dir.path());
    let server = serve(&store, &dir.socket());
    let (front, back) = if is_tcp { (None, tcp(&server)) } else { (Some(dir.path().join("network")), dir.address()) };
    let proxy = Proxy::start(front, &back, seed, faults);
    let said = Said::default();
    let time = time(Duration::from_secs(3));
    run(proxy.address(), &said, |elapsed| {
        std::thread::sleep(Duration::from_millis(10));
        elapsed < time || said.is_too_little(proxy.cuts(), cuts_min) && elapsed < PATIENCE
    });
    println!("{} events, {:?} fragments read, {} cuts", said.events(), said.read, proxy.cuts());
    assert!(!said.is_too_little(proxy.cuts(), cuts_min), "this proves nothing");
    drop(proxy);
    said.check(&store);
    until("guards are back", || store.stats().holders.iter().all(|holder| holder.guards == 0));
    until("leases are back", || store.stats().leases == 0);
}

/// As fast as it goes.
const QUICK: Faults = Faults {
    whole_one_in: 8,
    cut_bytes_max: 300_000,
    delay_max: Duration::ZERO,
    stall_one_in: 0,
    stall: Duration::ZERO,
};

#[test]
fn connections_are_cut_anywhere() {
    checked(QUICK, 20);
}

#[test]
fn connections_are_slow_and_cut() {
    checked(Faults { delay_max: Duration::from_millis(3), cut_bytes_max: 100_000, ..QUICK }, 10);
}

#[test]
fn connections_stall() {
    // Longer than a lease lasts: what a client holds may be somebody else's when it goes on.
    checked(Faults { stall_one_in: 60, stall: Duration::from_millis(800), cut_bytes_max: 3_000_000, ..QUICK }, 0);
}

#[test]
fn tcp_connections_are_cut_anywhere() {
    over(true, QUICK, 20);
}

/// Each connection is delayed on its own: what is sent later on one arrives before what was sent earlier on another.
#[test]
fn requests_overtake_each_other_over_tcp() {
    let faults = Faults { whole_one_in: 2, delay_max: Duration::from_millis(15), cut_bytes_max: 200_000, ..QUICK };
    over(true, faults, 2);
}
