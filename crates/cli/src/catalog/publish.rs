//! `forebay catalog publish`: a version of a dataset becomes an entry of a catalogue.

use super::{Place, json_of, line_of};
use crate::dataset::progress::Progress;
use crate::output::{Answer, Output};
use forebay_core::Result;
use forebay_dataset::catalogue::{Parent, Publication, Source};

const HELP: &str = "\
Publish a version of a dataset under a name: scope:name, as in Rucio. The entry is made from the dataset: events and columns, source \
files and parents that its facts name, lumi sections from its columns run and luminosityBlock, Adler-32 and SHA-256 of its objects. \
For the checksums every object is read, of a later version only those that are new; an object that is damaged is named, and nothing is \
published.

A name means one dataset and all its versions. To publish the same again changes nothing; with other tags it replaces the entry.

Example: the newest version, with tags; an older one, without reading its objects; with what it was made from:
  forebay catalog publish /tmp/catalogue user.ann:z_peak /tmp/ds --software CMSSW_14_0_1 --conditions 140X_v2 --tag quality=good
  forebay catalog publish /tmp/catalogue user.ann:z_peak /tmp/ds --version 0 --no-checksums
  forebay catalog publish s3://physics/catalogue cms:/DoubleMuon/Run2024/SKIM s3://physics/skim --parent 0f1e…:3

With --json: the entry, with `change` (its number) and `is_new`.";

/// Publish a version of a dataset under a name.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Publish {
    #[command(flatten)]
    place: Place,
    /// Its name: scope:name.
    #[arg(value_name = "NAME")]
    name: String,
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "DATASET")]
    dataset: String,
    /// Version to publish; the newest one when not given.
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// The software that made it: the tag `software`.
    #[arg(long, value_name = "TEXT")]
    software: Option<String>,
    /// The conditions that it was made with: the tag `conditions`.
    #[arg(long, value_name = "TEXT")]
    conditions: Option<String>,
    /// Another tag; may be given several times.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// A dataset that it was made from, and which version; may be given several times.
    #[arg(long = "parent", value_name = "UUID[:N]", value_parser = parent)]
    parents: Vec<Parent>,
    /// A source file beside those that the dataset names; may be given several times.
    #[arg(long = "file", value_name = "NAME")]
    files: Vec<String>,
    /// Compute no checksums: no object is read.
    #[arg(long)]
    no_checksums: bool,
    /// List no lumi sections.
    #[arg(long)]
    no_lumis: bool,
}

impl Publish {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let catalogue = self.place.open()?;
        let mut publication = Publication::new(&self.name, &self.dataset);
        publication.version = self.version;
        publication.parents.clone_from(&self.parents);
        publication.sources =
            self.files.iter().map(|name| Source { name: name.clone(), ..Source::default() }).collect();
        publication.tags = self.tags.iter().cloned().collect();
        let own = [("software", &self.software), ("conditions", &self.conditions)];
        publication.tags.extend(own.into_iter().filter_map(|(tag, text)| Some((tag.to_owned(), text.clone()?))));
        (publication.checksums, publication.lumis) = (!self.no_checksums, !self.no_lumis);
        let progress = Progress::start(out, "reading objects");
        let published = catalogue.publish(&publication, &mut |done, all| progress.set(done, all, "bytes"))?;
        drop(progress);
        let mut value = json_of(&published.listed)?;
        value["is_new"] = published.is_new.into();
        out.json(&value)?;
        let change = published.listed.change;
        out.line(line_of(&published.listed))?;
        out.line(match published.is_new {
            true => format!("published as change {change} of {}", catalogue.url()),
            false => format!("published already, as change {change} of {}", catalogue.url()),
        })?;
        if let Some(error) = published.unfinished {
            out.note(format!(
                "forebay: it is published; readers need more requests until somebody publishes again: {error}"
            ));
        }
        Ok(Answer::Yes)
    }
}

/// `key=value`.
pub(super) fn tag(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a tag is KEY=VALUE, such as quality=good".to_owned()),
    }
}

fn parent(text: &str) -> std::result::Result<Parent, String> {
    let (uuid, version) = text.split_once(':').map_or((text, None), |(uuid, version)| (uuid, Some(version)));
    if uuid.len() != 32 || !uuid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(
            "a parent is the UUID of a dataset, 32 hexadecimal digits (forebay dataset ls shows it), and :version"
                .to_owned(),
        );
    }
    let version =
        version.map(|version| version.parse().map_err(|_| format!("{version:?} is no version"))).transpose()?;
    Ok(Parent { uuid: uuid.to_ascii_lowercase(), version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_parents() {
        assert_eq!(tag("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(tag("a").is_err() && tag("=b").is_err());
        let uuid = "0123456789abcdef".repeat(2);
        assert_eq!(parent(&format!("{uuid}:7")).unwrap(), Parent { uuid: uuid.clone(), version: Some(7) });
        assert_eq!(parent(&uuid.to_uppercase()).unwrap(), Parent { uuid: uuid.clone(), version: None });
        assert!(parent("abc").is_err() && parent(&format!("{uuid}:x")).is_err());
    }
}
