use proptest::prelude::*;
use ringway_click::{Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};
use std::fmt::Write;

/// Elements for frames that begin with an Ethernet header.
const ETHERNET: &[&str] = &[
    "EtherRewrite(1:1:1:1:1:1, 2:2:2:2:2:2)",
    "EtherMirror",
    "EnsureEther",
    "VLANEncap(5)",
    "VLANDecap",
    "EtherVLANEncap(0x800, 1:1:1:1:1:1, 2:2:2:2:2:2, 7)",
    "StripEtherVLANHeader(-1)",
    "HostEtherFilter(2:2:2:2:2:2, true, true)",
    "GetEtherAddress(0, src)",
    "StoreEtherAddress(3:3:3:3:3:3, dst)",
    "CheckARPHeader(14)",
    "ARPPrint(x, ETHER true)",
    "ARPResponder(0/0 1:1:1:1:1:1)",
    "IPInputCombo(1)",
    "CheckIPHeader(14)",
    "CheckIP6Header(OFFSET 14)",
    "IP6NDAdvertiser(::/0 1:1:1:1:1:1)",
    "StripToNetworkHeader",
];

/// Elements for packets with a marked IPv4 header, which may be arbitrary.
const IP: &[&str] = &[
    "IPPrint(x, PAYLOAD hex)",
    "IPMirror",
    "DecIPTTL",
    "FixIPSrc(1.2.3.4)",
    "GetIPAddress(16)",
    "GetIPAddress(IP dst)",
    "StoreIPAddress(1.2.3.4, dst)",
    "StoreIPAddress(1.2.3.4, src)",
    "SetIPDSCP(5)",
    "SetIPECN(ce)",
    "MarkIPCE(true)",
    "SetIPChecksum",
    "IPGWOptions(1.2.3.4)",
    "IPReassembler",
    "TruncateIPPayload(3, true)",
    "StripIPHeader -> UnstripIPHeader",
    "CheckUDPHeader(DETAILS true)",
    "CheckTCPHeader",
    "CheckICMPHeader",
    "SetUDPChecksum",
    "SetTCPChecksum(true)",
    "ICMPPingResponder",
    "AggregateIPFlows(ICMP true)",
    "ICMPError(1.2.3.4, unreachable, needfrag)",
    "ICMPError(1.2.3.4, parameterproblem)",
    "IP6Mirror",
    "IP6Print(x, CONTENTS true)",
    "DecIP6HLIM",
    "ICMP6Error(::1, 1, 0)",
    "IP6Encap(udp, ::1, ::2)",
    "SetIP6DSCP(5)",
    "EnsureEther",
    "IPEncap(4, 1.2.3.4, DST_ANNO)",
    "UDPIPEncap(1.2.3.4, 1, 5.6.7.8, 2)",
    "ICMPPingEncap(1.2.3.4, 5.6.7.8)",
];

/// Configurations whose elements have push inputs.
const PUSHED: &[&str] = &[
    "{ input -> r :: UDPRewriter(pattern 1.2.3.4 1-99 - - 0 0) \
     -> ICMPError(5.5.5.5, unreachable) -> ICMPRewriter(r) -> output }",
    "{ input -> p :: ICMPPingRewriter(pattern 1.2.3.4 - 1-99 0 0) \
     -> ICMPError(5.5.5.5, unreachable) -> ICMPRewriter(p) -> output }",
    "{ input -> a :: IPAddrRewriter(pattern 1.2.3.4 - 0 0) \
     -> ICMPError(5.5.5.5, unreachable) -> ICMPRewriter(a) -> output }",
    "IPFragmenter(68, false)",
    "RadixIPLookup(0/0 0, 10/8 1.2.3.4 0)",
    "IPClassifier(tcp and dst port > 1000 or ip[6:2] & 0x1fff = 0 or udp[20:4] = 3)",
    "IPFilter(allow icmp type echo || src host 10.0.0.1, allow ip frag)",
];

