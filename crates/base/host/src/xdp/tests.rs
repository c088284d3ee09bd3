//! The program as a machine of our own runs it, and as the kernel verifies it.

use super::program::assemble;
use super::*;
use bpf::Instruction;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const REDIRECTED: i64 = -1;
const FRAME: i64 = 0x1000;

/// Runs a program on a frame. Panics where a frame is read out of bounds, and where a jump leads backwards.
fn run(program: &[Instruction], frame: &[u8]) -> i64 {
    let mut registers = [0_i64; 11];
    let mut at = 0;
    loop {
        let Instruction { code, registers: pair, offset, immediate } = program[at];
        let (to, from) = (usize::from(pair & 0xf), usize::from(pair >> 4));
        let (value, constant) = (registers[to], i64::from(immediate));
        at += 1;
        let load = |len: usize| {
            let start = (registers[from] + i64::from(offset) - FRAME) as usize;
            let mut bytes = [0; 8];
            bytes[..len].copy_from_slice(&frame[start..start + len]);
            i64::from_le_bytes(bytes)
        };
        let jumps = match code {
            0x61 if from == 6 => {
                registers[to] = match offset {
                    0 => FRAME,
                    4 => FRAME + frame.len() as i64,
                    _ => 0,
                };
                false
            }
            0x61 | 0x69 | 0x71 => {
                registers[to] = load(match code {
                    0x61 => 4,
                    0x69 => 2,
                    _ => 1,
                });
                false
            }
            0xbf => {
                registers[to] = registers[from];
                false
            }
            0xb7 | 0x07 | 0x57 | 0x67 | 0x0f => {
                registers[to] = match code {
                    0xb7 => constant,
                    0x07 => value + constant,
                    0x57 => value & constant,
                    0x67 => value << constant,
                    _ => value + registers[from],
                };
                false
            }
            0x05 => true,
            0x2d => value > registers[from],
            0x15 => value == constant,
            0x55 => value != constant,
            0x16 => value as u32 == immediate as u32,
            0x56 => value as u32 != immediate as u32,
            0x18 => {
                at += 1;
                false
            }
            0x85 => {
                registers[0] = REDIRECTED;
                false
            }
            0x95 => return registers[0],
            code => panic!("an instruction that no program has: {code:#x}"),
        };
        if jumps {
            assert!(offset >= 0);
            at += offset as usize;
        }
    }
}

fn ethernet(to: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9], &kind.to_be_bytes(), rest].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// IPv4 with `options` words of options.
fn ipv4(to: [u8; 6], protocol: u8, ports: [u16; 2], options: u8, fragment: u16) -> Vec<u8> {
    let mut packet = vec![0x45 + options, 0, 0, 40, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1]);
    packet.resize(20 + usize::from(options) * 4, 0);
    packet.extend(ports.map(u16::to_be_bytes).concat());
    ethernet(to, 0x0800, &packet)
}

fn ipv6(to: [u8; 6], next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 20, next, 64];
    packet.resize(40, 0);
    packet.extend(body);
    ethernet(to, 0x86dd, &packet)
}

fn arp(to: [u8; 6], target: [u8; 4]) -> Vec<u8> {
    let mut body = vec![0; 28];
    body[24..].copy_from_slice(&target);
    ethernet(to, 0x0806, &body)
}

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ALL: [u8; 6] = [0xff; 6];

