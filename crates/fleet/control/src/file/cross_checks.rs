//! Checks between tables of the file, and against the host.

use super::desired::Fabric;
use super::{Host, Patch, chain, instances, link, policy, unique};
use crate::kinds::{self, GuestSide, HostSide, KINDS, ring};
use crate::lookups;
use crate::run_dir::SWITCHES;
use ringway_linux_guests::Attachment;
use ringway_spec::file::{Diagnostics, either, nearest, units};
use ringway_spec::names::SOCKET_PATH;
use ringway_spec::{Function, GuestKind, Port, To, Worker};
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

/// Parts of the file that are not yet joined to the fabric.
pub struct Partial {
    /// Patches: path in the file, and ports.
    pub patches: Vec<Patch>,
    /// Links.
    pub links: Vec<link::Link>,
    /// Chains.
    pub chains: Vec<chain::Described>,
    /// Worker of each port: path of the entry in the file, and the worker's name.
    pub assigned: BTreeMap<String, (String, String)>,
}

/// Joins patches and workers to their ports, and checks every reference.
pub fn check(fabric: &mut Fabric, partial: Partial, host: &Host, diagnostics: &Diagnostics) {
    let own = partial.links.iter().filter(|link| !link.is_of_port);
    let of_links = own.map(|link| link.patch.clone());
    let of_chains = partial.chains.iter().map(|chain| chain.patch.clone());
    let joined: Vec<Patch> = partial.patches.into_iter().chain(of_links).chain(of_chains).collect();
    let chains = chain::resolve(fabric, partial.chains, diagnostics);
    patches(fabric, &joined, diagnostics);
    joins(fabric, &joined, host, diagnostics);
    link::check(fabric, &partial.links, diagnostics);
    link::join(fabric, partial.links);
    instances::check(&fabric.functions, diagnostics);
    instances::multiply(fabric);
    chain::join(fabric, chains, &partial.assigned);
    workers(fabric, &partial.assigned, host, diagnostics);
    named_by_lookups(fabric, diagnostics);
    sockets(fabric, host, diagnostics);
    switch_sockets(fabric, host, diagnostics);
    unique::check(fabric, host, diagnostics);
    guest_ports(fabric, host, diagnostics);
    owners(fabric, host, diagnostics);
    first_frames(fabric, diagnostics);
    users(fabric, diagnostics);
    hosts(fabric, host, diagnostics);
    policy::check(fabric, diagnostics);
}

/// Checks a function that would be added to a running fabric, whose last function it is.
pub fn added_function(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    if let Some(function) = fabric.functions.last().filter(|function| function.ports.is_empty()) {
        let at = diagnostics.of(&format!("function.{}.ports", function.name));
        diagnostics.error(&at, "a function has 1 to 255 ports, not 0", "name ring ports");
    }
    instances::check(fabric.functions.last(), diagnostics);
    owners(fabric, host, diagnostics);
    first_frames(fabric, diagnostics);
}

/// Checks a switch that would be added to a running fabric.
pub fn added_switch(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    named_by_lookups(fabric, diagnostics);
    switch_sockets(fabric, host, diagnostics);
}

/// Checks a port that would be added to a running fabric, whose last port it is, and adds its links.
pub fn added_port(fabric: &mut Fabric, links: Vec<link::Link>, host: &Host, diagnostics: &Diagnostics) {
    if fabric.ports.last().is_some_and(|port| port.to.is_some()) {
        joins(fabric, &[], host, diagnostics);
    }
    link::check(fabric, &links, diagnostics);
    sockets(fabric, host, diagnostics);
    unique::check(fabric, host, diagnostics);
    hosts(fabric, host, diagnostics);
    link::join(fabric, links);
    policy::check(fabric, diagnostics);
}

/// Checks that hosts of ports exist, and that each host has at least one.
fn hosts(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let side = |port: &Port| kinds::find(port.kind.name(), host.kinds)?.host_side(port);
    let mut used = Vec::new();
    for port in &fabric.ports {
        let Some(HostSide { host, .. }) = side(port) else { continue };
        if fabric.host(&host).is_none() {
            let place = format!("port.{}.host", port.name);
            unknown(&place, "host", &host, fabric.hosts.iter().map(|host| &*host.name), diagnostics);
        }
        used.push(host);
    }
    for host in fabric.hosts.iter().filter(|host| !used.contains(&host.name)) {
        let at = diagnostics.of(&format!("host.{}", host.name));
        diagnostics.warn(
            &at,
            format!("host {} has no interface: add `switch`, or ports with this `host`", host.name),
        );
    }
}

