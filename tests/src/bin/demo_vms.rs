//! The demo of VMs: 400 functions, each in a VM of its own, answer ARP requests; one is changed, one killed.
//! `scripts/demo-vms.sh` builds it, runs it in a separate folder, and always cleans up.
#![allow(clippy::print_stdout)]
use ringway_ring_client::Ring;
use ringway_tests::arping::{Answer, ask};
use ringway_tests::fabric::program;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const VMS: u16 = 400;
/// Time within which everything must have happened.
const LIMIT: Duration = Duration::from_secs(60);
/// The VM that gets another configuration, and the one that is killed.
const CHANGED: u16 = 7;
const KILLED: u16 = 300;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = &words[..] else {
        eprintln!("usage: demo_vms RUN-FOLDER; scripts/demo-vms.sh runs it");
        return ExitCode::from(2);
    };
    match demo(Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("demo: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

/// A configuration that answers requests for its own address with an Ethernet address of this kind.
fn configuration(number: u16, kind: u8) -> String {
    let [high, low] = number.to_be_bytes();
    format!(
        "FromPort(f{number}) -> ARPResponder({} 02:00:01:{kind:02x}:{high:02x}:{low:02x}) \
         -> ToPort(f{number});",
        address(number)
    )
}

fn fabric() -> String {
    let mut text = "[fabric]\nname = \"vms\"\n[switch.main]\n".to_string();
    let port =
        |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\nswitch = \"main\"\n");
    text.push_str(&port("probe"));
    for number in 1..=VMS {
        let _ = write!(
            text,
            "{}[function.f{number}]\nisolation = \"vm\"\nport = \"f{number}\"\nmemory = \"32MB\"\n\
             click = \"{}\"\n",
            port(&format!("f{number}")),
            configuration(number, 0)
        );
    }
    text
}

/// Runs the program on the fabric; its output.
fn ringway(words: &[&str]) -> Result<String, String> {
    let output = Command::new(program()).args(["--fabric", "vms", "--json"]).args(words).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ringway {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// Processes of all functions, by name.
fn processes() -> Result<Vec<(String, Pid)>, String> {
    let list: serde_json::Value =
        serde_json::from_str(&ringway(&["function", "list"])?).map_err(|error| error.to_string())?;
    let list = list.as_array().ok_or("no list of functions")?;
    let process = |function: &serde_json::Value| {
        let pid = i32::try_from(function["pid"].as_u64()?).ok().and_then(Pid::from_raw)?;
        Some((function["name"].as_str()?.to_string(), pid))
    };
    Ok(list.iter().filter_map(process).collect())
}

/// The answer of one VM that `accept`s.
fn one(
    ring: &mut Ring,
    number: u16,
    begin: Instant,
    accept: impl Fn(&[u8; 6]) -> bool,
) -> Result<Answer, String> {
    let answers = ask(ring, &[address(number)], begin, LIMIT, accept).map_err(|error| error.to_string())?;
    answers.into_iter().flatten().next().ok_or_else(|| format!("VM f{number} does not answer"))
}

fn demo(folder: &Path) -> Result<(), String> {
    let file = folder.join("vms.toml");
    std::fs::write(&file, fabric()).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let up = Command::new(program()).arg("up").arg(&file).arg("--detach").status();
    if !up.map_err(|error| error.to_string())?.success() {
        return Err("the fabric does not come up".into());
    }
    println!("the fabric is up after {:.2?}", start.elapsed());
    let mut ring = Ring::connect(&folder.join("vms/probe.sock")).map_err(|error| error.to_string())?;
    let addresses: Vec<Ipv4Addr> = (1..=VMS).map(address).collect();
    let answers = ask(&mut ring, &addresses, start, LIMIT, |_| true).map_err(|error| error.to_string())?;
    let mut times: Vec<Duration> = answers.iter().flatten().map(|answer| answer.after).collect();
    times.sort();
    if times.len() < addresses.len() {
        let silent = addresses.iter().zip(&answers).find(|(_, answer)| answer.is_none());
        let which = silent.map(|(address, _)| format!("; {address} does not")).unwrap_or_default();
        return Err(format!("{} of {VMS} VMs answered within {LIMIT:?}{which}", times.len()));
    }
    let [first, middle, last] = [0, times.len() / 2, times.len() - 1].map(|at| times[at]);
    println!(
        "{VMS} VMs answer ARP requests: the first after {first:.2?}, half after {middle:.2?}, the last after \
         {last:.2?}"
    );

    let text = folder.join("changed.click");
    std::fs::write(&text, configuration(CHANGED, 1)).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    ringway(&["function", "update", &format!("f{CHANGED}"), &text.display().to_string()])?;
    let answer = one(&mut ring, CHANGED, begin, |mac| mac[3] == 1)?;
    println!(
        "f{CHANGED} is changed while it runs, and answers as its new configuration says after {:.2?}",
        answer.after
    );

    let before = processes()?;
    let name = format!("f{KILLED}");
    let (_, victim) = before.iter().find(|(own, _)| *own == name).ok_or("the VM to kill does not run")?;
    kill_process(*victim, Signal::KILL).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    while test_kill_process(*victim).is_ok() && begin.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    let answer = one(&mut ring, KILLED, begin, |_| true)?;
    println!("{name} is killed, started again, and answers after {:.2?}", answer.after);
    drop(ring);

    let all = processes()?;
    let others = all.iter().filter(|now| before.contains(now)).count();
    println!("the other {others} VMs ran on");
    let begin = Instant::now();
    ringway(&["down"])?;
    let alive = || all.iter().filter(|(_, pid)| test_kill_process(*pid).is_ok()).count();
    while alive() > 0 && begin.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    if alive() > 0 {
        return Err(format!("{} VMs are left", alive()));
    }
    println!("all are gone after {:.2?}; {:.2?} in all", begin.elapsed(), start.elapsed());
    match start.elapsed() < LIMIT && others == usize::from(VMS) - 1 {
        true => Ok(()),
        false => Err(format!("it took longer than {LIMIT:?}, or another VM was restarted")),
    }
}
