//! Whether programs of an earlier revision work with those of this one: both are compiled, and talk to each other.
//!
//! ```text
//! git worktree of REVISION ─┐              client ─▶ server: old ─▶ new, new ─▶ old
//! this tree ────────────────┴─▶ forebay ─▶ a store, killed in the middle: old, then new, then old again; and the reverse
//!                                          client ─▶ three nodes of a cluster: old ─▶ new
//! ```
//!
//! *Invariants*: an answer is right by its exit code and its words together. A store is opened by the other program with all that was
//! acknowledged, or, where that program is the older one, refused with `Invalid`.

use crate::{Result, child, tree};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What to compare with.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The revision whose program is the old one: anything that git understands.
    revision: String,
}

const STORE: &str = "create DIR/store --sources-per-event 2 --complete-within 10h --attribute lumi:u32 --hot-bytes 32M --warm DIR/warm:64M";

/// Lines of exit code, command and words of the answer.
const EXCHANGES: &str = include_str!("old.txt");

/// A server, killed where it goes out of scope.
struct Server {
    process: Child,
    /// Its addresses, taken in turn, and where it answers over HTTP.
    places: [String; 2],
    http: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What is tried, in a directory of its own.
struct Trial {
    dir: PathBuf,
    name: String,
    asked: usize,
    wrong: usize,
}

/// Builds both and tries them; `false` if an answer is another one than expected.
#[expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]
pub(crate) fn run(options: &Options) -> Result<bool> {
    let dir = child::target_dir().join("old");
    tree::checkout(&options.revision, &dir.join("tree"))?;
    let old = build(&dir.join("tree"), &dir.join("before"))?;
    let new = build(&child::root(), &dir.join("now"))?;
    let mut trial = Trial { dir: dir.join("trial"), name: String::new(), asked: 0, wrong: 0 };
    trial.exchanges("old client, new server", &old, &new)?;
    trial.exchanges("new client, old server", &new, &old)?;
    trial.killed("store of the old one", &old, &[(&new, false), (&old, true), (&new, false)])?;
    trial.killed("store of the new one", &new, &[(&old, true), (&new, false)])?;
    trial.nodes("old client, nodes of a cluster", &old, &new)?;
    println!("{} answers of {} as expected", trial.asked - trial.wrong, trial.asked);
    Ok(trial.wrong == 0)
}

/// Compiles the program of one tree as the checks do; the next build leaves the copy alone.
fn build(tree: &Path, copy: &Path) -> Result<PathBuf> {
    let mut cargo = child::cargo(&["build", "--quiet", "--profile", "checked", "--bin", "forebay", "--manifest-path"]);
    if !cargo.arg(tree.join("Cargo.toml")).arg("--target-dir").arg(child::target_dir()).status()?.success() {
        return Err(format!("{} does not build", tree.display()).into());
    }
    fs::copy(child::target_dir().join("checked/forebay"), copy)?;
    Ok(copy.to_path_buf())
}

impl Trial {
    /// Begins with an empty directory.
    fn begin(&mut self, name: &str) -> Result<()> {
        name.clone_into(&mut self.name);
        let _ = fs::remove_dir_all(&self.dir);
        Ok(fs::create_dir_all(&self.dir)?)
    }

    fn exchanges(&mut self, name: &str, client: &Path, server: &Path) -> Result<()> {
        self.begin(name)?;
        self.expect(server, None, STORE, 0, "created")?;
        let served = self.serve(server, "store", "")?;
        for row in EXCHANGES.lines().filter(|row| !row.starts_with('#')) {
            let [code, line, words] = row.splitn(3, '|').map(str::trim).collect::<Vec<_>>()[..] else {
                return Err(format!("not a row of exchanges: {row}").into());
            };
            self.expect(client, Some(&served), line, code.parse()?, words)?;
        }
        Ok(())
    }

    /// Kills the writer's server under load, and opens its store with others, of which older ones may refuse it.
    fn killed(&mut self, name: &str, writer: &Path, openers: &[(&Path, bool)]) -> Result<()> {
        self.begin(name)?;
        self.expect(writer, None, STORE, 0, "created")?;
        let served = self.serve(writer, "store", "")?;
        for event in 0..20 {
            self.expect(writer, Some(&served), &format!("put PLACE 1/{event}/0 acknowledged"), 0, "stored")?;
        }
        self.expect(writer, Some(&served), "event PLACE 1/0 --seal", 0, "ready")?;
        self.expect(writer, Some(&served), "take PLACE --event 1/0 --accept main", 0, "accepted")?;
        let load =
            "daq readout --connect PLACE --run 2 --sources 0..2 --fragment-bytes 1KiB --events 100000 --patience 1s";
        let mut readout = self.command(writer, Some(&served), load).spawn()?;
        std::thread::sleep(Duration::from_secs(1));
        drop(served);
        readout.wait()?;
        let looks = [
            ("check DIR/store --deep", "no problems found"),
            ("range DIR/store 1", "20 fragments, 240 B"),
            ("event DIR/store 1/0", "accepted"),
            ("ledger DIR/store 1 --json", "\"balanced\":true"),
            ("ledger DIR/store 2 --json", "\"balanced\":true"),
        ];
        for (opener, may_refuse) in openers {
            for (line, words) in looks {
                let (code, said) = self.answer(opener, None, line)?;
                let refused = *may_refuse && code == 2 && said.contains("Invalid");
                self.judge(line, refused || (code == 0 && said.contains(words)), &format!("{code}: {said}"));
            }
        }
        Ok(())
    }

