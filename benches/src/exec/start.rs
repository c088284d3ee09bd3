//! How long a program takes to start, and BBR on a busy machine.

use super::lab::{Joined, LINUX, Places, Ports, Running, Spaces, program};
use super::rates::received;
use crate::Failure;
use crate::entry::{Better, Entry, median};
use crate::peer::net::Space;
use crate::peer::{finish, program as installed};
use crate::plan::Plan;
use std::ffi::OsStr;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
/// What a start may add, in ms.
const MOST: f64 = 20.0;
/// Starts are this long apart, so that one does not wait for what the kernel still does for the end of another.
const APART: Duration = Duration::from_millis(100);

/// Milliseconds from the start of a command to the first byte from its program.
fn first_byte(listener: &TcpListener, mut command: Command) -> Result<f64, Failure> {
    std::thread::sleep(APART);
    let begin = Instant::now();
    let child = command.stdin(Stdio::null()).spawn()?;
    let (mut stream, _) = listener.accept()?;
    stream.read_exact(&mut [0])?;
    let time = 1e3 * begin.elapsed().as_secs_f64();
    finish(child, LIMIT)?;
    Ok(time)
}

/// `start`.
pub fn start(plan: &Plan) -> Result<Entry, Failure> {
    let ports = Ports::new(Joined::Switch, "native", Some("tapx"))?;
    let space = Space::new()?;
    space.take("tapx", [10, 95, 0, 9])?;
    let ours = space.within(|| Ok(TcpListener::bind(SocketAddr::from(([10, 95, 0, 9], 9)))?))?;
    let bare = Spaces::new(Joined::Switch)?;
    let [server, client] = &bare.0;
    let theirs = server.within(|| Ok(TcpListener::bind(SocketAddr::from(([10, 97, 0, 1], 9)))?))?;
    let script = |address: &str| format!("echo >/dev/tcp/{address}/9");
    let own = script("10.95.0.9");
    let words = ["bash", "-c", &own].map(OsStr::new);
    let slices = plan.pairs(
        Duration::from_millis(150),
        |_| first_byte(&ours, ports.command(1, &words)?),
        |_| {
            // The thread's children are in the namespace too.
            client.within(|| {
                let mut command = Command::new("bash");
                command.arg("-c").arg(script("10.97.0.1"));
                first_byte(&theirs, command)
            })
        },
    )?;
    let over: Vec<f64> = slices.ours.iter().zip(&slices.peer).map(|(ours, bare)| ours - bare).collect();
    let over = median(&over).unwrap_or(f64::NAN);
    let entry = slices.entry("ms", Better::Less).with("more than the program alone, ms", over);
    Ok(entry
        .mark(format!("at most {MOST} ms more"), over <= MOST)
        .note("bash sends a byte to a peer behind a TAP"))
}

/// Mb/s of a stack's BBR on a bad line to the host.
fn on_bad_line(load: bool, stack: &str) -> Result<f64, Failure> {
    let cores = if load { ringway_host::allowed_cores()?.len() } else { 0 };
    let busy = || Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let _busy = (0..cores).map(|_| busy()).collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(program()?);
    command.args(["exec", "--stack", stack, "--cc", "bbr", "--link", "loss=1%,delay=100ms"]);
    command.args(["--address", "10.98.0.2/30", "--gateway", "10.98.0.1", "--"]);
    command.args(["iperf3", "-J", "-c", "10.98.0.1", "-t", "5", "-O", "3"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = finish(child, Duration::from_secs(30))?;
    Ok(received(&String::from_utf8_lossy(&output.stdout))? / 1e6)
}

/// `loaded`.
pub fn loaded(plan: &Plan) -> Result<Entry, Failure> {
    installed("iperf3")?;
    let _server = Running::start(Command::new("iperf3").arg("-s"))?;
    let with = |load| move |_| on_bad_line(load, "native");
    let slices = plan.pairs(Duration::from_secs(8), with(true), with(false))?;
    let note = "peer: the same without load; a busy loop on each core; after 3 s";
    Ok(slices.entry("Mb/s", Better::More).ratio_at_least(0.7).note(note))
}

/// `linux.bbr.loss1`.
pub fn linux_on_bad_line(plan: &Plan) -> Result<Entry, Failure> {
    installed("iperf3")?;
    installed("linux.uml")?;
    let _server = Running::start(Command::new("iperf3").arg("-s"))?;
    let mut kernel = Vec::new();
    let native = |_| {
        kernel.push(on_bad_line(false, "kernel")?);
        on_bad_line(false, "native")
    };
    let slices = plan.pairs(Duration::from_secs(8), |_| on_bad_line(false, LINUX), native)?;
    let kernel = median(&kernel).unwrap_or(f64::NAN);
    let entry = slices.entry("Mb/s", Better::More).with("the host's kernel, Mb/s", kernel);
    Ok(entry.note("peer: `--stack native`; a guest's clock has 100 Hz; after 3 s"))
}
