//! What a guest and the place where it is to arrive must have in common.

use super::{GuestArrival, MovingPort};
use ringway_linux_guests::Facts;
use ringway_wire::MacAddress;

/// All differences that keep a guest from arriving, for people; nothing if it can. `here` and `ports` are what it would
/// have here.
pub fn differences(arrival: &GuestArrival, here: &Facts, ports: &[MovingPort]) -> Vec<String> {
    let mut all = Vec::new();
    let compare = |all: &mut Vec<String>, what: &str, source: String, destination: String| {
        if source != destination {
            all.push(format!("{what}: {source} at the source, {destination} at the destination"));
        }
    };
    // Devices may differ between QEMU's major versions, whatever the machine type.
    let major = |version: &str| format!("QEMU {}", version.split('.').next().unwrap_or_default());
    compare(&mut all, "QEMU's major version", major(&arrival.qemu), major(&here.qemu));
    compare(&mut all, "accelerator", arrival.accelerator.clone(), here.accelerator.clone());
    compare(&mut all, "processor (CPU)", arrival.processor.clone(), here.processor.clone());
    compare(&mut all, "memory", format!("{} MiB", arrival.memory), format!("{} MiB", here.memory));
    compare(&mut all, "processors", arrival.processors.to_string(), here.processors.to_string());
    compare(&mut all, "kernel image", arrival.kernel.clone(), here.kernel.clone());
    compare(&mut all, "initial file system (image)", arrival.initrd.clone(), here.initrd.clone());
    let quoted = |text: &str| format!("{text:?}");
    compare(&mut all, "the kernel's command line", quoted(&arrival.command_line), quoted(&here.command_line));
    compare(&mut all, "number of ports", arrival.ports.len().to_string(), ports.len().to_string());
    let mtu = |port: &MovingPort| port.mtu.map_or("none".to_string(), |mtu| mtu.to_string());
    for (port, own) in arrival.ports.iter().zip(ports) {
        let of = |what: &str| format!("{what} of port {}", own.name);
        compare(&mut all, &of("queues"), port.queues.to_string(), own.queues.to_string());
        compare(&mut all, &of("MTU"), mtu(port), mtu(own));
        let lacks: Vec<&str> =
            own.without.iter().filter(|name| !port.without.contains(name)).map(|name| &**name).collect();
        if !lacks.is_empty() {
            let what = format!("features of port {}", own.name);
            all.push(format!("{what}: the destination does not offer {}", lacks.join(", ")));
        }
        if own.memory < arrival.memory << 20 {
            let what = format!("memory of port {}", own.name);
            all.push(format!("{what}: the destination takes {} MiB at most", own.memory >> 20));
        }
    }
    all
}

/// What of a description becomes a part of QEMU's command line: the machine type and an address for each port.
///
/// Attack: a source gives QEMU other options in these words. A type has only characters of names, and addresses are
/// written anew.
///
/// # Errors
/// Why they can't be taken, for people.
pub fn taken(arrival: &GuestArrival) -> Result<(String, Vec<MacAddress>), String> {
    let machine = &arrival.machine;
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !machine.bytes().all(is_good) || !machine.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err(format!("{machine:?} is no machine type of QEMU"));
    }
    if arrival.macs.len() != arrival.ports.len() {
        return Err("it must have an address (macs) for each of its ports".into());
    }
    let read = |mac: &String| mac.parse().map_err(|_| format!("{mac:?} is no MAC address"));
    let macs = arrival.macs.iter().map(read).collect::<Result<_, _>>()?;
    Ok((machine.clone(), macs))
}

/// Features without which QEMU can't log what the port writes while memory is copied.
pub const LOGGING: [&str; 2] = ["log-all", "log-shmfd"];

