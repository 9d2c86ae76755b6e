//! Processor time, read from `/proc`: of this process and of its children by name.

use crate::Result;
use std::collections::BTreeMap;
use std::fs;

/// The name of this process, with the children that it has waited for, among its children.
pub(crate) const OWN: &str = "this process";

/// Seconds until now of this process, and of its children by name.
pub(crate) fn by_process() -> Result<BTreeMap<String, f64>> {
    let own = std::process::id();
    let mut found = BTreeMap::new();
    each(|pid, task| {
        if pid == own || task.parent == u64::from(own) {
            let name = if pid == own { OWN } else { task.name.as_str() };
            *found.entry(name.to_owned()).or_insert(0.0) += task.seconds;
        }
    })?;
    Ok(found)
}

/// A process.
struct Task {
    name: String,
    parent: u64,
    seconds: f64,
}

fn each(mut seen: impl FnMut(u32, Task)) -> Result<()> {
    let tick = rustix::param::clock_ticks_per_second() as f64;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok());
        let Some(id) = id else { continue };
        // It may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        if let Some(task) = parse(&stat, tick) {
            seen(id, task);
        }
    }
    Ok(())
}

fn parse(stat: &str, tick: f64) -> Option<Task> {
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // See proc(5): field 3 is the first here; 4 the parent, 14 to 17 the times, the last two those of ended children.
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
    let ticks: u64 = (14..=17).map(number).sum();
    Some(Task { name, parent: number(4), seconds: ticks as f64 / tick })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_spaces_and_brackets() {
        let task = parse("77 (a) b (c) S 5 0 0 0 0 0 0 0 0 0 100 20 3 4 0 0", 100.0).unwrap();
        assert_eq!((task.name.as_str(), task.parent, task.seconds), ("a) b (c", 5, 1.27));
    }

    #[test]
    fn this_process_is_found() {
        assert!(by_process().unwrap().contains_key(OWN));
    }
}
