//! Power is cut before every single change of a device: what was acknowledged is there, what is there is right.

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// What a workload has been told so far.
#[derive(Clone, Default)]
struct Said {
    /// Durable, and not ended.
    acknowledged: BTreeSet<u64>,
    /// Their container was reclaimed.
    reclaimed: BTreeSet<u64>,
}

fn event(number: u64) -> Event {
    let lengths: &[usize] = match number % 4 {
        0 => &[10],
        1 => &[3000, 0, 17_000],
        2 => &[40_000],
        _ => &[900; 12],
    };
    Event::new(number, lengths)
}

/// Writes events with commits that overlap, over several containers; then empties and reclaims the first one, drains
/// another, and writes on.
fn workload(warm: &Arc<Warm>, said: &Mutex<Said>) {
    let mut writer = warm.writer(&target(1)).unwrap();
    let mut asked: Vec<(Ticket, u64)> = Vec::new();
    let mut places = BTreeMap::new();
    let note = |durable: Ticket, asked: &[(Ticket, u64)], said: &Mutex<Said>| {
        let mut said = said.lock();
        let numbers = asked.iter().filter(|(ticket, _)| *ticket <= durable).map(|(_, number)| *number);
        let fresh: Vec<u64> = numbers.filter(|number| !said.reclaimed.contains(number)).collect();
        said.acknowledged.extend(fresh);
    };
    for number in 0..28 {
        let placed = append(&mut writer, &[event(number)]).unwrap();
        places.insert(number, place_of(&placed[0]));
        if number % 3 != 1 {
            let ticket = writer.commit().unwrap();
            asked.push((ticket, number));
            if number % 3 == 2 {
                asked.push((ticket, number - 1));
            }
        }
        note(writer.poll().unwrap(), &asked, said);
    }
    let last = asked.iter().map(|(ticket, _)| *ticket).max().unwrap();
    writer.wait(last, soon()).unwrap();
    note(writer.durable(), &asked, said);
    writer.finish(soon()).unwrap();
    warm.begin_drain(1).unwrap();
    let first: Vec<u64> = places.iter().filter(|(_, place)| place.container == 0).map(|(number, _)| *number).collect();
    said.lock().acknowledged.retain(|number| !first.contains(number));
    for number in &first {
        warm.ended(places[number], event(*number).fragments());
    }
    assert!(warm.reclaim_if_empty(0, None).unwrap());
    said.lock().reclaimed.extend(first);
    warm.end_drain(1, None).unwrap();
    let mut writer = warm.writer(&target(2)).unwrap();
    for number in 100..104 {
        write_durably(&mut writer, &[event(number)]);
        said.lock().acknowledged.insert(number);
    }
}

#[test]
fn power_may_fail_at_every_step() {
    let steps = {
        let device = sim("whole");
        let warm = create(&[device.clone() as Arc<dyn Device>], 3);
        let begin = device.steps();
        workload(&warm, &Mutex::new(Said::default()));
        begin..device.steps()
    };
    assert!(steps.end - steps.start > 80, "{steps:?}");
    for step in steps.start + 1..=steps.end {
        for seed in 0..4 {
            let device = sim("cut");
            let said = Arc::new(Mutex::new(Said::default()));
            let left = Arc::new(Mutex::new(None));
            let warm = create(&[device.clone() as Arc<dyn Device>], 3);
            let (seen, cut) = (said.clone(), left.clone());
            device.before_step(step, move |device| {
                *cut.lock() = Some((device.power_off(seed + 4 * step), seen.lock().clone()));
            });
            workload(&warm, &said);
            let Some((left, said)) = left.lock().take() else { panic!("step {step} did not come") };
            let what = format!("cut before step {step}, seed {seed}");
            check(left, &said, &what);
        }
    }
}

fn check(left: Arc<SimDevice>, said: &Said, what: &str) {
    let devices = [left as Arc<dyn Device>];
    let mut before = None;
    for life in 0..2 {
        let (warm, mut found) = open(&devices, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        let told = adopt_all(&warm, &mut found).unwrap_or_else(|error| panic!("{what}: {error}"));
        for number in &said.acknowledged {
            assert!(told.contains_key(number), "{what}, life {life}: event {number} is gone");
        }
        for (number, place) in &told {
            assert!(!said.reclaimed.contains(number), "{what}: event {number} is back");
            let read = read(&warm, *place, 0).unwrap_or_else(|error| panic!("{what}: event {number}: {error}"));
            assert_eq!(read, event(*number), "{what}");
        }
        assert!(before.is_none_or(|before| before == told), "{what}: another answer in the next life");
        // The level works on.
        if life == 1 {
            let moving = Target { moving: true, ..target(9) };
            if let Ok(mut writer) = warm.writer(&moving) {
                write_durably(&mut writer, &[Event::new(900, &[5000])]);
            }
            break;
        }
        before = Some(told);
    }
}
