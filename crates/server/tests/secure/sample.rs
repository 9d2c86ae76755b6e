//! `docs/server.toml` says what the code does: it reads, every value is in it, and every default is the code's.

use forebay_server::Settings;
use std::collections::BTreeSet;
use std::path::Path;

fn sample() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/server.toml")).unwrap()
}

fn parse(text: &str) -> Settings {
    Settings::parse(text, "server.toml", Path::new("/etc/forebay")).unwrap()
}

/// The sample with every default written out.
fn written_out(sample: &str) -> String {
    let is_default =
        |line: &&str| line.starts_with('#') && line[1..].starts_with(|letter: char| letter.is_ascii_lowercase());
    sample.lines().map(|line| if is_default(&line) { &line[1..] } else { line }).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_reads() {
    let settings = parse(&sample());
    assert_eq!((settings.keyspace.len(), settings.token.len(), settings.listen.native.len()), (1, 3, 3));
    assert_eq!(settings.audit.as_ref().unwrap().file, Path::new("/var/log/forebay/audit.log"));
    assert!(settings.tls.is_some() && settings.keyspace[0].create.is_some());
    assert_eq!(settings.keyspace[0].create.as_ref().unwrap().keyspace, Path::new("/etc/forebay/detector.toml"));
    assert_eq!(settings.ring[0].create.as_ref().unwrap().keyspace, Path::new("/etc/forebay/links.toml"));
}

#[test]
fn its_defaults_are_those_of_the_code() {
    let sample = sample();
    let out = written_out(&sample);
    let lines = sample.lines().zip(out.lines()).filter(|(before, after)| before != after).count();
    assert!(lines >= 30, "{lines} defaults found: the sample is written in another way than this test reads");
    assert_eq!(parse(&out), parse(&sample));
}

#[test]
fn every_value_stands_in_it() {
    let sample = sample();
    // Everything that is in force, with the tables of lists among it.
    let in_force: toml::Table = parse(&sample).to_toml().unwrap().parse().unwrap();
    let written: toml::Table = written_out(&sample).parse().unwrap();
    let (mut expected, mut found) = (BTreeSet::new(), BTreeSet::new());
    names("", &toml::Value::Table(in_force), &mut expected);
    names("", &toml::Value::Table(written), &mut found);
    assert_eq!(expected, found);
}

/// Names of all values by section; of a list of tables, those of all its entries.
fn names(path: &str, value: &toml::Value, to: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) if !path.ends_with("rights") => {
            table.iter().for_each(|(name, value)| names(&format!("{path}.{name}"), value, to));
        }
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
            list.iter().for_each(|value| names(path, value, to));
        }
        _ => {
            to.insert(path.to_owned());
        }
    }
}

#[test]
fn a_ring_is_made_of_the_sample_of_its_keyspace() {
    let dir = std::env::temp_dir().join(format!("forebay-ring-sample-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/ring.toml");
    let text = |history: &str| {
        let file = dir.join("links.toml");
        std::fs::create_dir_all(&dir).unwrap();
        let text = std::fs::read_to_string(&sample).unwrap().replace("history_ms = 100", history);
        std::fs::write(&file, text).unwrap();
        "[[ring]]\npath = \"ring\"\n[ring.create]\nkeyspace = \"links.toml\"\nhot_bytes = \"64 MiB\"\nsegment_bytes = \"128 KiB\"\n"
    };
    let settings = |text: &str| Settings::parse(text, "server.toml", &dir).unwrap();
    // What the sample declares does not fit into 64 MiB, and the answer says what would.
    let error = settings(text("history_ms = 100")).ring[0].open().err().unwrap();
    assert!(error.message().contains("1138761728 bytes in all"), "{error}");
    let small = settings(text("history_ms = 1"));
    let ring = small.ring[0].open().unwrap();
    assert_eq!((ring.keyspace().name.as_str(), ring.keyspace().pin_percent), ("links", 50));
    drop(ring);
    // A second start opens what is there; a first one that was cut off is begun again.
    std::fs::create_dir_all(dir.join("cut")).unwrap();
    std::fs::write(dir.join("cut/ring.fb"), [0; 5000]).unwrap();
    let text = text("history_ms = 1").replace("path = \"ring\"", "path = \"cut\"");
    let cut = settings(&text);
    cut.check_start(&cut.server().unwrap()).unwrap();
    drop(cut.ring[0].open().unwrap());
    drop(cut.ring[0].open().unwrap());
    // A ring whose region is gone, as after a restart of the machine, is not created again silently.
    std::fs::remove_file(dir.join("cut/ring.fb")).unwrap();
    cut.ring[0].open().err().unwrap();
    assert!(!dir.join("cut/ring.fb").exists());
    small.check_start(&small.server().unwrap()).unwrap();
    assert_eq!(small.ring[0].open().unwrap().keyspace().sources_max, 48);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn a_check_finds_what_a_start_would_refuse() {
    let dir = std::env::temp_dir().join(format!("forebay-check-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(
        dir.join("events.toml"),
        forebay_core::Keyspace::events("events", 2).opening_runs().to_toml().unwrap(),
    )
    .unwrap();
    std::fs::write(dir.join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(dir.join("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let check = |rights: &str, twice: bool| {
        let keyspace =
            |at: usize| format!("[[keyspace]]\npath = \"store{at}\"\n[keyspace.create]\nkeyspace = \"events.toml\"\n");
        let keyspaces: String = (0..if twice { 2 } else { 1 }).map(keyspace).collect();
        let text = format!("{keyspaces}[[token]]\nname = \"a\"\nsecret_file = \"secret\"\nrights = {{ {rights} }}\n");
        let settings = Settings::parse(&text, "server.toml", &dir).unwrap();
        settings.check_start(&settings.server().unwrap())
    };
    check("events = [\"read\"]", false).unwrap();
    let error = check("calib = [\"read\"]", false).unwrap_err();
    assert!(error.message().contains("calib"), "{error}");
    let error = check("events = [\"read\"]", true).unwrap_err();
    assert!(error.message().contains("two keyspaces are called `events`"), "{error}");
    let _ = std::fs::remove_dir_all(&dir);
}
