//! The example functions on real traffic: programs of the host in network namespaces, with the kernel's TCP/IP.
#![allow(clippy::unwrap_used)]

mod bras;
mod cgnat;
mod firewall;
mod ids;
#[path = "../lab/mod.rs"]
mod lab;
mod lb;
mod nginx;
mod router;

use lab::net::tap;
use lab::{Lab, until};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An example function's configuration.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/functions").join(name)
}

/// The sections of an example function and its ports `inside` and `outside`.
fn function(name: &str, isolation: &str, inside: &str, outside: &str) -> String {
    let port =
        |name: &str, more: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n{more}");
    format!(
        "{}{}[function.{name}]\nconfig = \"{}\"\nports = [\"inside\", \"outside\"]\n\
         isolation = \"{isolation}\"\n",
        port("inside", inside),
        port("outside", outside),
        example(&format!("{name}.click")).display()
    )
}

/// A fabric with an example function between the TAPs `client` and `server` of two namespaces.
fn fabric(name: &str, isolation: &str, namespaces: [&str; 2], addresses: [&str; 2]) -> Lab {
    let file = format!(
        "[patch.inner]\nports = [\"inside\", \"client\"]\n[patch.outer]\n\
         ports = [\"outside\", \"server\"]\n{}{}{}",
        function(name, isolation, "", ""),
        tap("client", namespaces[0], addresses[0]),
        tap("server", namespaces[1], addresses[1]),
    );
    let lab = Lab::new(&format!("{name}-{isolation}"), &file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let ports = ["client", "server", "inside", "outside"];
    until("the ports are up", || ports.iter().all(|port| lab.state(port) == "up"));
    lab
}

/// A handler's value.
fn read(lab: &Lab, function: &str, handler: &str) -> String {
    lab.ok(&["function", "read", function, handler]).trim_end().to_string()
}

/// Writes a handler by a file; what is wrong if it refuses.
fn write_file(lab: &Lab, function: &str, handler: &str, text: &str) -> Result<(), String> {
    let path = lab.folder.join("value");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["function", "write", function, handler, "-"]).env("RINGWAY_RUN", lab.folder.join("run"));
    let output = command.stdin(std::fs::File::open(path).unwrap()).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
