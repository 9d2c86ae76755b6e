//! An error in a configuration names its line and says what to write instead.

use crate::secure::Temp;
use forebay_core::Kind;
use forebay_server::{ServerConfig, Settings};
use std::path::Path;

const KEYSPACE: &str = "[[keyspace]]\npath = \"/srv/a\"\n";

/// What is said of a text behind a keyspace, which is two lines.
fn refused(text: &str) -> String {
    refused_whole(&format!("{KEYSPACE}{text}"))
}

fn refused_whole(text: &str) -> String {
    let error = Settings::parse(text, "server.toml", Path::new("/base")).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    error.message().to_owned()
}

#[test]
fn every_mistake_has_its_line_and_a_way_out() {
    let cases: [(&str, &str, &str); 22] = [
        ("[limits]\nwindow_byte = \"1 MiB\"\n", "4:1", "did you mean `window_bytes`?"),
        ("[lmits]\n", "3:2", "did you mean `limits`?"),
        ("hot_hihg = 0.5\n", "3:1", "did you mean `hot_high`?"),
        ("[log]\nlevel = \"inf\"\n", "4:9", "did you mean `info`?"),
        ("[log]\nformat = \"xml\"\n", "4:10", "expected one of text, json"),
        ("[limits]\nframe_deadline = 30\n", "4:18", "such as \"500 ms\""),
        ("[limits]\nwindow_bytes = \"16 MB\"\n", "4:16", "such as \"64 KiB\""),
        ("[limits]\nwindow_bytes = \"16 GiB\"\n", "4:16", "more than this value can be"),
        ("[limits]\nmemory_bytes_max = \"1 MiB\"\n", "4:1", "window_bytes of 16 MiB: raise it"),
        ("[limits]\nconnections_max = 0\n", "4:1", "at least 1"),
        ("hot_high = 90\n", "3:12", "share from 0.0 to 1.0"),
        ("hot_low = 0.95\n", "3:1", "must be less than the second"),
        ("lease = \"1 h\"\n", "3:1", "at most max_hold"),
        ("[keyspace.create]\nhot_bytes = \"1 GiB\"\n", "3:11", "docs/keyspace.toml"),
        ("[listen]\nnative = [\"tcp://localhost:7440\"]\n", "4:10", "expected tcp://IP:PORT"),
        ("[listen]\nresp = [\"tcp://127.0.0.1:1\", \"tcp://0.0.0.0:2\"]\n", "4:30", "insecure = true"),
        ("[listen]\nhttp = \"0.0.0.0:7442\"\n", "4:1", "http_insecure = true"),
        ("[listen]\nhttp = \"yes\"\n", "4:8", "or off"),
        ("[listen]\nunix_mode = \"rw\"\n", "4:13", "octal digits"),
        ("[tls]\ncertificate = \"c.pem\"\n", "3:2", "`forebay cert`"),
        ("[tls]\ncertificate = \"c\"\nkey = \"k\"\nrequire_client_certificate = true\n", "6:1", "`client_ca`"),
        ("[[keyspace]]\npath = \"/srv/a\"\n", "4:1", "served already"),
    ];
    for (text, place, fix) in cases {
        let message = refused(text);
        assert!(message.starts_with(&format!("server.toml:{place}: ")), "{text}\n{message}");
        assert!(message.contains(fix), "{text}\n{message}");
    }
}

#[test]
fn what_is_missing_is_said_where_it_belongs() {
    assert!(refused_whole("threads = 1\n").contains("[[keyspace]]"));
    assert!(refused_whole("threads = 0\n[[keyspace]]\npath = \"a\"\n").starts_with("server.toml:1:1: threads: 1 to"));
    assert!(refused_whole("[[keyspace]]\nverify = true\n").starts_with("server.toml:1:1: keyspace 1 path: needed"));
    assert!(refused_whole("[[keyspace]\n").starts_with("server.toml:1:"));
    let nobody = refused("[listen]\nnative = []\nresp = []\n");
    assert!(nobody.contains("nobody could connect"), "{nobody}");
}

