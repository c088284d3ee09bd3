//! Chains of functions: frames pass each function once, also while the chain changes.
#![allow(clippy::unwrap_used)]

use crate::lab::frames::{number, program, receive, send};
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Ring;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
/// Frames under way: fewer than any ring or lane holds.
const UNDER_WAY: u32 = 100;
/// The byte by which each function marks frames.
const MARK: usize = 30;

/// A fabric file with a chain `web` of these functions, each with its isolation.
fn file(functions: &[(&str, &str)]) -> String {
    let names: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "[port.one]\nkind = \"ring\"\nsocket = \"one.sock\"\n\
         [port.two]\nkind = \"ring\"\nsocket = \"two.sock\"\n\
         [chain.web]\nports = [\"one\", \"two\"]\nfunctions = {names:?}\n"
    );
    for (name, isolation) in functions {
        text += &function(name, isolation, "");
    }
    text
}

fn function(name: &str, isolation: &str, more: &str) -> String {
    format!(
        "[function.{name}]\nports = [\"outside\", \"inside\"]\nisolation = \"{isolation}\"\nclick = \"\"\"\n\
         FromPort(outside) -> StoreData({MARK}, {name}) -> c :: Counter -> ToPort(inside);\n\
         FromPort(inside) -> StoreData({MARK}, {name}) -> back :: Counter -> ToPort(outside);\n{more}\"\"\"\n"
    )
}

fn on_worker<'n>(names: &[&'n str]) -> Vec<(&'n str, &'static str)> {
    names.iter().map(|name| (*name, "worker")).collect()
}

fn chain(lab: &Lab) -> Value {
    lab.json(&["ps"])["chains"][0].clone()
}

fn is_up(lab: &Lab) -> bool {
    chain(lab)["state"] == "up"
}

fn read(lab: &Lab, function: &str, handler: &str) -> u64 {
    lab.ok(&["function", "read", function, handler]).trim().parse().unwrap()
}

/// The programs at the ends of a chain, and the numbers of the frames that were sent and that came.
struct Ends {
    one: Ring,
    two: Ring,
    sent: u32,
    came: u32,
    /// The function that marked the last frame.
    last: u8,
}

/// The number and the mark of the next frame that comes within a while.
fn next(ring: &mut Ring, most: Duration) -> Option<(u32, u8)> {
    receive(ring, most).map(|frame| (number(&frame), frame[MARK]))
}

impl Ends {
    fn of(lab: &Lab) -> Ends {
        until("the chain is up", || is_up(lab));
        Ends { one: program(lab, "one"), two: program(lab, "two"), sent: 0, came: 0, last: 0 }
    }

    /// Sends frames, and takes those that came, which must be in order; waits for one if `most` is not zero.
    fn pass(&mut self, most: Duration) {
        while self.sent < self.came + UNDER_WAY && send(&mut self.one, self.sent) {
            self.sent += 1;
        }
        while let Some((number, mark)) = next(&mut self.two, most) {
            assert_eq!(number, self.came, "a frame is lost, late or there twice");
            (self.came, self.last) = (self.came + 1, mark);
            if most > Duration::ZERO {
                return;
            }
        }
    }

    /// Waits for all frames that were sent.
    fn finish(&mut self) {
        while self.came < self.sent {
            let (number, mark) = next(&mut self.two, LONG).expect("no frame is lost");
            assert_eq!(number, self.came);
            (self.came, self.last) = (self.came + 1, mark);
        }
    }

    /// Passes frames while another file is applied, and some that are sent after that.
    fn apply(&mut self, lab: &Lab, text: &str) {
        lab.write(text);
        let mut apply = Command::new(env!("CARGO_BIN_EXE_ringway"));
        apply.args(["apply", "lab.toml"]).current_dir(&lab.folder);
        apply.env("RINGWAY_RUN", lab.folder.join("run")).stdout(Stdio::null());
        let mut apply = apply.spawn().unwrap();
        while apply.try_wait().unwrap().is_none() {
            self.pass(Duration::ZERO);
        }
        assert!(apply.wait().unwrap().success(), "{}", lab.log());
        let before = self.sent;
        while self.sent < before + 2 * UNDER_WAY {
            self.pass(LONG);
        }
        self.finish();
    }
}

#[test]
fn frames_pass_three_functions_of_a_worker_in_both_directions() {
    let lab = Lab::new("chain-three", &file(&on_worker(&["fw", "nat", "lb"])));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    while ends.came < 1000 {
        ends.pass(LONG);
    }
    ends.finish();
    assert_eq!(ends.last, b'l', "lb is the last one");
    for number in 0..100 {
        assert!(send(&mut ends.two, number));
        assert_eq!(next(&mut ends.one, LONG), Some((number, b'f')), "from inside fw is the last one");
    }
    for name in ["fw", "nat", "lb"] {
        assert_eq!(read(&lab, name, "c.count"), u64::from(ends.sent), "{name}");
        assert_eq!(read(&lab, name, "back.count"), 100, "{name}");
    }
    let stats = lab.json(&["stats"]);
    let frames = |port: &str, counter: &str| {
        let ports = stats["ports"].as_array().unwrap();
        ports.iter().find(|found| found["name"] == port).unwrap()["total"][counter].as_u64().unwrap()
    };
    assert_eq!(
        frames("fw.inside", "tx_frames"),
        u64::from(ends.sent),
        "frames by ownership are counted, too"
    );
    assert_eq!(frames("nat.outside", "rx_frames"), u64::from(ends.sent));
    assert_eq!(frames("nat.outside", "tx_bytes"), 100 * 60);
    let shown = lab.ok(&["ps"]);
    assert!(shown.contains("one - fw - nat - lb - two"), "{shown}");
    let graph = lab.json(&["graph", "--seconds", "0"]);
    let nodes = graph["nodes"].as_array().unwrap();
    let detail = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap()["detail"].clone();
    assert_eq!(detail("nat"), "web 2/3, running");
}

