//! Plans by hand: what each figure must come to, and what cannot be planned.

use super::*;
use forebay_core::Kind;

fn near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-3, "{value} is not {expected}");
}

fn bound(sizing: &Sizing, what: What) -> Bound {
    *sizing.bounds.iter().find(|bound| bound.what == what).unwrap()
}

/// ATLAS Phase II: 1 MHz of 5.12 MB, 60 GB/s out, here one of 500 servers: 2 kHz, 10.24 GB/s in, 120 MB/s out.
fn atlas_server() -> Setup {
    let (sources, fragment_bytes) = Setup::event_of(Profile::Atlas);
    Setup {
        accept: 60.0 / 5120.0,
        warm_bytes: vec![2 << 40; 2],
        device_write_rate: Some(2.5e9),
        decision_latency_s: Some(3.0),
        endurance: Some(1.0),
        archive_rate: Some(240e6),
        ..Setup::new(sources, fragment_bytes, 2000.0, 64 << 30)
    }
}

#[test]
fn one_of_500_servers_of_atlas() {
    let sizing = Sizing::new(&atlas_server()).unwrap();
    near(sizing.flow.in_peak * 500.0, 5.12e12);
    near(sizing.flow.accepted_peak * 500.0, 60e9);
    // 0.9 × 68,719,476,736 B / (500 × (10,240 + 48) B) = 12,023 events; at 2 kHz 6.01 s.
    assert_eq!(sizing.hot.events, 12_023);
    near(sizing.hot.without_selection_s, 6.0115);
    // 6000 events wait 3 s: half of it.
    assert_eq!((sizing.hot.undecided_events, sizing.hot.spilled), (Some(6000.0), 0.0));
    near(bound(&sizing, What::Hot).headroom, 2.0038);
    let warm = sizing.warm.unwrap();
    // Each device: 2048 GiB less 128 MiB are 2047 containers.
    assert_eq!((warm.devices, warm.containers), (2, 4094));
    // 4094 GiB × 0.9 / 1.02 = 3.8787 TB; at 120 MB/s 32,322 s.
    near(warm.usable_bytes, 3.8787e12);
    near(warm.without_archive_s.unwrap(), 32_322.0);
    // The archive gains 120 MB/s: as long again.
    near(warm.drain_s.unwrap(), 32_322.0);
    // No selection: 5 GB/s / 1.02 = 4.902 GB/s of 10.24 go to warm; hot (12,023 × 5.12 MB) takes the other 5.338 GB/s.
    assert_eq!(warm.without_selection_device_bound, Some(true));
    near(warm.without_selection_s, 61.558e9 / 5.338e9);
    // 120 MB/s × 1.02 × 86,400 s = 10.575 TB a day on 4.398 TB.
    near(warm.writes_per_day, 2.4046);
    near(warm.endurance_margin.unwrap(), 0.41587);
    let first = sizing.binds_first().unwrap();
    assert_eq!(first.what, What::Endurance);
    assert!(sizing.advice.iter().any(|line| line.contains("endurance falls short")), "{:?}", sizing.advice);
    // 10.445 GB/s / 2.5 GB/s.
    assert!(sizing.advice.iter().any(|line| line.contains("5 devices would take everything")), "{:?}", sizing.advice);
    assert_eq!(sizing.index_bytes, 12_023 * (96 + 500 * 12) + warm.events * 64);
}

#[test]
fn twelve_hours_of_transient_storage() {
    // ALICE's transient data storage was to last 12 h without its permanent one; 1.25 GB/s are 54 TB.
    let setup = Setup {
        accept: 1.0,
        warm_bytes: vec![2400 << 30; 24],
        archive_rate: Some(1.5e9),
        ..Setup::new(500, 5000, 500.0, 16 << 30)
    };
    let sizing = Sizing::new(&setup).unwrap();
    near(sizing.flow.in_peak, 1.25e9);
    let warm = sizing.warm.unwrap();
    near(bound(&sizing, What::Warm).needed, 54e12);
    // 24 × 2399 containers of 1 GiB × 0.9 / 1.02 = 54.548 TB: 12.12 h.
    assert_eq!(warm.containers, 57_576);
    near(warm.without_archive_s.unwrap() / 3600.0, 12.122);
    // 54 TB × 1.02 / 0.9 = 61.2 TB and 24 × 128 MiB of logs.
    near(warm.bytes_for_autonomy, 61.2e12 + 3.221e9);
    // Half of the devices last half as long, and the plan says so.
    let half = Sizing::new(&Setup { warm_bytes: vec![2400 << 30; 12], ..setup }).unwrap();
    near(half.warm.unwrap().without_archive_s.unwrap() / 3600.0, 6.061);
    assert!(half.advice.iter().any(|line| line.contains("the warm level falls short: 12.0 h")), "{:?}", half.advice);
}