#[test]
fn tokens_are_complete_and_their_secrets_elsewhere() {
    let token = |rest: &str| refused(&format!("[[token]]\nname = \"t\"\n{rest}"));
    let inline = token("secret = \"correct horse battery staple\"\n");
    assert!(inline.starts_with("server.toml:5:1: a secret is never in the configuration"), "{inline}");
    assert!(!inline.contains("horse"), "{inline}");
    assert!(token("rights = { \"*\" = [\"read\"] }\n").contains("`secret_file`"));
    assert!(token("secret_env = \"A\"\nsecret_file = \"b\"\n").contains("one of them, not both"));
    assert!(token("secret_env = \"A\"\n").contains("rights = {"));
    let right = token("secret_env = \"A\"\nrights = { events = [\"raed\"] }\n");
    assert!(right.contains("did you mean `read`?"), "{right}");
    let twice = "[[token]]\nname = \"t\"\nsecret_env = \"A\"\nrights = { \"*\" = [\"read\"] }\n".repeat(2);
    assert!(refused(&twice).contains("server.toml:8:1: token 2 name: another token has this name"));
    assert!(refused("[[token]]\nname = \"two words\"\n").contains("letters, digits and signs"));
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    let text = format!(
        "threads = 3\nstop_grace = \"1500 ms\"\n{KEYSPACE}hot_high = 0.8\nhot_low = 0.6\n[keyspace.create]\nkeyspace = \"k\"\n\
         warm = [{{ path = \"w\", bytes = \"3 GiB\" }}]\n[listen]\nnative = [\"unix:/a\"]\nresp = []\nhttp = \"off\"\n\
         [tls]\ncertificate = \"c\"\nkey = \"k\"\n[[token]]\nname = \"t\"\nsecret_env = \"A\"\nrights = {{ \"*\" = [\"read\"] }}\n"
    );
    let settings = Settings::parse(&text, "server.toml", Path::new("/base")).unwrap();
    let printed = settings.to_toml().unwrap();
    assert_eq!(Settings::parse(&printed, "printed", Path::new("/elsewhere")).unwrap(), settings);
    assert!(printed.contains("keyspace = \"/base/k\"") && printed.contains("path = \"/base/w\""), "{printed}");
    assert_eq!(settings.to_toml().unwrap(), printed);
}

#[test]
fn secrets_come_from_files_that_are_private_and_long_enough() {
    let temp = Temp::new();
    let load = |mode: u32, secret: &str| {
        temp.write("secret", secret, mode);
        let text =
            format!("{KEYSPACE}[[token]]\nname = \"t\"\nsecret_file = \"secret\"\nrights = {{ \"*\" = [\"read\"] }}\n");
        Settings::parse(&text, "server.toml", &temp.path).unwrap().server().map_err(|error| error.to_string())
    };
    let config = load(0o600, "0123456789abcdef\n").unwrap();
    assert_eq!(config.tokens[0].name, "t");
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
    let open = load(0o644, "0123456789abcdef\n").unwrap_err();
    assert!(open.contains("chmod o=") && !open.contains("0123456789abcdef"), "{open}");
    let short = load(0o600, "fifteen letters\nand more\n").unwrap_err();
    assert!(short.contains("15 bytes") && !short.contains("letters"), "{short}");
    assert!(load(0o600, &"x".repeat(5000)).unwrap_err().contains("258 bytes"));
    let text = format!(
        "{KEYSPACE}[[token]]\nname = \"t\"\nsecret_env = \"FOREBAY_NOT_SET\"\nrights = {{ \"*\" = [\"read\"] }}\n"
    );
    let missing = Settings::parse(&text, "server.toml", &temp.path).unwrap().server().unwrap_err();
    assert!(missing.message().contains("no variable FOREBAY_NOT_SET"), "{missing}");
}

#[test]
fn a_library_is_held_to_the_same_rules() {
    let config = ServerConfig { native: vec!["tcp://192.0.2.1:0".parse().unwrap()], ..ServerConfig::default() };
    let error = forebay_server::Server::start(Vec::<forebay_server::Served>::new(), config).err().unwrap();
    assert!(error.message().contains("beyond this machine"), "{error}");
}
