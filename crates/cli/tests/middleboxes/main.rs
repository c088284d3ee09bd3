//! The example functions on real traffic: programs of the host in network namespaces, with the kernel's TCP/IP.
#![allow(clippy::unwrap_used)]

mod cgnat;
#[path = "../lab/mod.rs"]
mod lab;
mod lb;
mod router;

use lab::Lab;
use std::path::{Path, PathBuf};

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