/// Reports that there is no `what` called `name`.
pub(super) fn unknown<'n>(
    place: &str,
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'n str>,
    diagnostics: &Diagnostics,
) {
    let known: Vec<&str> = known.collect();
    let fix = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => format!("add [{what}.{name}]"),
        None if known.len() <= 8 => format!("there is {}", either(known)),
        None => format!("add [{what}.{name}], or use one of the {} that there are", known.len()),
    };
    diagnostics.error(&diagnostics.of(place), format!("there is no {what} \"{name}\""), fix);
}

fn known_port(fabric: &Fabric, place: &str, name: &str, diagnostics: &Diagnostics) -> bool {
    let known = fabric.port(name).is_some();
    if !known {
        unknown(place, "port", name, fabric.ports.iter().map(|port| &*port.name), diagnostics);
    }
    known
}

fn patches(fabric: &mut Fabric, patches: &[Patch], diagnostics: &Diagnostics) {
    let mut patched: HashMap<&str, &str> = HashMap::new();
    for (path, ports) in patches {
        for (index, name) in ports.iter().enumerate() {
            let place = format!("{path}.ports.{index}");
            if path.starts_with("link.") && link::is_switch(fabric, name) {
                if index > 0 && ports[0] == *name {
                    let what = format!("both ends of {path} are switch {name}");
                    diagnostics.error(
                        &diagnostics.of(&place),
                        what,
                        "it joins two different ports or switches",
                    );
                }
                continue;
            }
            if !known_port(fabric, &place, name, diagnostics) {
                continue;
            }
            if let Some(other) = patched.insert(name, path) {
                let fix = if other == path { "it joins two different ports" } else { "keep it on one" };
                diagnostics.error(&diagnostics.of(&place), format!("port {name} is on {other} already"), fix);
                continue;
            }
            let peer = ports.get(1 - index.min(1)).cloned().unwrap_or_default();
            let Some(port) = fabric.ports.iter_mut().find(|port| port.name == *name) else { continue };
            match &port.to {
                Some(To::Switch(switch)) => {
                    let what = format!("port {name} is on switch {switch} too");
                    diagnostics.error(&diagnostics.of(&place), what, "take it out, or delete its `switch`");
                }
                _ => port.to = Some(To::Patch(peer)),
            }
        }
    }
}

fn joins(fabric: &Fabric, patches: &[Patch], host: &Host, diagnostics: &Diagnostics) {
    for port in &fabric.ports {
        let place = format!("port.{}", port.name);
        let kind = kinds::find(port.kind.name(), host.kinds);
        let pipe = kind.is_some_and(|kind| !kind.is_in_data());
        let patched = patches.iter().any(|(_, ports)| ports.contains(&port.name));
        match &port.to {
            None if pipe || patched || port.policy.mirror.is_some() => {}
            None => {
                let own = |function: &&Function| function.chained && function.ports.contains(&port.name);
                let fix = match (fabric.functions.iter().find(own), fabric.switches.first()) {
                    (Some(function), _) => {
                        format!(
                            "function {}, in a chain, has ends of its own: delete the port",
                            function.name
                        )
                    }
                    (None, Some(switch)) => {
                        format!("add switch = \"{}\", a patch, a link or a chain", switch.name)
                    }
                    (None, None) => "add switch = \"...\", a patch, a link or a chain".into(),
                };
                diagnostics.error(
                    &diagnostics.of(&place),
                    format!("port {} is on no switch, patch, link or chain", port.name),
                    fix,
                );
            }
            Some(_) if pipe => {
                let fix = "its two programs have only each other; use two ring ports otherwise";
                diagnostics.error(&diagnostics.of(&place), format!("port {} is a pipe", port.name), fix);
            }
            Some(To::Switch(name)) if !fabric.switches.iter().any(|switch| switch.name == *name) => {
                let known = fabric.switches.iter().map(|switch| &*switch.name);
                let place = unique::of_port(&port.name, "switch", diagnostics);
                unknown(&place, "switch", name, known, diagnostics);
            }
            Some(_) => {}
        }
    }
}

