//! Functions whose processes, or whose data process, are killed at every point of their lives: they come back or their
//! end is reported, frames of others pass meanwhile, and nothing is left over.
#![allow(clippy::unwrap_used)]

use crate::lab::api::{
    self, ask, function, held, is_running, kill, nothing_is_left, order, processes, restart, update,
};
use crate::lab::frames::{LONG, Others, next, patched, program, send, slow};
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Ring;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The worst moments are in the first rounds; a restart after a fourth end takes seconds.
const ROUNDS: u32 = 12;

/// A function that counts and returns frames, or more.
fn mirror(isolation: &str, more: &str) -> String {
    format!(
        "[function.one]\nisolation = \"{isolation}\"\nmemory = \"64MB\"\nport = \"one\"\n{more}\
         click = \"{}\"\n",
        click("c")
    )
}

/// Its configuration, with this name for its counter.
fn click(counter: &str) -> String {
    format!("FromPort(one) -> {counter} :: Counter -> ToPort(one);")
}

/// A fabric with the function and two programs that have nothing to do with it.
struct Rig {
    others: Others,
    lab: Lab,
    program: Ring,
    before: [usize; 3],
}

impl Rig {
    fn new(name: &str, isolation: &str, more: &str) -> Rig {
        let pairs = [["one", "far"], ["left", "right"]];
        let lab =
            Lab::new(&format!("kills-{name}-{isolation}"), &(patched(&pairs) + &mirror(isolation, more)));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let others = Others::between(&lab, ["left", "right"], false);
        let program = program(&lab, "far");
        let mut rig = Rig { lab, others, program, before: [0; 3] };
        // The first frame may start it.
        rig.exchange();
        until("it runs", || is_running(&rig.lab, "one"));
        // What `control` needs to close descriptors is there from the first end on.
        restart(&rig.lab, "one");
        rig.is_whole();
        // A VM has the next one's process beside it.
        until("there is a spare process", || rig.held()[0] == if isolation == "vm" { 2 } else { 1 });
        rig.before = rig.held();
        rig
    }

    fn held(&self) -> [usize; 3] {
        let fabric = api::fabric(&self.lab);
        held(fabric["pid"].as_u64().unwrap(), fabric["data_pid"].as_u64().unwrap())
    }

    /// Sends frames until one comes back.
    fn exchange(&mut self) {
        let end = Instant::now() + LONG;
        let mut number = 0;
        loop {
            send(&mut self.program, number);
            if next(&mut self.program, Duration::from_millis(20)).is_some() {
                break;
            }
            number += 1;
            assert!(Instant::now() < end, "no frame comes back");
        }
        while next(&mut self.program, Duration::ZERO).is_some() {}
    }

    /// The function runs again, and so do all others.
    fn is_whole(&mut self) {
        until("it runs again", || is_running(&self.lab, "one"));
        self.exchange();
        self.others.pass(3);
    }

    fn finish(self) {
        self.others.pass(20);
        assert_eq!(api::fabric(&self.lab)["restarts"], 0, "the data process went on");
        nothing_is_left(&self.lab, &self.before);
    }
}

fn wait(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::yield_now();
    }
}

#[test]
fn a_function_killed_at_any_point_of_its_start_comes_back_and_harms_nobody_else() {
    for isolation in isolations() {
        let mut rig = Rig::new("start", isolation, "");
        restart(&rig.lab, "one");
        let begin = Instant::now();
        until("it runs", || is_running(&rig.lab, "one"));
        let took = begin.elapsed();
        for round in 0..ROUNDS {
            let pid = restart(&rig.lab, "one");
            // Later in each round: from its first instruction until frames pass.
            wait(took * round / (ROUNDS - 2));
            kill(pid);
            rig.is_whole();
        }
        rig.finish();
    }
}

#[test]
fn a_function_killed_while_it_is_suspended_comes_back() {
    for isolation in isolations() {
        let mut rig = Rig::new("suspended", isolation, "");
        for round in 0..3 {
            order(&rig.lab, "POST", "functions/one/suspend", &Value::Null);
            send(&mut rig.program, 7);
            kill(function(&rig.lab, "one")["pid"].as_u64().unwrap());
            until("its end is noticed", || function(&rig.lab, "one")["restarts"] == round + 1);
            rig.is_whole();
        }
        rig.finish();
    }
}

