//! Catalogues in a directory: what is published is found by all, once, whatever publishers do at the same time or die of.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use forebay_core::{Error, Kind, Result};
use forebay_dataset::catalogue::{Action, Catalogue, Parent, Publication, Query, Source};
use forebay_dataset::storage::{self, Condition, Part, Put, Storage, Tag, Traffic};
use forebay_dataset::{
    Array, Class, Dataset, LumiList, Product, ReadOptions, Scalar, Type, WriteOptions, Writer, reclass, refer,
};
use forebay_testkit::s3::{Fault, Kind as FaultKind, StandIn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("forebay-catalogue-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn url(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn storage(&self) -> Arc<dyn Storage> {
        storage::open(&self.url("catalogue"), &storage::Options::default()).unwrap()
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::on(self.storage())
    }

    fn object(&self, name: &str) -> PathBuf {
        self.0.join("catalogue").join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn product(name: &str, ty: &str) -> Product {
    Product::new(name, Type::parse(ty).unwrap())
}

/// Runs of 100 events with lumi sections of 10, and values that do not compress to nothing.
fn events(from: u32, n: u32) -> Vec<(Product, Array)> {
    let all = from..from + n;
    let noise = |event: u32| (event.wrapping_mul(2_654_435_761) >> 7) as f32;
    vec![
        (product("run", "uint32"), Array::values(Scalar::U32, all.clone().map(|event| 1000 + event / 100).collect())),
        (
            product("luminosityBlock", "uint32"),
            Array::values(Scalar::U32, all.clone().map(|event| event % 100 / 10).collect()),
        ),
        (product("Muon_pt", "float32"), Array::values(Scalar::F32, all.map(noise).collect())),
    ]
}

fn small() -> WriteOptions {
    WriteOptions { batch_events: Some(256), target_bytes: 4096, ..WriteOptions::default() }
}

fn write(url: &str, columns: &[(Product, Array)], facts: &[(&str, serde_json::Value)]) {
    let mut writer = Writer::create(url, small()).unwrap();
    writer.push("Events", columns).unwrap();
    facts.iter().for_each(|(name, value)| writer.fact(name, value.clone()));
    writer.commit("test").unwrap();
}

/// A publication that reads little.
fn quick(name: &str, url: &str) -> Publication {
    Publication { checksums: false, lumis: false, ..Publication::new(name, url) }
}

fn publish(catalogue: &Catalogue, publication: &Publication) -> u64 {
    let published = catalogue.publish(publication, &mut |_, _| {}).unwrap();
    assert!(published.unfinished.is_none());
    published.listed.change
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all
}

#[test]
fn what_is_published_is_found_shown_and_withdrawn() {
    let folder = Folder::new("life");
    let url = folder.url("ds");
    let sources = serde_json::json!([{"name": "/store/nano_1.root", "uuid": "8F6C0A-11", "events": 250}]);
    write(&url, &events(0, 250), &[("sources", sources), ("software", "CMSSW_14_0_1".into())]);
    let catalogue = folder.catalogue();
    assert_eq!(catalogue.list().unwrap_err().kind(), Kind::Invalid, "there is none yet");
    let mut publication = Publication::new("cms:/DoubleMuon/Run2024/NANOAOD", &url);
    publication.tags.insert("conditions".into(), "140X_v2".into());
    publication.parents.push(Parent { uuid: "f".repeat(32), version: Some(2) });
    publication.sources.push(Source { name: "extra.root".into(), ..Source::default() });
    assert_eq!(publish(&catalogue, &publication), 0);

    // Another reader sees all of it.
    let reader = folder.catalogue();
    let shown = reader.show("cms:/DoubleMuon/Run2024/NANOAOD", None).unwrap().unwrap().entry;
    let dataset = Dataset::open(&url, ReadOptions::default()).unwrap();
    assert_eq!((shown.uuid.as_str(), shown.version, shown.events()), (dataset.uuid(), 0, 250));
    assert_eq!(shown.tags["software"], "CMSSW_14_0_1");
    assert_eq!((shown.files, shown.lumis, shown.runs), (2, 25, Some((1000, 1002))));
    assert_eq!(shown.parents, publication.parents);
    let columns = reader.columns(&shown).unwrap();
    assert_eq!(
        (columns[0].names.join(" "), columns[0].types[2].as_str()),
        ("run luminosityBlock Muon_pt".into(), "float32")
    );
    assert_eq!(reader.sources(&shown).unwrap()[0].guid, "8F6C0A-11");
    assert_eq!(reader.lumis(&shown).unwrap().unwrap(), dataset.lumis().unwrap().list());

    let finds = |query: Query| reader.find(&query).unwrap().entries.len();
    let query = Query::default;
    assert_eq!(finds(query()), 1);
    assert_eq!(finds(Query { name: Some("cms:*NANOAOD".into()), ..query() }), 1);
    assert_eq!(finds(Query { name: Some("atlas:*".into()), ..query() }), 0);
    assert_eq!(finds(Query { tags: [("software".into(), "CMSSW_14*".into())].into(), ..query() }), 1);
    assert_eq!(finds(Query { tags: [("other".into(), "*".into())].into(), ..query() }), 0);
    assert_eq!(finds(Query { columns: vec!["Muon_*".into(), "run".into()], ..query() }), 1);
    assert_eq!(finds(Query { columns: vec!["Muon_*".into(), "Jet_pt".into()], ..query() }), 0);
    for (file, there) in [("nano_1.root", 1), ("/store/*", 1), ("8f6c0a11", 1), ("nano_2.root", 0)] {
        assert_eq!(finds(Query { file: Some(file.into()), ..query() }), there, "{file}");
    }
    for (run, lumi, there) in [(1002, None, 1), (1002, Some(4), 1), (1002, Some(5), 0), (1003, None, 0)] {
        assert_eq!(finds(Query { run: Some(run), lumi, ..query() }), there, "{run} {lumi:?}");
    }
    assert_eq!(reader.find(&Query { lumi: Some(1), ..query() }).unwrap_err().kind(), Kind::Invalid);

    // The same again changes nothing; another tag does; another dataset may not have the name.
    let again = catalogue.publish(&publication, &mut |_, _| {}).unwrap();
    assert_eq!((again.is_new, again.listed.change), (false, 0));
    publication.tags.insert("quality".into(), "good".into());
    assert_eq!(publish(&catalogue, &publication), 1);
    let other = folder.url("other");
    write(&other, &events(0, 10), &[]);
    let error = catalogue.publish(&quick(&publication.name, &other), &mut |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(catalogue.publish(&quick("no scope", &other), &mut |_, _| {}).unwrap_err().kind(), Kind::Invalid);

    assert_eq!(reader.withdraw(&publication.name, 0, "wrong calibration").unwrap(), Some(2));
    assert_eq!(reader.withdraw(&publication.name, 0, "again").unwrap(), None);
    assert!(catalogue.show(&publication.name, None).unwrap().is_none());
    assert_eq!(publish(&catalogue, &quick(&publication.name, &other)), 3);
    let changes: Vec<_> = catalogue.changes(0).map(|change| change.unwrap()).collect();
    let verbs: Vec<_> = changes.iter().map(|change| (change.number, change.action.verb())).collect();
    assert_eq!(verbs, [(0, "publish"), (1, "publish"), (2, "withdraw"), (3, "publish")]);
    assert!(matches!(&changes[2].action, Action::Withdraw { why, .. } if why == "wrong calibration"));
    assert_eq!(catalogue.changes(3).count(), 1);
    assert_eq!(catalogue.changes(4).count(), 0);
    let checked = catalogue.verify().unwrap();
    assert!(checked.damages.is_empty() && checked.changes == 4, "{checked:?}");
}

#[test]
fn checksums_are_those_of_the_files_and_a_later_version_reads_its_own_objects_only() {
    let folder = Folder::new("sums");
    let url = folder.url("ds");
    write(&url, &events(0, 20_000), &[]);
    let catalogue = folder.catalogue();
    let (mut read, mut all) = (0, 0);
    let publication = Publication { lumis: false, ..Publication::new("a:b", &url) };
    let first = catalogue.publish(&publication, &mut |done, of| (read, all) = (done, of)).unwrap().listed.entry;
    assert_eq!((read, first.bytes), (all, all));
    let check = |entry: &forebay_dataset::catalogue::Entry, version: u32| {
        let sums = folder.catalogue().checksums(entry).unwrap();
        let mut names: Vec<&str> = sums.iter().map(|sum| sum.name.as_str()).collect();
        for sum in &sums {
            let bytes = std::fs::read(folder.0.join("ds").join(&sum.name)).unwrap();
            assert_eq!(sum.bytes, bytes.len() as u64);
            assert_eq!((&sum.adler32, &sum.sha256), (&adler32(&bytes), &sha256(&bytes)), "{}", sum.name);
        }
        names.sort_unstable();
        let dataset = Dataset::open(&url, ReadOptions::default()).unwrap().at(version).unwrap();
        let mut objects: Vec<String> = dataset.objects().unwrap().into_iter().map(|object| object.name).collect();
        objects.sort_unstable();
        assert_eq!(names, objects);
        sums.len()
    };
    let count = check(&first, 0);
    // Every file of the dataset but the list of writers is an object of the only version.
    let there = files(&folder.0.join("ds"))
        .iter()
        .filter(|path| !path.ends_with("writers") && !path.ends_with(".lock"))
        .count();
    assert_eq!(count, there);

    let mut writer = Writer::replace(&url, small()).unwrap();
    let mut changed = events(0, 20_000).remove(2);
    changed.1.streams[0].values_mut::<f32>().iter_mut().for_each(|value| *value += 1.0);
    writer.push("Events", &[changed]).unwrap();
    writer.commit("calibration").unwrap();
    let second = catalogue.publish(&publication, &mut |done, of| (read, all) = (done, of)).unwrap().listed.entry;
    assert_eq!((second.version, read), (1, all));
    assert!(read < second.bytes && second.checksum_blobs[0] == first.checksum_blobs[0]);
    check(&second, 1);
    // Cold objects are in another place, large, and shared by batches.
    let cold = folder.url("cold");
    let class = Class::new("cold", &cold);
    reclass(&url, "Events", &["Muon_pt", "run"], &class, &small(), &mut |_, _| {}).unwrap();
    let third = catalogue.publish(&publication, &mut |done, of| (read, all) = (done, of)).unwrap().listed.entry;
    assert_eq!(third.classes, ["cold"]);
    let sums = catalogue.checksums(&third).unwrap();
    let moved: Vec<_> = sums.iter().filter(|sum| sum.place == cold).collect();
    assert_eq!(read, moved.iter().map(|sum| sum.bytes).sum::<u64>());
    for sum in moved {
        let bytes = std::fs::read(Path::new(&sum.place).join(&sum.name)).unwrap();
        assert_eq!((sum.bytes, &sum.sha256), (bytes.len() as u64, &sha256(&bytes)), "{}", sum.name);
    }
    // What belongs to another dataset is in the entry of that one.
    let other = folder.url("other");
    let mut marked = events(0, 20_000);
    marked[2].0.name = "Muon_eta".into();
    write(&other, &marked, &[]);
    refer(&other, "Events", &url, &["luminosityBlock"], &storage::Options::default()).unwrap_err();
    let thin = folder.url("thin");
    write(&thin, &marked[2..], &[]);
    refer(&thin, "Events", &url, &["luminosityBlock"], &storage::Options::default()).unwrap();
    let thin =
        catalogue.publish(&Publication { lumis: false, ..Publication::new("a:thin", &thin) }, &mut |_, _| {}).unwrap();
    let thin = thin.listed.entry;
    assert_eq!(thin.parents.iter().map(|parent| &parent.uuid).collect::<Vec<_>>(), [&first.uuid]);
    assert!(catalogue.checksums(&thin).unwrap().iter().all(|sum| sum.place.is_empty()));
    assert!(catalogue.find(&Query { uuid: Some(thin.uuid.clone()), ..Query::default() }).unwrap().entries.len() == 1);
    catalogue.withdraw("a:thin", 1, "").unwrap();

    assert_eq!(catalogue.find(&Query { newest: true, ..Query::default() }).unwrap().entries.len(), 1);
    assert_eq!(catalogue.list().unwrap().len(), 3);

    // What is damaged is not published, and is named.
    let object = files(&folder.0.join("ds/w")).into_iter().next().unwrap();
    let bytes = std::fs::read(&object).unwrap();
    std::fs::write(&object, [&bytes[..bytes.len() - 1], &[bytes[bytes.len() - 1] ^ 1]].concat()).unwrap();
    let fresh = Folder::new("sums-fresh");
    let error = fresh.catalogue().publish(&publication, &mut |_, _| {}).map(|_| ());
    let named = object.strip_prefix(folder.0.join("ds")).unwrap().display().to_string();
    // The object may be one of the version that has the old column only.
    let old = |version| Publication { version: Some(version), ..publication.clone() };
    let publish_old = |version| fresh.catalogue().publish(&old(version), &mut |_, _| {}).map(|_| ());
    let error = error.and_then(|()| publish_old(1)).and_then(|()| publish_old(0)).unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains(&named), "{error}");
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Straight from RFC 1950.
fn adler32(bytes: &[u8]) -> String {
    let (a, b) = bytes.iter().fold((1_u64, 0_u64), |(a, b), &byte| {
        let a = (a + u64::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    format!("{:08x}", b << 16 | a)
}

#[test]
fn publishers_at_the_same_time_get_a_number_each() {
    let folder = Folder::new("race");
    let url = folder.url("ds");
    write(&url, &events(0, 10), &[]);
    const EACH: u64 = 25;
    std::thread::scope(|scope| {
        for publisher in 0..4 {
            let (folder, url) = (&folder, &url);
            scope.spawn(move || {
                let catalogue = folder.catalogue();
                for turn in 0..EACH {
                    publish(&catalogue, &quick(&format!("user:{publisher}.{turn}"), url));
                }
            });
        }
    });
    let catalogue = folder.catalogue();
    let changes: Vec<_> = catalogue.changes(0).map(|change| change.unwrap()).collect();
    assert_eq!(changes.iter().map(|change| change.number).collect::<Vec<_>>(), (0..4 * EACH).collect::<Vec<_>>());
    assert_eq!(catalogue.list().unwrap().len() as u64, 4 * EACH);
    assert!(folder.object("pages/000000000001").exists());
    let checked = catalogue.verify().unwrap();
    assert!(checked.damages.is_empty() && checked.pages == 1, "{checked:?}");
}

#[test]
fn a_reader_of_many_changes_reads_a_page_and_those_after_it() {
    let folder = Folder::new("pages");
    let url = folder.url("ds");
    write(&url, &events(0, 10), &[]);
    let catalogue = folder.catalogue();
    for number in 0..200 {
        assert_eq!(publish(&catalogue, &quick(&format!("user:{}", number % 150), &url).tagged(number)), number);
    }
    let reads = |catalogue: &Catalogue, storage: &Arc<dyn Storage>| {
        let before = storage.traffic().reads;
        assert_eq!(catalogue.len().unwrap(), 200);
        storage.traffic().reads - before
    };
    let fresh = || {
        let storage = folder.storage();
        let catalogue = Catalogue::on(Arc::clone(&storage));
        let reads = reads(&catalogue, &storage);
        assert_eq!(catalogue.list().unwrap(), folder.catalogue().list().unwrap());
        assert_eq!(catalogue.list().unwrap().len(), 150);
        reads
    };
    let usual = fresh();
    assert!(usual <= 2 + 64, "{usual} reads");
    let entries = catalogue.list().unwrap();
    // Without the hint, with a stale one and with a damaged one, readers find the same.
    let head = std::fs::read(folder.object("head")).unwrap();
    std::fs::remove_file(folder.object("head")).unwrap();
    assert!(fresh() <= 2 + 64 + 10);
    std::fs::write(folder.object("head"), &head[..20]).unwrap();
    assert!(fresh() <= 2 + 64 + 10);
    std::fs::write(folder.object("head"), &head).unwrap();
    // Without the last page they go on from the one before; a damaged one is passed over; without any, all changes are read.
    let page = |number: u64| folder.object(&format!("pages/{number:012}"));
    std::fs::remove_file(page(3)).unwrap();
    fresh();
    assert_eq!(folder.catalogue().list().unwrap(), entries);
    std::fs::write(page(3), b"not a page").unwrap();
    fresh();
    let checked = folder.catalogue().verify().unwrap();
    assert!(checked.damages.len() == 1 && checked.damages[0].to_string().contains("pages/000000000003"), "{checked:?}");
    for number in 1..=3 {
        std::fs::remove_file(page(number)).unwrap();
    }
    fresh();
    assert_eq!(folder.catalogue().list().unwrap(), entries);
    // A publisher puts the newest page that is missing.
    publish(&folder.catalogue(), &quick("user:last", &url));
    assert!(page(3).exists() && !page(2).exists());
    assert!(folder.catalogue().verify().unwrap().damages.is_empty());
}

trait Tagged {
    fn tagged(self, number: u64) -> Self;
}

impl Tagged for Publication {
    fn tagged(mut self, number: u64) -> Publication {
        self.tags.insert("number".into(), number.to_string());
        self
    }
}

#[test]
fn damaged_objects_are_named_and_the_rest_is_found() {
    let folder = Folder::new("damaged");
    let url = folder.url("ds");
    write(&url, &events(0, 200), &[]);
    let other = folder.url("other");
    write(&other, &events(200, 100)[..2], &[]);
    let catalogue = folder.catalogue();
    publish(&catalogue, &Publication { checksums: false, ..Publication::new("a:one", &url) });
    publish(&catalogue, &Publication { checksums: false, ..Publication::new("a:two", &other) });
    let one = catalogue.show("a:one", None).unwrap().unwrap().entry;
    let blob = one.columns_blob.as_ref().unwrap().sha256.clone();
    let path = folder.object(&format!("blobs/{blob}"));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let found = folder.catalogue().find(&Query { columns: vec!["run".into()], ..Query::default() }).unwrap();
    assert_eq!(found.entries.iter().map(|listed| listed.entry.name.as_str()).collect::<Vec<_>>(), ["a:two"]);
    assert_eq!(found.unread[0].0.entry.name, "a:one");
    assert!(found.unread[0].1.to_string().contains(&blob));
    assert!(folder.catalogue().verify().unwrap().damages[0].to_string().contains(&blob));
    // Who publishes the same columns puts the blob right.
    publish(&folder.catalogue(), &quick("a:three", &url));
    assert!(folder.catalogue().verify().unwrap().damages.is_empty());

    // A change that is missing in the middle is no end.
    let change = folder.object("changes/000000000001");
    let bytes = std::fs::read(&change).unwrap();
    std::fs::remove_file(&change).unwrap();
    let error = folder.catalogue().list().unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("changes/000000000001"), "{error}");
    assert!(catalogue.changes(2).all(|change| change.is_ok()));
    std::fs::write(&change, &bytes[..30]).unwrap();
    let feed: Vec<bool> = folder.catalogue().changes(0).map(|change| change.is_ok()).collect();
    assert_eq!(feed, [true, false, true]);
    std::fs::write(&change, bytes).unwrap();
    assert_eq!(folder.catalogue().list().unwrap().len(), 3);
}

#[test]
fn events_of_lumi_sections_are_selected() {
    let folder = Folder::new("lumis");
    let url = folder.url("ds");
    write(&url, &events(0, 1000), &[]);
    let mut writer = Writer::append(&url, small()).unwrap();
    // A section of which no event is left.
    let sections = [product("run", "uint32"), product("luminosityBlock", "uint32")].map(|product| {
        let value = if product.name == "run" { 1009_u32 } else { 77 };
        (product, Array::values(Scalar::U32, vec![value]))
    });
    writer.push("LuminosityBlocks", &sections).unwrap();
    writer.commit("sections").unwrap();
    let dataset = Dataset::open(&url, ReadOptions::default()).unwrap();
    let lumis = dataset.lumis().unwrap();
    assert_eq!((lumis.events.len(), lumis.sections()), (10, 101));
    assert_eq!((lumis.events[&1003][&4], lumis.events[&1009][&77]), (10, 0));
    assert_eq!(serde_json::to_value(lumis.list()).unwrap()["1009"], serde_json::json!([[0, 9], [77, 77]]));
    let select = |text: &str| LumiList::parse(text).unwrap().ranges(&dataset).unwrap();
    assert_eq!(
        select(r#"{"1003": [[2, 3], [5, 5]], "1004": [[0, 0]], "7": [[1, 9]]}"#),
        [320..340, 350..360, 400..410]
    );
    assert_eq!(select(r#"{"1002": [[9, 99]], "1003": [[0, 0]]}"#), vec![290..310]);
    assert_eq!(select("{}"), []);
    let none = folder.url("none");
    write(&none, &events(0, 10)[2..], &[]);
    let error = Dataset::open(&none, ReadOptions::default()).unwrap().lumis().unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("luminosityBlock"), "{error}");
}

/// A storage whose user dies at a request that writes: it is carried out or not, and nothing after it.
#[derive(Debug)]
struct Mortal {
    inner: Arc<dyn Storage>,
    left: AtomicU64,
    carried_out: bool,
}

impl Storage for Mortal {
    fn url(&self) -> &str {
        self.inner.url()
    }
    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(bytes::Bytes, Tag)>> {
        self.alive()?;
        self.inner.get(name, bytes_max)
    }
    fn parts(&self, parts: &[Part]) -> Result<Vec<bytes::Bytes>> {
        self.inner.parts(parts)
    }
    fn put(&self, objects: &[(String, bytes::Bytes)]) -> Result<()> {
        self.inner.put(objects)
    }
    fn put_if(&self, name: &str, bytes: &bytes::Bytes, condition: Condition<'_>) -> Result<Put> {
        self.alive()?;
        let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if !last || self.carried_out {
            let put = self.inner.put_if(name, bytes, condition);
            if !last {
                return put;
            }
        }
        Err(Error::unknown("dying"))
    }
    fn remove(&self, names: &[String]) -> Result<()> {
        self.alive()?;
        self.inner.remove(names)
    }
    fn age(&self, name: &str) -> Result<Option<Duration>> {
        self.alive()?;
        self.inner.age(name)
    }
    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.inner.list(folder)
    }
    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

impl Mortal {
    fn alive(&self) -> Result<()> {
        match self.left.load(Ordering::SeqCst) {
            0 => Err(Error::unavailable("dead")),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_publisher_that_dies_at_any_write_leaves_a_whole_catalogue() {
    let folder = Folder::new("dies");
    let url = folder.url("ds");
    write(&url, &events(0, 300), &[]);
    // So that the dying publisher's change is the last one before a page.
    let catalogue = folder.catalogue();
    for number in 0..63 {
        publish(&catalogue, &quick(&format!("user:{number}"), &url));
    }
    let kept = Folder::new("dies-kept");
    copy(&folder.object(""), &kept.object(""));
    let mut done = false;
    for (left, carried_out) in (1..).flat_map(|left| [(left, false), (left, true)]) {
        std::fs::remove_dir_all(folder.object("")).unwrap();
        copy(&kept.object(""), &folder.object(""));
        let mortal =
            Catalogue::on(Arc::new(Mortal { inner: folder.storage(), left: AtomicU64::new(left), carried_out }));
        let publication = Publication::new("user:dying", &url);
        let answer = mortal.publish(&publication, &mut |_, _| {});
        let reader = folder.catalogue();
        let is_there = reader.show("user:dying", None).unwrap().is_some();
        assert_eq!(reader.len().unwrap(), 63 + u64::from(is_there));
        assert!(is_there || answer.is_err(), "write {left}");
        // The next publisher, and a repeat, go on from there.
        publish(&reader, &quick("user:next", &url));
        let repeat = folder.catalogue().publish(&publication, &mut |_, _| {}).unwrap();
        assert_eq!(repeat.is_new, !is_there, "write {left}, carried out: {carried_out}");
        assert!(folder.object("pages/000000000001").exists());
        let checked = folder.catalogue().verify().unwrap();
        assert!(checked.damages.is_empty() && checked.changes == 65, "{checked:?}");
        if answer.is_ok_and(|published| published.unfinished.is_none()) {
            done = true;
            break;
        }
    }
    assert!(done);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// A storage that loses the answer of every put of a change, as a connection that breaks too early.
#[derive(Debug)]
struct Deaf(Arc<dyn Storage>);

impl Storage for Deaf {
    fn url(&self) -> &str {
        self.0.url()
    }
    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(bytes::Bytes, Tag)>> {
        self.0.get(name, bytes_max)
    }
    fn parts(&self, parts: &[Part]) -> Result<Vec<bytes::Bytes>> {
        self.0.parts(parts)
    }
    fn put(&self, objects: &[(String, bytes::Bytes)]) -> Result<()> {
        self.0.put(objects)
    }
    fn put_if(&self, name: &str, bytes: &bytes::Bytes, condition: Condition<'_>) -> Result<Put> {
        let put = self.0.put_if(name, bytes, condition)?;
        if name.starts_with("changes/") { Err(Error::unknown("the answer was lost")) } else { Ok(put) }
    }
    fn remove(&self, names: &[String]) -> Result<()> {
        self.0.remove(names)
    }
    fn age(&self, name: &str) -> Result<Option<Duration>> {
        self.0.age(name)
    }
    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.0.list(folder)
    }
    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
}

#[test]
fn a_put_whose_answer_is_lost_is_found() {
    let folder = Folder::new("deaf");
    let url = folder.url("ds");
    write(&url, &events(0, 10), &[]);
    let deaf = Catalogue::on(Arc::new(Deaf(folder.storage())));
    for number in 0..3 {
        assert_eq!(publish(&deaf, &quick(&format!("user:{number}"), &url)), number);
    }
    assert_eq!(folder.catalogue().len().unwrap(), 3);
}

#[test]
fn a_bucket_without_list_has_a_catalogue_whatever_its_connections_do() {
    let stand_in = StandIn::new();
    let pairs =
        [("AWS_ACCESS_KEY_ID", "AK"), ("AWS_SECRET_ACCESS_KEY", "SK"), ("AWS_ENDPOINT_URL", &stand_in.endpoint())];
    let environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let (backoff, backoff_max) = (Duration::from_millis(2), Duration::from_millis(20));
    let options =
        storage::Options { backoff, backoff_max, environment: Some(environment), ..storage::Options::default() };
    let url = "s3://bucket/ds";
    let write_options = WriteOptions { storage: options.clone(), ..small() };
    let mut writer = Writer::create(url, write_options).unwrap();
    writer.push("Events", &events(0, 500)).unwrap();
    writer.commit("test").unwrap();
    let open = || Catalogue::open("s3://bucket/catalogue", &options).unwrap();
    let read = ReadOptions { storage: options.clone(), ..ReadOptions::default() };
    let full = |name: &str| Publication { read: read.clone(), ..Publication::new(name, url) };

    // The answer to the put of a change is lost, then the server has too much to do: each is published once.
    stand_in.fault(Fault::next("PUT", FaultKind::LoseAnswer).of("changes/000000000000"));
    stand_in.fault(Fault::next("PUT", FaultKind::slow_down()).times(2).of("changes/000000000001"));
    stand_in.fault(Fault::next("GET", FaultKind::Cut).times(2).of("blobs/"));
    assert_eq!(publish(&open(), &full("a:one")), 0);
    assert_eq!(publish(&open(), &full("a:two")), 1);
    std::thread::scope(|scope| {
        for publisher in 0..3 {
            let (open, full) = (&open, &full);
            scope.spawn(move || {
                for turn in 0..22 {
                    publish(&open(), &Publication { checksums: false, ..full(&format!("user:{publisher}.{turn}")) });
                }
            });
        }
    });
    let catalogue = open();
    assert_eq!(
        catalogue.changes(0).map(|change| change.unwrap().number).collect::<Vec<_>>(),
        (0..68).collect::<Vec<_>>()
    );
    let found = catalogue.find(&Query { columns: vec!["Muon_*".into()], run: Some(1004), ..Query::default() }).unwrap();
    assert_eq!((found.entries.len(), found.unread.len()), (68, 0));
    for sum in catalogue.checksums(&catalogue.show("a:one", None).unwrap().unwrap().entry).unwrap() {
        let bytes = stand_in.object(&format!("bucket/ds/{}", sum.name)).unwrap();
        assert_eq!((sum.adler32, sum.sha256), (adler32(&bytes), sha256(&bytes)), "{}", sum.name);
    }
    let checked = catalogue.verify().unwrap();
    assert!(checked.damages.is_empty() && checked.pages == 1, "{checked:?}");
    // Of a fresh reader: the hint, a page, what came after it, and one that is not there. Of publishers at the same moment the hint
    // may lack the last one or two; then a reader asks for one more.
    drop(stand_in.take_log());
    assert_eq!(open().len().unwrap(), 68);
    let asked = stand_in.take_log().len();
    assert!(asked <= 2 + 4 + 2, "{asked} requests");

    // A bucket that ignores conditions is refused before anything is published.
    stand_in.ignore_conditions(true);
    let error = open().publish(&full("a:three"), &mut |_, _| {}).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("If-None-Match"), "{error}");
}
