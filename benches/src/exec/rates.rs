//! Requests and streams of servers, each beside the kernel's in alternating slices.

use super::lab::{DIRECT, Joined, LINUX, Places, Ports, Running, Spaces, ask, serve};
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::keys::{Folder, Rows};
use crate::machine;
use crate::peer::program;
use crate::plan::Plan;
use crate::tcp::bulk::machine_time;
use std::process::Command;
use std::time::Duration;

const SLICE: Duration = Duration::from_secs(1);
const NATIVE: &str = "native";

/// What a client measured, and how many requests, or gigabits, the machine's work is divided by.
struct Answer<const N: usize> {
    figures: [f64; N],
    count: f64,
}

/// What a server is started with in both sorts of places, and what asks it.
struct Contest<'a, const N: usize> {
    joined: Joined,
    stack: &'static str,
    server: &'a [&'a str],
    port: u16,
    /// A server runs there; the client's answer.
    ask: &'a dyn Fn(&dyn Places) -> Result<Answer<N>, Failure>,
}

/// One side of a contest.
struct Side<P> {
    // Ends before its network.
    _server: Running,
    places: P,
}

impl<const N: usize> Contest<'_, N> {
    fn side<P: Places>(&self, places: P) -> Result<Side<P>, Failure> {
        let server = serve(&places, self.port, self.server)?;
        // The first one is slower.
        (self.ask)(&places)?;
        Ok(Side { _server: server, places })
    }

    /// The client's figures, and last the machine's CPU time a request.
    fn slice(&self, places: &dyn Places) -> Result<([f64; N], f64), Failure> {
        let before = machine_time()?;
        let answer = (self.ask)(places)?;
        Ok((answer.figures, 1e6 * (machine_time()? - before) / answer.count))
    }

    /// Slices of each figure, and of CPU times.
    fn run(&self, plan: &Plan) -> Result<([Slices; N], Slices), Failure> {
        let mut ours = self.side(Ports::new(self.joined, self.stack, None)?)?;
        let kernel = self.side(Spaces::new(self.joined)?)?;
        let mut slices = [(); N].map(|()| Slices::default());
        let mut costs = Slices::default();
        for _ in 0..plan.slices(2 * SLICE) {
            machine::sample();
            let (figures, cost) = self.slice(&ours.places)?;
            slices.iter_mut().zip(figures).for_each(|(slices, figure)| slices.ours.push(figure));
            costs.ours.push(cost);
            let (figures, cost) = self.slice(&kernel.places)?;
            slices.iter_mut().zip(figures).for_each(|(slices, figure)| slices.peer.push(figure));
            costs.peer.push(cost);
        }
        if !ours.places.is_up() {
            return Err("the fabric ended".into());
        }
        Ok((slices, costs))
    }
}

/// A row with CPU times: of a request in us, or of a gigabit in ms.
fn row(slices: &Slices, costs: &Slices, unit: &str, better: Better, what: (&str, f64)) -> Entry {
    let cost = |figures: &[f64]| median(figures).unwrap_or(f64::NAN) * what.1;
    let entry = slices.entry(unit, better);
    let entry = entry.with(what.0, cost(&costs.ours));
    entry.with(&format!("{}, kernel", what.0), cost(&costs.peer))
}

const REQUEST: (&str, f64) = ("CPU us a request", 1.0);
const GIGABIT: (&str, f64) = ("CPU ms a gigabit", 1e-3);

/// GETs a second, and their 99th percentile in us.
fn get(places: &dyn Places, connections: u32, requests: u32) -> Result<Answer<2>, Failure> {
    let (connections, count) = (connections.to_string(), requests.to_string());
    let words =
        ["redis-benchmark", "-h", places.server(), "-t", "get", "-c", &connections, "-n", &count, "--csv"];
    let text = ask(places, &words, SLICE)?;
    let line = text.lines().find(|line| line.starts_with("\"GET\"")).ok_or("redis-benchmark gave no rate")?;
    let fields: Vec<f64> =
        line.split(',').skip(1).map(|field| field.trim_matches('"').parse().unwrap_or(f64::NAN)).collect();
    let field = |at: usize| fields.get(at).copied().ok_or("redis-benchmark gave no rate");
    Ok(Answer { figures: [field(0)? / 1e3, 1e3 * field(5)?], count: requests.into() })
}

