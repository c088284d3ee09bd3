//! What is done to functions in excess: floods while they start, thousands of handler writes, configurations that take
//! too long to build. Programs on other ports of the same worker notice nothing.
#![allow(clippy::unwrap_used)]

use crate::lab::api::{self, ask, function, is_running, order};
use crate::lab::frames::{LONG, Others, next, patched, program, send, slow};
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Ring;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const WIRE: &str = "from :: FromPort(in) -> c :: Counter -> to :: ToPort(out); FromPort(out) -> ToPort(in);";

/// A function between two programs, and two programs that have nothing to do with it, all on one worker.
fn file(isolation: &str, click: &str, more: &str) -> String {
    format!(
        "{}[worker.w]\nhold = \"1ms\"\n[function.f]\nports = [\"in\", \"out\"]\nisolation = \"{isolation}\"\n\
         memory = \"64MB\"\n{more}click = \"\"\"\n{click}\"\"\"\n",
        patched(&[["one", "in"], ["two", "out"], ["left", "right"]])
    )
}

fn everywhere() -> impl Iterator<Item = &'static str> {
    isolations().into_iter().chain(["worker"])
}

/// Frames that were dropped, by reason.
fn drops(lab: &Lab) -> BTreeMap<String, u64> {
    let stats = order(lab, "GET", "stats", &Value::Null);
    let mut all = BTreeMap::new();
    for port in stats["ports"].as_array().unwrap() {
        for what in ["tx_drops", "rx_drops"] {
            for (reason, count) in port["total"][what].as_object().into_iter().flatten() {
                *all.entry(reason.clone()).or_default() += count.as_u64().unwrap();
            }
        }
    }
    all
}

/// Frames that an element of the function dropped.
fn own_drops(lab: &Lab, element: &str) -> u64 {
    let path = format!("functions/f/handlers/{element}.drops");
    order(lab, "GET", &path, &Value::Null)["value"].as_str().unwrap().trim().parse().unwrap()
}

/// Frames that a program sends as fast as it can, and those that the other one gets.
struct Flood {
    from: Ring,
    to: Ring,
    sent: u32,
    came: u32,
    /// The number of the last frame that came.
    last: Option<u32>,
    /// Frames that a function dropped which has ended.
    before: u64,
}

impl Flood {
    fn pass(&mut self) {
        for _ in 0..64 {
            self.sent += u32::from(send(&mut self.from, self.sent));
        }
        self.take(Duration::ZERO);
    }

    fn take(&mut self, most: Duration) {
        while let Some(number) = next(&mut self.to, most) {
            assert!(self.last.is_none_or(|last| last < number), "{number} is late or there twice");
            (self.came, self.last) = (self.came + 1, Some(number));
        }
    }

    /// Waits until each frame has come, or was dropped for a reason; returns those that were dropped.
    fn settle(&mut self, lab: &Lab) -> BTreeMap<String, u64> {
        let end = Instant::now() + LONG;
        loop {
            self.take(Duration::from_millis(20));
            let dropped = drops(lab);
            let own: u64 = ["from", "to"].iter().map(|element| own_drops(lab, element)).sum();
            let lost = dropped.values().sum::<u64>() + own + self.before;
            assert!(dropped.keys().all(|reason| reason == "down" || reason == "full"), "{dropped:?}");
            if u64::from(self.came) + lost == u64::from(self.sent) {
                self.before += own;
                return dropped;
            }
            let Flood { came, sent, before, .. } = self;
            let at = lab.folder.display();
            assert!(Instant::now() < end, "{came} of {sent} came: {dropped:?}, {own} and {before}; {at}");
        }
    }

    /// Floods the function until it runs, and then until further frames have passed.
    fn until_it_runs(&mut self, lab: &Lab) {
        let (end, mut look) = (Instant::now() + LONG, Instant::now());
        while Instant::now() < look || !is_running(lab, "f") {
            look = if Instant::now() < look { look } else { Instant::now() + Duration::from_millis(5) };
            self.pass();
            assert!(Instant::now() < end, "it does not start");
        }
        let enough = self.came + 2000;
        while self.came < enough {
            self.pass();
            assert!(Instant::now() < end, "no frames pass: {}", self.came);
        }
    }
}

