//! Checks that names and addresses are used once.

use super::Host;
use super::desired::Fabric;
use crate::kinds;
use ringway_spec::file::Diagnostics;
use ringway_spec::{MacAddress, Port, To, addresses};
use std::collections::HashMap;
use std::net::IpAddr;

/// Checks the addresses of everything in the fabric, and the names that its ports claim on the host.
pub fn check(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    macs(fabric, host, diagnostics);
    claims(fabric, host, diagnostics);
    on_a_network(fabric, host, diagnostics);
}

/// What has an address: `port NAME`, and the place of the address in the file.
type Owner = (String, String);

/// Ethernet addresses, which are unique in the whole fabric.
fn macs(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let of_ports = fabric.ports.iter().filter_map(|port| {
        let mac = kinds::find(port.kind.name(), host.kinds)?.mac(port)?;
        Some((mac, (format!("port {}", port.name), of_port(&port.name, "mac", diagnostics))))
    });
    let of_programs = fabric.functions.iter().filter_map(|function| {
        let (_, mac) = function.program.as_ref()?.settings.iter().find(|(name, _)| name == "mac")?;
        let mac: MacAddress = mac.parse().ok()?;
        Some((mac, (format!("function {}", function.name), format!("function.{}.mac", function.name))))
    });
    let mut used: HashMap<MacAddress, String> = HashMap::new();
    for (mac, (owner, place)) in of_ports.chain(of_programs) {
        twice(&mut used, mac, &mac.to_string(), (owner, place), diagnostics);
    }
}

/// Reports an address that another owner has.
fn twice<K: std::hash::Hash + Eq>(
    used: &mut HashMap<K, String>,
    key: K,
    address: &str,
    (owner, place): Owner,
    diagnostics: &Diagnostics,
) {
    match used.get(&key) {
        Some(other) => {
            let what = format!("{other} has the address {address} too");
            diagnostics.error(&diagnostics.of(&place), what, "give each its own");
        }
        None => drop(used.insert(key, owner)),
    }
}

fn claims(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let mut claims = HashMap::new();
    for port in &fabric.ports {
        let Some(kind) = kinds::find(port.kind.name(), host.kinds) else { continue };
        if let Some((key, name)) = kind.claims(port)
            && let Some(other) = claims.insert((key, name.clone()), &port.name)
        {
            let at = diagnostics.of(&of_port(&port.name, key, diagnostics));
            diagnostics.error(&at, format!("port {other} has the {key} {name} too"), "give each its own");
        }
    }
}

/// IP addresses, which are unique on a switch or a patch: other networks may have the same ones.
fn on_a_network(fabric: &Fabric, host: &Host, diagnostics: &Diagnostics) {
    let mut list: Vec<(&Port, IpAddr, Owner)> = Vec::new();
    for port in &fabric.ports {
        let kind = kinds::find(port.kind.name(), host.kinds);
        let nets = kind.map(|kind| kind.addresses(port)).unwrap_or_default();
        list.extend(nets.iter().enumerate().map(|(index, net)| {
            let list = of_port(&port.name, &format!("addresses.{index}"), diagnostics);
            let at = match diagnostics.has(&list) {
                true => list,
                false => of_port(&port.name, "address", diagnostics),
            };
            (port, net.addr(), (format!("port {}", port.name), at))
        }));
    }
    for guest in &fabric.guests {
        for (index, (name, net)) in guest.ports.iter().zip(&guest.addresses).enumerate() {
            let owner = (format!("guest {}", guest.name), place("guest", &guest.name, index, diagnostics));
            list.extend(fabric.port(name).map(|port| (port, net.addr(), owner)));
        }
    }
    for program in &fabric.programs {
        let Some(port) = fabric.port(&program.port) else { continue };
        list.extend(program.addresses.iter().enumerate().map(|(index, net)| {
            let at = place("program", &program.name, index, diagnostics);
            (port, net.addr(), (format!("program {}", program.name), at))
        }));
    }
    for function in &fabric.functions {
        let settings = function.program.iter().flat_map(|program| &program.settings);
        // The library of programs gives all addresses to the first port.
        let Some(port) = function.ports.first().and_then(|port| fabric.port(port)) else { continue };
        for (index, (_, text)) in settings.filter(|(name, _)| name == "address").enumerate() {
            let owner = (
                format!("function {}", function.name),
                place("function", &function.name, index, diagnostics),
            );
            list.extend(addresses::interface_address(text).ok().map(|net| (port, net.addr(), owner)));
        }
    }
    let (networks, mut used) = (Networks::of(fabric), HashMap::new());
    for (port, address, owner) in list {
        let network = networks.find(Node::Port(&port.name));
        twice(&mut used, (network, address), &address.to_string(), owner, diagnostics);
    }
}

/// What frames pass through.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node<'a> {
    Port(&'a str),
    Switch(&'a str),
}

/// Which ports and switches are joined, by patches and links too: each node's way to the one that stands for all of
/// its network. A function separates its ports.
struct Networks<'a>(HashMap<Node<'a>, Node<'a>>);

impl<'a> Networks<'a> {
    fn of(fabric: &'a Fabric) -> Networks<'a> {
        let mut networks = Networks(HashMap::new());
        for port in &fabric.ports {
            let to = port.to.as_ref().map(|to| match to {
                To::Switch(name) => Node::Switch(name),
                To::Patch(other) => Node::Port(other),
            });
            // The other direction of a link at a switch.
            let receiver = port.receiver.as_deref().map(Node::Port);
            for next in to.into_iter().chain(receiver) {
                let (one, other) = (networks.find(Node::Port(&port.name)), networks.find(next));
                if one != other {
                    networks.0.insert(one, other);
                }
            }
        }
        networks
    }

    fn find(&self, node: Node<'a>) -> Node<'a> {
        let mut found = node;
        while let Some(next) = self.0.get(&found) {
            found = *next;
        }
        found
    }
}

/// The place of a port's key in the file: `[host.NAME]` describes the port that is its first interface, and
/// `[program.NAME]` may describe one.
pub(super) fn of_port(name: &str, key: &str, diagnostics: &Diagnostics) -> String {
    let others = ["host", "program"].map(|table| format!("{table}.{name}.{key}"));
    let found = others.into_iter().find(|place| diagnostics.has(place));
    found.unwrap_or_else(|| format!("port.{name}.{key}"))
}

/// The place of an address in the file; a single `address` has no index.
fn place(what: &str, name: &str, index: usize, diagnostics: &Diagnostics) -> String {
    let list = format!("{what}.{name}.addresses.{index}");
    if diagnostics.has(&list) { list } else { format!("{what}.{name}.address") }
}
