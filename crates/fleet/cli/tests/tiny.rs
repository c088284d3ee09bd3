//! Programs as tiny VMs: they are built as users build them, and answer real programs of the host through a TAP.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::net::{Script, can_create_taps, namespace, namespace6, tap, within};
use crate::lab::{Lab, isolations, until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of this repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// `ringway tiny`, whose builds go to a folder of their own beside this test's.
fn tiny(lab: &Lab) -> Command {
    // Shared by all tests, whose packages therefore have different names.
    let target = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap().parent().unwrap().join("tiny");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("tiny").current_dir(&lab.folder).env("CARGO_TARGET_DIR", target).env_remove("CARGO");
    command
}

/// Builds the program of a folder; returns its image.
fn build(lab: &Lab, folder: &Path, name: &str) -> PathBuf {
    let image = lab.folder.join(format!("{name}.tiny"));
    let output = tiny(lab).arg("build").arg(folder).arg("--output").arg(&image).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("KB"));
    image
}

fn example(lab: &Lab, name: &str) {
    build(lab, &root().join("examples/tiny").join(name), name);
}

/// The message of a command of `ringway tiny` that must fail.
fn fails(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether programs can run and be reached here; says so if not.
fn can_run() -> bool {
    isolations().contains(&"vm") && can_create_taps()
}

/// A fabric with a program at 10.0.0.2 and a TAP in a namespace.
fn fabric(name: &str, namespace: &str, more: &str) -> String {
    format!(
        "[switch.s]\n[port.p]\nkind = \"ring\"\nsocket = \"p.sock\"\nswitch = \"s\"\n{}switch = \"s\"\n\
         [function.{name}]\nimage = \"{name}.tiny\"\nport = \"p\"\naddress = \"10.0.0.2/24\"\n\
         memory = \"64MB\"\n{more}",
        tap("t", namespace, "10.0.0.1/24")
    )
}

fn function_of(lab: &Lab, name: &str) -> Value {
    let list = lab.json(&["function", "list"]);
    list.as_array().unwrap().iter().find(|own| own["name"] == name).cloned().unwrap_or_default()
}

fn is_running(lab: &Lab, name: &str) -> bool {
    function_of(lab, name)["state"] == "running"
}

fn up(lab: &Lab, name: &str) {
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(lab, name));
}

fn text(namespace: &str, script: &str) -> String {
    String::from_utf8(within(namespace, script)).unwrap()
}

/// Sends datagrams to the program, and answers with what comes back, or `none`.
const DATAGRAMS: &str = r#"
import socket, sys
for line in sys.stdin:
    # What answers an earlier line late is not taken for this one's.
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("10.0.0.2", 7))
    s.settimeout(0.5)
    try:
        s.send(line.strip().encode())
        print(s.recv(2000).decode())
    except OSError:
        print("none")
"#;

/// The template's program, which also fails as it is told.
const FAILING: &str = r#"
#![no_std]
#![no_main]
extern crate alloc;
use ringway_tiny_program::{Error, Program, log};
ringway_tiny_program::main!(main);
async fn main(program: Program) -> Result<(), Error> {
    let mut socket = program.network()?.bind(7)?;
    log!(program, "started with {:?}", program.arguments().collect::<alloc::vec::Vec<_>>());
    loop {
        let (bytes, from) = socket.recv_from().await?;
        match &bytes[..] {
            b"panic" => panic!("as it was told"),
            b"fail" => return Err(Error::other("failed as it was told")),
            b"spin" => loop {},
            b"eat" => drop(core::hint::black_box(alloc::vec![0_u8; 1 << 30])),
            _ => {}
        }
        socket.send_to(&bytes, from)?;
    }
}
"#;

