//! Walls: the dependencies between the rooms of a crate, read from the tokens of its files.
//!
//! ```text
//! src/a/…, src/b.rs ─ `crate::b::X`, `super::…`, re-exports of lib.rs ─▶ arrows a ─▶ b ─▶ circles (Tarjan)
//! ```
//!
//! A *room* is what lib.rs or main.rs declares: a folder or a file. Tests are excluded: they may use every room.

use crate::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What one room takes from another: the file and the name, for each place.
pub(super) type Arrows = BTreeMap<(String, String), BTreeSet<(String, String)>>;

/// Circles of rooms in a crate in which a folder takes part, each with the arrows in it.
pub(super) fn circles(src: &Path) -> Result<Vec<Vec<String>>> {
    let arrows = arrows(src)?;
    Ok(circles_of(&arrows).into_iter().filter(|rooms| rooms.iter().any(|room| src.join(room).is_dir())).collect())
}

/// What the rooms of a crate take from each other.
pub(super) fn arrows(src: &Path) -> Result<Arrows> {
    let mut files = Vec::new();
    super::collect(src, ".rs", &mut files)?;
    let top = |name: &str| src.join(name);
    let root = [top("lib.rs"), top("main.rs")].into_iter().find(|file| file.exists());
    let Some(root) = root else { return Ok(Arrows::new()) };
    let mut names = BTreeMap::new();
    let mut found = Paths { inside: Vec::new(), found: Vec::new() };
    found.read(parse(&root)?);
    for path in &found.found {
        // What lib.rs takes from a room, others take from there through lib.rs.
        if let [first @ .., last] = &path[..]
            && let Some(room) = first.first()
        {
            names.insert(last.clone(), room.clone());
        }
    }
    let mut arrows = Arrows::new();
    for file in files {
        let inside = module_of(src, &file);
        let Some(room) = inside.first().cloned() else { continue };
        if inside.iter().any(|part| part == "tests") {
            continue;
        }
        let mut paths = Paths { inside, found: Vec::new() };
        paths.read(parse(&file)?);
        let name = file.strip_prefix(src).unwrap_or(&file).display().to_string();
        for path in paths.found {
            let Some(first) = path.first() else { continue };
            let is_room = top(first).is_dir() || top(&format!("{first}.rs")).exists();
            let to = if is_room { Some(first) } else { names.get(first) };
            if let Some(to) = to.filter(|to| **to != room) {
                let what = path.last().cloned().unwrap_or_default();
                arrows.entry((room.clone(), to.clone())).or_default().insert((name.clone(), what));
            }
        }
    }
    Ok(arrows)
}

fn parse(file: &Path) -> Result<TokenStream> {
    let text = std::fs::read_to_string(file)?;
    text.parse().map_err(|error| format!("{}: {error}", file.display()).into())
}

