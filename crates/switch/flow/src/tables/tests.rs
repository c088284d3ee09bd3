use super::*;
use crate::{Numbers, PRIORITY};
use std::sync::atomic::Ordering::Relaxed;

fn rules(text: &str) -> Rules {
    Rules::read(text, &Numbers).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn tables(text: &str) -> Tables {
    let mut tables = Tables::new(7);
    tables.replace(&rules(text), 0).unwrap();
    tables
}

fn add(text: &str) -> Change {
    Change::Add(FlowMod::read(text, &Numbers).unwrap())
}

fn delete(text: &str) -> Change {
    Change::Delete(FlowFilter::read(text, false, &Numbers).unwrap())
}

fn modify(text: &str) -> Change {
    Change::Modify(Box::new(FlowMod::read_mod(text, false, &Numbers).unwrap()))
}

#[test]
fn a_bundle_is_whole_or_not_at_all() {
    let mut own = tables("arp,actions=output:1");
    let before = own.rules();
    let bundle = [add("tcp,actions=output:2"), delete("arp"), add("udp,actions=group:9")];
    assert_eq!(own.apply(&bundle, 0), Err((2, TablesError::NoGroup(9))));
    assert_eq!(own.rules(), before);
    let version = own.current().version();
    assert_eq!(own.apply(&bundle[..2], 0), Ok(2));
    assert_eq!(own.rules(), rules("tcp,actions=output:2"));
    assert_ne!(own.current().version(), version);
}

#[test]
fn changes_keep_what_was_counted() {
    let mut own =
        tables("cookie=0x5,tcp,tp_dst=80,actions=output:1\ncookie=0x6,tcp,tp_dst=81,actions=output:1");
    own.current().flows().for_each(|flow| flow.counters.add(3, 180, 9));
    assert_eq!(own.apply(&[modify("cookie=0x5/0xff,tcp,actions=output:3")], 0), Ok(1));
    assert_eq!(own.apply(&[modify("reset_counts,tcp,tp_dst=81,actions=drop")], 0), Ok(1));
    assert_eq!(own.apply(&[modify("udp,actions=drop")], 0), Ok(0), "nothing is meant");
    let dump: Vec<_> = own.select(&FlowFilter::default()).iter().map(|flow| flow.show(&Numbers, 0)).collect();
    let expected = [
        "cookie=0x5, duration=0.000s, table=0, n_packets=3, n_bytes=180, tcp,tp_dst=80 actions=output:3",
        "cookie=0x6, duration=0.000s, table=0, n_packets=0, n_bytes=0, tcp,tp_dst=81 actions=drop",
    ];
    assert_eq!(dump, expected);
    assert_eq!(own.apply(&[modify("table=0,actions=goto_table:1")], 0), Ok(2));
}

#[test]
fn replacing_changes_what_differs_only() {
    let mut own = tables(
        "tcp,actions=output:1\nudp,actions=output:1\nmeter=1,bands=type=drop,rate=5\narp,\
         actions=meter:1,output:1",
    );
    own.current().flows().for_each(|flow| flow.counters.add(1, 60, 9));
    let wanted = rules(
        "udp,actions=output:2\ntcp,actions=output:1\ngroup_id=2,type=all,bucket=group:1\ngroup_id=1,\
         type=all,bucket=output:4\nicmp,actions=group:2",
    );
    let found = own.replace(&wanted, 5).unwrap().show(&Numbers);
    let expected = "\
        -meter=1,kbps,bands=type=drop,rate=5\n\
        -cookie=0x0,table=0,arp actions=meter:1,output:1\n\
        -cookie=0x0,table=0,udp actions=output:1\n\
        +group_id=2,type=all,bucket=bucket_id:0,actions=group:1\n\
        +group_id=1,type=all,bucket=bucket_id:0,actions=output:4\n\
        +cookie=0x0,table=0,icmp actions=group:2\n\
        +cookie=0x0,table=0,udp actions=output:2\n";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&found), sorted(expected));
    let counted = |text: &str| {
        let flow = FlowMod::read(text, &Numbers).unwrap();
        own.current().same(&flow).map(|flow| flow.counters.frames.load(Relaxed))
    };
    assert_eq!(counted("tcp,actions=drop"), Some(1), "it stays");
    assert_eq!(counted("udp,actions=drop"), Some(1), "it has other actions");
    assert_eq!(counted("icmp,actions=drop"), Some(0));
    assert!(own.difference(&wanted).is_empty());
    let version = own.current().version();
    assert!(own.replace(&wanted, 6).unwrap().is_empty());
    assert_eq!(own.current().version(), version, "workers see no change");
    assert_eq!(own.replace(&rules("actions=meter:8,output:1"), 6), Err(TablesError::NoMeter(8)));
    assert!(own.difference(&wanted).is_empty());
}

