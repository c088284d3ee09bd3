//! Functions that multiply under load and shrink: flows keep their instance, and no frame of theirs is lost.
#![allow(clippy::unwrap_used)]

use crate::lab::{Lab, every_isolation, until};
use ringway_ring_client::{Ring, Wait};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
/// Frames under way: more than half of what a ring or lane holds, and fewer than it holds.
const UNDER_WAY: u32 = 400;
/// The byte that has the number of the instance.
const MARK: usize = 50;

/// A function in a chain between two programs. Each instance marks frames; `work`: instructions for each frame.
fn file(isolation: &str, instances: &str, work: usize) -> String {
    let busy = busy(work);
    let way = |from: &str, to: &str| {
        format!(
            "FromPort({from}) -> {busy} -> StoreData({MARK}, $INSTANCE) -> {from} :: Counter \
             -> ToPort({to});\n"
        )
    };
    chain(isolation, instances, &format!("{}{}", way("outside", "inside"), way("inside", "outside")))
}

/// An element that executes so many instructions for each frame.
fn busy(work: usize) -> String {
    format!("Script(TYPE PACKET, {}return 0)", "set n $(add 1 2), ".repeat(work))
}

/// A function with a configuration, in a chain between two programs.
fn chain(isolation: &str, instances: &str, click: &str) -> String {
    format!(
        "[port.one]\nkind = \"ring\"\nsocket = \"one.sock\"\nhold = \"10s\"\n\
         [port.two]\nkind = \"ring\"\nsocket = \"two.sock\"\nhold = \"10s\"\n\
         [worker.v]\n[worker.w]\n[chain.web]\nports = [\"one\", \"two\"]\nfunctions = [\"fw\"]\n\
         [function.fw]\nports = [\"outside\", \"inside\"]\nisolation = \"{isolation}\"\n\
         instances = {{ {instances} }}\nclick = '''\n{click}'''\n"
    )
}

/// What came of a flow in one direction.
#[derive(Debug, Default)]
struct Flow {
    sent: u32,
    came: u32,
    /// The instance that marked its last frame.
    instance: u8,
    /// Whether frames of it may be lost, since its instance was killed.
    loses: bool,
}

/// Two programs and the flows between them, by the port of the first program.
struct Ends {
    rings: [Ring; 2],
    flows: [BTreeMap<u16, Flow>; 2],
    under_way: u32,
}

fn frame(flow: u16, back: bool, number: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..12].fill(2);
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    let (near, far) = if back { (30, 26) } else { (26, 30) };
    frame[near..near + 4].copy_from_slice(&[10, 0, 0, 1]);
    frame[far..far + 4].copy_from_slice(&[10, 0, 0, 2]);
    let (near, far) = if back { (36, 34) } else { (34, 36) };
    frame[near..near + 2].copy_from_slice(&flow.to_be_bytes());
    frame[far..far + 2].copy_from_slice(&[0, 53]);
    let words = frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[39] = 26;
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

impl Ends {
    fn of(lab: &Lab) -> Ends {
        let ring = |port: &str| {
            let ring = Ring::connect(&lab.socket(&format!("{port}.sock"))).unwrap();
            until("the port is up", || lab.state(port) == "up");
            ring
        };
        until("the function is up", || states(lab)[0] == "running" && is_attached(lab, "fw"));
        Ends { rings: [ring("one"), ring("two")], flows: Default::default(), under_way: 0 }
    }

    /// Sends the next frame of a flow.
    fn send(&mut self, back: bool, flow: u16) {
        let side = usize::from(back);
        let known = self.flows[side].entry(flow).or_default();
        let ring = &mut self.rings[side];
        while !ring.tx.push(&frame(flow, back, known.sent)).unwrap() {
            ring.sync().unwrap();
        }
        ring.sync().unwrap();
        known.sent += 1;
        self.under_way += 1;
    }