    /// A client that knows no clusters: the home of an event answers it, each other node names that home.
    fn nodes(&mut self, name: &str, client: &Path, server: &Path) -> Result<()> {
        self.begin(name)?;
        let mut map = "cluster new DIR/map".to_owned();
        for node in ["n1", "n2", "n3"] {
            self.expect(
                server,
                None,
                &format!("create DIR/{node} --sources-per-event 1 --hot-bytes 16M"),
                0,
                "created",
            )?;
            map += &format!(" --node {node}=unix:DIR/{node}.sock=DIR/{node}");
        }
        self.expect(server, None, &map, 0, "")?;
        let nodes = ["n1", "n2", "n3"].map(|node| self.serve(server, node, "--cluster DIR/map"));
        let nodes = nodes.into_iter().collect::<Result<Vec<_>>>()?;
        let (all, end) = ("unix:DIR/n1.sock,unix:DIR/n3.sock", Instant::now() + Duration::from_secs(60));
        while self.answer(server, None, &format!("cluster status {all}"))?.0 != 0 && Instant::now() < end {}
        for line in ["put PLACE 1/64/0 bytes", "get PLACE 1/64/0", "take PLACE --event 1/64 --accept main"] {
            let answers = nodes.iter().map(|node| self.answer(client, Some(node), line)).collect::<Result<Vec<_>>>()?;
            let away = answers.iter().filter(|(code, said)| *code == 6 && said.contains("its home is node")).count();
            let right = away == 2 && answers.iter().any(|(code, _)| *code == 0);
            self.judge(line, right, &format!("{answers:?}"));
        }
        for (line, words) in [("run PLACE stop 1", "stopped"), ("run PLACE close 1", "closed")] {
            self.expect(client, nodes.last(), line, 0, words)?;
            self.expect(server, None, &format!("run {all} list"), 0, words)?;
        }
        self.expect(server, None, &format!("ledger {all} 1 --json"), 0, "\"balanced\":true")
    }

    /// Serves a store of the directory.
    fn serve(&self, program: &Path, store: &str, more: &str) -> Result<Server> {
        let line = format!(
            "serve DIR/{store} --native unix:DIR/{store}.sock --native tcp://127.0.0.1:0 --resp unix:DIR/{store}.resp \
             --http 127.0.0.1:0 --json {more}"
        );
        let mut process = self.command(program, None, &line).stdout(Stdio::piped()).spawn()?;
        let lines = process.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines());
        let said = lines.map_while(std::io::Result::ok).find(|line| line.contains("listening")).unwrap_or_default();
        let mut server = Server { process, places: Default::default(), http: String::new() };
        let at = &serde_json::from_str::<serde_json::Value>(&said)?["listening"];
        let place = |at: &serde_json::Value| at.as_str().unwrap_or_default().to_owned();
        server.places = [place(&at["native"][0]), place(&at["native"][1])];
        server.http = place(&at["http"]);
        Ok(server)
    }

    /// A command line, split at its spaces.
    fn command(&self, program: &Path, server: Option<&Server>, line: &str) -> Command {
        let mut command = Command::new(program);
        let place = server.map_or("", |server| &server.places[self.asked % 2]);
        let http = server.map_or("", |server| &server.http);
        let fill =
            |word: &str| word.replace("DIR", &self.dir.to_string_lossy()).replace("PLACE", place).replace("HTTP", http);
        command
            .args(line.split_whitespace().map(fill))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Exit code of a command, and all that it said.
    fn answer(&self, program: &Path, server: Option<&Server>, line: &str) -> Result<(i32, String)> {
        let mut command = self.command(program, server, line);
        let done = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        let said = [done.stdout, done.stderr].concat();
        Ok((done.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
    }

    fn expect(&mut self, program: &Path, server: Option<&Server>, line: &str, code: i32, words: &str) -> Result<()> {
        let (ended, said) = self.answer(program, server, line)?;
        self.judge(line, ended == code && said.contains(words), &format!("{ended} for {code}, {words:?} in: {said}"));
        Ok(())
    }

    #[expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]
    fn judge(&mut self, line: &str, right: bool, said: &str) {
        self.asked += 1;
        if !right {
            self.wrong += 1;
            println!("WRONG: {}: `{line}`: {said}", self.name);
        }
    }
}
