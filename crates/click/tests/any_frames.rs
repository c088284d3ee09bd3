//! Every element is given random frames and mutated headers, at as few ports as it can have and at many:
//! none may panic or give more packets than it got, and what it got it gives or counts.
#![allow(clippy::unwrap_used)]

#[path = "any_frames/offload.rs"]
mod offload;

use proptest::prelude::*;
use ringway_click::{Class, Options, Recorder, Registry, Router, Turn};
use ringway_click_lang::{Anything, Source};
use std::fmt::Write;

/// Arguments for elements that need some.
const ARGUMENTS: &[(&str, &str)] = &[
    ("AddressTranslator", "0, true, true, false, 2001:db8::9 7 8"),
    ("AdjustTimestamp", "1s"),
    ("AggregateFilter", "0 5-10, 0 0, drop all"),
    ("AggregateIP", "tcp dport & 0xff0"),
    ("Align", "4, 0"),
    ("ARPFaker", "1.2.3.4, 1:1:1:1:1:1, 5.6.7.8, 2:2:2:2:2:2"),
    ("ARPQuerier", "1.2.3.4, 1:1:1:1:1:1"),
    ("BandwidthRatedSplitter", "1MBps"),
    ("BandwidthRatedUnqueue", "1MBps"),
    ("BandwidthShaper", "1MBps"),
    ("Block", "10"),
    ("Burster", "1ms, 4"),
    ("CheckLength", "60"),
    ("CheckPaint", "1"),
    ("Classifier", "12/0800"),
    ("Clipboard", "3/4, 60/9"),
    ("DelayShaper", "1ms"),
    ("DelayUnqueue", "1ms"),
    ("EtherEncap", "0x800, 1:1:1:1:1:1, 2:2:2:2:2:2"),
    ("EtherRewrite", "1:1:1:1:1:1, 2:2:2:2:2:2"),
    ("EtherVLANEncap", "0x800, 1:1:1:1:1:1, 2:2:2:2:2:2, VLAN_ID 5"),
    ("FastTCPFlows", "0, 3, 60, 1:1:1:1:1:1, 1.2.3.4, 2:2:2:2:2:2, 5.6.7.8, 9, 9"),
    ("FastUDPFlows", "0, 3, 60, 1:1:1:1:1:1, 1.2.3.4, 2:2:2:2:2:2, 5.6.7.8, 9, 9"),
    ("FastUDPSource", "0, 3, 60, 1:1:1:1:1:1, 1.2.3.4, 5, 2:2:2:2:2:2, 5.6.7.8, 9"),
    ("FixIPSrc", "1.2.3.4"),
    ("FTPPortMapper", "other, other, 0"),
    ("GetEtherAddress", "0, src"),
    ("GetIP6Address", "24"),
    ("GetIPAddress", "16"),
    ("GREEncap", "1.2.3.4, 5.6.7.8, KEY 7, CHECKSUM true"),
    ("HashSwitch", "26, 8"),
    ("HostEtherFilter", "2:0:0:0:0:2"),
    ("ICMP6Error", "fe80::1, 1, 0"),
    ("ICMPError", "1.2.3.4, 11, 0"),
    ("ICMPIPEncap", "1.2.3.4, 5.6.7.8, 3, 1"),
    ("ICMPPingEncap", "1.2.3.4, 5.6.7.8"),
    ("ICMPPingSource", "1.2.3.4, 5.6.7.8, LIMIT 3"),
    ("ICMPRewriter", "other"),
    ("ICMPSendPings", "1.2.3.4, 5.6.7.8, LIMIT 3"),
    ("IDSMatcher", "abc, \\<0102030405>, \\<00>"),
    ("IP6Encap", "17, fe80::1, fe80::2"),
    ("IP6Fragmenter", "1280"),
    ("IP6NDSolicitor", "fe80::1, 1:1:1:1:1:1"),
    ("IPEncap", "6, 1.2.3.4, 5.6.7.8"),
    ("IPFragmenter", "40"),
    ("IPGWOptions", "1.2.3.4"),
    ("IPInputCombo", "1"),
    ("IPLoadBalancer", "5.6.7.8, 10.0.0.1, 10.0.0.2, CAPACITY 3"),
    ("IPOutputCombo", "1, 1.2.3.4, 40"),
    ("LinkUnqueue", "1ms, 1MBps"),
    ("Paint", "1"),
    ("PaintTee", "1"),
    ("PPPoEConcentrator", "02:00:00:00:00:02, 02:00:00:00:00:02 0x0102 1.2.3.4 1Mbps"),
    ("PPPoEEncap", "1:1:1:1:1:1, 2:2:2:2:2:2, 258"),
    ("RandomBitErrors", "0.01"),
    ("RandomSample", "0.5"),
    ("RatedSplitter", "1000"),
    ("RatedUnqueue", "1000"),
    ("RED", "0, 3, 0.5, QUEUES other"),
    ("Resize", "4, -8"),
    ("RoundRobinIPMapper", "9.9.9.9 - - - 0 0"),
    ("SetEtherAddress", "1:1:1:1:1:1, 12"),
    ("SetIP6Address", "fe80::1"),
    ("SetIP6DSCP", "3"),
    ("SetIPAddress", "1.2.3.4"),
    ("SetIPDSCP", "3"),
    ("SetIPECN", "2"),
    ("SetRandIPAddress", "1.0.0.0/8"),
    ("Shaper", "1000"),
    ("SourceIPHashMapper", "5 7, 9.9.9.9 - - - 0 0 1"),
    ("StaticPullSwitch", "0"),
    ("StaticSwitch", "0"),
    ("StoreData", "9, \\<010203>"),
    ("StoreEtherAddress", "1:1:1:1:1:1, src"),
    ("StoreIPAddress", "1.2.3.4, 12"),
    ("StoreTimestamp", "OFFSET 20"),
    ("StrideSched", "3"),
    ("Strip", "14"),
    ("TimedUnqueue", "1ms, 4"),
    ("Truncate", "30"),
    ("UDPIPEncap", "1.2.3.4, 5, 6.7.8.9, 10"),
    ("Unstrip", "14"),
    ("VXLANEncap", "1.2.3.4, 5.6.7.8, 77"),
    ("AdaptiveRED", "3, QUEUES other"),
    ("CompareBlock", "5, 2, 100"),
    ("DynamicUDPIPEncap", "1.2.3.4, 5, 6.7.8.9, 10, true, 1"),
    ("EtherPauseSource", "1:1:1:1:1:1, 5, LIMIT 3"),
    ("RandomSource", "60, LIMIT 3"),
    ("SetAnnoByte", "16, 7"),
    ("SetPacketType", "BROADCAST"),
    ("SpinlockAcquire", "lock"),
    ("SpinlockPush", "lock"),
    ("SpinlockRelease", "lock"),
    ("TCPFragmenter", "8"),
    ("TimestampDiff", "other"),
    ("UDPIP6Encap", "fe80::1, 5, fe80::2, 6"),
];