#[test]
fn a_new_program_runs_as_a_function_does() {
    let (_keeper, namespace) = if can_run() { namespace() } else { return };
    let lab = Lab::new("tiny-life", &fabric("web", &namespace, "arguments = [\"one\", \"two\"]\n"));
    let new = tiny(&lab).args(["new", "web"]).output().unwrap();
    assert!(new.status.success(), "{}", String::from_utf8_lossy(&new.stderr));
    assert!(fails(tiny(&lab).args(["new", "web"])).contains("web/Cargo.toml: it exists already"));
    // The template is good as it is.
    build(&lab, &lab.folder.join("web"), "web");
    up(&lab, "web");
    let mut peer = Script::start(&namespace, &lab.folder, DATAGRAMS, &[]);
    until("it answers", || peer.ask("hello") == "hello");
    assert!(lab.log().contains("echo on UDP port 7"), "{}", lab.log());
    lab.ok(&["down"]);

    std::fs::write(lab.folder.join("web/src/main.rs"), FAILING).unwrap();
    build(&lab, &lab.folder.join("web"), "web");
    up(&lab, "web");
    until("it answers", || peer.ask("hello") == "hello");
    assert!(lab.log().contains(r#"started with ["one", "two"]"#), "{}", lab.log());
    assert_eq!(function_of(&lab, "web")["isolation"], "vm");
    assert_eq!(function_of(&lab, "web")["configuration"], "web.tiny");
    assert!(lab.ok(&["function", "list"]).contains("web.tiny"));

    lab.ok(&["function", "suspend", "web"]);
    until("it stands still", || peer.ask("lost") == "none");
    lab.ok(&["function", "resume", "web"]);
    until("it goes on", || peer.ask("more") == "more");
    lab.ok(&["function", "stop", "web"]);
    until("it is gone", || peer.ask("lost") == "none");
    lab.ok(&["function", "start", "web"]);
    until("it answers again", || peer.ask("again") == "again");

    for (told, reason) in [
        ("panic", "the program panicked: panicked at src/main.rs"),
        ("fail", "failed as it was told"),
        ("eat", "memory allocation of 1073741824 bytes failed"),
    ] {
        let restarts = function_of(&lab, "web")["restarts"].as_u64().unwrap();
        until("it is gone", || peer.ask(told) == "none");
        until("it is started again", || {
            let own = function_of(&lab, "web");
            own["restarts"].as_u64().unwrap() > restarts && own["state"] == "running"
        });
        until("it answers", || peer.ask("hello") == "hello");
        assert!(lab.log().contains(reason), "{reason}: {}", lab.log());
    }
    // A program that never parks is stopped all the same.
    until("it spins", || peer.ask("spin") == "none");
    lab.ok(&["function", "stop", "web"]);
    lab.ok(&["function", "start", "web"]);
    until("it answers", || peer.ask("hello") == "hello");

    let why = |words: &[&str]| lab.fails(words).1;
    assert!(why(&["function", "read", "web", "x"]).contains("web is a program, which has no"));
    assert!(why(&["function", "snapshot", "web", "a"]).contains("web is a program"));
    std::fs::write(lab.folder.join("x.click"), "Idle;").unwrap();
    assert!(why(&["function", "update", "web", "x.click"]).contains("web is a program"));
}

#[test]
fn a_changed_image_restarts_the_program_and_an_equal_one_does_not() {
    let (_keeper, namespace) = if can_run() { namespace() } else { return };
    let lab = Lab::new("tiny-apply", &fabric("web", &namespace, ""));
    assert!(tiny(&lab).args(["new", "applied"]).status().unwrap().success());
    build(&lab, &lab.folder.join("applied"), "web");
    up(&lab, "web");
    let pid = function_of(&lab, "web")["pid"].clone();
    lab.ok(&["apply", "lab.toml"]);
    assert_eq!(function_of(&lab, "web")["pid"], pid);
    std::fs::write(lab.folder.join("applied/src/main.rs"), FAILING).unwrap();
    build(&lab, &lab.folder.join("applied"), "web");
    lab.ok(&["apply", "lab.toml"]);
    until("the new one runs", || is_running(&lab, "web") && lab.log().contains("started with []"));
    assert_ne!(function_of(&lab, "web")["pid"], pid);
    // The same program, created at run time.
    lab.ok(&["function", "destroy", "web"]);
    let create = ["function", "create", "again", "--port", "p", "--address", "10.0.0.2/24", "--image"];
    assert!(lab.fails(&[&create[..], &["lab.toml"]].concat()).1.contains("lab.toml: it is no image"));
    lab.ok(&[&create[..], &["web.tiny", "--argument", "one"]].concat());
    until("it runs", || is_running(&lab, "again") && lab.log().contains("started with [\"one\"]"));
}

#[test]
fn what_can_not_be_built_is_refused_with_a_remedy() {
    let lab = Lab::new("tiny-build", "");
    let why = |words: &[&str]| fails(tiny(&lab).args(words));
    assert!(why(&["build", "none"]).contains("none: there is no such folder; `ringway tiny new` makes one"));
    std::fs::create_dir(lab.folder.join("empty")).unwrap();
    assert!(why(&["build", "empty"]).contains("empty/Cargo.toml: there is no such file"));
    let bare = "[package]\nname = \"bare\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::create_dir_all(lab.folder.join("bare/src")).unwrap();
    std::fs::write(lab.folder.join("bare/Cargo.toml"), bare).unwrap();
    std::fs::write(lab.folder.join("bare/src/main.rs"), "fn main() {}").unwrap();
    assert!(why(&["build", "bare"]).contains("bare/Cargo.toml: it does not depend on ringway-tiny-program"));
    assert!(
        why(&["new", "x", "--library", "empty"]).contains("it is not the folder of ringway-tiny-program")
    );

    assert!(tiny(&lab).args(["new", "refused"]).status().unwrap().success());
    let web = lab.folder.join("refused");
    std::fs::remove_file(web.join("Cargo.toml")).unwrap();
    assert!(
        why(&["new", "refused"]).contains("refused/src/main.rs: it exists already; choose another folder")
    );
    std::fs::remove_dir_all(&web).unwrap();
    assert!(tiny(&lab).args(["new", "refused"]).status().unwrap().success());
    let wrong = why(&["build", "refused", "--bin", "other"]);
    assert!(wrong.contains("refused/Cargo.toml: it has no program \"other\"; it has refused"), "{wrong}");
    // Tools that this host lacks, and a toolchain without the target.
    let tools = lab.folder.join("tools");
    std::fs::create_dir(&tools).unwrap();
    let without = fails(tiny(&lab).args(["build", "refused"]).env("PATH", &tools));
    assert!(without.contains("there is no `cargo` here; install Rust with rustup"), "{without}");
    std::fs::write(tools.join("rustc"), "#!/bin/sh\necho /nowhere\n").unwrap();
    assert!(Command::new("chmod").args(["+x"]).arg(tools.join("rustc")).status().unwrap().success());
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let without = fails(tiny(&lab).args(["build", "refused"]).env("PATH", path));
    assert!(without.contains("`rustup target add x86_64-unknown-none` in the folder"), "{without}");

    std::fs::write(web.join("src/main.rs"), "#![no_std]\n#![no_main]\nuse ringway_tiny_program as _;\n")
        .unwrap();
    let without = why(&["build", "refused"]);
    assert!(without.contains("guest_main") || without.contains("it has no entry"), "{without}");
    std::fs::write(web.join("src/main.rs"), "#![no_std]\n#![no_main]\nuse std::vec::Vec;\n").unwrap();
    let with_std = why(&["build", "refused"]);
    assert!(with_std.contains("`std`"), "{with_std}");
}

#[test]
fn what_is_no_image_is_refused_before_anything_runs() {
    let lab = Lab::new("tiny-image", "");
    let file = |more: &str| {
        format!(
            "[port.p]\nkind = \"ring\"\nsocket = \"p.sock\"\n[port.q]\nkind = \"ring\"\nsocket = \"q.sock\"\n\
             [patch.a]\nports = [\"p\", \"q\"]\n[function.web]\nimage = \"web.tiny\"\nport = \"p\"\n{more}"
        )
    };
    lab.write(&file(""));
    let why = || lab.fails(&["check", "lab.toml"]).1;
    assert!(why().contains("web.tiny: No such file or directory"), "{}", why());
    let write = |bytes: &[u8]| std::fs::write(lab.folder.join("web.tiny"), bytes).unwrap();
    write(b"#!/bin/sh\n");
    assert!(why().contains("web.tiny: it is no image of a program: it is no ELF file"), "{}", why());
    write(&std::fs::read(env!("CARGO_BIN_EXE_ringway")).unwrap()[..1 << 20]);
    assert!(why().contains("it is no program at fixed addresses"), "{}", why());
    std::fs::File::create(lab.folder.join("web.tiny")).unwrap().set_len((16 << 20) + 1).unwrap();
    assert!(why().contains("web.tiny: larger than 16777216 bytes; name a file that"), "{}", why());

    assert!(tiny(&lab).args(["new", "web"]).status().unwrap().success());
    let image = std::fs::read(build(&lab, &lab.folder.join("web"), "web")).unwrap();
    lab.ok(&["check", "lab.toml"]);
    let mut other = image.clone();
    other[18] = 183;
    write(&other);
    assert!(why().contains("it is for another machine (ARM64), not for x86-64"), "{}", why());
    write(&image[..image.len() / 2]);
    assert!(why().contains("web.tiny: it is damaged: "), "{}", why());
    // Memory of 200 MB that it does not fill.
    let mut large = image.clone();
    let phdr = (0..8).map(|at| 64 + 56 * at).rfind(|at| large[*at] == 1).unwrap();
    large[phdr + 40..phdr + 48].copy_from_slice(&(300_u64 << 20).to_le_bytes());
    write(&large);
    assert!(why().contains("set a larger `memory`"), "{}", why());
    write(&image);
    lab.write(&file("isolation = \"process\"\n"));
    assert!(why().contains("function.web has an `image`, which runs in a VM"), "{}", why());
    lab.write(&file(&format!("arguments = [\"{}\"]\n", "x".repeat(65_512))));
    lab.ok(&["check", "lab.toml"]);
    lab.write(&file(&format!("arguments = [\"{}\"]\n", "x".repeat(65_513))));
    assert!(
        why().contains("settings and parameters have 65537 bytes; a program has at most 65536"),
        "{}",
        why()
    );
}

/// What the HTTP servers in Rust and in C have in common.
fn serves_http(namespace: &str) {
    let curl = |words: &str| text(namespace, &format!("curl -sS --max-time 60 {words}"));
    let page = curl("--retry 20 --retry-connrefused --retry-all-errors --retry-delay 0 http://10.0.0.2/");
    assert_eq!(page, "hello\n");
    let statuses = |words: &str| curl(&format!("-o /dev/null -w '%{{http_code}} ' {words}"));
    assert_eq!(statuses("http://10.0.0.2/none"), "404 ");
    assert_eq!(statuses("-X POST -d x http://10.0.0.2/"), "405 ");
    assert!(curl("-I http://10.0.0.2/").starts_with("HTTP/1.1 200 OK\r\n"));
    // Several requests of one connection, and several connections at once.
    let status = curl("http://10.0.0.2/ http://10.0.0.2/ http://10.0.0.2/status");
    assert!(status.contains("requests "), "{status}");
    let sizes = curl("-Z -o /dev/null -w '%{size_download} ' 'http://10.0.0.2/bytes/[3000000-3000007]'");
    assert_eq!(sizes.split_whitespace().count(), 8, "{sizes}");
}

#[test]
fn a_program_serves_http_to_curl() {
    let (_keeper, namespace) = if can_run() { namespace() } else { return };
    let lab = Lab::new("tiny-http", &fabric("http", &namespace, "parameters = { GREETING = \"hello\" }\n"));
    example(&lab, "http");
    up(&lab, "http");
    serves_http(&namespace);
    let curl = |words: &str| text(&namespace, &format!("curl -sS --max-time 60 {words}"));
    assert!(curl("-H 'X-Own: yes' http://10.0.0.2/headers").contains("X-Own: yes"));
    let sums = text(&namespace, "curl -sS http://10.0.0.2/bytes/20000000 | tr -d x | wc -c");
    assert_eq!(sums.trim(), "0");
    let large = text(&namespace, "curl -sS http://10.0.0.2/bytes/20000000 | wc -c");
    assert_eq!(large.trim(), "20000000");
    let top = lab.json(&["top", "--count", "1"]);
    assert!(top.to_string().contains("\"http\""), "{top}");
}

#[test]
fn a_program_answers_dig() {
    let (_keeper, namespace) = if can_run() { namespace() } else { return };
    let many: String = (0..60).map(|at| format!(", \"many.lab=10.1.0.{at}\"")).collect();
    let more = format!(
        "arguments = [\"www.lab=10.0.0.7\", \"WWW.lab.=fd00::7\"{many}]\nparameters = {{ ZONE = \"lab\" }}\n"
    );
    let lab = Lab::new("tiny-dns", &fabric("dns", &namespace, &more));
    example(&lab, "dns");
    up(&lab, "dns");
    let dig = |words: &str| text(&namespace, &format!("dig @10.0.0.2 +timeout=2 +tries=10 {words}"));
    assert_eq!(dig("+short www.lab"), "10.0.0.7\n");
    assert_eq!(dig("+short www.LAB AAAA"), "fd00::7\n");
    assert_eq!(dig("+short +tcp www.lab"), "10.0.0.7\n");
    assert!(dig("none.lab").contains("status: NXDOMAIN"));
    assert!(dig("other.example").contains("status: REFUSED"));
    assert!(dig("www.lab MX").contains("status: NOERROR"));
    // An answer that no datagram has is asked for by TCP.
    assert_eq!(dig("+short +noedns many.lab").lines().count(), 60);
    assert!(
        dig("+noedns +ignore many.lab").contains("flags: qr aa tc"),
        "{}",
        dig("+noedns +ignore many.lab")
    );
    let malformed = "printf 'xxx' > /dev/udp/10.0.0.2/53; printf '%012d' 0 > /dev/udp/10.0.0.2/53";
    text(&namespace, &format!("bash -c \"{malformed}\""));
    assert_eq!(dig("+short www.lab"), "10.0.0.7\n");
}

#[test]
fn iperf3_measures_a_program_in_both_directions() {
    let (_keeper, namespace) = if can_run() { namespace() } else { return };
    let lab = Lab::new("tiny-iperf3", &fabric("iperf3", &namespace, ""));
    example(&lab, "iperf3");
    up(&lab, "iperf3");
    let measure = |words: &str| {
        let json = text(&namespace, &format!("iperf3 -c 10.0.0.2 --connect-timeout 20000 -J {words}"));
        let all: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(all["error"], Value::Null, "{words}: {}", lab.log());
        all["end"].clone()
    };
    for (words, streams) in [("-t 1", 1), ("-t 1 -R", 1), ("-n 20M -P 4", 4), ("-n 20M -P 4 -R", 4)] {
        let end = measure(words);
        assert_eq!(end["streams"].as_array().unwrap().len(), streams, "{words}: {end}");
        let bytes = |side: &str| end[side]["bytes"].as_f64().unwrap();
        let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
        assert!(sent > 1e6 && received > 1e6, "{words}: {end}");
        println!("{words}: {} Mbit/s", end["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6);
    }
    // What it can't do, it says.
    let refused = crate::lab::net::shell(&namespace, "iperf3 -c 10.0.0.2 -u -t 1").output().unwrap();
    assert!(!refused.status.success());
    let last = measure("-n 2M");
    assert!(last["sum_received"]["bytes"].as_f64().unwrap() > 1e6, "{last}");
}

/// A module with the functions `square`, which logs its number, and `spin`, which does not end.
const MODULE: &[&[u8]] = &[
    b"\0asm\x01\0\0\0",
    // Types: (i64), (i64) -> i64, ().
    b"\x01\x0d\x03\x60\x01\x7e\0\x60\x01\x7e\x01\x7e\x60\0\0",
    b"\x02\x0c\x01\x04host\x03log\0\0",
    b"\x03\x03\x02\x01\x02",
    b"\x07\x11\x02\x06square\0\x01\x04spin\0\x02",
    // local.get 0, call 0, local.get 0 twice, i64.mul; loop, br 0.
    b"\x0a\x15\x02\x0b\0\x20\0\x10\0\x20\0\x20\0\x7e\x0b\x07\0\x03\x40\x0c\0\x0b\x0b",
];

#[test]
fn a_program_hosts_webassembly() {
    let (_keeper, namespace) = if can_run() { namespace() } else { return };
    let lab = Lab::new("tiny-script", &fabric("script", &namespace, ""));
    example(&lab, "script");
    up(&lab, "script");
    let folder = lab.folder.display().to_string();
    std::fs::write(lab.folder.join("good.wasm"), MODULE.concat()).unwrap();
    std::fs::write(lab.folder.join("wrong.wasm"), &MODULE.concat()[..40]).unwrap();
    let curl = |words: &str| {
        let retry = "--retry 20 --retry-connrefused --retry-all-errors --retry-delay 0";
        text(&namespace, &format!("cd {folder}; curl -sS --max-time 60 {retry} {words}"))
    };
    assert_eq!(curl("http://10.0.0.2/square/2"), "there is no module\n");
    let put = |file: &str| curl(&format!("-X PUT --data-binary @{file} http://10.0.0.2/"));
    assert_eq!(put("good.wasm"), "2 exports\n");
    assert_eq!(curl("http://10.0.0.2/square/12"), "144\n");
    // The line may come later than the answer.
    until("the module's line is in the log", || lab.log().contains("the module: 12"));
    assert_eq!(curl("http://10.0.0.2/square/x"), "square takes [I64]\n");
    assert_eq!(curl("http://10.0.0.2/square"), "square takes 1 numbers\n");
    assert!(curl("http://10.0.0.2/spin").contains("fuel"), "it ends");
    assert_ne!(put("wrong.wasm"), "2 exports\n");
    assert_eq!(curl("http://10.0.0.2/square/4"), "16\n", "the old one stays");
}

#[test]
fn programs_send_frames_to_each_other() {
    if !isolations().contains(&"vm") {
        return;
    }
    let function = |name: &str, arguments: &str| {
        format!(
            "[function.{name}]\nimage = \"pktgen.tiny\"\nport = \"{name}\"\nmemory = \"32MB\"\n\
             arguments = [{arguments}]\n"
        )
    };
    let file = format!(
        "[port.from]\nkind = \"ring\"\nsocket = \"a.sock\"\n[port.to]\nkind = \"ring\"\nsocket = \"b.sock\"\n\
         [patch.a]\nports = [\"from\", \"to\"]\n{}{}",
        function("to", "\"receive\""),
        function("from", "\"send\", \"count=100000\", \"size=100\"")
    );
    let lab = Lab::new("tiny-pktgen", &file);
    example(&lab, "pktgen");
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("all are sent", || lab.log().contains("sent 100000 frames in "));
    until("some are received", || lab.log().contains("numbered frames in all"));
    lab.ok(&["down"]);
    lab.write(&file.replace("\"count=100000\"", "\"count=x\""));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it says why", || {
        function_of(&lab, "from")["reason"].as_str().unwrap().contains("arguments: \"count=x\" is none")
    });
}

/// Whether programs in C can be built here; says so if not.
fn has_klibc() -> bool {
    let has = Path::new("/usr/lib/klibc/lib/libc.a").is_file();
    if !has {
        eprintln!("not run: there is no klibc; the package libklibc-dev has it");
    }
    has
}

/// A program that does as a datagram says, and answers with what came of it.
const FAILING_C: &str = r#"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int deep(volatile char *above)
{
	volatile char here[4096];

	here[0] = 1;
	return deep(here) + (above ? above[0] : 0);
}

/* Megabytes that can be had, a part of each of which is written to, and of which all are given back. */
static int eat(void)
{
	static char *all[4096];
	int count = 0, at;

	while (count < 4096 && (all[count] = malloc(1 << 20)))
		memset(all[count++], 7, 5000);
	for (at = 0; at < count; at++)
		free(all[at]);
	return count;
}

int main(int argc, char **argv)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(7) }, from;
	char bytes[2048];
	int file = socket(AF_INET, SOCK_DGRAM, 0);

	assert(!bind(file, (struct sockaddr *)&any, sizeof any));
	printf("%d words, the last one %s, greeting %s\n", argc, argv[argc - 1], getenv("GREETING"));
	for (;;) {
		socklen_t len = sizeof from;
		ssize_t count = recvfrom(file, bytes, sizeof bytes - 1, 0, (struct sockaddr *)&from, &len);

		bytes[count] = 0;
		if (!strcmp(bytes, "exit"))
			return 3;
		if (!strcmp(bytes, "assert"))
			assert(argc == 99);
		if (!strcmp(bytes, "fault"))
			*(volatile char *)0xffff800000000000UL = 1;
		if (!strcmp(bytes, "deep"))
			bytes[0] = deep(0);
		if (!strcmp(bytes, "eat"))
			snprintf(bytes, sizeof bytes, "%d %d", eat(), eat());
		if (strstr(bytes, "fork")) {
			int child = bytes[0] == 'v' ? vfork() : fork();

			snprintf(bytes, sizeof bytes, "%d %s", child, errno == ENOSYS ? "ENOSYS" : "?");
		}
		sendto(file, bytes, strlen(bytes), 0, (struct sockaddr *)&from, len);
	}
}
"#;

