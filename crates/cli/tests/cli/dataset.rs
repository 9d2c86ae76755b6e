//! `forebay dataset`: the commands over datasets that the crate wrote, and the call of the Python package.

use super::*;
use forebay_dataset::{Array, Buffer, Product, Scalar, Type, WriteOptions, Writer};
use serde_json::json;

const ACTIONS: [&str; 13] = [
    "import", "ls", "show", "cat", "verify", "versions", "lumis", "add", "gc", "compact", "reclass", "refer", "export",
];

fn product(name: &str, ty: &str) -> Product {
    Product { title: format!("title of {name}"), ..Product::new(name, Type::parse(ty).unwrap()) }
}

/// Two batches and a half of events, a table beside them, and a second version with another weight.
fn two_versions(temp: &Temp) -> String {
    let url = temp.root.join("ds").to_str().unwrap().to_owned();
    let options = WriteOptions { batch_events: Some(256), target_bytes: 4096, ..WriteOptions::default() };
    let n = 600_u64;
    let counts: Vec<u32> = (0..n).map(|event| (event % 3) as u32).collect();
    let muons: u32 = counts.iter().sum();
    let names: Vec<u8> = (0..n).flat_map(|event| [b'a' + (event % 26) as u8, b'"']).collect();
    let mut writer = Writer::create(&url, options.clone()).unwrap();
    let weight = |scale: f64| Array::values(Scalar::F64, (0..n).map(|event| event as f64 * scale).collect());
    let columns = [
        (product("event", "uint64"), Array::values(Scalar::U64, (0..n).collect())),
        (
            product("Muon_pt", "list(float32)"),
            Array::jagged(Scalar::F32, counts.clone(), (0..muons).map(|i| i as f32 / 4.0).collect()),
        ),
        (
            product("Muon_q", "list(int8)"),
            Array::jagged(Scalar::I8, counts, (0..muons).map(|i| (i % 2) as i8 * 2 - 1).collect()),
        ),
        (product("weight", "float64"), weight(0.5)),
        (
            product("name", "text"),
            Array {
                ty: Type::Text,
                events: n,
                streams: vec![Buffer::from(vec![2_u32; n as usize]), Buffer::from(names)],
            },
        ),
    ];
    writer.push("Events", &columns).unwrap();
    writer.push("Runs", &[(product("run", "uint32"), Array::values(Scalar::U32, vec![1_u32, 2]))]).unwrap();
    writer.fact("sources", json!(["a.root"]));
    writer.commit("imported").unwrap();
    let mut writer = Writer::replace(&url, options).unwrap();
    writer.push("Events", &[(product("weight", "float64"), weight(2.0))]).unwrap();
    writer.commit("weights again").unwrap();
    url
}

