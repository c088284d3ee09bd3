//! What a function would do with one frame: a private instance of its configuration runs in simulated time.
//!
//! The instance is fresh: it has none of the state of the function that runs. It is run twice, with the frame and
//! without it, so that what the configuration does by itself is not taken for an effect of the frame.

use crate::click::{Complaint, Configuration, Host, Recorder, check, complaints, function_registry};
use crate::golden::frames::Frame;
use crate::golden::ports::{self, Sink, Source};
use crate::inherited::{self, Inherited};
use ringway_click::{Clock, Options, Router, SECOND, SIMULATION_START, Turn};
use ringway_click_lang::Source as Configured;

/// When the frame enters, after the start.
const BEFORE: u64 = SECOND / 1000;
/// How long the instance runs after that.
const AFTER: u64 = SECOND;
/// Attack: a configuration that is always busy. Most turns.
const TURNS: usize = 1 << 13;
/// Most elements, frames and lines that are reported.
const MOST: usize = 64;
/// Most bytes of the frames that are reported.
const MOST_BYTES: usize = 512 << 10;
/// Longest line that is reported, in characters.
const LONGEST_LINE: usize = 256;

/// Classes whose elements do the same with a packet whatever came before it. They count packets at most.
const STATELESS: &[&str] = &[
    "CheckARPHeader",
    "CheckCRC32",
    "CheckICMPHeader",
    "CheckIP6Header",
    "CheckIPHeader",
    "CheckIPHeader2",
    "CheckLength",
    "CheckPaint",
    "CheckTCPHeader",
    "CheckUDPHeader",
    "Classifier",
    "Counter",
    "DecIP6HLIM",
    "DecIPTTL",
    "Discard",
    "DropBroadcasts",
    "EnsureEther",
    "EraseIPPayload",
    "EtherEncap",
    "EtherMirror",
    "EtherRewrite",
    "EtherVLANEncap",
    "FixIPSrc",
    "FromPort",
    "GREDecap",
    "GREEncap",
    "GetEtherAddress",
    "GetIP6Address",
    "GetIPAddress",
    "HashSwitch",
    "HostEtherFilter",
    "Hub",
    "ICMPError",
    "ICMPPingResponder",
    "IP6Encap",
    "IP6Mirror",
    "IP6NDAdvertiser",
    "IP6Print",
    "IPClassifier",
    "IPFilter",
    "IPFragmenter",
    "IPGWOptions",
    "IPInputCombo",
    "IPMirror",
    "IPOutputCombo",
    "IPPrint",
    "Idle",
    "MarkIP6Header",
    "MarkIPCE",
    "MarkIPHeader",
    "MarkMACHeader",
    "Null",
    "Pad",
    "Paint",
    "PaintSwitch",
    "PaintTee",
    "Print",
    "PushNull",
    "RadixIPLookup",
    "Resize",
    "SetCRC32",
    "SetEtherAddress",
    "SetIP6Address",
    "SetIP6DSCP",
    "SetIPAddress",
    "SetIPChecksum",
    "SetIPDSCP",
    "SetIPECN",
    "SetTCPChecksum",
    "SetUDPChecksum",
    "SetVLANAnno",
    "StaticIPLookup",
    "StaticSwitch",
    "StoreData",
    "StoreEtherAddress",
    "StoreIPAddress",
    "Strip",
    "StripEtherVLANHeader",
    "StripIPHeader",
    "StripToNetworkHeader",
    "StripTransportHeader",
    "Tee",
    "ToPort",
    "Truncate",
    "TruncateIPPayload",
    "UDPIPEncap",
    "Unstrip",
    "UnstripIPHeader",
    "UnstripTransportHeader",
    "VLANDecap",
    "VLANEncap",
];

/// An element, and what of the frame reached it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedElement {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Packets that entered it; of a source, those that it emitted.
    pub packets: u64,
    /// Packets that entered it and did not leave: it dropped or kept them.
    pub kept: u64,
    /// Whether what it does depends on packets that came before.
    pub has_state: bool,
}

/// A connection, and the packets that passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedConnection {
    /// The index of the element that it leaves.
    pub from: usize,
    /// The output there.
    pub output: usize,
    /// The index of the element that it leads to.
    pub to: usize,
    /// The input there.
    pub input: usize,
    /// Packets.
    pub packets: u64,
}

