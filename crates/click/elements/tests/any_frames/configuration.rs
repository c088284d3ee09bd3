//! A configuration for each element class, for tests of all of them.
use ringway_click::Class;
use std::fmt::Write;

/// Arguments of elements that require some.
pub const ARGUMENTS: &[(&str, &str)] = &[
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
    ("CheckARPHeader", "DETAILS true"),
    ("CheckICMPHeader", "DETAILS true"),
    ("CheckIPHeader", "DETAILS true"),
    ("CheckIPHeader2", "DETAILS true"),
    ("CheckTCPHeader", "DETAILS true"),
    ("CheckUDPHeader", "DETAILS true"),
    ("CheckLength", "60"),
    ("CheckPaint", "1"),
    ("CheckNumberPacket", "COUNT 100"),
    ("Classifier", "12/0800"),
    ("Clipboard", "3/4, 60/9"),
    ("DelayShaper", "1ms"),
    ("DelayUnqueue", "1ms"),
    ("EtherEncap", "0x800, 1:1:1:1:1:1, 2:2:2:2:2:2"),
    ("EtherRewrite", "1:1:1:1:1:1, 2:2:2:2:2:2"),
    ("EtherSpanTree", "1:1:1:1:1:1, before, behind, other"),
    ("EtherVLANEncap", "0x800, 1:1:1:1:1:1, 2:2:2:2:2:2, VLAN_ID 5"),
    ("FastTCPFlows", "0, 3, 60, 1:1:1:1:1:1, 1.2.3.4, 2:2:2:2:2:2, 5.6.7.8, 9, 9"),
    ("FastUDPFlows", "0, 3, 60, 1:1:1:1:1:1, 1.2.3.4, 2:2:2:2:2:2, 5.6.7.8, 9, 9"),
    ("FastUDPSource", "0, 3, 60, 1:1:1:1:1:1, 1.2.3.4, 5, 2:2:2:2:2:2, 5.6.7.8, 9"),
    ("FixIPSrc", "1.2.3.4"),
    ("FlowStrip", "14"),
    ("FlowUnstrip", "14"),
    ("FTPPortMapper", "other, other, 0"),
    ("GetEtherAddress", "0, src"),
    ("GetIP6Address", "24"),
    ("GetIPAddress", "16"),
    ("GREEncap", "1.2.3.4, 5.6.7.8, KEY 7, CHECKSUM true"),
    ("GTPEncap", "22"),
    ("HashSwitch", "26, 8"),
    ("HostEtherFilter", "2:0:0:0:0:2"),
    ("ICMP6Error", "fe80::1, 1, 0"),
    ("ICMPError", "1.2.3.4, 11, 0"),
    ("ICMPIPEncap", "1.2.3.4, 5.6.7.8, 3, 1"),
    ("ICMPPingEncap", "1.2.3.4, 5.6.7.8"),
    ("ICMPPingSource", "1.2.3.4, 5.6.7.8, LIMIT 3"),
    ("ICMPRewriter", "other"),
    ("ICMPSendPings", "1.2.3.4, 5.6.7.8, LIMIT 3"),
    ("IDSMatcher", "abc, \\<0102030405>, \\<00>, FLOWS 8"),
    ("IDSRules", "alert ip any any -> any any (content:\"abc\"; sid:1;), FLOWS 8"),
    ("IP6Encap", "17, fe80::1, fe80::2"),
    ("IP6Fragmenter", "1280"),
    ("IP6NDSolicitor", "fe80::1, 1:1:1:1:1:1"),
    ("IPEncap", "6, 1.2.3.4, 5.6.7.8"),
    ("IPFragmenter", "40"),
    ("IPGWOptions", "1.2.3.4"),
    ("IPHealthCheck", "other, 5.6.7.8"),
    ("IPInputCombo", "1"),
    ("IPLoadBalancer", "5.6.7.8, 10.0.0.1, 10.0.0.2, CAPACITY 3"),
    ("IPOutputCombo", "1, 1.2.3.4, 40"),
    ("LinkEmulator", "1MBps, 1ms"),
    ("LinkUnqueue", "1ms, 1MBps"),
    ("MoveData", "0, 20, 4"),
    ("Paint", "1"),
    ("PaintTee", "1"),
    ("PortBlockMapper", "10.0.0.0/24, 9.9.9.9, 0, 0"),
    ("PPPoEConcentrator", "02:00:00:00:00:02, 02:00:00:00:00:02 0x0102 1.2.3.4 1Mbps"),
    (
        "PPPoEServer",
        "other, 10.0.0.1, 10.0.0.0/24, USER a:b, RADIUS 1.2.3.4, SRC 5.6.7.8, SECRET x, PER_HOST 2",
    ),
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
    ("StoreFlowID", "9"),
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
    ("TCPFragmenter", "MTU 48"),
    ("TimestampDiff", "other"),
    ("ToyTCP", "80"),
    ("UDPIP6Encap", "fe80::1, 5, fe80::2, 6"),
    ("WebGen", "10.0.0.0/8, 1.2.3.4, 10"),
];