/// Attack: more frames for a function that does not run yet than all rings hold.
#[test]
fn a_flood_at_a_function_that_starts_harms_nobody_else() {
    for isolation in everywhere() {
        // The start takes far longer than `hold`.
        let text = file(isolation, &(slow(2) + WIRE), "start = \"first-frame\"\n");
        let lab = Lab::new(&format!("flood-{isolation}"), &text);
        lab.ok(&["up", "lab.toml", "--detach"]);
        let others = Others::between(&lab, ["left", "right"], false);
        let (from, to) = (program(&lab, "one"), program(&lab, "two"));
        let mut flood = Flood { from, to, sent: 0, came: 0, last: None, before: 0 };
        assert_eq!(function(&lab, "f")["state"], "dormant", "{isolation}");
        flood.pass();
        until("the first frame starts it", || function(&lab, "f")["state"] != "dormant");
        flood.until_it_runs(&lab);
        others.pass(20);
        let dropped = flood.settle(&lab);
        assert!(!dropped.contains_key("down"), "{isolation}: frames wait while it starts: {dropped:?}");
        // What comes for a function that an order starts is dropped until it runs.
        let pid = function(&lab, "f")["pid"].as_u64().unwrap();
        order(&lab, "POST", "functions/f/stop", &Value::Null);
        // What its process has in its rings when it ends is lost with it.
        until("its process is gone", || pid == 0 || !Path::new(&format!("/proc/{pid}")).exists());
        order(&lab, "POST", "functions/f/start", &Value::Null);
        flood.until_it_runs(&lab);
        others.pass(20);
        flood.settle(&lab);
        assert_eq!(function(&lab, "f")["restarts"], 0, "{isolation}");
        assert_eq!(api::fabric(&lab)["restarts"], 0, "{isolation}: the data process goes on");
    }
}

/// Writes `count` times by the function's socket, and reads the answers.
fn write_often(lab: &Lab, count: usize) {
    let socket = UnixStream::connect(lab.socket("functions/f.sock")).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let (mut to, mut lines) = (socket.try_clone().unwrap(), BufReader::new(socket).lines());
    assert!(lines.next().unwrap().unwrap().starts_with("Click::ControlSocket/"));
    for _ in 0..count / 50 {
        to.write_all("WRITE c.reset\r\n".repeat(50).as_bytes()).unwrap();
        for _ in 0..50 {
            let answer = lines.next().unwrap().unwrap();
            assert!(answer.starts_with("200"), "{answer}");
        }
    }
}

