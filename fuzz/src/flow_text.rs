//! Flows, groups and meters in `ovs-ofctl`'s words, and frames that run through them.

use ringway_flow::{
    Arrival, COMMANDS, Changes, FlowError, FlowFilter, FlowMod, Group, MeterMod, Numbers, OUTPUTS, Rules,
    Tables, Worker,
};

/// Reads the bytes before the first 0 as each of them, and as a file; those behind it are a frame.
pub fn run(data: &[u8]) {
    let split = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, frame) = (String::from_utf8_lossy(&data[..split]), data.get(split + 1..).unwrap_or_default());
    let check = |error: FlowError, line: &str| {
        assert!((1..=line.chars().count() + 1).contains(&error.column), "{line}: {error}");
    };
    match FlowMod::read(&text, &Numbers) {
        Ok(flow) => assert_eq!(FlowMod::read(&flow.show(&Numbers), &Numbers), Ok(flow), "{text}"),
        Err(error) => check(error, &text),
    }
    match Group::read(&text, &Numbers) {
        Ok(group) => assert_eq!(Group::read(&group.show(&Numbers), &Numbers), Ok(group), "{text}"),
        Err(error) => check(error, &text),
    }
    match MeterMod::read(&text) {
        Ok(meter) => assert_eq!(MeterMod::read(&meter.show()), Ok(meter), "{text}"),
        Err(error) => check(error, &text),
    }
    for is_strict in [false, true] {
        if let Err(error) = FlowFilter::read(&text, is_strict, &Numbers) {
            check(error, &text);
        }
    }
    for command in COMMANDS.into_iter().map(Some).chain([None]) {
        match Changes::read(&text, command, &Numbers) {
            Ok(changes) => drop(Tables::new(7).apply(&changes.changes, 0)),
            Err(error) => check(error.error, text.lines().nth(error.line - 1).unwrap_or_default()),
        }
    }
    let rules = match Rules::read(&text, &Numbers) {
        Ok(rules) => rules,
        Err(error) => return check(error.error, text.lines().nth(error.line - 1).unwrap_or_default()),
    };
    let mut tables = Tables::new(7);
    if tables.replace(&rules, 0).is_ok() {
        assert!(tables.difference(&rules).is_empty(), "{text}");
        forward(&tables, frame);
    }
}

fn forward(tables: &Tables, frame: &[u8]) {
    let mut worker = Worker::default();
    for (in_port, pending) in [(1, None), (2, Some(50))] {
        let arrival = Arrival { in_port, ports: 4, len: frame.len() as u32, pending };
        let mut batch = tables.current().begin(&mut worker, 1_000_000_000);
        let verdict = batch.run(arrival, |from, into| {
            let rest = frame.get(from..).unwrap_or_default();
            let count = into.len().min(rest.len());
            into[..count].copy_from_slice(&rest[..count]);
            count
        });
        assert_eq!(verdict.dropped.is_some(), verdict.outputs.is_empty());
        assert!(verdict.outputs.len() <= OUTPUTS);
        for headers in verdict.outputs.iter().filter_map(|output| verdict.headers(output)) {
            assert!(headers.replaces() <= frame.len());
        }
    }
}

/// Files with each part of the language, and a frame.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "priority=5,tcp,in_port=1,dl_vlan=5,nw_src=10.0.0.0/8,tp_dst=80,tcp_flags=+syn-ack,reg0=5/0xf,\
         actions=output:2",
        "table=1,cookie=0x5,idle_timeout=4,icmp6,icmpv6_type=135,nd_target=fd00::2,nd_sll=02:00:00:00:00:01,\
         actions=set_field:fd00::1->ipv6_dst,load:5->NXM_NX_REG1[0..7],\
         move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],dec_ttl",
        "ip,nw_frag=later,actions=mod_vlan_vid:7,push_vlan:0x88a8,strip_vlan,resubmit(3,4),\
         clone(output:4),goto_table:3",
        "group_id=1,type=select,bucket=weight:10,output:1,bucket=bucket_id:4,actions=mod_nw_tos:4,output:2",
        "meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=100",
        "meter add meter=1,bands=type=drop,rate=5\nadd ip,actions=meter:1\nflow modify_strict ip,actions=drop\n\
         delete tcp\ngroup delete group_id=3",
        "meter=1,bands=type=drop,rate=5\ngroup_id=2,type=all,bucket=1,bucket=2\nip,actions=meter:1,\
         group:2,resubmit(,1)\n\
         table=1,ip,actions=mod_nw_src:10.0.0.9,mod_vlan_vid:5,normal",
    ];
    let frame =
        b"\0\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0\x45\0\0\x14\0\0\0\0\x40\x06\0\0\x0a\0\0\x01\x0a\0\0\x02";
    texts.iter().map(|text| [text.as_bytes(), frame].concat()).collect()
}
