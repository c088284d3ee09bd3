//! Transcripts of sessions, by a subscriber written for these tests from RFC 1661, RFC 1334 and RFC 1994; RADIUS by the
//! examples of RFC 2865.
use super::automaton::NEVER;
use super::lcp::Methods;
use super::packet::{CHAP, IPCP, IPV6CP, LCP, Nonce, Outbox, PAP};
use super::pool::Pool;
use super::radius::{Client, Outcome, Server};
use super::request::{ACCOUNTING_RESPONSE, HEADER, Reply, Request, attribute, hmac};
use super::session::{Cause, Effect, Grant, Phase, Session, Settings, Turn};
use super::users::{Proof, Users};
use md5::{Digest, Md5};
use ringway_click::SECOND;
use ringway_click::arg::Prefix;
use ringway_wire::{Header, Ipv4, MacAddress, Protocol, Udp};
use std::net::Ipv4Addr;

const ADDRESS: [u8; 4] = [10, 0, 0, 9];
const SERVER: [u8; 4] = [10, 0, 0, 1];
const DNS: [u8; 4] = [10, 0, 0, 53];
const MAGIC: [u8; 6] = [5, 6, 1, 2, 3, 4];

/// A session and its peer.
struct Talk {
    session: Session,
    settings: Settings,
    nonce: Nonce,
    out: Outbox,
    now: u64,
}

impl Talk {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            gateway: SERVER.into(),
            dns: [DNS.into(), Ipv4Addr::UNSPECIFIED],
            echo: 10 * SECOND,
            ..Settings::default()
        };
        change(&mut settings);
        let (mut nonce, mut out, now) = (Nonce::new([7; 16]), Outbox::default(), SECOND);
        let mut turn = Turn { now, settings: &settings, nonce: &mut nonce, out: &mut out };
        let session = Session::new(MacAddress([2, 0, 0, 0, 0, 1]), 5, b"host", &mut turn);
        Self { session, settings, nonce, out, now }
    }

    fn run(&mut self, act: impl FnOnce(&mut Session, &mut Turn<'_>) -> Effect) -> Effect {
        let (settings, nonce, out) = (&self.settings, &mut self.nonce, &mut self.out);
        act(&mut self.session, &mut Turn { now: self.now, settings, nonce, out })
    }

    /// Gives the session a packet.
    fn send(&mut self, protocol: u16, code: u8, id: u8, data: &[u8]) -> Effect {
        let mut packet = vec![code, id];
        packet.extend_from_slice(&(data.len() as u16 + 4).to_be_bytes());
        packet.extend_from_slice(data);
        // Padding.
        packet.extend_from_slice(&[0xee; 9]);
        self.run(|session, turn| session.receive(protocol, &packet, turn))
    }

    /// The packets that it has sent: protocol, code, identifier, data.
    fn sent(&mut self) -> Vec<(u16, u8, u8, Vec<u8>)> {
        let sent = self.out.packets().map(|(protocol, bytes)| {
            assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
            (protocol, bytes[0], bytes[1], bytes[4..].to_vec())
        });
        let sent = sent.collect();
        self.out.clear();
        sent
    }

    /// The only packet sent.
    fn one(&mut self) -> (u16, u8, u8, Vec<u8>) {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:02x?}");
        sent.remove(0)
    }

    /// Lets time pass until the session does something.
    fn wait(&mut self) -> Effect {
        assert_ne!(self.session.due(), NEVER);
        self.now = self.session.due();
        self.run(Session::tick)
    }

    /// Negotiates LCP; returns its own request's options.
    fn open_link(&mut self) -> Vec<u8> {
        assert_eq!(self.send(LCP, 1, 1, &MAGIC), Effect::Nothing);
        let sent = self.sent();
        let [(LCP, 1, id, request), (LCP, 2, 1, ack)] = &sent[..] else { panic!("{sent:02x?}") };
        assert_eq!(ack, &MAGIC);
        assert_eq!(self.send(LCP, 2, *id, request), Effect::Nothing);
        request.clone()
    }

    /// Answers a challenge by a password.
    fn respond(&mut self, name: &[u8], password: &[u8]) -> Effect {
        let (protocol, code, id, data) = self.one();
        assert_eq!((protocol, code, data[0]), (CHAP, 1, 16));
        assert_eq!(&data[17..], b"ringway");
        let hash = Md5::new().chain_update([id]).chain_update(password).chain_update(&data[1..17]).finalize();
        self.send(CHAP, 2, id, &[&[16], hash.as_slice(), name].concat())
    }

    fn grant(&mut self) {
        let grant = Grant {
            address: ADDRESS.into(),
            is_pooled: true,
            prefix: None,
            time: 0,
            interim: 0,
            class: Vec::new(),
            by_radius: false,
        };
        self.run(|session, turn| {
            session.granted(grant, turn);
            Effect::Nothing
        });
    }

    /// Opens a session by CHAP, with an address.
    fn open(&mut self) {
        self.open_link();
        assert!(matches!(self.respond(b"alice", b"wonderland"), Effect::Check(_)));
        self.grant();
        let sent = self.sent();
        let id = sent.iter().find(|(protocol, code, ..)| (*protocol, *code) == (IPCP, 1)).unwrap().2;
        self.send(IPCP, 2, id, &[&[3, 6], &SERVER[..]].concat());
        assert_eq!(self.send(IPCP, 1, 2, &[&[3, 6], &ADDRESS[..]].concat()), Effect::Up);
        self.out.clear();
    }
}