#[test]
fn a_new_program_in_c_runs_as_a_function_does() {
    let (_keeper, namespace) = if can_run() && has_klibc() { namespace() } else { return };
    let more = "arguments = [\"one\", \"two\"]\nparameters = { GREETING = \"hello\" }\n";
    let lab = Lab::new("tiny-c-life", &fabric("c", &namespace, more));
    assert!(tiny(&lab).args(["new", "--c", "new-c"]).status().unwrap().success());
    assert!(fails(tiny(&lab).args(["new", "--c", "new-c"])).contains("new-c/main.c: it exists already"));
    build(&lab, &lab.folder.join("new-c"), "c");
    up(&lab, "c");
    let mut peer = Script::start(&namespace, &lab.folder, DATAGRAMS, &[]);
    until("it answers", || peer.ask("hello") == "hello");
    until("its line is told", || lab.log().contains("echo on UDP port 7"));
    lab.ok(&["down"]);

    std::fs::write(lab.folder.join("new-c/main.c"), FAILING_C).unwrap();
    build(&lab, &lab.folder.join("new-c"), "c");
    up(&lab, "c");
    until("it answers", || peer.ask("hello") == "hello");
    until("its words are told", || lab.log().contains("3 words, the last one two, greeting hello"));
    for call in ["fork", "vfork"] {
        assert_eq!(peer.ask(call), "-1 ENOSYS");
    }
    until("it is said", || lab.log().contains("the system call with number 57 does not exist here"));
    let eaten = peer.ask("eat");
    let counts: Vec<u32> = eaten.split(' ').map(|count| count.parse().unwrap()).collect();
    assert!((20..24).contains(&counts[0]) && counts[0] == counts[1], "of 64 MB: {eaten}");
    for (told, reason) in [
        ("exit", "exit status 3"),
        ("assert", "signal 6"),
        ("fault", "triple fault"),
        ("deep", "triple fault"),
    ] {
        let restarts = function_of(&lab, "c")["restarts"].as_u64().unwrap();
        until("it is gone", || peer.ask(told) == "none");
        until("it is started again", || {
            let own = function_of(&lab, "c");
            own["restarts"].as_u64().unwrap() > restarts && own["state"] == "running"
        });
        until("it answers", || peer.ask("hello") == "hello");
        until("it is told why", || lab.log().contains(reason));
    }
}

