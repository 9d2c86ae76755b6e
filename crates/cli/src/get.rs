//! `forebay get`: the bytes of one fragment.

use crate::open::{Close, Opened, Place};
use crate::output::{self, Answer, Output};
use crate::{levels, units};
use forebay_core::{Error, EventStore, ReadFragment, Result};
use std::path::PathBuf;

const HELP: &str = "\
Get the bytes of one fragment, verified against their stored checksum: raw on stdout, ready for a pipe. \
Where there is no such fragment the exit code is 1 and stdout stays empty.

Example: to the terminal, as a hex dump, into a file, and as a question of a script:
  forebay get /tmp/first 1/42/0
  forebay get /tmp/first 1/42/1 --hex
  forebay get /tmp/first 1/42/1 --output frame.bin
  forebay get /tmp/first 1/42/9 >/dev/null || echo not there

With --json: key, bytes, status, version, crc32c, the level that it was read from (hot or warm) and the value in hexadecimal (value_hex).";

/// Get one fragment's bytes.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Get {
    #[command(flatten)]
    store: Place,
    /// Key, such as run/event/source: 1/42/0.
    key: String,
    /// Writes the bytes to a file instead of stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes a hex dump instead of raw bytes.
    #[arg(long, conflicts_with = "output")]
    hex: bool,
}

impl Get {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.get(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn get(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let key = store.schema().parse_key(&self.key)?;
        let text = store.schema().text(key.as_bytes());
        let Some(fragment) = store.get(&key)? else {
            out.note(format!("forebay: no fragment {text}"));
            out.json(&serde_json::json!({ "key": text, "found": false }))?;
            return Ok(Answer::No);
        };
        levels::check_here(&text, &fragment)?;
        fragment.verify()?;
        let mut answer = serde_json::json!({
            "key": text,
            "found": true,
            "bytes": fragment.len(),
            "status": fragment.status(),
            "version": fragment.version(),
            "crc32c": format!("{:08x}", fragment.checksum()),
            "level": levels::level_name(fragment.level()),
        });
        if let Some(file) = &self.output {
            std::fs::write(file, &*fragment)
                .map_err(|error| Error::invalid(format!("cannot write {}", file.display())).with_source(error))?;
            let (bytes, level) = (units::bytes(fragment.len() as u64), levels::level_name(fragment.level()));
            out.line(format!("{text}: {bytes} from the {level} level to {}", file.display()))?;
        } else if out.json {
            answer["value_hex"] = output::hex(&fragment).into();
        } else if self.hex {
            for line in output::hex_dump(&fragment) {
                out.line(line)?;
            }
        } else {
            out.bytes(&fragment)?;
            if out.is_terminal() && !fragment.ends_with(b"\n") {
                out.bytes(b"\n")?;
            }
        }
        out.json(&answer)?;
        Ok(Answer::Yes)
    }
}
