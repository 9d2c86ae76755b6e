//! Sources as people choose them on the command line: numbers, ranges, or a group of the keyspace.

use crate::units;
use forebay_core::{Error, Keyspace, Result};
use forebay_store::Sources;

/// `all`, `none`, or a list of sources, ranges (`0..47`, `1/0..9`) and names of groups.
///
/// # Errors
/// `Invalid`, naming the part that is wrong.
pub(crate) fn sources<S: AsRef<str>>(keyspace: &Keyspace, texts: &[S]) -> Result<Sources> {
    match texts {
        [one] if one.as_ref() == "all" => return Ok(Sources::All),
        [one] if one.as_ref() == "none" => return Ok(Sources::None),
        _ => {}
    }
    let mut chosen = Vec::new();
    for text in texts.iter().map(AsRef::as_ref) {
        match keyspace.groups.iter().find(|group| group.name == text) {
            Some(group) => chosen.extend(group.sources.iter().cloned()),
            None if text.starts_with(|first: char| first.is_ascii_digit()) => {
                for values in units::parse_sources(&keyspace.schema, &[text])? {
                    chosen.push(keyspace.schema.source(&values)?);
                }
            }
            None => return Err(no_group(keyspace, text)),
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(Sources::Only(chosen))
}

fn no_group(keyspace: &Keyspace, text: &str) -> Error {
    let groups: Vec<&str> = keyspace.groups.iter().map(|group| group.name.as_str()).collect();
    let known = if groups.is_empty() { "none".to_owned() } else { groups.join(", ") };
    Error::invalid(format!("`{text}` is neither a source nor a group of this keyspace; its groups: {known}"))
}

/// A stream with what it keeps, as `STREAM` or `STREAM:SOURCES`, where the sources are a group or a list with commas.
///
/// # Errors
/// As [`sources`].
pub(crate) fn stream<'t>(keyspace: &Keyspace, text: &'t str) -> Result<(&'t str, Sources)> {
    match text.split_once(':') {
        None => Ok((text, Sources::All)),
        Some((stream, list)) => Ok((stream, sources(keyspace, &list.split(',').collect::<Vec<_>>())?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_ranges_and_groups() {
        let mut keyspace = Keyspace::events("test", 4);
        let only = |numbers: &[u64]| Sources::only(&Keyspace::events("t", 1).schema, numbers.iter().copied()).unwrap();
        let group = |name: &str, numbers: &[u64]| forebay_core::SourceGroup {
            name: name.to_owned(),
            sources: numbers.iter().map(|&number| keyspace.schema.source(&[number]).unwrap()).collect(),
            level: forebay_core::Level::Hot,
        };
        keyspace.groups = vec![group("fast", &[0, 7])];
        for (text, expected) in [
            ("all", Sources::All),
            ("none", Sources::None),
            ("3", only(&[3])),
            ("3,1..2,3", only(&[1, 2, 3])),
            ("fast,9", only(&[0, 7, 9])),
        ] {
            let list: Vec<&str> = text.split(',').collect();
            assert_eq!(sources(&keyspace, &list).unwrap(), expected, "{text}");
        }
        assert_eq!(stream(&keyspace, "calib:fast").unwrap(), ("calib", only(&[0, 7])));
        assert_eq!(stream(&keyspace, "physics").unwrap(), ("physics", Sources::All));
        let error = sources(&keyspace, &["slow"]).unwrap_err();
        assert!(error.message().contains("its groups: fast"), "{error}");
    }
}