fn users() -> Users {
    Users::parse("# users\n\nalice:wonderland\nbob:b:c\n").unwrap()
}

#[test]
fn a_subscriber_logs_in_by_chap_and_gets_an_address() {
    let mut talk = Talk::new(|_| ());
    let request = talk.open_link();
    // MRU 1492, CHAP with MD5, a magic number.
    assert_eq!(request[..11], [1, 4, 0x05, 0xd4, 3, 5, 0xc2, 0x23, 5, 5, 6]);
    let Effect::Check(proof) = talk.respond(b"alice", b"wonderland") else { panic!() };
    assert_eq!(talk.session.name(), b"alice");
    assert_eq!(users().check(b"alice", &proof), Some(true));
    assert_eq!(users().check(b"bob", &proof), Some(false));
    assert_eq!(users().check(b"carol", &proof), None);
    talk.grant();
    let sent = talk.sent();
    let [(CHAP, 3, ..), (IPCP, 1, id, own), (IPV6CP, 1, six, interface)] = &sent[..] else {
        panic!("{sent:02x?}")
    };
    assert_eq!(own[..], [3, 6, 10, 0, 0, 1]);

    // No compression and no WINS; then the assigned address and name server; there is no second name server.
    let wins = [130, 6, 0, 0, 0, 0];
    talk.send(IPCP, 1, 1, &[&[2, 6, 0, 0x2d, 15, 1][..], &[3, 6, 0, 0, 0, 0], &wins].concat());
    assert_eq!(talk.one(), (IPCP, 4, 1, [&[2, 6, 0, 0x2d, 15, 1][..], &wins].concat()));
    talk.send(IPCP, 1, 2, &[3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0]);
    assert_eq!(talk.one(), (IPCP, 3, 2, [&[3, 6], &ADDRESS[..], &[129, 6], &DNS].concat()));
    talk.send(IPCP, 1, 3, &[131, 6, 0, 0, 0, 0]);
    assert_eq!(talk.one().1, 4);
    assert_eq!(talk.send(IPCP, 2, *id, own), Effect::Nothing);
    assert_eq!(talk.send(IPCP, 1, 4, &[&[3, 6], &ADDRESS[..]].concat()), Effect::Up);
    assert_eq!(talk.one().1, 2);

    // IPv6: the server's own identifier and zero are refused.
    for id in [&interface[2..], &[0; 8]] {
        talk.send(IPV6CP, 1, 1, &[&[1, 10], id].concat());
        let (_, code, _, data) = talk.one();
        assert_eq!((code, &data[..2]), (3, &[1, 10][..]));
        assert_ne!(&data[2..], id);
    }
    assert!(!talk.session.has_ipv6());
    talk.send(IPV6CP, 1, 2, &[1, 10, 0, 0, 0, 0, 0, 0, 0, 7]);
    talk.send(IPV6CP, 2, *six, interface);
    assert!(talk.session.has_ipv6());
}

