//! Marked headers through every element that adds or removes bytes: each mark stays at its header, moves to a new one,
//! or is cleared.
use super::configuration::{arguments, sides};
use proptest::prelude::*;
use ringway_click::arg::Args;
use ringway_click::{
    Class, Context, Element, Failed, Metadata, Options, Packet, PacketBurst, Recorder, Router, Task, Turn,
};
use ringway_click_lang::{Anything, Source};
use ringway_wire::{EtherType, Ethernet, Header, vlan};
use std::cell::RefCell;
use std::fmt::Write;

/// Classes that write arbitrary bytes over headers, or are told where they are.
const OVERWRITE: &[&str] = &[
    "CheckARPHeader",
    "Clipboard",
    "EtherMirror",
    "EtherRewrite",
    "MoveData",
    "NumberPacket",
    "RandomBitErrors",
    "SetIP6DSCP",
    "StoreData",
    "StoreTimestamp",
    "MarkIPHeader",
    "MarkIP6Header",
    "MarkMACHeader",
];

/// A packet as it enters: its bytes, the offsets of its headers, and how many bytes have been removed from its front.
#[derive(Clone, Debug)]
struct Marked {
    bytes: Vec<u8>,
    network: usize,
    transport: usize,
    stripped: usize,
}

thread_local! {
    static GIVEN: RefCell<Vec<Marked>> = RefCell::default();
    static SEEN: RefCell<Vec<Seen>> = RefCell::default();
}

/// What arrives: the buffer, the start of the data, and the marks.
#[derive(Clone, Debug)]
struct Seen {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    mac: Option<isize>,
    network: Option<isize>,
    transport: Option<isize>,
}

static SOURCE: Class = Class::new("Marked", || Box::new(MarkedSource)).ports("0/1").processing("h");
static SINK: Class =
    Class::new("Seen", || Box::new(Sink)).ports("1/0").processing("h").metadata(Metadata::Resolve);

struct MarkedSource;

impl Element for MarkedSource {
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
            packet.set_mac_header(0);
            packet.set_network_header(given.network as isize, given.transport - given.network);
            packet.pull(given.stripped);
            cx.push(0, packet);
        }
        true
    }
}

struct Sink;

impl Element for Sink {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        SEEN.with_borrow_mut(|seen| seen.extend(burst.drain().map(|packet| Seen::of(&packet))));
    }
}

impl Seen {
    fn of(packet: &Packet) -> Self {
        let (buffer, data) = packet.buffer();
        Self {
            buffer: buffer.to_vec(),
            start: data.start,
            end: data.end,
            mac: packet.mac_header(),
            network: packet.network_header(),
            transport: packet.transport_header(),
        }
    }

    /// The bytes from a mark on.
    fn at(&self, mark: isize) -> &[u8] {
        let from = self.start.checked_add_signed(mark).filter(|from| *from <= self.end);
        from.map_or(&[], |from| &self.buffer[from..self.end])
    }

