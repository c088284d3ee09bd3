//! Tests of sources that open connections, against a server element.
use ringway_click::prelude::*;
use ringway_click::{Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};
use ringway_wire::tcp::Flags;
use ringway_wire::{Ipv4, Tcp};

use super::template::segment_packet;

/// A web server that answers each request with a page and FIN, and counts requests per page.
#[derive(Debug, Default)]
struct Server {
    pages: u32,
}

static SERVER: Class = Class::new("Server", || Box::<Server>::default()).ports("1/1").processing("h");

impl Element for Server {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let (ip, _, rest) = Ipv4::parse(packet.data()).unwrap();
            assert!(ip.is_checksum_valid(&[]), "{ip:?}");
            let (tcp, _, payload) = Tcp::parse(rest).unwrap();
            let mut sum = ip.pseudo_header(rest.len() as u16);
            sum.add(rest);
            assert_eq!(sum.finish(), 0);
            let back = Ipv4 { source: ip.destination, destination: ip.source, ttl: 64, ..Ipv4::EMPTY };
            let next = tcp.sequence_number.get() + payload.len() as u32;
            let answer = Tcp {
                source_port: tcp.destination_port,
                destination_port: tcp.source_port,
                sequence_number: 1000.into(),
                acknowledgment_number: (next + 1).into(),
                flags: Flags::SYN.with(Flags::ACK),
                ..Tcp::EMPTY
            };
            if tcp.flags.has(Flags::SYN) {
                let segment = segment_packet(back, answer, &[], cx).unwrap();
                cx.push(0, segment);
            } else if !payload.is_empty() {
                assert_eq!(tcp.acknowledgment_number, 1001);
                let is_request = payload.starts_with(b"GET /") && payload.ends_with(b" HTTP/1.0\r\n\r\n");
                self.pages += u32::from(is_request);
                let (sequence_number, ends) = (1001.into(), tcp.flags.has(Flags::FIN));
                let flags = if ends { Flags::ACK.with(Flags::FIN) } else { Flags::ACK };
                let page = Tcp { sequence_number, flags, ..answer };
                let body: &[u8] = if ends { b"a page" } else { b"" };
                let segment = segment_packet(back, page, body, cx).unwrap();
                cx.push(0, segment);
            } else if tcp.flags.has(Flags::ACK) {
                assert_eq!(tcp.acknowledgment_number, 1001 + 6 + 1, "page and FIN");
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("pages", |e: &Self| e.pages)].into()
    }
}

fn run(text: &str) -> Router {
    let mut registry = crate::registry();
    registry.add(&[&SERVER]);
    let parsed = Source::new(text, "config").read(&mut Anything);
    let mut router =
        Router::build(parsed.graph, &registry, Options::simulated(1, Recorder::default(), text)).unwrap();
    while !matches!(router.turn(), Turn::Stopped) {}
    router
}

#[test]
fn pages_are_asked_for_and_come() {
    let text = "w :: WebGen(10.0.0.0/8, 1.2.3.4, 100) -> s :: Server -> w; DriverManager(wait 2.995s, stop)";
    let mut router = run(text);
    let counts = ["initiated", "completed", "timeouts", "resets"];
    let counts = counts.map(|name| router.read(&alloc::format!("w.{name}")).unwrap());
    assert_eq!(counts, ["300", "300", "0", "0"]);
    assert_eq!(router.read("s.pages").unwrap(), "300");
}

#[test]
fn silence_and_resets_end_connections() {
    let text = "w :: WebGen(10.0.0.0/8, 1.2.3.4, 1) -> c :: Counter -> Discard; Idle -> w;
        DriverManager(wait 9.5s, stop)";
    let mut router = run(text);
    // A connection begins each second from 0 on, sends a SYN and five retransmissions, and ends after six seconds.
    assert_eq!(
        (router.read("w.initiated").unwrap(), router.read("w.timeouts").unwrap()),
        ("10".into(), "4".into())
    );
    assert_eq!(router.read("c.count").unwrap(), (6 * 4 + 6 + 5 + 4 + 3 + 2 + 1).to_string());
}

#[test]
fn a_toy_connection_grows() {
    let text = "t :: ToyTCP(80) -> IPEncap(6, 1.0.0.1, 1.0.0.2) -> SetTCPChecksum -> Queue
        -> DelayUnqueue(100ms) -> s :: Server -> Strip(20) -> t; DriverManager(wait 4.05s, stop)";
    let mut router = run(text);
    // SYN, SYN|ACK, then a byte that the server acknowledges, and so on; an additional segment after every fifth.
    let [good, sent] = ["t.good", "t.sent"].map(|name| router.read(name).unwrap().parse::<u32>().unwrap());
    assert!(good > 10 && sent > good, "{good} {sent}");
}
