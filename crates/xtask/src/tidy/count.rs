//! The size of a crate: lines of code, comments that say why, assertions, the longest function, the largest struct.
//!
//! *Code lines* have a token of the program on them: no blank lines, comments, documentation, tests or assertions.

use super::walls;
use crate::Result;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::Path;

/// What was counted in one crate.
#[derive(Default)]
pub(super) struct Count {
    pub(super) code: usize,
    /// Lines of comments, documentation aside.
    pub(super) comments: usize,
    pub(super) assertions: usize,
    /// `pub(crate)`.
    pub(super) shared: usize,
    /// Lines and name.
    pub(super) longest_function: (usize, String),
    /// Fields and name.
    pub(super) largest_struct: (usize, String),
    pub(super) circles: usize,
}

/// Counts the files under a crate's `src`.
pub(super) fn count(src: &Path) -> Result<Count> {
    let mut files = Vec::new();
    super::collect(src, ".rs", &mut files)?;
    let mut count = Count { circles: walls::circles(src)?.len(), ..Count::default() };
    for file in files {
        let inside = file.strip_prefix(src).unwrap_or(&file);
        if inside.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file)?;
        count_text(&mut count, &text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(count)
}

fn count_text(count: &mut Count, text: &str) -> Result<()> {
    let mut lines = Lines { count, code: BTreeSet::new(), tests: BTreeSet::new() };
    let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    lines.read(tokens);
    let (code, tests) = (lines.code, lines.tests);
    count.code += code.len();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let says_why = line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
        count.comments += usize::from(says_why && !tests.contains(&(at + 1)));
    }
    Ok(())
}

struct Lines<'a> {
    count: &'a mut Count,
    code: BTreeSet<usize>,
    tests: BTreeSet<usize>,
}

impl Lines<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            at += match rest {
                _ if walls::is_test_only(rest) => {
                    let length = 2 + rest[2..].iter().position(walls::ends_item).map_or(rest.len() - 2, |end| end + 1);
                    let last = &rest[length.min(rest.len()) - 1];
                    self.tests.extend(rest[0].span().start().line..=last.span().end().line);
                    length
                }
                [TokenTree::Punct(hash), TokenTree::Group(group), ..] if hash.as_char() == '#' && is_doc(group) => 2,
                [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(group), ..]
                    if hash.as_char() == '#' && bang.as_char() == '!' && is_doc(group) =>
                {
                    3
                }
                [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(_), ..]
                    if bang.as_char() == '!' && name.to_string().contains("assert") =>
                {
                    self.count.assertions += 1;
                    // With its semicolon.
                    3 + usize::from(matches!(rest.get(3), Some(TokenTree::Punct(end)) if end.as_char() == ';'))
                }
                _ => {
                    self.one(rest);
                    1
                }
            };
        }
    }

    fn one(&mut self, rest: &[TokenTree]) {
        match &rest[0] {
            TokenTree::Group(group) => {
                self.code.insert(group.span_open().start().line);
                self.code.insert(group.span_close().end().line);
                self.read(group.stream());
            }
            TokenTree::Ident(word) if word == "fn" => {
                self.code.insert(word.span().start().line);
                let body = rest.iter().find(|token| walls::ends_item(token));
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (rest.get(1), body) {
                    let lines = body.span_close().end().line + 1 - word.span().start().line;
                    let longest = &mut self.count.longest_function;
                    *longest = std::mem::take(longest).max((lines, name.to_string()));
                }
            }
            TokenTree::Ident(word) if word == "struct" => {
                self.code.insert(word.span().start().line);
                let body = rest.iter().find(|token| walls::ends_item(token));
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (rest.get(1), body) {
                    let largest = &mut self.count.largest_struct;
                    *largest = std::mem::take(largest).max((fields(body.stream()), name.to_string()));
                }
            }
            TokenTree::Ident(word) if word == "pub" => {
                self.code.insert(word.span().start().line);
                let to = rest.get(1).map(ToString::to_string);
                self.count.shared += usize::from(to.as_deref() == Some("(crate)"));
            }
            other => {
                let span = other.span();
                self.code.extend(span.start().line..=span.end().line);
            }
        }
    }
}

/// Whether an attribute's content is documentation.
fn is_doc(group: &proc_macro2::Group) -> bool {
    let mut inside = group.stream().into_iter();
    let is_named = matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc");
    group.delimiter() == Delimiter::Bracket
        && is_named
        && matches!(inside.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '=')
}

/// Fields of a struct's body: names before a single colon.
fn fields(body: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(colon) if colon.as_char() == ':' && colon.spacing() == Spacing::Alone);
    let begins = |at: usize| match at.checked_sub(1).map(|before| &tokens[before]) {
        None => true,
        Some(TokenTree::Punct(comma)) => comma.as_char() == ',',
        // An attribute, or a visibility in parentheses.
        Some(TokenTree::Group(_)) => true,
        Some(TokenTree::Ident(word)) => word == "pub",
        Some(TokenTree::Literal(_)) => false,
    };
    let is_field =
        |at: usize| matches!(tokens[at], TokenTree::Ident(_)) && begins(at) && tokens.get(at + 1).is_some_and(is_colon);
    (0..tokens.len()).filter(|&at| is_field(at)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_counted() {
        let text = r#"//! Head.

/// Documentation.
pub(crate) struct Small {
    a: u8,
    // Why it is here.
    pub(crate) b: Vec<(u8, u8)>,
}

fn long(
    a: u8,
) {
    assert!(a > 0, "none");
    debug_assert_eq!(
        a,
        1
    );
    work(a);
}

#[cfg(test)]
mod tests {
    // Not counted.
    fn test() {}
}
"#;
        let mut count = Count::default();
        count_text(&mut count, text).unwrap();
        assert_eq!((count.code, count.comments, count.assertions, count.shared), (9, 1, 2, 2));
        assert_eq!(count.largest_struct, (2, "Small".to_owned()));
        assert_eq!(count.longest_function, (10, "long".to_owned()));
    }
}
