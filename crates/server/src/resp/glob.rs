//! Patterns as Redis has them: `*`, `?`, `[a-c]`, `[^a]`, `\x`.

/// Whether the text is of this pattern. Time is at most the product of both lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where to go on after the last `*`, and the text from which it has taken nothing more yet.
    let mut again: Option<(usize, usize)> = None;
    let (mut at, mut place) = (0, 0);
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            again = Some((at, place));
            continue;
        }
        let fits = match text.get(place) {
            None if at == pattern.len() => return true,
            None => return false,
            Some(&byte) => one(&pattern[at..], byte),
        };
        match (fits, again) {
            (Some(length), _) => (at, place) = (at + length, place + 1),
            (None, Some((star, from))) => {
                again = Some((star, from + 1));
                (at, place) = (star, from + 1);
            }
            (None, None) => return false,
        }
    }
}

/// Length of the pattern's first element, if the byte is of it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => {
            let mut at = 1;
            let negated = pattern.get(at) == Some(&b'^');
            at += usize::from(negated);
            let mut found = false;
            loop {
                match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
                    (None, ..) => break,
                    (Some(b']'), ..) => {
                        at += 1;
                        break;
                    }
                    (Some(b'\\'), Some(&escaped), _) => {
                        found |= escaped == byte;
                        at += 2;
                    }
                    (Some(&first), Some(b'-'), Some(&last)) => {
                        found |= (first.min(last)..=first.max(last)).contains(&byte);
                        at += 3;
                    }
                    (Some(&plain), ..) => {
                        found |= plain == byte;
                        at += 1;
                    }
                }
            }
            (found != negated).then_some(at)
        }
        plain => (plain == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("1/42/*", "1/42/7", true),
            ("1/42/*", "1/421/7", false),
            ("*", "", true),
            ("*/7", "1/42/7", true),
            ("1/*/?", "1/42/10", false),
            ("1/4[0-2]/*", "1/42/10", true),
            ("1/4[^2]/*", "1/42/10", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("", "x", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(!matches(&b"*a".repeat(200), &[b'a'; 150]));
        assert!(!matches(&[b"*a".repeat(50), b"b".to_vec()].concat(), &[b'a'; 5000]));
    }
}