fn workers(
    fabric: &mut Fabric,
    assigned: &BTreeMap<String, (String, String)>,
    host: &Host,
    diagnostics: &Diagnostics,
) {
    for (name, (place, worker)) in assigned {
        if !known_port(fabric, place, name, diagnostics) {
            continue;
        }
        if let Some(port) = fabric.ports.iter_mut().find(|port| port.name == *name) {
            port.worker = Some(worker.clone());
        }
    }
    let mut pinned: HashMap<usize, &str> = HashMap::new();
    for worker in &fabric.workers {
        node(worker, host, diagnostics);
        let Some(core) = worker.core else { continue };
        let at = diagnostics.of(&format!("worker.{}.core", worker.name));
        if !host.cores.contains(&core) {
            let list = match host.cores.as_slice() {
                [] => "leave `core` out".into(),
                [only] => format!("there is only core {only}"),
                [first, .., last] if last - first + 1 == host.cores.len() => format!("use {first} to {last}"),
                cores => format!(
                    "use {}",
                    either(cores.iter().map(usize::to_string).collect::<Vec<_>>().iter().map(|c| &**c))
                ),
            };
            diagnostics.error(&at, format!("there is no core {core} that we may run on"), list);
        } else if let Some(other) = pinned.insert(core, &worker.name) {
            diagnostics.error(
                &at,
                format!("worker {other} is on core {core} too"),
                "give each worker a core of its own",
            );
        }
    }
}

/// Checks that the node of a worker is there, has cores for it, and is that of its core.
fn node(worker: &Worker, host: &Host, diagnostics: &Diagnostics) {
    let Some(number) = worker.node else { return };
    let at = diagnostics.of(&format!("worker.{}.node", worker.name));
    // A host that shows no nodes is one, node 0.
    if host.nodes.is_empty() && number == 0 {
        return;
    }
    let Some(node) = host.nodes.iter().find(|node| node.number == number) else {
        let numbers: Vec<String> = host.nodes.iter().map(|node| node.number.to_string()).collect();
        let fix = match numbers.len() {
            0 | 1 => "leave `node` out".into(),
            _ => format!("use {}", either(numbers.iter().map(|number| &**number))),
        };
        diagnostics.error(&at, format!("this host has no node {number}"), fix);
        return;
    };
    let of_core = |core| host.nodes.iter().find(|node| node.cores.contains(&core));
    match worker.core.map(|core| (core, of_core(core))) {
        Some((core, Some(other))) if other.number != number => {
            let what = format!("core {core} is on node {}, not on node {number}", other.number);
            diagnostics.error(&at, what, "leave `node` out: it is that of the core");
        }
        None if !node.cores.iter().any(|core| host.cores.contains(core)) => {
            let what = format!("node {number} has no core that we may run on");
            diagnostics.error(&at, what, "use another node, or leave `node` out");
        }
        _ => {}
    }
}

fn named_by_lookups(fabric: &Fabric, diagnostics: &Diagnostics) {
    for switch in &fabric.switches {
        let path = format!("switch.{}", switch.name);
        for (place, name) in lookups::ports(&switch.lookup) {
            let place = format!("{path}.{place}");
            if !known_port(fabric, &place, &name, diagnostics) {
                continue;
            }
            let on = fabric.port(&name).and_then(|port| port.to.as_ref());
            if on != Some(&To::Switch(switch.name.clone())) {
                let end = format!("{name}/{name}");
                let fix = match fabric.port(&end).and_then(|port| port.to.as_ref()) {
                    Some(To::Switch(on)) if *on == switch.name => format!("its link is: write \"{end}\""),
                    _ => format!("add switch = \"{}\" to [port.{name}]", switch.name),
                };
                diagnostics.error(
                    &diagnostics.of(&place),
                    format!("port {name} is not on switch {}", switch.name),
                    fix,
                );
            }
        }
    }
}

/// Ringway's own files in a run directory.
const OURS: [&str; 10] = [
    "api.sock",
    "captures",
    "lock",
    "guests",
    "hosts",
    "functions",
    "programs",
    SWITCHES,
    "placement.redb",
    "placement.redb.log",
];

/// Checks that the paths of switches' sockets are not too long.
fn switch_sockets(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let Some(run) = host.run_of(fabric) else { return };
    for switch in fabric.openings.keys() {
        let path = run.join(SWITCHES).join(switch);
        let length = path.as_os_str().len();
        if length > SOCKET_PATH {
            let what = format!("the socket's path {} has {length} bytes", path.display());
            let fix = format!("a UNIX socket's path has {SOCKET_PATH} at most; use a shorter name");
            diagnostics.error(&diagnostics.of(&format!("switch.{switch}.open")), what, fix);
        }
    }
}

