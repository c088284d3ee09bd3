//! Offload metadata through every element: its output, completed afterwards, must equal its output for completed
//! frames.
use super::configuration::{ARGUMENTS, sides};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ringway_click::arg::Args;
use ringway_click::{
    Class, Context, Element, Failed, Metadata, Options, Packet, PacketBurst, Pool, Recorder, Router, Task,
    Turn,
};
use ringway_click_lang::{Anything, Source};
use ringway_frame::Offload;
use ringway_wire::Sum;
use std::cell::RefCell;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Arguments of classes that need others than for random frames.
const MORE: &[(&str, &str)] = &[
    ("AdjustTimestamp", "1"),
    ("Align", "4, 0"),
    ("EtherRewrite", "1:1:1:1:1:1, 2:2:2:2:2:2"),
    ("EtherVLANEncap", "0x800, 1:1:1:1:1:1, 2:2:2:2:2:2, 3"),
    ("FixIPSrc", "1.2.3.4"),
    ("GetIPAddress", "16"),
    ("GetIP6Address", "24"),
    ("HashSwitch", "26, 8"),
    ("HostEtherFilter", "2:0:0:0:0:2"),
    ("IP6Encap", "6, 1::2, 3::4"),
    ("IPAddrPairRewriter", "pattern 1.0.0.1 - 0 0"),
    ("IPAddrRewriter", "pattern 1.0.0.1 - 0 0"),
    ("IPClassifier", "tcp, -"),
    ("IPFragmenter", "1400"),
    ("IPGWOptions", "1.2.3.4"),
    ("IPInputCombo", "1, INTERFACES 1.2.3.4/24"),
    ("IPOutputCombo", "1, 1.2.3.4, 1500"),
    ("IPRewriter", "pattern 1.0.0.1 1024-65535# - - 0 0"),
    ("Pad", "9000"),
    ("RandomSample", "1"),
    ("SetEtherAddress", "0, 1:1:1:1:1:1"),
    ("SetIP6Address", "1::2"),
    ("SetIP6DSCP", "3"),
    ("SetIPAddress", "1.2.3.4"),
    ("SetIPDSCP", "3"),
    ("SetIPECN", "2"),
    ("SetRandIPAddress", "1.2.3.0/24"),
    ("StaticSwitch", "0"),
    ("StoreEtherAddress", "1:1:1:1:1:1, src"),
    ("StoreIPAddress", "1.2.3.4, 16"),
    ("TCPRewriter", "pattern 1.0.0.1 1024-65535# - - 0 0"),
    ("Truncate", "900"),
    ("UDPRewriter", "pattern 1.0.0.1 1024-65535# - - 0 0"),
];

/// Classes that count packets or treat whole packets, so that segments are treated differently.
const COUNT: &[&str] = &[
    "AggregateFirst",
    "AggregateLast",
    "BandwidthShaper",
    "CheckNumberPacket",
    "IDSMatcher",
    "MultiReplayUnqueue",
    "ReplayUnqueue",
    "Shaper",
];

/// Classes that require an Ethernet header, since they write to it.
const ETHERNET: &[&str] = &["EtherMirror", "EtherRewrite", "StoreEtherAddress"];
/// Classes that treat every packet as IPv6.
const SIX: &[&str] = &["DecIP6HLIM", "SetIP6DSCP"];

/// A frame as sent by a guest.
#[derive(Clone, Debug)]
struct Given {
    bytes: Vec<u8>,
    offload: Offload,
    /// Whether the frame begins with its network header.
    bare: bool,
}

thread_local! {
    static GIVEN: RefCell<Vec<Given>> = RefCell::default();
    pub(super) static KEPT: RefCell<Vec<Vec<u8>>> = RefCell::default();
}

static SOURCE: Class = Class::new("Given", || Box::new(GivenSource)).ports("0/1").processing("h");
pub(super) static SINK: Class =
    Class::new("Kept", || Box::new(Kept)).ports("1/0").processing("h").metadata(Metadata::Resolve);

struct GivenSource;

impl Element for GivenSource {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        cx.new_task(true);
        Ok(())
    }

    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.complete()
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        for given in GIVEN.with_borrow(Vec::clone) {
            let mut packet = cx.packet(&given.bytes).unwrap();
            packet.set_offload(given.offload).unwrap();
            place(&mut packet, given.bare);
            cx.push(0, packet);
        }
        true
    }
}

fn place(packet: &mut Packet, bare: bool) {
    let l4 = if packet.data()[14] >> 4 == 6 { 40 } else { 20 };
    packet.set_mac_header(0);
    packet.set_network_header(14, l4);
    if bare {
        packet.pull(14);
    }
}

struct Kept;

impl Element for Kept {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.drain() {
            assert!(!packet.has_offload());
            KEPT.with_borrow_mut(|kept| kept.push(packet.data().to_vec()));
        }
    }
}

