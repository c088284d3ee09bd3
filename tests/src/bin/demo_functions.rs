//! The demo of functions: 100 functions start at once, and each answers an ARP request.
//! `scripts/demo-functions.sh` builds it, runs it in a separate folder, and always cleans up.
#![allow(clippy::print_stdout)]
use ringway_client::{Ring, RingError, Wait};
use ringway_tests::fabric::program;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const FUNCTIONS: u8 = 100;
/// Time within which all functions must answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval at which functions that have not answered are asked again.
const AGAIN: Duration = Duration::from_millis(100);
const PROBE: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

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

/// A request for the address of a function.
fn request(number: u8) -> Vec<u8> {
    let head = [&[0xff; 6][..], &PROBE, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head[..], &PROBE, &[10, 0, 0, 254], &[0; 6], &[10, 0, 0, number]].concat()
}

/// The function that a frame is the answer of.
fn answered(frame: &[u8]) -> Option<u8> {
    let is_reply = frame.get(12..14)? == [8, 6] && frame.get(20..22)? == [0, 2];
    let address = frame.get(28..32)?;
    (is_reply && address[..3] == [10, 0, 0]).then_some(address[3])
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
    let mut times = ask(&probe, begin).map_err(|error| error.to_string())?;
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

/// Asks all functions until they have answered. Returns when each did, since `begin`.
fn ask(probe: &Path, begin: Instant) -> Result<Vec<Duration>, RingError> {
    let mut ring = Ring::connect(probe)?;
    let mut times = vec![None; usize::from(FUNCTIONS)];
    let mut frame = vec![0; 2048];
    while begin.elapsed() < LIMIT && times.contains(&None) {
        let silent = (1..=FUNCTIONS).zip(&times).filter(|(_, time)| time.is_none());
        for (number, _) in silent {
            // A full ring is asked again later.
            ring.tx.push(&request(number))?;
        }
        ring.sync()?;
        let next = Instant::now() + AGAIN;
        while Instant::now() < next && times.contains(&None) {
            ring.wait(Wait::RX, Some(next.saturating_duration_since(Instant::now())))?;
            while let Some(received) = ring.rx.pop(&mut frame)? {
                let number = answered(&frame[..received.len.min(frame.len())]);
                let time = number.and_then(|number| times.get_mut(usize::from(number).checked_sub(1)?));
                if let Some(time) = time {
                    time.get_or_insert(begin.elapsed());
                }
            }
            ring.rx.sync()?;
        }
    }
    Ok(times.into_iter().flatten().collect())
}
