//! `docs/server.toml` says what the code does: it reads, every value stands in it, and every default is the code's.

use forebay_server::Settings;
use std::collections::BTreeSet;
use std::path::Path;

fn sample() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.toml")).unwrap()
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
    assert_eq!((settings.keyspace.len(), settings.token.len(), settings.listen.native.len()), (1, 2, 3));
    assert!(settings.tls.is_some() && settings.keyspace[0].create.is_some());
    assert_eq!(settings.keyspace[0].create.as_ref().unwrap().keyspace, Path::new("/etc/forebay/detector.toml"));
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
