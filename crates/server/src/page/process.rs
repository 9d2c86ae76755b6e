//! Samples of the server's process from the kernel, under the names that monitors know.
//!
//! *On failure*: what cannot be read is left out of the page.

use super::text::Page;

/// Adds `process_…` to a page.
pub(super) fn add(page: &mut Page) {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let status = read("status");
    if let Some(kilobytes) = field(&status, "VmRSS:") {
        page.gauge("process_resident_memory_bytes", "Resident memory.", &[], kilobytes * 1024.0);
    }
    if let Some(kilobytes) = field(&status, "VmSize:") {
        page.gauge("process_virtual_memory_bytes", "Virtual memory.", &[], kilobytes * 1024.0);
    }
    if let Some(threads) = field(&status, "Threads:") {
        page.gauge("process_threads", "Threads.", &[], threads);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory that is being read.
        page.gauge("process_open_fds", "Open file descriptors.", &[], open.count().saturating_sub(1) as f64);
    }
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(most) = most {
        page.gauge("process_max_fds", "File descriptors that may be open.", &[], most as f64);
    }
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let stat = read("stat");
    if let Some((used, since_boot)) = times(&stat) {
        page.counter("process_cpu_seconds_total", "CPU time, of the kernel as well.", &[], used / ticks);
        let system = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some(boot) = field(&system, "btime") {
            let help = "When the process began, in seconds since 1970.";
            page.gauge("process_start_time_seconds", help, &[], boot + since_boot / ticks);
        }
    }
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// CPU time and the start since boot, in ticks. The name of the process, which may hold anything, ends with the last
/// parenthesis.
fn times(stat: &str) -> Option<(f64, f64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first of them is the third that proc(5) counts.
    let number = |counted: usize| fields.get(counted - 3)?.parse::<f64>().ok();
    Some((number(14)? + number(15)?, number(22)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_moves_no_field() {
        let rest = "S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 4 0 7700 1000 200";
        assert_eq!(times(&format!("12 (a) b) c) {rest}")), Some((300.0, 7700.0)));
        assert_eq!(times("12 (short) S 1"), None);
        assert_eq!(field("Name:\tVmRSS: 7\nVmRSS:\t  512 kB\n", "VmRSS:"), Some(512.0));
    }
}