/// A frame that the function sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    /// The port.
    pub port: String,
    /// The frame.
    pub data: Vec<u8>,
    /// Nanoseconds after the frame entered.
    pub after: u64,
}

/// What the instance did with the frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// The elements that packets reached, from the port on.
    pub elements: Vec<PassedElement>,
    /// Connections that packets passed.
    pub connections: Vec<PassedConnection>,
    /// The frames that it sent, in order.
    pub sent: Vec<SentFrame>,
    /// Frames that it sent and that are not in `sent`.
    pub omitted: usize,
    /// What its elements printed.
    pub printed: Vec<String>,
}

/// Runs a configuration with a frame that its port `port` receives.
///
/// # Errors
/// The configuration's, one line each, or that it has no such port.
pub fn run(configuration: Configuration<'_>, port: &str, frame: &[u8]) -> Result<Passage, String> {
    let with = simulate(configuration, Some((port, frame)))?;
    let without = simulate(configuration, None)?;
    Ok(difference(with, without))
}

/// What a run did.
#[derive(Default)]
struct Ran {
    /// All elements, in the order of the configuration.
    elements: Vec<PassedElement>,
    /// The elements that are ports: those that receive, and those that send.
    ports: (Vec<String>, Vec<String>),
    connections: Vec<PassedConnection>,
    sent: Vec<SentFrame>,
    printed: Vec<String>,
}

fn lines(complaints: &[Complaint]) -> String {
    let line = |one: &Complaint| format!("{}:{}:{}: {}", one.file, one.line, one.column, one.what);
    complaints.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn simulate(configuration: Configuration<'_>, frame: Option<(&str, &[u8])>) -> Result<Ran, String> {
    let Configuration { text, file, parameters, ports, devices, .. } = configuration;
    // Elements that open files or sockets are refused here, as the function refuses them.
    let wrong = check(configuration);
    if !wrong.is_empty() {
        return Err(lines(&wrong));
    }
    let mut registry = function_registry();
    registry.add(&ports::CLASSES.each_ref());
    registry.add(&ports::DEVICES.each_ref());
    let source = Configured { variables: parameters, ..Configured::new(text, file) };
    let parsed = source.read(&mut Host::of_function(&registry));
    let console = Recorder::default();
    // One packet at a time, which is the order of effects that Click has.
    let options = Options::simulated(1, console.clone(), text);
    let known = inherited::set(Some(Inherited {
        ports: ports.to_vec(),
        devices: devices.to_vec(),
        ..Inherited::default()
    }));
    let built = Router::build(parsed.graph, &registry, options);
    inherited::set(known);
    let mut router = built.map_err(|error| lines(&complaints(&error.diagnostics)))?;
    router.allow_profile(ringway_host::ticks);
    router.set_profile(true);
    let entry = SIMULATION_START + BEFORE;
    let mut ran = Ran::default();
    for id in router.ids() {
        let enters = router.with::<Source, _>(id, |source, cx| {
            let Some((_, data)) = frame.filter(|(port, _)| *port == source.port) else { return false };
            source.load([Frame { time: entry, data: data.to_vec() }].into(), cx);
            true
        });
        if enters == Some(true) {
            ran.ports.0.push(router.name(id).into());
        }
    }
    if frame.is_some() && ran.ports.0.is_empty() {
        return Err(
            "its configuration has no FromPort of that port, so that frames stay in the port's ring".into()
        );
    }
    drive(&mut router, entry + AFTER);
    let graph = router.read("graph").map_err(|error| error.to_string())?;
    read_graph(&graph, &mut ran);
    for id in router.ids() {
        let is_sink = router.with::<Sink, _>(id, |sink, _| {
            let sent = std::mem::take(&mut sink.sent).into_iter().map(|Frame { time, data }| SentFrame {
                port: sink.port.clone(),
                data,
                after: time.saturating_sub(entry),
            });
            ran.sent.extend(sent);
        });
        if is_sink.is_some() {
            ran.ports.1.push(router.name(id).into());
        }
    }
    ran.sent.sort_by_key(|frame| frame.after);
    ran.printed = console.chatter().lines().map(String::from).collect();
    Ok(ran)
}

/// Runs until a time, or until nothing is left to do.
fn drive(router: &mut Router, end: u64) {
    for _ in 0..TURNS {
        let is_over = matches!(router.clock(), Clock::Simulated(now) if *now > end);
        if is_over || matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            return;
        }
    }
}