#[test]
fn a_program_in_c_serves_http_to_curl() {
    let (_keeper, namespace) = if can_run() && has_klibc() { namespace6() } else { return };
    let file = fabric("c-http", &namespace, "parameters = { GREETING = \"hello\" }\n");
    let both = "addresses = [\"10.0.0.2/24\", \"fd00::2/64\"]";
    let lab = Lab::new("tiny-c-http", &file.replace("address = \"10.0.0.2/24\"", both));
    example(&lab, "c-http");
    up(&lab, "c-http");
    serves_http(&namespace);
    let curl = |words: &str| text(&namespace, &format!("curl -sS --max-time 60 {words}"));
    let large = text(&namespace, "curl -sS http://10.0.0.2/bytes/20000000 | tr -d x | wc -c");
    assert_eq!(large.trim(), "0");
    let large =
        text(&namespace, "curl -sS -w '%{stderr}%{speed_download}' http://10.0.0.2/bytes/200000000 | wc -c");
    assert_eq!(large.trim(), "200000000");
    text(&namespace, "ip -6 address add fd00::1/64 dev t nodad");
    until("IPv6 works", || curl("'http://[fd00::2]/' || true") == "hello\n");
    // Datagrams, of both families.
    for to in ["10.0.0.2", "fd00::2"] {
        let ask = format!("exec 3<>/dev/udp/{to}/80; echo >&3; timeout 5 head -c 9 <&3");
        assert_eq!(text(&namespace, &format!("bash -c '{ask}'")), "requests ");
    }
}

