//! The demo: the two Linux guests of `examples/two-guests.toml` communicate through the switch.
//! `scripts/demo.sh` builds it, runs it in a separate folder, and always cleans up.
#![allow(clippy::print_stdout)]
use ringway_linux_guests::{Output, fetching, image};
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

    let before = (Instant::now(), waits());
    let (rows, passed) = with_rates(|| traffic(&guests));
    let after = (before.0.elapsed(), waits());
    let mut lines = vec![["", "left to right", "right to left"].map(String::from).to_vec()];
    lines.extend(rows.into_iter().map(|(name, [there, back])| vec![name.to_string(), there, back]));
    print!("\n{}", columns(&lines, &[]));
    let ports = counters()?;
    let waited: Vec<Waited> = after.1.into_iter().filter_map(|now| now.since(&before.1)).collect();
    why(&ports, &waited, after.0, &Host::now()).iter().for_each(|line| println!("{line}"));
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

/// Prints frames and drops of every port; returns the counters.
fn counters() -> Result<Vec<Port>, String> {
    let mut lines = vec![["port", "frames sent", "received", "drops"].map(String::from).to_vec()];
    let ports = ports()?;
    for port in ports.iter().cloned() {
        let drops: Vec<String> =
            port.drops.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        let drops = if drops.is_empty() { "none".to_string() } else { drops.join(", ") };
        lines.push(vec![port.name, port.tx[0].to_string(), port.rx[0].to_string(), drops]);
    }
    print!("\n{}", columns(&lines, &[1, 2]));
    Ok(ports)
}

/// How long a guest's threads have waited for a processor of the host while they could run.
#[derive(Debug)]
struct Waited {
    guest: String,
    ports: Vec<String>,
    time: Duration,
}

impl Waited {
    /// The time since then, if the guest was there.
    fn since(self, before: &[Waited]) -> Option<Waited> {
        let then = before.iter().find(|other| other.guest == self.guest)?.time;
        Some(Waited { time: self.time.saturating_sub(then), ..self })
    }
}

/// The guests, and how long each has waited; none if the system does not tell.
fn waits() -> Vec<Waited> {
    let list = ringway(&["--fabric", FABRIC, "--json", "guest", "list"]).unwrap_or_default();
    let list: Value = serde_json::from_str(&list).unwrap_or_default();
    let guest = |guest: &Value| {
        let texts = |key: &str| guest.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let ports = texts("ports").iter().filter_map(|port| port.as_str().map(String::from)).collect();
        let time = delay(guest.get("pid").and_then(Value::as_u64)?)?;
        Some(Waited { guest: guest.get("name").and_then(Value::as_str)?.into(), ports, time })
    };
    list.as_array().into_iter().flatten().filter_map(guest).collect()
}

/// How long the threads of a process and of its children have waited for a processor (schedstat of proc(5)).
fn delay(process: u64) -> Option<Duration> {
    let mut all = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let text = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let waited = text("schedstat").split(' ').nth(1).and_then(|waited| waited.parse().ok());
        all += Duration::from_nanos(waited.unwrap_or(0));
        let children = text("children");
        all += children.split_whitespace().filter_map(|child| delay(child.parse().ok()?)).sum();
    }
    Some(all)
}

/// How busy the host is.
struct Host {
    /// Average number of threads that run or could run, in the last minute.
    load: f64,
    processors: usize,
}

impl Host {
    fn now() -> Host {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        Host { load, processors: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

/// Says where frames were lost, and why: whose ring was full, and whether its guest had a processor.
fn why(ports: &[Port], waited: &[Waited], time: Duration, host: &Host) -> Vec<String> {
    let mut lines = Vec::new();
    for port in ports {
        let full = port.drops.iter().find(|(reason, _)| reason == "rx full").map(|(_, count)| count);
        let guest = waited.iter().find(|waited| waited.ports.contains(&port.name));
        let name = guest.map_or("its guest".into(), |guest| format!("guest {}", guest.guest));
        let Some(count) = full else { continue };
        lines.push(format!(
            "port {}: {count} frames for {name} were dropped: its receive ring was full for longer than the \
             port's `hold`, since the guest did not take frames as fast as they came",
            port.name
        ));
        if let Some(guest) = guest {
            lines.push(format!(
                "  while there was traffic, {name} waited {:.1} s of {:.1} s for a processor; the host's \
                 load is {:.1}, on {} processors",
                guest.time.as_secs_f64(),
                time.as_secs_f64(),
                host.load,
                host.processors
            ));
        }
    }
    if ports.iter().all(|port| port.drops.is_empty()) {
        lines.push("the switch dropped no frame: datagrams are lost in a guest's own stack".into());
    } else if !lines.is_empty() && host.load > host.processors as f64 {
        lines.push("other work takes the guests' processors: on a quiet host they lose less".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, drops: &[(&str, u64)]) -> Port {
        let drops = drops.iter().map(|(reason, count)| (reason.to_string(), *count)).collect();
        Port { name: name.into(), drops, ..Port::default() }
    }

    #[test]
    fn a_full_ring_has_its_guest_and_the_time_it_waited_for_a_processor() {
        let ports = [port("left", &[("rx full", 475), ("tx malformed", 1)]), port("right", &[])];
        let guest = |seconds| Waited {
            guest: "l".into(),
            ports: vec!["left".into()],
            time: Duration::from_secs(seconds),
        };
        let waited: Vec<Waited> = [guest(9)].into_iter().filter_map(|now| now.since(&[guest(2)])).collect();
        let busy = Host { load: 4.25, processors: 2 };
        let lines = why(&ports, &waited, Duration::from_secs(20), &busy);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("port left: 475 frames for guest l were dropped"), "{}", lines[0]);
        assert!(lines[1].contains("waited 7.0 s of 20.0 s") && lines[1].contains("on 2 processors"));
        let calm = Host { load: 0.5, processors: 2 };
        assert_eq!(
            why(&ports, &[], Duration::from_secs(20), &calm).len(),
            1,
            "nothing is known of the guest"
        );
        let none = why(&[port("left", &[])], &waited, Duration::from_secs(20), &busy);
        assert!(none[0].contains("dropped no frame"), "{none:?}");
        let other = [port("left", &[("tx malformed", 1)])];
        assert_eq!(why(&other, &waited, Duration::from_secs(20), &busy), Vec::<String>::new());
    }
}