fn configuration(frame: &[u8], at: usize) -> String {
    let mut text = String::from("s :: InfiniteSource(LIMIT 3, STOP true, DATA \\<");
    for byte in frame {
        let _ = write!(text, "{byte:02x}");
    }
    text.push_str(">) -> t :: Tee;\n");
    let mut port = 0;
    let mut branch = |before: &str, element: &str| {
        let _ = writeln!(text, "t[{port}] {before} -> {element} -> Discard;");
        port += 1;
    };
    let mark = format!("-> MarkIPHeader({at})");
    ETHERNET.iter().for_each(|element| branch("", element));
    ETHERNET.iter().for_each(|element| branch(&mark, element));
    IP.iter().chain(PUSHED).for_each(|element| branch(&mark, element));
    IP.iter().chain(PUSHED).for_each(|element| branch(&format!("{mark} -> Strip({at})"), element));
    IP.iter().chain(PUSHED).for_each(|element| branch("", element));
    let _ = writeln!(text, "t[{port}] {mark} -> q :: ARPQuerier(1.2.3.4/8, 1:1:1:1:1:1) -> Discard;");
    let _ = writeln!(text, "t[{}] -> [1] q; q[1] -> Discard;", port + 1);
    let _ = writeln!(text, "t[{}] {mark} -> n :: IP6NDSolicitor(::1, 1:1:1:1:1:1) -> Discard;", port + 2);
    let _ = writeln!(text, "t[{}] -> [1] n; n[1] -> Discard;", port + 3);
    let _ = writeln!(
        text,
        "t[{}] {mark} -> o :: IPOutputCombo(0, 1.2.3.4, 60) => Discard, Discard, Discard,",
        port + 4
    );
    text.push_str("Discard, Discard;\n");
    let _ = writeln!(
        text,
        "t[{}] -> e :: EtherSwitch -> Discard; t[{}] -> [1] e; e[1] -> Discard;",
        port + 5,
        port + 6
    );
    let _ = writeln!(text, "t[{}] -> l :: ListenEtherSwitch -> Discard; l[1] -> Discard;", port + 7);
    text
}

pub(super) fn run(text: &str, burst: usize) -> Router {
    let parsed = Source::new(text, "config").read(&mut Anything);
    assert_eq!(parsed.diagnostics.to_string(), "");
    let options = Options::simulated(burst, Recorder::default(), "");
    let built = Router::build(parsed.graph, &crate::registry(), options);
    let mut router = built.unwrap_or_else(|errors| panic!("{errors}"));
    while !matches!(router.turn(), Turn::Stopped | Turn::Idle) {}
    router
}

