//! Names that are near to a name that is not known: for messages.

/// The known name that is closest, where one is close.
pub fn nearest<'a>(what: &str, names: &[&'a str]) -> Option<&'a str> {
    let close = (what.chars().count() / 3).clamp(1, 3);
    names
        .iter()
        .map(|name| (distance(what, name), *name))
        .filter(|(away, _)| *away <= close)
        .min()
        .map(|(_, name)| name)
}

/// Letters to insert, remove or exchange (neighbours count once) to come from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let same = usize::from(from[i - 1] != to[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_near() {
        let names = ["hot_high", "hot_low", "path", "accept_loss"];
        assert_eq!(nearest("hot_hihg", &names), Some("hot_high"));
        assert_eq!(nearest("hotlow", &names), Some("hot_low"));
        assert_eq!(nearest("pth", &names), Some("path"));
        assert_eq!(nearest("directory", &names), None);
        assert_eq!([distance("", "abc"), distance("ab", "ba"), distance("same", "same")], [3, 1, 0]);
    }
}