#[test]
fn a_subscriber_that_knows_only_pap_logs_in_by_it() {
    let mut talk = Talk::new(|_| ());
    talk.send(LCP, 1, 1, &MAGIC);
    let (_, _, id, _) = talk.sent().remove(0);
    talk.send(LCP, 3, id, &[3, 4, 0xc0, 0x23]);
    let (_, code, id, request) = talk.one();
    assert_eq!((code, &request[4..8]), (1, &[3, 4, 0xc0, 0x23][..]));
    talk.send(LCP, 2, id, &request);
    assert_eq!(talk.session.phase, Phase::Authentication);
    assert!(talk.sent().is_empty());
    let login = [&[3][..], b"bob", &[3], b"b:c"].concat();
    let Effect::Check(proof) = talk.send(PAP, 1, 8, &login) else { panic!() };
    assert_eq!(proof, Proof::Password(b"b:c".to_vec()));
    assert_eq!(users().check(b"bob", &proof), Some(true));
    // Again, while it is checked, and after it: the answer was lost.
    assert_eq!(talk.send(PAP, 1, 8, &login), Effect::Ignored);
    talk.grant();
    assert_eq!(talk.sent()[0], (PAP, 2, 8, vec![0]));
    assert_eq!(talk.send(PAP, 1, 9, &login), Effect::Ignored);
    assert_eq!(talk.one(), (PAP, 2, 9, vec![0]));
}

#[test]
fn nobody_gets_in_without_authentication() {
    let mut talk = Talk::new(|_| ());
    talk.send(LCP, 1, 1, &MAGIC);
    let (_, _, id, _) = talk.sent().remove(0);
    assert_eq!(talk.send(LCP, 4, id, &[3, 5, 0xc2, 0x23, 5]), Effect::End(Cause::LostCarrier));

    // PAP is not permitted.
    let mut talk = Talk::new(|settings| settings.methods = Methods { pap: false, chap: true });
    talk.send(LCP, 1, 1, &MAGIC);
    let (_, _, id, _) = talk.sent().remove(0);
    assert_eq!(talk.send(LCP, 3, id, &[3, 4, 0xc0, 0x23]), Effect::End(Cause::LostCarrier));

    // Nor is IPCP before the login, and other passwords.
    let mut talk = Talk::new(|_| ());
    talk.open_link();
    assert_eq!(talk.send(IPCP, 1, 1, &[3, 6, 0, 0, 0, 0]), Effect::Ignored);
    let Effect::Check(proof) = talk.respond(b"alice", b"guess") else { panic!() };
    assert_eq!(users().check(b"alice", &proof), Some(false));
    assert_eq!(talk.run(|session, turn| session.refused(b"no", Cause::UserError, turn)), Effect::Down);
    let sent = talk.sent();
    let [(CHAP, 4, _, message), (LCP, 5, id, _)] = &sent[..] else { panic!("{sent:02x?}") };
    assert_eq!(message, b"no");
    assert_eq!(talk.send(LCP, 6, *id, &[]), Effect::End(Cause::UserError));
}

#[test]
fn options_that_make_no_sense_on_ethernet_are_rejected() {
    let mut talk = Talk::new(|_| ());
    // Character map, protocol and address field compression, authentication of the server, callback.
    let others = [2, 6, 0, 0, 0, 0, 7, 2, 8, 2, 3, 4, 0xc0, 0x23, 13, 3, 6];
    talk.send(LCP, 1, 3, &[&MAGIC, &others[..]].concat());
    assert_eq!(talk.sent()[1], (LCP, 4, 3, others.to_vec()));
    // Larger than a frame; the server's magic number; zero.
    talk.send(LCP, 1, 4, &[1, 4, 0x05, 0xdc, 5, 6, 0, 0, 0, 0]);
    let (_, code, _, data) = talk.one();
    assert_eq!((code, &data[..6]), (3, &[1, 4, 0x05, 0xd4, 5, 6][..]));
    // Options whose length is wrong.
    for wrong in [&[1u8, 4, 5][..], &[1], &[1, 1, 0], &[5, 0]] {
        talk.send(LCP, 1, 5, wrong);
        assert!(talk.sent().is_empty(), "{wrong:?}");
    }
    // Who insists is rejected at last.
    let codes: Vec<u8> = (0..7)
        .map(|id| {
            talk.send(LCP, 1, id, &[5, 6, 0, 0, 0, 0]);
            talk.one().1
        })
        .collect();
    assert_eq!(codes, [3, 3, 3, 3, 4, 4, 4]);
}

