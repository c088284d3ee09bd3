//! The XDP program of a port, assembled here: frames go to the socket of their queue, those that stay with the host to
//! its stack.

use super::bpf::Instruction;
use std::net::IpAddr;

/// Frames that stay with the host's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRule {
    /// This Ethernet type, whatever the destination.
    EtherType(u16),
    /// This protocol of IPv4 or IPv6, to the host's own Ethernet address or a group.
    Protocol(u8),
    /// TCP or UDP (6 or 17) from or to this port, to the host's own Ethernet address or a group.
    Port(u8, u16),
}

/// Most rules, and most addresses that are looked at: the kernel limits a program's length.
pub const KEEP_RULES: usize = 64;
const ADDRESSES: usize = 256;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMP6: u8 = 58;
/// Bytes of an Ethernet header.
const ETHERNET: i16 = 14;
const PASS: i32 = 2;
/// The helper bpf_redirect_map.
const REDIRECT_MAP: i32 = 51;

// Registers: the context, the frame's beginning and end, the Ethernet type, and some for any use.
const CONTEXT: u8 = 6;
const BEGIN: u8 = 2;
const END: u8 = 3;
const TYPE: u8 = 5;
const ANY: u8 = 0;
const OTHER: u8 = 1;
const POINTER: u8 = 4;
const TARGET: u8 = 7;

const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD: u8 = 0x0f;
const ADD_VALUE: u8 = 0x07;
const AND_VALUE: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const JUMP: u8 = 0x05;
const IF_ABOVE: u8 = 0x2d;
const IF_EQUAL: u8 = 0x15;
const IF_UNEQUAL: u8 = 0x55;
/// These two compare the low 32 bits.
const IF_EQUAL_WORD: u8 = 0x16;
const IF_UNEQUAL_WORD: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_MAP: u8 = 0x18;

/// A place in the program that is jumped to from before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Redirect,
    Pass,
    NotOwn,
    Own,
    Rules,
    NotIpv4,
    NotArp,
    NotNeighbour,
}

#[derive(Default)]
struct Assembler {
    program: Vec<Instruction>,
    /// Jumps whose distance is not known yet.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.program.push(Instruction { code, registers: to | from << 4, offset, immediate });
    }

    fn load(&mut self, code: u8, to: u8, base: u8, offset: i16) {
        self.emit(code, to, base, offset, 0);
    }

    fn jump_if(&mut self, code: u8, register: u8, value: i32, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.emit(code, register, 0, 0, value);
    }

    fn jump(&mut self, label: Label) {
        self.jump_if(JUMP, 0, 0, label);
    }

    /// Makes `bytes` from `base` on readable, or goes to `label`.
    fn require(&mut self, base: u8, bytes: i16, label: Label) {
        self.emit(MOVE, ANY, base, 0, 0);
        self.emit(ADD_VALUE, ANY, 0, 0, bytes.into());
        self.jumps.push((self.program.len(), label));
        self.emit(IF_ABOVE, ANY, END, 0, 0);
    }

    /// The jumps to `label` lead here.
    fn here(&mut self, label: Label) {
        let here = self.program.len();
        self.jumps.retain(|(from, wanted)| {
            if *wanted == label
                && let Some(jump) = self.program.get_mut(*from)
            {
                jump.offset = (here - from - 1) as i16;
            }
            *wanted != label
        });
    }

    fn leads_to(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, wanted)| *wanted == label)
    }
}

/// A number as it stands in a frame, loaded by a machine of this byte order.
fn half(number: u16) -> i32 {
    i32::from(number.to_be())
}

