//! Memory of idle connections.

use super::ends::{VETH, Veth};
use crate::Failure;
use crate::entry::{Better, Entry};
use crate::plan::Plan;
use ringway_frame::Needs;
use ringway_netstack::{Cidr, Frames, InterfaceConfig, SECOND, Settings, SocketId, Stack};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Connections of ours, in each slice and once; both ends' stacks have so many of them.
pub const OURS: usize = 100_000;
const MANY: usize = 1_000_000;
/// Connections of the kernel: two descriptors each.
const PEERS: usize = 8000;
/// Connections that are set up together.
const TOGETHER: usize = 500;
/// Ports of the server: a client has 28,232 for each.
const PORTS: u16 = 40;

/// `idle.memory`.
pub fn idle(plan: &Plan) -> Result<Entry, Failure> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })?;
    let slices = plan.pairs(Duration::from_secs(1), |_| ours(OURS), |_| peer())?;
    let entry = slices.entry("B", Better::Less).at_most(2000.0);
    let many = ours(MANY)?;
    let step = [("B", many), ("GB of an end", many * MANY as f64 / 1e9)];
    Ok(entry
        .with("connections", OURS as f64)
        .step(format!("{MANY} connections"), &step)
        .note("a socket of either end; the kernel's slabs, file included"))
}

fn host(last: u8) -> Result<Stack, Failure> {
    let mut stack = Stack::new(Settings::default(), [ringway_host::random()?, 1]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: 1500,
        addresses: vec![Cidr::new([10, 96, 0, last], 24)],
        offloads: Needs::ALL,
    });
    Ok(stack)
}

/// Carries frames until there are none.
fn settle(now: u64, hosts: &mut [Stack; 2], frames: &mut Frames) {
    let mut quiet = 0;
    for turn in 0.. {
        let (from, to) = (turn % 2, 1 - turn % 2);
        hosts[from].transmit(now, 0, frames);
        quiet = if frames.is_empty() { quiet + 1 } else { 0 };
        frames.iter().for_each(|(frame, offload)| hosts[to].receive(now, 0, frame, offload));
        frames.clear();
        if quiet == 2 {
            return;
        }
    }
}

/// Sends a byte from each socket of the first host, and reads one from each of the second.
fn pass(
    now: u64,
    hosts: &mut [Stack; 2],
    frames: &mut Frames,
    sockets: [&[SocketId]; 2],
) -> Result<(), Failure> {
    for &socket in sockets[0] {
        hosts[0].send(now, socket, &[1])?;
    }
    settle(now, hosts, frames);
    for &socket in sockets[1] {
        hosts[1].recv(now, socket, &mut [0])?;
    }
    Ok(())
}

/// Resident bytes for each socket of ours.
pub fn ours(connections: usize) -> Result<f64, Failure> {
    of_process("--idle-connections", connections)
}

/// The figure of a process of its own: memory that an earlier key or slice has freed may stay resident, and would be
/// used again without being counted.
pub fn of_process(option: &str, connections: usize) -> Result<f64, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args([option, &connections.to_string()]).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.trim().parse().map_err(|_| format!("no memory for {connections} connections"))?)
}

/// That process: prints the bytes of an end of connections that `make` makes.
pub fn print_of<T>(
    connections: usize,
    make: impl FnOnce(usize) -> Result<T, Failure>,
) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let before = resident()?;
    let made = make(connections)?;
    println!("{}", (resident()? - before) / (2 * connections) as f64);
    drop(made);
    Ok(())
}

/// The process of ours.
pub fn print(connections: usize) -> Result<(), Failure> {
    print_of(connections, connected)
}

/// Two stacks with so many idle connections.
fn connected(connections: usize) -> Result<[Stack; 2], Failure> {
    let mut hosts = [host(1)?, host(2)?];
    let listeners: Vec<_> = (0..PORTS)
        .map(|port| hosts[1].listen(SocketAddr::from(([10, 96, 0, 2], port + 1)), 2 * TOGETHER))
        .collect::<Result<_, _>>()?;
    let mut frames = Frames::new(2 * TOGETHER);
    for number in 0..connections / TOGETHER {
        // What was set up two seconds ago is idle.
        let now = number as u64 * SECOND;
        let mut clients = Vec::with_capacity(TOGETHER);
        for number in 0..TOGETHER as u16 {
            clients.push(hosts[0].connect(now, SocketAddr::from(([10, 96, 0, 2], number % PORTS + 1)))?);
        }
        settle(now, &mut hosts, &mut frames);
        let mut servers = Vec::with_capacity(TOGETHER);
        for &listener in &listeners {
            while let Ok(accepted) = hosts[1].accept(listener) {
                servers.push(accepted.socket);
            }
        }
        // A request and its answer, so that all buffers were used.
        pass(now, &mut hosts, &mut frames, [&clients, &servers])?;
        hosts.reverse();
        pass(now, &mut hosts, &mut frames, [&servers, &clients])?;
        hosts.reverse();
        for host in &mut hosts {
            while host.next_event().is_some() {}
            host.expire(now);
        }
    }
    for second in 0..3 {
        let now = ((connections / TOGETHER) as u64 + second) * SECOND;
        hosts.iter_mut().for_each(|host| host.expire(now));
        settle(now, &mut hosts, &mut frames);
    }
    Ok(hosts)
}

fn resident() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).ok_or("statm is empty")?;
    Ok(pages.parse::<f64>()? * 4096.0)
}

/// Bytes of the kernel's slabs for each socket.
fn peer() -> Result<f64, Failure> {
    let veth = Veth::new(true)?;
    let listener = veth.listen()?;
    let mut streams = Vec::with_capacity(2 * PEERS);
    let before = slabs()?;
    veth.spaces[0].within(|| {
        for _ in 0..PEERS {
            streams.push(TcpStream::connect(SocketAddr::from(VETH))?);
            streams.push(listener.accept()?.0);
        }
        Ok(())
    })?;
    Ok((slabs()? - before) / (2 * PEERS) as f64)
}

fn slabs() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("Slab:")).ok_or("no Slab in meminfo")?;
    let kilobytes = line.split_whitespace().nth(1).ok_or("no number")?;
    Ok(kilobytes.parse::<f64>()? * 1024.0)
}