#[test]
fn an_open_link_answers_echoes_and_rejects_what_it_does_not_know() {
    let mut talk = Talk::new(|_| ());
    talk.open();
    talk.send(LCP, 9, 77, &[1, 2, 3, 4, 8, 8]);
    let (_, code, id, data) = talk.one();
    assert_eq!((code, id, &data[4..]), (10, 77, &[8, 8][..]));
    // CCP, as pppd sends it.
    talk.run(|session, turn| session.receive(0x80fd, &[1, 1, 0, 4], turn));
    assert_eq!((talk.out.packets().count(), talk.one().3), (1, vec![0x80, 0xfd, 1, 1, 0, 4]));
    talk.send(LCP, 99, 1, b"?");
    assert_eq!(talk.one().1, 7);
    // Too long for an answer, shorter than its header, longer than the frame.
    for wrong in [&[9, 1, 0xff, 0xff, 0][..], &[9, 1, 0, 3], &[9, 1, 0, 20, 1, 2], &[9]] {
        assert_eq!(talk.run(|session, turn| session.receive(LCP, wrong, turn)), Effect::Malformed);
    }
    assert!(talk.sent().is_empty());
}

#[test]
fn a_subscriber_that_is_silent_is_lost() {
    let mut talk = Talk::new(|settings| settings.ipv6 = false);
    talk.open();
    // An answered echo request.
    assert_eq!(talk.wait(), Effect::Nothing);
    let (_, code, id, _) = talk.one();
    assert_eq!(code, 9);
    talk.send(LCP, 10, id, &[1, 2, 3, 4]);
    let began = talk.now;
    let mut echoes = 0;
    let end = loop {
        match talk.wait() {
            Effect::Nothing => echoes += 1,
            effect => break effect,
        }
    };
    assert_eq!((echoes, end), (3, Effect::End(Cause::LostCarrier)));
    assert_eq!(talk.now - began, 40 * SECOND);

    // A peer that never says anything, and one that never logs in.
    let mut talk = Talk::new(|_| ());
    let end = std::iter::repeat_with(|| talk.wait()).take(40).find(|effect| *effect != Effect::Nothing);
    assert_eq!(end, Some(Effect::End(Cause::LostCarrier)));
    assert_eq!(talk.sent().iter().filter(|(protocol, code, ..)| (*protocol, *code) == (LCP, 1)).count(), 10);
    let mut talk = Talk::new(|settings| settings.methods = Methods { pap: true, chap: false });
    talk.open_link();
    let end = std::iter::repeat_with(|| talk.wait()).take(40).find(|effect| *effect != Effect::Nothing);
    assert_eq!((end, talk.now), (Some(Effect::Down), 41 * SECOND));
}

#[test]
fn later_challenges_hold_to_the_first_name() {
    let mut talk = Talk::new(|settings| {
        (settings.rechallenge, settings.echo, settings.ipv6) = (60 * SECOND, 0, false);
    });
    talk.open();
    let since = talk.now;
    assert_eq!(talk.wait(), Effect::Nothing);
    assert_eq!(talk.now - since, 60 * SECOND);
    assert_eq!(talk.respond(b"bob", b"b:c"), Effect::Ignored);
    // The challenge is repeated.
    assert_eq!(talk.wait(), Effect::Nothing);
    let Effect::Check(proof) = talk.respond(b"alice", b"wonderland") else { panic!() };
    assert_eq!(users().check(b"alice", &proof), Some(true));
    talk.run(|session, turn| {
        session.confirmed(turn);
        Effect::Nothing
    });
    assert_eq!((talk.one().1, talk.session.phase), (3, Phase::Network));
    // Nobody answers the next one.
    let end = std::iter::repeat_with(|| talk.wait()).take(40).find(|effect| *effect != Effect::Nothing);
    assert_eq!(end, Some(Effect::Down));
    assert_eq!(talk.session.cause(), Some(Cause::LostCarrier));
}

#[test]
fn a_link_that_is_negotiated_again_needs_a_new_login() {
    let mut talk = Talk::new(|_| ());
    talk.open();
    assert_eq!(talk.send(LCP, 1, 50, &MAGIC), Effect::Down);
    assert_eq!((talk.session.phase, talk.session.check()), (Phase::Link, 0));
    let sent = talk.sent();
    let [(LCP, 1, id, request), (LCP, 2, 50, _)] = &sent[..] else { panic!("{sent:02x?}") };
    talk.send(LCP, 2, *id, request);
    let Effect::Check(_) = talk.respond(b"bob", b"b:c") else { panic!() };
    let first = talk.session.check();
    // And again, while the first login is checked: its check counts no more.
    assert_eq!(talk.send(LCP, 1, 51, &MAGIC), Effect::Down);
    assert!(first != 0 && talk.session.check() == 0);
}