    /// Takes the frames that came, which must be in order within a flow, and of one instance.
    fn take(&mut self, back: bool, most: Duration) {
        let (side, ring) = (usize::from(back), &mut self.rings[usize::from(!back)]);
        let mut out = [0; 60];
        ring.wait(Wait::RX, Some(most)).unwrap();
        while ring.rx.pop(&mut out).unwrap().is_some() {
            let near = if back { 36 } else { 34 };
            let flow = u16::from_be_bytes(out[near..near + 2].try_into().unwrap());
            let number = u32::from_be_bytes(out[42..46].try_into().unwrap());
            let instance = out[MARK] - b'0';
            let known = self.flows[side].get_mut(&flow).unwrap();
            if known.loses {
                assert!(number >= known.came, "flow {flow}: {number} is there twice");
                self.under_way = self.under_way.saturating_sub(number - known.came);
                known.instance = instance;
            } else {
                assert_eq!(number, known.came, "flow {flow}: a frame is lost, late or there twice");
                assert!(
                    known.instance == 0 || known.instance == instance,
                    "flow {flow} moved from {} to {instance}",
                    known.instance
                );
                known.instance = instance;
            }
            known.came = number + 1;
            self.under_way = self.under_way.saturating_sub(1);
        }
        ring.rx.sync().unwrap();
    }

    /// Keeps frames of flows under way until something is so.
    fn load(&mut self, flows: std::ops::Range<u16>, what: &str, mut so: impl FnMut() -> bool) {
        let (end, mut next, mut look) = (Instant::now() + 3 * LONG, flows.start, Instant::now());
        while look > Instant::now() || !so() {
            if look <= Instant::now() {
                look = Instant::now() + Duration::from_millis(250);
            }
            assert!(Instant::now() < end, "{what}");
            while self.under_way < UNDER_WAY {
                self.send(false, next);
                next = if next + 1 < flows.end { next + 1 } else { flows.start };
            }
            self.take(false, Duration::from_millis(1));
        }
    }

    /// Waits for all frames of flows that lose none.
    fn finish(&mut self) {
        let end = Instant::now() + LONG;
        for back in [false, true] {
            let misses = |ends: &Ends| {
                ends.flows[usize::from(back)].values().any(|flow| flow.came < flow.sent && !flow.loses)
            };
            while misses(self) {
                self.take(back, Duration::from_millis(10));
                assert!(Instant::now() < end, "frames are lost: {:?}", self.flows);
            }
        }
        self.under_way = 0;
        for flow in self.flows.iter_mut().flat_map(BTreeMap::values_mut) {
            flow.came = flow.sent;
            if std::mem::take(&mut flow.loses) {
                // Its next frame shows where it is now.
                flow.instance = 0;
            }
        }
    }

    /// Sends a frame of each flow forth and back: both pass the same instance.
    fn both_ways(&mut self, flows: std::ops::Range<u16>) {
        for flow in flows.clone() {
            self.send(false, flow);
            self.send(true, flow);
        }
        self.finish();
        self.meet(flows);
    }

    /// Sends a frame of each flow and then its answer, for functions that let only answers back: both pass the same
    /// instance.
    fn answered(&mut self, flows: std::ops::Range<u16>) {
        flows.clone().for_each(|flow| self.send(false, flow));
        self.finish();
        flows.clone().for_each(|flow| self.send(true, flow));
        self.finish();
        self.meet(flows);
    }

    /// Checks that flows passed the same instance both ways.
    fn meet(&self, flows: std::ops::Range<u16>) {
        for flow in flows {
            let [forth, back] = [0, 1].map(|side| self.flows[side][&flow].instance);
            assert_eq!(forth, back, "flow {flow}");
        }
    }

    fn instance(&self, flow: u16) -> u8 {
        self.flows[0][&flow].instance
    }
}

fn list(lab: &Lab) -> Vec<Value> {
    lab.json(&["function", "list"]).as_array().unwrap().clone()
}

fn states(lab: &Lab) -> Vec<String> {
    list(lab).iter().map(|one| one["state"].as_str().unwrap().to_string()).collect()
}

fn find(lab: &Lab, name: &str) -> Value {
    list(lab).into_iter().find(|one| one["name"] == name).unwrap()
}

fn is_attached(lab: &Lab, name: &str) -> bool {
    ["outside", "inside"].iter().all(|end| lab.state(&format!("{name}.{end}")) == "up")
}

