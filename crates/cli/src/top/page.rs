//! A page of metrics in Prometheus's text format, read strictly: what is not a sample or a comment is an error.
//!
//! *Invariant*: a page is foreign bytes: no line of it can do more than be refused (test `no_line_panics`).

use forebay_core::{Error, Result};
use std::collections::{BTreeMap, HashMap};

/// Samples of a page at most: a server has some hundreds to some thousands.
const SAMPLES_MAX: usize = 200_000;

/// Samples by the name of their metric.
#[derive(Debug, Default)]
pub(super) struct Page {
    families: HashMap<String, Vec<Sample>>,
}

/// One value with its labels.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Sample {
    /// The value of a label; empty where it has none.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|label| label.0 == name).map_or("", |label| &label.1)
    }

    fn has(&self, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|(name, value)| self.label(name) == *value)
    }
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// `Corrupt` with the number of the line that is no metric.
    pub(super) fn read(text: &str) -> Result<Page> {
        let mut page = Page::default();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        for (count, (number, line)) in lines.enumerate() {
            let (name, sample) = read_sample(line).ok_or_else(|| {
                // Escaped: it may hold what a terminal obeys.
                let shown: String = line.chars().take(80).collect();
                Error::corrupt(format!("line {} of the metrics is no metric: {shown:?}", number + 1))
            })?;
            if count >= SAMPLES_MAX {
                return Err(Error::corrupt(format!("more than {SAMPLES_MAX} metrics: is this a Forebay server?")));
            }
            page.families.entry(name.to_owned()).or_default().push(sample);
        }
        Ok(page)
    }

    /// Samples of a metric with these labels, among others.
    pub(super) fn samples<'a>(
        &'a self,
        name: &str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.families.get(name).into_iter().flatten().filter(move |sample| sample.has(labels))
    }

    /// The first sample with these labels.
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.samples(name, labels).next().map(|sample| sample.value)
    }

    /// The sum of all samples with these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        // Not `sum`, whose sum of nothing is a negative zero.
        self.samples(name, labels).fold(0.0, |sum, sample| sum + sample.value)
    }

    /// Sums by the value of one label.
    pub(super) fn sums(&self, name: &str, labels: &[(&str, &str)], by: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.samples(name, labels) {
            *sums.entry(sample.label(by).to_owned()).or_default() += sample.value;
        }
        sums
    }

    /// The label's values in the order of the page.
    pub(super) fn labels(&self, name: &str, labels: &[(&str, &str)], by: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for sample in self.samples(name, labels) {
            if values.iter().all(|value| value != sample.label(by)) {
                values.push(sample.label(by).to_owned());
            }
        }
        values
    }
}

fn is_name(text: &str, more: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || more.contains(letter);
    text.starts_with(letter) && text.chars().all(|one| letter(one) || one.is_ascii_digit())
}

/// A name, perhaps labels, a value, and perhaps a time, which is left out.
fn read_sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => read_labels(rest)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_whitespace();
    let value = words.next()?;
    let time = words.next();
    let is_whole = words.next().is_none() && time.is_none_or(|time| time.parse::<i64>().is_ok());
    (is_name(name, ":") && is_whole).then_some(())?;
    Some((name, Sample { labels, value: read_value(value)? }))
}

/// A number as the format writes it: Rust reads more words for infinity than there are.
fn read_value(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" | "inf" => Some(f64::INFINITY),
        "-Inf" | "-inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        number if number.ends_with(|end: char| end.is_ascii_digit() || end == '.') => number.parse().ok(),
        _ => None,
    }
}

type Labels = Vec<(String, String)>;

/// Labels behind their opening brace, and what follows the closing one.
fn read_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels: Labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, behind) = rest.split_once('=')?;
        let name = name.trim_end();
        let is_new = labels.iter().all(|label| label.0 != name);
        (is_name(name, "") && is_new).then_some(())?;
        let (value, behind) = read_string(behind.trim_start().strip_prefix('"')?)?;
        labels.push((name.to_owned(), value));
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind,
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// A string behind its opening quote, with escapes, and what follows the closing one.
fn read_string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_all_that_the_format_has() {
        let text = "# HELP a Help {.\n# TYPE a gauge\na 1\n\na{b=\"x\"} 2.5e3\na{b=\"q\\\"b\\\\n\\n\", c=\"ü}\" ,} -1 1700000000000\n\
                    b:c_total{le=\"+Inf\"} +Inf\nd NaN\n";
        let page = Page::read(text).unwrap();
        assert_eq!(page.value("a", &[]), Some(1.0));
        assert_eq!(page.value("a", &[("b", "x")]), Some(2500.0));
        assert_eq!(page.value("a", &[("b", "q\"b\\n\n"), ("c", "ü}")]), Some(-1.0));
        assert_eq!(page.value("b:c_total", &[("le", "+Inf")]), Some(f64::INFINITY));
        assert!(page.value("d", &[]).unwrap().is_nan());
        assert_eq!(page.value("e", &[]), None);
        assert_eq!(page.sum("a", &[]), 2500.0);
        assert!(page.sum("e", &[]).is_sign_positive());
        assert_eq!(page.labels("a", &[], "b"), ["", "x", "q\"b\\n\n"]);
        assert_eq!(page.sums("a", &[("b", "x")], "b")["x"], 2500.0);
    }

    #[test]
    fn what_is_no_metric_is_refused_by_line() {
        for line in [
            "a",
            "a{",
            "a{}",
            "a{b} 1",
            "a{b=1} 1",
            "a{b=\"1\" 1",
            "a{b=\"1\"c=\"2\"} 1",
            "a{b=\"\\x\"} 1",
            "a{b=\"1\",b=\"2\"} 1",
            "a{1b=\"1\"} 1",
            "1a 1",
            "a one",
            "a infinity",
            "a 1 2 3",
            "a 1 x",
            "{a=\"b\"} 1",
            "<html>",
            "a{b=\"1",
        ] {
            let error = Page::read(&format!("ok 1\n{line}\n")).unwrap_err();
            assert!(error.message().contains("line 2"), "{line}: {error}");
        }
        assert!(!Page::read("\x1b[2J\n").unwrap_err().message().contains('\x1b'));
    }

    #[test]
    fn no_line_panics() {
        let whole = "forebay_a{b=\"ü\\\\\",c=\"\\n\"} 1.5 7";
        let letters: Vec<char> = whole.chars().collect();
        for at in 0..letters.len() {
            let cut: String = letters[..at].iter().collect();
            let without: String =
                letters.iter().enumerate().filter(|(one, _)| *one != at).map(|(_, one)| one).collect();
            for text in [cut, without] {
                // Refused or read, as it comes.
                let _ = Page::read(&text);
            }
        }
    }
}
