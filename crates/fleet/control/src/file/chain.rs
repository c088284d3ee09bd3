//! `[chain.NAME]`.

use super::cross_checks::unknown;
use super::desired::Fabric;
use super::instances;
use super::{Patch, joined, named};
use crate::kinds::ring;
use crate::run_dir::FUNCTIONS;
use ringway_spec::file::Diagnostics;
use ringway_spec::{Chain, Function, Isolation, Socket, To, names};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use toml::de::DeTable;

/// A chain as the file describes it.
pub struct Described {
    /// Its path in the file, and its ports.
    pub patch: Patch,
    functions: Vec<String>,
}

/// Reads all chains.
pub fn chains(top: &DeTable<'_>, diagnostics: &Diagnostics) -> Vec<Described> {
    let mut list = Vec::new();
    for mut section in named(top, "chain", diagnostics) {
        let ports = joined(&mut section, "a chain");
        let example = "[\"fw\", \"nat\"]";
        let functions = section.strings("functions", example);
        match &functions {
            Some(list) if list.is_empty() => {
                let what = format!("{} has no functions", section.path);
                section.error("functions", what, "name at least one; a patch joins two ports without any");
            }
            None if !section.has("functions") => {
                section.missing("functions", &format!("add functions = {example}"));
            }
            Some(_) | None => {}
        }
        let path = section.path.clone();
        section.finish(|key| match key {
            "isolation" | "memory" => Some("it belongs to each function".into()),
            "worker" => Some("the worker of the chain's first port is its functions' too".into()),
            _ => None,
        });
        list.extend(
            ports.zip(functions).map(|(ports, functions)| Described { patch: (path, ports), functions }),
        );
    }
    list
}

/// Marks the functions of chains, and checks them. Returns the chains without errors.
pub fn resolve(fabric: &mut Fabric, chains: Vec<Described>, diagnostics: &Diagnostics) -> Vec<Chain> {
    let mut used: HashMap<String, String> = HashMap::new();
    let mut good = Vec::new();
    for Described { patch: (path, ports), functions } in chains {
        let mut wrong = functions.is_empty();
        for (index, name) in functions.iter().enumerate() {
            let place = format!("{path}.functions.{index}");
            let error = |what: String, fix: &str| diagnostics.error(&diagnostics.of(&place), what, fix);
            if fabric.function(name).is_none() {
                let known = fabric.functions.iter().map(|function| &*function.name);
                unknown(&place, "function", name, known, diagnostics);
                wrong = true;
                continue;
            }
            if let Some(other) = used.insert(name.clone(), path.clone()) {
                let what = format!("function {name} is in {other} already");
                error(what, "a function has two ends: add another function with the same configuration");
                wrong = true;
                continue;
            }
            for function in fabric.functions.iter_mut().filter(|function| function.name == *name) {
                function.chained = true;
                if let Err((what, fix)) = ends(function) {
                    error(what, &fix);
                    wrong = true;
                }
            }
        }
        let name = path.trim_start_matches("chain.").to_string();
        let ports = <[String; 2]>::try_from(ports);
        good.extend(ports.ok().filter(|_| !wrong).map(|ports| Chain { name, ports, functions }));
    }
    good
}

/// Checks the ends of a function in a chain.
fn ends(function: &Function) -> Result<(), (String, String)> {
    let name = &function.name;
    if function.program.is_some() {
        let fix = "a chain has functions with configurations; patch the program's ports instead";
        return Err((format!("function {name} is a program"), fix.into()));
    }
    let [first, second] = &function.ports[..] else {
        let count = function.ports.len();
        let what = format!("function {name} has {count} port{}", if count == 1 { "" } else { "s" });
        let fix = format!(
            "in a chain it has two: ports = [\"outside\", \"inside\"] in [function.{name}], the first \
             towards the chain's first port"
        );
        return Err((what, fix));
    };
    if first == second {
        let what = format!("both ends of function {name} are called {}", first.escape_debug());
        return Err((what, format!("give them two names in [function.{name}]")));
    }
    match [first, second].into_iter().find_map(|end| names::name(end).err()) {
        Some((what, fix)) => Err((format!("{what}, and so no end of function {name}"), fix)),
        None => Ok(()),
    }
}

/// Adds the ports of the chains' functions, and joins neighbours. They are on the worker of the chain's first port.
pub fn join(fabric: &mut Fabric, chains: Vec<Chain>, assigned: &BTreeMap<String, (String, String)>) {
    for chain in &chains {
        let assigned = chain.ports.iter().find_map(|port| assigned.get(port));
        let several = fabric.workers.len() > 1;
        let first = || fabric.workers.first().map(|worker| worker.name.clone()).filter(|_| several);
        let worker = assigned.map(|(_, worker)| worker.clone()).or_else(first);
        let functions: Vec<Function> =
            chain.functions.iter().filter_map(|name| fabric.function(name).cloned()).collect();
        let inner = functions.iter().flat_map(|function| function.fabric_ports());
        let [first, last] = chain.ports.clone();
        let row: Vec<String> = std::iter::once(first).chain(inner).chain(std::iter::once(last)).collect();
        let mut to: HashMap<&str, &str> = HashMap::new();
        for [one, other] in row.as_chunks().0 {
            to.extend([(&**one, &**other), (&**other, &**one)]);
        }
        let next = |port: &str| To::Patch(to.get(port).copied().unwrap_or_default().to_string());
        for port in fabric.ports.iter_mut().filter(|port| chain.ports.contains(&port.name)) {
            port.to = Some(next(&port.name));
        }
        let mut added = Vec::new();
        for function in &functions {
            let first = function.fabric_ports();
            for own in fabric.members(&function.name) {
                let worker = instances::worker(fabric, own, worker.as_ref());
                for (index, name) in own.fabric_ports().iter().enumerate() {
                    // A further instance sends where the first one does.
                    let port = ring::of_function(name, socket(own, index), next(&first[index]));
                    let instance = instances::end(own, index);
                    let hold = instance.is_some().then_some(instances::HOLD);
                    added.push(ringway_spec::Port { worker: worker.clone(), hold, instance, ..port });
                }
            }
        }
        fabric.ports.extend(added);
    }
    fabric.chains = chains;
}

/// The socket of a function's end, in the folder of functions' sockets; a function of the data process needs none.
fn socket(function: &Function, index: usize) -> Option<Socket> {
    let path = Path::new(FUNCTIONS).join(format!("{}.{index}.sock", function.file_name()));
    let socket = Socket { path, mode: Some(0o600), ..Socket::default() };
    (function.isolation != Isolation::Worker).then_some(socket)
}