#[test]
fn what_can_not_be_built_in_c_is_refused_with_a_remedy() {
    if !has_klibc() {
        return;
    }
    let lab = Lab::new("tiny-c-build", "");
    std::fs::create_dir_all(lab.folder.join("bad/src")).unwrap();
    std::fs::write(lab.folder.join("bad/src/main.c"), "int main(void) { return missing(); }\n").unwrap();
    let why = |words: &[&str]| fails(tiny(&lab).args(words));
    assert!(
        why(&["build", "bad", "--library", "bad"]).contains("it is not the folder of ringway-tiny-program")
    );
    assert!(why(&["build", "bad", "--bin", "x"]).contains("bad: it has one program, in C; leave --bin out"));
    let without = fails(tiny(&lab).args(["build", "bad"]).env("CC", "no-such-compiler"));
    assert!(without.contains("there is no `no-such-compiler` here; install a C compiler"), "{without}");
    let failed = why(&["build", "bad"]);
    assert!(
        failed.contains("missing") && failed.contains("bad: `cc` failed; its messages are above"),
        "{failed}"
    );
}

/// The fenced blocks of the page in `language`.
fn blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/tiny-programs.md")).unwrap();
    let fence = format!("\n```{language}\n");
    let begun = page.split(&fence).skip(1);
    begun.map(|rest| rest.split_once("\n```").unwrap().0.to_string()).collect()
}