fn word(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

/// The program: `map` is the descriptor of the map of sockets, `mac` and `addresses` are the interface's own.
///
/// If there are rules, the resolution of these addresses stays with the host too (ARP, neighbour discovery), so that
/// what stays with it can be reached.
pub fn assemble(map: i32, mac: [u8; 6], addresses: &[IpAddr], rules: &[KeepRule]) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.emit(MOVE, CONTEXT, 1, 0, 0);
    let rules = &rules[..rules.len().min(KEEP_RULES)];
    if !rules.is_empty() {
        let addresses = &addresses[..addresses.len().min(ADDRESSES)];
        keep(&mut code, mac, addresses, rules);
    }
    code.here(Label::Redirect);
    code.load(LOAD_WORD, 2, CONTEXT, 16);
    code.emit(LOAD_MAP, 1, 1, 0, map);
    code.emit(0, 0, 0, 0, 0);
    // A queue without a socket: its frames go to the host.
    code.emit(MOVE_VALUE, 3, 0, 0, PASS);
    code.emit(CALL, 0, 0, 0, REDIRECT_MAP);
    code.emit(EXIT, 0, 0, 0, 0);
    if code.leads_to(Label::Pass) {
        code.here(Label::Pass);
        code.emit(MOVE_VALUE, 0, 0, 0, PASS);
        code.emit(EXIT, 0, 0, 0, 0);
    }
    code.program
}

fn keep(code: &mut Assembler, mac: [u8; 6], addresses: &[IpAddr], rules: &[KeepRule]) {
    let [a, b, c, d, e, f] = mac;
    code.load(LOAD_WORD, BEGIN, CONTEXT, 0);
    code.load(LOAD_WORD, END, CONTEXT, 4);
    code.require(BEGIN, ETHERNET + 20, Label::Redirect);
    code.load(LOAD_HALF, TYPE, BEGIN, 12);
    for rule in rules {
        if let KeepRule::EtherType(kind) = rule {
            code.jump_if(IF_EQUAL, TYPE, half(*kind), Label::Pass);
        }
    }
    code.load(LOAD_WORD, ANY, BEGIN, 0);
    code.jump_if(IF_UNEQUAL_WORD, ANY, word([a, b, c, d]), Label::NotOwn);
    code.load(LOAD_HALF, ANY, BEGIN, 4);
    code.jump_if(IF_EQUAL, ANY, half(u16::from_be_bytes([e, f])), Label::Own);
    code.here(Label::NotOwn);
    code.load(LOAD_BYTE, ANY, BEGIN, 0);
    code.emit(AND_VALUE, ANY, 0, 0, 1);
    code.jump_if(IF_EQUAL, ANY, 0, Label::Redirect);
    group(code, addresses);
    code.jump(Label::Rules);
    code.here(Label::Own);
    // Answers to the host's own questions.
    code.jump_if(IF_EQUAL, TYPE, half(ARP), Label::Pass);
    code.jump_if(IF_UNEQUAL, TYPE, half(IPV6), Label::Rules);
    code.require(BEGIN, ETHERNET + 41, Label::Redirect);
    code.load(LOAD_BYTE, ANY, BEGIN, ETHERNET + 6);
    code.jump_if(IF_UNEQUAL, ANY, ICMP6.into(), Label::Rules);
    code.load(LOAD_BYTE, ANY, BEGIN, ETHERNET + 40);
    for message in 135..=136 {
        code.jump_if(IF_EQUAL, ANY, message, Label::Pass);
    }
    code.here(Label::Rules);
    code.jump_if(IF_UNEQUAL, TYPE, half(IPV4), Label::NotIpv4);
    ipv4(code, rules);
    code.jump(Label::Redirect);
    code.here(Label::NotIpv4);
    code.jump_if(IF_UNEQUAL, TYPE, half(IPV6), Label::Redirect);
    ipv6(code, rules);
}

