//! The demo: the two Linux guests of `examples/two-guests.toml` communicate through the switch.
//! `scripts/demo.sh` builds it, runs it in a separate folder, and always cleans up.
#![allow(clippy::print_stdout)]
use ringway_guests::{Output, fetching, image};
use ringway_tests::columns::columns;
use ringway_tests::eventually;
use ringway_tests::fabric::program;
use ringway_tests::traffic::{Pings, Runs, Transfer, iperf, ping};
use serde_json::Value;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FABRIC: &str = "two-guests";
const BOOT: &str = "120";
const SECONDS: u64 = 5;
/// Rate at which a User-Mode Linux guest, whose timer has 100 Hz, loses no datagrams itself.
const UDP_RATE: &str = "20M";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, guest, nic] = &words[..] else {
        eprintln!("usage: demo FABRIC-FILE GUEST NIC; scripts/demo.sh runs it");
        return ExitCode::from(2);
    };
    match kernel(guest, nic).and_then(|()| demo(file)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("\nNot all traffic passed.");
            ExitCode::FAILURE
        }
        Err(reason) => {
            eprintln!("demo: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Fetches QEMU's kernel before the guests start: their time limit is for booting.
fn kernel(guest: &str, nic: &str) -> Result<(), String> {
    if guest == "qemu" {
        println!("looking for a guest kernel; if there is none, a package of some 30 or 70 MB is fetched");
        let driver = [nic];
        let drivers = if nic == "virtio" { &[][..] } else { &driver };
        let kernel = with_progress(|| image::qemu(drivers)).map_err(|error| error.to_string())?;
        println!("guest kernel: {}", kernel.image.display());
    }
    Ok(())
}

/// Runs `work` while printing every five seconds what is fetched.
fn with_progress<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !eventually(Duration::from_secs(5), || done.load(Ordering::Relaxed)) {
                fetching().iter().for_each(|what| println!("{what}"));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn demo(file: &str) -> Result<bool, String> {
    let begin = Instant::now();
    println!("ringway up {file} --detach");
    ringway(&["up", file, "--detach"])?;
    let guests =
        [Remote { name: "left", address: "10.77.0.1" }, Remote { name: "right", address: "10.77.0.2" }];
    for guest in &guests {
        ringway(&["--fabric", FABRIC, "guest", "wait", guest.name, "--timeout", BOOT])?;
    }
    let kernel = guests[0].run("uname -sr", Duration::from_secs(5))?.text;
    println!("both guests are up after {:.1} s: {}\n", begin.elapsed().as_secs_f64(), kernel.trim());

    let (rows, passed) = with_rates(|| traffic(&guests));
    let mut lines = vec![["", "left to right", "right to left"].map(String::from).to_vec()];
    lines.extend(rows.into_iter().map(|(name, [there, back])| vec![name.to_string(), there, back]));
    print!("\n{}", columns(&lines, &[]));
    let dropped = counters()?;
    let who = if dropped == 0 {
        "the switch dropped no frame: datagrams are lost in a guest's own stack"
    } else {
        ""
    };
    println!("{who}");
    ringway(&["--fabric", FABRIC, "down"])?;
    Ok(passed)
}

/// A guest of the running fabric.
struct Remote {
    name: &'static str,
    address: &'static str,
}

impl Runs for Remote {
    fn run(&self, command: &str, bound: Duration) -> Result<Output, String> {
        let seconds = bound.as_secs().max(1).to_string();
        let words =
            ["--fabric", FABRIC, "--json", "guest", "exec", self.name, "--timeout", &seconds, "--", command];
        let value: Value = serde_json::from_str(&ringway(&words)?).map_err(|error| error.to_string())?;
        let status = value.get("status").and_then(Value::as_i64).unwrap_or(-1);
        let text = value.get("text").and_then(Value::as_str).unwrap_or_default().to_string();
        Ok(Output { status: i32::try_from(status).unwrap_or(-1), text })
    }
}

/// Runs `ringway`; returns its output, or its error.
fn ringway(words: &[&str]) -> Result<String, String> {
    let output = Command::new(program()).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_string())
}

/// A row of the table: a name, and a cell for each direction.
type Row = (&'static str, [String; 2]);

/// Sends every kind of traffic both ways; returns whether all passed.
fn traffic(guests: &[Remote; 2]) -> (Vec<Row>, bool) {
    let ways = [(&guests[0], guests[1].address), (&guests[1], guests[0].address)];
    let pings = ways.map(|(from, to)| ping(from, to, 100, 56, 0.01));
    let tcp = ways.map(|(from, to)| iperf(from, to, SECONDS, ""));
    let udp = ways.map(|(from, to)| iperf(from, to, SECONDS, &format!("-u -b {UDP_RATE} -l 1400")));
    let passed = pings.iter().all(|result| result.as_ref().is_ok_and(|pings| pings.lost() == 0))
        && tcp.iter().all(|result| result.as_ref().is_ok_and(|tcp| tcp.rate > 0.0))
        && udp.iter().all(|result| result.as_ref().is_ok_and(|udp| udp.datagrams > 0.0));
    let rows = vec![
        (
            "ping",
            pings
                .each_ref()
                .map(|result| cell(result, |pings| format!("{} of {} lost", pings.lost(), pings.sent))),
        ),
        ("RTT min/med/p99", pings.each_ref().map(|result| cell(result, round_trip))),
        ("TCP", tcp.map(|result| cell(&result, |tcp| format!("{:.2} Gb/s", tcp.rate)))),
        ("UDP at 20 Mb/s", udp.map(|result| cell(&result, datagrams))),
    ];
    (rows, passed)
}

fn cell<T>(result: &Result<T, String>, show: impl Fn(&T) -> String) -> String {
    // A reason may have several lines.
    let failed = |reason: &String| format!("failed: {}", reason.trim().replace('\n', "; "));
    result.as_ref().map_or_else(failed, show)
}

fn round_trip(pings: &Pings) -> String {
    let [least, middle, most] = [0.0, 0.5, 0.99].map(|part| pings.quantile(part));
    format!("{least:.3} / {middle:.3} / {most:.3} ms")
}

fn datagrams(udp: &Transfer) -> String {
    format!("{:.1} Mb/s received, {:.1}% lost", udp.rate * 1e3, udp.lost)
}

/// Runs `work` while printing each port's rates once a second.
fn with_rates<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut before = (Instant::now(), ports().unwrap_or_default());
            while !eventually(Duration::from_secs(1), || done.load(Ordering::Relaxed)) {
                let now = (Instant::now(), ports().unwrap_or_default());
                println!("{}", rates(&before.1, &now.1, (now.0 - before.0).as_secs_f64()));
                before = now;
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Counters of a port.
#[derive(Default, Clone)]
struct Port {
    name: String,
    tx: [u64; 2],
    rx: [u64; 2],
    drops: Vec<(String, u64)>,
}

fn rates(before: &[Port], now: &[Port], seconds: f64) -> String {
    let each = now.iter().zip(before).map(|(now, before)| {
        let a = |after: [u64; 2], first: [u64; 2]| {
            let [frames, bytes] =
                [0, 1].map(|at: usize| after[at].saturating_sub(first[at]) as f64 / seconds);
            format!("{:>7.1} kpps {:>6.3} Gb/s", frames / 1e3, bytes * 8e-9)
        };
        format!("{:<6} sends {}  receives {}", now.name, a(now.tx, before.tx), a(now.rx, before.rx))
    });
    each.collect::<Vec<_>>().join("   ")
}

/// The counters of all ports, from `ringway stats --json`.
fn ports() -> Result<Vec<Port>, String> {
    let text = ringway(&["--fabric", FABRIC, "--json", "stats"])?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let list = value.get("ports").and_then(Value::as_array).ok_or("stats without ports")?;
    Ok(list.iter().map(port).collect())
}

fn port(value: &Value) -> Port {
    let total = value.get("total").unwrap_or(&Value::Null);
    let number = |key: &str| total.get(key).and_then(Value::as_u64).unwrap_or(0);
    let mut drops = Vec::new();
    for side in ["tx_drops", "rx_drops"] {
        for (reason, count) in total.get(side).and_then(Value::as_object).into_iter().flatten() {
            let count = count.as_u64().unwrap_or(0);
            if count > 0 {
                drops.push((format!("{} {reason}", side.replace("_drops", "")), count));
            }
        }
    }
    Port {
        name: value.get("name").and_then(Value::as_str).unwrap_or_default().to_string(),
        tx: [number("tx_frames"), number("tx_bytes")],
        rx: [number("rx_frames"), number("rx_bytes")],
        drops,
    }
}

/// Prints frames and drops of every port; returns the total number of dropped frames.
fn counters() -> Result<u64, String> {
    let mut lines = vec![["port", "frames sent", "received", "drops"].map(String::from).to_vec()];
    let mut dropped = 0;
    for port in ports()? {
        dropped += port.drops.iter().map(|(_, count)| count).sum::<u64>();
        let drops: Vec<String> =
            port.drops.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        let drops = if drops.is_empty() { "none".to_string() } else { drops.join(", ") };
        lines.push(vec![port.name, port.tx[0].to_string(), port.rx[0].to_string(), drops]);
    }
    print!("\n{}", columns(&lines, &[1, 2]));
    Ok(dropped)
}
