//! Fabric files: each `tests/file/NAME.toml` and what is said about it, `NAME.txt`. `BLESS=1` writes the latter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use proptest::prelude::*;
use ringway_control::file::{FUNCTION_KEYS, Host, read};
use ringway_control::kinds::KINDS;
use ringway_host::Node;
use ringway_port::{source, vhost_user};
use ringway_spec::{Kind, Notify, To};
use ringway_switch::learning;
use std::path::{Path, PathBuf};

fn host() -> Host {
    // Node 2 has only memory.
    let nodes = [(0, vec![0]), (1, vec![1]), (2, vec![])];
    let nodes = nodes.map(|(number, cores)| Node { number, cores }).to_vec();
    Host { cores: vec![0, 1], nodes, base: Some(PathBuf::from("/run/ringway")), ..Host::default() }
}

fn examples(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut list: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    list.sort();
    assert!(!list.is_empty(), "{}", folder.display());
    list
}

#[test]
fn each_file_gives_its_expected_messages() {
    let mut differ = Vec::new();
    for (name, text) in examples("tests/file") {
        let output = match read(&name, &text, &host()) {
            Ok(_) => "good\n".to_string(),
            Err(problems) => format!("{}\n", problems.render(true)),
        };
        let golden =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/file").join(&name).with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &output).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if output != expected {
            differ.push(format!("{name}: expected\n{expected}\nsaid\n{output}"));
        }
    }
    assert!(differ.is_empty(), "BLESS=1 writes what is said:\n{}", differ.join("\n"));
}

/// Attack: files of few megabytes that would take a hundred times as much memory once they are read.
#[test]
fn a_file_of_too_many_tables_is_refused_before_they_are_read() {
    let ports = |count: usize| -> String {
        let text: String = (0..count).map(|port| format!("[port.p{port}]\n")).collect();
        read("f.toml", &text, &host()).unwrap_err().to_string()
    };
    let first = |count| ports(count).lines().next().unwrap().to_string();
    assert_eq!(first(16_385), "f.toml:1:2: the file has 16385 tables [port.NAME]; the limit is 16384");
    assert!(first(16_384).starts_with("f.toml:1:7: "), "{}", first(16_384));
    let values = "f.toml:1:1: the file has 280000 tables, keys and entries of lists; the limit is 100000";
    assert_eq!(ports(280_000), values);
}

#[test]
fn every_kind_of_port_has_a_row_on_both_sides() {
    let rows = || ringway_port::KINDS.iter().map(|kind| kind.name);
    for kind in KINDS.iter().filter(|kind| kind.is_in_data()) {
        let name = kind.name();
        assert!(rows().any(|row| row == name), "add {name}'s row to crates/switch/port/src/kinds.rs");
    }
    for row in rows() {
        let found = KINDS.iter().any(|kind| kind.name() == row);
        assert!(found, "add {row}'s row to crates/fleet/control/src/kinds/mod.rs");
    }
}