/// Why a port can't be migrated from here, if it can't.
pub fn stays(port: &MovingPort) -> Option<String> {
    let lacks: Vec<&str> =
        LOGGING.into_iter().filter(|name| port.without.iter().any(|n| n == name)).collect();
    (!lacks.is_empty()).then(|| {
        format!(
            "port {} is without {}, so that writes to memory can't be logged",
            port.name,
            lacks.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_becomes_an_option_of_qemu() {
        let (mut arrival, _) = case();
        arrival.macs = vec!["02:00:00:00:00:0A".into()];
        arrival.ports.truncate(1);
        let (machine, macs) = taken(&arrival).unwrap();
        assert_eq!((&*machine, &*macs[0].to_string()), ("pc-q35-7.2", "02:00:00:00:00:0a"));
        // Attack: more options.
        for machine in ["", "q35,dumpdtb=/x", "-M", "q35 ", "q35=x", "q35\n"] {
            let arrival = GuestArrival { machine: machine.into(), ..arrival.clone() };
            assert!(taken(&arrival).is_err(), "{machine}");
        }
        let good = "02:00:00:00:00:01";
        for macs in [&[][..], &[""], &["02:00:00:00:00:01,romfile=/x"], &[good, good]] {
            let macs = macs.iter().map(ToString::to_string).collect();
            assert!(taken(&GuestArrival { macs, ..arrival.clone() }).is_err());
        }
    }

    fn port() -> MovingPort {
        MovingPort {
            name: "left".into(),
            queues: 1,
            mtu: None,
            without: vec!["packed".into()],
            memory: 1 << 30,
        }
    }

    fn case() -> (GuestArrival, Facts) {
        let facts = Facts {
            qemu: "7.2.22".into(),
            accelerator: "TCG".into(),
            processor: "qemu64".into(),
            memory: 192,
            processors: 1,
            kernel: "9 bytes, 1".into(),
            initrd: "8 bytes, 2".into(),
            command_line: "quiet".into(),
            macs: Vec::new(),
        };
        let arrival = GuestArrival {
            name: "vm".into(),
            ticket: "t".into(),
            machine: "pc-q35-7.2".into(),
            qemu: "7.2.1".into(),
            accelerator: facts.accelerator.clone(),
            processor: facts.processor.clone(),
            memory: facts.memory,
            processors: facts.processors,
            kernel: facts.kernel.clone(),
            initrd: facts.initrd.clone(),
            command_line: facts.command_line.clone(),
            macs: vec!["02:00:00:00:00:01".into()],
            ports: vec![port()],
        };
        (arrival, facts)
    }

    #[test]
    fn equal_guests_may_arrive_and_a_port_may_offer_more() {
        let (arrival, facts) = case();
        assert_eq!(differences(&arrival, &facts, &[port()]), [] as [&str; 0]);
        assert_eq!(
            differences(&arrival, &facts, &[MovingPort { without: Vec::new(), ..port() }]),
            [] as [&str; 0]
        );
    }

    #[test]
    fn each_difference_is_named() {
        let (arrival, facts) = case();
        let with = |change: fn(&mut Facts)| {
            let mut facts = facts.clone();
            change(&mut facts);
            differences(&arrival, &facts, &[port()])
        };
        for (said, found) in [
            ("QEMU's major version: QEMU 7 at the source, QEMU 10", with(|f| f.qemu = "10.0".into())),
            ("accelerator: TCG at the source, KVM", with(|f| f.accelerator = "KVM".into())),
            ("processor (CPU): qemu64 at the source, max", with(|f| f.processor = "max".into())),
            ("memory: 192 MiB at the source, 256 MiB at the destination", with(|f| f.memory = 256)),
            ("processors: 1 at the source, 2", with(|f| f.processors = 2)),
            ("kernel image: 9 bytes, 1 at the source", with(|f| f.kernel = "7 bytes, 1".into())),
            ("initial file system (image): 8 bytes", with(|f| f.initrd = "7 bytes, 1".into())),
            ("command line: \"quiet\" at the source, \"\"", with(|f| f.command_line.clear())),
        ] {
            assert!(found.len() == 1 && found[0].contains(said), "{said}: {found:?}");
        }
        let of_port = |change: fn(&mut MovingPort)| {
            let mut port = port();
            change(&mut port);
            differences(&arrival, &facts, &[port])
        };
        for (said, found) in [
            ("queues of port left: 1 at the source, 2", of_port(|p| p.queues = 2)),
            ("MTU of port left: none at the source, 9000", of_port(|p| p.mtu = Some(9000))),
            ("the destination does not offer mrg-rxbuf", of_port(|p| p.without.push("mrg-rxbuf".into()))),
            ("memory of port left: the destination takes 100 MiB", of_port(|p| p.memory = 100 << 20)),
        ] {
            assert!(found.len() == 1 && found[0].contains(said), "{said}: {found:?}");
        }
        assert!(differences(&arrival, &facts, &[])[0].contains("number of ports: 1 at the source, 0"));
        assert_eq!(stays(&port()), None);
        let unlogged = MovingPort { without: vec!["log-shmfd".into()], ..port() };
        assert!(stays(&unlogged).unwrap().contains("port left is without log-shmfd"));
    }
}
