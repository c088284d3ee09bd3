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
        Some((mac, (format!("port {}", port.name), format!("port.{}.mac", port.name))))
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
            let at = diagnostics.of(&format!("port.{}.{key}", port.name));
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
            // `[host.NAME]` describes the port that is its first interface.
            let host = place("host", &port.name, index, diagnostics);
            let at = match diagnostics.has(&host) {
                true => host,
                false => place("port", &port.name, index, diagnostics),
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
    let mut used = HashMap::new();
    for (port, address, owner) in list {
        let network = match &port.to {
            Some(To::Switch(name)) => [name.clone(), String::new()],
            Some(To::Patch(other)) => {
                let mut ends = [port.name.clone(), other.clone()];
                ends.sort();
                ends
            }
            None => continue,
        };
        twice(&mut used, (network, address), &address.to_string(), owner, diagnostics);
    }
}

/// The place of an address in the file; a single `address` has no index.
fn place(what: &str, name: &str, index: usize, diagnostics: &Diagnostics) -> String {
    let list = format!("{what}.{name}.addresses.{index}");
    if diagnostics.has(&list) { list } else { format!("{what}.{name}.address") }
}
