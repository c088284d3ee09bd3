//! The programs that docs/programs.md shows: its first steps, and its calls in C; those of docs/nic.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::docs::shown;
use crate::lab::frames::{self, LONG, patched, program};
use crate::lab::{Lab, Running, c_program, until};
use ringway_ring_client::{Ring, Wait};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_first_steps_of_the_page_run() {
    let file = include_str!("../../../../examples/rings.toml");
    let lab = Lab::new("programs-first-steps", &file.replace("[fabric]\nname = \"rings\"\n", ""));
    let program = crate::lab::example("ringway-ring-client", "pkt-gen");
    let lines = shown("programs.md", "sh").remove(0).replace("examples/rings.toml", "lab.toml");
    let lines = lines.replace("10000", "100");
    let lines = lines.replace("target/release/examples/pkt-gen", program.to_str().unwrap());
    let lines = lines.replace("/run/ringway/rings/", lab.socket("").to_str().unwrap());
    let (mut pong, mut ran) = (None, 0);
    for line in lines.lines().filter(|line| !line.starts_with("make ") && !line.starts_with("cargo ")) {
        let line = line.trim_start_matches("target/release/");
        ran += 1;
        if let Some(line) = line.strip_suffix(" &") {
            pong = Some(Running(lab.shell(&format!("exec {line}")).spawn().unwrap()));
            until("the answering program is there", || lab.state("pong") == "up");
        } else if line == "kill %1" {
            let second = Command::new(&program).arg("rx").arg(lab.socket("pong.sock")).spawn().unwrap();
            let _second = Running(second);
            let waits = "another program waits until the present one has left port=\"pong\"";
            until("a second program is reported", || lab.log().contains(waits));
            drop(pong.take());
        } else {
            let output = lab.shell(line).output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{line}: {output:?}");
            assert!(!line.contains(" ping ") || stdout.starts_with("us: min"), "{stdout}");
        }
    }
    assert_eq!(ran, 5);
}

/// The calls in C of a page as a program, with what they leave to the reader.
fn compiled(lab: &Lab, page: &str, change: impl Fn(&str) -> String) -> PathBuf {
    let calls = change(&shown(page, "c")[0]);
    let source = lab.folder.join(page).with_extension("c");
    let text = format!(
        "#include <ringway.h>\n#include <stdio.h>\n\
         static void use_it(const void *at, size_t len) {{ printf(\"%zu bytes at %p\\n\", len, at); }}\n\
         int main(void) {{\nstatic unsigned char frame[2048];\nssize_t len = 60;\n{calls}\nreturn 0; }}\n"
    );
    std::fs::write(&source, text).unwrap();
    c_program(lab, &source)
}

#[test]
fn the_calls_in_c_of_the_pages_send_and_receive() {
    let lab = Lab::new("programs-c", &patched(&[["a", "b"]]));
    compiled(&lab, "nic.md", str::to_string);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let socket = lab.socket("a.sock");
    let calls = compiled(&lab, "programs.md", |calls| {
        assert!(calls.contains("/run/ringway/ports/a"));
        calls.replace("/run/ringway/ports/a", socket.to_str().unwrap())
    });
    let mut other = program(&lab, "b");
    let mut running = Running(Command::new(calls).stdout(Stdio::piped()).spawn().unwrap());
    assert!(frames::receive(&mut other, LONG).is_some(), "it sends a frame");
    assert!(frames::send(&mut other, 1));
    let mut said = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(running.0.wait().unwrap().success() && said.starts_with("60 bytes at "), "{said}");
}

/// Frames that a program has sent are not lost with its ring when it ends at once.
#[test]
fn frames_of_a_program_that_ends_arrive() {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let ports = format!("{}{}[patch.p]\nports = [\"a\", \"b\"]\n", port("a"), port("b"));
    let lab = Lab::new("programs-end", &ports);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ring = Ring::connect(&lab.socket("b.sock")).unwrap();
    until("the receiver is there", || lab.state("b") == "up");
    let (mut frame, end) = ([0; 2048], Instant::now() + Duration::from_secs(20));
    for _ in 0..10 {
        let click = format!(
            "s :: RatedSource(RATE 1000000, LIMIT 5, STOP true, ACTIVE false) -> b :: ToPort({});\n\
             Script(label x, wait 1ms, goto x $(ne $(b.state) up), write s.active true);\n\
             DriverManager(wait_stop)",
            lab.socket("a.sock").display()
        );
        assert_eq!(lab.ok(&["click", "-e", &click, "-h", "b.count"]).trim(), "5");
        for _ in 0..5 {
            while ring.rx.pop(&mut frame).unwrap().is_none() {
                assert!(Instant::now() < end, "a frame is lost");
                ring.wait(Wait::RX, Some(Duration::from_millis(100))).unwrap();
            }
        }
        ring.rx.sync().unwrap();
    }
}