/// Another element that some elements require.
const OTHERS: &[(&str, &str)] = &[
    (
        "EtherSpanTree",
        "Idle -> before :: Suppressor -> Idle; Idle -> behind :: Suppressor -> Idle; \
         Idle -> other :: EtherSwitch -> Idle; Idle -> [1] other [1] -> Idle",
    ),
    ("FTPPortMapper", "Idle -> other :: TCPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0) -> Idle"),
    ("RED", "Idle -> other :: Queue -> Idle"),
    ("IPHealthCheck", "Idle -> other :: IPLoadBalancer(5.6.7.8, 10.0.0.1) -> Idle"),
    (
        "PPPoEServer",
        "Idle -> other :: PPPoEConcentrator(02:00:00:00:00:02) -> Discard; Idle -> [1] other [1] -> Discard",
    ),
    ("ICMPRewriter", "Idle -> other :: IPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0) -> Idle"),
    ("AdaptiveRED", "Idle -> other :: Queue -> Idle"),
    ("SpinlockAcquire", "SpinlockInfo(lock)"),
    ("SpinlockPush", "SpinlockInfo(lock)"),
    ("SpinlockRelease", "SpinlockInfo(lock)"),
    ("TimestampDiff", "Idle -> other :: RecordTimestamp -> Idle"),
];

/// The minimum or maximum number of a class's ports on one side; three if unlimited.
fn ports(code: &str, most: bool) -> usize {
    let code = code.trim_matches(['=', '+']);
    let (least, last) = code.split_once('-').unwrap_or((code, code));
    let least = least.parse().unwrap_or(1);
    if most { last.parse().unwrap_or(3).max(least) } else { least }
}

/// Numbers of a class's inputs and outputs.
pub fn sides(class: &Class, most: bool) -> (usize, usize) {
    let (inputs, outputs) = class.ports.split_once('/').unwrap_or((class.ports, class.ports));
    let inputs = ports(inputs, most);
    let more = outputs.matches('+').count();
    (inputs, if outputs.starts_with('=') { inputs + more } else { ports(outputs, most) })
}

/// The arguments with which a class is tested.
pub fn arguments(class: &Class, most: bool) -> String {
    let of = |list: &'static [(&str, &str)]| list.iter().find(|(name, _)| *name == class.name);
    let (inputs, outputs) = sides(class, most);
    match class.name {
        "IPClassifier" => vec!["tcp"; outputs].join(", "),
        // One for each input.
        "ICMPPingRewriter" => vec!["pattern 9.9.9.9 - 0-65535 0 0", "drop", "pass"][..inputs].join(", "),
        "IPAddrRewriter" | "IPAddrPairRewriter" => {
            vec!["pattern 9.9.9.9 - 0 0", "drop", "keep 0 0"][..inputs].join(", ")
        }
        "IPRewriter" | "TCPRewriter" | "UDPRewriter" => {
            vec!["pattern 9.9.9.9 1024-65535 - - 0 0", "drop", "pass"][..inputs].join(", ")
        }
        "StrideSched" => vec!["3"; inputs].join(", "),
        "StrideSwitch" => vec!["3"; outputs].join(", "),
        // One fewer than outputs.
        "Meter" | "BandwidthMeter" => ["100", "200"][..outputs - 1].join(", "),
        _ => of(ARGUMENTS).map_or(String::new(), |(_, text)| (*text).to_string()),
    }
}

/// A configuration that passes frames through one element.
pub fn configuration(class: &Class, pull: bool, most: bool, frames: &[Vec<u8>]) -> String {
    let of = |list: &'static [(&str, &str)]| list.iter().find(|(name, _)| *name == class.name);
    let (inputs, outputs) = sides(class, most);
    let arguments = arguments(class, most);
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
