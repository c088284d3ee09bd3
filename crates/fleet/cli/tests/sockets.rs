//! docs/stack.md: a program with sockets on a ring port, fetched from by curl on the host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::{Lab, Running};
use std::process::{Command, Stdio};

/// A network namespace, kept by a process that sleeps.
fn namespace() -> Running {
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    let mut unshare = Command::new("unshare");
    let keeper = unshare.args(["--net", "--", "sleep", "infinity"]).stdin(Stdio::null()).spawn().unwrap();
    let path = format!("/proc/{}/ns/net", keeper.id());
    let keeper = Running(keeper);
    crate::lab::until("the namespace exists", || {
        std::fs::read_link(&path).is_ok_and(|theirs| theirs != ours)
    });
    keeper
}

#[test]
fn curl_on_the_host_fetches_from_a_program_on_a_ring_port() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: creating a TAP needs root");
        return;
    }
    let page = include_str!("../../../../docs/stack.md");
    let (_, file) = page.split_once("`web.toml` is").unwrap();
    let (_, file) = file.split_once("```toml\n").unwrap();
    let (file, _) = file.split_once("```").unwrap();
    let keeper = namespace();
    let namespace = format!("/proc/{}/ns/net", keeper.0.id());
    let file = file.replace("[fabric]\nname = \"web\"\n", "");
    let lab = Lab::new(
        "sockets",
        &file.replace("kind = \"tap\"", &format!("kind = \"tap\"\nnamespace = \"{namespace}\"")),
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut server = Command::new(crate::lab::example("ringway-sockets", "http"));
    let server = server.arg(lab.socket("web.sock")).arg("10.0.0.2/24").spawn().unwrap();
    let _server = Running(server);
    crate::lab::until("the server is there", || lab.state("web") == "up");
    let mut curl = Command::new("nsenter");
    curl.arg(format!("--net={namespace}")).args(["--", "curl", "--silent", "--show-error", "--noproxy", "*"]);
    let urls = (0..20).map(|number| format!("http://10.0.0.2/page/{number}"));
    // The first segment may come before the program listens.
    curl.args(["--retry", "5", "--retry-connrefused", "--max-time", "60"]).args(urls);
    let output = curl.output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 20, "{text}");
    for (number, line) in lines.iter().enumerate() {
        assert!(
            line.starts_with("10.0.0.1:") && line.ends_with(&format!(" asked for /page/{number}")),
            "{line}"
        );
    }
    lab.ok(&["down"]);
}
