//! The clients that are written from the OpenAPI document, against a running fabric.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::Lab;
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
const graph = await fabric.functionGraph("mirror", { seconds: 0.01 });
assert.equal(graph.elements.length, 5);
assert.equal(graph.connections[0].packets, 0);
assert.ok((await fabric.functionSvg("mirror", { seconds: 0.01 })).startsWith("<svg "));
const becomes = async (state) => {
  while ((await fabric.functions())[0].state !== state) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};
await fabric.suspendFunction("mirror");
await becomes("suspended");
await fabric.resumeFunction("mirror");
await becomes("running");
await fabric.stopFunction("mirror");
await becomes("stopped");
await fabric.startFunction("mirror");
await becomes("running");
assert.equal((await fabric.readHandler("mirror", "c.count")).value, "0");
assert.ok((await fabric.fabricSvg({ seconds: 0 })).startsWith("<svg "));
assert.deepEqual(await fabric.decisions({ count: 3 }), []);
await assert.rejects(fabric.destroyFunction("no/such"), (error) => {
  assert.ok(error instanceof FabricError && error.status === 404, String(error));
  return error.message.includes("no/such");
});
await fabric.destroyFunction("mirror");
assert.deepEqual(await fabric.functions(), []);
"#;

/// A program in TypeScript. Wrong uses are errors that it expects: one that the compiler accepts fails, too.
const TYPED: &str = r#"
import { Api, ControlSocket, FabricError, type FunctionView, type NewFunction, type PortView } from "ringway";
declare const process: { argv: string[]; exitCode: number };

const socket: ControlSocket = new ControlSocket(process.argv[2], 60_000);
const fabric = new Api(socket);
const configuration: string = "FromPort(a) -> EtherMirror -> ToPort(a)";
const created: NewFunction = { name: "mirror", configuration, ports: ["a"] };
await fabric.createFunction(created);
const functions: FunctionView[] = await fabric.functions();
const names: string[] = functions.map((one) => one.name);
const restarts: number = functions[0].restarts;
const ports: PortView[] = await fabric.ports();
const graph = await fabric.functionGraph("mirror", { seconds: 0 });
const packets: number = graph.connections.reduce((sum, one) => sum + one.packets, 0);
const drawing: string = await fabric.functionSvg("mirror", { seconds: 0 });
await fabric.destroyFunction("mirror");
try {
  await fabric.startFunction("mirror");
} catch (error) {
  if (!(error instanceof FabricError) || error.status !== 404) throw error;
}
if (names[0] !== "mirror" || restarts + packets !== 0 || ports.length !== 1 || !drawing.startsWith("<svg ")) {
  process.exitCode = 1;
}

export function wrong(): void {
  // @ts-expect-error ports are missing
  fabric.createFunction({ name: "x", configuration: "" });
  // @ts-expect-error a port is a name
  fabric.createFunction({ name: "x", configuration: "", ports: [1] });
  // @ts-expect-error there is no such operation
  fabric.explode();
  // @ts-expect-error a handler has a value
  fabric.writeHandler("x", "c.reset", {});
  // @ts-expect-error the query has numbers
  fabric.functionGraph("x", { seconds: "1" });
  // @ts-expect-error functions are a promise
  fabric.functions().length;
  // @ts-expect-error the client is made of a socket
  new Api();
}
"#;

/// Strict, with the declarations themselves checked, and without those of Node.
const COMPILER: &str = r#"{ "compilerOptions": {
  "strict": true, "skipLibCheck": false, "noEmitOnError": true, "target": "es2022", "module": "node16",
  "moduleResolution": "node16", "lib": ["es2022"], "types": []
}, "files": ["typed.mts"] }"#;

/// A program in OCaml, which uses what that in JavaScript uses.
const OCAML: &str = r#"
open Ringway

let fabric = Control_socket.make Sys.argv.(1)

let rec becomes state =
  if List.exists (fun (one : Api.FunctionView.t) -> one.state = state) (Api.functions fabric) then ()
  else (
    Unix.sleepf 0.005;
    becomes state)

let refused status part work =
  match work () with
  | () -> failwith "not refused"
  | exception Control_socket.Fabric_error (found, why) ->
      let length = String.length part in
      let rec has at =
        at + length <= String.length why && (String.sub why at length = part || has (at + 1))
      in
      if not (found = status && has 0) then failwith (Printf.sprintf "%d: %s" found why)

