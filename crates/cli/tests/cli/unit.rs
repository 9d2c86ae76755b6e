//! The systemd units, as systemd's own checkers see them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn analyze(arguments: &[&str], unit: &Path) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(arguments).arg(unit).output();
    let output = output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; Debian: systemd"));
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A unit with a program that is there, in a directory of its own: systemd wants it to be.
fn unit(name: &str, parts: &[&str]) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    let text = std::fs::read_to_string(packaged).unwrap();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // systemd would remove the stores of this user in /dev/shm at each stop.
    assert!(!text.contains("RemoveIPC"), "{text}");
    let unit = dir.join(name);
    std::fs::write(&unit, text.replace("/usr/bin/forebay", "/bin/true")).unwrap();
    unit
}

fn is_understood_and_closed(unit: &Path) {
    let (is_good, said) = analyze(&["verify"], unit);
    assert!(is_good && said.trim().is_empty(), "{said}");
    // From 0.0, closed, to 10.0, open to everything.
    let (is_good, said) = analyze(&["security", "--offline=true", "--no-pager", "--threshold=20"], unit);
    assert!(is_good, "{said}");
    std::fs::remove_dir_all(unit.parent().unwrap()).unwrap();
}

#[test]
fn systemd_understands_the_unit_and_finds_it_closed() {
    // Where the marks are by default; what another start cannot help.
    let parts = [
        "ExecStart=/usr/bin/forebay serve --config /etc/forebay/server.toml\n",
        "\nStateDirectory=forebay\n",
        "\nRestartPreventExitStatus=2 8 11\n",
    ];
    is_understood_and_closed(&unit("forebay.service", &parts));
}

#[test]
fn systemd_understands_the_unit_of_a_mover_and_finds_it_closed() {
    // A mover that is asked to end exits with 130.
    let parts =
        ["ExecStart=/usr/bin/forebay move --from ${FOREBAY_FROM} --to ${FOREBAY_TO}\n", "\nSuccessExitStatus=130\n"];
    is_understood_and_closed(&unit("forebay-mover.service", &parts));
}
