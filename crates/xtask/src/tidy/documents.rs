//! Documents: relative links and the paths of code that they name exist.
//!
//! ```text
//! [text](target#heading) ─▶ target exists beside the document      `crates/a/src/{b,c}.rs` ─▶ each file exists
//! ```
//!
//! *Not here*: paths in decisions, which name the code of their day, and in documents whose rewrite is under way
//! (`NOT_YET`).

use crate::Result;
use std::path::{Path, PathBuf};

/// Folders of the repository: a path in backticks that begins with one of them names a file or a folder.
const ROOTS: [&str; 4] = ["crates/", "docs/", "fuzz/", "packaging/"];
const DECISIONS: &str = "docs/decisions";
/// Documents that still name code that has moved: an entry goes when its document is rewritten.
const NOT_YET: [&str; 1] = ["docs/format-wire.md"];

/// Every dead link and dead path in the Markdown files under `root`, as `file:line: what`.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    super::collect(root, ".md", &mut files)?;
    files.sort();
    let mut breaches = Vec::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file);
        let text = std::fs::read_to_string(file)?;
        let found = check_text(&text, name, &|path: &Path| root.join(path).exists());
        breaches.extend(found.into_iter().map(|breach| format!("{}:{breach}", name.display())));
    }
    Ok(breaches)
}

/// Breaches in one document, which is at `name` in the repository.
fn check_text(text: &str, name: &Path, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut breaches = Vec::new();
    let folder = name.parent().unwrap_or(Path::new(""));
    for (at, line) in text.lines().enumerate() {
        for target in links(line) {
            if !target.is_empty() && !exists(&resolve(folder, target)) {
                breaches.push(format!("{}: dead link `{target}`", at + 1));
            }
        }
        if name.starts_with(DECISIONS) || NOT_YET.iter().any(|document| name == Path::new(document)) {
            continue;
        }
        for path in paths(line) {
            if !exists(Path::new(&path)) {
                breaches.push(format!("{}: no `{path}`", at + 1));
            }
        }
    }
    breaches
}

/// Targets of links to files, without their headings.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).filter_map(|target| target.split('#').next())
}

/// Paths in backticks; braces list several.
fn paths(line: &str) -> impl Iterator<Item = String> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        ROOTS.iter().any(|root| text.starts_with(root))
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-{},".contains(c))
    };
    quoted.filter(is_path).flat_map(|text| {
        match text.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            Some((before, (names, after))) => names.split(',').map(|name| format!("{before}{name}{after}")).collect(),
            None => vec![text.to_owned()],
        }
    })
}

/// A relative target without `..`, so that it can be looked up.
fn resolve(folder: &Path, target: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in target.split('/') {
        match part {
            ".." => drop(path.pop()),
            "." | "" => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::check_text;
    use std::path::Path;

    #[test]
    fn dead_links_and_paths_are_found() {
        let exists = |path: &Path| {
            ["docs/glossary.md", "README.md", "crates/a/src/b.rs"].iter().any(|name| path == Path::new(name))
        };
        let breaches = |text: &str| check_text(text, Path::new("docs/page.md"), &exists).len();
        assert_eq!(breaches("[words](glossary.md#data) [up](../README.md) [here](#data) [site](https://a.b/c)"), 0);
        assert_eq!(breaches("[words](glossar.md) and [up](README.md)"), 2);
        assert_eq!(breaches("`crates/a/src/b.rs` and `a/b.rs`, `crates/…/b.rs`"), 0);
        assert_eq!(breaches("`crates/a/src/{b,c}.rs`, `crates/z`"), 2);
    }

    #[test]
    fn decisions_may_name_code_of_their_day() {
        let breaches = |text: &str| check_text(text, Path::new("docs/decisions/0001-x.md"), &|_: &Path| false).len();
        assert_eq!(breaches("`crates/a/src/b.rs`"), 0);
        assert_eq!(breaches("[gone](gone.md)"), 1);
    }
}
