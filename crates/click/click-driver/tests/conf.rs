//! Runs configurations with their devices mapped to ports of the test: those of `examples/click/`, and, if `CLICK_CONF`
//! names the folder `conf/` of Click's or FastClick's source tree (`make click-conf CONF=folder`), all of those;
//! docs/click-compatibility.md says which don't run.
#![allow(clippy::unwrap_used)]

#[path = "conf/port.rs"]
mod port;

use ringway_click::{Options, PACKETS, Recorder, Router, Turn};
use ringway_click_driver::click::{Host, registry};
use ringway_click_lang::Source;
use std::path::{Path, PathBuf};

/// Number of turns for a configuration that may never end, and for one that ends.
const TURNS: usize = 300;
const ALL: usize = 1 << 20;
/// Number of configurations of Click's and FastClick's `conf/` that Click's own program runs, with devices.
const CLICKS: usize = 23;
const FASTCLICKS: usize = 26;

/// Builds a configuration and runs it for some turns of simulated time. Returns its output and chatter.
fn run(path: &Path, burst: usize, turns: usize) -> Result<(String, String), String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).map_err(|error| error.to_string())?).into_owned();
    let mut registry = registry();
    registry.add(port::CLASSES);
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/click");
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

/// All configurations below a folder.
fn configurations(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            configurations(&path, found);
        } else if path.extension().is_some_and(|end| end == "click") {
            found.push(path);
        }
    }
}

#[test]
fn example_configurations_of_click_run_if_installed() {
    // If Click's are not available, our own examples are used.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/click");
    let click = std::env::var_os("CLICK_CONF").map(PathBuf::from);
    let is_fastclick = click.as_ref().is_some_and(|folder| folder.join("middleclick").exists());
    let least = [CLICKS, FASTCLICKS][usize::from(is_fastclick)];
    let mut files = Vec::new();
    configurations(click.as_ref().unwrap_or(&own), &mut files);
    files.sort();
    let mut running = 0;
    for file in &files {
        match run(file, 1, TURNS) {
            Ok((output, chatter)) => {
                running += 1;
                let (printed, chattered) = (output.len(), chatter.len());
                println!("runs: {}: {printed} bytes printed, {chattered} chattered", file.display());
            }
            Err(wrong) => println!("fails: {}: {}", file.display(), wrong.trim().replace('\n', " / ")),
        }
    }
    println!("{running} of {} configurations run", files.len());
    assert!(running >= if click.is_some() { least } else { files.len() });
}
