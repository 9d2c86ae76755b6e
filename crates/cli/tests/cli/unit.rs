//! The systemd unit, as systemd's own checkers see it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn analyze(arguments: &[&str], unit: &Path) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(arguments).arg(unit).output();
    let output = output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; Debian: systemd"));
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The unit with a program that is there, in a directory of its own: systemd wants it to be.
fn unit() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("forebay-unit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/forebay.service");
    let text = std::fs::read_to_string(packaged).unwrap();
    assert!(text.contains("ExecStart=/usr/bin/forebay serve --config /etc/forebay/server.toml"), "{text}");
    // systemd would remove the stores of this user in /dev/shm at each stop.
    assert!(!text.contains("RemoveIPC"), "{text}");
    // Where the marks are by default; what another start cannot help.
    assert!(
        text.contains("\nStateDirectory=forebay\n") && text.contains("\nRestartPreventExitStatus=2 8 11\n"),
        "{text}"
    );
    let unit = dir.join("forebay.service");
    std::fs::write(&unit, text.replace("/usr/bin/forebay", "/bin/true")).unwrap();
    unit
}

#[test]
fn systemd_understands_the_unit_and_finds_it_closed() {
    let unit = unit();
    let (is_good, said) = analyze(&["verify"], &unit);
    assert!(is_good && said.trim().is_empty(), "{said}");
    // From 0.0, closed, to 10.0, open to everything.
    let (is_good, said) = analyze(&["security", "--offline=true", "--no-pager", "--threshold=20"], &unit);
    assert!(is_good, "{said}");
    std::fs::remove_dir_all(unit.parent().unwrap()).unwrap();
}
