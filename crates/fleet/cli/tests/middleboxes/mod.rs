//! The example functions on real traffic: programs of the host in network namespaces, with the kernel's TCP/IP.
#![allow(clippy::unwrap_used)]

mod bras;
mod cgnat;
mod dns;
mod firewall;
mod flowmon;
mod ids;
mod knocker;
mod lb;
mod nat;
mod nginx;
mod router;
mod shaper;
mod wire;

use crate::lab::net::{file_server, shell, tap, within};
use crate::lab::{Lab, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An example function's configuration.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/functions").join(name)
}

/// The sections of an example function and its ports, rings with these further lines.
fn sections(name: &str, isolation: &str, ports: &[(&str, &str)]) -> String {
    let ring = |(port, more): &(&str, &str)| {
        format!("[port.{port}]\nkind = \"ring\"\nsocket = \"{port}.sock\"\n{more}")
    };
    let names: Vec<String> = ports.iter().map(|(port, _)| format!("\"{port}\"")).collect();
    format!(
        "{}[function.{name}]\nconfig = \"{}\"\nports = [{}]\nisolation = \"{isolation}\"\n",
        ports.iter().map(ring).collect::<String>(),
        example(&format!("{name}.click")).display(),
        names.join(", ")
    )
}

/// The sections of an example function and its ports `inside` and `outside`.
fn function(name: &str, isolation: &str, inside: &str, outside: &str) -> String {
    sections(name, isolation, &[("inside", inside), ("outside", outside)])
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
    started(name, isolation, &file, &["client", "server", "inside", "outside"])
}

/// A fabric with an example function that has only the port `inside`, and the TAP `client` of a namespace.
fn alone(name: &str, isolation: &str, namespace: &str, address: &str) -> Lab {
    let file = format!(
        "[patch.inner]\nports = [\"inside\", \"client\"]\n{}{}",
        sections(name, isolation, &[("inside", "")]),
        tap("client", namespace, address),
    );
    started(name, isolation, &file, &["client", "inside"])
}

fn started(name: &str, isolation: &str, file: &str, ports: &[&str]) -> Lab {
    let lab = Lab::new(&format!("{name}-{isolation}"), file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the ports are up", || ports.iter().all(|port| lab.state(port) == "up"));
    lab
}

/// What a script prints, whatever its exit status.
fn says(namespace: &str, script: &str) -> String {
    let output = shell(namespace, script).stderr(Stdio::piped()).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Fetches a page of so many bytes from one namespace's address to the other.
fn fetches(lab: &Lab, [client, server]: [&str; 2], address: &str, url: &str, bytes: u32) {
    let page: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    std::fs::write(lab.folder.join("page"), &page).unwrap();
    let _server = file_server(server, &lab.folder, address);
    let fetched = within(client, &format!("curl --silent --noproxy '*' --max-time 60 '{url}/page'"));
    assert!(fetched == page, "{} bytes", fetched.len());
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