#[test]
fn both_sides_can_end_a_session() {
    let mut talk = Talk::new(|_| ());
    talk.open();
    assert_eq!(talk.send(LCP, 5, 9, b"bye"), Effect::End(Cause::UserRequest));
    assert_eq!(talk.one(), (LCP, 6, 9, vec![]));

    let mut talk = Talk::new(|_| ());
    talk.open();
    assert_eq!(talk.run(|session, turn| session.close(Cause::AdminReset, turn)), Effect::Down);
    assert_eq!(talk.one().1, 5);
    assert_eq!(talk.wait(), Effect::Nothing);
    assert_eq!(talk.one().1, 5);
    assert_eq!(talk.wait(), Effect::End(Cause::AdminReset));

    // IPCP alone, and its rejection.
    for packet in [(IPCP, 5u8, vec![]), (LCP, 8, vec![0x80, 0x21, 1])] {
        let mut talk = Talk::new(|_| ());
        talk.open();
        assert_eq!(talk.send(packet.0, packet.1, 3, &packet.2), Effect::Down);
        assert_eq!(talk.session.phase, Phase::Termination);
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// RFC 2202, 2.
#[test]
fn message_authenticators_are_those_of_hmac() {
    let digest = hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
    assert_eq!(digest[..], hex("750c783e6ab0b503eaa86e310a5db738"));
    let digest = hmac(&[0xaa; 80], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
    assert_eq!(digest[..], hex("6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd"));
}

/// RFC 2865, 7.1.
#[test]
fn radius_follows_the_examples_of_its_specification() {
    let authenticator = hex("0f403f9473978057bd83d5cb98f4227a").try_into().unwrap();
    let mut request = Request::access(0, authenticator);
    request.put_proof(&Proof::Password(b"arctangent".to_vec()), b"xyzzy5461");
    let sealed = request.seal(b"xyzzy5461");
    assert_eq!(sealed[HEADER + 18..], hex("02 12 0dbe708d93d413ce3196e43f782a0aee"));
    assert_eq!(usize::from(u16::from_be_bytes([sealed[2], sealed[3]])), sealed.len());

    let bytes = hex("02 00 0026 86fe220e7624ba2a1005f6bf9b55e0b2 060600000001 0f0600000000 0e06c0a80103");
    let reply = Reply::of(&bytes).unwrap();
    assert!(reply.is_genuine(authenticator, b"xyzzy5461", true));
    assert!(!reply.is_genuine(authenticator, b"xyzzy5461", false), "no Message-Authenticator");
    assert!(!reply.is_genuine(authenticator, b"xyzzy5462", true));
    assert_eq!(reply.number(6), Some(1));
    for length in 0..bytes.len() {
        assert_eq!(Reply::of(&bytes[..length]), None);
    }
}

fn server() -> Server {
    let (own, address) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 9));
    Server { own, address, secret: "secret".into(), ..Server::default() }
}

/// An answer to a request in an IPv4 packet, with these attributes.
fn answer(request: &[u8], code: u8, attributes: &[u8], secret: &[u8]) -> Vec<u8> {
    let (ip, _, rest) = Ipv4::parse(request).unwrap();
    let (udp, request) = Udp::split(rest).unwrap();
    let length = (HEADER + attributes.len()) as u16;
    let head = [&[code, request[1]][..], &length.to_be_bytes()].concat();
    let hash = Md5::new().chain_update(&head).chain_update(&request[4..HEADER]).chain_update(attributes);
    let own = hash.chain_update(secret).finalize();
    let payload = [&head, own.as_slice(), attributes].concat();
    let length = (Udp::LEN + payload.len()) as u16;
    let udp = Udp {
        source_port: udp.destination_port,
        destination_port: udp.source_port,
        length: length.into(),
        checksum: 0.into(),
    };
    let back = Ipv4 {
        total_length: (Ipv4::LEN as u16 + length).into(),
        protocol: Protocol::UDP,
        source: ip.destination,
        destination: ip.source,
        ..Ipv4::EMPTY
    };
    [back.bytes(), udp.bytes(), &payload].concat()
}

#[test]
fn answers_are_matched_and_checked() {
    let mut client = Client::new(Server { lax: true, ..server() });
    let mut nonce = Nonce::new([1; 16]);
    let request = client.ask((5, 77), (0, &mut nonce), |request, _| request.put(1, b"alice")).unwrap();
    assert_eq!(u16::from_be_bytes([request[22], request[23]]), 1812);
    let forged = answer(&request, 2, &[], b"guess");
    assert_eq!(client.receive(&forged), Outcome::Forged);
    // A correct answer, but to accounting.
    let other = answer(&request, ACCOUNTING_RESPONSE, &[], b"secret");
    assert_eq!(client.receive(&other), Outcome::Stranger);
    let right = answer(&request, 2, &[8, 6, 10, 0, 0, 7], b"secret");
    let Outcome::Answer((5, 77), reply) = client.receive(&right) else { panic!() };
    assert_eq!(reply.find(attribute::FRAMED_IP_ADDRESS), Some(&[10, 0, 0, 7][..]));
    assert_eq!(client.receive(&right), Outcome::Stranger, "it is not pending any more");

    let report = client.account(0, |request, _| request.put_number(attribute::ACCT_STATUS_TYPE, 1)).unwrap();
    assert_eq!(u16::from_be_bytes([report[22], report[23]]), 1813);
    let sum = Md5::new().chain_update(&report[28..32]).chain_update([0; 16]).chain_update(&report[48..]);
    assert_eq!(sum.chain_update("secret").finalize()[..], report[32..48], "RFC 2866, 3");
    assert_eq!(client.receive(&answer(&report, ACCOUNTING_RESPONSE, &[], b"secret")), Outcome::Accounted);
    assert_eq!((client.due(), client.forged), (NEVER, 1));

    // Without a Message-Authenticator nothing is accepted, unless told so.
    let mut strict = Client::new(server());
    let request = strict.ask((5, 78), (0, &mut nonce), |_, _| ()).unwrap();
    assert_eq!(strict.receive(&answer(&request, 2, &[], b"secret")), Outcome::Forged);
}

#[test]
fn requests_are_repeated_then_given_up_and_bounded() {
    let (mut client, mut nonce) = (Client::new(server()), Nonce::default());
    let first = client.ask((5, 1), (0, &mut nonce), |_, _| ()).unwrap();
    assert_eq!(client.tick(0), Err(None));
    let mut sent = 1;
    let end = loop {
        match client.tick(client.due()) {
            Ok(packet) => assert_eq!(packet, first),
            Err(who) => break who,
        }
        sent += 1;
    };
    assert_eq!((sent, end, client.due()), (4, Some((5, 1)), NEVER));
    // Another request of a session takes the place of its own one; a session that ends needs none.
    for check in 0..5000 {
        assert!(client.ask((5, check), (0, &mut nonce), |_, _| ()).is_some());
    }
    assert!(client.waits((5, 4999)) && !client.waits((5, 4998)));
    client.forget(5);
    assert_eq!((client.due(), client.waits((5, 4999))), (NEVER, false));
    // Logins leave room for reports.
    let asked = (0..5000).filter(|id| client.ask((*id, 1), (0, &mut nonce), |_, _| ()).is_some());
    assert_eq!((asked.count(), client.full), (2048, 2952));
    let reports: Vec<_> = (0..5000).filter_map(|_| client.account(0, |_, _| ())).collect();
    assert_eq!((reports.len(), client.full), (2048, 5904));
    let last = answer(reports.last().unwrap(), ACCOUNTING_RESPONSE, &[], b"secret");
    assert_eq!(client.receive(&last), Outcome::Accounted);
    assert!(client.account(0, |_, _| ()).is_some() && client.account(0, |_, _| ()).is_none());
}

#[test]
fn only_framed_service_lets_a_subscriber_in() {
    let accepts = |code: u8, attributes: &[u8]| {
        let length = (HEADER + attributes.len()) as u8;
        Reply::of(&[&[code, 1, 0, length], &[0; 16][..], attributes].concat()).unwrap().accepts()
    };
    assert!(accepts(2, &[]) && accepts(2, &[6, 6, 0, 0, 0, 2]));
    assert!(!accepts(2, &[6, 6, 0, 0, 0, 6]) && !accepts(2, &[6, 2]) && !accepts(3, &[]));
}

#[test]
fn negotiating_again_gives_no_more_time_and_no_more_sessions() {
    // Before a login: the first deadline stays.
    let mut talk = Talk::new(|_| ());
    for round in 0..10 {
        let sent = {
            talk.send(LCP, 1, round, &MAGIC);
            talk.sent()
        };
        let (_, _, id, request) = sent.iter().find(|sent| (sent.0, sent.1) == (LCP, 1)).unwrap();
        talk.send(LCP, 2, *id, request);
        talk.sent();
        talk.now += 3 * SECOND;
    }
    assert_eq!(talk.session.phase, Phase::Authentication);
    talk.now = 41 * SECOND;
    let end = std::iter::repeat_with(|| talk.run(Session::tick)).take(9).find(|e| *e != Effect::Nothing);
    assert_eq!((end, talk.session.cause()), (Some(Effect::Down), Some(Cause::UserError)));

    // After it: IPCP may go down and up again, since an answer may be lost, but not without end.
    let mut talk = Talk::new(|settings| settings.ipv6 = false);
    talk.open();
    let mut rounds = 0;
    while talk.session.phase == Phase::Network {
        assert_eq!(talk.send(IPCP, 1, 9, &[&[3, 6], &ADDRESS[..]].concat()), Effect::Down);
        let sent = talk.sent();
        let own = sent.iter().find(|sent| (sent.0, sent.1) == (IPCP, 1)).unwrap();
        talk.send(IPCP, 2, own.2, &own.3);
        rounds += 1;
        assert!(rounds < 20);
    }
    assert_eq!((rounds, talk.session.cause()), (11, Some(Cause::UserError)));
}

#[test]
fn a_smaller_receive_unit_is_accepted() {
    let mut talk = Talk::new(|_| ());
    talk.send(LCP, 1, 1, &MAGIC);
    let (_, _, id, _) = talk.sent().remove(0);
    talk.send(LCP, 3, id, &[1, 4, 0x05, 0xaa]);
    let (_, code, id, request) = talk.one();
    assert_eq!((code, &request[..4]), (1, &[1, 4, 0x05, 0xaa][..]));
    // A larger one than fits, or none at all.
    talk.send(LCP, 3, id, &[1, 4, 0x05, 0xdc]);
    assert_eq!(talk.one().3[0], 3);
}

#[test]
fn addresses_are_given_once() {
    let prefix = Prefix { address: Ipv4Addr::new(10, 0, 0, 77), mask: Ipv4Addr::new(255, 255, 255, 248) };
    let mut pool = Pool::new(prefix).unwrap();
    assert!(pool.take(Ipv4Addr::new(10, 0, 0, 73)) && !pool.take(Ipv4Addr::new(10, 0, 0, 73)));
    assert!(!pool.take(Ipv4Addr::new(10, 0, 0, 72)) && !pool.take(Ipv4Addr::new(10, 0, 0, 79)));
    let mut given: Vec<u8> = std::iter::from_fn(|| pool.get()).map(|address| address.octets()[3]).collect();
    given.sort_unstable();
    assert_eq!(given, [74, 75, 76, 77, 78]);
    pool.give_back(Ipv4Addr::new(10, 0, 0, 76));
    pool.give_back(Ipv4Addr::new(10, 9, 9, 9));
    assert_eq!(pool.get(), Some(Ipv4Addr::new(10, 0, 0, 76)));
    assert_eq!(pool.get(), None);
    // A single address.
    let mut pool = Pool::new(Prefix { mask: Ipv4Addr::BROADCAST, ..prefix }).unwrap();
    assert_eq!((pool.get(), pool.get()), (Some(prefix.address), None));
    assert!(Pool::new(Prefix { mask: Ipv4Addr::new(255, 0, 255, 0), ..prefix }).is_none());
}

#[test]
fn wrong_lines_of_users_are_refused() {
    assert_eq!(users().len(), 2);
    for (text, error) in [
        ("alice", "line 1: expected NAME:PASSWORD"),
        ("#\na:b\na:c", "line 3: a appears twice"),
        (":x", "line 1: names have 1 to 253 bytes, passwords at most 128"),
    ] {
        assert_eq!(Users::parse(text).unwrap_err(), error);
    }
}
