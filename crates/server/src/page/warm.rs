//! The warm level as samples: containers by device and state, what devices wrote, what went down.

use super::text::Page;
use forebay_core::{ContainerStatus, WarmStats};

const STATES: [&str; 8] = ["empty", "filling", "full", "draining", "custody", "poisoned", "recycling", "lost"];

/// Adds a warm level.
pub(super) fn add(page: &mut Page, keyspace: &str, warm: &WarmStats, containers: &[ContainerStatus]) {
    let name = ("keyspace", keyspace);
    for (number, device) in (0_u32..).zip(&warm.devices) {
        let labels = [name, ("device", device.name.as_str())];
        for state in STATES {
            let of_state = |one: &&ContainerStatus| one.device == number && one.state == state;
            let count = containers.iter().filter(of_state).count();
            let labels = [labels[0], labels[1], ("state", state)];
            page.gauge("forebay_containers", "Containers of a device.", &labels, count as f64);
        }
        let flag = |set: bool| f64::from(u8::from(set));
        let help = "1 where the device is there.";
        page.gauge("forebay_device_present", help, &labels, flag(device.method != "missing"));
        let help = "1 where the device has not answered for device_stall.";
        page.gauge("forebay_device_stalled", help, &labels, flag(device.stalled));
        let help = "1 where the device is being drained, or was.";
        page.gauge("forebay_device_leaving", help, &labels, flag(device.leaving));
        let help = "Taken share of the device's decision log, 0 to 1.";
        page.gauge("forebay_device_log_fill_ratio", help, &labels, f64::from(device.log_permille) / 1000.0);
        for (name, help, count) in [
            ("forebay_device_payload_bytes_total", "Payload written to a device.", device.payload_bytes),
            (
                "forebay_device_written_bytes_total",
                "All that was written to a device: payload, tables, padding, directories, headers.",
                device.written_bytes,
            ),
            ("forebay_device_read_bytes_total", "Bytes read from a device.", device.read_bytes),
            ("forebay_device_reads_total", "Reads of data from a device.", device.reads),
            ("forebay_device_commits_total", "Syncs that made data durable.", device.commits),
            ("forebay_device_log_commits_total", "Commits of the device's decision log.", device.log_commits),
        ] {
            page.counter(name, help, &labels, count as f64);
        }
    }
    for (metric, help, count) in [
        ("forebay_demoted_events_total", "Moves of events, or parts of them, to warm.", warm.demoted_events),
        ("forebay_demoted_bytes_total", "Payload that went from hot to warm.", warm.demoted_bytes),
        (
            "forebay_custody_shortened_total",
            "Containers that were let go early, because warm was above custody_high.",
            warm.custody_shortened,
        ),
        ("forebay_claims_unproved_total", "Claims of movers that ended without a proof.", warm.unproved_claims),
        ("forebay_saved_bytes_total", "Payload that was rejected before it had to go to warm.", warm.saved_bytes),
    ] {
        page.counter(metric, help, &[name], count as f64);
    }
    for (metric, help, value) in [
        (
            "forebay_archive_waiting_containers",
            "Full containers with something for the archive that no mover has claimed.",
            f64::from(warm.to_archive),
        ),
        ("forebay_custody_containers", "Containers that the archive was proved to have.", f64::from(warm.in_custody)),
        (
            "forebay_archive_proved_timestamp_seconds",
            "When a mover last proved something, in seconds since 1970; 0 for never since the start.",
            warm.proved_ms as f64 / 1000.0,
        ),
    ] {
        page.gauge(metric, help, &[name], value);
    }
    page.gauge("forebay_demoting_bytes", "Payload on its way to warm.", &[name], warm.in_flight_bytes as f64);
    let help = "Notes of what went wrong on the warm level; /status has the last ones.";
    page.gauge("forebay_warm_notes", help, &[name], warm.notes.len() as f64);
}
