//! Emulated network cards of a running fabric: a driver in a client's memory on each side.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_ring_client::{Ring, Wait};
use ringway_tests::card::{Card, MEMORY};
use ringway_tests::e1000::E1000;
use ringway_tests::eventually;
use ringway_tests::fabric::Fabric;
use ringway_tests::folder::Folder;
use ringway_vfio_user::pci;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Longer than any answer takes.
const BOUND: Duration = Duration::from_secs(20);
const LEFT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn fabric(folder: &Folder, name: &str) -> Fabric {
    let port = |name: &str, mac: u8| {
        format!(
            "[port.{name}]\nkind = \"e1000\"\nsocket = \"{name}.sock\"\nmac = \"02:00:00:00:00:0{mac}\"\n\
             switch = \"main\"\n"
        )
    };
    let text = format!("[switch.main]\n{}{}", port("left", 1), port("right", 2));
    Fabric::up(folder.path(), name, &text).unwrap()
}

fn driver(fabric: &Fabric, port: &str, mac: [u8; 6], interrupts: u32) -> E1000 {
    E1000::start(Card::connect(&fabric.socket(&format!("{port}.sock"))).unwrap(), mac, interrupts).unwrap()
}

fn frame(to: [u8; 6], from: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.resize(len, number as u8);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Receives `count` frames.
fn receive(driver: &mut E1000, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while frames.len() < count {
        frames.extend(driver.receive(BOUND).unwrap());
    }
    frames
}

/// Sends from one to the other, in bursts that fit the receive ring.
fn pass(from: &mut E1000, to: &mut E1000, addresses: [[u8; 6]; 2], rounds: u32) {
    for round in 0..rounds {
        let burst = 1 + round % 24;
        let make = |number: u32| {
            frame(addresses[1], addresses[0], number, 60 + (round * 31 + number) as usize % 1400)
        };
        (0..burst).for_each(|number| from.send(&make(number), BOUND).unwrap());
        assert!(receive(to, burst as usize).into_iter().eq((0..burst).map(make)), "round {round}");
        // The reply comes after the posted write that gives the buffers back.
        to.card().read(0).unwrap();
    }
}

fn state(fabric: &Fabric, name: &str) -> String {
    let ports = fabric.ask(&["ps", "--json"]).unwrap()["ports"].clone();
    let port = ports.as_array().unwrap().iter().find(|port| port["name"] == name).unwrap().clone();
    port["state"].as_str().unwrap().to_owned()
}

#[test]
fn frames_pass_both_ways_with_both_kinds_of_interrupts() {
    let folder = Folder::new("e1000").unwrap();
    let fabric = fabric(&folder, "e1000");
    assert_eq!(state(&fabric, "left"), "waiting");
    let mut left = driver(&fabric, "left", LEFT, pci::INTX);
    let mut right = driver(&fabric, "right", RIGHT, pci::MSI);
    assert_eq!(left.card().config::<4>(0).unwrap(), [0x86, 0x80, 0x0e, 0x10]);
    pass(&mut left, &mut right, [LEFT, RIGHT], 200);
    pass(&mut right, &mut left, [RIGHT, LEFT], 200);
    assert!(eventually(BOUND, || state(&fabric, "left") == "up"));
    let sent: u64 = (0..200).map(|round| 1 + round % 24).sum();
    let counted = |name: &str, counter: &str| fabric.counted(name, counter).unwrap();
    assert!(
        eventually(BOUND, || counted("left", "tx_frames") == sent && counted("left", "rx_frames") == sent)
    );
    assert!(counted("left", "interrupts") > 0 && counted("right", "interrupts") > 0);
    assert_eq!(counted("left", "faults"), 0);
}

/// The Internet checksum of `bytes`, begun with `sum`.
fn checksum(bytes: &[u8], sum: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = sum + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A TCP segment as a driver that asks for segmentation leaves it: without lengths, and with the sum of the
/// addresses and the protocol as its checksum.
fn segment(payload: &[u8]) -> Vec<u8> {
    let mut frame = [&RIGHT[..], &LEFT, &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&frame[26..34], 6).to_be_bytes();
    frame.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, sum[0], sum[1], 0, 0]);
    frame.extend(payload);
    frame
}

#[test]
fn checksums_segmentation_and_tags_are_done_on_the_way() {
    let folder = Folder::new("e1000-offloads").unwrap();
    let fabric = fabric(&folder, "e1000-offloads");
    let mut left = driver(&fabric, "left", LEFT, pci::INTX);
    let mut right = driver(&fabric, "right", RIGHT, pci::INTX);
    let payload: Vec<u8> = (0..1700_u32).map(|at| (at * 7 % 251) as u8).collect();
    // IP header at 14, TCP header at 34, its checksum at 50; TCP over IPv4, headers of 54 bytes, 500 bytes a segment.
    let place = 14 | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40;
    let context = [place, payload.len() as u64 | (1 | 2 | 4) << 24 | 54 << 40 | 500 << 48];
    // Segmentation; insert both checksums.
    left.send_with(&segment(&payload), context, 1 << 26 | 3 << 40, BOUND).unwrap();
    let frames = receive(&mut right, 4);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [554, 554, 554, 254]);
    for frame in &frames {
        assert_eq!(checksum(&frame[14..34], 0), 0xffff, "the IP header");
        assert_eq!(checksum(&frame[26..], 6 + frame.len() as u32 - 34), 0xffff, "the segment");
    }
    let received: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert_eq!(received, payload);
    // The card inserts a tag.
    let control = left.card().read(0).unwrap();
    left.card().write(0, control | 1 << 30).unwrap();
    let plain = frame(RIGHT, LEFT, 7, 100);
    left.send_with(&plain, [place, 0], 1 << 30 | 0x2005 << 48, BOUND).unwrap();
    let tagged = [&plain[..12], &[0x81, 0, 0x20, 5], &plain[12..]].concat();
    assert_eq!(receive(&mut right, 1), [tagged]);
}