fn kill(lab: &Lab, name: &str) {
    let pid = find(lab, name)["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
}

/// Ports that dropped frames, and why.
fn drops(lab: &Lab) -> Vec<String> {
    let stats = lab.json(&["stats"]);
    let each = stats["ports"].as_array().unwrap().iter().flat_map(|port| {
        ["tx_drops", "rx_drops"].map(|what| (port["name"].clone(), port["total"][what].clone()))
    });
    let some = each.filter(|(_, drops)| drops.as_object().is_some_and(|drops| !drops.is_empty()));
    some.map(|(port, drops)| format!("{port}: {drops}")).collect()
}

#[test]
fn a_function_multiplies_and_shrinks_without_loss() {
    for isolation in every_isolation() {
        let instances = "min = 1, max = 3, idle = \"1s\", shrink = \"500ms\"";
        // A worker needs longer for what is under way than this thread waits for a core, so that there is load all the
        // time.
        let work = if isolation == "worker" { 300 } else { 60 };
        let lab = Lab::new(&format!("multiply-{isolation}"), &file(isolation, instances, work));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let mut ends = Ends::of(&lab);
        assert_eq!(states(&lab), ["running", "dormant", "dormant"], "{isolation}");
        ends.both_ways(0..40);
        ends.load(0..40, "a second instance runs", || {
            states(&lab)[1] == "running" && is_attached(&lab, "fw/2")
        });
        assert!((0..40).all(|flow| ends.instance(flow) == 1), "{isolation}: they keep their instance");
        // New flows go to both; which began before stay.
        ends.load(0..120, "new flows", {
            let end = Instant::now() + Duration::from_millis(300);
            move || Instant::now() > end
        });
        ends.both_ways(0..120);
        let second: Vec<u16> = (40..120).filter(|flow| ends.instance(*flow) == 2).collect();
        assert!(second.len() > 10, "{isolation}: {second:?}");
        let count = lab.ok(&["function", "read", "fw/2", "outside.count"]).trim().parse::<u64>().unwrap();
        assert!(count > 10, "{isolation}: {count}");
        assert!(lab.ok(&["function", "graph", "fw/2", "--seconds", "0"]).contains("<svg"));
        // One flow goes on, and so its instance does, while others end.
        let (kept, end) = (second[0], Instant::now() + LONG);
        while states(&lab)[1] != "draining" {
            ends.send(false, kept);
            ends.take(false, Duration::from_millis(20));
            assert!(Instant::now() < end, "{isolation}: it shrinks: {:?}", states(&lab));
        }
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            ends.send(false, kept);
            ends.take(false, Duration::from_millis(20));
        }
        assert_eq!((states(&lab)[1].as_str(), ends.instance(kept)), ("draining", 2), "{isolation}");
        for flow in 200..240 {
            ends.send(false, flow);
        }
        ends.finish();
        assert!((200..240).all(|flow| ends.instance(flow) != 2), "{isolation}: it gets no new flows");
        crate::lab::until("its last flow has ended, and it is stopped", || states(&lab)[1] == "dormant");
        assert!(drops(&lab).is_empty(), "{isolation}: {:?}", drops(&lab));
        // The function starts again.
        ends.load(300..340, "it multiplies again", || states(&lab)[1] == "running");
        ends.finish();
        assert!(drops(&lab).is_empty(), "{isolation}: {:?}", drops(&lab));
    }
}

#[test]
fn instances_on_workers_keep_their_flows_without_loss() {
    let lab = Lab::new("multiply-workers", &file("worker", "min = 2, max = 2", 60));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    until("both instances run", || is_attached(&lab, "fw/2") && states(&lab) == ["running", "running"]);
    ends.both_ways(0..120);
    let second: Vec<u16> = (0..120).filter(|flow| ends.instance(*flow) == 2).collect();
    assert!((10..110).contains(&second.len()), "{second:?}");
    ends.load(0..240, "flows", {
        let end = Instant::now() + Duration::from_millis(300);
        move || Instant::now() > end
    });
    ends.both_ways(0..240);
    assert!((0..120).all(|flow| (ends.instance(flow) == 2) == second.contains(&flow)));
    assert!(drops(&lab).is_empty(), "{:?}", drops(&lab));
}

