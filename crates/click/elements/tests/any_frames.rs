//! Every element gets random frames and mutated headers, with the minimum number of ports and with many: none may
//! panic or emit more packets than it got, and each packet must be emitted or counted.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "any_frames/changes.rs"]
mod changes;
#[path = "any_frames/configuration.rs"]
mod configuration;
#[path = "any_frames/late.rs"]
mod late;
#[path = "any_frames/marks.rs"]
mod marks;
#[path = "any_frames/offload.rs"]
mod offload;

use configuration::{configuration, sides};

use proptest::prelude::*;
use ringway_click::{Class, Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};

/// Elements that create packets, or several from one.
const MULTIPLY: &[&str] = &[
    "IP6NDSolicitor",
    "IPFragmenter",
    "ICMPSendPings",
    "ICMPPingSource",
    "ARPFaker",
    "ARPQuerier",
    "ARPTable",
    "MultiReplayUnqueue",
    "ReplayUnqueue",
    "Duplicate",
    "EtherSpanTree",
    "EtherSwitch",
    "FastTCPFlows",
    "FastUDPFlows",
    "FastUDPSource",
    "FlowMonitor",
    "IP6Fragmenter",
    "IPHealthCheck",
    "PPPoEServer",
    "Hub",
    "InfiniteSource",
    "ListenEtherSwitch",
    "PullTee",
    "ToyTCP",
    "WebGen",
    "RatedSource",
    "Tee",
    "TimedSource",
    "EtherPauseSource",
    "RandomSource",
    "TCPFragmenter",
];

/// Elements that count dropped or stored packets, by these handlers; all others emit what they got, if all their
/// outputs are connected.
const ACCOUNTS: &[(&str, &[&str])] = &[
    ("AddressTranslator", &["drops"]),
    ("AggregateIPFlows", &["length"]),
    ("AggregateLast", &["count"]),
    ("DirectIPLookup", &["drops"]),
    ("Discard", &["count"]),
    ("EtherRewrite", &["drops"]),
    ("ICMP6Error", &["drops"]),
    ("ICMPError", &["drops"]),
    ("ICMPPingRewriter", &["drops"]),
    ("ICMPRewriter", &["drops"]),
    ("Idle", &["count"]),
    ("InputSwitch", &["drops"]),
    ("IP6NDAdvertiser", &["drops"]),
    ("IPAddrPairRewriter", &["drops"]),
    ("IPAddrRewriter", &["drops"]),
    ("IPClassifier", &["drops"]),
    ("IPFilter", &["drops"]),
    ("IPInputCombo", &["drops"]),
    ("IPOutputCombo", &["drops"]),
    ("IPReassembler", &["length", "merged", "drops"]),
    ("IPOut", &["drops"]),
    ("IPRewriter", &["drops"]),
    ("LinearIPLookup", &["drops"]),
    ("LinkEmulator", &["drops", "size"]),
    ("LookupIP6Route", &["drops"]),
    ("LookupIPRouteMP", &["drops"]),
    ("MarkIPCE", &["drops"]),
    ("PPPoEConcentrator", &["spoofed", "limited", "malformed"]),
    ("ProtocolTranslator46", &["drops"]),
    ("ProtocolTranslator64", &["drops"]),
    ("RadixIPLookup", &["drops"]),
    ("RangeIPLookup", &["drops"]),
    ("SetIPChecksum", &["drops"]),
    ("SetTCPChecksum", &["drops"]),
    ("SimpleIdle", &["count"]),
    ("SortedIPLookup", &["drops"]),
    ("StaticIPLookup", &["drops"]),
    ("StaticSwitch", &["drops"]),
    ("StoreTimestamp", &["drops"]),
    ("Switch", &["drops"]),
    ("TCPRewriter", &["drops"]),
    ("TimedSink", &["count"]),
    ("UDPRewriter", &["drops"]),
    ("StoreUDPTimeSeqRecord", &["drops"]),
];