#[test]
fn groups_are_added_behind_those_that_they_name() {
    let own = tables(
        "group_id=1,type=all,bucket=group:2,bucket=group:3\n\
         group_id=2,type=all,bucket=clone(group:3)\n\
         group_id=3,type=all,bucket=output:1",
    );
    assert_eq!(own.current().groups().len(), 3);
    let around = rules("group_id=1,type=all,bucket=group:2\ngroup_id=2,type=all,bucket=group:1");
    assert_eq!(Tables::new(7).replace(&around, 0), Err(TablesError::InCircle(1)));
}

#[test]
fn what_uses_a_group_or_a_meter_goes_with_it() {
    let mut own = tables(
        "group_id=1,type=all,bucket=output:1\nmeter=1,bands=type=drop,rate=5\ntcp,\
         actions=clone(group:1)\nudp,actions=meter:1,output:1\narp,actions=output:1",
    );
    let group = Group::read("group_id=1,type=all", &Numbers).unwrap();
    assert_eq!(own.apply(&[Change::AddGroup(group.clone())], 0), Err((0, TablesError::HasGroup(1))));
    assert_eq!(own.apply(&[Change::ModifyGroup(group)], 0), Ok(0));
    let meter = MeterMod::read("meter=2,bands=type=drop,rate=5").unwrap();
    assert_eq!(own.apply(&[Change::ModifyMeter(meter)], 0), Err((0, TablesError::NoMeter(2))));
    assert_eq!(own.apply(&[Change::DeleteGroup(Some(1)), Change::DeleteMeter(None)], 0), Ok(2));
    assert_eq!(own.rules(), rules("arp,actions=output:1"));
}

#[test]
fn flows_whose_time_has_ended_are_removed() {
    let mut own = tables(
        "idle_timeout=3,tcp,actions=output:1\nhard_timeout=5,udp,actions=output:1\narp,actions=output:1",
    );
    let second = 1_000_000_000;
    assert!(own.expire(2 * second).is_empty());
    assert_eq!(own.expire(3 * second).len(), 1);
    assert_eq!(own.expire(5 * second).len(), 1);
    assert_eq!(own.rules(), rules("arp,actions=output:1"));
}

#[test]
fn only_flows_whose_time_may_end_are_looked_at() {
    let mut own = tables("arp,actions=drop\nidle_timeout=3,tcp,actions=output:1");
    let second = 1_000_000_000;
    for number in 0..100 {
        own.apply(&[modify(&format!("tcp,actions=output:{}", 1 + number))], number).unwrap();
        own.apply(&[add(&format!("hard_timeout=9,priority={number},udp,actions=drop"))], number).unwrap();
        own.apply(&[delete("udp")], number).unwrap();
        assert!(own.expire(second).is_empty());
        assert!(own.timed.len() <= 4, "{}", own.timed.len());
    }
    let before = own.current().clone();
    own.apply(&[delete("tcp")], 5).unwrap();
    assert!(own.expire(9 * second).is_empty() && own.timed.is_empty());
    own.restore(before);
    let expired = own.expire(9 * second);
    assert_eq!(expired.iter().map(|flow| flow.flow.idle_timeout).collect::<Vec<_>>(), [3]);
    assert_eq!(own.rules(), rules("arp,actions=drop"));
    assert!(own.expire(9 * second).is_empty());
}

