//! The stand-in for S3 as a program, for tests that are not written in Rust: prints its address and serves until its standard
//! input ends. Settings and faults: `crates/testkit/src/s3/control.rs`.

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let stand_in = forebay_testkit::s3::StandIn::new();
    writeln!(std::io::stdout(), "{}", stand_in.endpoint())?;
    std::io::stdout().flush()?;
    // A killed parent closes it too.
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