let () =
  assert ((Api.fabric fabric).name = "lab");
  assert (List.map (fun (port : Api.PortView.t) -> port.name) (Api.ports fabric) = [ "a" ]);
  let configuration = "FromPort(a) -> EtherMirror -> c :: Counter -> ToPort(a)" in
  Api.create_function fabric (Api.NewFunction.make ~name:"mirror" ~configuration ~ports:[ "a" ] ());
  becomes "running";
  assert ((Api.read_handler fabric "mirror" "c.count").value = "0");
  Api.write_handler fabric "mirror" "c.reset" (Api.HandlerValue.make ~value:"" ());
  let graph = Api.function_graph ~seconds:0.01 fabric "mirror" in
  assert (List.length graph.elements = 4);
  assert (String.sub (Api.fabric_svg ~seconds:0. fabric) 0 5 = "<svg ");
  assert (Api.decisions ~count:3 fabric = []);
  Api.suspend_function fabric "mirror";
  becomes "suspended";
  Api.resume_function fabric "mirror";
  becomes "running";
  (* Null is a port's default, and what is left out stays as it is. *)
  let set change = Api.set_port fabric "a" change in
  let tag value = set (Api.PortChange.make ~tag:value ()) in
  assert ((set (Api.PortChange.make ~tag:(`Int 10) ~isolated:(`Bool true) ())).name = "a");
  assert ((tag `Null).name = "a");
  refused 404 "no/such" (fun () -> Api.destroy_function fabric "no/such");
  refused 422 "tag" (fun () -> ignore (tag (`Int 5000)));
  Api.destroy_function fabric "mirror";
  assert (Api.functions fabric = []);
  match Api.fabric (Control_socket.make "no.sock") with
  | _ -> failwith "answered"
  | exception Control_socket.Unanswered why -> assert (String.length why > 8)
"#;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
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

/// The compiler reads the client's declarations; what it makes of the program runs.
#[test]
fn a_program_in_typescript_is_compiled_and_reaches_a_running_fabric() {
    if Command::new("tsc").arg("--version").output().is_err() {
        eprintln!("not run: there is no tsc (node-typescript)");
        return;
    }
    let lab = Lab::new("typescript", FILE);
    for (name, text) in [("typed.mts", TYPED), ("tsconfig.json", COMPILER)] {
        std::fs::write(lab.folder.join(name), text).unwrap();
    }
    std::fs::create_dir(lab.folder.join("node_modules")).unwrap();
    let client = root().join("clients/typescript").canonicalize().unwrap();
    std::os::unix::fs::symlink(client, lab.folder.join("node_modules/ringway")).unwrap();
    let compiled = Command::new("tsc").current_dir(&lab.folder).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut node = Command::new("node");
    let ran = node.arg(lab.folder.join("typed.mjs")).arg(lab.socket("api.sock")).output().unwrap();
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stderr), lab.log());
}

#[test]
fn a_program_in_ocaml_is_compiled_and_reaches_a_running_fabric() {
    let has_dune = Command::new("dune").arg("--version").output().is_ok();
    if !has_dune || !PathBuf::from("/usr/lib/ocaml/yojson").exists() {
        eprintln!("not run: there is no dune (ocaml-dune) or no Yojson (libyojson-ocaml-dev)");
        return;
    }
    let lab = Lab::new("ocaml", FILE);
    let client = lab.folder.join("ringway");
    std::fs::create_dir(&client).unwrap();
    for file in std::fs::read_dir(root().join("clients/ocaml")).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), client.join(file.file_name())).unwrap();
    }
    for (name, text) in [
        ("program.ml", OCAML),
        ("dune", "(executable (name program) (libraries ringway unix))"),
        ("dune-project", "(lang dune 2.9)"),
    ] {
        std::fs::write(lab.folder.join(name), text).unwrap();
    }
    let mut dune = Command::new("dune");
    let compiled =
        dune.args(["build", "--root", ".", "./program.exe"]).current_dir(&lab.folder).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut program = Command::new(lab.folder.join("_build/default/program.exe"));
    let ran = program.arg(lab.socket("api.sock")).output().unwrap();
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stderr), lab.log());
}
