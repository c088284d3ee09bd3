use super::*;
use crate::{Change, Group, MeterMod, Numbers, Rules, Tables};
use ringway_wire::fields::Described;
use std::sync::atomic::Ordering::Relaxed;

fn tables(file: &str) -> Tables {
    let mut tables = Tables::new(7);
    tables.replace(&Rules::read(file, &Numbers).unwrap(), 0).unwrap();
    tables
}

/// The copies of a frame from port 1, and why there is none.
fn run_frame(tables: &Tables, frame: &[u8]) -> (Vec<(To, Vec<u8>)>, Option<Dropped>) {
    run_from(tables, frame, Arrival { in_port: 1, ports: 4, len: frame.len() as u32, pending: None })
}

fn run_from(tables: &Tables, frame: &[u8], arrival: Arrival) -> (Vec<(To, Vec<u8>)>, Option<Dropped>) {
    let mut worker = Worker::default();
    let mut batch = tables.current().begin(&mut worker, 1_000_000_000);
    let verdict = batch.run(arrival, |from, into| {
        let rest = frame.get(from..).unwrap_or_default();
        let count = into.len().min(rest.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    });
    let bytes = |output| match verdict.headers(output) {
        None => frame.to_vec(),
        Some(headers) => {
            assert_eq!(headers.bytes().len() as i16 - headers.replaces() as i16, headers.grown());
            [headers.bytes(), &frame[headers.replaces()..]].concat()
        }
    };
    (verdict.outputs.iter().map(|output| (output.to, bytes(output))).collect(), verdict.dropped)
}

fn frame(text: &str) -> Vec<u8> {
    Described::parse(text).unwrap().frame
}

fn ports(tables: &Tables, text: &str) -> Vec<To> {
    run_frame(tables, &frame(text)).0.into_iter().map(|(to, _)| to).collect()
}

#[test]
fn copies_go_out_as_they_are_at_that_time() {
    let file =
        "ip,actions=output:2,mod_nw_dst:10.0.0.9,output:3,output:4,clone(mod_nw_ttl:7,output:5),all,in_port";
    let (own, changed) = (frame("icmp,nw_dst=10.0.0.2"), frame("icmp,nw_dst=10.0.0.9"));
    let (copies, dropped) = run_frame(&tables(file), &own);
    assert_eq!(dropped, None);
    let expected = [
        (To::Port(2), own),
        (To::Port(3), changed.clone()),
        (To::Port(4), changed.clone()),
        (To::Port(5), frame("icmp,nw_dst=10.0.0.9,nw_ttl=7")),
        (To::Others, changed.clone()),
        (To::Port(1), changed),
    ];
    assert_eq!(copies, expected);
}

#[test]
fn checksums_are_right_after_changes() {
    let (nat, v6) = (
        "tcp,actions=mod_nw_src:192.0.2.1,mod_tp_dst:8080,dec_ttl,mod_nw_tos:32,output:2\n\
         udp,actions=mod_nw_dst:192.0.2.9,mod_tp_src:99,output:2",
        "tcp6,actions=set_field:fd00::99->ipv6_dst,mod_tp_src:5,set_field:7->ipv6_label,dec_ttl,output:2\n\
         icmp6,actions=set_field:fd00::77->ipv6_src,output:2",
    );
    for (file, from, to) in [
        (
            nat,
            "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80",
            "tcp,nw_src=192.0.2.1,nw_dst=10.0.0.2,tp_dst=8080,nw_ttl=63,nw_tos=32",
        ),
        (
            nat,
            "udp,dl_vlan=5,nw_dst=10.0.0.2,tp_dst=80",
            "udp,dl_vlan=5,nw_dst=192.0.2.9,tp_dst=80,tp_src=99",
        ),
        (
            v6,
            "tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2",
            "tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::99,tp_src=5,nw_ttl=63",
        ),
        (v6, "icmp6,ipv6_src=fd00::1,ipv6_dst=fd00::2", "icmp6,ipv6_src=fd00::77,ipv6_dst=fd00::2"),
    ] {
        let (copies, _) = run_frame(&tables(file), &frame(from));
        let mut expected = frame(to);
        if from.starts_with("tcp6") {
            expected[17] = 7;
        }
        assert_eq!(copies, [(To::Port(2), expected)], "{from}");
    }
}

#[test]
fn a_pending_checksum_is_that_of_the_changed_pseudo_header() {
    let pseudo = |source: u32| {
        let mut sum = ringway_wire::Sum::new();
        [source, 0x0a00_0002, 6, 20].into_iter().for_each(|word| sum.add_u32(word));
        sum.value()
    };
    let own = tables("tcp,actions=mod_nw_src:192.0.2.1,mod_tp_dst:8080,output:2");
    let mut frame = frame("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80");
    frame[50..52].copy_from_slice(&pseudo(0x0a00_0001).to_be_bytes());
    let arrival = Arrival { in_port: 1, ports: 4, len: frame.len() as u32, pending: Some(50) };
    let (copies, _) = run_from(&own, &frame, arrival);
    assert_eq!(copies[0].1[50..52], pseudo(0xc000_0201).to_be_bytes());
    assert_eq!(copies[0].1[36..38], 8080u16.to_be_bytes());
}

#[test]
fn tags_are_added_changed_and_removed() {
    let of = |actions: &str| tables(&format!("actions={actions},output:2"));
    let got = |actions: &str, text: &str| run_frame(&of(actions), &frame(text)).0[0].1.clone();
    let plain = "tcp,nw_dst=10.0.0.1";
    // The described frame has less padding with a tag.
    assert_eq!(got("mod_vlan_vid:5", plain)[..60], frame("dl_vlan=5,tcp,nw_dst=10.0.0.1"));
    assert_eq!(got("mod_vlan_vid:7,mod_vlan_pcp:3", "dl_vlan=5,tcp"), frame("dl_vlan=7,dl_vlan_pcp=3,tcp"));
    assert_eq!(got("strip_vlan", "dl_vlan=5,tcp,nw_dst=10.0.0.1"), frame(plain)[..56]);
    assert_eq!(got("strip_vlan", plain), frame(plain));
    let twice = got("push_vlan:0x88a8,set_field:4105->vlan_vid", "dl_vlan=5,tcp");
    assert_eq!(twice[12..20], [0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]);
    assert_eq!(got("push_vlan:0x8100,strip_vlan", plain), frame(plain));
    // Attack: tags without end.
    let (copies, dropped) = run_frame(&of(&["push_vlan:0x8100"; 9].join(",")), &frame(plain));
    assert_eq!((copies.len(), dropped), (0, Some(Dropped::Limit)));
}

#[test]
fn tables_follow_each_other() {
    let own = tables(
        "table=0,priority=1,arp,actions=set_field:5->reg0,resubmit(,1),output:4\n\
         table=0,priority=1,tcp,actions=output:2,goto_table:7\n\
         table=0,priority=1,udp,actions=resubmit(9,3),output:4,exit,output:5\n\
         table=1,reg0=5,actions=output:3\n\
         table=3,in_port=9,actions=in_port\n\
         table=7,actions=move:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15],load:6->reg2[0..15],output:reg2[0..15]\n\
         table=0,priority=0,actions=normal",
    );
    assert_eq!(ports(&own, "arp"), [To::Port(3), To::Port(4)]);
    assert_eq!(ports(&own, "tcp"), [To::Port(2), To::Port(6)]);
    assert_eq!(ports(&own, "udp"), [To::Port(1), To::Port(4)]);
    assert_eq!(ports(&own, "icmp"), [To::Normal]);
}

#[test]
fn frames_are_dropped_with_a_reason() {
    let reason = |file: &str, text: &str| run_frame(&tables(file), &frame(text)).1;
    assert_eq!(reason("arp,actions=output:2", "tcp"), Some(Dropped::NoMatch));
    assert_eq!(reason("tcp,actions=drop", "tcp"), Some(Dropped::NoOutput));
    assert_eq!(reason("tcp,actions=output:1", "tcp"), Some(Dropped::NoOutput), "back to where it came from");
    assert_eq!(reason("tcp,actions=dec_ttl,output:2", "tcp,nw_ttl=1"), Some(Dropped::NoOutput));
    assert_eq!(reason("tcp,actions=dec_ttl,output:2", "tcp,nw_ttl=2"), None);
    // Attack: flows that have no end, and those that are a tree.
    assert_eq!(reason("actions=output:2,resubmit(,0)", "tcp"), Some(Dropped::Limit));
    let tree: String = (0..20)
        .map(|table| format!("table={table},actions=resubmit(,{0}),resubmit(,{0})\n", table + 1))
        .collect();
    assert_eq!(reason(&tree, "tcp"), Some(Dropped::Limit));
    let group = "group_id=1,type=all,bucket=output:2,bucket=output:3\n";
    assert_eq!(
        reason(&format!("{group}actions={}", ["group:1"; 129].join(",")), "tcp"),
        Some(Dropped::Limit)
    );
    assert_eq!(reason(&format!("{group}actions={}", ["group:1"; 128].join(",")), "tcp"), None);
}

#[test]
fn groups() {
    let own = tables(
        "group_id=1,type=all,bucket=mod_dl_src:02:00:00:00:00:09,output:2,bucket=output:3\n\
         group_id=2,type=select,bucket=output:2,bucket=output:3\n\
         tcp,actions=group:1,output:4\nudp,actions=group:2",
    );
    let (copies, _) = run_frame(&own, &frame("tcp"));
    let expected = [
        (To::Port(2), frame("tcp,dl_src=02:00:00:00:00:09")),
        (To::Port(3), frame("tcp")),
        (To::Port(4), frame("tcp")),
    ];
    assert_eq!(copies, expected);
    let chosen: Vec<To> = (0..64).flat_map(|port| ports(&own, &format!("udp,tp_src={port}"))).collect();
    let count = |to: To| chosen.iter().filter(|own| **own == to).count();
    assert_eq!(count(To::Port(2)) + count(To::Port(3)), 64);
    assert!(count(To::Port(2)) > 10 && count(To::Port(3)) > 10);
}

#[test]
fn meters_drop_what_is_beyond_their_rate() {
    let own = tables("meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=2\nactions=meter:1,output:2");
    let reasons: Vec<_> = (0..3).map(|_| run_frame(&own, &frame("tcp")).1).collect();
    assert_eq!(reasons, [None, None, Some(Dropped::Metered)]);
}

#[test]
fn a_trace_says_what_happens_and_counts_nothing() {
    let own = tables(
        "meter=3,pktps,bands=type=drop,rate=1\ngroup_id=4,type=indirect,bucket=bucket_id:6,output:2\n\
         priority=5,tcp,actions=meter:3,resubmit(,1),group:4",
    );
    let frame = frame("tcp");
    let mut worker = Worker::default();
    for _ in 0..3 {
        let arrival = Arrival { in_port: 1, ports: 4, len: frame.len() as u32, pending: None };
        let read = |from: usize, into: &mut [u8]| {
            into.copy_from_slice(&frame[from..from + into.len()]);
            into.len()
        };
        let (steps, verdict) = own.current().trace(&mut worker, (arrival, 1_000_000_000), read);
        let shown: Vec<String> = steps
            .iter()
            .map(|step| match step {
                Step::Table(table, flow) => {
                    format!("table {table}: {:?}", flow.map(|flow| flow.flow.priority))
                }
                Step::Group(id, bucket) => format!("group {id}: {bucket}"),
                Step::Meter(id, is_passed) => format!("meter {id}: {is_passed}"),
            })
            .collect();
        assert_eq!(shown, ["table 0: Some(5)", "meter 3: true", "table 1: None", "group 4: 6"]);
        assert_eq!(verdict.outputs.len(), 1);
    }
    assert!(own.current().flows().all(|flow| flow.counters.frames.load(Relaxed) == 0));
}

#[test]
fn a_worker_has_the_new_flows_with_its_next_burst() {
    let mut own = tables("actions=output:2");
    let published = own.published();
    let mut held = published.current();
    own.apply(&[Change::AddGroup(Group::read("group_id=1,type=all", &Numbers).unwrap())], 0).unwrap();
    own.apply(&[Change::AddMeter(MeterMod::read("meter=1,bands=type=drop,rate=1").unwrap())], 0).unwrap();
    let former = held.version();
    assert!(held.group(1).is_none(), "a snapshot does not change");
    published.refresh(&mut held);
    assert!(held.version() != former && held.group(1).is_some() && held.meter(1).is_some());
    assert_eq!(held.flows().count(), 1);
}

#[test]
fn what_a_frame_costs_is_bounded() {
    let reason = |file: &str| run_frame(&tables(file), &frame("tcp")).1;
    // Attack: a tree of groups, which no look-up counts.
    let tree = |leaf: &str| -> String {
        let groups = (1..=60).map(|id| {
            let bucket = if id == 60 { leaf.to_string() } else { format!("group:{}", id + 1) };
            format!("group_id={id},type=all,bucket={bucket},bucket={bucket}\n")
        });
        groups.collect()
    };
    assert_eq!(reason(&(tree("set_field:1->reg0") + "actions=group:1")), Some(Dropped::Limit));
    let select = "group_id=1,type=select".to_string() + &",bucket=output:2".repeat(256) + "\n";
    let flow = |count: usize| format!("actions={}output:2", "group:1,".repeat(count));
    assert_eq!(reason(&(select.clone() + &flow(70))), Some(Dropped::Limit));
    assert_eq!(reason(&(select + &flow(60))), None);
    // Attack: many look-ups of many masks each.
    let masks: String = (0..1000)
        .map(|mask| format!("table=1,priority=5,metadata={0:#x}/{0:#x},actions=drop\n", mask + 1))
        .collect();
    let flow =
        |count: usize| format!("{masks}actions=set_field:0->reg1,{}output:2", "resubmit(,1),".repeat(count));
    assert_eq!(reason(&flow(20)), Some(Dropped::Limit), "also if the cache has them");
    assert_eq!(reason(&flow(16)), None);
}

#[test]
fn floods_count_as_copies_to_all_ports() {
    let own = tables("tcp,actions=all,set_field:1->reg0,flood,normal\nudp,actions=flood");
    let dropped = |text: &str, ports: u16| {
        let frame = frame(text);
        let arrival = Arrival { in_port: 1, ports, len: frame.len() as u32, pending: None };
        run_from(&own, &frame, arrival).1
    };
    assert_eq!(dropped("tcp", 1365), None);
    assert_eq!(dropped("tcp", 1366), Some(Dropped::Limit));
    assert_eq!(dropped("udp", 60_000), None, "one flood goes to any number of ports");
}

#[test]
fn later_tables_are_not_deeper() {
    let chain: String =
        (0..254).map(|table| format!("table={table},actions=resubmit(,{})\n", table + 1)).collect();
    let own = tables(&(chain.clone() + "table=254,actions=output:2"));
    assert_eq!(ports(&own, "tcp"), [To::Port(2)]);
    // Attack: a stack that is too small for what is within each other.
    let deepest = chain.replace("resubmit(,254)", "clone(clone(clone(clone(resubmit(,0)))))");
    let limit = std::thread::Builder::new().stack_size(1 << 20);
    let dropped = limit.spawn(move || run_frame(&tables(&deepest), &frame("tcp")).1).unwrap().join().unwrap();
    assert_eq!(dropped, Some(Dropped::Limit));
}

#[test]
fn the_port_of_resubmit_is_that_of_one_look_up() {
    let own = tables(
        "table=0,actions=resubmit(9,3)\ntable=3,in_port=9,actions=goto_table:4\n\
         table=4,in_port=9,actions=output:2\ntable=4,in_port=1,actions=output:3",
    );
    assert_eq!(ports(&own, "tcp"), [To::Port(3)]);
}

#[test]
fn a_bucket_ends_alone() {
    let own = tables(
        "meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=1\n\
         group_id=1,type=all,bucket=output:2,exit,output:3,bucket=output:4\n\
         group_id=2,type=all,bucket=meter:1,meter:1,output:3,bucket=output:4\n\
         tcp,actions=group:1,output:5\nudp,actions=group:2,clone(meter:1,output:6),output:5\n\
         icmp,actions=meter:1,output:5",
    );
    assert_eq!(ports(&own, "tcp"), [To::Port(2), To::Port(4), To::Port(5)]);
    assert_eq!(ports(&own, "udp"), [To::Port(4), To::Port(5)]);
    assert_eq!(run_frame(&own, &frame("icmp")).1, Some(Dropped::Metered));
}

/// A TCP packet of IPv6 behind extension headers: their kinds and their bytes.
fn extended(extensions: &[(u8, Vec<u8>)], behind: &[u8]) -> Vec<u8> {
    let mut own = frame("tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,tp_dst=80");
    let tcp = own.split_off(54);
    let kinds: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([6]).collect();
    own[20] = kinds[0];
    for ((_, bytes), next) in extensions.iter().zip(&kinds[1..]) {
        own.push(*next);
        own.extend_from_slice(&bytes[1..]);
    }
    own.extend_from_slice(&tcp[..20]);
    let len = (own.len() - 54) as u16;
    own[18..20].copy_from_slice(&len.to_be_bytes());
    [&own, behind].concat()
}

fn options(bytes: usize) -> (u8, Vec<u8>) {
    let mut header = vec![0; bytes];
    header[1] = (bytes / 8 - 1) as u8;
    (60, header)
}

#[test]
fn filters_see_what_is_behind_long_headers_or_before_long_padding() {
    let own = tables("priority=9,tcp6,tp_dst=80,actions=output:2\npriority=1,actions=output:3");
    let of = |frame: &[u8]| {
        let (copies, dropped) = run_frame(&own, frame);
        (copies.first().map(|(to, _)| *to), dropped)
    };
    assert_eq!(of(&extended(&[options(8)], &[])), (Some(To::Port(2)), None));
    assert_eq!(of(&extended(&[options(8)], &[0; 1000])), (Some(To::Port(2)), None));
    // Beyond what is read at first, and at its edge.
    for bytes in [104, 112, 120, 128, 136, 144, 152, 400] {
        assert_eq!(of(&extended(&[options(bytes)], &[0; 300])), (Some(To::Port(2)), None), "{bytes}");
    }
    // Attack: headers so long, or so many, that what is behind them is not seen.
    assert_eq!(of(&extended(&[options(448)], &[])), (None, Some(Dropped::Headers)));
    assert_eq!(of(&extended(&[options(1024), options(8)], &[0; 100])), (None, Some(Dropped::Headers)));
    assert_eq!(of(&extended(&vec![options(8); 8], &[])), (Some(To::Port(2)), None));
    assert_eq!(of(&extended(&vec![options(8); 9], &[])), (None, Some(Dropped::Headers)));
    // A frame that ends before its headers do has none of them, as in Open vSwitch.
    assert_eq!(of(&extended(&[options(48)], &[])[..80]), (Some(To::Port(3)), None));
    let v4 = tables("priority=9,tcp,tp_dst=80,actions=output:2\npriority=1,actions=output:3");
    let padded = [frame("tcp,tp_dst=80"), vec![0; 1300]].concat();
    assert_eq!(run_frame(&v4, &padded).0[0].0, To::Port(2));
}

#[test]
fn the_final_destination_is_in_the_checksum() {
    let own = tables("tcp6,actions=set_field:fd00::99->ipv6_dst,output:2");
    let mut header = vec![0; 24];
    header[1] = 2;
    let sum = |segments_left: u8, bytes: usize| {
        let mut header = header.clone();
        header[3] = segments_left;
        let frame = extended(&[options(bytes), (43, header)], &[]);
        let at = frame.len() - 4..frame.len() - 2;
        let (copies, _) = run_frame(&own, &frame);
        assert_eq!(copies[0].1[38..54], "fd00::99".parse::<std::net::Ipv6Addr>().unwrap().octets());
        (frame[at.clone()].to_vec(), copies[0].1[at].to_vec())
    };
    let plain = frame("tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::99,tp_dst=80")[70..72].to_vec();
    for bytes in [8, 200] {
        assert_eq!(sum(0, bytes).1, plain, "the destination is the final one");
        let (before, after) = sum(1, bytes);
        assert_eq!(before, after, "the final destination is in the routing header");
    }
}

#[test]
fn later_fragments_of_ipv6_are_of_protocol_44() {
    let own = tables(
        "priority=9,tcp6,actions=output:2\npriority=1,ipv6,nw_proto=44,nw_frag=later,actions=output:3",
    );
    let fragment = |offset: u8| extended(&[(44, vec![0, 0, 0, offset, 0, 0, 0, 1])], &[]);
    assert_eq!(run_frame(&own, &fragment(1)).0[0].0, To::Port(2), "the first one");
    assert_eq!(run_frame(&own, &fragment(8)).0[0].0, To::Port(3));
}

#[test]
fn only_the_checksum_that_is_pending_is_pending() {
    let own = tables("udp,actions=mod_nw_src:192.0.2.1,output:2");
    let frame = frame("udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=4789");
    let sum = |pending: Option<u16>| {
        let arrival = Arrival { in_port: 1, ports: 4, len: frame.len() as u32, pending };
        run_from(&own, &frame, arrival).0[0].1[40..42].to_vec()
    };
    // That of an inner packet is behind; then the outer one is whole.
    assert_eq!(sum(Some(80)), sum(None));
    assert_ne!(sum(Some(40)), sum(None));
}

#[test]
fn ports_of_sctp_are_not_written_in_buckets() {
    let own = tables("group_id=1,type=all,bucket=mod_tp_dst:5,output:2\nsctp,actions=group:1");
    let mut sctp = frame("tcp,tp_dst=80");
    sctp[23] = 132;
    assert_eq!(run_frame(&own, &sctp).0, [(To::Port(2), sctp.clone())]);
}

#[test]
fn a_frame_without_a_whole_ethernet_header_gets_no_tag() {
    let own = tables("actions=push_vlan:0x8100,mod_vlan_vid:5,output:2");
    let short = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0];
    assert_eq!(run_frame(&own, &short).0, [(To::Port(2), short.to_vec())]);
}