/// Another element that some need.
const OTHERS: &[(&str, &str)] = &[
    ("FTPPortMapper", "Idle -> other :: TCPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0) -> Idle"),
    ("RED", "Idle -> other :: Queue -> Idle"),
    ("ICMPRewriter", "Idle -> other :: IPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0) -> Idle"),
    ("AdaptiveRED", "Idle -> other :: Queue -> Idle"),
    ("SpinlockAcquire", "SpinlockInfo(lock)"),
    ("SpinlockPush", "SpinlockInfo(lock)"),
    ("SpinlockRelease", "SpinlockInfo(lock)"),
    ("TimestampDiff", "Idle -> other :: RecordTimestamp -> Idle"),
];

/// Elements that make several packets of one, or packets by themselves.
const MULTIPLY: &[&str] = &[
    "IP6NDSolicitor",
    "IPFragmenter",
    "ICMPSendPings",
    "ICMPPingSource",
    "ARPFaker",
    "ARPQuerier",
    "ARPTable",
    "ReplayUnqueue",
    "EtherSwitch",
    "FastTCPFlows",
    "FastUDPFlows",
    "FastUDPSource",
    "FlowMonitor",
    "IP6Fragmenter",
    "Hub",
    "InfiniteSource",
    "ListenEtherSwitch",
    "RatedSource",
    "Tee",
    "TimedSource",
    "EtherPauseSource",
    "RandomSource",
    "TCPFragmenter",
];

/// Elements that count what they drop or hold, by these handlers; all others give what they got, as long
/// as all their outputs are connected.
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
    ("IPRewriter", &["drops"]),
    ("LinearIPLookup", &["drops"]),
    ("LookupIP6Route", &["drops"]),
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

/// Frames each begin with one of these and are changed from there.
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
    let seeds = [arp, udp, tcp, six, tag, vxlan, gre, session];
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

/// How many ports of a side a class needs at least, or has at most; where it has any number, three.
fn ports(code: &str, most: bool) -> usize {
    let code = code.trim_matches(['=', '+']);
    let (least, last) = code.split_once('-').unwrap_or((code, code));
    let least = least.parse().unwrap_or(1);
    if most { last.parse().unwrap_or(3).max(least) } else { least }
}