#[test]
fn every_kind_of_port_and_its_keys_are_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/fabric-file.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, ports) = page.split_once("\n## `[port.NAME]`\n").unwrap();
    let ports = ports.split("\n## ").next().unwrap();
    let mut missing = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.is_in_file()) {
        let name = kind.name();
        if !ports.contains(&format!("`\"{name}\"`")) || !ports.contains(&format!("`{name}`")) {
            missing.push(format!("kind `{name}`: a section, and `\"{name}\"` in the row of `kind`"));
        }
        for key in kind.keys() {
            let quoted = format!("`{key}`");
            let mut first = ports.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
            if !first.any(|cell| cell.contains(&quoted)) {
                missing.push(format!("kind `{name}`: a row for its key `{key}`"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/fabric-file.md, `[port.NAME]`, lacks\n{}", missing.join("\n"));
}

#[test]
fn the_table_of_a_function_s_keys_is_its_description() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/fabric-file.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, section) = page.split_once("\n## `[function.NAME]`\n").unwrap();
    let (head, table) = section.split_once("|---|---|---|\n").unwrap();
    let (_, after) = table.split_once("\n\n").unwrap();
    let rows: Vec<String> = FUNCTION_KEYS.iter().map(ringway_spec::file::Key::row).collect();
    let expected =
        format!("{before}\n## `[function.NAME]`\n{head}|---|---|---|\n{}\n\n{after}", rows.join("\n"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page == expected, "BLESS=1 writes these rows of docs/fabric-file.md:\n{}", rows.join("\n"));
}

#[test]
fn a_function_s_reader_has_exactly_the_described_keys() {
    let said = read("f", "[function.f]\nzzzzzzzz = 1\n", &host()).unwrap_err().to_string();
    let (_, list) = said.split_once("it may have ").unwrap();
    let list = list.lines().next().unwrap().replace(" or ", ", ");
    let mut known: Vec<&str> = list.split(", ").collect();
    let names = FUNCTION_KEYS.iter().flat_map(|key| [key.name, key.list]);
    let mut described: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    known.sort_unstable();
    described.sort_unstable();
    assert_eq!(known, described);
}

#[test]
fn the_projects_example_files_are_valid() {
    for (name, text) in examples("../../../examples") {
        if let Err(problems) = read(&name, &text, &host()) {
            panic!("{problems}");
        }
    }
}

#[test]
fn a_file_is_read_into_the_expected_fabric() {
    let text = r#"
        [fabric]
        name = "lab"
        [switch.main]
        ageing = "60s"
        [port.a]
        kind = "vhost-user"
        socket = "a.sock"
        switch = "main"
        hold = "1ms"
        notify = { moderate = "50us", suppress = false }
        [port.b]
        kind = "null"
        [port.c]
        kind = "source"
        rate = "2kpps"
        [patch.p]
        ports = ["b", "c"]
        [worker.w]
        core = 1
        node = 1
        ports = ["a"]
        hold = "2ms"
        [guest.g]
        kind = "uml"
        port = "a"
        address = "10.0.0.1/24"
        memory = "96MB"
        [plugins.p]
        folder = "plugins"
        [plugins.q]
        folder = "others"
        unconfined = true
    "#;
    let fabric = read("f", text, &host()).unwrap();
    assert_eq!(fabric.name, "lab");
    assert_eq!(
        fabric.switches[0].lookup,
        Kind::new("learning", &learning::Settings { ageing: 60, entries: 4096, refuse_moves: false })
    );
    let a = fabric.port("a").unwrap();
    assert_eq!(
        (a.to.clone(), a.hold, a.worker.as_deref()),
        (Some(To::Switch("main".into())), Some(1_000_000), Some("w"))
    );
    assert_eq!(a.notify, Notify { moderate: 50_000, suppress: false, ..Notify::default() });
    assert_eq!((fabric.port("b").unwrap().hold, fabric.workers[0].hold), (None, 2_000_000));
    assert_eq!((fabric.workers[0].node, fabric.node_of(a)), (Some(1), Some(1)));
    let source: source::Settings = fabric.port("c").unwrap().kind.settings().unwrap();
    assert_eq!(source.rate, Some(2000));
    assert_eq!(fabric.port("b").unwrap().to, Some(To::Patch("c".into())));
    assert_eq!(fabric.port("c").unwrap().to, Some(To::Patch("b".into())));
    assert_eq!(fabric.guests[0].memory, 96 << 20);
    let unconfined = fabric.placement.plugins.folders.iter().map(|folder| folder.unconfined);
    assert_eq!(unconfined.collect::<Vec<_>>(), [false, true]);
    let fabric = fabric.resolve(Path::new("/tmp/run"), Path::new("/etc"));
    let a = &fabric.ports[0];
    assert_eq!(a.socket.as_ref().unwrap().path, Path::new("/tmp/run/a.sock"));
    assert!(a.kind.settings::<vhost_user::Settings>().unwrap().server);
}

#[test]
fn the_node_of_a_port_s_memory_is_that_of_every_worker_that_may_take_it() {
    let node = |workers: &str| {
        let text = format!(
            "[switch.s]\n[port.a]\nkind='null'\nswitch='s'\n[port.b]\nkind='null'\nswitch='s'\n{workers}"
        );
        let fabric = read("f", &text, &host()).unwrap();
        ["a", "b"].map(|port| fabric.node_of(fabric.port(port).unwrap()))
    };
    assert_eq!(node(""), [None, None]);
    assert_eq!(node("[worker.v]\nnode = 1\n"), [Some(1), Some(1)]);
    assert_eq!(node("[worker.v]\nnode = 1\nports = ['a']\n[worker.w]\nnode = 0\n"), [Some(1), None]);
    assert_eq!(node("[worker.v]\nnode = 1\n[worker.w]\nnode = 1\n"), [Some(1), Some(1)]);
    assert_eq!(node("[worker.v]\n[worker.w]\nnode = 1\n"), [None, None]);
}

/// A file with something cut out, put in or written over.
fn mutated() -> impl Strategy<Value = String> {
    let mut texts: Vec<String> = examples("tests/file").into_iter().map(|(_, text)| text).collect();
    texts.extend(examples("../../../examples").into_iter().map(|(_, text)| text));
    let change =
        (any::<prop::sample::Index>(), 0usize..12, prop_oneof![".{0,6}", r#"[\[\]="'.#\n{},]{1,3}"#]);
    (prop::sample::select(texts), prop::collection::vec(change, 1..6)).prop_map(|(text, changes)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, length, new) in changes {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, new.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn arbitrary_files_never_panic(text in mutated()) {
        if let Err(problems) = read("f.toml", &text, &host()) {
            prop_assert!(!problems.list.is_empty());
            prop_assert!(problems.render(true).starts_with("f.toml:"));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(text in "\\PC{0,200}") {
        let _ = read("f.toml", &text, &host()).map_err(|problems| problems.render(true));
    }
}
