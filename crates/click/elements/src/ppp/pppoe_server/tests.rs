//! Sessions through the element and its concentrator.
use super::super::packet::{IPCP, LCP, PAP};
use super::*;
use crate::standard::null::Null;
use ringway_click::{Options, Rebuild, Recorder, Router, Succession};
use ringway_click_lang::{Anything, Source};

const SERVER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const CONCENTRATOR: &str = "02:00:00:00:00:01";

/// A subscriber's Ethernet address.
fn host(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, number])
}

fn text(concentrator: &str, more: &str) -> String {
    format!(
        "c :: PPPoEConcentrator({concentrator});
         s :: PPPoEServer(c, 10.0.0.1, 10.0.0.0/24, USER a:b, AUTH pap, ECHO 0, {more});
         Idle -> subscribers :: Null -> [0] c; Idle -> [1] c; Idle -> [1] s;
         c[0] -> Print(up, MAXLENGTH 400) -> Discard; c[1] -> Discard; c[2] -> s;
         s[0] -> Print(sent, MAXLENGTH 400) -> Discard; s[1] -> Print(asked, MAXLENGTH 400) -> Discard;
         s[2] -> Print(other, MAXLENGTH 400) -> Discard;"
    )
}

struct Again(Recorder);

impl Rebuild for Again {
    fn rebuild(&mut self, text: &str, place: Succession) -> Result<Router, String> {
        let graph = Source::new(text, "config").read(&mut Anything).graph;
        let options = Options::simulated(1, self.0.clone(), text);
        place.build(graph, &crate::registry(), options).map_err(|error| error.to_string())
    }
}

/// A server, and what its subscribers get.
struct Site {
    router: Router,
    console: Recorder,
    seen: usize,
}

impl Site {
    fn new(text: &str) -> Self {
        let console = Recorder::default();
        let graph = Source::new(text, "config").read(&mut Anything).graph;
        let options = Options::simulated(1, console.clone(), text);
        let mut router = Router::build(graph, &crate::registry(), options).unwrap();
        router.allow_reconfigure(Box::new(Again(console.clone())));
        router.turn();
        Self { router, console, seen: 0 }
    }

    /// Replaces the configuration; returns the frames that this causes.
    fn update(&mut self, text: &str) -> Vec<(String, Vec<u8>)> {
        self.router.write(&format!("hotconfig {text}")).unwrap();
        self.router = self.router.successor().unwrap();
        self.router.turn();
        self.printed()
    }

    /// The packets printed since the last call: label and bytes.
    fn printed(&mut self) -> Vec<(String, Vec<u8>)> {
        let chatter = self.console.chatter();
        let new = chatter[self.seen..].to_string();
        self.seen = chatter.len();
        let packets = new.lines().filter_map(|line| {
            let (head, digits) = line.split_once(" | ")?;
            let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
            Some((head.split(':').next()?.to_string(), digits.chunks(2).map(byte).collect()))
        });
        packets.collect()
    }

    /// Gives the concentrator a frame; returns what comes out.
    fn give(&mut self, frame: &[u8]) -> Vec<(String, Vec<u8>)> {
        let id = self.router.find("subscribers").unwrap();
        let pushed = self.router.with(id, |_: &mut Null, cx| {
            let packet = cx.packet(frame).unwrap();
            cx.push(0, packet);
        });
        pushed.unwrap();
        self.printed()
    }

