//! Tiny guests on a fabric in this process: by the memory of a ring port, and by the registers of a card.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::machine;
use crate::common::network::{Device, Network, RING, mac};
use ringway_port::e1000::Techniques;
use ringway_vmm::{Counts, End};

fn devices() -> [Device; 13] {
    let usual = Techniques::default();
    let plain = Techniques { timers: false, batch: false, cached: false, ..usual };
    let combined = Techniques { moderate: 50_000, combine: true, ..usual };
    let shared = Techniques { csb: true, ..usual };
    let all = Techniques { mapped: Some(true), in_place: true, csb: true, ..usual };
    [
        ("ring", None, ""),
        ("plain", Some(("82540em", plain)), "batch=1 polls=0"),
        ("combined", Some(("82540em", combined)), "combine=true polls=0"),
        ("csb", Some(("82540em", shared)), "csb=true"),
        ("mapped", Some(("82540em", Techniques { mapped: Some(true), ..usual })), "slots=1024 polls=10"),
        ("all", Some(("82574l", all)), "csb=true combine=true"),
        ("ring", Some((RING, usual)), ""),
        ("ring", Some((RING, Techniques { mapped: Some(true), ..usual })), "polls=10"),
        // A pin in place of messages, and rings of at most 64 descriptors.
        ("plain", Some(("rtl8139", plain)), "batch=1 polls=0"),
        ("all", Some(("rtl8139", shared)), "csb=true polls=20"),
        ("plain", Some(("pcnet", plain)), "batch=1 polls=0"),
        ("combined", Some(("pcnet", combined)), "combine=true polls=10"),
        ("deferred", Some(("82540em", shared)), "csb=true defer=true polls=20"),
    ]
}

#[test]
fn guests_send_numbered_frames_to_each_other() {
    const COUNT: u64 = 1000;
    let Some(_) = machine() else { return };
    let [ring, ..] = devices();
    let pairs = devices().into_iter().flat_map(|device| [(device, ring), (ring, device)]);
    for (number, (left, right)) in (0..).zip(pairs) {
        let size = 60 + 37 * number;
        let lines = [
            format!("role=send to={} size={size} count={COUNT}", mac("right")),
            format!("role=receive count={COUNT}"),
        ];
        let [sender, receiver] = Network::new(left, right).run(lines, [left, right]);
        let name = format!("{} to {}: {}{}", left.0, right.0, sender.output, receiver.output);
        eprintln!("{name}{:?}\n{:?}", sender.counts, receiver.counts);
        assert_eq!((&sender.end, &receiver.end), (&End::Exit(0), &End::Exit(0)), "{name}");
        assert_eq!((sender.figure("sent"), receiver.figure("received")), (COUNT, COUNT), "{name}");
        let faults = ["wrong", "late", "lost"].map(|fault| receiver.figure(fault));
        assert_eq!(faults, [0; 3], "{name}");
        let Counts { exits, console, parks, registers, interrupts, .. } = sender.counts;
        match left.0 {
            // Frames need no exits; each byte of the report is one.
            "ring" => assert!(exits - console - parks < 50, "{name}"),
            "plain" => assert!(registers > COUNT, "{name}"),
            // Besides those at the start, only ICR is read, once for each interrupt.
            "mapped" => assert!(registers <= interrupts + 50, "{name}"),
            // Requests for interrupts are counted, so that nobody reads ICR.
            "all" => assert!(registers <= 50, "{name}"),
            _ => {}
        }
    }
}

#[test]
fn guests_ping_each_other() {
    const COUNT: u64 = 30;
    let Some(_) = machine() else { return };
    for (left, right) in devices().into_iter().zip(devices().into_iter().rev()) {
        let lines = [
            format!("role=ping to={} size=1500 count={COUNT}", mac("right")),
            format!("role=echo count={COUNT}"),
        ];
        let [ping, echo] = Network::new(left, right).run(lines, [left, right]);
        let name = format!("{} to {}: {}{}", left.0, right.0, ping.output, echo.output);
        eprintln!("{name}");
        assert_eq!((&ping.end, &echo.end), (&End::Exit(0), &End::Exit(0)), "{name}");
        assert_eq!((ping.figure("received"), echo.figure("sent")), (COUNT, COUNT), "{name}");
        assert!(ping.figure("best") > 0 && ping.figure("rtt") >= ping.figure("best"), "{name}");
    }
}

#[test]
fn a_port_serves_one_guest_after_the_other_and_survives_those_that_end_early() {
    let Some(_) = machine() else { return };
    for device in devices() {
        let mut network = Network::new(device, device);
        for round in 0..3 {
            // The sender's time ends while frames are in its ring.
            let run = format!("run={round} drain=false");
            let lines = [
                format!("role=send to={} time=5 {run}", mac("right")),
                format!("role=receive time=20 run={round}"),
            ];
            let [sender, receiver] = network.run(lines, [device; 2]);
            let name = format!("{}, round {round}: {}{}", device.0, sender.output, receiver.output);
            assert_eq!((&sender.end, &receiver.end), (&End::Exit(0), &End::Exit(0)), "{name}");
            assert!(sender.figure("sent") > 0, "{name}");
        }
    }
}
