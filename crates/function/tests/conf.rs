//! Runs configurations that need no device: those of `examples/click/`, and, if `CLICK_CONF` names the folder
//! `conf/` of Click's source tree (`make click-conf CONF=folder`), those of it that
//! docs/click-compatibility.md lists.
#![allow(clippy::unwrap_used)]

use ringway_click::{Options, PACKETS, Recorder, Router, Turn};
use ringway_click_lang::Source;
use ringway_function::click::{Host, registry};
use std::path::{Path, PathBuf};

/// Turns that a configuration gets which may never end, and one that does.
const TURNS: usize = 300;
const ALL: usize = 1 << 20;
/// Click's own that need no device.
const CLICKS: [&str; 13] = [
    "fake-iprouter",
    "icmp6error",
    "ip6ndadvertiser",
    "ip6ndsolicitor",
    "script-parabolawave",
    "script-squarewave",
    "script-trianglewave",
    "stridetest",
    "test",
    "test2",
    "test3",
    "test-clicky",
    "urewrite",
];

/// Builds a configuration and runs it for some turns of simulated time. Returns its output and chatter.
fn run(path: &Path, burst: usize, turns: usize) -> Result<(String, String), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let registry = registry();
    let parsed = Source::new(&text, &path.display().to_string()).read(&mut Host::new(&registry));
    if parsed.diagnostics.errors() > 0 {
        return Err(parsed.diagnostics.to_string());
    }
    let console = Recorder::default();
    let options = Options::simulated(burst, console.clone(), &text);
    let mut router = Router::build(parsed.graph, &registry, options).map_err(|error| error.to_string())?;
    for _ in 0..turns {
        if router.turn() == Turn::Stopped {
            break;
        }
    }
    drop(router);
    Ok((console.output(), console.chatter()))
}

#[test]
fn the_example_configurations_have_the_expected_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/click");
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "click")).collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in &files {
        // A comment at the end has the expected output.
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("// prints: "));
        let expected: String = lines.map(|line| format!("{line}\n")).collect();
        for burst in [1, PACKETS] {
            let (output, chatter) = run(file, burst, ALL).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert!(!expected.is_empty() && output == expected, "{}: {output}{chatter}", file.display());
        }
    }
}

#[test]
fn clicks_example_configurations_run_if_installed() {
    // If they are not available, the first of our own examples is used.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/click/ip-router.click");
    let files: Vec<PathBuf> = match std::env::var_os("CLICK_CONF") {
        Some(folder) => CLICKS.iter().map(|name| Path::new(&folder).join(format!("{name}.click"))).collect(),
        None => vec![own],
    };
    for file in files {
        let (output, chatter) =
            run(&file, 1, TURNS).unwrap_or_else(|wrong| panic!("{}: {wrong}", file.display()));
        println!("{}: {} bytes printed, {} chattered", file.display(), output.len(), chatter.len());
        assert!(!chatter.contains("error"), "{}: {chatter}", file.display());
    }
}