#[test]
fn a_chain_changes_under_load_without_loss_and_in_order() {
    let lab = Lab::new("chain-change", &file(&on_worker(&["fw", "nat", "lb"])));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    let orders: [&[&str]; 6] = [
        &["lb", "fw", "nat"],
        &["lb", "ids", "fw", "nat", "mon"],
        &["mon", "nat", "fw", "ids", "lb"],
        &["mon", "lb"],
        &["dns"],
        &["fw", "nat", "lb"],
    ];
    for order in orders {
        ends.apply(&lab, &file(&on_worker(order)));
        assert_eq!(ends.last, order.last().unwrap().as_bytes()[0], "{order:?}");
        let shown: Vec<String> = serde_json::from_value(chain(&lab)["functions"].clone()).unwrap();
        assert_eq!((shown, is_up(&lab)), (order.iter().map(ToString::to_string).collect(), true));
    }
    let fabric = lab.json(&["ps"])["fabric"].clone();
    assert_eq!((&fabric["restarts"], &fabric["ports"]), (&Value::from(0), &Value::from(8)));
    let drops = lab.json(&["stats"])["ports"].to_string();
    assert!(!drops.contains("\"down\"") && !drops.contains("\"full\""), "{drops}");
}

#[test]
fn functions_of_all_isolations_are_in_one_chain() {
    for isolation in isolations() {
        let mixed = [("fw", "worker"), ("nat", isolation), ("lb", isolation), ("mon", "worker")];
        let lab = Lab::new(&format!("chain-{isolation}"), &file(&mixed));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let mut ends = Ends::of(&lab);
        until("both programs of each port are there", || {
            ["nat.outside", "nat.inside", "lb.outside", "lb.inside"]
                .iter()
                .all(|port| lab.state(port) == "up")
        });
        while ends.came < 500 {
            ends.pass(LONG);
        }
        ends.finish();
        for (name, _) in mixed {
            assert_eq!(read(&lab, name, "c.count"), u64::from(ends.sent), "{isolation}: {name}");
        }
        // The new order has neighbours of one process that were none before.
        let [fw, nat, lb, mon] = mixed;
        ends.apply(&lab, &file(&[fw, mon, nat, lb]));
        assert_eq!(ends.last, b'l', "{isolation}");
    }
}

#[test]
fn a_chain_says_which_function_is_down_and_comes_back() {
    let lab = Lab::new("chain-dead", &file(&[("fw", "worker"), ("nat", "process"), ("lb", "worker")]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    let passes = |ends: &mut Ends, number| {
        send(&mut ends.one, number) && next(&mut ends.two, Duration::from_millis(100)) == Some((number, b'l'))
    };
    until("frames pass", || passes(&mut ends, 1));
    for name in ["nat", "lb"] {
        lab.ok(&["function", "stop", name]);
        until("the chain is down", || chain(&lab)["state"] == "down");
        assert_eq!(chain(&lab)["reason"], format!("function {name} is stopped"));
        assert!(lab.ok(&["ps"]).contains(&format!("function {name} is stopped")));
        assert!(!passes(&mut ends, 2), "{name}");
        lab.ok(&["function", "start", name]);
        until("frames pass again", || passes(&mut ends, 3));
        assert!(is_up(&lab));
    }
    let nat = || {
        lab.json(&["function", "list"]).as_array().unwrap().iter().find(|one| one["name"] == "nat").cloned()
    };
    let pid = nat().unwrap()["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    until("it is started again", || nat().unwrap()["restarts"] == 1);
    until("frames pass again", || passes(&mut ends, 4));
    let stats = lab.json(&["stats"])["ports"].to_string();
    assert!(stats.contains("\"down\""), "frames for a function that is down are counted: {stats}");
    let (_, why) = lab.fails(&["function", "destroy", "nat"]);
    assert!(why.contains("function nat is in chain web"), "{why}");
    let create = ["function", "create", "x", "--click", "Idle;", "--port", "nat.inside"];
    let (_, why) = lab.fails(&create);
    assert!(why.contains("port nat.inside is function nat's already"), "{why}");
}

#[test]
fn a_wrong_file_changes_nothing() {
    let good = file(&on_worker(&["fw", "nat"]));
    let lab = Lab::new("chain-wrong", &good);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ends = Ends::of(&lab);
    let silent = format!("{}{}", good.replace("\"nat\"]", "\"late\", \"nat\"]"), {
        function("late", "process", "Idle -> AggregateIPFlows(SOURCE nowhere) -> Discard;")
    });
    let wrong = [
        (good.replace("\"nat\"]", "\"nta\"]"), "there is no function \"nta\"; did you mean \"nat\"?"),
        (good.replace("\"nat\"]", "\"fw\"]"), "function fw is in chain.web already"),
        (good.replace("[\"outside\", \"inside\"]", "[\"outside\"]"), "function fw has 1 port"),
        (silent, "function late does not start, and nothing is changed"),
    ];
    for (text, message) in wrong {
        lab.write(&text);
        let (_, why) = lab.fails(&["apply", "lab.toml"]);
        assert!(why.contains(message), "{why}");
        let before = ends.came;
        while ends.came < before + UNDER_WAY {
            ends.pass(LONG);
        }
        ends.finish();
        assert_eq!(chain(&lab)["functions"], serde_json::json!(["fw", "nat"]));
    }
    lab.write(&good);
    assert!(lab.ok(&["apply", "lab.toml"]).contains("nothing") || is_up(&lab));
    assert_eq!(lab.json(&["ps"])["fabric"]["functions"], 2);
}
