//! Tests of switches with flow tables, between queues that are plain lists.

use super::super::tests::{Bench, frame};
use super::super::{MirrorPlace, Served, Target, TracedCopy};
use super::*;
use proptest::prelude::*;
use ringway_flow::{Changes, LONGEST_HEADERS, Numbers};
use ringway_frame::Reason;
use ringway_mem::Span;
use ringway_spec::Kind;
use ringway_switch::{LookupContext, LookupFactory, PortNumbers, flows};

const PORTS: u16 = 4;

/// Ports 0 to 3 on a switch with flow tables, whose numbers are 1 to 4.
struct Lab {
    bench: Bench,
    factory: Box<dyn LookupFactory>,
}

impl Lab {
    fn new(rules: &str) -> Lab {
        Lab::with(PORTS, rules)
    }

    /// With more ports.
    fn with(count: u16, rules: &str) -> Lab {
        let ports = PortNumbers((0..count).map(|id| (format!("p{id}"), id + 1)).collect());
        let settings = flows::Settings { rules: rules.into(), ports, file: None };
        let mut factory = (flows::LOOKUP.open)(&Kind::new("flow", &settings)).unwrap();
        factory.flows().unwrap().begin(1).unwrap_or_else(|wrong| panic!("{rules}: {wrong}"));
        let lookup = factory.make(&LookupContext {
            port: &|name| name.strip_prefix('p')?.parse().ok(),
            ports: 2000,
            hash: FlowHash::new(1),
            forward_reserved: false,
            seed: 3,
            rejected: &|_| {},
        });
        let members = (0..count).collect();
        let switch = Arc::new(Switch { lookup, members, has_policies: true, snooping: None });
        let mut bench = Bench::with(count, |_| Target::Switch(switch.clone()));
        bench.receive_flown();
        Lab { bench, factory }
    }

    /// Sends frames from a port, and serves it until it has none, or waits.
    fn send(&mut self, port: usize, frames: &[&'static [u8]]) {
        self.bench.send(port, frames);
        while matches!(self.bench.serve(port), Served::Moved(_)) {}
    }

    fn got(&self) -> Vec<Vec<Vec<u8>>> {
        (0..usize::from(PORTS)).map(|port| self.bench.got(port)).collect()
    }

    /// Lengths of the frames that each port got.
    fn lengths(&self) -> Vec<Vec<usize>> {
        self.got().iter().map(|port| port.iter().map(Vec::len).collect()).collect()
    }

    /// The frames of each flow, by its text.
    fn counted(&mut self) -> Vec<(String, u64)> {
        let tables = self.factory.flows().unwrap().tables();
        let count =
            |flow: &Arc<ringway_flow::Flow>| (flow.flow.show(&Numbers), flow.counters.frames.load(Relaxed));
        tables.select(&Default::default()).iter().map(count).collect()
    }

    fn change(&mut self, text: &str) {
        let flows = self.factory.flows().unwrap();
        let changes = Changes::read(text, None, flows.ports()).unwrap().changes;
        flows.tables().apply(&changes, self.bench.now).unwrap();
    }

    fn pipeline(&mut self) -> Arc<Pipeline> {
        self.factory.flows().unwrap().tables().current().clone()
    }

    fn drops(&self, port: usize, reason: Reason) -> u64 {
        self.bench.counters(port).tx_drops_of(reason).load(Relaxed)
    }
}

fn tcp(vlan: &str) -> &'static [u8] {
    let text = format!(
        "tcp,{vlan}dl_src=02:00:00:00:00:00,dl_dst=02:00:00:00:00:01,nw_src=10.0.0.1,nw_dst=10.0.0.2"
    );
    ringway_wire::fields::Described::parse(&text).unwrap().frame.leak()
}

