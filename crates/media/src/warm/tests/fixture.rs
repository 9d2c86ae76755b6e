//! Bytes of devices, as `docs/format-container.md` says them, kept in files: today's code writes the last ones, and reads all. With
//! `FOREBAY_WRITE_FIXTURE=1` those of a new version are made.

use super::*;
use crate::warm::reclaim::{read_all, write_all};
use forebay_core::{MonotonicClock, SeededRandom};
use std::path::Path;

/// Lines `FILE OFFSET HEX`, 16 bytes each; what is not named is zero.
const VERSION_1: &str = include_str!("fixtures/device-v1.txt");
const VERSION_3: &str = include_str!("fixtures/device-v3.txt");

const FIXED: WarmShape = WarmShape { container_bytes: 64 << 10, log_bytes: 64 << 10, ..SHAPE };

fn events() -> Vec<Event> {
    vec![Event::new(1, &[5, 0]), Event::new(2, &[100]), Event::new(3, &[]), Event::new(4, &[4, 5, 6])]
}

fn device_bytes() -> u64 {
    3 * FIXED.container_bytes + 2 * FIXED.log_bytes + 8192
}

/// A device with a full, a filling and an empty container.
fn written() -> Arc<SimDevice> {
    let device = sim("one");
    let devices = vec![device.clone() as Arc<dyn Device>];
    let warm = Warm::create(devices, vec![device_bytes()], STORE, WIDTHS, FIXED).unwrap();
    let warm = Arc::new(warm.with(Arc::new(MonotonicClock::default()), Arc::new(SeededRandom::new(7))));
    let mut writer = warm.writer(&target(77)).unwrap();
    write_durably(&mut writer, &events()[..2]);
    writer.finish(soon()).unwrap();
    let accepted = Target { stream: Stream::Accepted(3), ..target(78) };
    write_durably(&mut warm.writer(&accepted).unwrap(), &events()[2..]);
    device
}

fn contents(device: &dyn Device) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let (file, bytes) = device.open(&name).unwrap();
        let mut buffer = Buffer::new(bytes as usize);
        read_all(device, file, 0, &mut buffer).unwrap();
        (name, buffer.to_vec())
    };
    device.list().unwrap().into_iter().map(read).collect()
}

fn lines(contents: &BTreeMap<String, Vec<u8>>) -> String {
    let mut text = String::new();
    for (name, bytes) in contents {
        for (at, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{name} {:05x} {hex}\n", at * 16);
        }
    }
    text
}

/// A device with the bytes of a fixture.
fn kept(text: &'static str) -> Arc<SimDevice> {
    let device = sim("kept");
    let mut contents: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for line in text.lines() {
        let [name, offset, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let length = if name == "device.fb" { 8192 } else { FIXED.container_bytes as usize };
        let bytes = contents.entry(name).or_insert_with(|| vec![0; length]);
        let at = usize::from_str_radix(offset, 16).unwrap();
        for (byte, pair) in bytes[at..].iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    for (name, bytes) in contents {
        let file = device.create(name, bytes.len() as u64).unwrap();
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(&bytes);
        write_all(device.as_ref(), file, 0, &buffer).unwrap();
    }
    device
}

#[test]
fn what_is_written_today_is_version_3() {
    let text = lines(&contents(written().as_ref()));
    if std::env::var_os("FOREBAY_WRITE_FIXTURE").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/warm/tests/fixtures/device-v3.txt");
        std::fs::write(file, &text).unwrap();
    }
    let differs = text.lines().zip(VERSION_3.lines()).find(|(today, kept)| today != kept);
    assert_eq!(differs, None, "raise the version, and keep this fixture for its reader");
    assert_eq!(text.len(), VERSION_3.len());
}

#[test]
fn every_version_is_read() {
    for text in [VERSION_1, VERSION_3] {
        is_read(kept(text));
    }
}

fn is_read(device: Arc<SimDevice>) {
    let devices = [device as Arc<dyn Device>];
    let (warm, found) = open(&devices, false).unwrap();
    drop(found);
    let infos = warm.containers();
    assert_eq!([Phase::Full, Phase::Full, Phase::Empty], [0, 1, 2].map(|at: usize| infos[at].phase));
    assert_eq!((infos[0].header.run, infos[0].header.stream), (77, Stream::Undecided));
    assert_eq!((infos[1].header.run, infos[1].header.stream), (78, Stream::Accepted(3)));
    reopen_and_compare(&devices, &events());
}

#[test]
fn no_flipped_byte_makes_another_event() {
    let whole = contents(kept(VERSION_3).as_ref());
    for (name, bytes) in &whole {
        let written = bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0));
        for at in written.flat_map(|(line, _)| [line * 16, line * 16 + 7, line * 16 + 15]) {
            let device = kept(VERSION_3);
            let (file, _) = device.open(name).unwrap();
            let mut buffer = Buffer::new(bytes.len());
            buffer.copy_from_slice(bytes);
            buffer[at] ^= 0x10;
            write_all(device.as_ref(), file, 0, &buffer).unwrap();
            let Ok((warm, mut found)) = open(&[device as Arc<dyn Device>], true) else { continue };
            let Ok(told) = adopt_all(&warm, &mut found) else { continue };
            for (number, place) in told {
                if let Ok(event) = read(&warm, place, 0) {
                    assert_eq!(Some(&event), events().get(number as usize - 1), "{name} {at}");
                }
            }
        }
    }
}