    /// Checks that marks are at headers.
    fn check(&self) -> Result<(), String> {
        let link = self.mac.map(|mac| {
            let frame = self.at(mac);
            let rest = Ethernet::split(frame).and_then(|(header, rest)| vlan::untag(header.ethertype, rest));
            rest.map(|rest| (mac + (frame.len() - rest.payload.len()) as isize, rest.ethertype))
        });
        let Some(network) = self.network else { return Ok(()) };
        let ip = self.at(network);
        let header = match ip.first().map(|byte| byte >> 4) {
            Some(4) if ip.len() >= 20 => Some(usize::from(ip[0] & 15) * 4).filter(|header| *header >= 20),
            Some(6) if ip.len() >= 40 => Some(40),
            _ => None,
        };
        match (link, header) {
            (Some(None), _) => return Err("the MAC mark is not at an Ethernet header".into()),
            // What the link header carries, whatever it is.
            (Some(Some((end, _))), None) if network == end => return Ok(()),
            _ if ip.len() < 20 => return Ok(()),
            (_, None) => return Err("the network mark is not at an IP header".into()),
            // A header of a tunnel is before the frame in it.
            (Some(Some((end, EtherType::IPV4 | EtherType::IPV6))), _)
                if self.mac.is_some_and(|mac| (mac..end).contains(&network)) =>
            {
                return Err(format!("the network mark is before the end {end} of the link header"));
            }
            _ => {}
        }
        let behind = header.map(|header| network + header as isize);
        match self.transport {
            Some(transport) if Some(transport) != behind && transport != network => {
                Err("the transport mark is not after the network header".into())
            }
            _ => Ok(()),
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Frames with and without tags, with and without their Ethernet header.
fn given() -> Vec<Marked> {
    let ends = "020000000002 020000000001";
    let udp = "45000030 00010000 40110000 01020304 05060708 0050 0060 001c 0000
        000102030405060708090a0b0c0d0e0f10111213";
    let tcp =
        "46000034 00020000 40060000 01020304 05060708 01010100 0050 0051 00000001 00000002 50020000 00000000
        0001020304050607";
    let six =
        "60000000 0018 11 40 fe800000000000000000000000000001 20010db8000000000000000000000001 0050 0060 0018
        0000 000102030405060708090a0b0c0d0e0f";
    let mut all = Vec::new();
    for (tags, (kind, packet, header)) in ["", "81000005", "88a80006 81000005"]
        .into_iter()
        .flat_map(|tags| [(tags, ("0800", udp, 20)), (tags, ("0800", tcp, 24)), (tags, ("86dd", six, 40))])
    {
        let network = 14 + bytes(tags).len();
        let mut frame = bytes(&format!("{ends} {tags} {kind} {packet}"));
        if kind == "0800" {
            let sum = ringway_wire::checksum::checksum(&frame[network..network + header]).to_be_bytes();
            frame[network + 10..network + 12].copy_from_slice(&sum);
        }
        for stripped in [0, network, network + header] {
            all.push(Marked { bytes: frame.clone(), network, transport: network + header, stripped });
        }
    }
    all
}

fn run(text: &str, given: &[Marked]) -> Option<Vec<Seen>> {
    let parsed = Source::new(text, "config").read(&mut Anything);
    let mut registry = ringway_elements::registry();
    registry.add(&[&SOURCE, &SINK]);
    GIVEN.set(given.to_vec());
    SEEN.take();
    let options = Options::simulated(1, Recorder::default(), text);
    let mut router = Router::build(parsed.graph, &registry, options).ok()?;
    for _ in 0..200 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            break;
        }
    }
    Some(SEEN.take())
}

/// What arrives after one element, if it can be built.
fn through(class: &Class, given: &[Marked]) -> Option<Vec<Seen>> {
    [(false, false), (true, false), (true, true), (false, true)].into_iter().find_map(|(pulls, pulled)| {
        let (inputs, outputs) = sides(class, false);
        let mut text = format!("e :: {}({});\n", class.name, arguments(class, false));
        for input in 0..inputs {
            let from = if input == 0 { "Marked" } else { "Idle" };
            let _ = writeln!(text, "{from} -> {} [{input}] e;", if pulls { "Queue ->" } else { "" });
        }
        for output in 0..outputs {
            let _ = writeln!(text, "e [{output}] -> {} Seen;", if pulled { "Unqueue ->" } else { "" });
        }
        run(&text, given)
    })
}

#[test]
fn marks_stay_at_headers() {
    let mut wrong = Vec::new();
    let given = given();
    for seen in run("Marked -> Seen", &given).unwrap() {
        assert_eq!(seen.check(), Ok(()), "{seen:?}");
    }
    for class in ringway_elements::registry().iter().filter(|class| !OVERWRITE.contains(&class.name)) {
        for seen in through(class, &given).unwrap_or_default() {
            if let Err(error) = seen.check() {
                wrong.push(format!("{}: {error}: {seen:?}", class.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_second_tag_moves_the_network_header() {
    let given = given().into_iter().find(|given| given.network == 14 && given.stripped == 0).unwrap();
    let network = |elements: &str| {
        let seen = run(&format!("Marked -> {elements} -> Seen"), std::slice::from_ref(&given)).unwrap();
        (seen[0].mac, seen[0].network, seen[0].transport)
    };
    let at = |network: isize| (Some(0), Some(network), Some(network + 20));
    let tagged = "VLANEncap(VLAN_ID 100) -> VLANEncap(VLAN_ID 200, ETHERTYPE 0x88a8)";
    assert_eq!(network(tagged), at(22));
    assert_eq!(network(&format!("{tagged} -> VLANDecap(ETHERTYPE 0x88a8)")), at(18));
    assert_eq!(network(&format!("{tagged} -> VLANDecap(ETHERTYPE 0x88a8) -> VLANDecap")), at(14));
    // A tag of an unknown EtherType moves the header as well.
    assert_eq!(network("VLANEncap(5) -> VLANEncap(6, ETHERTYPE 0x9999) -> VLANEncap(7)"), at(26));
    assert_eq!(network("Strip(14) -> EtherVLANEncap(0x800, 1:1:1:1:1:1, 2:2:2:2:2:2, VLAN_ID 5)"), at(18));
    let stripped = network("VLANEncap(5) -> VLANEncap(6) -> StripEtherVLANHeader -> CheckIPHeader(4)");
    assert_eq!(stripped, (Some(-18), Some(4), Some(24)));
}

/// With what a packet begins.
#[derive(Clone, Copy, PartialEq)]
enum Front {
    Ethernet,
    Ip,
    Other,
}
use Front::{Ethernet as Frame, Ip, Other};

/// Elements that add bytes to packets or take some, the packets that they are for, and what they make of them.
const ADD_OR_TAKE: &[(&str, &[Front], Front)] = &[
    ("VLANEncap(VLAN_ID 100)", &[Frame], Frame),
    ("VLANEncap(VLAN_ID 200, ETHERTYPE 0x88a8)", &[Frame], Frame),
    ("VLANDecap", &[Frame], Frame),
    ("Pad(100)", &[Frame], Frame),
    ("StripEtherVLANHeader", &[Frame], Other),
    ("Strip(14)", &[Frame], Other),
    ("Strip(4)", &[Frame, Ip, Other], Other),
    ("StripToNetworkHeader", &[Frame], Ip),
    ("StripIPHeader", &[Frame, Ip], Other),
    ("StripTransportHeader", &[Ip], Other),
    ("VXLANEncap(1.2.3.4, 5.6.7.8, 5)", &[Frame], Ip),
    ("EtherVLANEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2, 7)", &[Ip], Frame),
    ("EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)", &[Ip], Frame),
    ("IPEncap(udp, 1.2.3.4, 5.6.7.8)", &[Ip, Other], Ip),
    ("UDPIPEncap(1.2.3.4, 5, 5.6.7.8, 6)", &[Ip, Other], Ip),
    ("IP6Encap(udp, ::1, ::2)", &[Ip, Other], Ip),
    ("GREEncap(1.2.3.4, 5.6.7.8)", &[Ip], Ip),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn marks_stay_at_headers_through_chains(
        chain in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        of in 0usize..27,
    ) {
        let given = [given().swap_remove(of)];
        let mut front = match given[0].stripped {
            0 => Frame,
            stripped if stripped == given[0].network => Ip,
            _ => Other,
        };
        let mut text = "Marked".to_string();
        for index in chain {
            let fitting: Vec<_> = ADD_OR_TAKE.iter().filter(|(_, of, _)| of.contains(&front)).collect();
            let (element, _, after) = fitting[index.index(fitting.len())];
            (text, front) = (format!("{text} -> {element}"), *after);
        }
        let text = format!("{text} -> Seen");
        let Some(seen) = run(&text, &given) else {
            return Err(TestCaseError::fail(format!("{text}: it can't be built")));
        };
        for seen in seen {
            if let Err(error) = seen.check() {
                let Seen { start, end, mac, network, transport, buffer } = seen;
                let bytes = &buffer[start..end];
                let marks = (mac, network, transport);
                return Err(TestCaseError::fail(format!("{text}: {error}: {marks:?} {bytes:02x?}")));
            }
        }
    }
}