/// A class's inputs and outputs.
fn sides(class: &Class, most: bool) -> (usize, usize) {
    let (inputs, outputs) = class.ports.split_once('/').unwrap_or((class.ports, class.ports));
    let inputs = ports(inputs, most);
    let more = outputs.matches('+').count();
    (inputs, if outputs.starts_with('=') { inputs + more } else { ports(outputs, most) })
}

/// A configuration in which frames go through one element.
fn configuration(class: &Class, pull: bool, most: bool, frames: &[Vec<u8>]) -> String {
    let of = |list: &'static [(&str, &str)]| list.iter().find(|(name, _)| *name == class.name);
    let (inputs, outputs) = sides(class, most);
    let arguments = match class.name {
        "IPClassifier" => vec!["tcp"; outputs].join(", "),
        // One for each input.
        "ICMPPingRewriter" => vec!["pattern 9.9.9.9 - 0-65535 0 0", "drop", "pass"][..inputs].join(", "),
        "IPAddrRewriter" | "IPAddrPairRewriter" => {
            vec!["pattern 9.9.9.9 - 0 0", "drop", "keep 0 0"][..inputs].join(", ")
        }
        "IPRewriter" | "TCPRewriter" | "UDPRewriter" => {
            vec!["pattern 9.9.9.9 1024-65535 - - 0 0", "drop", "pass"][..inputs].join(", ")
        }
        "StrideSwitch" => vec!["3"; outputs].join(", "),
        // One less than outputs.
        "Meter" | "BandwidthMeter" => ["100", "200"][..outputs - 1].join(", "),
        _ => of(ARGUMENTS).map_or(String::new(), |(_, text)| (*text).to_string()),
    };
    let other = of(OTHERS).map_or("", |(_, text)| text);
    let mut text = format!("e :: {}({arguments}); {other};\n", class.name);
    for input in 0..inputs {
        let _ = writeln!(
            text,
            "enter{input} :: Null -> {} in{input} :: Counter -> [{input}] e;",
            if pull { format!("q{input} :: Queue ->") } else { String::new() }
        );
        for frame in frames {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(
                text,
                "InfiniteSource(DATA \\<{hex}>, LIMIT 1) -> MarkIPHeader(14) -> enter{input};"
            );
        }
    }
    for output in 0..outputs {
        let _ = writeln!(text, "e [{output}] -> out{output} :: Counter -> Discard;");
    }
    text
}

fn build(text: &str, burst: usize) -> Option<Router> {
    let parsed = Source::new(text, "config").read(&mut Anything);
    let options = Options::simulated(burst, Recorder::default(), text);
    Router::build(parsed.graph, &Registry::default(), options).ok()
}

fn number(router: &mut Router, handler: &str) -> u64 {
    router.read(handler).unwrap().trim().parse().unwrap()
}

/// How many packets went in and came out.
fn counts(router: &mut Router, class: &Class, most: bool) -> (u64, u64) {
    let (inputs, outputs) = sides(class, most);
    let mut sum = |name: &str, ports: usize| {
        (0..ports).map(|port| number(router, &format!("{name}{port}.count"))).sum::<u64>()
    };
    (sum("in", inputs), sum("out", outputs))
}

/// Runs it for a while; false if it could not be built.
fn run(class: &Class, pull: bool, most: bool, burst: usize, frames: &[Vec<u8>]) -> bool {
    let Some(mut router) = build(&configuration(class, pull, most, frames), burst) else { return false };
    for _ in 0..200 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            break;
        }
    }
    let multiplies = MULTIPLY.contains(&class.name);
    let (got, gave) = counts(&mut router, class, most);
    if !multiplies && most {
        let own = ACCOUNTS.iter().find(|(name, _)| *name == class.name).map_or(&[][..], |(_, own)| own);
        let kept: u64 = own.iter().map(|handler| number(&mut router, &format!("e.{handler}"))).sum();
        assert_eq!(got, gave + kept, "{}: came in, went out and counted", class.name);
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
fn every_element_can_be_built_for_this() {
    let registry = Registry::default();
    let frames = [vec![0; 60]];
    let built = |class: &Class| run(class, false, false, 1, &frames) || run(class, true, false, 1, &frames);
    let left: Vec<&str> = registry.iter().filter(|class| !built(class)).map(|class| class.name).collect();
    // These are there to keep a router from being built.
    assert_eq!(left, ["Error", "Message"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_breaks_an_element(frames in frames(), burst in prop::sample::select(vec![1usize, 7, 64])) {
        for class in Registry::default().iter() {
            for most in [false, true] {
                if !run(class, false, most, burst, &frames) {
                    run(class, true, most, burst, &frames);
                }
            }
        }
    }
}