#[test]
fn frames_that_are_named_stay_with_the_host() {
    use KeepRule::{EtherType, Port, Protocol};
    let addresses: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "2001:db8::a1:b2c3".parse().unwrap()];
    let rules = [Port(6, 22), Port(17, 68), Protocol(1), EtherType(0x88cc)];
    let program = assemble(3, MAC, &addresses, &rules);
    let stays = |frame: Vec<u8>| run(&program, &frame) == 2;
    assert!(stays(ipv4(MAC, 6, [5000, 22], 0, 0)), "ssh to the host");
    assert!(stays(ipv4(MAC, 6, [22, 5000], 10, 0x4000)), "answers to its own ssh, with options");
    assert!(!stays(ipv4(OTHER_MAC, 6, [5000, 22], 0, 0)), "ssh to a guest");
    assert!(!stays(ipv4(MAC, 6, [5000, 80], 0, 0)));
    assert!(!stays(ipv4(MAC, 17, [5000, 22], 0, 0)), "another protocol");
    assert!(!stays(ipv4(MAC, 6, [5000, 22], 0, 7)), "a later fragment");
    assert!(stays(ipv4(ALL, 17, [67, 68], 0, 0)), "DHCP's answer to all");
    assert!(stays(ipv4(MAC, 1, [0, 0], 0, 0)) && !stays(ipv4(OTHER_MAC, 1, [0, 0], 0, 0)));
    assert!(
        stays(ethernet([1, 0x80, 0xc2, 0, 0, 0xe], 0x88cc, &[])) && stays(ethernet(OTHER_MAC, 0x88cc, &[]))
    );
    assert!(stays(arp(ALL, [10, 0, 0, 1])) && !stays(arp(ALL, [10, 0, 0, 2])));
    assert!(stays(arp(MAC, [0; 4])) && !stays(arp(OTHER_MAC, [10, 0, 0, 1])));
    assert!(stays(ipv6([0x33, 0x33, 0xff, 0xa1, 0xb2, 0xc3], 58, &[135, 0])));
    assert!(!stays(ipv6([0x33, 0x33, 0xff, 0xa1, 0xb2, 0xc4], 58, &[135, 0])));
    assert!(stays(ipv6(MAC, 58, &[136, 0])) && !stays(ipv6(MAC, 58, &[128, 0])));
    assert!(stays(ipv6(MAC, 6, &[0, 22, 0x20, 0])) && !stays(ipv6(MAC, 6, &[0, 23, 0x20, 0])));
}

#[test]
fn no_frame_is_read_past_its_end() {
    let rules = [KeepRule::Port(6, 22), KeepRule::Protocol(58), KeepRule::EtherType(0x806)];
    let addresses: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    let program = assemble(3, MAC, &addresses, &rules);
    for frame in [ipv4(MAC, 6, [1, 2], 10, 0), ipv6(ALL, 58, &[135, 0, 0, 0]), arp(ALL, [10, 0, 0, 9])] {
        for len in 0..=frame.len() {
            assert!([2, REDIRECTED].contains(&run(&program, &frame[..len])));
        }
    }
}

#[test]
fn without_rules_every_frame_is_redirected() {
    let program = assemble(3, MAC, &[], &[]);
    assert_eq!(program.len(), 7);
    assert_eq!(run(&program, &[]), REDIRECTED);
}

#[test]
fn the_kernel_accepts_the_longest_program() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: bpf(2) needs root");
        return;
    }
    let map = bpf::socket_map(1).unwrap();
    let all = (1..=KEEP_RULES as u16).map(|number| match number % 3 {
        0 => KeepRule::EtherType(number),
        1 => KeepRule::Protocol(number as u8),
        _ => KeepRule::Port(if number % 2 == 0 { 6 } else { 17 }, number),
    });
    let addresses: Vec<IpAddr> = (0..300_u32)
        .map(|number| {
            if number % 2 == 0 {
                std::net::Ipv4Addr::from(number).into()
            } else {
                std::net::Ipv6Addr::from(u128::from(number)).into()
            }
        })
        .collect();
    let few = [KeepRule::EtherType(0x88cc)];
    for rules in [&[][..], &few, &all.collect::<Vec<_>>()] {
        bpf::load("ringway", &assemble(map.as_raw_fd(), MAC, &addresses, rules)).unwrap();
    }
}

#[test]
fn chunks_have_room_for_the_frames_of_an_mtu() {
    assert_eq!([1522, 1792, 1793, 3522, 9022].map(xdp_chunk), [2048, 2048, 4096, 4096, 4096]);
}