#[test]
fn an_instance_that_is_killed_loses_only_its_own_flows() {
    let instances = "min = 2, max = 2, idle = \"60s\"";
    let lab = Lab::new("multiply-kill", &file("process", instances, 0));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    until("both instances run", || is_attached(&lab, "fw/2") && states(&lab) == ["running", "running"]);
    for (round, name) in ["fw/2", "fw", "fw/2", "fw"].into_iter().enumerate() {
        let number = if name == "fw" { 1 } else { 2 };
        // The flows of one more round are new.
        let flows = 0..40 * (round as u16 + 1);
        ends.both_ways(flows.clone());
        let its: Vec<u16> = flows.clone().filter(|flow| ends.instance(*flow) == number).collect();
        assert!(!its.is_empty() && its.len() < usize::from(flows.end), "{name}: {its:?}");
        for flow in &its {
            ends.flows.iter_mut().for_each(|side| side.get_mut(flow).unwrap().loses = true);
        }
        kill(&lab, name);
        let restarts = round as u64 / 2 + 1;
        let end = Instant::now() + LONG;
        while find(&lab, name)["restarts"] != restarts || states(&lab) != ["running", "running"] {
            for flow in flows.clone() {
                ends.send(false, flow);
                ends.take(false, Duration::from_micros(100));
            }
            assert!(Instant::now() < end, "{name} is started again");
        }
        until("it has its ports", || is_attached(&lab, name));
        // Its flows have others by now. Once the last frame of each has come, none is under way.
        its.iter().for_each(|flow| ends.send(false, *flow));
        let end = Instant::now() + LONG;
        while its.iter().any(|flow| ends.flows[0][flow].came < ends.flows[0][flow].sent) {
            ends.take(false, Duration::from_millis(10));
            assert!(Instant::now() < end, "{name}: its flows go on");
        }
        ends.finish();
        ends.both_ways(flows);
    }
}

#[test]
fn instances_are_killed_while_the_function_multiplies_and_shrinks() {
    let instances = "min = 1, max = 2, idle = \"1s\", shrink = \"500ms\"";
    let lab = Lab::new("multiply-points", &file("process", instances, 60));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    ends.load(0..20, "a second instance begins", || find(&lab, "fw/2")["pid"] != 0);
    kill(&lab, "fw/2");
    // Flows of the first one lose nothing, whatever becomes of the second one.
    ends.load(0..20, "it is started again", || {
        let second = find(&lab, "fw/2");
        second["restarts"].as_u64().unwrap() > 0 && second["state"] == "running"
            || second["state"] == "dormant"
    });
    ends.finish();
    ends.load(0..20, "it runs", || find(&lab, "fw/2")["state"] == "running");
    ends.finish();
    until("it shrinks", || matches!(&*states(&lab)[1], "draining" | "dormant"));
    if states(&lab)[1] == "draining" {
        let pid = find(&lab, "fw/2")["pid"].to_string();
        // The process may have ended meanwhile.
        let _ = Command::new("kill").args(["-9", &pid]).status().unwrap();
    }
    until("it is not started again", || states(&lab)[1] == "dormant");
    ends.load(0..20, "it multiplies again", || states(&lab)[1] == "running");
    ends.finish();
}