fn redis_in(
    plan: &Plan,
    (joined, stack): (Joined, &'static str),
    connections: u32,
    requests: u32,
) -> Result<([Slices; 2], Slices), Failure> {
    program("redis-server")?;
    program("redis-benchmark")?;
    let server =
        ["redis-server", "--port", "6379", "--save", "", "--protected-mode", "no", "--bind", "0.0.0.0"];
    let ask = |places: &dyn Places| get(places, connections, requests);
    Contest { joined, stack, server: &server, port: 6379, ask: &ask }.run(plan)
}

fn redis_on(plan: &Plan, stack: &'static str) -> Rows {
    let ([rates, p99], costs) = redis_in(plan, (Joined::Switch, stack), 50, 40_000)?;
    let note = "50 connections, no pipelining";
    Ok(vec![
        row(&rates, &costs, "thousand/s", Better::More, REQUEST).ratio_at_least(1.5).note(note),
        p99.entry("us", Better::Less).ratio_at_most(1.0).note(note),
    ])
}

/// `redis` and `redis.p99`.
pub fn redis(plan: &Plan) -> Rows {
    redis_on(plan, NATIVE)
}

/// `redis.direct` and `redis.direct.p99`.
pub fn redis_direct(plan: &Plan) -> Rows {
    redis_on(plan, DIRECT)
}

/// `redis.pipe`.
pub fn redis_pipe(plan: &Plan) -> Result<Entry, Failure> {
    let ([rates, _], costs) = redis_in(plan, (Joined::Pipe, NATIVE), 50, 40_000)?;
    Ok(row(&rates, &costs, "thousand/s", Better::More, REQUEST).ratio_at_least(1.5))
}

fn redis_alone_on(plan: &Plan, stack: &'static str) -> Result<Entry, Failure> {
    let ([rates, _], costs) = redis_in(plan, (Joined::Switch, stack), 1, 5000)?;
    let times = |rates: &[f64]| rates.iter().map(|rate| 1e3 / rate).collect::<Vec<f64>>();
    let times = Slices::of(&times(&rates.ours), &times(&rates.peer));
    Ok(row(&times, &costs, "us", Better::Less, REQUEST).ratio_at_most(1.0))
}

/// `redis.1`.
pub fn redis_alone(plan: &Plan) -> Result<Entry, Failure> {
    redis_alone_on(plan, NATIVE)
}

/// `redis.1.direct`.
pub fn redis_alone_direct(plan: &Plan) -> Result<Entry, Failure> {
    redis_alone_on(plan, DIRECT)
}

/// wrk's thousands of requests a second.
fn wrk(places: &dyn Places, path: &str, closes: bool) -> Result<Answer<1>, Failure> {
    let url = format!("http://{}:8080/{path}", places.server());
    let mut words = vec!["wrk", "-t", "1", "-c", "32", "-d", "1s"];
    if closes {
        words.extend(["-H", "Connection: close"]);
    }
    words.push(&url);
    let text = ask(places, &words, SLICE)?;
    if let Some(wrong) = text.lines().find(|line| line.contains("Socket errors") || line.contains("Non-2xx"))
    {
        return Err(format!("wrk: {}", wrong.trim()).into());
    }
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse::<f64>().ok());
    let count = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    let (rate, count) = rate.zip(count).ok_or("wrk gave no rate")?;
    Ok(Answer { figures: [rate / 1e3], count })
}

fn nginx_with(plan: &Plan, stack: &'static str, closes: bool) -> Result<Entry, Failure> {
    program("nginx")?;
    program("wrk")?;
    let folder = Folder::new()?;
    let shown = folder.path().display();
    std::fs::write(folder.path().join("page"), vec![b'x'; 1024])?;
    // Each side has a server of its own. It removes its file with the process number, so that must be one of ours.
    let conf = format!(
        "worker_processes 1; daemon off; pid {shown}/pid; error_log stderr crit; user root;
        events {{ worker_connections 512; }}
        http {{ access_log off; keepalive_requests 1000000000; server {{ listen 8080 backlog=1024;
        location / {{ root {shown}; }} }} }}"
    );
    let path = folder.path().join("conf").display().to_string();
    std::fs::write(&path, conf)?;
    let server = ["nginx", "-c", &path];
    let ask = |places: &dyn Places| wrk(places, "page", closes);
    let contest = Contest { joined: Joined::Switch, stack, server: &server, port: 8080, ask: &ask };
    let ([rates], costs) = contest.run(plan)?;
    let note = "one worker, 32 connections, no error";
    Ok(row(&rates, &costs, "thousand/s", Better::More, REQUEST).ratio_at_least(1.5).note(note))
}