fn bytes(driver: &mut E1000) -> Vec<u8> {
    let mut bytes = vec![0; MEMORY as usize];
    driver.card().span(0, MEMORY as u32).unwrap().as_span().read(&mut bytes);
    bytes
}

#[test]
fn a_card_that_is_reset_unmapped_or_gone_while_it_receives_disturbs_nobody() {
    let folder = Folder::new("e1000-ends").unwrap();
    let fabric = fabric(&folder, "e1000-ends");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = driver(&fabric, "left", LEFT, pci::MSI);
        let sending = scope.spawn(|| {
            let mut sender = sender;
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                sender.send(&frame(RIGHT, LEFT, number, 300), BOUND).unwrap();
                number += 1;
            }
            sender
        });
        let mut right = driver(&fabric, "right", RIGHT, pci::INTX);
        for round in 0..60 {
            // The switch knows the station, or floods.
            assert!(receive(&mut right, 5).iter().all(|frame| frame.len() == 300));
            right.send(&frame(LEFT, RIGHT, round, 60), BOUND).unwrap();
            right = match round % 4 {
                0 => right.restart(RIGHT, pci::MSI).unwrap(),
                1 => {
                    right.card().reset().unwrap();
                    right.restart(RIGHT, pci::INTX).unwrap()
                }
                2 => {
                    right.card().unmap().unwrap();
                    let before = bytes(&mut right);
                    right.card().read(0).unwrap();
                    assert!(before == bytes(&mut right), "unmapped memory was written");
                    drop(right);
                    driver(&fabric, "right", RIGHT, pci::MSI)
                }
                _ => {
                    drop(right);
                    driver(&fabric, "right", RIGHT, pci::INTX)
                }
            };
        }
        over.store(true, Ordering::Relaxed);
        let mut left = sending.join().unwrap();
        // Whatever was sent to it meanwhile is behind it.
        left = left.restart(LEFT, pci::INTX).unwrap();
        right = right.restart(RIGHT, pci::INTX).unwrap();
        pass(&mut left, &mut right, [LEFT, RIGHT], 20);
        pass(&mut right, &mut left, [RIGHT, LEFT], 20);
    });
    assert_eq!(fabric.counted("left", "faults").unwrap(), 0);
}

#[test]
fn a_program_on_a_ring_and_a_card_exchange_frames() {
    const PROGRAM: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let folder = Folder::new("e1000-ring").unwrap();
    let text = "[switch.main]\n[port.ring]\nkind = \"ring\"\nsocket = \"ring.sock\"\nswitch = \"main\"\n\
                [port.card]\nkind = \"e1000\"\nsocket = \"card.sock\"\nmac = \"02:00:00:00:00:01\"\n\
                model = \"82574l\"\nswitch = \"main\"\n";
    let fabric = Fabric::up(folder.path(), "e1000-ring", text).unwrap();
    let mut program = Ring::connect(&fabric.socket("ring.sock")).unwrap();
    let mut card = driver(&fabric, "card", LEFT, pci::MSI);
    let mut found = vec![0; 2048];
    for round in 0..100 {
        let burst = 1 + round % 24;
        let len = |number: u32| 60 + (round * 37 + number) as usize % 1400;
        let sent = |number: u32| frame(LEFT, PROGRAM, number, len(number));
        for number in 0..burst {
            assert!(program.tx.push(&sent(number)).unwrap());
        }
        program.sync().unwrap();
        assert!(receive(&mut card, burst as usize).into_iter().eq((0..burst).map(sent)), "round {round}");
        let answer = |number: u32| frame(PROGRAM, LEFT, number, len(number));
        (0..burst).for_each(|number| card.send(&answer(number), BOUND).unwrap());
        for number in 0..burst {
            let received = loop {
                if let Some(received) = program.rx.pop(&mut found).unwrap() {
                    break received;
                }
                program.sync().unwrap();
                assert!(program.wait(Wait::RX, Some(BOUND)).unwrap(), "frame {number} of round {round}");
            };
            assert_eq!(found[..received.len], answer(number), "round {round}");
        }
        // Also the posted write that gives the buffers back has arrived when this is answered.
        card.card().read(0).unwrap();
    }
}