/// A valid initial frame: UDP, TCP with options, ICMP, a fragment, ARP or IPv6.
fn seeds() -> impl Strategy<Value = Vec<u8>> {
    let ether = [2u8, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1];
    let ip = |head: [u8; 10], rest: &[u8]| {
        [&ether[..], &[8, 0], &head, &[0, 0, 10, 0, 0, 1, 10, 0, 0, 2], rest].concat()
    };
    let options = [0x44, 8, 5, 0, 0, 0, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0];
    prop_oneof![
        Just(ip([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17], &[0, 9, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4])),
        Just(ip([0x49, 0, 0, 60, 0, 1, 0, 0, 64, 6], &[&options[..], &[0x50; 24]].concat())),
        Just(ip([0x45, 0, 0, 200, 0, 1, 0x20, 0, 1, 1], &[8; 180])),
        Just([&ether[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[7; 20]].concat()),
        Just([&ether[..], &[0x81, 0, 0, 5, 8, 0, 0x45], &[1; 40]].concat()),
        Just([&ether[..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255], &[3; 32], &[135; 24]].concat()),
        prop::collection::vec(any::<u8>(), 1..100),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn invalid_and_truncated_headers_panic_in_no_element(
        mut frame in seeds(),
        cut in 0usize..260,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        at in prop_oneof![Just(14usize), 0usize..40],
        burst in prop_oneof![Just(1usize), Just(3)],
    ) {
        frame.truncate(cut.max(1));
        for (index, byte) in changes {
            let index = index.index(frame.len());
            frame[index] = byte;
        }
        let mut router = run(&configuration(&frame, at), burst);
        prop_assert_eq!(router.read("s.count").unwrap(), "3");
    }
}

#[test]
fn a_filter_matches_its_patterns() {
    let frame = "4500001d 00000000 40110000 0a000001 0a000002 04000050 00090000 00";
    let cases = [
        ("udp", true),
        ("tcp", false),
        ("src port 1024 and dst port www", true),
        ("src port > 1024", false),
        ("src port >= 1024", true),
        ("dst port < 80 or 443", false),
        ("src host 10.0.0.1 && dst net 10.0.0.0/24", true),
        ("host 10.0.0.3", false),
        ("not (src 10.0.0.1 and udp)", false),
        ("ip len = 29 && ip ttl > 63 && ip unfrag", true),
        ("udp[2:2] & 0xfff0 = 0x50", true),
        ("tcp ? false : udp ? true : false", true),
        ("udp[12:4] = 0", false),
        ("ip proto 17 and ! frag", true),
    ];
    for (pattern, expected) in cases {
        let text = format!(
            "InfiniteSource(LIMIT 1, STOP true, DATA \\<{frame}>) -> MarkIPHeader
                -> c :: IPClassifier({pattern}, -) -> yes :: Discard; c[1] -> Discard;"
        );
        let count = run(&text, 1).read("yes.count").unwrap();
        assert_eq!(count, if expected { "1" } else { "0" }, "{pattern}");
    }
}

/// The counts of three sinks after an element that gets six packets with an address and a port each.
fn shares(element: &str) -> [String; 3] {
    let text = format!(
        "InfiniteSource(LIMIT 6, STOP true, DATA \\<0102>) -> s :: {element} -> a :: Counter -> d :: Discard;
            s[1] -> b :: Counter -> d; s[2] -> c :: Counter -> d;"
    );
    let mut router = run(&text, 2);
    ["a.count", "b.count", "c.count"].map(|name| router.read(name).unwrap())
}

#[test]
fn switches_choose_the_configured_output() {
    assert_eq!(shares("RoundRobinSwitch"), ["2", "2", "2"]);
    assert_eq!(shares("StaticSwitch(1)"), ["0", "6", "0"]);
    assert_eq!(shares("StaticSwitch(-1)"), ["0", "0", "0"]);
    assert_eq!(shares("HashSwitch(1, 2)"), ["6", "0", "0"]);
    assert_eq!(shares("HashSwitch(0, 2)").iter().filter(|count| *count == "6").count(), 1);
    let random = shares("RandomSwitch").iter().map(|count| count.parse::<u32>().unwrap()).sum::<u32>();
    assert_eq!(random, 6);
}

#[test]
fn random_sample_drops_its_share() {
    let text = "InfiniteSource(LIMIT 10000, STOP true) -> r :: RandomSample(DROP 0.25) -> Discard;
        r[1] -> d :: Counter -> Discard;";
    let mut router = run(text, 4);
    let drops: u32 = router.read("r.drops").unwrap().parse().unwrap();
    assert!((2000..3000).contains(&drops), "{drops}");
    assert_eq!(router.read("d.count").unwrap(), drops.to_string());
    assert_eq!(router.read("r.sampling_prob").unwrap(), "0.75");
    router.write("r.sampling_prob 0.5").unwrap();
    assert_eq!(router.read("r.drop_prob").unwrap(), "0.5");
    assert!(router.write("r.drop_prob 1.5").is_err());
}

#[test]
fn names_resolve_by_the_expected_type() {
    let text = "AddressInfo(foo 1.2.3.4/20 1:2:3:4:5:6 fe80::1/64, net 10.0.0.0/8);
        i :: Idle -> l :: LinearIPLookup(foo 0, foo:ipnet 0, foo:bcast 0, foo:gw 0, net 0) -> Idle;
        i[1] -> e :: EtherEncap(0x800, foo, foo:eth) -> Idle;
        i[2] -> h :: UDPIPEncap(foo, web, foo:ip, ssh) -> Idle;
        PortInfo(web 81/udp www2 # not this, www3 82)";
    let mut router = run(text, 1);
    let table = router.read("l.table").unwrap();
    let routes: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(routes, ["1.2.3.4/32", "1.2.0.0/20", "1.2.15.255/32", "1.2.0.1/32", "10.0.0.0/8"]);
    assert_eq!(router.read("e.src").unwrap(), "01-02-03-04-05-06");
    assert_eq!(
        (router.read("h.sport").unwrap(), router.read("h.dport").unwrap()),
        ("81".into(), "22".into())
    );
}

#[test]
fn a_suppressed_port_passes_no_packets() {
    let text =
        "x :: InfiniteSource(LIMIT 4, ACTIVE false) -> s :: Suppressor -> a :: AverageCounter -> Discard;
        y :: InfiniteSource(LIMIT 4, ACTIVE false) -> [1] s; s[1] -> b :: Counter -> Discard;
        Script(write s.active1 false, write x.active true, write y.active true)";
    let mut router = run(text, 1);
    assert_eq!(router.read("s.active0").unwrap(), "true");
    assert_eq!(router.read("s.active1").unwrap(), "false");
    assert_eq!((router.read("a.count").unwrap(), router.read("b.count").unwrap()), ("4".into(), "0".into()));
    router.write("s.reset").unwrap();
    assert_eq!(router.read("s.active1").unwrap(), "true");
}

#[test]
fn an_error_prevents_building_the_router() {
    for (text, expected) in [
        ("Idle -> Error(what, EVER 1) -> Idle", "Error"),
        ("Message(stop here, ERROR)", "stop here"),
        ("AddressInfo(a 1.2.3.400)", "a: '1.2.3.400' is not an address"),
        ("PortInfo(a 70000)", "a: '70000' is not a port"),
        ("Idle -> StaticSwitch(1) -> Idle", "output must be < 1"),
        ("Idle -> RandomSample(0.5, DROP 0.5) -> Idle", "exactly one"),
    ] {
        let parsed = Source::new(text, "config").read(&mut Anything);
        let options = Options::simulated(1, Recorder::default(), "");
        let error = Router::build(parsed.graph, &crate::registry(), options).err().unwrap().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_replay_repeats_all_packets_until_it_stops() {
    for burst in [1, 2, 8] {
        let text = "InfiniteSource(LIMIT 5) -> Queue(8) -> r :: ReplayUnqueue(STOP 3)
            -> StoreData(0, x) -> c :: Counter -> Discard;
            Idle -> b :: Block(5) -> Discard; b[1] -> Discard";
        let mut router = run(text, burst);
        assert_eq!(router.read("c.count").unwrap(), (5 * 3).to_string());
        assert_eq!(
            (router.read("r.count").unwrap(), router.read("r.loops").unwrap()),
            ("5".into(), "3".into())
        );
    }
}

#[test]
fn bursts_leave_at_intervals() {
    let text = "InfiniteSource(LIMIT 20) -> Queue(20) -> b :: Burster(1, 8) -> c :: Counter -> Discard;
        s :: Script(export first, export second, wait 0.5, set first $(c.count), wait 1,
            set second $(c.count), wait 1, stop)";
    let mut router = run(text, 1);
    let counts = ["s.first", "s.second", "c.count"].map(|name| router.read(name).unwrap());
    assert_eq!(counts, ["1", "9", "17"], "the first turn finds one packet");
}

#[test]
fn times_are_adjusted_either_way() {
    let text =
        "InfiniteSource(LIMIT 1) -> SetTimestamp(5) -> AdjustTimestamp(-6.5) -> t :: AdjustTimestamp(+2.25)
        -> d :: SetTimestampDelta -> AdjustTimestamp(3) -> e :: SetTimestampDelta
        -> AdjustTimestamp(3, ALL true) -> f :: SetTimestampDelta -> Discard;";
    let mut router = run(text, 1);
    let times = ["d.first", "e.first", "f.first"].map(|name| router.read(name).unwrap());
    assert_eq!(times, ["0.750000", "0.000000", "3.000000"]);
    assert_eq!(router.read("t.time").unwrap(), "2.250000s");
    router.write("t.time -2").unwrap();
    assert_eq!(router.read("t.time").unwrap(), "-2.000000s");
}

#[test]
fn class_names_are_unique() {
    let names: Vec<&str> =
        crate::CLASSES.iter().chain(crate::aliases::ALIASES).map(|class| class.name).collect();
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len());
    assert_eq!(crate::registry().iter().count(), names.len());
}

/// Addresses that no single host can have, or that only the answering host itself does.
const NO_HOSTS: [&str; 7] =
    ["00000000", "00010203", "7f000001", "e0000001", "efffffff", "ffffffff", "7fffffff"];
const NO_HOSTS_6: [&str; 5] = [
    "00000000000000000000000000000000",
    "00000000000000000000000000000001",
    "ff020000000000000000000000000001",
    "00000000000000000000ffff0a000005",
    "ff0e0000000000000000000000000005",
];
const HOST: &str = "0a000005";
const HOST_6: &str = "20010db8000000000000000000000005";
const ETHER: &str = "020000000005";
const GROUPS: [&str; 3] = ["ffffffffffff", "333300000001", "01005e000001"];

/// The packet that an element answers one with.
fn answer_to(packet: &str, element: &str) -> Option<String> {
    let text = format!(
        "InfiniteSource(DATA \\<{packet}>, LIMIT 1, STOP true) -> {element}
            -> Print(answer, MAXLENGTH -1) -> c :: Counter -> Discard"
    );
    let parsed = Source::new(&text, "config").read(&mut Anything);
    let recorder = Recorder::default();
    let options = Options::simulated(1, recorder.clone(), "");
    let mut router =
        Router::build(parsed.graph, &crate::registry(), options).unwrap_or_else(|e| panic!("{e}"));
    while !matches!(router.turn(), Turn::Stopped | Turn::Idle) {}
    let printed = recorder.chatter();
    (router.read("c.count").unwrap() == "1")
        .then(|| printed.rsplit('|').next().unwrap().replace([' ', '\n'], ""))
}

#[test]
fn only_hosts_are_answered() {
    let echo = |source: &str, before: &str| {
        let packet = format!("4500001c 00000000 40010000 {source} 0a000001 0800f7ff 00000000");
        answer_to(&packet, &format!("MarkIPHeader -> {before} ICMPPingResponder"))
    };
    let unreachable = |source: &str| {
        let packet = format!("4500001c 00000000 40110000 {source} 0a000001 00050006 00080000");
        answer_to(&packet, "MarkIPHeader -> ICMPError(10.0.0.1, unreachable, port)")
    };
    let who_has = |ether: &str, source: &str| {
        let packet = format!(
            "ffffffffffff 020000000009 0806 0001 0800 0604 0001 {ether} {source} 000000000000 0a000001"
        );
        answer_to(&packet, "ARPResponder(10.0.0.1 2:0:0:0:0:1)")
    };
    let unreachable_6 = |source: &str| {
        let packet =
            format!("60000000 0008 11 40 {source} 20010db8000000000000000000000001 0005000600080000");
        answer_to(&packet, "MarkIP6Header(0) -> ICMP6Error(2001:db8::1, 1, 4)")
    };
    assert!(echo(HOST, "").is_some() && unreachable(HOST).is_some() && unreachable_6(HOST_6).is_some());
    assert!(who_has(ETHER, HOST).is_some());
    for source in NO_HOSTS {
        assert_eq!((echo(source, ""), unreachable(source)), (None, None), "{source}");
        // One without an address asks whether another has it (RFC 5227, 2.1.1).
        assert_eq!(who_has(ETHER, source).is_some(), source == NO_HOSTS[0], "{source}");
    }
    for kind in ["MULTICAST", "BROADCAST"] {
        assert_eq!(echo(HOST, &format!("SetPacketType({kind}) ->")), None, "{kind}");
    }
    for ether in GROUPS.into_iter().chain(["000000000000"]) {
        assert_eq!(who_has(ether, HOST), None, "{ether}");
    }
    for source in NO_HOSTS_6 {
        assert_eq!(unreachable_6(source), None, "{source}");
    }
}

#[test]
fn neighbor_solicitations_of_hosts_alone_are_answered() {
    let target = "20010db8000000000000000000000001";
    let solicit = |ether: &str, source: &str| {
        let head = format!(
            "3333ff000001 {ether} 86dd 60000000 0018 3a ff {source} ff0200000000000000000001ff000001"
        );
        let message = |sum: u16| format!("8700 {sum:04x} 00000000 {target}");
        let bytes = |text: &str| -> Vec<u8> {
            let digits: Vec<u8> = text.bytes().filter(|digit| *digit != b' ').collect();
            digits
                .chunks(2)
                .map(|two| u8::from_str_radix(core::str::from_utf8(two).unwrap(), 16).unwrap())
                .collect()
        };
        let frame = bytes(&format!("{head} {}", message(0)));
        let ip = <ringway_wire::Ipv6 as ringway_wire::Header>::of(&frame[14..]).unwrap();
        let mut sum = ip.pseudo_header(ringway_wire::Protocol::ICMPV6, 24);
        sum.add(&frame[54..]);
        let element = "IP6NDAdvertiser(2001:db8::1 2:0:0:0:0:1)";
        answer_to(&format!("{head} {}", message(sum.finish())), element)
    };
    let answer = solicit(ETHER, HOST_6).unwrap();
    assert_eq!((&answer[..12], &answer[76..108], &answer[116..118]), (ETHER, HOST_6, "c0"), "{answer}");
    for source in NO_HOSTS_6 {
        let answer = solicit(ETHER, source);
        assert_eq!(answer.is_some(), source == NO_HOSTS_6[0], "{source}");
        if let Some(answer) = answer {
            // Duplicate address detection: not solicited, to all nodes (RFC 4861, 7.2.4).
            let all_nodes = "ff020000000000000000000000000001";
            assert_eq!(
                (&answer[..12], &answer[76..108], &answer[116..118]),
                ("333300000001", all_nodes, "80")
            );
        }
    }
    for ether in GROUPS {
        assert_eq!(solicit(ether, HOST_6), None, "{ether}");
    }
}