/// A connection that writes and never reads, filled.
fn deaf(lab: &Lab) -> UnixStream {
    let mut socket = UnixStream::connect(lab.socket("functions/f.sock")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (end, mut full) = (Instant::now() + LONG, 0);
    // The channel must stay full for a while: the function reads as long as it can answer.
    while full < 20 {
        match socket.write("READ list\r\n".repeat(100).as_bytes()) {
            Ok(_) => full = 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            // The channel may be closed, too.
            Err(_) => break,
        }
        assert!(Instant::now() < end, "it reads without end");
    }
    socket
}

/// Attack: handlers written by thousands, by the API and by the function's socket.
#[test]
fn thousands_of_handler_writes_delay_no_frame_for_long() {
    for isolation in everywhere() {
        let lab = Lab::new(&format!("writes-{isolation}"), &file(isolation, WIRE, ""));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let others = Others::between(&lab, ["left", "right"], false);
        let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
        until("it runs", || is_running(&lab, "f") && lab.state("in") == "up" && lab.state("out") == "up");
        until("a frame passes", || {
            send(&mut one, u32::MAX);
            next(&mut two, Duration::from_millis(20)).is_some()
        });
        while next(&mut two, Duration::from_millis(20)).is_some() {}
        let (_deaf, before) = ([deaf(&lab), deaf(&lab)], drops(&lab));
        std::thread::scope(|scope| {
            let lab = &lab;
            let by_socket = scope.spawn(|| write_often(lab, 5000));
            let by_api = scope.spawn(|| {
                for _ in 0..1000 {
                    order(lab, "PUT", "functions/f/handlers/c.reset", &json!({"value": ""}));
                }
            });
            let mut number = 0;
            while number < 200 || !by_socket.is_finished() || !by_api.is_finished() {
                assert!(send(&mut one, number));
                assert_eq!(next(&mut two, LONG), Some(number), "{isolation}");
                number += 1;
            }
        });
        others.pass(20);
        let read = ask(&lab, "GET", "functions/f/handlers/c.count", &Value::Null);
        assert_eq!(read.0, 200, "{isolation}: {read:?}");
        assert_eq!(function(&lab, "f")["restarts"], 0, "{isolation}");
        assert_eq!(api::fabric(&lab)["restarts"], 0, "{isolation}: the data process goes on");
        assert_eq!(drops(&lab), before, "{isolation}");
    }
}

/// Attack: a configuration that takes long to build.
#[test]
fn a_configuration_that_takes_too_long_to_build_is_given_up() {
    for isolation in everywhere() {
        let head = "start-limit = \"200ms\"\n";
        let chain = |functions: &str, more: &str| {
            let port = |name| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
            let ports = port("x") + &port("y");
            format!(
                "{head}{}{ports}[chain.web]\nports = [\"x\", \"y\"]\nfunctions = [{functions}]\n\
                 [function.fw]\nports = [\"l\", \"r\"]\nisolation = \"worker\"\n\
                 click = \"FromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);\"\n{more}",
                patched(&[["one", "in"], ["left", "right"]])
            )
        };
        let lab = Lab::new(&format!("slow-{isolation}"), &chain("\"fw\"", ""));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let others = Others::between(&lab, ["left", "right"], false);
        let create = |text: &str| {
            // On a fast machine it needs much before it is given up.
            let body = json!({
                "name": "f", "configuration": text, "isolation": isolation, "ports": ["in"],
                "memory": 1_900_u64 << 20,
            });
            ask(&lab, "POST", "functions", &body)
        };
        let mirror = "FromPort(in) -> ToPort(in);";
        let before = others.passed();
        let (status, answer) = create(&(slow(300) + mirror));
        let why = answer["error"].as_str().unwrap();
        assert!(
            status == 422 && why.contains("it did not start within 0.2 s"),
            "{isolation}: {status} {why}"
        );
        assert!(others.passed() > before && function(&lab, "f").is_null(), "{isolation}");
        // A worker gives it up; frames of others pass.
        others.pass(50);
        until("its worker builds others again", || create(mirror).0 == 201);
        let late = format!(
            "[function.late]\nmemory = \"1900MB\"\nports = [\"l\", \"r\"]\nisolation = \"{isolation}\"\n\
             click = \"\"\"\n{}\
             FromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);\"\"\"\n[function.f]\nport = \"in\"\n\
             isolation = \"{isolation}\"\nclick = \"{mirror}\"\n",
            slow(300)
        );
        lab.write(&chain("\"fw\", \"late\"", &late));
        let (_, why) = lab.fails(&["apply", "lab.toml"]);
        assert!(why.contains("function late does not start, and nothing is changed"), "{isolation}: {why}");
        assert!(why.contains("it needs more than 0.2 s"), "{isolation}: {why}");
        let chains = order(&lab, "GET", "chains", &Value::Null);
        assert_eq!((&chains[0]["functions"], &chains[0]["state"]), (&json!(["fw"]), &json!("up")));
        others.pass(50);
        assert_eq!(api::fabric(&lab)["restarts"], 0, "the data process goes on");
    }
}