fn sockets(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let run = host.run_of(fabric);
    let mut taken: HashMap<PathBuf, &str> = HashMap::new();
    for port in &fabric.ports {
        let Some(socket) = port.socket.as_ref().filter(|socket| !socket.path.as_os_str().is_empty()) else {
            continue;
        };
        let at = diagnostics.of(&format!("port.{}.socket", port.name));
        let path: PathBuf = match &run {
            Some(run) => run.join(&socket.path),
            None => socket.path.clone(),
        };
        let length = path.as_os_str().len();
        // A path that is too long by itself was noted already.
        if length > SOCKET_PATH && socket.path.as_os_str().len() <= SOCKET_PATH {
            let what = format!("the socket's path {} has {length} bytes", path.display());
            diagnostics.error(&at, what, format!("a UNIX socket's path has {SOCKET_PATH} at most"));
        }
        // `a.sock` and `./a.sock` are the same path.
        let path: PathBuf = path.components().collect();
        let inside: PathBuf = socket.path.components().filter(|part| *part != Component::CurDir).collect();
        if OURS.iter().any(|name| inside == Path::new(name)) {
            let what = format!("{} in the run directory is Ringway's own", inside.display());
            diagnostics.error(&at, what, format!("call it {}.sock", port.name));
        }
        if let Some(other) = taken.insert(path, &port.name) {
            let what = format!("port {other} has the socket {} too", socket.path.display());
            diagnostics.error(&at, what, "give each a socket of its own");
        }
    }
}

/// The place of a guest's or function's port in the file; a single `port` has no index in its path.
fn place_of(what: &str, name: &str, index: usize, diagnostics: &Diagnostics) -> String {
    let place = format!("{what}.{name}.ports.{index}");
    if diagnostics.has(&place) { place } else { format!("{what}.{name}.port") }
}

/// Checks that each port of a guest may map all of the guest's memory, is its `nic`, and can be attached by what
/// runs it.
fn guest_ports(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let side = |port: &Port| kinds::find(port.kind.name(), host.kinds)?.guest_side(port);
    for guest in &fabric.guests {
        for (index, name) in guest.ports.iter().enumerate() {
            let Some(found) = fabric.port(name).and_then(side) else { continue };
            let GuestSide { interface, nic, memory } = found;
            if guest.memory > memory {
                let [has, may] = [guest.memory, memory].map(units::show_size);
                let what = format!("the guest has {has}, its port {name} may share {may}");
                let fix = format!("give the port `memory = \"{has}\"`");
                diagnostics.error(&diagnostics.of(&format!("guest.{}.memory", guest.name)), what, fix);
            }
            if guest.nic.as_ref().is_some_and(|wanted| wanted != nic) {
                let what = format!("port {name} is a card for the driver {nic}");
                let fix = "leave `nic` out, or change the port's `kind` or `model`";
                diagnostics.error(&diagnostics.of(&format!("guest.{}.nic", guest.name)), what, fix);
            }
            let at = || diagnostics.of(&place_of("guest", &guest.name, index, diagnostics));
            match (guest.kind, interface.attachment) {
                (GuestKind::Uml, Attachment::VhostUser { listen: true, .. }) => {
                    let fix = format!("leave `role` out of port {name}, or use kind = \"qemu\"");
                    diagnostics.error(&at(), "a User-Mode Linux guest can only connect", fix);
                }
                (GuestKind::Uml, Attachment::VfioUser { .. }) => {
                    let what = "a User-Mode Linux guest has no PCI cards";
                    diagnostics.error(&at(), what, "use a vhost-user port, or kind = \"qemu\"");
                }
                _ => {}
            }
        }
    }
}

/// A guest, a function or a program, which owns its ports.
struct Owner<'a> {
    /// `guest`, `function` or `program`.
    what: &'static str,
    name: &'a str,
    ports: &'a [String],
    /// The kinds that its ports can have.
    kinds: &'a [&'static str],
}

/// Checks that guests have distinct users other than root, and that the sockets of a guest's ports belong to its user.
fn users(fabric: &Fabric, diagnostics: &Diagnostics) {
    let mut used = HashMap::new();
    for guest in &fabric.guests {
        let name = &guest.name;
        for port in guest.ports.iter().filter_map(|port| fabric.port(port)) {
            let owner = port.socket.as_ref().and_then(|socket| socket.owner.as_ref());
            if owner.is_some() && owner != guest.user.as_ref() {
                let at = diagnostics.of(&format!("port.{}.owner", port.name));
                let fix = format!("leave `owner` out; `user` in [guest.{name}] determines it");
                diagnostics.error(&at, format!("the socket belongs to the user of guest {name}"), fix);
            }
        }
        let Some(user) = &guest.user else { continue };
        let at = diagnostics.of(&format!("guest.{name}.user"));
        if matches!(&**user, "root" | "0") {
            diagnostics.error(
                &at,
                "a guest can't run as root",
                "leave `user` out: it has one of its own then",
            );
        }
        if let Some(other) = used.insert(user, name) {
            let wrong = format!("guest {other} runs as {user} already");
            diagnostics.error(&at, wrong, "give each guest a user of its own, or leave `user` out");
        }
    }
}