#[test]
fn orders_concern_all_instances_or_one() {
    let lab = Lab::new("multiply-orders", &file("process", "min = 2, max = 3, shrink = \"3600s\"", 0));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    let both = ["running", "running", "dormant"];
    until("both run", || states(&lab) == both && is_attached(&lab, "fw/2"));
    ends.both_ways(0..20);
    let shown = lab.ok(&["ps"]);
    assert!(shown.contains("fw/2") && shown.contains("one - fw - two"), "{shown}");
    let graph = lab.json(&["graph", "--seconds", "0"]).to_string();
    assert!(graph.contains("\"fw/2\""), "{graph}");
    lab.ok(&["function", "suspend", "fw"]);
    assert_eq!(states(&lab), ["suspended", "suspended", "dormant"]);
    lab.ok(&["function", "resume", "fw"]);
    lab.ok(&["function", "suspend", "fw/2"]);
    assert_eq!(states(&lab), ["running", "suspended", "dormant"]);
    lab.ok(&["function", "resume", "fw/2"]);
    let click = "FromPort(outside) -> StoreData(50, $INSTANCE) -> new :: Counter -> ToPort(inside);\
                 FromPort(inside) -> StoreData(50, $INSTANCE) -> ToPort(outside);";
    std::fs::write(lab.folder.join("new.click"), click).unwrap();
    lab.ok(&["function", "update", "fw", "new.click"]);
    ends.both_ways(0..20);
    for name in ["fw", "fw/2"] {
        let count = lab.ok(&["function", "read", name, "new.count"]);
        assert!(count.trim().parse::<u64>().unwrap() > 0, "{name}");
    }
    lab.ok(&["function", "start", "fw/3"]);
    until("a third one runs", || states(&lab) == ["running"; 3] && is_attached(&lab, "fw/3"));
    ends.both_ways(0..60);
    let its = (20..60).filter(|flow| ends.instance(*flow) == 3).count();
    assert!(its > 0, "it was given the new configuration and gets new flows");
    lab.ok(&["function", "stop", "fw"]);
    until("all stop", || states(&lab) == ["stopped", "dormant", "dormant"]);
    assert_eq!(lab.json(&["ps"])["chains"][0]["state"], "down");
    lab.ok(&["function", "start", "fw"]);
    until("the least number runs again", || states(&lab) == both);
    let (_, why) = lab.fails(&["function", "destroy", "fw/2"]);
    assert!(why.contains("is in chain web"), "{why}");
    let (_, why) = lab.fails(&["function", "read", "fw/9", "list"]);
    assert!(why.contains("there is no function \"fw/9\""), "{why}");
}

/// Each instance translates with its own ports; answers reach the one that translated.
#[test]
fn instances_of_an_address_translator_share_its_ports() {
    let click = "nat :: IPRewriter(pattern 192.0.2.1 $INSTANCE_PORTS - - 0 1, drop);\n\
        FromPort(outside) -> Strip(14) -> MarkIPHeader -> [0] nat;\n\
        FromPort(inside) -> Strip(14) -> MarkIPHeader -> [1] nat;\n\
        nat[0] -> Unstrip(14) -> ToPort(inside);\n\
        nat[1] -> Unstrip(14) -> ToPort(outside);\n";
    let text = chain("process", "min = 3, max = 3", click);
    let lab = Lab::new("multiply-nat", &text);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    until("all run", || {
        states(&lab) == ["running"; 3] && ["fw/2", "fw/3"].iter().all(|one| is_attached(&lab, one))
    });
    let push = |ring: &mut Ring, frame: &[u8; 60]| {
        assert!(ring.tx.push(frame).unwrap());
        ring.sync().unwrap();
    };
    let take = |ring: &mut Ring| {
        let (mut out, end) = ([0; 60], Instant::now() + LONG);
        while ring.rx.pop(&mut out).unwrap().is_none() {
            assert!(Instant::now() < end, "a frame is lost");
            ring.wait(Wait::RX, Some(Duration::from_millis(100))).unwrap();
        }
        ring.rx.sync().unwrap();
        out
    };
    let (mut shares, [one, two]) = ([0; 3], &mut ends.rings);
    for flow in 1..91 {
        push(one, &frame(flow, false, flow.into()));
        let mut there = take(two);
        assert_eq!(there[26..30], [192, 0, 2, 1]);
        let port = u16::from_be_bytes([there[34], there[35]]);
        shares[usize::from((port - 1024) / 21_504)] += 1;
        for (source, destination, length) in [(26, 30, 4), (34, 36, 2)] {
            (0..length).for_each(|at| there.swap(source + at, destination + at));
        }
        push(two, &there);
        let back = take(one);
        assert_eq!(back[30..34], [10, 0, 0, 1]);
        assert_eq!(back[36..38], flow.to_be_bytes(), "the answer reached the instance of its flow");
    }
    assert!(shares.iter().all(|share| *share > 10), "{shares:?}");
}