#[test]
fn a_changed_flow_has_its_time_again() {
    let mut own = tables("hard_timeout=5,udp,actions=output:1\nidle_timeout=5,tcp,actions=output:1");
    let second = 1_000_000_000;
    assert_eq!(own.apply(&[modify("actions=output:2")], 3 * second), Ok(2));
    let found = own.expire(5 * second);
    assert_eq!(found.len(), 1, "a change is no frame");
    assert_eq!(found[0].flow.show(&Numbers), "cookie=0x0,table=0,idle_timeout=5,tcp actions=output:2");
    assert!(own.expire(8 * second - 1).is_empty());
    let dump = own.select(&FlowFilter::default())[0].show(&Numbers, 7 * second);
    assert!(dump.contains("duration=7.000s"), "{dump}");
    assert_eq!(own.expire(8 * second).len(), 1);
}

#[test]
fn snapshots_that_workers_have_are_kept() {
    let mut own = tables("actions=drop");
    let held = own.published().current();
    own.apply(&[add("arp,actions=drop")], 0).unwrap();
    assert_eq!(own.retired.len(), 1);
    drop(held);
    own.apply(&[add("tcp,actions=drop")], 0).unwrap();
    assert!(own.retired.is_empty());
}

#[test]
fn a_file_has_comments_and_errors_with_their_place() {
    let file = "# all\n\n  meter=1,bands=type=drop,rate=5\n tcp actions=meter:1,output:1 # \
    web\ngroup_id=4,type=all\n";
    let found = rules(file);
    assert_eq!((found.flows.len(), found.groups.len(), found.meters.len()), (1, 1, 1));
    assert_eq!(found.flows[0].priority, PRIORITY);
    let refused = |text: &str| Rules::read(text, &Numbers).unwrap_err().to_string();
    assert!(
        refused("arp,actions=drop\n  foo,actions=drop").starts_with("line 2, column 3: unknown word `foo`")
    );
    assert!(refused("arp,actions=drop\narp actions=output:1").starts_with("line 2, column 1: a line above"));
}

#[test]
fn a_file_that_names_what_is_not_there_changes_nothing() {
    let mut own = tables(
        "group_id=5,type=all,bucket=output:1\nmeter=5,bands=type=drop,rate=5\ntcp,actions=group:5\n\
         udp,actions=meter:5,output:1",
    );
    let before = own.rules();
    for (file, error) in [
        ("tcp,actions=group:5\narp,actions=output:1", TablesError::NoGroup(5)),
        ("udp,actions=clone(meter:5,output:1)", TablesError::NoMeter(5)),
        ("group_id=1,type=all,bucket=group:5", TablesError::NoGroup(5)),
        ("group_id=1,type=all,bucket=meter:5,output:2", TablesError::NoMeter(5)),
    ] {
        assert_eq!(own.replace(&rules(file), 0), Err(error), "{file}");
        assert_eq!(own.rules(), before);
    }
}

#[test]
fn buckets_name_what_is_there_and_not_each_other() {
    let group = |text: &str| Group::read(text, &Numbers).unwrap();
    let mut own = tables(
        "meter=1,bands=type=drop,rate=5\ngroup_id=1,type=all,bucket=output:1\n\
         group_id=2,type=all,bucket=clone(group:1),meter:1\ngroup_id=3,type=all,bucket=group:2\n\
         tcp,actions=group:3",
    );
    let before = own.rules();
    let mut refused = |change: Change| own.apply(&[change], 0).unwrap_err().1;
    assert_eq!(refused(Change::DeleteGroup(Some(1))), TablesError::GroupIsUsed { id: 1, by: 2 });
    assert_eq!(refused(Change::DeleteMeter(Some(1))), TablesError::MeterIsUsed { by: 2 });
    assert_eq!(refused(Change::DeleteMeter(None)), TablesError::MeterIsUsed { by: 2 });
    for bucket in ["group:3", "group:2", "group:1", "clone(clone(group:3))"] {
        let change = Change::ModifyGroup(group(&format!("group_id=1,type=all,bucket=1,bucket={bucket}")));
        assert_eq!(refused(change), TablesError::InCircle(1), "{bucket}");
    }
    assert_eq!(own.rules(), before);
    let free = Change::ModifyGroup(group("group_id=2,type=all,bucket=output:4"));
    let all = [free, Change::DeleteGroup(Some(1)), Change::DeleteMeter(Some(1)), Change::DeleteGroup(None)];
    assert_eq!(own.apply(&all, 0), Ok(1));
    assert_eq!(own.rules(), Rules::default());
    assert_eq!(own.current().actions(), 0);
}

