//! Checks the examples of the documentation: its fabric files are valid, its commands exist.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
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

/// The text between two others in a page.
pub fn between<'t>(page: &'t str, begin: &str, end: &str) -> &'t str {
    page.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).unwrap().0
}

/// The fenced blocks of a page of `docs/` in `language`.
pub fn shown(page: &str, language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(page);
    blocks(&page, language).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_fabric_file_in_the_documentation_is_valid() {
    let folder = std::env::temp_dir().join(format!("rw-docs-{}", std::process::id()));
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/plugins");
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
            if text.starts_with("[package]") {
                // A program's Cargo.toml; the tests of `ringway-sockets` build it.
                continue;
            }
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

/// The command lines of `ringway` that a page shows in blocks for a shell, with the numbers of their lines.
fn command_lines(page: &Path) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for language in ["sh", "console"] {
        for (start, text) in blocks(page, language) {
            // A line that ends with `\\` goes on in the next one.
            let joined = text.replace("\\\n", "\u{1}");
            let mut number = start;
            for line in joined.lines() {
                let at = number;
                number += 1 + line.matches('\u{1}').count();
                let line = line.replace('\u{1}', " ");
                let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
                let line = line.trim_start_matches("target/release/");
                if language == "sh" || joined.starts_with("$ ") {
                    found.extend(line.starts_with("ringway ").then(|| (at, line.to_string())));
                }
            }
        }
    }
    found
}

/// Every command line of the documentation has a command and options that the program knows.
#[test]
fn every_command_line_in_the_documentation_is_accepted() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for (number, line) in command_lines(&page) {
            // Up to what the shell does with it.
            let ends = [" | ", " > ", " < ", " && ", " 2> ", "  #", " # "];
            let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
            let line = line[..end].trim_end_matches(" &").trim_end();
            // Their words are for Click's driver, and for a guest.
            if line.contains("ringway click ") || line.contains(" exec ") || line.contains("$(") {
                continue;
            }
            count += 1;
            // `--help` ends the program after it has read what stands before.
            let script = format!("ringway() {{ \"$RINGWAY\" \"$@\"; }}; {line} --help");
            let mut shell = Command::new("sh");
            let output = shell.args(["-c", &script]).env("RINGWAY", env!("CARGO_BIN_EXE_ringway")).output();
            let output = output.unwrap();
            if !output.status.success() {
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                wrong.push(format!("{}:{number}: {line}: {stderr}", page.display()));
            }
        }
    }
    assert!(count > 30, "the documentation shows {count} command lines");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Blocks of code in languages that no test of this file checks, and the test that does, without `.rs`.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("nic.md", "c", "crates/fleet/cli/tests/programs"),
    ("nic.md", "xml", "crates/fleet/control/tests/nic_docs"),
    ("programs.md", "rust,no_run", "crates/net/ring-client/src/lib"),
    ("programs.md", "c", "crates/fleet/cli/tests/programs"),
    ("programs.md", "python", "tests/tests/ring_programs"),
    ("stack.md", "rust", "crates/net/sockets/src/lib"),
    ("stack.md", "rust,no_run", "crates/net/sockets/src/lib"),
    ("stack.md", "c", "crates/net/stack-c/tests/programs"),
    ("plugins.md", "python", "python/tests/test_examples.py"),
    ("tiny-programs.md", "rust", "crates/fleet/cli/tests/tiny"),
    ("tiny-programs.md", "c", "crates/fleet/cli/tests/tiny"),
    ("placement.md", "yaml", "tests/tests/kubernetes"),
    ("metrics.md", "yaml", "crates/fleet/cli/tests/metrics"),
    ("migration.md", "bash", "crates/fleet/cli/tests/host_migration"),
    ("tiny-guests.md", "rust,no_run", "crates/machines/vmm/src/lib"),
];

/// Whether a test names a page and takes its blocks in `language`: all in Rust as tests of the documentation, or those
/// behind this fence, or by a function that gets the language.
fn takes(test: &str, page: &str, language: &str) -> bool {
    let is_included = language.starts_with("rust") && test.contains(&format!("/docs/{page}\")]\nstruct "));
    let names_it = [format!("```{language}\\n"), format!("\"{language}\")")];
    is_included || test.contains(page) && names_it.iter().any(|name| test.contains(name))
}

/// A page of the documentation can't show code that nobody tests.
#[test]
fn every_language_in_the_documentation_has_a_test() {
    // `python` and `xml` have tests below, and commands of a shell one above.
    let here = ["toml", "sh", "console", "click", "python", "xml", ""];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut wrong = Vec::new();
    for page in pages() {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let mut opens = true;
        for fence in
            std::fs::read_to_string(&page).unwrap().lines().filter_map(|line| line.strip_prefix("```"))
        {
            let language = if opens { fence } else { "" };
            opens = !opens;
            let tested = ELSEWHERE.iter().find(|(own, known, _)| *own == name && *known == language);
            match tested {
                Some((_, _, test)) => {
                    let test = if test.ends_with(".py") { test.to_string() } else { format!("{test}.rs") };
                    let text = std::fs::read_to_string(root.join(&test)).unwrap();
                    let takes_it = takes(&text, &name, language);
                    assert!(takes_it, "{test} does not take the blocks in {language} from {name}");
                }
                None if here.contains(&language) => {}
                None => wrong.push(format!("{name}: ```{language}")),
            }
        }
    }
    assert!(wrong.is_empty(), "add a test, and its row to ELSEWHERE:\n{}", wrong.join("\n"));
}

/// The methods of the API's client and of networks that Python code of the documentation calls exist.
#[test]
fn python_of_the_documentation_calls_methods_that_exist() {
    const CHECK: &str = "
import ast, sys
from ringway.fabric import Fabric
from ringway.sockets import Network
types = {'fabric': Fabric, 'network': Network}
tree = ast.parse(sys.stdin.read())
called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
for func in called:
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in types:
        getattr(types[func.value.id], func.attr)
        print(func.attr)
";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python");
    let mut count = 0;
    for page in pages() {
        if ELSEWHERE.iter().any(|(name, known, _)| page.ends_with(name) && *known == "python") {
            continue;
        }
        for (line, text) in blocks(&page, "python") {
            count += 1;
            let mut python = Command::new("python3");
            python.args(["-c", CHECK]).env("PYTHONPATH", &folder).stdin(std::process::Stdio::piped());
            python.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            let mut child = python.spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let calls_some = output.status.success() && !output.stdout.is_empty();
            assert!(calls_some, "{}:{line}: {stderr}", page.display());
        }
    }
    assert!(count > 0, "no page shows calls");
}

/// Elements of XML in the documentation, such as libvirt's, are closed in their order.
#[test]
fn xml_of_the_documentation_is_well_formed() {
    for page in pages() {
        for (line, text) in blocks(&page, "xml") {
            let mut open = Vec::new();
            for tag in text.split('<').skip(1).filter_map(|part| part.split('>').next()) {
                let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or_default();
                match (tag.starts_with('/'), tag.ends_with('/') || tag.starts_with(['?', '!'])) {
                    (true, _) => assert_eq!(open.pop(), Some(name), "{}:{line}", page.display()),
                    (false, false) => open.push(name),
                    _ => {}
                }
            }
            assert_eq!(open, [""; 0], "{}:{line}", page.display());
        }
    }
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
