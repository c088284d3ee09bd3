//! The example functions on real traffic: programs of the host in network namespaces, with the kernel's TCP/IP.
#![allow(clippy::unwrap_used)]

mod cgnat;
mod firewall;
mod ids;
#[path = "../lab/mod.rs"]
mod lab;
mod lb;
mod router;

use lab::Lab;
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