/// Checks that the first frames for a function can wait where they come from.
fn first_frames(fabric: &Fabric, diagnostics: &Diagnostics) {
    for function in fabric.functions.iter().filter(|function| function.first_frame) {
        for port in function.fabric_ports().iter().filter_map(|port| fabric.port(port)) {
            if let Some(To::Switch(switch)) = &port.to {
                let what =
                    format!("the first frame can't start it: its port {} is on switch {switch}", port.name);
                let fix = "frames can wait for a function on a patch, on a link or in a chain";
                diagnostics.error(&diagnostics.of(&format!("function.{}.start", function.name)), what, fix);
            }
        }
    }
}

/// The ends of functions in chains, which only a running fabric has as ports, and their functions.
fn chain_ends(fabric: &Fabric) -> Vec<(String, &str)> {
    let chained = fabric.functions.iter().filter(|function| function.chained);
    chained
        .flat_map(|function| function.fabric_ports().into_iter().map(|end| (end, &*function.name)))
        .collect()
}

/// Checks that ports of guests, functions and programs have the right kind and a single owner.
fn owners(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let known = KINDS.iter().chain(host.kinds).filter(|kind| kind.serves_guests());
    let for_guests: Vec<&'static str> = known.map(|kind| kind.name()).collect();
    let guests = fabric.guests.iter().map(|guest| Owner {
        what: "guest",
        name: &guest.name,
        ports: &guest.ports,
        kinds: &for_guests,
    });
    // A function in a chain has no ports of the file.
    let functions = fabric.functions.iter().filter(|function| !function.chained).map(|function| Owner {
        what: "function",
        name: &function.name,
        ports: &function.ports,
        kinds: &["ring"],
    });
    let ends = chain_ends(fabric);
    let mut used: HashMap<_, _> = ends.iter().map(|(end, name)| (end, ("function", *name))).collect();
    let programs = fabric.programs.iter().map(|program| Owner {
        what: "program",
        name: &program.name,
        ports: std::slice::from_ref(&program.port),
        kinds: &["ring"],
    });
    // What a running fabric has was checked when it came.
    let (new, running): (Vec<Owner<'_>>, Vec<Owner<'_>>) = guests
        .chain(functions)
        .chain(programs)
        .partition(|owner| diagnostics.has(&format!("{}.{}", owner.what, owner.name)));
    used.extend(
        running.iter().flat_map(|owner| owner.ports.iter().map(|port| (port, (owner.what, owner.name)))),
    );
    for Owner { what, name, ports, kinds } in new {
        for (index, port) in ports.iter().enumerate() {
            let place = place_of(what, name, index, diagnostics);
            if !known_port(fabric, &place, port, diagnostics) {
                continue;
            }
            if let Some(found) = fabric.port(port).map(|port| &port.kind)
                && !kinds.contains(&found.name())
                // A port whose kind was refused has none, and its error already.
                && !found.name().is_empty()
            {
                let wrong = format!("port {port} is of kind {}", found.name());
                diagnostics.error(
                    &diagnostics.of(&place),
                    wrong,
                    format!("a {what}'s port is of kind {}", either(kinds.iter().copied())),
                );
            }
            if fabric.port(port).and_then(ring::opened).is_some() {
                let wrong = format!("port {port} is of the program that has opened it");
                diagnostics.error(&diagnostics.of(&place), wrong, format!("give the {what} another port"));
            }
            if let Some((other_kind, other)) = used.insert(port, (what, name)) {
                let wrong = format!("port {port} is {other_kind} {other}'s already");
                diagnostics.error(
                    &diagnostics.of(&place),
                    wrong,
                    format!("give each {what} a port of its own"),
                );
            }
        }
    }
    names_and_cores(fabric, host, diagnostics);
}

/// Checks that no guest has a function's name, and that the cores of functions exist.
fn names_and_cores(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    for function in &fabric.functions {
        if fabric.guest(&function.name).is_some() {
            let at = diagnostics.of(&format!("function.{}", function.name));
            diagnostics.error(
                &at,
                format!("there is a guest {} too", function.name),
                "give each its own name",
            );
        }
        if let Some(core) = function.core.filter(|core| !host.cores.contains(core)) {
            let at = diagnostics.of(&format!("function.{}.core", function.name));
            diagnostics.error(&at, format!("there is no core {core} that we may run on"), "leave `core` out");
        }
    }
}