#[test]
fn a_function_killed_while_it_is_updated_has_the_old_configuration_or_the_new_one() {
    for isolation in isolations() {
        let mut rig = Rig::new("update", isolation, "");
        let begin = Instant::now();
        assert_eq!(update(&rig.lab, "one", &(slow(2) + &click("first"))), 204);
        let (took, mut last) = (begin.elapsed(), "first".to_string());
        for round in 0..6 {
            let pid = restart(&rig.lab, "one");
            rig.is_whole();
            let (new, lab) = (format!("round{round}"), &rig.lab);
            let status = std::thread::scope(|scope| {
                let updating = scope.spawn(|| update(lab, "one", &(slow(2) + &click(&new))));
                wait(took * round / 5);
                kill(pid);
                updating.join().unwrap()
            });
            rig.is_whole();
            // The function has the new configuration exactly if that was the answer.
            last = if status == 204 { new } else { last };
            let path = format!("functions/one/handlers/{last}.count");
            let (read, why) = ask(&rig.lab, "GET", &path, &Value::Null);
            assert_eq!(read, 200, "round {round}: {status}: {why}");
        }
        rig.finish();
    }
}

#[test]
fn a_function_killed_while_it_is_created_leaves_nothing() {
    for isolation in isolations() {
        let pairs = [["one", "far"], ["left", "right"], ["new", "new-far"]];
        let file = patched(&pairs) + &mirror(isolation, "");
        let mut rig = Rig::new("create", isolation, "");
        rig.lab.write(&file);
        rig.lab.ok(&["apply", "lab.toml"]);
        rig.before = rig.held();
        let control = api::fabric(&rig.lab)["pid"].as_u64().unwrap();
        let create = || {
            let text = slow(2) + &click("c").replace("(one)", "(new)");
            let body =
                json!({"name": "new", "configuration": text, "isolation": isolation, "ports": ["new"]});
            ask(&rig.lab, "POST", "functions", &body)
        };
        let begin = Instant::now();
        assert_eq!(create().0, 201);
        let took = begin.elapsed();
        let destroy = || order(&rig.lab, "DELETE", "functions/new", &Value::Null);
        destroy();
        for round in 0..6 {
            let own = function(&rig.lab, "one")["pid"].as_u64().unwrap();
            until("no other process runs", || processes(control).len() == rig.before[0]);
            let (status, answer) = std::thread::scope(|scope| {
                let creating = scope.spawn(create);
                let mut pid = 0;
                until("its process is there", || {
                    pid = function(&rig.lab, "new")["pid"].as_u64().unwrap_or(0);
                    pid > 0 || creating.is_finished()
                });
                wait(took * round / 5);
                assert_ne!(pid, own);
                kill(pid);
                creating.join().unwrap()
            });
            if status == 201 {
                // The function ran before it was killed, and so comes back.
                until("it runs again", || is_running(&rig.lab, "new"));
                destroy();
            } else {
                let why = answer["error"].as_str().unwrap();
                assert!(why.contains("function new is not created"), "{status} {answer}");
            }
            assert!(function(&rig.lab, "new").is_null());
        }
        rig.is_whole();
        rig.finish();
    }
}

#[test]
fn a_function_killed_while_its_first_frame_waits_comes_back() {
    for isolation in isolations() {
        let mut rig = Rig::new("first", isolation, "start = \"first-frame\"\n");
        for round in 0..6 {
            // Once started, it is dormant only if it is new.
            let file = |more: &str| {
                let pairs = [["one", "far"], ["left", "right"]];
                rig.lab.write(&(patched(&pairs) + more));
                rig.lab.ok(&["apply", "lab.toml"]);
            };
            file("");
            file(&mirror(isolation, "start = \"first-frame\"\n"));
            assert_eq!(function(&rig.lab, "one")["state"], "dormant");
            let mut pid = 0;
            until("it starts", || {
                // The data process may not make frames wait yet.
                send(&mut rig.program, 7);
                pid = function(&rig.lab, "one")["pid"].as_u64().unwrap();
                pid > 0
            });
            wait(Duration::from_millis(3) * round);
            kill(pid);
            rig.is_whole();
        }
        rig.finish();
    }
}

