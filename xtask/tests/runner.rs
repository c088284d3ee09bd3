//! `scripts/timed.sh` and the summary of `scripts/steps.sh`, with a test program that fails as told.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test program of one module with two tests. Run number N fails if the file `fails-N` is there, and does not end if
/// that file says so.
const PROGRAM: &str = r#"#!/bin/sh
if [ "$1" = --list ]; then
  printf '%s\n' 'hosts::one: test' 'hosts::two: test'
  exit
fi
cd "$(dirname "$0")"
echo run >>runs
run=$(wc -l <runs)
echo "this is run $run"
if grep -qs endless "fails-$run"; then
  exec sleep 100000
fi
if [ -e "fails-$run" ]; then
  echo "test result: FAILED. 1 passed; 1 failed; 0 ignored"
  exit 101
fi
echo "test result: ok. 2 passed; 0 failed; 0 ignored"
"#;

struct Ran {
    folder: PathBuf,
    output: String,
    passed: bool,
}

/// Runs the program, of which the runs in `fails` fail, as a module of `package`.
fn run(name: &str, package: &str, fails: &[u32], ci: bool) -> Ran {
    run_by(". scripts/steps.sh; step tests scripts/timed.sh \"$0\"; summary", name, package, fails, ci)
}

/// Runs it as a part of `script`, whose first word is the program.
fn run_by(script: &str, name: &str, package: &str, fails: &[u32], ci: bool) -> Ran {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Left by an earlier test.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("integration-0");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    for run in fails {
        std::fs::write(folder.join(format!("fails-{run}")), "").unwrap();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(&program).current_dir(root);
    shell.env("CARGO_PKG_NAME", format!("ringway-{package}")).env("CARGO_TARGET_DIR", &folder);
    ["TEST_TIMES", "CI", "ASIDE"].into_iter().for_each(|name| _ = shell.env_remove(name));
    if ci {
        shell.env("CI", "true");
    }
    let output = shell.output().unwrap();
    let passed = output.status.success();
    Ran { folder, output: String::from_utf8_lossy(&output.stdout).into_owned(), passed }
}

impl Ran {
    /// The last line, the number of runs, and what is kept of the first one.
    fn end(&self) -> (&str, usize, Option<String>) {
        let runs = std::fs::read_to_string(self.folder.join("runs")).unwrap().lines().count();
        let kept = std::fs::read_to_string(self.folder.join("first-runs/cli-hosts.txt")).ok();
        (self.output.lines().last().unwrap(), runs, kept)
    }
}

#[test]
fn a_module_that_passes_runs_once() {
    let ran = run("once", "cli", &[], false);
    assert_eq!(ran.end(), ("2 passed, 0 failed", 1, None));
    assert!(ran.passed, "{}", ran.output);
}

#[test]
fn a_module_that_passes_only_in_its_second_run_has_failed() {
    let ran = run("second", "cli", &[1], false);
    let first = "this is run 1\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
    assert_eq!(ran.end(), ("1 passed, 1 failed", 2, Some(first.into())));
    assert!(!ran.passed);
    let unsteady =
        "unsteady: cli hosts passed only in its second run, and counts as failed; its first run is in ";
    let of_summary = ran.output.split("== steps\n").nth(1).unwrap();
    let file = of_summary.split(unsteady).nth(1).unwrap().lines().next().unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), first);
}

#[test]
fn a_program_that_does_not_end_is_stopped_and_has_failed() {
    let script = "echo endless >$(dirname \"$0\")/fails-1; export TEST_LIMIT=1; \
        . scripts/steps.sh; step tests scripts/timed.sh \"$0\"; summary";
    let ran = run_by(script, "endless", "switch", &[1], true);
    assert!(ran.output.contains("switch hosts was stopped: it took longer than 1 s"), "{}", ran.output);
    assert_eq!(ran.end().0, "0 passed, 1 failed");
}

#[test]
fn continuous_integration_accepts_and_reports_it() {
    let ran = run("ci", "cli", &[1], true);
    assert_eq!((ran.end().0, ran.end().1), ("2 passed, 0 failed", 2));
    assert!(ran.passed, "{}", ran.output);
    let of_summary = ran.output.split("== steps\n").nth(1).unwrap();
    assert!(of_summary.contains("unsteady: cli hosts passed only in its second run; "), "{}", ran.output);
}