    /// Runs something in the server.
    fn with<R>(&mut self, run: impl FnOnce(&mut PppoeServer, &mut Context<'_>) -> R) -> R {
        let id = self.router.find("s").unwrap();
        self.router.with(id, run).unwrap()
    }

    fn discover(
        &mut self,
        host: MacAddress,
        (code, session): (u8, u16),
        tags: &[(u16, &[u8])],
    ) -> Vec<Vec<u8>> {
        let frame = discovery::frame((SERVER, host), (code, session), tags.iter().copied()).unwrap();
        self.give(&frame).into_iter().map(|(_, frame)| frame).collect()
    }

    fn cookie(&mut self, host: MacAddress) -> Vec<u8> {
        let offers = self.discover(host, (discovery::PADI, 0), &[(tag::SERVICE_NAME, b"")]);
        Discovery::of(&offers[0]).unwrap().tag(tag::AC_COOKIE).unwrap().to_vec()
    }

    /// Sends a PADR; the answers.
    fn request(&mut self, host: MacAddress, cookie: &[u8], uniq: &[u8]) -> Vec<Vec<u8>> {
        let tags = [(tag::SERVICE_NAME, &b""[..]), (tag::HOST_UNIQ, uniq), (tag::AC_COOKIE, cookie)];
        self.discover(host, (discovery::PADR, 0), &tags)
    }

    /// Opens a session by discovery.
    fn open(&mut self, host: MacAddress, uniq: &[u8]) -> u16 {
        let cookie = self.cookie(host);
        let answers = self.request(host, &cookie, uniq);
        let confirmation = Discovery::of(answers.last().unwrap()).unwrap();
        assert_eq!(confirmation.code, discovery::PADS);
        confirmation.session
    }

    /// Sends a packet in a session; PPP's packets that come back.
    fn talk(&mut self, host: MacAddress, id: u16, protocol: u16, payload: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let sent = self.give(&session_frame(host, id, protocol, payload)).into_iter();
        let sent = sent.filter(|(label, frame)| label == "sent" && frame[12..14] == [0x88, 0x64]);
        sent.map(|(_, frame)| (u16::from_be_bytes([frame[20], frame[21]]), frame[22..].to_vec())).collect()
    }

    /// Logs in by PAP; the address.
    fn login(&mut self, host: MacAddress, id: u16, user: [u8; 2]) -> Ipv4Addr {
        let sent = self.talk(host, id, LCP, &[1, 1, 0, 10, 5, 6, 1, 2, 3, 4]);
        self.talk(host, id, LCP, &[&[2], &sent[0].1[1..]].concat());
        let sent = self.talk(host, id, PAP, &[1, 1, 0, 8, 1, user[0], 1, user[1]]);
        assert_eq!((sent[0].0, sent[0].1[0]), (PAP, 2), "{sent:02x?}");
        let own = sent.iter().find(|(protocol, _)| *protocol == IPCP).unwrap().1.clone();
        self.talk(host, id, IPCP, &[&[2], &own[1..]].concat());
        let sent = self.talk(host, id, IPCP, &[1, 1, 0, 10, 3, 6, 0, 0, 0, 0]);
        let address: [u8; 4] = sent[0].1[6..10].try_into().unwrap();
        self.talk(host, id, IPCP, &[&[1, 2, 0, 10, 3, 6], &address[..]].concat());
        address.into()
    }

    fn read(&mut self, handler: &str) -> String {
        self.router.read(handler).unwrap().trim().to_string()
    }
}

fn session_frame(host: MacAddress, id: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&SERVER.0[..], &host.0, &[0x88, 0x64, 0x11, 0]].concat();
    for number in [id, payload.len() as u16 + 2, protocol] {
        frame.extend_from_slice(&number.to_be_bytes());
    }
    [&frame, payload].concat()
}

/// 20 bytes of IPv4 from an address.
fn packet(source: Ipv4Addr) -> Vec<u8> {
    let head = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 255, 0, 0];
    [&head, &source.octets()[..], &[8, 8, 8, 8]].concat()
}