/// Reads the value of the handler `graph`.
fn read_graph(text: &str, ran: &mut Ran) {
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            ["element", name, class, packets, _] => ran.elements.push(PassedElement {
                name: name.into(),
                class: class.into(),
                packets: packets.parse().unwrap_or(0),
                kept: 0,
                has_state: !STATELESS.contains(&class) && !ports::DEVICES.iter().any(|own| own.name == class),
            }),
            ["connection", from, output, input, to, packets] => {
                let number = |word: &str| word.parse().unwrap_or(0);
                let (from, output, input, to) = (number(from), number(output), number(input), number(to));
                let packets = packets.parse().unwrap_or(0);
                ran.connections.push(PassedConnection { from, output, to, input, packets });
            }
            _ => {}
        }
    }
}

/// What the frame did.
fn difference(with: Ran, without: Ran) -> Passage {
    let Ran { mut elements, ports: (entries, exits), mut connections, sent, printed } = with;
    for (element, before) in elements.iter_mut().zip(&without.elements) {
        element.packets = element.packets.saturating_sub(before.packets);
    }
    for (connection, before) in connections.iter_mut().zip(&without.connections) {
        connection.packets = connection.packets.saturating_sub(before.packets);
    }
    connections.retain(|connection| connection.packets > 0);
    for (index, element) in
        elements.iter_mut().enumerate().filter(|(_, element)| !exits.contains(&element.name))
    {
        let sum = |count: fn(&PassedConnection) -> usize| -> u64 {
            connections.iter().filter(|one| count(one) == index).map(|one| one.packets).sum()
        };
        element.kept = sum(|one| one.to).saturating_sub(sum(|one| one.from));
    }
    let (elements, connections) = reached(elements, connections, &entries);
    let (mut own, mut said) = (without.sent, without.printed);
    let mut sent: Vec<SentFrame> = sent
        .into_iter()
        .filter(|frame| {
            let same = own.iter().position(|own| own.port == frame.port && own.data == frame.data);
            same.map(|same| own.swap_remove(same)).is_none()
        })
        .collect();
    let printed = printed.into_iter().filter(|line| {
        let same = said.iter().position(|said| said == line);
        same.map(|same| said.swap_remove(same)).is_none()
    });
    let short = |line: String| line.chars().take(LONGEST_LINE).collect();
    let printed = printed.take(MOST).map(short).collect();
    let mut bytes = 0;
    let fits = sent.iter().take(MOST).take_while(|frame| {
        bytes += frame.data.len();
        bytes <= MOST_BYTES
    });
    let fits = fits.count();
    let omitted = sent.len() - fits;
    sent.truncate(fits);
    Passage { elements, connections, sent, omitted, printed }
}

