//! `forebay dataset verify`: reads everything of a version and names what is damaged.

use super::Place;
use super::progress::Progress;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use forebay_dataset::Damage;
use serde_json::json;

const HELP: &str = "\
Read every object of a version and decode every column, and name what is damaged: table, batch, object, columns, and why. Each byte \
of an object is below a checksum. Changes nothing. Damage: exit code 1; a root that cannot be read: exit code 8.

One version is verified, the newest one if no other is named. What a later version replaced is read only at the earlier ones.

Example: after a copy; an old version; the columns that are lost, for a script:
  forebay dataset verify s3://physics/2026/zmumu
  forebay dataset verify /tmp/ds --version 0
  forebay dataset verify /tmp/ds --json | jq -r '.damages[].columns[]' | sort -u";

/// Verify every object and column, and name what is damaged.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Verify {
    #[command(flatten)]
    place: Place,
}

impl Verify {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let dataset = self.place.open(out)?;
        let progress = Progress::start(out, "verifying");
        let verified = dataset.verify(&mut |done, all| progress.set(done, all, "batches"))?;
        drop(progress);
        let damage = |damage: &Damage| {
            json!({
                "table": damage.table,
                "batch": damage.batch,
                "object": damage.object,
                "columns": damage.columns,
                "why": damage.why,
            })
        };
        out.json(&json!({
            "url": dataset.url(),
            "version": dataset.version(),
            "objects": verified.objects,
            "bytes": verified.bytes,
            "batches": verified.batches,
            "damages": verified.damages.iter().map(damage).collect::<Vec<_>>(),
        }))?;
        out.line(format!(
            "{}: version {}, {}, {}, {}",
            dataset.url(),
            dataset.version(),
            units::plural(verified.objects, "object"),
            units::bytes(verified.bytes),
            format_args!(
                "{} decoded",
                if verified.batches == 1 { "1 batch".into() } else { format!("{} batches", verified.batches) }
            )
        ))?;
        for damage in &verified.damages {
            out.line(format!("  damaged: {}", describe(damage)))?;
        }
        out.line(match verified.damages.len() {
            0 => "no damage found".to_owned(),
            n => format!("{} found", units::plural(n as u64, "damage")),
        })?;
        Ok(Answer::found(verified.damages.is_empty()))
    }
}

fn describe(damage: &Damage) -> String {
    let mut text = format!("table {}, batch {}", damage.table, damage.batch);
    if !damage.object.is_empty() {
        text.push_str(&format!(", object {}", damage.object));
    }
    match damage.columns.as_slice() {
        [] => {}
        [one] => text.push_str(&format!(", column {one}")),
        [first @ .., last] if first.len() < 6 => text.push_str(&format!(", columns {} and {last}", first.join(", "))),
        many => text.push_str(&format!(", columns {} and {} others", many[..5].join(", "), many.len() - 5)),
    }
    format!("{text}: {}", damage.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damage_is_named_in_one_line() {
        let of = |columns: &[&str]| Damage {
            table: "Events".into(),
            batch: 3,
            object: "w/ab/1".into(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            why: "checksum".into(),
        };
        assert_eq!(describe(&of(&[])), "table Events, batch 3, object w/ab/1: checksum");
        assert_eq!(describe(&of(&["a"])), "table Events, batch 3, object w/ab/1, column a: checksum");
        assert!(describe(&of(&["a", "b", "c"])).ends_with("columns a, b and c: checksum"));
        assert!(describe(&of(&["a"; 9])).ends_with("columns a, a, a, a, a and 4 others: checksum"));
    }
}