/// TCP or UDP over either IP version; with a `size`, to be segmented.
fn given() -> impl Strategy<Value = Given> {
    let payload = prop::collection::vec(any::<u8>(), 60..3000);
    let size = prop_oneof![Just(0u16), 200u16..1500];
    (any::<[bool; 3]>(), size, payload).prop_map(|([six, udp, bare], size, payload)| {
        let behind = if udp { 8 } else { 20 } + payload.len();
        let [high, low] = (behind as u16).to_be_bytes();
        let protocol = if udp { 17 } else { 6 };
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let [from, to] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(5, 6, 7, 8)];
        let pseudo = if six {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, high, low, protocol, 64]);
            let [from, to] = [from.to_ipv6_mapped(), to.to_ipv6_mapped()];
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            Sum::pseudo_v6(from, to, protocol, behind as u32)
        } else {
            let [high, low] = (20 + behind as u16).to_be_bytes();
            bytes.extend([8, 0, 0x45, 0, high, low, 0, 9, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            let sum = ringway_wire::checksum::checksum(&bytes[14..]).to_be_bytes();
            bytes[24..26].copy_from_slice(&sum);
            Sum::pseudo_v4(from, to, protocol, behind as u16)
        };
        let (l4, [one, two]) = (bytes.len() as u16, pseudo.value().to_be_bytes());
        bytes.extend([4, 0, 0, 80]);
        let field = if udp {
            bytes.extend([high, low, one, two]);
            6
        } else {
            bytes.extend([0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 1, 2, one, two, 0, 0]);
            16
        };
        bytes.extend(payload);
        let gso_type = match (size, udp, six) {
            (0, _, _) => 0,
            (_, true, _) => 5,
            (_, false, true) => 4,
            (_, false, false) => 1,
        };
        Given { bytes, offload: Offload { gso_type, gso_size: size, ..Offload::checksum(l4, field) }, bare }
    })
}

/// The frames that `pool.complete` makes of the given ones, without offloads.
fn completed(all: &[Given]) -> Vec<Given> {
    let (pool, mut done) = (Pool::new(), Vec::new());
    for given in all {
        let mut packet = pool.copy(&given.bytes).unwrap();
        packet.set_offload(given.offload).unwrap();
        let made = |packet: Packet| {
            done.push(Given { bytes: packet.data().to_vec(), offload: Offload::default(), ..given.clone() });
        };
        pool.complete(packet, made).unwrap();
    }
    done
}

/// How an element is run: whether its inputs and outputs are pull, and whether it has the maximum number of ports.
#[derive(Clone, Copy, Debug)]
struct Way {
    pulls: bool,
    pulled: bool,
    most: bool,
}

fn ways() -> impl Iterator<Item = Way> {
    (0..8).map(|way| Way { pulls: way & 1 > 0, pulled: way & 2 > 0, most: way & 4 > 0 })
}

/// The frames that are suitable for a class.
fn suited(class: &Class, given: &[Given]) -> Vec<Given> {
    let mut given = given.to_vec();
    if ETHERNET.contains(&class.name) {
        given.iter_mut().for_each(|given| given.bare = false);
    }
    given.retain(|given| !SIX.contains(&class.name) || given.bytes[14] >> 4 == 6);
    given
}

fn configuration(class: &Class, way: Way) -> String {
    let arguments = MORE.iter().chain(ARGUMENTS).find(|(name, _)| *name == class.name);
    let (inputs, outputs) = sides(class, way.most);
    let mut text = format!("e :: {}({});\n", class.name, arguments.map_or("", |(_, text)| text));
    for input in 0..inputs {
        let from = if input == 0 { "Given" } else { "Idle" };
        let queue = if way.pulls { "Queue ->" } else { "" };
        let _ = writeln!(text, "{from} -> {queue} [{input}] e;");
    }
    for output in 0..outputs {
        let _ = writeln!(text, "e [{output}] -> {} Kept;", if way.pulled { "Unqueue ->" } else { "" });
    }
    text
}

/// The output of an element, if it can be built.
fn through(class: &Class, way: Way, burst: usize, given: &[Given]) -> Option<Vec<Vec<u8>>> {
    let text = configuration(class, way);
    let parsed = Source::new(&text, "config").read(&mut Anything);
    let options = Options::simulated(burst, Recorder::default(), &text);
    let mut registry = ringway_elements::registry();
    registry.add(&[&SOURCE, &SINK]);
    GIVEN.set(given.to_vec());
    KEPT.take();
    let mut router = Router::build(parsed.graph, &registry, options).ok()?;
    for _ in 0..200 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            break;
        }
    }
    assert_eq!(router.incomplete(), 0, "{}", class.name);
    Some(KEPT.take())
}

fn compare(class: &Class, burst: usize, given: &[Given]) {
    let completed = completed(given);
    for way in ways() {
        let Some(mut kept) = through(class, way, burst, given) else { continue };
        let Some(mut expected) = through(class, way, burst, &completed) else { continue };
        if class.metadata != Metadata::Resolve {
            kept.sort();
            expected.sort();
        }
        let first = kept.iter().zip(&expected).position(|(one, other)| one != other);
        let (count, right) = (kept.len(), expected.len());
        let name = class.name;
        assert!(kept == expected, "{name}, {way:?}: {count} packets, {right} expected; {first:?} is wrong");
    }
}

proptest! {
    // The seed is fixed: an element that misinterprets a packet may change how the rest is read.
    #![proptest_config(ProptestConfig { cases: 6, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn packets_are_completed_for_elements_that_need_it(
        given in prop::collection::vec(given(), 1..4),
        burst in prop::sample::select(vec![1usize, 7, 64]),
    ) {
        for class in ringway_elements::registry().iter().filter(|class| !COUNT.contains(&class.name)) {
            compare(class, burst, &suited(class, &given));
        }
    }
}

#[test]
fn most_elements_are_compared() {
    let registry = ringway_elements::registry();
    let (mut built, mut missing) = (0, Vec::new());
    for class in registry.iter().filter(|class| sides(class, true).0 > 0) {
        let through = ways().any(|way| through(class, way, 64, &[]).is_some());
        built += usize::from(through);
        missing.extend((!through).then_some(class.name));
    }
    assert!(missing.len() * 6 < built, "{built} compared, not {missing:?}");
}