#[test]
fn the_page_s_programs_can_be_built_and_its_fabric_files_are_valid() {
    let lab = Lab::new("tiny-docs", "");
    let shown = blocks("toml");
    let manifest = shown.iter().find(|text| text.starts_with("[package]")).unwrap();
    let library = root().join("crates/machines/tiny-program").canonicalize().unwrap();
    let manifest = manifest.replace("../../crates/machines/tiny-program", library.to_str().unwrap());
    std::fs::create_dir_all(lab.folder.join("web/src")).unwrap();
    std::fs::write(lab.folder.join("web/Cargo.toml"), format!("{manifest}\n[workspace]\n")).unwrap();
    let programs = blocks("rust");
    assert!(!programs.is_empty());
    for program in programs {
        std::fs::write(lab.folder.join("web/src/main.rs"), program).unwrap();
        let image = build(&lab, &lab.folder.join("web"), "web");
        std::fs::rename(image, lab.folder.join("web/web.tiny")).unwrap();
    }
    if has_klibc() {
        std::fs::create_dir_all(lab.folder.join("c")).unwrap();
        let programs = blocks("c");
        assert!(!programs.is_empty());
        for program in programs {
            std::fs::write(lab.folder.join("c/main.c"), program).unwrap();
            build(&lab, &lab.folder.join("c"), "c");
        }
    }
    for file in shown.iter().filter(|text| !text.starts_with("[package]")) {
        std::fs::write(lab.folder.join("shown.toml"), file).unwrap();
        lab.ok(&["check", "shown.toml"]);
    }
}
