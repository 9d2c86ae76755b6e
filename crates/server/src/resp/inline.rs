//! A command in one line, as a person types it into a terminal: words, and quotes around what has blanks in it.

use super::parse::Span;

/// Splits a line into its words, which are written to `words` one after the other.
///
/// # Errors
/// Quotes that are not closed, or not followed by a blank.
pub(super) fn split(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), ()> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let from = words.len();
        match line.get(at) {
            None => break,
            Some(quote @ (b'"' | b'\'')) => at = quoted(line, at + 1, *quote, words)?,
            Some(_) => {
                while let Some(&byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
                    if matches!(byte, b'"' | b'\'') {
                        at = quoted(line, at + 1, byte, words)?;
                        break;
                    }
                    words.push(byte);
                    at += 1;
                }
            }
        }
        spans.push(Span::new(from, words.len() - from));
    }
    if !spans.is_empty() && words.is_empty() {
        // Empty words only: still a text of its own.
        words.push(0);
    }
    Ok(())
}

/// Reads up to the closing quote; answers the place behind it.
fn quoted(line: &[u8], mut at: usize, quote: u8, words: &mut Vec<u8>) -> Result<usize, ()> {
    loop {
        match line.get(at).ok_or(())? {
            b'\\' if quote == b'"' => {
                let hex = |at: usize| line.get(at).and_then(|&digit| char::from(digit).to_digit(16));
                match (line.get(at + 1).ok_or(())?, hex(at + 2), hex(at + 3)) {
                    (b'x', Some(high), Some(low)) => {
                        words.push((high << 4 | low) as u8);
                        at += 4;
                        continue;
                    }
                    (b'n', ..) => words.push(b'\n'),
                    (b'r', ..) => words.push(b'\r'),
                    (b't', ..) => words.push(b'\t'),
                    (b'b', ..) => words.push(8),
                    (b'a', ..) => words.push(7),
                    (other, ..) => words.push(*other),
                }
                at += 2;
            }
            b'\\' if line.get(at + 1) == Some(&b'\'') => {
                words.push(b'\'');
                at += 2;
            }
            &byte if byte == quote => {
                at += 1;
                let apart = line.get(at).is_none_or(u8::is_ascii_whitespace);
                return if apart { Ok(at) } else { Err(()) };
            }
            &byte => {
                words.push(byte);
                at += 1;
            }
        }
    }
}