/// A file that runs as Python would be run.
fn python(temp: &Temp, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = temp.root.join("python");
    std::fs::write(&path, format!("#!/bin/sh\n[ \"$1\" = -c ] && exit 0\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The files of a dataset's writers, the largest one last.
fn objects(url: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for writer in std::fs::read_dir(Path::new(url).join("w")).unwrap() {
        all.extend(std::fs::read_dir(writer.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    all.sort_by_key(|path| path.metadata().unwrap().len());
    all
}

#[test]
fn every_command_teaches() {
    for action in ACTIONS {
        let output = forebay().args(["dataset", action, "--help"]).output().unwrap();
        assert_code(&output, 0);
        let help = stdout(&output);
        assert!(
            help.contains("Example") && help.contains(&format!("\n  forebay dataset {action}")),
            "{action}\n{help}"
        );
        assert!(help.contains("--json"), "{action}\n{help}");
    }
}

#[test]
fn tables_columns_and_versions_are_shown() {
    let temp = Temp::new();
    let url = two_versions(&temp);
    let listed = stdout(&temp.run(&["dataset", "ls", &url]));
    assert!(listed.contains("version 1 of 0 to 1") && listed.contains("weights again"), "{listed}");
    assert!(
        listed.contains("600 events") && listed.contains("5 products") && listed.contains("sources: [\"a.root\"]"),
        "{listed}"
    );
    let listed = &temp.json(&["dataset", "ls", &url, "--version", "0"], 0)[0];
    assert_eq!((&listed["version"], &listed["note"]), (&json!(0), &json!("imported")));
    assert_eq!((&listed["tables"][1]["name"], &listed["tables"][1]["events"]), (&json!("Runs"), &json!(2)));
    assert!(listed["tables"][0]["stored_bytes"].as_u64() > Some(100), "{listed}");
    assert_code(&temp.run(&["dataset", "ls", &url, "--version", "2"]), 2);

    let shown = temp.json(&["dataset", "show", &url, "Muon_*"], 0);
    let names: Vec<&Value> = shown.iter().map(|column| &column["name"]).collect();
    assert_eq!(names, [&json!("Muon_pt"), &json!("Muon_q")]);
    assert_eq!((&shown[0]["type"], &shown[0]["title"]), (&json!("list(float32)"), &json!("title of Muon_pt")));
    let text = stdout(&temp.run(&["dataset", "show", &url]));
    assert!(text.lines().count() == 5 && text.contains("title of weight"), "{text}");
    assert_eq!(temp.json(&["dataset", "show", &url, "--table", "Runs"], 0)[0]["name"], "run");
    let none = temp.run(&["dataset", "show", &url, "Jet_*"]);
    assert_code(&none, 1);
    assert!(stderr(&none).contains("no column that fits Jet_*"), "{}", stderr(&none));

    let versions = temp.json(&["dataset", "versions", &url], 0);
    assert_eq!((versions.len(), &versions[1]["note"]), (2, &json!("weights again")));
    assert_eq!(versions[0]["tables"]["Events"], json!({ "events": 600, "products": 5 }));
    assert!(stdout(&temp.run(&["dataset", "versions", &url])).contains("Runs: 2 events, 1 product"), "{versions:?}");
}

#[test]
fn values_come_as_text_and_as_json() {
    let temp = Temp::new();
    let url = two_versions(&temp);
    let text = stdout(&temp.run(&["dataset", "cat", &url, "event", "Muon_pt", "name", "--events", "254:258"]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["event\tMuon_pt\tname", "254\t[63.25,63.5]\t\"u\\\"\""], "{text}");
    assert_eq!((lines.len(), lines[3]), (5, "256\t[63.75]\t\"w\\\"\""), "{text}");
    let json = temp.json(&["dataset", "cat", &url, "weight", "Muon_q", "--events", "2:3"], 0);
    assert_eq!(json, [json!({ "weight": 4.0, "Muon_q": [1, -1] })]);
    assert_eq!(
        temp.json(&["dataset", "cat", &url, "weight", "--events", "2:3", "--version", "0"], 0)[0]["weight"],
        1.0
    );
    assert_eq!(temp.json(&["dataset", "cat", &url, "event"], 0).len(), 600);
    assert_eq!(temp.json(&["dataset", "cat", &url, "event", "--events", "5:5"], 0).len(), 0);
    assert_eq!(temp.json(&["dataset", "cat", &url, "run", "--table", "Runs"], 0)[1], json!({ "run": 2 }));
    for wrong in [["event", "--events", "0:601"], ["Muon_p", "--events", "0:1"], ["event", "--events", "7"]] {
        let refused = temp.command(&["dataset", "cat", &url]).args(wrong).output().unwrap();
        assert_code(&refused, 2);
    }
    let near = temp.run(&["dataset", "cat", &url, "muon_pt"]);
    assert!(stderr(&near).contains("near: Muon_pt"), "{}", stderr(&near));
}

#[test]
fn damage_is_named() {
    let temp = Temp::new();
    let url = two_versions(&temp);
    let sound = temp.run(&["dataset", "verify", &url]);
    assert_code(&sound, 0);
    assert!(
        stdout(&sound).contains("4 batches decoded") && stdout(&sound).ends_with("no damage found\n"),
        "{}",
        stdout(&sound)
    );
    assert_eq!(temp.json(&["dataset", "verify", &url, "--version", "0"], 0)[0]["damages"], json!([]));
    let object = objects(&url).pop().unwrap();
    let mut bytes = std::fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&object, &bytes).unwrap();
    let damaged = temp.run(&["dataset", "verify", &url, "--version", "0"]);
    assert_code(&damaged, 1);
    assert!(stdout(&damaged).contains("  damaged: table "), "{}", stdout(&damaged));
    let answer = &temp.json(&["dataset", "verify", &url, "--version", "0"], 1)[0];
    let name = object.file_name().unwrap().to_str().unwrap();
    let named = |damage: &Value| damage["object"].as_str().is_some_and(|object| object.ends_with(&format!("/{name}")));
    assert!(answer["damages"].as_array().unwrap().iter().any(named), "{answer}");

    let root = Path::new(&url).join("root");
    let mut bytes = std::fs::read(&root).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&root, &bytes).unwrap();
    assert_code(&temp.run(&["dataset", "verify", &url]), 8);
    let none = temp.run(&["dataset", "verify", "nowhere"]);
    assert_code(&none, 2);
    assert!(stderr(&none).contains("nowhere: there is no dataset"), "{}", stderr(&none));
}

#[test]
fn what_a_dead_writer_left_is_removed() {
    let temp = Temp::new();
    let url = two_versions(&temp);
    let before = objects(&url).len();
    let mut writer = Writer::append(&url, WriteOptions { batch_events: Some(256), ..WriteOptions::default() }).unwrap();
    writer.push("Events", &[(product("event", "uint64"), Array::values(Scalar::U64, (0..600_u64).collect()))]).unwrap();
    drop(writer);
    let refused = temp.run(&["dataset", "gc", &url, "--silent", "1s"]);
    assert_code(&refused, 2);
    assert!(stderr(&refused).contains("--allow-short-silence"), "{}", stderr(&refused));
    let kept = &temp.json(&["dataset", "gc", &url], 0)[0];
    assert_eq!((kept["alive"].as_array().map(Vec::len), &kept["removed"]), (Some(1), &json!([])));
    assert!(objects(&url).len() > before);
    // By the clock of the directory, which counts whole seconds.
    std::thread::sleep(Duration::from_millis(2100));
    let removed = temp.run(&["dataset", "gc", &url, "--silent", "1s", "--allow-short-silence"]);
    assert_code(&removed, 0);
    assert!(stdout(&removed).starts_with("removed: what the dead writer "), "{}", stdout(&removed));
    assert_eq!(objects(&url).len(), before);
    assert!(stdout(&temp.run(&["dataset", "gc", &url])).starts_with("nothing to remove"));
    assert_code(&temp.run(&["dataset", "gc", "nowhere"]), 2);
    assert_code(&temp.run(&["dataset", "verify", &url]), 0);
}

#[test]
fn compacting_makes_a_version_with_the_same_values() {
    let temp = Temp::new();
    let url = two_versions(&temp);
    let before = temp.json(&["dataset", "cat", &url, "event", "weight", "Muon_pt", "name"], 0);
    let compacted = &temp.json(&["dataset", "compact", &url], 0)[0];
    assert_eq!(compacted["version"], 2);
    assert!(compacted["stored_bytes"].as_u64() > Some(0), "{compacted}");
    assert_eq!(temp.json(&["dataset", "cat", &url, "event", "weight", "Muon_pt", "name"], 0), before);
    assert_code(&temp.run(&["dataset", "compact", "nowhere"]), 2);
}

#[test]
fn columns_move_to_a_class_and_are_referred_to() {
    let temp = Temp::new();
    let url = two_versions(&temp);
    let before = temp.json(&["dataset", "cat", &url, "event", "Muon_pt"], 0);
    let place = temp.root.join("tape").to_str().unwrap().to_owned();
    let moved = &temp.json(&["dataset", "reclass", &url, "Muon_pt", "--class", "cold", "--place", &place], 0)[0];
    assert_eq!(moved["version"], 2);
    assert!(std::path::Path::new(&place).join("w").is_dir());
    assert_eq!(temp.json(&["dataset", "cat", &url, "event", "Muon_pt"], 0), before);
    assert_code(&temp.run(&["dataset", "reclass", &url, "Muon_pt", "--class", "fast"]), 2);
    let other = temp.root.join("other").to_str().unwrap().to_owned();
    let options = WriteOptions { batch_events: Some(256), ..WriteOptions::default() };
    let mut writer = Writer::create(&other, options).unwrap();
    writer.push("Events", &[(product("n", "uint64"), Array::values(Scalar::U64, (0..600_u64).collect()))]).unwrap();
    writer.commit("other").unwrap();
    assert_eq!(temp.json(&["dataset", "refer", &other, &url, "event", "Muon_pt"], 0)[0]["version"], 1);
    assert_eq!(temp.json(&["dataset", "cat", &other, "event", "Muon_pt"], 0), before);
    assert_code(&temp.run(&["dataset", "refer", &other, &url, "event"]), 3);
}

#[test]
fn ctrl_c_ends_a_command_whose_reader_waits() {
    let temp = Temp::new();
    let url = temp.root.join("large").to_str().unwrap().to_owned();
    let mut writer = Writer::create(&url, WriteOptions::default()).unwrap();
    writer
        .push("Events", &[(product("event", "uint64"), Array::values(Scalar::U64, (0..100_000_u64).collect()))])
        .unwrap();
    writer.commit("large").unwrap();
    let mut child = temp.command(&["dataset", "cat", &url, "event"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // More than a pipe takes, and nobody reads on.
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "event\n");
    assert_eq!(interrupt(child), Some(130));
}

#[test]
fn the_python_package_is_called_with_what_was_asked() {
    let temp = Temp::new();
    let interpreter = python(&temp, "printf '%s\\n' \"$@\"");
    let run = |arguments: &[&str]| {
        let output = temp.command(arguments).env("FOREBAY_PYTHON", &interpreter).output().unwrap();
        assert_code(&output, 0);
        stdout(&output)
    };
    let import = [
        "dataset",
        "import",
        "a.root",
        "b.root",
        "s3://bucket/ds",
        "--tree",
        "Events",
        "--columns",
        "Muon_*",
        "--append",
        "--json",
    ];
    let called =
        "-m\nforebay\nimport\ns3://bucket/ds\na.root\nb.root\n--tree=Events\n--columns=Muon_*\n--append\n--json\n";
    assert_eq!(run(&import), called);
    assert_eq!(run(&["dataset", "add", "/ds", "w.parquet"]), "-m\nforebay\nadd\n/ds\nw.parquet\n");
    assert_eq!(run(&["dataset", "export", "/ds", "x.root"]), "-m\nforebay\nexport\n/ds\nx.root\n");
    let export = ["dataset", "export", "/ds", "x.root", "--version", "1", "--widen"];
    assert_eq!(run(&export), "-m\nforebay\nexport\n/ds\nx.root\n--version=1\n--widen\n");
    assert_code(&temp.run(&["dataset", "export", "/ds", "x.csv"]), 2);
}

#[test]
fn the_python_package_may_be_missing_fail_or_be_interrupted() {
    let temp = Temp::new();
    let import = ["dataset", "import", "a.root", "ds"];
    let with = |interpreter: &Path| temp.command(&import).env("FOREBAY_PYTHON", interpreter).output().unwrap();
    let none = with(Path::new("/nowhere/python3"));
    assert_code(&none, 2);
    assert!(
        stderr(&none).contains("FOREBAY_PYTHON") && stderr(&none).contains("/nowhere/python3"),
        "{}",
        stderr(&none)
    );
    let bare = write(&temp.root.join("bare"), b"");
    let without = with(&python(&temp, "exit 0").with_file_name("bare"));
    assert_code(&without, 2);
    assert!(stderr(&without).contains("cannot run") && bare.ends_with("bare"), "{}", stderr(&without));
    let lacking = python(&temp, "");
    std::fs::write(&lacking, "#!/bin/sh\nexit 92\n").unwrap();
    let lacking = with(&lacking);
    assert_code(&lacking, 2);
    assert!(stderr(&lacking).contains("-m pip install"), "{}", stderr(&lacking));
    let failing = with(&python(&temp, "echo 'no tree' >&2; exit 8"));
    assert_code(&failing, 8);
    assert_eq!(stderr(&failing), "no tree\n");

    let waiting = python(&temp, "trap 'echo tidied; exit 3' INT\necho begun\nwhile :; do sleep 0.05; done");
    let mut child = temp.command(&import).env("FOREBAY_PYTHON", waiting).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    assert_eq!(interrupt(child), Some(130));
    assert_eq!(lines.next().unwrap().unwrap(), "tidied");
}
