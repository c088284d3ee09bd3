//! Frames between hosts in tunnels: the codec alone, and a TCP stream through two wire ports.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::WORKER;
use crate::harness::fabric::Harness;
use crate::peer::net::{IperfServer, Space, ip, iperf};
use crate::plan::Plan;
use ringway_mem::SpanMut;
use ringway_port::wire::{Codec, Dscp, Encapsulation, KIND, Settings, open};
use ringway_spec::{Kind, Poll, Port, To};
use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_secs(1);
const CODEC_SLICE: Duration = Duration::from_millis(50);
const VNI: u32 = 7;
/// Frames of the codec: more than a core's first cache holds in buffers of a page.
const FRAMES: usize = 256;
/// Room in front of a frame in a buffer.
const ROOM: usize = 64;
/// Ours beside the port of VXLAN, which is the peer's.
const UDP_PORT: u16 = 4790;
/// VXLAN's headers over IPv4 in front of a packet of 1500 bytes.
const OUTER_MTU: u32 = 1500 + 50;

/// Frames that are encapsulated and decapsulated.
pub fn codec(plan: &Plan) -> Result<Entry, Failure> {
    let part = plan.part(0.25);
    let vxlan = coded(&part, Encapsulation::Vxlan, 64)?;
    let long = coded(&part, Encapsulation::Vxlan, 1500)?;
    let geneve = coded(&part, Encapsulation::Geneve, 64)?;
    let entry = vxlan.entry("Mpps", Better::More).at_least(8.0);
    Ok(entry.step_of("1500 B", &long).step_of("Geneve, 64 B", &geneve).note("VXLAN, 64 B, one thread"))
}

/// Frames that are copied behind their header, and taken out again with the outer class applied.
fn coded(plan: &Plan, encapsulation: Encapsulation, size: usize) -> Result<Slices, Failure> {
    let codec = Codec::new(encapsulation, VNI, Dscp::Inherit);
    let head = codec.header_len();
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|number| frame(size, number as u8)).collect();
    let mut datagrams = vec![vec![0; ROOM + size]; FRAMES];
    plan.alone(CODEC_SLICE, |time| {
        let (begin, mut done) = (Instant::now(), 0_u64);
        while begin.elapsed() < time {
            for (frame, datagram) in frames.iter().zip(&mut datagrams) {
                let (header, body) = datagram.split_at_mut(head);
                header.copy_from_slice(&codec.header()[..head]);
                body[..size].copy_from_slice(frame);
                let tos = black_box(codec.outer_tos(&frame[..ROOM.min(size)]));
                let taken = codec.decapsulate(SpanMut::of(&mut datagram[..head + size]), tos);
                let taken = taken.map_err(|reason| format!("a frame was refused: {reason:?}"))?;
                if taken.len() != size
                    || taken.read_array::<14>().as_ref().map(|head| &head[..]) != frame.get(..14)
                {
                    return Err("another frame came out".into());
                }
            }
            done += FRAMES as u64;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64() / 1e6)
    })
}

/// An IPv4 packet that is capable of ECN, in an Ethernet frame.
fn frame(size: usize, number: u8) -> Vec<u8> {
    let mut bytes = vec![number; size];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 2]);
    bytes
}

/// One TCP stream between two namespaces, which a veth pair joins: through two wire ports, both on one worker, and
/// between two VXLAN devices of the kernel.
pub fn udp(plan: &Plan) -> Result<Entry, Failure> {
    let spaces = [Space::new()?, Space::new()?];
    ip(&format!("link add outer0 mtu {OUTER_MTU} type veth peer name outer1 mtu {OUTER_MTU}"))?;
    let mut harness = Harness::start(&[WORKER], 4, Poll::Adaptive)?;
    for (index, space) in (0..).zip(&spaces) {
        space.take(&format!("outer{index}"), [192, 0, 2, 1 + index])?;
    }
    for (index, space) in (0..).zip(&spaces) {
        let (own, other) = (1 + index, 2 - index);
        let (tap, wire) = (format!("inner{index}"), format!("wire{index}"));
        harness.add_tap(&tap, To::Patch(wire.clone()))?;
        space.take(&tap, [10, 98, 0, own])?;
        let settings = settings(own, other);
        let kind = Kind::new(KIND.name, &settings);
        harness.add_port(Port::new(&wire, kind, Some(To::Patch(tap))))?;
        let sockets = space.within(|| Ok(open::datagrams(&settings)?))?;
        harness.attach(&wire, sockets)?;
        let device = format!("vx{index}");
        let ends = format!("local 192.0.2.{own} remote 192.0.2.{other} dev outer{index}");
        space.ip(&format!("link add {device} mtu 1500 type vxlan id {VNI} {ends} dstport 4789"))?;
        space.ip(&format!("link set {device} addrgenmode none up"))?;
        space.ip(&format!("addr add 10.97.0.{own}/24 dev {device}"))?;
    }
    let _server = IperfServer::start(&spaces[1])?;
    let one = |address: &str, time| iperf(&spaces[0], address, time);
    // The first connection waits for neighbour resolution.
    for address in ["10.98.0.2", "10.97.0.2"] {
        one(address, SLICE)?;
    }
    let slices = plan.pairs(SLICE, |time| one("10.98.0.2", time), |time| one("10.97.0.2", time))?;
    let entry = slices.entry("Gb/s", Better::More).ratio_at_least(1.0);
    Ok(entry.note("peer: the kernel's VXLAN over the same veth pair; both ends of ours on one worker"))
}

fn settings(own: u8, other: u8) -> Settings {
    let address = |host| SocketAddr::from(([192, 0, 2, host], UDP_PORT));
    Settings {
        encapsulation: Encapsulation::Vxlan,
        peer: address(other),
        local: address(own),
        vni: VNI,
        source_ports: 16,
        mtu: None,
        checksum: false,
        dscp: Dscp::Fixed(0),
        ttl: None,
        server: false,
        namespace: None,
    }
}
