//! Names of columns by pattern: `*` is any text, `?` is one character.

/// Whether a name fits a pattern.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The last star, and how far the name was when it took nothing: where the rest does not fit, it takes one more.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|&c| c == '?' || c == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in
            [("*", ""), ("Muon_*", "Muon_pt"), ("*pt", "Muon_pt"), ("M?on*p*", "Muon_ip3d"), ("a*a*b", "aab")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("Muon", "Muon_pt"), ("?", ""), ("*pt", "Muon_ptErr"), ("a*a*b", "ab")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
