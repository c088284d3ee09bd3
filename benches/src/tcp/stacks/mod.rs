//! TCP/IP stacks of user space beside ours: both ends in one thread, frames of at most 1514 bytes through memory, with
//! checksums, in virtual time; gVisor's, which has goroutines, on one processor.

mod gvisor;
mod ours;
mod smoltcp;

use crate::Failure;
use crate::entry::{Better, Entry};
use crate::keys::Rows;
use crate::plan::Plan;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(300);
/// The server's port.
const PORT: u16 = 80;
/// Bytes of a call of `bulk`.
const BLOCK: usize = 1 << 16;
/// Bytes that a stream may have under way, of stacks that are given their buffers.
const WINDOW: usize = 1 << 18;
/// Time between connections in ns: a closed one is in TIME-WAIT for 10 s in smoltcp, and for 60 s in ours.
const PAUSE: u64 = 1_000_000_000;
/// Connections of `memory`, of stacks that look at each socket for each frame.
const IDLE: usize = 2000;

/// Two hosts with a connection between them. A host is 0, the client, or 1, the server.
trait Pair {
    /// Makes a connection, which is the one that the other calls use.
    fn connect(&mut self) -> Result<(), Failure>;
    /// Ends it from both sides.
    fn close(&mut self) -> Result<(), Failure>;
    /// Sends as many of these bytes as there is room for; returns how many.
    fn send(&mut self, host: usize, bytes: &[u8]) -> Result<usize, Failure>;
    /// Receives what is there; returns how many bytes.
    fn receive(&mut self, host: usize, out: &mut [u8]) -> Result<usize, Failure>;
    /// Passes frames one way and the other, or lets time pass if there are none.
    fn pass(&mut self);
}

/// Gb/s of a stream, whose bytes are compared.
fn bulk(pair: &mut dyn Pair, time: Duration) -> Result<f64, Failure> {
    pair.connect()?;
    // A period that is prime, so that no segment begins at the same byte as the one before.
    let payload: Vec<u8> = (0..251 + BLOCK).map(|at| (at % 251) as u8).collect();
    let (mut sent, mut received, mut out) = (0, 0, vec![0; BLOCK]);
    let begin = Instant::now();
    while begin.elapsed() < time {
        sent += pair.send(0, &payload[sent % 251..][..BLOCK])?;
        pair.pass();
        loop {
            let count = pair.receive(1, &mut out)?;
            if count == 0 {
                break;
            }
            if out[..count] != payload[received % 251..][..count] {
                return Err("the stream's bytes differ".into());
            }
            received += count;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    pair.close()?;
    Ok(received as f64 * 8e-9 / seconds)
}

/// A byte from one host to the other.
fn byte(pair: &mut dyn Pair, from: usize) -> Result<(), Failure> {
    if pair.send(from, b"x")? != 1 {
        return Err("no room for a byte".into());
    }
    let mut out = [0];
    while pair.receive(1 - from, &mut out)? == 0 {
        pair.pass();
    }
    Ok(())
}

/// Thousands of requests and answers a second over one connection.
fn round_trips(pair: &mut dyn Pair, time: Duration) -> Result<f64, Failure> {
    pair.connect()?;
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        for _ in 0..100 {
            byte(pair, 0)?;
            byte(pair, 1)?;
        }
        count += 100;
    }
    let seconds = begin.elapsed().as_secs_f64();
    pair.close()?;
    Ok(f64::from(count) * 1e-3 / seconds)
}

/// Thousands of connections a second, each with a request and an answer.
fn connections(pair: &mut dyn Pair, time: Duration) -> Result<f64, Failure> {
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        pair.connect()?;
        byte(pair, 0)?;
        byte(pair, 1)?;
        pair.close()?;
        count += 1;
    }
    Ok(f64::from(count) * 1e-3 / begin.elapsed().as_secs_f64())
}

type Case = fn(&mut dyn Pair, Duration) -> Result<f64, Failure>;

const CASES: [(&str, Case, &str); 3] =
    [("bulk", bulk, "Gb/s"), ("rr", round_trips, "k/s"), ("crr", connections, "k/s")];

/// `smoltcp`, `smoltcp.rr`, `smoltcp.crr`, `smoltcp.memory`.
pub fn smoltcp(plan: &Plan) -> Rows {
    let peer = |case: Case, time| case(&mut smoltcp::Pair::new(WINDOW)?, time);
    let mut rows = beside(plan, |(_, case, _), time| peer(*case, time))?;
    rows.push(memory(plan, || smoltcp::idle(IDLE))?);
    Ok(rows)
}

/// `gvisor`, `gvisor.rr`, `gvisor.crr`, `gvisor.memory`.
pub fn gvisor(plan: &Plan) -> Rows {
    let program = gvisor::build()?;
    let mut rows = beside(plan, |(name, ..), time| gvisor::run(&program, name, time.as_secs_f64()))?;
    rows.push(memory(plan, || gvisor::run(&program, "memory", IDLE as f64))?);
    Ok(rows)
}

/// Ours and a peer's figures of each case, in turns.
fn beside(
    plan: &Plan,
    peer: impl Fn(&(&'static str, Case, &'static str), Duration) -> Result<f64, Failure>,
) -> Rows {
    let rows = CASES.iter().map(|row| {
        let (_, case, unit) = row;
        let ours = |time| case(&mut ours::Pair::new()?, time);
        let slices = plan.pairs(SLICE, ours, |time| peer(row, time))?;
        Ok(slices.entry(unit, Better::More).ratio_at_least(2.0))
    });
    rows.collect()
}

/// Memory of an idle connection's end, of processes of their own.
fn memory(plan: &Plan, peer: impl Fn() -> Result<f64, Failure>) -> Result<Entry, Failure> {
    let slices = plan.pairs(SLICE, |_| super::memory::ours(super::memory::OURS), |_| peer())?;
    let note = format!("ours of {} connections, the peer's of {IDLE}", super::memory::OURS);
    Ok(slices.entry("B", Better::Less).ratio_at_most(0.5).note(note))
}

/// The process of `smoltcp.memory`: prints the bytes.
pub fn print(connections: usize) -> Result<(), Failure> {
    smoltcp::print(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_case(pair: &mut dyn Pair) {
        for (name, case, _) in CASES {
            assert!(case(pair, Duration::from_millis(20)).unwrap() > 0.0, "{name}");
        }
    }

    #[test]
    fn ours_and_smoltcp_s_pass_the_same_bytes() {
        every_case(&mut ours::Pair::new().unwrap());
        every_case(&mut smoltcp::Pair::new(WINDOW).unwrap());
    }
}