#[test]
fn pauses_of_the_beam_halve_the_means_and_let_a_backlog_drain() {
    let setup = Setup { duty: 0.5, filter_rate: Some(1100.0), decision_latency_s: None, ..atlas_server() };
    let sizing = Sizing::new(&setup).unwrap();
    near(sizing.flow.accepted_mean, 60e6);
    let warm = sizing.warm.unwrap();
    near(warm.without_archive_mean_s.unwrap(), 2.0 * warm.without_archive_s.unwrap());
    // 900 of 2000 events spill: 10.24 GB/s × (0.45 + 0.55 × 0.01172) × 1.02 × half a day on 4.398 TB.
    near(sizing.hot.spilled, 0.45);
    near(warm.writes_per_day, 46.829);
    // A selection that follows leaves only what it accepts.
    let follows = Sizing::new(&Setup { filter_rate: Some(2000.0), ..setup.clone() }).unwrap();
    near(follows.warm.unwrap().writes_per_day, 1.2023);
    near(bound(&sizing, What::Selection).headroom, 1.1);
    // 12,023 events at 900 a second more than are decided.
    near(sizing.hot.while_selection_lags_s.unwrap(), 13.359);
    assert!(sizing.advice.iter().any(|line| line.contains("drains in the pauses")), "{:?}", sizing.advice);
    // A selection for less than the mean never catches up.
    let slow = Sizing::new(&Setup { filter_rate: Some(900.0), ..setup }).unwrap();
    near(bound(&slow, What::Selection).headroom, 0.9);
    assert_eq!(slow.advice.iter().filter(|line| line.contains("the selection falls short")).count(), 1);
    assert!(!slow.advice.iter().any(|line| line.contains("drains in the pauses")));
}

#[test]
fn what_hot_cannot_hold_is_written_whatever_becomes_of_it() {
    let sizing = Sizing::new(&Setup { decision_latency_s: Some(12.023), ..atlas_server() }).unwrap();
    // Hot holds 6.0115 s of 12.023: half spills. 10.24 GB/s × (0.5 + 0.5 × 0.01172) × 1.02.
    near(sizing.hot.spilled, 0.5);
    near(sizing.flow.written_peak, 5.2836e9);
    assert!(bound(&sizing, What::DeviceRate).headroom < 1.0);
    assert!(
        sizing.advice.iter().any(|line| line.contains("50 % of the events go to warm undecided")),
        "{:?}",
        sizing.advice
    );
}

#[test]
fn devices_that_take_everything_fill_both_levels() {
    let setup = Setup { device_write_rate: Some(6e9), ..atlas_server() };
    let warm = Sizing::new(&setup).unwrap().warm.unwrap();
    assert_eq!(warm.without_selection_device_bound, Some(false));
    near(warm.without_selection_s, (61.558e9 + 3.8787e12) / 10.24e9);
}

#[test]
fn an_archive_that_is_too_slow_says_when_warm_is_full() {
    let sizing = Sizing::new(&Setup { archive_rate: Some(100e6), ..atlas_server() }).unwrap();
    assert_eq!(sizing.warm.unwrap().drain_s, None);
    // 20 MB/s too little: 3.8787 TB last 53.9 h.
    assert!(sizing.advice.iter().any(|line| line.contains("warm is full after 2.24 days")), "{:?}", sizing.advice);
}

#[test]
fn what_is_not_known_is_not_invented() {
    let sizing = Sizing::new(&Setup::new(48, 7200, 1000.0, 1 << 30)).unwrap();
    assert_eq!((sizing.warm, sizing.bounds.len(), sizing.hot.undecided_events), (None, 0, None));
    assert!(sizing.advice[0].contains("to learn what binds"));
    let bare = Setup { warm_bytes: vec![1 << 40], accept: 0.0, ..Setup::new(48, 7200, 1000.0, 1 << 30) };
    let sizing = Sizing::new(&bare).unwrap();
    let warm = sizing.warm.unwrap();
    assert_eq!(
        (warm.without_archive_s, warm.write_rate, warm.endurance_margin, warm.drain_s),
        (None, None, None, None)
    );
    assert_eq!(warm.without_selection_device_bound, None);
}

#[test]
fn figures_that_cannot_be_are_refused_by_name() {
    let refused = |change: fn(&mut Setup)| {
        let mut setup = atlas_server();
        change(&mut setup);
        let error = Sizing::new(&setup).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        error.message().to_owned()
    };
    assert!(refused(|setup| setup.accept = 1.5).contains("accept: 0 to 1, not 1.5"));
    assert!(refused(|setup| setup.accept = f64::NAN).contains("accept"));
    assert!(refused(|setup| setup.duty = 0.0).contains("duty"));
    assert!(refused(|setup| setup.event_rate = 0.0).contains("event rate"));
    assert!(refused(|setup| setup.event_rate = f64::INFINITY).contains("event rate"));
    assert!(refused(|setup| setup.filter_rate = Some(-1.0)).contains("filter rate"));
    assert!(refused(|setup| setup.endurance = Some(0.0)).contains("endurance"));
    assert!(refused(|setup| setup.sources = 0).contains("sources"));
    assert!(refused(|setup| setup.fragment_bytes = u64::MAX).contains("fragment bytes"));
    assert!(refused(|setup| setup.fragment_bytes = 1 << 50).contains("500 fragments of"));
    assert!(refused(|setup| setup.hot_bytes = 5 << 20).contains("does not hold one event of 5144000 bytes"));
    assert!(refused(|setup| setup.warm_bytes[1] = 1 << 30).contains("warm device 1 of 1073741824 bytes"));
    assert!(refused(|setup| setup.container_bytes = 8 << 30).contains("container bytes"));
    assert!(refused(|setup| setup.warm_bytes.clear()).contains("without a device"));
}

#[test]
fn every_figure_is_finite_over_the_whole_range() {
    for event_rate in [1e-6, 1.0, 1e9] {
        for latency in [1e-6, 1e9] {
            for warm_bytes in [2 << 30, 1 << 56] {
                let setup = Setup {
                    event_rate,
                    decision_latency_s: Some(latency),
                    filter_rate: Some(1e-6),
                    warm_bytes: vec![warm_bytes; 3],
                    ..atlas_server()
                };
                let sizing = Sizing::new(&setup).unwrap();
                assert!(sizing.bounds.iter().all(|bound| bound.headroom.is_finite()), "{sizing:?}");
                let text = format!("{sizing:?}");
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            }
        }
    }
}
