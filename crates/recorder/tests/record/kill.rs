//! A process that records is killed: what it had said to be durable is there, and the manifest is rebuilt.

use super::{SPAN, TempDir, config, link_config, paths, push, read_all};
use forebay_recorder::{Recording, RecordingConfig, WarmDir};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "FOREBAY_RECORD_CHILD";

/// Not a test by itself: what the parent starts. Without the variable that the parent sets there is nothing to do.
#[test]
fn child_role() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let dirs = [WarmDir { path: dir.into(), bytes: 64 << 20 }];
    let config = RecordingConfig { commit_every: Duration::from_millis(20), ..config() };
    let recording = Recording::create(&dirs, config).unwrap();
    let mut links = recording.links((0..3).map(link_config).collect()).unwrap();
    for at in 0.. {
        links.iter_mut().for_each(|link| assert!(push(link, at * u64::from(SPAN))));
        if at % 50 == 0 {
            println!("\n@ {}", recording.progress().recorded);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn a_killed_recording_keeps_what_it_said_was_durable() {
    for round in 0..6_u64 {
        let temp = TempDir::new();
        let dirs = super::dirs(&temp, 1, 64 << 20);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::child_role", "--exact", "--nocapture"])
            .env(CHILD, &dirs[0].path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut durable, start) = (0, Instant::now());
        // Until some frames are durable, and then a while that differs from round to round.
        let enough = Duration::from_millis(40 * (round + 1));
        let mut first = None;
        while first.is_none_or(|first: Instant| first.elapsed() < enough) {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing becomes durable");
            let line = lines.next().unwrap().unwrap();
            let Some(said) = line.strip_prefix("@ ") else { continue };
            durable = said.parse::<u64>().unwrap();
            if durable > 0 {
                first = first.or(Some(Instant::now()));
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for _ in 0..2 {
            let playback = Recording::open(&paths(&dirs), false).unwrap();
            let manifest = playback.manifest();
            assert!(manifest.rebuilt && manifest.links.len() == 3);
            let found = read_all(&playback);
            assert!(found.len() as u64 >= durable, "round {round}: {} frames of {durable}", found.len());
            for link in &manifest.links {
                // The child missed nothing: up to the tick from which on nothing is known, all is there.
                assert_eq!((link.missed, link.gaps.len()), (0, 0));
                let number = u32::from(link.config.source[1]);
                let ticks: Vec<u64> = found.keys().filter(|key| key.0 == number).map(|key| key.1).collect();
                assert_eq!(link.unknown_from, Some(ticks.last().map_or(0, |tick| tick + u64::from(SPAN))));
                assert!(ticks.windows(2).all(|pair| pair[1] == pair[0] + u64::from(SPAN)));
            }
        }
    }
}