#[test]
fn one_unchanged_copy_goes_its_way_and_others_are_made() {
    let mut lab = Lab::new(
        "in_port=p0,dl_dst=02:00:00:00:00:01,actions=output:p1\n\
         in_port=p0,dl_dst=02:00:00:00:00:02,actions=output:p1,output:p2\n\
         in_port=p0,dl_dst=02:00:00:00:00:03,actions=in_port,mod_vlan_vid:7,output:p3\n\
         in_port=p1,actions=flood\nin_port=p2,actions=output:9\n",
    );
    lab.send(0, &[frame(1, 0, 60), frame(2, 0, 61), frame(3, 0, 62), frame(4, 0, 63)]);
    assert_eq!(lab.lengths(), [vec![62], vec![60, 61], vec![61], vec![66]]);
    assert_eq!(lab.drops(0, Reason::Flow), 1, "no flow matches the last one");
    lab.send(1, &[frame(1, 0, 60)]);
    assert_eq!(lab.lengths(), [vec![60], vec![], vec![60], vec![60]]);
    lab.send(2, &[frame(1, 0, 60), frame(1, 0, 13)]);
    assert_eq!((lab.drops(2, Reason::NoPort), lab.drops(2, Reason::Short)), (1, 1));
    assert_eq!(lab.bench.counters(0).tx_frames.load(Relaxed), 4);
}

#[test]
fn a_group_of_all_changes_each_copy() {
    let mut lab = Lab::new(
        "group_id=1,type=all,bucket=mod_dl_dst:02:00:00:00:00:aa,output:p1,bucket=mod_vlan_vid:9,output:p2,\
         bucket=dec_ttl,output:p3\nactions=group:1\n",
    );
    let own = tcp("");
    lab.send(0, &[own]);
    let got = lab.got();
    let mut first = own.to_vec();
    first[5] = 0xaa;
    assert_eq!(got[1], [first]);
    let mut second = own.to_vec();
    second.splice(12..12, [0x81, 0, 0, 9]);
    assert_eq!(got[2], [second]);
    assert_eq!((got[3][0][22], got[3][0].len()), (own[22] - 1, own.len()));
    assert_eq!(lab.counted()[0].1, 1);
}

#[test]
fn a_meter_drops_what_is_beyond_its_rate_and_says_so() {
    let mut lab =
        Lab::new("meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=3\nactions=meter:1,output:p1\n");
    lab.send(0, &[frame(1, 0, 60); 5]);
    assert_eq!((lab.lengths()[1].len(), lab.drops(0, Reason::Meter)), (3, 2));
    let traced = lab.bench.trace(0, frame(1, 0, 60));
    assert_eq!(traced.dropped, Some(Reason::Meter));
    let rows = ["table 0: priority=32768 actions=meter:1,output:\"1\"", "meter 1: beyond its rate"];
    assert_eq!(traced.flows, rows, "the name of port 1 is a number, and so it is quoted");
    assert_eq!(lab.counted()[0].1, 5, "a trace counts nothing");
}

#[test]
fn a_frame_that_waits_is_counted_and_metered_once_and_copied_once() {
    let mut lab = Lab::new(
        "meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=10\n\
         dl_dst=02:00:00:00:00:01,actions=meter:1,output:p1\n\
         dl_dst=02:00:00:00:00:02,actions=output:p2,output:p3\ndl_dst=02:00:00:00:00:05,actions=drop\n",
    );
    lab.bench.set_room(1, 1);
    lab.bench.send(0, &[frame(1, 0, 60), frame(2, 0, 61), frame(1, 0, 62), frame(2, 0, 63), frame(5, 0, 64)]);
    assert_eq!(lab.bench.serve(0), Served::Moved(2));
    (0..5).for_each(|_| assert_eq!(lab.bench.serve(0), Served::Waiting));
    assert_eq!(lab.lengths(), [vec![], vec![60], vec![61, 63], vec![61, 63]], "they wait for nobody");
    lab.bench.set_room(1, 5);
    lab.send(0, &[]);
    assert_eq!(lab.lengths(), [vec![], vec![62], vec![], vec![]]);
    let frames: Vec<u64> = lab.counted().into_iter().map(|(_, frames)| frames).collect();
    assert_eq!((frames.iter().sum::<u64>(), lab.drops(0, Reason::Flow)), (5, 1));
    let meter = lab.pipeline();
    assert_eq!(meter.meter(1).unwrap().counters.frames.load(Relaxed), 2);
    // What becomes of a frame that waits is decided again by what it is then.
    lab.bench.set_room(1, 0);
    lab.bench.send(0, &[frame(1, 0, 60)]);
    assert_eq!(lab.bench.serve(0), Served::Waiting);
    lab.change("flow modify dl_dst=02:00:00:00:00:01,actions=drop");
    assert_eq!(lab.bench.serve(0), Served::Moved(1));
    assert_eq!(lab.drops(0, Reason::Flow), 2);
}

