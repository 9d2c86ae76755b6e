//! `forebay top` beside a server: once, as JSON, and in a real terminal.

use crate::{Temp, assert_code, forebay, stderr, stdout};
use forebay_core::{KeySchema, Keyspace, PutOptions};
use forebay_server::{Server, ServerConfig};
use forebay_store::{Config, Store};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A store of two ready events, and marks that a few more events reach.
fn store(temp: &Temp) -> Store {
    let config = Config {
        hot_bytes: 4 << 20,
        segment_bytes: Some(64 << 10),
        put_deadline: Duration::ZERO,
        hot_high: 0.5,
        hot_low: 0.3,
        ..Config::default()
    };
    let store = Store::create(&temp.root.join("top"), &Keyspace::events("physics", 1).opening_runs(), config).unwrap();
    put(&store, 1);
    put(&store, 2);
    store
}

fn put(store: &Store, event: u64) {
    let key = KeySchema::run_event_source().key(&[1, event, 0]).unwrap();
    let _ = store.put(&key, &[1; 32 << 10], &PutOptions::default()).unwrap();
}

fn serve(store: &Store, address: SocketAddr) -> Server {
    let config = ServerConfig { http: Some(address), threads: 1, ..ServerConfig::default() };
    Server::start(vec![store.clone()], config).unwrap()
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn once_and_as_json() {
    let temp = Temp::new();
    let store = store(&temp);
    let server = serve(&store, anywhere());
    let url = format!("http://{}", server.http().unwrap());
    let done = forebay().args(["top", "--once", "--interval", "200ms", "--url", &url]).output().unwrap();
    assert_code(&done, 0);
    let text = stdout(&done);
    for words in ["forebay top", "physics", "ready, up", "trigger free", "inhibit 50/30", "puts"] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    assert!(!text.contains('\x1b'), "plain text: {text:?}");
    // Events come while it looks.
    let putting = std::thread::spawn({
        let store = store.clone();
        move || {
            for event in 3..23 {
                put(&store, event);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let done = forebay().args(["top", "--json", "--interval", "300ms", "--url", &url]).output().unwrap();
    assert_code(&done, 0);
    putting.join().unwrap();
    let view: Value = serde_json::from_str(&stdout(&done)).unwrap();
    assert_eq!(view["keyspace"], "physics");
    assert!(view["rates"]["puts"].as_f64().unwrap() > 0.0, "{view}");
    assert!(view["rates"]["stored_bytes"].as_f64().unwrap() > 32.0 * 1024.0, "{view}");
    let ready = view["events"].as_array().unwrap().iter().find(|state| state["state"] == "ready").unwrap();
    assert!(ready["events"].as_f64().unwrap() >= 2.0, "{view}");
    assert_eq!(view["levels"][0]["inhibit_high"], 0.5);
    assert_eq!(view["inhibit"], Value::Null);
}

#[test]
fn what_cannot_be_shown_is_said() {
    let temp = Temp::new();
    let store = store(&temp);
    let server = serve(&store, anywhere());
    let url = format!("http://{}", server.http().unwrap());
    let run = |arguments: &[&str]| forebay().arg("top").args(arguments).output().unwrap();
    let piped = run(&["--url", &url]);
    assert_code(&piped, 2);
    assert!(stderr(&piped).contains("--once"), "{}", stderr(&piped));
    assert_code(&run(&["--once", "--url", "127.0.0.1:7442"]), 2);
    assert_code(&run(&["--once", "--interval", "1ms", "--url", &url]), 2);
    let unknown = run(&["--once", "--interval", "100ms", "--keyspace", "chemistry", "--url", &url]);
    assert_code(&unknown, 2);
    assert!(stderr(&unknown).contains("`chemistry`: this server has physics"), "{}", stderr(&unknown));
    drop(server);
    let away = run(&["--once", "--url", &url]);
    assert_code(&away, 5);
    assert!(stderr(&away).contains("cannot be read"), "{}", stderr(&away));
}

/// A terminal of its own, in a tmux of its own.
pub(super) struct Terminal {
    socket: String,
}

impl Terminal {
    pub(super) fn start(command: &str, width: u16, height: u16) -> Terminal {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { socket: format!("forebay-top-{}-{number}", std::process::id()) };
        let (width, height) = (width.to_string(), height.to_string());
        // No file of the user's; the shell stays, so that what the program leaves behind can be seen.
        let command = format!("{command}; echo ended $?; sleep 600");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", &width, "-y", &height, &command]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let done = Command::new("tmux").args(["-L", &self.socket]).args(arguments).output();
        let done = done.expect("tmux, of the Debian package of that name: `cargo xtask test` installs it");
        assert!(done.status.success(), "tmux {arguments:?}: {}", stderr(&done));
        stdout(&done)
    }

    pub(super) fn key(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "top", key]);
    }

    /// Waits until the screen is right.
    pub(super) fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let from = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p", "-t", "top"]);
            if is(&screen) {
                return screen;
            }
            assert!(from.elapsed() < Duration::from_secs(20), "{what}: not on the screen\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output().ok();
    }
}

#[test]
fn in_a_real_terminal() {
    let temp = Temp::new();
    let store = store(&temp);
    let server = serve(&store, anywhere());
    let address = server.http().unwrap();
    let program = env!("CARGO_BIN_EXE_forebay");
    let terminal = Terminal::start(&format!("{program} top --interval 200ms --url http://{address}"), 80, 24);
    // A screen may be seen before it is drawn to its end.
    for words in ["trigger free", "physics  ready, up", "inhibit 50/30", "each second", "leases 0", "q quit"] {
        terminal.until(words, |screen| screen.contains(words));
    }
    terminal.key("?");
    terminal.until("the help", |screen| screen.contains("Keys") && screen.contains("this help"));
    terminal.key("?");
    terminal.key("p");
    terminal.until("a pause", |screen| screen.contains("PAUSED") && !screen.contains("Marks in a bar"));
    // What happens meanwhile is shown afterwards.
    for event in 100.. {
        put(&store, event);
        if store.stats().inhibit.is_some() {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(!terminal.tmux(&["capture-pane", "-p", "-t", "top"]).contains("INHIBIT"));
    terminal.key("p");
    let screen = terminal.until("inhibit", |screen| screen.contains("INHIBIT hot full  hot fill"));
    assert!(screen.contains("owner:") && screen.contains("ends when"), "{screen}");
    let colours = terminal.tmux(&["capture-pane", "-p", "-e", "-t", "top"]);
    let line = colours.lines().find(|line| line.contains("INHIBIT")).unwrap();
    let codes: Vec<&str> =
        line.split('\x1b').filter_map(|part| part.strip_prefix('[')?.split_once('m')).map(|code| code.0).collect();
    let blinks = codes.iter().any(|code| !code.starts_with("38;") && code.split(';').any(|one| one == "5"));
    let is_red = codes.iter().any(|code| matches!(*code, "31" | "38;5;1"));
    assert!(blinks && is_red, "{line:?}");
    for (width, height) in [("40", "12"), ("20", "3"), ("5", "2"), ("132", "50"), ("80", "24")] {
        terminal.tmux(&["resize-window", "-t", "top", "-x", width, "-y", height]);
        std::thread::sleep(Duration::from_millis(300));
    }
    terminal.until("the whole screen again", |screen| screen.contains("INHIBIT") && screen.contains("q quit"));
    drop(server);
    terminal.until("a server that is away", |screen| screen.contains("AWAY for") && screen.contains("INHIBIT"));
    let server = serve(&store, address);
    terminal.until("a server that is back", |screen| !screen.contains("AWAY") && screen.contains("ready, up"));
    terminal.key("q");
    let screen = terminal.until("the end", |screen| screen.contains("ended"));
    assert!(screen.contains("ended 0") && !screen.contains("forebay top http"), "the terminal as it was: {screen}");
    drop(server);
}