/// A fabric with the chain `web` of functions that run as `isolation` says, each with its instances.
fn chained(isolation: &str, functions: &[(&str, String)], instances: &str) -> String {
    let names: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "{}[port.one]\nkind = \"ring\"\nsocket = \"one.sock\"\n[port.two]\nkind = \"ring\"\n\
         socket = \"two.sock\"\n[chain.web]\nports = [\"one\", \"two\"]\nfunctions = {names:?}\n",
        patched(&[["left", "right"]])
    );
    for (name, more) in functions {
        text += &format!(
            "[function.{name}]\nports = [\"l\", \"r\"]\nisolation = \"{isolation}\"\nmemory = \"64MB\"\n\
             {instances}click = \"\"\"\nFromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);\n{more}\"\"\"\n"
        );
    }
    text
}

fn plain<'n>(names: &[&'n str]) -> Vec<(&'n str, String)> {
    names.iter().map(|name| (*name, String::new())).collect()
}

/// A fabric with a chain, and two programs that have nothing to do with it.
struct Chain {
    others: Others,
    lab: Lab,
    ends: [Ring; 2],
    before: [usize; 3],
}

impl Chain {
    fn new(name: &str, isolation: &str, file: &str, may_lose: bool) -> Chain {
        let lab = Lab::new(&format!("kills-{name}-{isolation}"), file);
        lab.ok(&["up", "lab.toml", "--detach"]);
        let others = Others::between(&lab, ["left", "right"], may_lose);
        let ends = ["one", "two"].map(|port| program(&lab, port));
        let mut chain = Chain { lab, others, ends, before: [0; 3] };
        chain.is_whole();
        // As above.
        restart(&chain.lab, "fw");
        until("it runs again", || is_running(&chain.lab, "fw"));
        chain.is_whole();
        let fabric = api::fabric(&chain.lab);
        let held = || held(fabric["pid"].as_u64().unwrap(), fabric["data_pid"].as_u64().unwrap());
        if isolation == "vm" {
            let functions = order(&chain.lab, "GET", "functions", &Value::Null);
            let runs = functions.as_array().unwrap().iter().filter(|one| one["pid"] != 0).count();
            until("there is a spare process", || held()[0] == runs + 1);
        }
        chain.before = held();
        chain
    }

    /// The order of its functions.
    fn order(&self) -> Vec<String> {
        let chains = order(&self.lab, "GET", "chains", &Value::Null);
        serde_json::from_value(chains[0]["functions"].clone()).unwrap()
    }