#[test]
fn normal_learns_and_follows_changed_addresses() {
    let mut lab =
        Lab::new("priority=1,actions=normal\npriority=9,vlan_tci=0x1005/0x1fff,actions=strip_vlan,normal\n");
    lab.send(1, &[frame(0xff, 1, 60)]);
    assert_eq!(lab.lengths(), [vec![60], vec![], vec![60], vec![60]]);
    lab.send(0, &[frame(1, 0, 61)]);
    assert_eq!(lab.lengths(), [vec![], vec![61], vec![], vec![]]);
    let traced = lab.bench.trace(2, frame(1, 2, 62));
    assert_eq!(traced.copies.iter().map(|copy| copy.port).collect::<Vec<_>>(), [1]);
    let mut tagged = frame(1, 0, 60).to_vec();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    lab.send(0, &[tagged.leak()]);
    assert_eq!(lab.lengths(), [vec![], vec![60], vec![], vec![]], "without its tag it is known");
}

#[test]
fn mirrors_get_what_flows_send() {
    let mut lab = Lab::new("in_port=p0,actions=mod_vlan_vid:7,output:p1\n");
    lab.bench.mirror(3, &[1], (false, true), |_| {});
    let traced = lab.bench.trace(0, frame(1, 0, 60));
    assert_eq!(traced.mirrored, [(3, MirrorPlace::To(1))]);
    lab.send(0, &[frame(1, 0, 60)]);
    assert_eq!(lab.lengths(), [vec![], vec![64], vec![], vec![64]]);
}

#[test]
fn headers_that_a_peer_changes_later_are_those_that_were_looked_up() {
    // IPv6 with TCP's flags behind the first 64 bytes.
    let text =
        "tcp6,dl_src=02:00:00:00:00:00,dl_dst=02:00:00:00:00:01,ipv6_src=fd00::1,ipv6_dst=fd00::2,tp_dst=80";
    let bytes = ringway_wire::fields::Described::parse(text).unwrap().frame;
    let mut storage = Storage::new(2);
    let mut room: Box<[[u8; BEHIND]]> = Box::default();
    let own = bytes.clone();
    let mut burst = Burst::begin(&mut storage);
    burst.push(Offload::default(), Span::of(&own)).unwrap();
    let before = burst.tail(0)[0];
    pull(&mut room, &mut burst);
    assert_ne!(burst.tail(0)[0].len(), 0);
    let mut read = vec![0; bytes.len()];
    burst.read(0, 0, &mut read);
    assert_eq!((read, before.len()), (bytes, own.len() - HEAD));
    let head = |frame: &[u8]| *frame.first_chunk::<HEAD>().unwrap();
    assert!(!is_in_head(&head(&own)));
    let mut ipv4 = tcp("").to_vec();
    ipv4.resize(HEAD, 0);
    assert!(is_in_head(&head(&ipv4)));
    assert_eq!(BEHIND + HEAD, LONGEST_HEADERS);
}