#[test]
fn sessions_are_opened_used_bounded_and_recorded() {
    let mut site = Site::new(&text(CONCENTRATOR, "CAPACITY 3, PER_HOST 2"));
    let cookie = site.cookie(host(1));
    assert_eq!(site.request(host(2), &cookie, b"1"), [[0u8; 0]; 0], "another host's cookie");
    let first = site.open(host(1), b"1");
    assert_eq!(site.open(host(1), b"1"), first, "the answer was lost");
    let address = site.login(host(1), first, *b"ab");
    assert_eq!(site.read("s.count"), "1");
    let up = site.give(&session_frame(host(1), first, Pppoe::IPV4, &packet(address)));
    assert_eq!(up, [("up".to_string(), packet(address))]);
    let mac = mac_text(host(1));
    assert_eq!(site.read("s.sessions"), format!("{first} {mac} a open {address} 0 1 20 0 0"));

    // A third session of a host ends its oldest one; a fourth one of all hosts is refused.
    let second = site.open(host(1), b"2");
    let cookie = site.cookie(host(1));
    let answers = site.request(host(1), &cookie, b"3");
    let kinds: Vec<u8> = answers.iter().map(|frame| Discovery::of(frame).unwrap().code).collect();
    assert_eq!(kinds, [discovery::PADT, discovery::PADS]);
    assert_eq!(Discovery::of(&answers[0]).unwrap().session, first);
    assert_eq!(site.read("s.accounting"), format!("{first} {mac} a Lost-Carrier {address} 0 1 20 0 0"));
    assert_eq!(site.read("c.count"), "0");
    assert_ne!(site.open(host(2), b"1"), 0);
    let cookie = site.cookie(host(3));
    let answers = site.request(host(3), &cookie, b"1");
    let refusal = Discovery::of(&answers[0]).unwrap();
    assert_eq!((refusal.session, refusal.tag(tag::AC_SYSTEM_ERROR)), (0, Some(&b"too many sessions"[..])));

    // Only the subscriber itself ends its session.
    site.discover(host(3), (discovery::PADT, second), &[]);
    assert_eq!(site.read("s.count"), "3");
    site.discover(host(1), (discovery::PADT, second), &[]);
    assert_eq!(site.read("s.count"), "2");
}

#[test]
fn a_subscriber_that_was_let_in_stays_if_nobody_can_tell() {
    let mut site = Site::new(&text(CONCENTRATOR, "IPV6 false"));
    let id = site.open(host(1), b"");
    site.login(host(1), id, *b"ab");
    site.with(|server, cx| server.undecided(id, b"busy", 0, cx));
    assert_eq!((site.read("s.count"), site.read("c.count")), ("1".into(), "1".into()));
    let id = site.open(host(2), b"");
    site.with(|server, cx| server.undecided(id, b"busy", 0, cx));
    assert_eq!(site.read("s.rejected"), "1");
}

#[test]
fn an_update_keeps_sessions_and_written_users() {
    let mut site = Site::new(&text(CONCENTRATOR, "IPV6 false"));
    site.router.write("s.users x:y").unwrap();
    let id = site.open(host(1), b"");
    let address = site.login(host(1), id, *b"xy");
    site.give(&session_frame(host(1), id, Pppoe::IPV4, &packet(address)));
    let number = site.with(|server, _| server.number);
    assert!(number > 1_000_000, "not a number that was used before the start: {number}");

    assert_eq!(site.update(&text(CONCENTRATOR, "IPV6 true")), []);
    assert_eq!(site.read("s.sessions"), format!("{id} {} x open {address} 0 1 20 0 0", mac_text(host(1))));
    assert_eq!(site.with(|server, _| server.number), number);
    let other = site.open(host(2), b"");
    assert_ne!(site.login(host(2), other, *b"xy"), address);

    // The server's address changes: its subscribers are told so, from the old one.
    let sent = site.update(&text("02:00:00:00:00:07", "IPV6 true"));
    let ends: Vec<_> = sent.iter().map(|(_, frame)| Discovery::of(frame).unwrap()).collect();
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|end| end.source == SERVER && end.code == discovery::PADT));
    assert_eq!((site.read("s.count"), site.read("c.count")), ("0".into(), "0".into()));
    let reasons = site.read("s.accounting");
    assert_eq!(reasons.lines().filter(|line| line.contains(" x Admin-Reset ")).count(), 2, "{reasons}");
}