#[test]
fn an_added_flow_keeps_the_counters_of_the_former_one() {
    let mut own = tables("idle_timeout=5,tcp,actions=output:1");
    own.current().flows().for_each(|flow| flow.counters.add(3, 180, 9));
    let second = 1_000_000_000;
    let count = |own: &Tables| own.current().flows().next().unwrap().counters.frames.load(Relaxed);
    own.apply(&[add("idle_timeout=5,tcp,actions=output:2")], 7 * second).unwrap();
    assert_eq!(count(&own), 3);
    assert!(own.expire(11 * second).is_empty(), "it is used as of then");
    own.apply(&[add("reset_counts,tcp,actions=output:2")], 7 * second).unwrap();
    assert_eq!(count(&own), 0);
    assert_eq!((own.current().timed(), own.expire(100 * second).len()), (0, 0));
    assert!(own.difference(&rules("reset_counts,tcp,actions=output:2")).is_empty());
}

#[test]
fn modifying_strictly_means_one_priority() {
    let mut own = tables("priority=5,tcp,actions=output:1\npriority=6,tcp,actions=output:1");
    let strict = FlowMod::read_mod("priority=5,tcp,actions=output:2", true, &Numbers).unwrap();
    assert_eq!(own.apply(&[Change::Modify(Box::new(strict))], 0), Ok(1));
    assert_eq!(own.rules(), rules("priority=6,tcp,actions=output:1\npriority=5,tcp,actions=output:2"));
    let refused = FlowMod::read_mod("priority=5,tcp,actions=output:2", false, &Numbers).unwrap_err();
    assert!(refused.what.contains("--strict"));
}

#[test]
fn a_changed_flow_can_be_read_again() {
    for (flow, change, needs) in [
        ("tcp,nw_frag=later,actions=normal", "tcp,actions=mod_tp_dst:80", "tp_dst"),
        (
            "icmp6,icmp_type=135,icmp_code=1,actions=normal",
            "icmp6,icmp_type=135,actions=move:NXM_NX_ND_TARGET[]->NXM_NX_IPV6_DST[]",
            "nd_target",
        ),
    ] {
        let mut own = tables(flow);
        let before = own.rules();
        let (number, error) = own.apply(&[add("arp,actions=drop"), modify(change)], 0).unwrap_err();
        assert_eq!(number, 1);
        let text = error.to_string();
        assert!(text.starts_with(&format!("`{needs}` needs")), "{text}");
        assert!(text.ends_with("in the match of the flow with priority 32768 in table 0"), "{text}");
        assert_eq!(own.rules(), before);
    }
    // A tag that actions add is there.
    let mut own = tables("tcp,actions=normal");
    let change = modify("tcp,actions=push_vlan:0x8100,clone(set_field:4101->vlan_vid),normal");
    assert_eq!(own.apply(&[change], 0), Ok(1));
    assert_eq!(rules(&own.rules().show(&Numbers)), own.rules());
}

#[test]
fn workers_see_only_changes() {
    let mut own = tables("tcp,actions=output:1");
    let version = own.current().version();
    let changes =
        [delete("udp"), modify("udp,actions=drop"), Change::DeleteGroup(None), Change::DeleteMeter(None)];
    assert_eq!(own.apply(&changes, 0), Ok(0));
    assert_eq!(own.current().version(), version);
}

#[test]
fn what_goes_makes_room_for_what_comes() {
    let all = |first: usize| -> String {
        let ids = first..first + METERS;
        ids.map(|id| format!("meter={id},bands=type=drop,rate=5\ngroup_id={id},type=all\n")).collect()
    };
    let mut own = tables(&all(1));
    own.replace(&rules(&all(1 + METERS)), 0).unwrap();
    assert_eq!(own.current().groups().len(), GROUPS);
    let one = Group::read("group_id=1,type=all", &Numbers).unwrap();
    assert_eq!(own.apply(&[Change::AddGroup(one)], 0), Err((0, TablesError::TooManyGroups)));
}

