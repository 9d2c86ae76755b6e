//! Tokens, certificates and the audit log of a server that runs on: real processes, real files.

use super::serve::Serving;
use super::{Temp, assert_code, stderr, write};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const OLD: &str = "the secret of the old token";
const NEW: &str = "the secret of the new token";

struct Bed {
    temp: Temp,
    config: PathBuf,
}

impl Bed {
    /// A store with two accepted events, tokens for an expert and a mover, and an audit log.
    fn new(listen: &str, tls: &str) -> Bed {
        let temp = Temp::with_store();
        for event in ["1/1", "1/2"] {
            temp.event(event);
            assert_code(&temp.run(&["take", "STORE", "--accept", "physics"]), 0);
        }
        let bed = Bed { config: temp.root.join("server.toml"), temp };
        bed.secret("expert", OLD);
        bed.secret("mover", "the secret of the mover!!");
        bed.configure(listen, tls, "");
        bed
    }

    fn secret(&self, name: &str, secret: &str) -> String {
        let path = self.temp.root.join(name);
        // Written beside and renamed: a server that looks meanwhile sees a whole one.
        let beside = self.temp.root.join(format!("{name}.new"));
        std::fs::write(&beside, secret).unwrap();
        std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn configure(&self, listen: &str, tls: &str, more: &str) {
        let text = format!(
            "state_dir = {:?}\n[listen]\nnative = [\"{listen}\"]\nresp = []\nhttp = \"127.0.0.1:0\"\n{tls}\n\
             [audit]\nfile = \"audit.log\"\nfiles_max = 1\n[[keyspace]]\npath = {:?}\n\
             [[token]]\nname = \"expert\"\nsecret_file = \"expert\"\nrights = {{ \"*\" = [\"read\", \"admin\"] }}\n\
             [[token]]\nname = \"mover\"\nsecret_file = \"mover\"\nrights = {{ \"*\" = [\"archive\"] }}\n{more}",
            self.temp.root.join("state"),
            self.temp.store()
        );
        write(&self.config, text.as_bytes());
    }

    fn start(&self) -> Serving {
        let config = self.config.to_str().unwrap();
        Serving::start(&mut self.temp.command(&["serve", "--config", config]))
    }

    fn release(&self, event: &str, token: &Path) -> std::process::Output {
        self.temp.run(&["release", "STORE", event, "--token-file", token.to_str().unwrap()])
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.temp.root.join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Tries until it answers with this code; the server looks at its files every few seconds.
    fn until(&self, code: i32, token: &Path) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let seen = self.temp.run(&["ledger", "STORE", "1", "--token-file", token.to_str().unwrap()]);
            if seen.status.code() == Some(code) {
                return;
            }
            assert!(Instant::now() < deadline, "{}", stderr(&seen));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn tokens_change_while_a_server_runs_and_releases_are_in_the_audit_log() {
    let bed = Bed::new("tcp://127.0.0.1:0", "");
    let server = bed.start();
    let (expert, mover) = (bed.temp.root.join("expert"), bed.temp.root.join("mover"));
    let old = PathBuf::from(bed.secret("copy-of-old", OLD));
    // A mover releases, and does nothing else.
    assert_code(&bed.release("1/1", &mover), 0);
    let refused = bed.temp.run(&["rm", "STORE", "1/2", "--token-file", mover.to_str().unwrap()]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("`admin`"), "{}", stderr(&refused));

    // A new secret counts once its file has changed, and the old one no more.
    bed.secret("expert", NEW);
    bed.until(0, &expert);
    bed.until(2, &old);
    // A file that cannot be a secret changes nothing.
    bed.secret("expert", "short");
    until_page(&server, |page| page.contains("forebay_reloads_total{result=\"refused\"} 1\n"));
    let kept = PathBuf::from(bed.secret("copy-of-new", NEW));
    bed.until(0, &kept);
    // A token of the configuration comes with SIGHUP.
    bed.secret("expert", NEW);
    bed.secret("monitor", "the secret of a monitor");
    bed.configure(
        "tcp://127.0.0.1:0",
        "",
        "[[token]]\nname = \"monitor\"\nsecret_file = \"monitor\"\nrights = { \"*\" = [\"read\"] }\n",
    );
    server.signal("HUP");
    bed.until(0, &bed.temp.root.join("monitor"));
    assert_code(&bed.release("1/2", &expert), 0);
    server.end("TERM");

    let lines = bed.audit();
    let of = |call: &str| -> Vec<(String, String)> {
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let lines = lines.iter().filter(|line| line["call"] == call);
        lines.map(|line| (text(line, "token"), text(line, "answer"))).collect()
    };
    let pair = |token: &str, answer: &str| (token.to_owned(), answer.to_owned());
    assert_eq!(
        of("release"),
        [pair("mover", "asked"), pair("mover", "done"), pair("expert", "asked"), pair("expert", "done")]
    );
    assert!(of("reload").iter().any(|(_, answer)| answer == "done"), "{lines:?}");
    assert!(of("remove").is_empty(), "what was refused for its right was not asked of the store");
}

#[test]
fn changes_of_a_run_are_signed_by_the_token() {
    let bed = Bed::new("tcp://127.0.0.1:0", "");
    let server = bed.start();
    let expert = bed.temp.root.join("expert");
    let ask = |words: &[&str]| {
        let words = [&words[..2], &["--token-file", expert.to_str().unwrap()], &words[2..]].concat();
        bed.temp.json(&words, 0)[0].clone()
    };
    ask(&["run", "STORE", "open", "5", "--prescale", "mu=20"]);
    ask(&["mask", "STORE", "5", "2"]);
    ask(&["run", "STORE", "prescale", "5", "mu", "40"]);
    ask(&["run", "STORE", "stop", "5"]);
    let summary = ask(&["run", "STORE", "close", "5"])["summary"].clone();
    let by = [&summary["opened"], &summary["masks"][0], &summary["prescales"][0], &summary["prescales"][1]];
    assert_eq!(by.map(|record| record["by"].as_str()), [Some("expert"); 4], "{summary}");
    // The server answers it after the close as well.
    assert_eq!(ask(&["run", "STORE", "summary", "5"])["summary"], summary);
    server.end("TERM");
    let audited: Vec<_> = bed.audit().iter().map(|line| line["call"].as_str().unwrap().to_owned()).collect();
    assert!(audited.iter().filter(|call| *call == "prescale").count() == 2, "{audited:?}");
}

#[test]
fn certificates_change_while_a_server_runs() {
    let tls = "[tls]\ncertificate = \"tls/server.pem\"\nkey = \"tls/server.key\"";
    let bed = Bed::new("tls://127.0.0.1:0", tls);
    let make = |out: &str| assert_code(&bed.temp.run(&["cert", "--out", out, "--host", "127.0.0.1"]), 0);
    make("tls");
    make("other");
    let server = bed.start();
    let address = format!("tls://{}", server.address("native"));
    let expert = bed.temp.root.join("expert");
    let see = |ca: &str| {
        let ca = bed.temp.root.join(ca).join("ca.pem");
        let (ca, token) = (ca.to_str().unwrap(), expert.to_str().unwrap());
        bed.temp.run(&["ledger", &address, "1", "--ca", ca, "--token-file", token])
    };
    assert_code(&see("tls"), 0);
    assert_code(&see("other"), 2);
    for file in ["server.pem", "server.key"] {
        let (from, to) = (bed.temp.root.join("other").join(file), bed.temp.root.join("tls").join(file));
        std::fs::rename(from, to).unwrap();
    }
    server.signal("HUP");
    let deadline = Instant::now() + Duration::from_secs(120);
    while see("other").status.code() != Some(0) {
        assert!(Instant::now() < deadline, "{}", stderr(&see("other")));
        std::thread::sleep(Duration::from_millis(100));
    }
    let page = until_page(&server, |page| page.contains("forebay_reloads_total{result=\"done\"}"));
    assert!(page.contains("forebay_certificate_expires_timestamp_seconds 1") || page.contains("_seconds 2"), "{page}");
}

/// The page of metrics, once it is like this.
fn until_page(server: &Serving, is: impl Fn(&str) -> bool) -> String {
    let http = server.line["listening"]["http"][0].as_str().or_else(|| server.line["listening"]["http"].as_str());
    let url = format!("{}/metrics", http.unwrap());
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let page = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        if is(&page) {
            return page;
        }
        assert!(Instant::now() < deadline, "{page}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn nothing_is_released_that_the_audit_log_cannot_have() {
    let bed = Bed::new("tcp://127.0.0.1:0", "");
    let server = bed.start();
    let mover = bed.temp.root.join("mover");
    // It is full, and what has the name that it would get cannot be replaced: no new file is begun.
    let small = bed.temp.root.join("audit.log");
    let file = std::fs::OpenOptions::new().write(true).open(&small).unwrap();
    file.set_len((64 << 20) - 10).unwrap();
    drop(file);
    std::fs::create_dir_all(bed.temp.root.join("audit.log.1/in the way")).unwrap();
    // The server counts what it has written, so it is told by a restart how large the file is.
    server.end("TERM");
    let _server = bed.start();
    let refused = bed.release("1/1", &mover);
    assert_code(&refused, 5);
    assert!(stderr(&refused).contains("audit log"), "{}", stderr(&refused));
    std::fs::remove_dir_all(bed.temp.root.join("audit.log.1")).unwrap();
    assert_code(&bed.release("1/1", &mover), 0);
}
