//! Checks the examples of the documentation: its fabric files are valid, its commands exist.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

/// The fenced blocks of a page in `language`, with their first lines' numbers.
fn blocks(page: &Path, language: &str) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(fence) = line.strip_prefix("```") else { continue };
        let start = lines.clone().next().map_or(0, |(number, _)| number + 1);
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        if fence == language {
            found.push((start, body.join("\n")));
        }
    }
    found
}

#[test]
fn every_fabric_file_in_the_documentation_is_valid() {
    let folder = std::env::temp_dir().join(format!("rw-docs-{}", std::process::id()));
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins");
    // The examples' policies name units of plugins.
    for place in ["plugins", "examples/plugins"] {
        std::fs::create_dir_all(folder.join(place)).unwrap();
        for entry in std::fs::read_dir(&plugins).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, folder.join(place).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        if page.ends_with("tiny-programs.md") {
            // `tiny.rs` checks it, with the images that it names.
            continue;
        }
        for (line, text) in blocks(&page, "toml") {
            count += 1;
            let file = folder.join("shown.toml");
            std::fs::write(&file, &text).unwrap();
            let mut check = Command::new(env!("CARGO_BIN_EXE_ringway"));
            if page.ends_with("inventory.md") {
                check.args(["place", "hosts", "--inventory"]);
            } else {
                check.arg("check");
            }
            let output = check.arg(&file).output().unwrap();
            if !output.status.success() {
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                // Folders and network namespaces that this host lacks are not the page's errors.
                if !stderr.lines().all(|problem| problem.contains("; create it, or ")) {
                    wrong.push(format!("{}:{line}:\n{stderr}", page.display()));
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(count > 0, "no page shows a fabric file");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every `ringway COMMAND` in the documentation, in text or in a block, is a command of the program.
#[test]
fn every_command_in_the_documentation_exists() {
    let help = Command::new(env!("CARGO_BIN_EXE_ringway")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let known: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(known.contains(&"up"), "the help lists commands: {help}");
    let mut wrong = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (number, line) in text.lines().enumerate() {
            for (at, _) in line.match_indices("`ringway ").chain(line.match_indices("$ ringway ")) {
                let mut words =
                    line[at..].split_whitespace().skip_while(|word| !word.ends_with("ringway")).skip(1);
                let command = words.find(|word| !word.starts_with('-')).unwrap_or_default();
                let command = command.trim_end_matches(|c: char| !c.is_alphanumeric());
                if command.chars().all(|c| c.is_ascii_lowercase()) && !known.contains(&command) {
                    wrong.push(format!("{}:{}: ringway {command}", page.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "no such command:\n{}", wrong.join("\n"));
}

/// A `console` block has commands after `$ `, each followed by its output; a command without output is not run.
#[test]
fn console_blocks_match_command_output() {
    let folder = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut count = 0;
    for page in pages() {
        for (line, text) in blocks(&page, "console") {
            for shown in format!("\n{text}").split("\n$ ").skip(1) {
                let Some((command, expected)) = shown.split_once('\n').filter(|(_, text)| !text.is_empty())
                else {
                    continue;
                };
                let output = Command::new("sh").args(["-c", command]).env("PATH", &path).output().unwrap();
                let printed = String::from_utf8_lossy(&output.stdout);
                assert_eq!(printed.trim_end(), expected.trim_end(), "{}:{line}: {command}", page.display());
                count += 1;
            }
        }
    }
    assert!(count > 0, "no page shows a command with what it prints");
}

/// Every Click configuration in the documentation can be built.
#[test]
fn every_click_configuration_in_the_documentation_is_valid() {
    let folder = std::env::temp_dir().join(format!("rw-docs-click-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let capture = folder.join("in.pcap");
    // The classic format's header, little-endian, Ethernet, no packet.
    let header = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    std::fs::write(&capture, header.map(u32::to_le_bytes).concat()).unwrap();
    let arguments = [format!("IN={}", capture.display()), format!("OUT={}", folder.join("out").display())];
    for page in pages() {
        for (line, text) in blocks(&page, "click") {
            let mut program = Command::new(env!("CARGO_BIN_EXE_ringway"));
            let output = program.args(["click", "-q", "-e", &text]).args(&arguments).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}:{line}: {stderr}", page.display());
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