    /// Applies another file; the status and the error of the answer.
    fn apply(lab: &Lab, text: &str) -> (u16, String) {
        lab.write(text);
        let file = lab.folder.join("lab.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (status, answer) = ask(lab, "PUT", "fabric", &json!({"file": file, "text": text}));
        (status, answer["error"].as_str().unwrap_or_default().to_string())
    }

    /// Its functions run, and frames pass them in both directions.
    fn is_whole(&mut self) {
        until("the chain is up", || order(&self.lab, "GET", "chains", &Value::Null)[0]["state"] == "up");
        for (from, to) in [(0, 1), (1, 0)] {
            let (mut number, end) = (0, Instant::now() + LONG);
            loop {
                send(&mut self.ends[from], number);
                if next(&mut self.ends[to], Duration::from_millis(20)).is_some() {
                    break;
                }
                number += 1;
                assert!(Instant::now() < end, "no frame passes the chain");
            }
            while next(&mut self.ends[to], Duration::from_millis(1)).is_some() {}
        }
        self.others.pass(3);
    }
}

#[test]
fn a_function_killed_while_its_chain_changes_comes_back() {
    for isolation in isolations() {
        let file = |names: &[&str]| chained(isolation, &plain(names), "");
        let mut chain = Chain::new("chain", isolation, &file(&["fw", "lb"]), false);
        let begin = Instant::now();
        assert_eq!(Chain::apply(&chain.lab, &file(&["lb", "fw"])), (200, String::new()));
        let took = begin.elapsed();
        chain.is_whole();
        for round in 0..4 {
            let names = if round % 2 == 0 { ["fw", "lb"] } else { ["lb", "fw"] };
            let (before, pid) =
                (chain.order(), function(&chain.lab, names[round / 2])["pid"].as_u64().unwrap());
            let (status, why) = std::thread::scope(|scope| {
                let lab = &chain.lab;
                let applying = scope.spawn(|| Chain::apply(lab, &file(&names)));
                wait(took * round as u32 / 3);
                kill(pid);
                applying.join().unwrap()
            });
            until("it is started again", || function(&chain.lab, names[round / 2])["pid"] != pid);
            chain.is_whole();
            assert_eq!(
                chain.order(),
                if status == 200 { names.map(String::from).into() } else { before },
                "{why}"
            );
        }
        // A new member that ends before it runs: the chain stays as it is.
        let before = chain.order();
        let mut functions = plain(&["fw", "lb"]);
        functions.insert(1, ("late", slow(10)));
        let file = chained(isolation, &functions, "");
        let (status, why) = std::thread::scope(|scope| {
            let lab = &chain.lab;
            let applying = scope.spawn(|| Chain::apply(lab, &file));
            let mut pid = 0;
            until("its process is there", || {
                pid = function(lab, "late")["pid"].as_u64().unwrap_or(0);
                pid > 0 || applying.is_finished()
            });
            kill(pid);
            applying.join().unwrap()
        });
        assert!(
            status == 409 && why.contains("function late does not start, and nothing is changed"),
            "{why}"
        );
        assert!(function(&chain.lab, "late").is_null() && chain.order() == before);
        chain.is_whole();
        assert_eq!(api::fabric(&chain.lab)["restarts"], 0, "the data process went on");
        nothing_is_left(&chain.lab, &chain.before);
    }
}

/// Kills the data process, and waits until there is another.
fn kill_data(lab: &Lab) {
    let fabric = api::fabric(lab);
    kill(fabric["data_pid"].as_u64().unwrap());
    let restarts = fabric["restarts"].as_u64().unwrap();
    until("the data process is back", || api::fabric(lab)["restarts"].as_u64() > Some(restarts));
}

#[test]
fn the_data_process_killed_while_a_function_multiplies_comes_back() {
    for isolation in isolations().into_iter().chain(["worker"]) {
        let instances = "instances = { max = 2, shrink = \"3600s\" }\n";
        let file = chained(isolation, &plain(&["fw"]), instances) + "[worker.v]\n[worker.w]\n";
        let mut chain = Chain::new("multiplied", isolation, &file, true);
        let pid = function(&chain.lab, "fw")["pid"].clone();
        for round in 0..3 {
            order(&chain.lab, "POST", "functions/fw%2F2/start", &Value::Null);
            wait(Duration::from_millis(4) * round);
            kill_data(&chain.lab);
            until("both instances run", || ["fw", "fw/2"].iter().all(|name| is_running(&chain.lab, name)));
            chain.is_whole();
            order(&chain.lab, "POST", "functions/fw%2F2/stop", &Value::Null);
            until("it is stopped", || function(&chain.lab, "fw/2")["pid"] == 0);
        }
        assert_eq!(function(&chain.lab, "fw")["pid"], pid, "a process of its own goes on");
        nothing_is_left(&chain.lab, &chain.before[..2]);
    }
}

#[test]
fn the_data_process_killed_while_a_chain_changes_comes_back() {
    for isolation in isolations().into_iter().chain(["worker"]) {
        let file = |names: &[&str]| chained(isolation, &plain(names), "");
        let mut chain = Chain::new("changed", isolation, &file(&["fw", "lb"]), true);
        for round in 0..3 {
            let names = if round % 2 == 0 { ["lb", "fw"] } else { ["fw", "lb"] };
            std::thread::scope(|scope| {
                let lab = &chain.lab;
                let applying = scope.spawn(|| Chain::apply(lab, &file(&names)));
                wait(Duration::from_millis(4) * round);
                kill_data(lab);
                // Whether the change was made, or undone, follows from its moment.
                applying.join().unwrap()
            });
            until("the change is made", || Chain::apply(&chain.lab, &file(&names)).0 == 200);
            assert_eq!(chain.order(), names);
            chain.is_whole();
        }
        nothing_is_left(&chain.lab, &chain.before[..2]);
    }
}
