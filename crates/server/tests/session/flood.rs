//! More connections, and more bytes, than are allowed.

use crate::session::raw::{Raw, hello};
use crate::session::scene::{Scene, WINDOW, until};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

#[test]
fn connections_beyond_the_most_are_closed_and_the_others_served() {
    let scene = Scene::with(|limits| limits.connections_max = 200, |_| {});
    let mut all: Vec<Raw> = (0..200).map(|_| scene.client()).collect();
    for _ in 0..100 {
        let mut raw = scene.stranger();
        // It may be closed before or after the hello was sent.
        let _ = raw.socket.write_all(&hello(WINDOW));
        let mut byte = [0];
        assert!(!matches!(raw.socket.read(&mut byte), Ok(1)), "served beyond the most");
    }
    all.iter_mut().for_each(Raw::ping);
    drop(all.split_off(100));
    until("there is room again", || {
        let mut raw = scene.stranger();
        raw.socket.write_all(&hello(WINDOW)).is_ok() && matches!(raw.socket.read(&mut [0]), Ok(1))
    });
    all.iter_mut().for_each(Raw::ping);
}

#[test]
fn garbage_without_end() {
    let scene = Scene::new();
    let mut other = scene.client();
    let mut random = SmallRng::seed_from_u64(7);
    for round in 0..200 {
        let mut raw = scene.stranger();
        let mut garbage = vec![0; random.random_range(1..100_000)];
        random.fill(&mut garbage[..]);
        let garbage = if round % 2 == 0 { garbage } else { [hello(WINDOW), garbage].concat() };
        let _ = raw.socket.write_all(&garbage);
        if round % 10 == 0 {
            other.ping();
        }
    }
    other.ping();
    let path = scene.path();
    let idle: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&path).unwrap()).collect();
    other.ping();
    drop(idle);
    scene.check_ledger();
}