#[test]
fn a_burst_of_many_copies_is_taken_in_parts() {
    let mut rules = String::from("actions=");
    (0..40).for_each(|vlan| rules += &format!("mod_vlan_vid:{vlan},output:p1,"));
    let mut lab = Lab::new(&rules);
    lab.send(0, &[frame(1, 0, 60); 64]);
    assert_eq!(lab.lengths()[1].len(), 64 * 40);
    assert_eq!(lab.counted()[0].1, 64);
}

#[test]
fn a_flooded_frame_reaches_every_port_with_room() {
    let mut lab = Lab::with(1500, "actions=mod_vlan_vid:7,flood\n");
    lab.send(0, &[frame(0xff, 0, 60), frame(0xff, 0, 1500), frame(0xff, 0, 61)]);
    for port in 1..1500 {
        let lengths: Vec<usize> = lab.bench.got(port).iter().map(Vec::len).collect();
        assert_eq!(lengths, [64, 1504, 65], "port {port}");
    }
    assert_eq!((lab.counted()[0].1, lab.bench.counters(0).tx_frames.load(Relaxed)), (3, 3));
}

#[test]
fn a_frame_whose_copies_have_no_room_waits_and_is_counted_once() {
    let mut rules = String::from("actions=");
    (0..127).for_each(|vlan| rules += &format!("mod_vlan_vid:{vlan},output:p1,"));
    let mut lab = Lab::new(&rules);
    // A megabyte each, of two that there may be.
    lab.bench.send(0, &[frame(1, 0, 8200), frame(1, 0, 8900)]);
    assert_eq!(lab.bench.serve(0), Served::Moved(1), "the second one has no room");
    assert_eq!(lab.bench.serve(0), Served::Moved(1));
    assert_eq!(lab.lengths()[1], [[8204; 127], [8904; 127]].concat());
    assert_eq!(lab.counted()[0].1, 2);
    // Copies of frames that never have it are not made at all.
    lab.send(0, &[frame(1, 0, 60), frame(1, 0, 17_000), frame(1, 0, 61)]);
    assert_eq!(lab.lengths()[1], [[64; 127], [65; 127]].concat());
    assert_eq!(lab.drops(0, Reason::FlowLimit), 1);
    assert_eq!(lab.bench.trace(0, frame(1, 0, 17_000)).dropped, Some(Reason::FlowLimit));
}

#[test]
fn copies_that_go_nowhere_are_counted_with_the_reason() {
    let mut lab = Lab::new(
        "in_port=p0,actions=output:p1,output:9\nin_port=p1,actions=output:9,mod_vlan_vid:5,output:8\n\
         in_port=p2,actions=mod_vlan_vid:5,normal\nin_port=p3,actions=output:p1,mod_vlan_vid:5,normal\n",
    );
    lab.send(0, &[frame(1, 0, 60)]);
    assert_eq!((lab.lengths()[1].len(), lab.drops(0, Reason::NoPort)), (1, 1));
    lab.send(1, &[frame(1, 1, 60)]);
    assert_eq!(lab.drops(1, Reason::NoPort), 1, "it is one frame");
    let mut reserved = frame(1, 2, 60).to_vec();
    reserved[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 3]);
    let mut group = frame(1, 2, 60).to_vec();
    group[6] = 1;
    let (reserved, group): (&[u8], &[u8]) = (reserved.leak(), group.leak());
    let reasons = |bench: &mut Lab, port: usize| {
        [Reason::Reserved, Reason::BadSource, Reason::Hairpin, Reason::NoPort]
            .map(|why| bench.drops(port, why))
    };
    for frame in [reserved, group] {
        let traced = lab.bench.trace(2, frame).dropped;
        assert_eq!(traced, Some(if frame == group { Reason::BadSource } else { Reason::Reserved }));
    }
    lab.send(2, &[reserved, group, frame(2, 2, 60), frame(2, 2, 60)]);
    assert_eq!(reasons(&mut lab, 2), [1, 1, 2, 0]);
    lab.bench.got(1);
    lab.send(3, &[reserved, group]);
    assert_eq!((lab.bench.got(1).len(), reasons(&mut lab, 3)), (2, [1, 1, 0, 0]));
}

