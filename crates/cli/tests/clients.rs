//! The clients that are written from the OpenAPI document, against a running fabric.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lab;

use lab::Lab;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const FILE: &str = "
[switch.main]
[port.a]
kind = \"ring\"
socket = \"a.sock\"
switch = \"main\"
";

/// A program that uses most shapes of operations: names in the path, bodies, queries, texts, errors.
const PROGRAM: &str = r#"
import assert from "node:assert/strict";
const { Api, ControlSocket, FabricError } = await import(process.argv[2]);
const fabric = new Api(new ControlSocket(process.argv[3]));
assert.equal((await fabric.fabric()).name, "lab");
assert.deepEqual((await fabric.ports()).map((port) => port.name), ["a"]);
const configuration = "FromPort(a) -> EtherMirror -> c :: Counter -> ToPort(a)";
await fabric.createFunction({ name: "mirror", configuration, ports: ["a"] });
assert.equal((await fabric.functions())[0].state, "running");
assert.equal((await fabric.readHandler("mirror", "c.count")).value, "0");
await fabric.writeHandler("mirror", "c.reset", { value: "" });
const longer = configuration.replace("Counter", "Counter -> d :: Counter");
await fabric.updateFunction("mirror", { configuration: longer });
assert.equal((await fabric.readHandler("mirror", "d.count")).value, "0");
assert.equal((await fabric.functionGraph("mirror", { seconds: 0 })).elements.length, 5);
assert.ok((await fabric.fabricSvg({ seconds: 0 })).startsWith("<svg "));
assert.deepEqual(await fabric.decisions({ count: 3 }), []);
await assert.rejects(fabric.destroyFunction("no/such"), (error) => {
  assert.ok(error instanceof FabricError && error.status === 404, String(error));
  return error.message.includes("no/such");
});
await fabric.destroyFunction("mirror");
assert.deepEqual(await fabric.functions(), []);
"#;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_clients_have_every_operation() {
    let lab = Lab::new("clients", "");
    let mut writer = Command::new("python3");
    let writer = writer.arg(root().join("scripts/clients.py")).arg("--check").stdin(Stdio::piped());
    let mut writer = writer.stderr(Stdio::piped()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(lab.ok(&["openapi"]).as_bytes()).unwrap();
    let ended = writer.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn the_client_in_javascript_reaches_a_running_fabric() {
    let lab = Lab::new("javascript", FILE);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let program = lab.folder.join("program.mjs");
    std::fs::write(&program, PROGRAM).unwrap();
    let client = root().join("clients/typescript/index.js");
    let mut node = Command::new("node");
    let ran = node.arg(&program).arg(client).arg(lab.socket("api.sock")).output().unwrap();
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stderr), lab.log());
}
