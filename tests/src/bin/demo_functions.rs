//! The demo of functions: 100 functions start at once, and each answers an ARP request.
//! `scripts/demo-functions.sh` builds it, runs it in a separate folder, and always cleans up.
#![allow(clippy::print_stdout)]
use ringway_ring_client::Ring;
use ringway_tests::arping::ask;
use ringway_tests::fabric::program;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const FUNCTIONS: u8 = 100;
/// Time within which all functions must answer.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = &words[..] else {
        eprintln!("usage: demo_functions RUN-FOLDER; scripts/demo-functions.sh runs it");
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

/// A fabric whose functions answer ARP requests, each for its own address.
fn fabric() -> String {
    let mut text = "[fabric]\nname = \"functions\"\n[switch.main]\n".to_string();
    let port =
        |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\nswitch = \"main\"\n");
    text.push_str(&port("probe"));
    for number in 1..=FUNCTIONS {
        let _ = write!(
            text,
            "{}[function.f{number}]\nport = \"f{number}\"\nmemory = \"64MB\"\nclick = \"FromPort(f{number}) \
             -> ARPResponder(10.0.0.{number} 02:00:00:00:01:{number:02x}) -> ToPort(f{number});\"\n",
            port(&format!("f{number}"))
        );
    }
    text
}

fn demo(folder: &Path) -> Result<(), String> {
    let file = folder.join("functions.toml");
    std::fs::write(&file, fabric()).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let up = Command::new(program()).arg("up").arg(&file).arg("--detach").status();
    if !up.map_err(|error| error.to_string())?.success() {
        return Err("the fabric does not come up".into());
    }
    println!("the fabric is up after {:.2} s", begin.elapsed().as_secs_f64());
    let probe = folder.join("functions/probe.sock");
    let addresses: Vec<Ipv4Addr> = (1..=FUNCTIONS).map(|number| Ipv4Addr::new(10, 0, 0, number)).collect();
    let answers =
        Ring::connect(&probe).and_then(|mut ring| ask(&mut ring, &addresses, begin, LIMIT, |_| true));
    let answers = answers.map_err(|error| error.to_string())?;
    let mut times: Vec<Duration> = answers.into_iter().flatten().map(|answer| answer.after).collect();
    times.sort();
    let total = usize::from(FUNCTIONS);
    let (Some(first), Some(middle), Some(last)) = (times.first(), times.get(times.len() / 2), times.last())
    else {
        return Err("no function answers".into());
    };
    println!("{} of {total} functions answered ARP requests", times.len());
    println!(
        "since the start: the first after {first:.2?}, half after {middle:.2?}, the last after {last:.2?}"
    );
    if times.len() == total { Ok(()) } else { Err(format!("not all answered within {LIMIT:?}")) }
}
