//! The tidy check: rules about source files and documents that no compiler checks.
//!
//! Files of at most 800 lines; a module head on each; no circle of folders in a crate; nothing unfinished or skipped; a
//! SAFETY line at each `unsafe`; no test that fails on a busy machine; kept inputs for each fuzz target; no dead link or
//! path in a document.

mod count;
mod documents;
mod walls;

use crate::{Result, child, fuzz};
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 800;
/// Shortest bound on time that a test may assert: shorter ones fail beside other work.
const BOUND_SECONDS_MIN: u64 = 10;
/// Lines above an `unsafe` that may separate it from its SAFETY line, beyond the comment that the line begins.
const SAFETY_WITHIN: usize = 3;
/// Words of unfinished work. In pieces, so that this file passes its own check.
const UNFINISHED: [&str; 5] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ign", "ore"),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
];

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Show the dependencies between the folders of this crate (such as `store`).
    #[arg(long, value_name = "CRATE")]
    arrows: Option<String>,
    /// Show the size of each crate: lines of code, comments that say why, assertions, longest function and struct.
    #[arg(long, conflicts_with = "arrows")]
    count: bool,
}

/// Prints every breach, or the requested tables.
#[expect(clippy::print_stdout, reason = "output of the command")]
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = child::root();
    if options.count {
        return print_counts(&root);
    }
    let Some(name) = &options.arrows else {
        let breaches = check(&root)?;
        breaches.iter().for_each(|breach| println!("{breach}"));
        return Ok(breaches.is_empty());
    };
    let src = root.join("crates").join(name).join("src");
    for ((from, to), places) in walls::arrows(&src)? {
        println!("{from} -> {to}");
        places.iter().for_each(|(file, what)| println!("    {file}: {what}"));
    }
    for circle in walls::circles(&src)? {
        println!("circle: {}", circle.join(", "));
    }
    Ok(true)
}

#[expect(clippy::print_stdout, reason = "output of the command")]
fn print_counts(root: &Path) -> Result<bool> {
    println!(
        "crate        code lines  comments/100  assertions  pub(crate)  circles  longest function, largest struct"
    );
    for name in crates(root)? {
        let count = count::count(&root.join("crates").join(&name).join("src"))?;
        let share = 100.0 * count.comments as f64 / count.code.max(1) as f64;
        let ((lines, function), (fields, largest)) = (&count.longest_function, &count.largest_struct);
        println!(
            "{name:<12} {:>10}  {share:>12.1}  {:>10}  {:>10}  {:>7}  {function} {lines}, {largest} {fields}",
            count.code, count.assertions, count.shared, count.circles
        );
    }
    Ok(true)
}

fn crates(root: &Path) -> Result<Vec<String>> {
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(root.join("crates"))?.collect();
    let mut names: Vec<String> =
        entries?.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Every breach in the Rust files and documents under `root`, as `file:line: what`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(root, ".rs", &mut files)?;
    files.sort();
    let mut breaches = Vec::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        breaches
            .extend(check_text(&std::fs::read_to_string(file)?).into_iter().map(|breach| format!("{name}:{breach}")));
    }
    breaches.extend(files.iter().filter(|file| lacks_inputs(root, file)).map(|file| {
        let name = file.strip_prefix(root).unwrap_or(file).display();
        format!("{name}: no kept inputs: `cargo xtask fuzz --keep` makes them")
    }));
    for name in crates(root)? {
        for circle in walls::circles(&root.join("crates").join(&name).join("src"))? {
            let rooms = circle.join(", ");
            breaches.push(format!("crates/{name}: a circle of folders: {rooms} (`cargo xtask tidy --arrows {name}`)"));
        }
    }
    breaches.extend(documents::check(root)?);
    if files.is_empty() {
        breaches.push("no Rust file found: run from the workspace".to_owned());
    }
    Ok(breaches)
}

/// Whether this is a fuzz target without kept inputs. Shared code is in the same folder and is not a target.
fn lacks_inputs(root: &Path, file: &Path) -> bool {
    let is_target = file.starts_with(root.join("fuzz").join("src"))
        && std::fs::read_to_string(file).is_ok_and(|text| text.contains(fuzz::TARGET));
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    is_target && !root.join("fuzz").join("kept").join(format!("{name}.inputs")).exists()
}

