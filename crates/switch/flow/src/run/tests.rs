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
    run_from(tables, frame, Arrival { in_port: 1, len: frame.len() as u32, is_partial: false })
}

fn run_from(tables: &Tables, frame: &[u8], arrival: Arrival) -> (Vec<(To, Vec<u8>)>, Option<Dropped>) {
    let mut worker = Worker::default();
    let mut batch = tables.current().begin(&mut worker, 1_000_000_000);
    let verdict = batch.run(arrival, |into| {
        let count = into.len().min(frame.len());
        into[..count].copy_from_slice(&frame[..count]);
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
    let arrival = Arrival { in_port: 1, len: frame.len() as u32, is_partial: true };
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
        let arrival = Arrival { in_port: 1, len: frame.len() as u32, is_partial: false };
        let read = |into: &mut [u8]| {
            into.copy_from_slice(&frame[..into.len()]);
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