/// `nginx.wrk`.
pub fn nginx(plan: &Plan) -> Result<Entry, Failure> {
    nginx_with(plan, NATIVE, false)
}

/// `nginx.wrk.close`.
pub fn nginx_closing(plan: &Plan) -> Result<Entry, Failure> {
    nginx_with(plan, NATIVE, true)
}

/// `nginx.wrk.direct`.
pub fn nginx_direct(plan: &Plan) -> Result<Entry, Failure> {
    nginx_with(plan, DIRECT, false)
}

/// `nginx.wrk.close.direct`.
pub fn nginx_closing_direct(plan: &Plan) -> Result<Entry, Failure> {
    nginx_with(plan, DIRECT, true)
}

/// `go.http`.
pub fn go(plan: &Plan) -> Result<Entry, Failure> {
    program("wrk")?;
    let folder = Folder::new()?;
    let source = "package main\nimport \"net/http\"\nfunc main() {
    body := make([]byte, 1024)
    http.HandleFunc(\"/\", func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
    panic(http.ListenAndServe(\":8080\", nil))\n}\n";
    let (file, binary) = (folder.path().join("main.go"), folder.path().join("main"));
    std::fs::write(&file, source)?;
    let mut build = Command::new(program("go")?);
    build.args(["build", "-o"]).args([&binary, &file]);
    build.envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off"), ("GOTELEMETRY", "off")]);
    if !build.status()?.success() {
        return Err("go does not build the server".into());
    }
    let binary = binary.display().to_string();
    let ask = |places: &dyn Places| wrk(places, "", false);
    let server = [&*binary];
    let contest = Contest { joined: Joined::Switch, stack: NATIVE, server: &server, port: 8080, ask: &ask };
    let ([rates], costs) = contest.run(plan)?;
    Ok(row(&rates, &costs, "thousand/s", Better::More, REQUEST).ratio_at_least(0.5))
}

/// iperf3's Gb/s.
fn iperf(places: &dyn Places) -> Result<Answer<1>, Failure> {
    let text = ask(places, &["iperf3", "-J", "-c", places.server(), "-t", "1"], SLICE)?;
    let bits = received(&text)?;
    Ok(Answer { figures: [bits / 1e9], count: bits / 1e9 })
}

/// What iperf3's server received, in bits a second.
pub fn received(text: &str) -> Result<f64, Failure> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    let bits = value.pointer("/end/sum_received/bits_per_second").and_then(|bits| bits.as_f64());
    Ok(bits.ok_or("iperf3 gave no rate")?)
}

fn stream_of(plan: &Plan, joined: Joined, stack: &'static str) -> Result<Entry, Failure> {
    program("iperf3")?;
    let contest = Contest { joined, stack, server: &["iperf3", "-s"], port: 5201, ask: &iperf };
    let ([rates], costs) = contest.run(plan)?;
    Ok(row(&rates, &costs, "Gb/s", Better::More, GIGABIT))
}

fn stream_in(plan: &Plan, joined: Joined, stack: &'static str, least: f64) -> Result<Entry, Failure> {
    Ok(stream_of(plan, joined, stack)?.ratio_at_least(least))
}

/// `linux.iperf3`.
pub fn linux_stream(plan: &Plan) -> Result<Entry, Failure> {
    program("linux.uml")?;
    let entry = stream_of(plan, Joined::Switch, LINUX)?;
    Ok(entry.note("vhost-user ports; CPU times with a start of the client's guest a slice"))
}

/// `iperf3`.
pub fn stream(plan: &Plan) -> Result<Entry, Failure> {
    stream_in(plan, Joined::Switch, NATIVE, 1.0)
}

/// `iperf3.direct`.
pub fn stream_direct(plan: &Plan) -> Result<Entry, Failure> {
    stream_in(plan, Joined::Switch, DIRECT, 1.0)
}

/// `iperf3.pipe`.
pub fn stream_pipe(plan: &Plan) -> Result<Entry, Failure> {
    stream_in(plan, Joined::Pipe, NATIVE, 1.0)
}

/// `kernel.iperf3`.
pub fn kernel_stream(plan: &Plan) -> Result<Entry, Failure> {
    stream_in(plan, Joined::Switch, "kernel", 0.9)
}