/// The elements that packets reached, beginning at those where they entered, and the connections between them.
fn reached(
    elements: Vec<PassedElement>,
    connections: Vec<PassedConnection>,
    entries: &[String],
) -> (Vec<PassedElement>, Vec<PassedConnection>) {
    let is_entry =
        |index: &usize| elements.get(*index).is_some_and(|element| entries.contains(&element.name));
    let mut order: Vec<usize> = (0..elements.len()).filter(is_entry).collect();
    let mut next = 0;
    while let Some(&from) = order.get(next).filter(|_| order.len() < MOST) {
        next += 1;
        for connection in connections.iter().filter(|connection| connection.from == from) {
            if !order.contains(&connection.to) {
                order.push(connection.to);
            }
        }
    }
    let place = |index: usize| order.iter().position(|own| *own == index);
    let inner = connections.into_iter().filter_map(|connection| {
        let (from, to) = (place(connection.from)?, place(connection.to)?);
        Some(PassedConnection { from, to, ..connection })
    });
    let inner = inner.collect();
    (order.iter().filter_map(|&index| elements.get(index).cloned()).collect(), inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_wire::fields::Described;

    fn pass(text: &str, fields: &str) -> Result<Passage, String> {
        let ports = ["a", "b"].map(String::from);
        let frame = Described::parse(fields).unwrap().frame;
        let configuration = Configuration {
            text,
            file: "f.click",
            parameters: &[],
            ports: &ports,
            devices: &[],
            resident: false,
        };
        run(configuration, "a", &frame)
    }

    /// The classes of the elements that the frame reached, and of those that dropped or kept it.
    fn classes(passage: &Passage) -> (Vec<&str>, Vec<&str>) {
        let kept = passage.elements.iter().filter(|element| element.kept > 0);
        (
            passage.elements.iter().map(|element| &*element.class).collect(),
            kept.map(|element| &*element.class).collect(),
        )
    }

    const WALL: &str = "FromPort(a) -> kind :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
        -> rules :: IPFilter(allow tcp dst port 80, deny all) -> Unstrip(14) -> ToPort(b);
        kind[1] -> Discard; FromPort(b) -> ToPort(a);";

    #[test]
    fn the_element_that_drops_or_sends_a_frame_is_found() {
        let good = pass(WALL, "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80").unwrap();
        let [sent] = &good.sent[..] else { panic!("{good:?}") };
        // CheckIPHeader takes what is behind the packet away.
        assert_eq!((&*sent.port, sent.data.len()), ("b", 54));
        assert!(sent.after < 1_000_000, "{}", sent.after);
        let way = ["FromPort", "Classifier", "Strip", "CheckIPHeader", "IPFilter", "Unstrip", "ToPort"];
        assert_eq!(classes(&good), (way.to_vec(), vec![]));
        assert!(good.elements.iter().all(|element| !element.has_state), "{good:?}");
        let bad = pass(WALL, "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=81").unwrap();
        assert!(bad.sent.is_empty());
        assert_eq!(classes(&bad), (way[..5].to_vec(), vec!["IPFilter"]));
        let arp = pass(WALL, "arp").unwrap();
        assert_eq!(classes(&arp), (vec!["FromPort", "Classifier", "Discard"], vec!["Discard"]));
    }

    #[test]
    fn what_a_configuration_does_by_itself_is_not_an_effect_of_the_frame() {
        let text = "RatedSource(RATE 100, LIMIT 5) -> ToPort(b);
            FromPort(a) -> Print(seen) -> q :: Queue -> DelayUnqueue(10ms) -> ToPort(a);
            FromPort(b) -> Discard;";
        let passage = pass(text, "udp").unwrap();
        let [sent] = &passage.sent[..] else { panic!("{passage:?}") };
        assert_eq!(&*sent.port, "a");
        assert!((10_000_000..11_000_000).contains(&sent.after), "{}", sent.after);
        assert!(passage.elements.iter().any(|element| element.name == "q" && element.has_state));
        assert!(matches!(&passage.printed[..], [line] if line.starts_with("seen")), "{:?}", passage.printed);
    }

    #[test]
    fn a_configuration_that_multiplies_or_is_always_busy_ends() {
        let text = "FromPort(a) -> t :: Tee(8) -> ToPort(b); t[1] -> t2 :: Tee(64);
            t2[0] -> ToPort(a); s :: InfiniteSource(LIMIT -1) -> Discard; FromPort(b) -> Discard;";
        let text = (1..64).fold(text.to_string(), |text, output| format!("{text} t2[{output}] -> Discard;"));
        let text = (2..8).fold(text, |text, output| format!("{text} t[{output}] -> Discard;"));
        let passage = pass(&text, "udp").unwrap();
        assert_eq!(passage.sent.len(), 2);
        let wrong = pass("FromPort(a) -> ToDump(/tmp/x); FromPort(b) -> Discard;", "udp").unwrap_err();
        assert!(wrong.contains("f.click:1:"), "{wrong}");
        let wrong = pass("FromPort(b) -> ToPort(a);", "udp").unwrap_err();
        assert!(wrong.contains("no FromPort"), "{wrong}");
    }

    #[test]
    fn stateless_classes_exist() {
        let registry = function_registry();
        let missing: Vec<_> = STATELESS.iter().filter(|name| registry.find(name).is_none()).collect();
        assert!(missing.is_empty() && STATELESS.is_sorted(), "{missing:?}");
    }
}
