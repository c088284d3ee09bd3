//! Hostile guests on live ports: what they write to rings, registers, descriptors, the shared block and doorbells harms
//! nobody else, and the port serves the next guest.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::network::{Device, Network, boot, guest, mac};
use crate::common::{image, machine};
use ringway_port::e1000::Techniques;
use ringway_vmm::End;
use std::time::Duration;

/// Where a guest finds a ring's memory and doorbell, and a card's registers.
const RING: u32 = 0x8000_0000;
const DOORBELL: u32 = 0xd000_0000;
const CARD: u32 = 0xe000_0000;
/// Where the hostile guest has its descriptors and its shared block.
const RINGS: u32 = 0x20_0000;
const CSB: u32 = 0x21_0000;
/// Frames that the other guests exchange meanwhile.
const COUNT: u64 = 2000;

/// `mov dword [address], value`.
fn store(address: u32, value: u32) -> Vec<u8> {
    [&[0xc7, 0x05][..], &address.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// Code that executes `first`, then stores random words into each area of `areas`, a base and a mask of offsets, and to
/// `doorbells`; for ever.
fn scramble(first: &[Vec<u8>], areas: &[(u32, u32)], doorbells: &[u32], seed: u32) -> Vec<u8> {
    let mut code = first.concat();
    // mov ebx, seed
    code.push(0xbb);
    code.extend(seed.to_le_bytes());
    let begin = code.len();
    for (base, mask) in areas {
        // Three shifts and exclusive ors: the next random number in EBX.
        code.extend([0x89, 0xd8, 0xc1, 0xe0, 13, 0x31, 0xc3, 0x89, 0xd8, 0xc1, 0xe8, 17, 0x31, 0xc3]);
        code.extend([0x89, 0xd8, 0xc1, 0xe0, 5, 0x31, 0xc3]);
        // mov eax, ebx; shr eax, 7; and eax, mask; mov [eax + base], ebx
        code.extend([0x89, 0xd8, 0xc1, 0xe8, 7, 0x25]);
        code.extend((mask & !3).to_le_bytes());
        code.extend([0x89, 0x98]);
        code.extend(base.to_le_bytes());
    }
    for doorbell in doorbells {
        // mov [doorbell], ebx
        code.extend([0x89, 0x1d]);
        code.extend(doorbell.to_le_bytes());
    }
    // jmp begin
    let back = begin as i32 - (code.len() as i32 + 5);
    code.push(0xe9);
    code.extend(back.to_le_bytes());
    code
}

/// Runs a hostile image on the port `bad`, while two guests exchange frames over the same switch and worker; then an
/// honest guest on `bad`.
fn attack(bad: Device, image: Vec<u8>, others: Device) {
    let mut network = Network::of(&[("left", others), ("right", others), ("bad", bad)]);
    let time = Duration::from_millis(300);
    let hostile = boot(&network.folder.join("bad"), bad.1, image, String::new(), time);
    let lines =
        [format!("role=send to={} count={COUNT}", mac("right")), format!("role=receive count={COUNT}")];
    let [sender, receiver] = network.run(lines, [others; 2]);
    let name = format!("{}: {}{}", bad.0, sender.output, receiver.output);
    assert_eq!((&sender.end, &receiver.end), (&End::Exit(0), &End::Exit(0)), "{name}");
    assert_eq!((sender.figure("sent"), receiver.figure("received")), (COUNT, COUNT), "{name}");
    assert_eq!(["wrong", "late", "lost"].map(|fault| receiver.figure(fault)), [0; 3], "{name}");
    network.serve_until(|_| hostile.is_finished());
    let hostile = hostile.join().unwrap();
    // The guest's time limit expired, or its port gave it up, which is an access without an answer.
    assert!(matches!(hostile.end, End::Time | End::Card(_)), "{name}: {}", hostile.end);
    // The port may be closed for a while after it was misused.
    network.fabric.detach("bad").unwrap();
    network.serve_until(|network| {
        let state = network.fabric.state();
        state.ports.iter().any(|port| port.name == "bad" && port.state == "waiting")
    });
    let honest = guest(&network.folder.join("bad"), bad, &format!("role=send to={} count=10", mac("right")));
    network.serve_until(|_| honest.is_finished());
    let honest = honest.join().unwrap();
    assert_eq!((&honest.end, honest.figure("sent")), (&End::Exit(0), 10), "{name}: {}", honest.output);
}

/// What the other guests have.
const OTHERS: Device = ("ring", None, "");

fn card(techniques: Techniques) -> Option<(&'static str, Techniques)> {
    Some(("82540em", techniques))
}

#[test]
fn a_hostile_client_of_a_ring_harms_nobody_else() {
    let Some(_) = machine() else { return };
    let others = [OTHERS, ("card", card(Techniques::default()), "")];
    // The indices and flags; the slots; everything.
    for (number, mask) in (1..).zip([0xfff, 0xffff, 0xf_ffff]) {
        let code = scramble(&[], &[(RING, mask)], &[DOORBELL], 0x9e37_79b9_u32.wrapping_mul(number));
        attack(("ring", None, ""), image(&code), others[number as usize % 2]);
    }
}

#[test]
fn doorbells_without_end_and_without_frames_harm_nobody_else() {
    let Some(_) = machine() else { return };
    let code = scramble(&[], &[], &[DOORBELL], 1);
    attack(("ring", None, ""), image(&code), OTHERS);
}

#[test]
fn a_hostile_user_of_a_card_harms_nobody_else() {
    let Some(_) = machine() else { return };
    let shared = Techniques { csb: true, ..Techniques::default() };
    let mapped = Techniques { mapped: Some(true), in_place: true, csb: true, ..Techniques::default() };
    // Rings of 256 descriptors in memory, the block turned on, both rings enabled.
    let mut start = vec![store(CSB + 12, 1)];
    for (base, address) in [(0x2800, RINGS), (0x3800, RINGS + 0x1000)] {
        let ring = [(0, address), (4, 0), (8, 4096), (0x10, 0), (0x18, 255)];
        start.extend(ring.map(|(offset, value)| store(CARD + base + offset, value)));
    }
    let block = [(0x2834, 0), (0x2830, CSB), (0x100, 0x0400_8002), (0x400, 2)];
    start.extend(block.map(|(offset, value)| store(CARD + offset, value)));
    // Descriptors and the block alone; with the mapped registers of the rings; with all registers.
    let memory = [(RINGS, 0x1fff), (CSB, 0x7f)];
    let rings = [memory[0], memory[1], (CARD + 0x2800, 0x1f), (CARD + 0x3800, 0x1f)];
    let all = [memory[0], memory[1], (CARD, 0x7fff)];
    let cases: [(Techniques, &[(u32, u32)]); 4] =
        [(shared, &memory), (shared, &all), (mapped, &rings), (mapped, &all)];
    for (seed, (techniques, areas)) in (77_777..).zip(cases) {
        let code = scramble(&start, areas, &[], seed);
        attack(("card", card(techniques), ""), image(&code), OTHERS);
    }
}