/// Questions for the host's own addresses, which go to groups.
fn group(code: &mut Assembler, addresses: &[IpAddr]) {
    code.jump_if(IF_UNEQUAL, TYPE, half(ARP), Label::NotArp);
    code.require(BEGIN, ETHERNET + 28, Label::Redirect);
    code.load(LOAD_WORD, ANY, BEGIN, ETHERNET + 24);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            code.jump_if(IF_EQUAL_WORD, ANY, word(address.octets()), Label::Pass);
        }
    }
    code.here(Label::NotArp);
    code.jump_if(IF_UNEQUAL, TYPE, half(IPV6), Label::NotNeighbour);
    code.load(LOAD_BYTE, ANY, BEGIN, ETHERNET + 6);
    code.jump_if(IF_UNEQUAL, ANY, ICMP6.into(), Label::NotNeighbour);
    // The group of an address has its last three bytes (RFC 4291, 2.7.1).
    code.load(LOAD_WORD, ANY, BEGIN, 0);
    code.load(LOAD_HALF, OTHER, BEGIN, 4);
    for address in addresses {
        if let IpAddr::V6(address) = address {
            let [.., x, y, z] = address.octets();
            let at = code.program.len();
            code.emit(IF_UNEQUAL_WORD, ANY, 0, 1, word([0x33, 0x33, 0xff, x]));
            debug_assert_eq!(code.program.len(), at + 1);
            code.jump_if(IF_EQUAL, OTHER, half(u16::from_be_bytes([y, z])), Label::Pass);
        }
    }
    code.here(Label::NotNeighbour);
}

fn protocols(code: &mut Assembler, rules: &[KeepRule]) {
    for rule in rules {
        if let KeepRule::Protocol(protocol) = rule {
            code.jump_if(IF_EQUAL, TYPE, (*protocol).into(), Label::Pass);
        }
    }
}

/// The ports are in `OTHER` and `TARGET`, the protocol in `TYPE`.
fn ports(code: &mut Assembler, rules: &[KeepRule]) {
    for rule in rules {
        if let KeepRule::Port(protocol, port) = rule {
            code.emit(IF_UNEQUAL, TYPE, 0, 2, (*protocol).into());
            code.jump_if(IF_EQUAL, OTHER, half(*port), Label::Pass);
            code.jump_if(IF_EQUAL, TARGET, half(*port), Label::Pass);
        }
    }
}

fn has_ports(rules: &[KeepRule]) -> bool {
    rules.iter().any(|rule| matches!(rule, KeepRule::Port(..)))
}

fn ipv4(code: &mut Assembler, rules: &[KeepRule]) {
    code.load(LOAD_BYTE, TYPE, BEGIN, ETHERNET + 9);
    protocols(code, rules);
    if !has_ports(rules) {
        return;
    }
    // A fragment after the first one has no ports.
    code.load(LOAD_HALF, ANY, BEGIN, ETHERNET + 6);
    code.emit(AND_VALUE, ANY, 0, 0, half(0x1fff));
    code.jump_if(IF_UNEQUAL, ANY, 0, Label::Redirect);
    code.load(LOAD_BYTE, OTHER, BEGIN, ETHERNET);
    code.emit(AND_VALUE, OTHER, 0, 0, 0xf);
    code.emit(SHIFT_LEFT, OTHER, 0, 0, 2);
    code.emit(MOVE, POINTER, BEGIN, 0, 0);
    code.emit(ADD, POINTER, OTHER, 0, 0);
    code.require(POINTER, ETHERNET + 4, Label::Redirect);
    code.load(LOAD_HALF, OTHER, POINTER, ETHERNET);
    code.load(LOAD_HALF, TARGET, POINTER, ETHERNET + 2);
    ports(code, rules);
}

fn ipv6(code: &mut Assembler, rules: &[KeepRule]) {
    code.require(BEGIN, ETHERNET + 44, Label::Redirect);
    code.load(LOAD_BYTE, TYPE, BEGIN, ETHERNET + 6);
    protocols(code, rules);
    if has_ports(rules) {
        code.load(LOAD_HALF, OTHER, BEGIN, ETHERNET + 40);
        code.load(LOAD_HALF, TARGET, BEGIN, ETHERNET + 42);
        ports(code, rules);
    }
}