/// Seeds of frames, which are then mutated.
fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let arp = "ffffffffffff0200000000010806000108000604000102000000000101020304000000000000050607080000";
    let udp = "0200000000020200000000010800450000200001000040110000010203040506070800050006000c\
        00000102030405060708";
    let tcp = "02000000000202000000000108004600003000012000400600000102030405060708010101000050\
        0051000000010000000250020000000000000102";
    let six = "02000000000202000000000186dd6000000000083a40fe8000000000000000000000000000012001\
        0db80000000000000000000000018000000000010001";
    let tag = "02000000000202000000000181000005080045000020000100004001000001020304050607080000\
        0000000c0000";
    let vxlan = "02000000000202000000000108004500004200001000401100000102030405060708c00012b5002e0000\
        0800000000004d0002000000000202000000000108004500001c0000000040110000";
    let gre = "02000000000202000000000108004500003800001000402f00000102030405060708a0000800f00d0000\
        000000074500001c00000000401100000a0000010a00000200070009";
    let session = "0200000000020200000000028864110001020016002145000014000000004001000001020304\
        050607080000";
    let discovery = "020000000002020000000001886311190000000c010100000104000461626364";
    let link = "020000000002020000000001886411000102000cc0210101000601020304";
    let seeds = [arp, udp, tcp, six, tag, vxlan, gre, session, discovery, link];
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|text| bytes(text)).collect();
    let seed = prop_oneof![prop::sample::select(seeds), prop::collection::vec(any::<u8>(), 0..120),];
    let changed =
        (seed, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), any::<u8>());
    let changed = changed.prop_map(|(mut frame, changes, cut)| {
        for (at, byte) in changes {
            if !frame.is_empty() {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
        }
        if cut < 80 {
            frame.truncate(cut.into());
        }
        frame
    });
    prop::collection::vec(changed, 1..8)
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn build(text: &str, burst: usize) -> Option<Router> {
    let parsed = Source::new(text, "config").read(&mut Anything);
    let options = Options::simulated(burst, Recorder::default(), text);
    Router::build(parsed.graph, &ringway_elements::registry(), options).ok()
}

fn number(router: &mut Router, handler: &str) -> u64 {
    router.read(handler).unwrap().trim().parse().unwrap()
}

/// Number of packets in and out.
fn counts(router: &mut Router, class: &Class, most: bool) -> (u64, u64) {
    let (inputs, outputs) = sides(class, most);
    let mut sum = |name: &str, ports: usize| {
        (0..ports).map(|port| number(router, &format!("{name}{port}.count"))).sum::<u64>()
    };
    (sum("in", inputs), sum("out", outputs))
}

fn turns(router: &mut Router) {
    for _ in 0..200 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            break;
        }
    }
}

/// Checks that each packet was emitted, or counted as dropped or stored.
fn check_accounts(router: &mut Router, class: &Class) {
    let (got, gave) = counts(router, class, true);
    let own = ACCOUNTS.iter().find(|(name, _)| *name == class.name).map_or(&[][..], |(_, own)| own);
    let kept: u64 = own.iter().map(|handler| number(router, &format!("e.{handler}"))).sum();
    assert_eq!(
        got,
        gave + kept,
        "{}: packets in; packets out and counted as dropped or stored: add its handlers that count these \
         to ACCOUNTS, or, if it creates packets, its name to MULTIPLY",
        class.name
    );
}

/// Runs an element for some time; false if it could not be built.
fn run(class: &Class, pull: bool, most: bool, burst: usize, frames: &[Vec<u8>]) -> bool {
    let Some(mut router) = build(&configuration(class, pull, most, frames), burst) else { return false };
    turns(&mut router);
    let multiplies = MULTIPLY.contains(&class.name);
    if !multiplies && most {
        check_accounts(&mut router, class);
    }
    let id = router.find("e").unwrap();
    for handler in router.handlers(Some(id)) {
        if handler.readable && !handler.read_private {
            let _ = router.read(&format!("e.{}", handler.name));
        }
        if handler.writable && !handler.write_private {
            let _ = router.write(&format!("e.{} -1", handler.name));
        }
    }
    let (got, gave) = counts(&mut router, class, most);
    assert!(multiplies || gave <= got, "{}: {gave} packets of {got}", class.name);
    true
}

#[test]
fn every_element_is_covered_by_these_tests() {
    let registry = ringway_elements::registry();
    let frames = [vec![0; 60]];
    let built = |class: &Class| run(class, false, false, 1, &frames) || run(class, true, false, 1, &frames);
    let left: Vec<&str> = registry.iter().filter(|class| !built(class)).map(|class| class.name).collect();
    // These prevent a router from being built.
    let expected = ["Error", "Message"];
    assert_eq!(left, expected, "add the others' arguments to ARGUMENTS in any_frames/configuration.rs");
}

/// An LLRPC: numbers in Click's encoding of a small number and a size, those of Switch, and random ones.
fn call() -> impl Strategy<Value = (u32, Vec<u8>)> {
    let made =
        (0..4u32, 0..0x1000u32, 0..64u32).prop_map(|(way, size, own)| way << 30 | size << 16 | 0x4000 | own);
    let command = prop_oneof![Just(0x4004_c005), Just(0x8004_4006), made, any::<u32>()];
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 4), prop::collection::vec(any::<u8>(), 0..70)];
    (command, data)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_causes_a_panic(frames in frames(), burst in prop::sample::select(vec![1usize, 7, 64])) {
        for class in ringway_elements::registry().iter() {
            for most in [false, true] {
                if !run(class, false, most, burst, &frames) {
                    run(class, true, most, burst, &frames);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn no_handler_call_causes_a_panic(frames in frames(), calls in prop::collection::vec(call(), 1..12)) {
        for class in ringway_elements::registry().iter() {
            let texts = [false, true].map(|pull| configuration(class, pull, true, &frames));
            let Some(mut router) = texts.iter().find_map(|text| build(text, 1)) else { continue };
            let id = router.find("e").unwrap();
            for (command, data) in &calls {
                let answer = router.call_llrpc(id, *command, data);
                prop_assert!(answer.is_err() || class.name == "Switch", "{}: {command:x}", class.name);
            }
            turns(&mut router);
        }
    }
}