/// Random rules of few words, so that they meet. Without meters and `normal`, they depend on the frame alone.
fn rules() -> impl Strategy<Value = String> {
    let of = prop::sample::select(vec![
        "",
        "in_port=p0,",
        "in_port=2,",
        "dl_dst=02:00:00:00:00:01,",
        "dl_dst=ff:ff:ff:ff:ff:ff,",
        "dl_src=02:00:00:00:00:00/ff:ff:ff:ff:ff:fe,",
        "vlan_tci=0/0x1fff,",
        "dl_vlan=7,",
    ]);
    let action = prop::sample::select(vec![
        "output:p0",
        "output:p1",
        "output:p2",
        "output:p3",
        "output:9",
        "in_port",
        "flood",
        "all",
        "group:1",
        "group:2",
        "mod_vlan_vid:7",
        "strip_vlan",
        "mod_dl_dst:02:00:00:00:00:02",
        "resubmit(,1)",
        "clone(mod_vlan_vid:8,output:p2)",
    ]);
    let flow = (0u8..2, 0u16..6, of, prop::collection::vec(action, 0..4));
    prop::collection::btree_map((0u8..2, 0u16..6), flow, 1..9).prop_map(|flows| {
        let mut text =
            "group_id=1,type=all,bucket=output:p1,bucket=mod_vlan_vid:9,output:p2,bucket=in_port\n\
            group_id=2,type=select,bucket=output:p1,bucket=output:p3\n"
                .to_string();
        for ((table, priority), (_, _, of, actions)) in flows {
            let actions = if actions.is_empty() { "drop".into() } else { actions.join(",") };
            let actions = if table == 1 { actions.replace("resubmit(,1)", "flood") } else { actions };
            text += &format!("table={table},priority={priority},{of}actions={actions}\n");
        }
        text
    })
}

/// The copies of a frame as the tables alone say them: the ports' numbers, and the bytes.
fn expected(pipeline: &Pipeline, from: usize, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut copies = all_copies(pipeline, from, bytes);
    copies.retain(|(to, _)| *to < usize::from(PORTS));
    copies
}

/// As [`expected`], with those for ports that are not there.
fn all_copies(pipeline: &Pipeline, from: usize, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut worker = Worker::default();
    let arrival = ringway_flow::Arrival {
        in_port: from as u16 + 1,
        ports: PORTS,
        len: bytes.len() as u32,
        pending: None,
    };
    let read = |at: usize, out: &mut [u8]| {
        let rest = bytes.get(at..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        count
    };
    let (_, verdict) = pipeline.trace(&mut worker, (arrival, 1), read);
    let mut copies = Vec::new();
    for output in verdict.outputs {
        let mut own = bytes.to_vec();
        if let Some(headers) = verdict.headers(output) {
            own = [headers.bytes(), &bytes[headers.replaces()..]].concat();
        }
        match output.to {
            To::Port(number) => copies.push((usize::from(number) - 1, own)),
            _ => copies.extend((0..usize::from(PORTS)).filter(|to| *to != from).map(|to| (to, own.clone()))),
        }
    }
    copies
}

type Sent = (usize, u8, u8, Option<u8>, usize);

fn frame_of((_, to, source, vlan, len): Sent) -> &'static [u8] {
    let to = if to > 3 { 0xff } else { to };
    let bytes = frame(to, source, len);
    let Some(vlan) = vlan else { return bytes };
    let mut bytes = bytes.to_vec();
    bytes.splice(12..12, [0x81, 0, 0, vlan]);
    bytes.leak()
}