#[test]
fn tags_are_removed_and_vlans_filtered() {
    const RCTL: u64 = 0x100;
    const VFTA: u64 = 0x5600;
    let folder = Folder::new("e1000-vlans").unwrap();
    let fabric = fabric(&folder, "e1000-vlans");
    let mut left = driver(&fabric, "left", LEFT, pci::MSI);
    let mut right = driver(&fabric, "right", RIGHT, pci::MSI);
    let tagged = |vlan: u8, number: u32| {
        let plain = frame(RIGHT, LEFT, number, 200);
        [&plain[..12], &[0x81, 0, 0x60, vlan], &plain[12..]].concat()
    };
    left.send(&tagged(5, 1), BOUND).unwrap();
    assert_eq!(receive(&mut right, 1), [tagged(5, 1)], "the driver wants its tags");
    let control = right.card().read(0).unwrap();
    right.card().write(0, control | 1 << 30).unwrap();
    let filter = right.card().read(RCTL).unwrap();
    right.card().write(VFTA, 1 << 5).unwrap();
    right.card().write(RCTL, filter | 1 << 18).unwrap();
    right.card().read(RCTL).unwrap();
    left.send(&tagged(6, 2), BOUND).unwrap();
    left.send(&tagged(5, 3), BOUND).unwrap();
    left.send(&frame(RIGHT, LEFT, 4, 200), BOUND).unwrap();
    assert_eq!(receive(&mut right, 2), [3, 4].map(|number| frame(RIGHT, LEFT, number, 200)));
    let stats = fabric.ask(&["stats", "--json"]).unwrap();
    let port = stats["ports"].as_array().unwrap().iter().find(|port| port["name"] == "right").unwrap();
    assert_eq!(port["total"]["rx_drops"]["filtered"], 1);
}

#[test]
fn a_card_that_is_reset_or_gone_while_it_sends_sends_no_wrong_frame() {
    let folder = Folder::new("e1000-resets").unwrap();
    let fabric = fabric(&folder, "e1000-resets");
    let (over, arrived) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let mut right = driver(&fabric, "right", RIGHT, pci::MSI);
        let receiving = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for found in right.receive(BOUND).unwrap() {
                    let number = u32::from_be_bytes([found[14], found[15], found[16], found[17]]);
                    assert_eq!(found, frame(RIGHT, LEFT, number, 700));
                    arrived.fetch_add(1, Ordering::Relaxed);
                }
            }
            right
        });
        let mut left = driver(&fabric, "left", LEFT, pci::MSI);
        for round in 0..100 {
            let numbers = (round * 30..).take(30);
            let before = arrived.load(Ordering::Relaxed);
            numbers.for_each(|number| left.send(&frame(RIGHT, LEFT, number, 700), BOUND).unwrap());
            // A reset may drop all frames of other rounds.
            let pass = || {
                left.send(&frame(RIGHT, LEFT, round, 700), BOUND).unwrap();
                arrived.load(Ordering::Relaxed) > before + 10
            };
            assert!(round % 10 != 0 || eventually(BOUND, pass), "no frames of round {round}");
            left = match round % 3 {
                0 => left.restart(LEFT, pci::MSI).unwrap(),
                1 => {
                    left.card().reset().unwrap();
                    left.restart(LEFT, pci::INTX).unwrap()
                }
                _ => {
                    drop(left);
                    driver(&fabric, "left", LEFT, pci::MSI)
                }
            };
        }
        over.store(true, Ordering::Relaxed);
        // A receiver that waits for the last frame gets one.
        left.send(&frame(RIGHT, LEFT, 0, 700), BOUND).unwrap();
        let mut right = receiving.join().unwrap();
        let count = arrived.load(Ordering::Relaxed);
        assert!(count > 100, "{count} of 3000 frames");
        right = right.restart(RIGHT, pci::MSI).unwrap();
        pass(&mut left, &mut right, [LEFT, RIGHT], 20);
    });
    assert_eq!(fabric.counted("left", "faults").unwrap(), 0);
}

#[test]
fn a_client_that_shares_more_than_the_port_may_map_keeps_what_it_has() {
    let folder = Folder::new("e1000-memory").unwrap();
    let port = |name: &str, mac: u8| {
        format!(
            "[port.{name}]\nkind = \"e1000\"\nsocket = \"{name}.sock\"\nmac = \"02:00:00:00:00:0{mac}\"\n\
             memory = \"1MB\"\nswitch = \"main\"\n"
        )
    };
    let text = format!("[switch.main]\n{}{}", port("left", 1), port("right", 2));
    let fabric = Fabric::up(folder.path(), "e1000-memory", &text).unwrap();
    let mut left = driver(&fabric, "left", LEFT, pci::MSI);
    let mut right = driver(&fabric, "right", RIGHT, pci::MSI);
    assert!(left.card().share(MEMORY, 4096).is_err());
    pass(&mut left, &mut right, [LEFT, RIGHT], 20);
    // What it gives up may be shared again.
    left.card().unmap().unwrap();
    left.card().share(MEMORY, MEMORY).unwrap();
    assert_eq!(state(&fabric, "right"), "up");
}