/// The module that a file is, from the crate's root on.
fn module_of(src: &Path, file: &Path) -> Vec<String> {
    let inside: PathBuf = file.strip_prefix(src).unwrap_or(file).with_extension("");
    let mut parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Paths from the crate's root that a file names.
struct Paths {
    inside: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Paths {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_only(&tokens[at..]) {
                at += 2 + tokens[at + 2..].iter().position(ends_item).map_or(tokens.len(), |end| end + 1);
                continue;
            }
            at += match &tokens[at] {
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    1
                }
                // Declared rooms of the root are named without `crate` there.
                TokenTree::Ident(word) if word == "use" && self.inside.is_empty() => {
                    let mut path = Vec::new();
                    1 + self.tree(&tokens[at + 1..], &mut path)
                }
                TokenTree::Ident(word) if word == "crate" && is_path(&tokens[at + 1..]) => {
                    let mut path = Vec::new();
                    3 + self.tree(&tokens[at + 3..], &mut path)
                }
                TokenTree::Ident(word) if word == "super" && is_path(&tokens[at + 1..]) => {
                    let mut path = self.inside.clone();
                    path.pop();
                    let mut ahead = 3;
                    while matches!(&tokens.get(at + ahead), Some(TokenTree::Ident(word)) if word == "super") {
                        path.pop();
                        ahead += 3;
                    }
                    ahead + tokens.get(at + ahead..).map_or(0, |rest| self.tree(rest, &mut path))
                }
                _ => 1,
            };
        }
    }

    /// One path, or a tree of them in braces, behind `prefix`; answers how many tokens it took.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &mut Vec<String>) -> usize {
        match tokens.first() {
            Some(TokenTree::Ident(word)) => {
                prefix.push(word.to_string());
                let mut took = 1;
                if is_path(&tokens[1..]) {
                    took += 2 + self.tree(&tokens[3..], prefix);
                } else {
                    self.found.push(prefix.clone());
                }
                prefix.pop();
                took
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inner.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',')) {
                    self.tree(part, prefix);
                }
                1
            }
            // `*`, or `<` of generic arguments: the path before it counts.
            _ => {
                self.found.push(prefix.clone());
                0
            }
        }
    }
}

fn is_path(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(one), TokenTree::Punct(two), ..] if one.as_char() == ':' && two.as_char() == ':')
}

/// `#[cfg(test)]`, `#[cfg(all(test, …))]` and similar attributes begin here.
pub(super) fn is_test_only(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else { return false };
    let text = group.stream().to_string().replace(' ', "");
    hash.as_char() == '#' && (text.starts_with("cfg(test") || text.starts_with("cfg(all(test"))
}

pub(super) fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(end) => end.as_char() == ';',
        _ => false,
    }
}

/// Groups of rooms of which each reaches each other.
fn circles_of(arrows: &Arrows) -> Vec<Vec<String>> {
    let reaches = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from.clone()];
        while let Some(room) = next.pop() {
            for (_, to) in arrows.keys().filter(|(here, _)| *here == room) {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let rooms: BTreeSet<&String> = arrows.keys().map(|(from, _)| from).collect();
    let reached: BTreeMap<&String, BTreeSet<String>> = rooms.iter().map(|room| (*room, reaches(room))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (room, there) in &reached {
        if there.contains(*room) && !circles.iter().any(|circle| circle.contains(room)) {
            let back = |other: &&String| reached.get(*other).is_some_and(|theirs| theirs.contains(*room));
            circles.push(there.iter().filter(back).cloned().collect());
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(inside: &str, text: &str) -> Vec<String> {
        let inside = inside.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let mut paths = Paths { inside, found: Vec::new() };
        paths.read(text.parse().unwrap());
        paths.found.into_iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_read_from_the_crates_root() {
        assert_eq!(
            paths("a::b", "use crate::{c::D, e::{F, g::*}}; fn f() { crate::h::i::<u8>() }"),
            ["c::D", "e::F", "e::g", "h::i"]
        );
        assert_eq!(paths("a::b", "use super::c; use super::super::d::E; x!(super::f)"), ["a::c", "d::E", "a::f"]);
        assert_eq!(paths("a", "#[cfg(test)] mod tests { use crate::b; } use crate::c;"), ["c"]);
        assert_eq!(paths("", "pub use a::{B, c::D}; mod a;"), ["a::B", "a::c::D"]);
    }

    #[test]
    fn circles_are_found() {
        let arrow = |from: &str, to: &str| ((from.to_owned(), to.to_owned()), BTreeSet::new());
        let open = [arrow("a", "b"), arrow("b", "c"), arrow("a", "c")];
        assert!(circles_of(&open.into_iter().collect()).is_empty());
        let closed = [arrow("a", "b"), arrow("b", "c"), arrow("c", "a"), arrow("d", "a"), arrow("c", "e")];
        assert_eq!(circles_of(&closed.into_iter().collect()), [["a", "b", "c"]]);
    }
}