/// The example firewall, which marks frames and takes long for each of them. The program of port `one` is inside.
fn firewall(work: usize) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/functions/firewall.click");
    let mut text = std::fs::read_to_string(path).unwrap();
    for (end, port) in [("in", "inside"), ("out", "outside")] {
        let own = format!("{end} :: ToPort({port});");
        assert!(text.contains(&own), "{text}");
        text = text.replace(&own, &format!("{end} :: StoreData({MARK}, $INSTANCE) -> ToPort({port});"));
        let own = format!("FromPort({port}) ->");
        assert!(text.contains(&own), "{text}");
        text = text.replace(&own, &format!("FromPort({port}) -> {} ->", busy(work)));
    }
    // The chain's first port is `one`.
    text.replace("(inside)", "(x)").replace("(outside)", "(inside)").replace("(x)", "(outside)")
}

/// Answers pass only where the firewall knows their flow: at the instance that let its first frame out.
#[test]
fn flows_of_a_firewall_and_their_answers_survive_growth_and_shrinking() {
    let instances = "min = 1, max = 2, idle = \"1s\", shrink = \"500ms\"";
    let lab = Lab::new("multiply-firewall", &chain("process", instances, &firewall(60)));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    // Frames from outside that answer nothing do not pass; a frame of an unknown flow would end the test.
    for flow in 500..520 {
        let ring = &mut ends.rings[1];
        assert!(ring.tx.push(&frame(flow, true, 0)).unwrap());
        ring.sync().unwrap();
    }
    ends.answered(0..40);
    ends.load(0..40, "a second instance runs", || states(&lab)[1] == "running" && is_attached(&lab, "fw/2"));
    ends.finish();
    ends.answered(0..120);
    assert!((0..40).all(|flow| ends.instance(flow) == 1), "established flows keep their instance");
    let second: Vec<u16> = (40..120).filter(|flow| ends.instance(*flow) == 2).collect();
    assert!(second.len() > 10, "{second:?}");
    // While it shrinks, some flows of both go on.
    let flows = [&[0, 1, 2, 3][..], &second[..4]].concat();
    let (mut drained, end) = (None, Instant::now() + LONG);
    while drained.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(1500)) {
        for flow in &flows {
            ends.answered(*flow..flow + 1);
        }
        std::thread::sleep(Duration::from_millis(20));
        if drained.is_none() && states(&lab)[1] == "draining" {
            drained = Some(Instant::now());
        }
        assert!(Instant::now() < end, "it shrinks: {:?}", states(&lab));
    }
    assert!(flows[..4].iter().all(|flow| ends.instance(*flow) == 1));
    assert!(flows[4..].iter().all(|flow| ends.instance(*flow) == 2));
    until("its last flow has ended, and it is stopped", || states(&lab)[1] == "dormant");
    ends.answered(200..240);
    assert_eq!(lab.ok(&["function", "read", "fw", "denied.count"]).trim(), "0");
    assert!(drops(&lab).is_empty(), "{:?}", drops(&lab));
}

/// Attack: so many flows that the table of flows has no room for others.
#[test]
fn a_flood_of_flows_moves_no_known_flow() {
    let lab = Lab::new("multiply-flood", &file("process", "max = 2, flows = 64, shrink = \"3600s\"", 0));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    ends.both_ways(0..8);
    let flood = |ends: &mut Ends| {
        for flow in 1000..3000 {
            ends.send(false, flow);
            while ends.under_way > 200 {
                ends.take(false, Duration::from_millis(1));
            }
        }
        ends.finish();
    };
    flood(&mut ends);
    lab.ok(&["function", "start", "fw/2"]);
    until("a second one runs", || states(&lab) == ["running"; 2] && is_attached(&lab, "fw/2"));
    ends.both_ways(0..8);
    flood(&mut ends);
    let mut flows = (0..8).chain(1000..3000);
    assert!(flows.all(|flow| ends.instance(flow) == 1), "flows stay where they are, known or not");
}