#[test]
fn a_session_whose_address_is_given_away_by_an_update_ends() {
    let mut site = Site::new(&text(CONCENTRATOR, ""));
    let id = site.open(host(1), b"");
    let address = site.login(host(1), id, *b"ab");
    let sent = site.update(&text(&format!("{CONCENTRATOR}, 02:00:00:00:02:02 7 {address}"), ""));
    let end = Discovery::of(&sent[0].1).unwrap();
    assert_eq!((sent.len(), end.code, end.session), (1, discovery::PADT, id));
    assert_eq!((site.read("s.count"), site.read("c.count")), ("0".into(), "1".into()));
}

#[test]
fn a_check_that_no_request_waits_for_is_decided_after_an_update() {
    let radius = |address: &str| text(CONCENTRATOR, &format!("RADIUS {address}, SRC 192.0.2.1, SECRET x"));
    let mut site = Site::new(&radius("192.0.2.9"));
    let id = site.open(host(1), b"");
    let sent = site.talk(host(1), id, LCP, &[1, 1, 0, 10, 5, 6, 1, 2, 3, 4]);
    site.talk(host(1), id, LCP, &[&[2], &sent[0].1[1..]].concat());
    let frame = session_frame(host(1), id, PAP, &[1, 1, 0, 8, 1, b'x', 1, b'y']);
    assert_eq!(site.give(&frame)[0].0, "asked");
    // An update keeps the request to an unchanged server, and rejects it if the server's address changes.
    assert_eq!(site.update(&radius("192.0.2.9")), []);
    assert_eq!(site.read("s.rejected"), "0");
    assert_ne!(site.update(&radius("192.0.2.8")), []);
    assert_eq!(site.read("s.rejected"), "1");
}

#[test]
fn sessions_of_the_concentrator_itself_stay() {
    let mut site = Site::new(&text(&format!("{CONCENTRATOR}, 02:00:00:00:01:02 7 10.0.1.2"), ""));
    let frame = session_frame(host(2), 7, LCP, &[9, 1, 0, 8, 0, 0, 0, 0]);
    assert_eq!(site.give(&frame), [("other".to_string(), frame.clone())]);
    // Their numbers are skipped, and neither opened nor closed by a server.
    let id = site.open(host(1), b"");
    site.router.write(&format!("c.add 02:00:00:00:01:02 {} 10.0.1.3", id + 1)).unwrap();
    assert_eq!(site.open(host(2), b""), id + 2);
    let concentrator = site.router.find("c").unwrap();
    let opened = site.router.with(concentrator, |concentrator: &mut PppoeConcentrator, _| {
        concentrator.close(host(2), 7);
        concentrator.open((host(2), 7), (Ipv4Addr::new(10, 0, 0, 9), None), 0, 0)
    });
    assert_eq!(opened, Some(Err("session 7 is configured already".into())));
    assert_eq!(site.read("c.count"), "2");
}

#[test]
fn an_address_of_the_pool_is_given_once_also_by_radius() {
    let mut site = Site::new(&text(CONCENTRATOR, ""));
    let mut grant = |address: [u8; 4]| {
        let bytes = [&[2, 1, 0, 26][..], &[0; 16], &[8, 6], &address].concat();
        site.with(|server, _| server.grant(Some(&Reply::of(&bytes).unwrap())))
            .map(|grant| (grant.address.octets(), grant.is_pooled))
    };
    assert_eq!(grant([10, 0, 0, 9]), Ok(([10, 0, 0, 9], true)));
    assert_eq!(grant([10, 0, 0, 9]), Err(&b"the address is in use"[..]));
    assert_eq!(grant([10, 0, 0, 1]), Err(&b"the address is in use"[..]), "the server's");
    assert_eq!(grant([10, 0, 1, 9]), Ok(([10, 0, 1, 9], false)));
    assert_eq!(grant([255, 255, 255, 254]), Ok(([10, 0, 0, 2], true)));
}