fn sent() -> impl Strategy<Value = Sent> {
    (0usize..4, 0u8..5, 0u8..3, prop::option::of(6u8..9), 14usize..120)
}

proptest! {
    #[test]
    fn copies_are_those_of_the_tables_and_a_trace_says_them(
        rules in rules(), frames in prop::collection::vec(sent(), 1..20),
    ) {
        let mut lab = Lab::new(&rules);
        let pipeline = lab.pipeline();
        for sent in &frames {
            let bytes = frame_of(*sent);
            let mut expected = expected(&pipeline, sent.0, bytes);
            let traced = lab.bench.trace(sent.0, bytes);
            let form = |copy: &TracedCopy| match &copy.completed {
                Some((first, _)) => (usize::from(copy.port), first.clone()),
                None => (usize::from(copy.port), bytes.to_vec()),
            };
            let mut said: Vec<_> = traced.copies.iter().map(form).collect();
            let before = lab.bench.all_counters();
            lab.send(sent.0, &[bytes]);
            let got = lab.got().into_iter().enumerate();
            let each = |(port, own): (usize, Vec<Vec<u8>>)| own.into_iter().map(move |own| (port, own));
            let mut got: Vec<_> = got.flat_map(each).collect();
            expected.sort();
            got.sort();
            said.sort();
            prop_assert_eq!(&got, &expected, "{:?} {}", sent, rules);
            prop_assert_eq!(&said, &expected, "{:?}", traced);
            prop_assert_eq!(traced.dropped.is_some(), expected.is_empty());
            if let Some(reason) = traced.dropped {
                prop_assert_eq!(lab.bench.drops_since(&before), [(sent.0, reason)], "{:?}", traced);
            }
        }
    }

    #[test]
    fn each_frame_is_counted_once_and_each_copy_arrives_or_is_counted_as_dropped(
        rules in rules(),
        steps in prop::collection::vec(
            (prop::collection::vec(sent(), 0..30), [0usize..40, 0..40, 0..40, 0..40]),
            1..8,
        ),
    ) {
        let mut lab = Lab::new(&rules);
        let pipeline = lab.pipeline();
        let (mut copies, mut frames, mut arrived) = (0, 0, 0);
        for (list, rooms) in steps {
            (0..4).for_each(|port| lab.bench.set_room(port, rooms[port]));
            for sent in list {
                let bytes = frame_of(sent);
                // A frame without a copy is dropped at its own port, as one; so is a copy for no port.
                let all = all_copies(&pipeline, sent.0, bytes).len();
                copies += if expected(&pipeline, sent.0, bytes).is_empty() { 1 } else { all as u64 };
                frames += 1;
                lab.bench.send(sent.0, &[bytes]);
                lab.bench.serve(sent.0);
                lab.bench.now += 1_000;
            }
            arrived += lab.lengths().iter().map(Vec::len).sum::<usize>() as u64;
        }
        for port in (0..4).cycle().take(400) {
            (0..4).for_each(|port| lab.bench.set_room(port, usize::MAX));
            lab.bench.now += 1_000_000;
            lab.bench.serve(port);
        }
        arrived += lab.lengths().iter().map(Vec::len).sum::<usize>() as u64;
        let dropped: u64 = (0..4).map(|port| {
            let own = lab.bench.counters(port);
            own.all_tx_drops().chain(own.all_rx_drops()).map(|count| count.load(Relaxed)).sum::<u64>()
        }).sum();
        prop_assert_eq!(arrived + dropped, copies, "{}", rules);
        let first = |text: &str| text.contains("table=0");
        let counted = lab.counted();
        let counted: u64 = counted.iter().filter(|(text, _)| first(text)).map(|(_, frames)| frames).sum();
        let unmatched: u64 = (0..4).map(|port| lab.drops(port, Reason::Flow)).sum();
        let is_once = counted <= frames && counted + unmatched >= frames;
        prop_assert!(is_once, "{} of {}: {}", counted, frames, rules);
    }
}