/// Files under `dir` whose names end like this, without those that a build or a fuzzer made.
fn collect(dir: &Path, ending: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            let made = name.starts_with('.')
                || name.starts_with("target")
                || name == "corpus"
                || name == "artifacts"
                || name == "results";
            if !made {
                collect(&entry.path(), ending, files)?;
            }
        } else if name.ends_with(ending) {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn check_text(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut breaches = Vec::new();
    if lines.len() > LINES_MAX {
        breaches.push(format!("{}: more than {LINES_MAX} lines", lines.len()));
    }
    if !lines.first().is_some_and(|line| line.starts_with("//!")) {
        breaches.push("1: no module head (`//!`)".to_owned());
    }
    for (at, line) in lines.iter().enumerate() {
        for word in UNFINISHED {
            if line.contains(word) {
                breaches.push(format!("{}: `{word}`", at + 1));
            }
        }
        if needs_a_quiet_machine(line) {
            breaches.push(format!("{}: a bound of less than {BOUND_SECONDS_MIN} s needs a quiet machine", at + 1));
        }
        if is_unsafe(line) && !has_safety(&lines[..=at]) {
            breaches.push(format!("{}: `unsafe` without a SAFETY line", at + 1));
        }
    }
    breaches
}

/// Whether it asserts that something took less than a few seconds.
fn needs_a_quiet_machine(line: &str) -> bool {
    let Some((before, bound)) = line.split_once(" < Duration::from_") else { return false };
    let Some((unit, number)) = bound.split_once('(') else { return false };
    let number: String = number.chars().take_while(char::is_ascii_digit).collect();
    let is_short = unit != "secs" || number.parse().is_ok_and(|seconds: u64| seconds < BOUND_SECONDS_MIN);
    before.contains("assert") && is_short
}

/// Whether the line's code (not its comment or strings) has the keyword.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let outside_strings: String = code.split('"').step_by(2).collect();
    outside_strings.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

/// Whether the last of these lines, or one shortly above it, or the comment that begins there, gives the reason.
fn has_safety(lines: &[&str]) -> bool {
    let names = |line: &&str| line.contains("SAFETY") || line.contains("# Safety");
    let is_comment = |line: &&&str| line.trim_start().starts_with("//");
    let mut upwards = lines.iter().rev();
    let near: Vec<&&str> = upwards.by_ref().take(SAFETY_WITHIN + 1).collect();
    // A comment that reaches into the near lines is read up to its beginning.
    let reaches = near.last().is_some_and(is_comment);
    near.into_iter().any(names) || (reaches && upwards.take_while(is_comment).any(names))
}

#[cfg(test)]
mod tests {
    use super::check_text;

    #[test]
    fn each_rule_bites() {
        assert_eq!(check_text("//! Head.\nfn f() {}\n"), Vec::<String>::new());
        assert_eq!(check_text("fn f() {}\n").len(), 1);
        assert_eq!(check_text(&format!("//! Head.\n{}", "\n".repeat(800))).len(), 1);
        for word in super::UNFINISHED {
            assert_eq!(check_text(&format!("//! Head.\n{word}\n")).len(), 1, "{word}");
        }
    }

    #[test]
    fn bounds_on_time_are_generous_or_relations() {
        // `@` replaces "less than", so that this file passes the check.
        let line = |bound: &str| format!("//! Head.\n  assert!(from.elapsed{bound});\n").replace('@', "<");
        let breach = |bound: &str| check_text(&line(bound)).len();
        assert_eq!(breach("() @ Duration::from_millis(500)"), 1);
        assert_eq!(breach("() @ Duration::from_secs(9), \"slow\""), 1);
        assert_eq!(breach("() @ Duration::from_secs(10)"), 0);
        assert_eq!(breach("() / 1000 @ Duration::from_micros(1)"), 1);
        assert_eq!(breach("() @ wait"), 0);
        assert_eq!(breach("() >= Duration::from_millis(30)"), 0);
    }

    #[test]
    fn unsafe_needs_its_reason_close_above() {
        // `@` replaces the word, so that this file passes the check.
        let breach = |body: &str| !check_text(&format!("//! Head.\n{body}\n").replace('@', "unsafe")).is_empty();
        assert!(breach("@ { f() }"));
        assert!(breach("// SAFETY: far away.\n\n\n\n\n\n@ { f() }"));
        assert!(!breach("// SAFETY: near.\n@ { f() }"));
        assert!(!breach("// SAFETY: a reason\n// of\n// many\n// lines\n// indeed.\n@ { f() }"));
        assert!(!breach("/// # Safety\n/// The caller upholds it.\n#[inline]\npub @ fn f() {}"));
        assert!(!breach("// @ only in words\nlet text = \"@ { }\";\n#![deny(@_code)]"));
    }
}
