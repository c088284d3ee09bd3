//! `[host.NAME]`.

use super::link::{self, Link};
use super::{Fabric, LONGEST_HOLD, Reading};
use crate::kinds::{Described, KINDS};
use ringway_spec::file::Section;
use ringway_spec::{Host, Port, To};

/// Most programs of a host.
const PROGRAMS: usize = 64;

/// Reads a host. If it is on a switch, its table describes its first interface too, which is a port of the host's
/// name.
pub fn host(
    mut section: Section<'_>,
    (outside, diagnostics): Reading<'_>,
    fabric: &mut Fabric,
    links: &mut Vec<Link>,
) {
    let Some(name) = section.path.strip_prefix("host.").map(String::from) else { return };
    let programs = section.words("run", "[\"iperf3 -s\"]").unwrap_or_default();
    for (index, program) in programs.iter().enumerate().filter(|(_, program)| program.trim().is_empty()) {
        section.error(&format!("run.{index}"), format!("\"{program}\" is no command"), "take it out");
    }
    if programs.len() > PROGRAMS {
        section.error(
            "run",
            format!("a host with {} programs", programs.len()),
            format!("use {PROGRAMS} at most"),
        );
    }
    fabric.hosts.push(Host { name: name.clone(), programs });
    let kind = KINDS.iter().find(|kind| kind.serves_hosts());
    let keys = || kind.iter().flat_map(|kind| kind.keys());
    let to = section.string("switch", "main").map(To::Switch);
    let needs_switch = |key: &str| {
        let fix = "add `switch`, or describe the interface by a [port.NAME] with this `host`";
        (keys().any(|own| own == key) || matches!(key, "hold" | "link")).then(|| fix.to_string())
    };
    let (Some(kind), Some(to)) = (kind, to) else { return section.finish(needs_switch) };
    if fabric.port(&name).is_some() {
        let what = format!("there is a port {name} too, and a host's first interface has the host's name");
        diagnostics.error(&section.at, what, "rename one, or leave `switch` out of the host");
    }
    links.extend(link::of_port(&mut section, Some(&to), outside, diagnostics));
    let hold = section.duration("hold", 0..=LONGEST_HOLD, "100us");
    let Described { kind, socket, queues } = kind.read(&mut section, diagnostics);
    fabric.ports.push(Port { socket, queues, hold, ..Port::new(&name, kind, Some(to)) });
    section.finish(|key| match key {
        "kind" | "host" | "namespace" => Some("a host has an interface of its own: leave it out".into()),
        "program" | "programs" | "command" => Some("write run = [\"COMMAND\"]".into()),
        // Keys of an inventory.
        "cpus" | "memory" | "cluster" | "status" => Some(
            "a host of the fabric is a network namespace; hosts that VMs are placed on are in an inventory"
                .into(),
        ),
        _ => None,
    });
}