#[test]
fn a_module_that_fails_twice_has_failed() {
    let ran = run("twice", "cli", &[1, 2], true);
    assert_eq!((ran.end().0, ran.end().1), ("1 passed, 1 failed", 2));
    assert!(!ran.passed);
}

#[test]
fn a_module_without_real_peers_runs_once() {
    let ran = run("alone", "switch", &[1], true);
    assert_eq!(ran.end(), ("1 passed, 1 failed", 1, None));
    assert!(!ran.passed);
}

/// A step with the program, and one that waits for what ran beside it.
const BESIDE: &str = r#"
. scripts/steps.sh
. scripts/aside.sh
export ASIDE=$(mktemp -d)
touch "$ASIDE"/{groups,times}
trap aside_stop EXIT
aside first sh -c 'sleep 0.2; echo one'
step tests scripts/timed.sh "$0"
echo two
step beside aside_end
summary"#;

#[test]
fn a_simulation_runs_beside_the_others_and_its_result_counts() {
    let ran = run_by(BESIDE, "beside", "switch", &[], false);
    assert_eq!(ran.end(), ("2 passed, 0 failed", 1, None));
    let place = |line: &str| ran.output.lines().position(|other| other == line).unwrap();
    let of_module = [place("module hosts"), place("this is run 1")];
    assert!(ran.passed && of_module.is_sorted(), "{}", ran.output);
    assert!(place("== beside") > place("two") && place("== beside") < place("one").min(of_module[0]));
    assert!(ran.output.contains(" s  first, beside the tests\n"), "{}", ran.output);
}

#[test]
fn a_simulation_that_fails_beside_the_others_has_failed() {
    let ran = run_by(BESIDE, "beside-fails", "switch", &[1], false);
    assert_eq!(ran.end(), ("1 passed, 1 failed", 1, None));
    assert!(!ran.passed && ran.output.contains("aside: switch integration failed"), "{}", ran.output);
}

#[test]
fn a_module_with_real_peers_does_not_run_beside_others() {
    let ran = run_by(BESIDE, "not-beside", "tests", &[], false);
    let of = |line: &str| ran.output.lines().position(|other| other == line);
    assert!(ran.passed && of("this is run 1") < of("two"), "{}", ran.output);
}

#[test]
fn with_four_processors_modules_of_the_command_line_run_beside_those_of_other_packages() {
    for (processors, ci, is_beside) in [(4, true, true), (4, false, false), (2, true, false)] {
        let script = format!("export TEST_PROCESSORS={processors}{BESIDE}");
        let ran = run_by(&script, &format!("lane-{processors}-{ci}"), "cli", &[], ci);
        let of = |line: &str| ran.output.lines().position(|other| other == line);
        assert_eq!((ran.passed, of("this is run 1") > of("two")), (true, is_beside), "{}", ran.output);
    }
}

#[test]
fn a_second_run_comes_when_all_others_have_ended() {
    for package in ["cli", "tests"] {
        let ran = run_by(BESIDE, &format!("last-{package}"), package, &[1], true);
        assert_eq!((ran.end().0, ran.end().1), ("2 passed, 0 failed", 2), "{}", ran.output);
        let of = |line: &str| ran.output.lines().position(|other| other == line);
        assert!(ran.passed && of("this is run 2") > of("one"), "{}", ran.output);
        assert!(of("this is run 1") < of("this is run 2"), "{}", ran.output);

        let ran = run_by(BESIDE, &format!("last-fails-{package}"), package, &[1, 2], true);
        assert_eq!(ran.end().0, "1 passed, 1 failed", "{}", ran.output);
        assert!(!ran.passed);
    }
}

#[test]
fn a_documentation_test_does_not_run_beside_others() {
    // Its program, `rust_out`, is removed when its runner ends.
    let removed =
        r#"sh -c 'cd "${0%/*}"; cp "$0" rust_out; "$1" ./rust_out; rm rust_out' "$0" $PWD/scripts/timed.sh"#;
    let script = BESIDE.replace(r#"scripts/timed.sh "$0""#, removed);
    let ran = run_by(&script, "documentation", "switch", &[], false);
    assert_eq!(ran.end(), ("2 passed, 0 failed", 1, None));
    let of = |line: &str| ran.output.lines().position(|other| other == line);
    assert!(ran.passed && of("this is run 1") < of("two"), "{}", ran.output);
}