#[test]
fn the_text_is_bounded_whatever_ports_are_called() {
    let mut own = tables("in_port=1,actions=output:2");
    // The longest names have 64 letters, and are quoted if they look like numbers.
    let line = "cookie=0x0,table=0,in_port= actions=output:\n".len() + 2 * 66;
    assert_eq!(own.current().text(), line);
    own.most.1 = 2 * line;
    own.apply(&[add("in_port=2,actions=output:2")], 0).unwrap();
    let more = [add("in_port=3,actions=output:2")];
    assert_eq!(own.apply(&more, 0), Err((0, TablesError::TooLong)));
    let longer = modify("in_port=1,actions=output:2,output:3");
    assert_eq!(own.apply(&[longer], 0), Err((0, TablesError::TooLong)));
    let (group, meter) = ("group_id=1,type=all,bucket=1", "meter=1,bands=type=drop,rate=5");
    let group = Change::AddGroup(Group::read(group, &Numbers).unwrap());
    let meter = Change::AddMeter(MeterMod::read(meter).unwrap());
    for change in [&group, &meter] {
        assert_eq!(own.apply(std::slice::from_ref(change), 0), Err((0, TablesError::TooLong)));
    }
    let file = "in_port=1,actions=1\nin_port=2,actions=1\nin_port=3,actions=1";
    assert_eq!(own.replace(&rules(file), 0), Err(TablesError::TooLong));
    own.most.1 = usize::MAX;
    let before = own.current().clone();
    own.apply(&[group, meter], 0).unwrap();
    own.apply(&[modify("actions=drop"), Change::DeleteGroup(None), Change::DeleteMeter(None)], 0).unwrap();
    own.restore(before.clone());
    assert_eq!((own.rules().flows.len(), own.current().text()), (2, 2 * line));
    assert_ne!(own.current().version(), before.version(), "workers see it");
    own.apply(&[delete("")], 0).unwrap();
    assert_eq!(own.current().text(), 0);
}

#[test]
fn a_wrong_rule_has_its_line() {
    let circle = "group_id=2,type=all,bucket=group:3\ngroup_id=3,type=all,bucket=group:2\n";
    let masks: String = (1..=1025).map(|mask| format!("reg0=0/{mask},actions=drop\n")).collect();
    for (text, line) in [
        ("# all\n\narp,actions=drop\nip,actions=clone(group:7)\n", 4),
        ("arp,actions=drop\ngroup_id=1,type=all,bucket=1,bucket=meter:7,1\n", 2),
        (&*format!("arp,actions=drop\n{circle}"), 2),
        (&*format!("arp,actions=drop\n{masks}"), 1025),
    ] {
        let error = Tables::new(7).replace(&rules(text), 0).unwrap_err();
        assert_eq!(Rules::line_of(text, &error, &Numbers), line, "{error}");
    }
    assert_eq!(Rules::line_of("arp,actions=drop", &TablesError::TooLong, &Numbers), 1);
}

#[test]
fn all_actions_are_bounded() {
    let mut own = Tables::new(7);
    own.most.0 = 5;
    let group = |text: &str| Change::AddGroup(Group::read(text, &Numbers).unwrap());
    let full = [group("group_id=1,type=all,bucket=1,clone(2)"), add("tcp,actions=output:1,output:2")];
    own.apply(&full, 0).unwrap();
    assert_eq!(own.apply(&[add("udp,actions=output:1")], 0), Err((0, TablesError::TooManyActions)));
    let more = group("group_id=2,type=all,bucket=1");
    assert_eq!(own.apply(std::slice::from_ref(&more), 0), Err((0, TablesError::TooManyActions)));
    let file = "udp,actions=1,2,3,4,5,6";
    assert_eq!(own.replace(&rules(file), 0), Err(TablesError::TooManyActions));
    own.apply(&[add("tcp,actions=output:1"), more], 0).unwrap();
    own.replace(&rules("udp,actions=1,2,3,4,5"), 0).unwrap();
}
