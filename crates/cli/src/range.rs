//! `forebay range`: the fragments inside bounds, in key order.

use crate::levels;
use crate::open::{Close, Opened, Place};
use crate::output::{self, Answer, Output};
use crate::units;
use clap::ValueEnum;
use forebay_core::{Bounds, EventStore, ReadFragment, Result};

const HELP: &str = "\
List the fragments inside bounds, in key order: key, size, status, version, checksum. Bounds are given per sub-key: a \
number, low-high (inclusive, either end may be left out), or *; what is left out at the end means *.

The list is answered by seeking, not by reading everything in between. An empty list is an answer: exit code 0.

Example: everything, events 10 to 20 of run 1, source 3 of all events of run 1 with its bytes:
  forebay range /tmp/first
  forebay range /tmp/first 1/10-20
  forebay range /tmp/first '1/*/3' --values hex

With --json: one object per line and fragment.";

/// List fragments inside bounds.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Range {
    #[command(flatten)]
    store: Place,
    /// Bounds, such as 1/10-20/* (quote the star).
    #[arg(default_value = "*")]
    bounds: String,
    /// Most fragments to list.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Shows the fragments' bytes.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Values::None)]
    values: Values,
}

/// How the bytes of listed fragments are shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Values {
    /// Not at all.
    None,
    /// As a hex dump; with --json as one hexadecimal word.
    Hex,
}

impl Range {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        self.list(&store, out)?;
        store.close()?;
        Ok(Answer::Yes)
    }

    fn list(&self, store: &Opened, out: &mut Output) -> Result<()> {
        let schema = store.schema();
        let bounds = Bounds::parse(schema, &self.bounds)?;
        let (mut fragments, mut bytes) = (0_u64, 0_u64);
        for fragment in store.range(&bounds).take(self.limit.unwrap_or(usize::MAX)) {
            let fragment = fragment?;
            let key = schema.text(fragment.key().as_bytes());
            if self.values == Values::Hex {
                levels::check_here(&key, &fragment)?;
            }
            (fragments, bytes) = (fragments + 1, bytes + fragment.len() as u64);
            if out.json {
                let mut line = serde_json::json!({
                    "key": key,
                    "bytes": fragment.len(),
                    "status": fragment.status(),
                    "version": fragment.version(),
                    "crc32c": format!("{:08x}", fragment.checksum()),
                });
                if self.values == Values::Hex {
                    line["value_hex"] = output::hex(&fragment).into();
                }
                out.json(&line)?;
                continue;
            }
            out.line(format!(
                "{key:<20} {:>10}  status {:#x}  version {}  crc32c {:08x}",
                units::bytes(fragment.len() as u64),
                fragment.status(),
                fragment.version(),
                fragment.checksum()
            ))?;
            if self.values == Values::Hex {
                for line in output::hex_dump(&fragment) {
                    out.line(format!("  {line}"))?;
                }
            }
        }
        out.line(format!("{}, {}", units::plural(fragments, "fragment"), units::bytes(bytes)))
    }
}
