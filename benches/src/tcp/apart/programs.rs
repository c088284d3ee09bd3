//! The client and the server, which are the same on each transport.

use super::transport::Transport;
use super::{BULK, CONNECTIONS};
use crate::Failure;
use hdrhistogram::Histogram;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// As redis-benchmark asks, and redis answers.
const REQUEST: &[u8] = b"*2\r\n$3\r\nGET\r\n$16\r\nkey:__rand_int__\r\n";
const REPLY: &[u8] = b"$3\r\nVXK\r\n";
/// The server answers so many bytes of the stream by one.
const PIECE: u64 = 1 << 20;
/// Bytes of a call that reads or writes.
const CALL: usize = 128 << 10;

/// Answers requests, and pieces of the stream.
pub fn serve(mut transport: Box<dyn Transport>) -> Result<(), Failure> {
    let (mut ready, mut counts, mut bytes) = (Vec::new(), [0; CONNECTIONS], vec![0; CALL]);
    loop {
        transport.wait(&mut ready)?;
        for at in ready.drain(..) {
            let (unit, answer) = if at == BULK { (PIECE, &b"."[..]) } else { (REQUEST.len() as u64, REPLY) };
            loop {
                let count = transport.read(at, &mut bytes)?;
                let before = counts[at] / unit;
                counts[at] += count as u64;
                for _ in before..counts[at] / unit {
                    if transport.write(at, answer)? != answer.len() {
                        return Err("no room for an answer".into());
                    }
                }
                if count < bytes.len() {
                    break;
                }
            }
        }
    }
}

/// Measures as standard input says: `requests CONNECTIONS MS` or `stream MS`; prints the count, the time in
/// nanoseconds, p50 and p99.
pub fn ask(mut transport: Box<dyn Transport>) -> Result<(), Failure> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let figures = match numbers[..] {
            [active, ms] => requests(&mut *transport, active as usize, Duration::from_millis(ms))?,
            [ms] => stream(&mut *transport, Duration::from_millis(ms))?,
            _ => return Err("no measurement".into()),
        };
        println!("{} {} {} {}", figures[0], figures[1], figures[2], figures[3]);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Each active connection has a request in flight.
fn requests(transport: &mut dyn Transport, active: usize, time: Duration) -> Result<[u64; 4], Failure> {
    let mut times = Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
    let begin = Instant::now();
    let mut sent = [begin; CONNECTIONS];
    let (mut received, mut bytes, mut ready) = ([0; CONNECTIONS], [0; 4096], Vec::new());
    for (at, sent) in sent.iter_mut().enumerate().take(active) {
        *sent = Instant::now();
        transport.write(at, REQUEST)?;
    }
    let mut left = active;
    while left > 0 {
        transport.wait(&mut ready)?;
        for at in ready.drain(..).filter(|at| *at < active) {
            received[at] += transport.read(at, &mut bytes)?;
            if received[at] < REPLY.len() {
                continue;
            }
            received[at] = 0;
            let now = Instant::now();
            times.saturating_record((now - sent[at]).as_nanos() as u64);
            if now - begin >= time {
                left -= 1;
                continue;
            }
            sent[at] = now;
            transport.write(at, REQUEST)?;
        }
    }
    let elapsed = begin.elapsed().as_nanos() as u64;
    Ok([times.len(), elapsed, times.value_at_quantile(0.5), times.value_at_quantile(0.99)])
}

/// One connection sends whole pieces, and waits for their answers.
fn stream(transport: &mut dyn Transport, time: Duration) -> Result<[u64; 4], Failure> {
    let (bytes, mut answers, mut ready) = (vec![7; CALL], [0; 4096], Vec::new());
    let (begin, mut sent, mut answered) = (Instant::now(), 0, 0);
    loop {
        while begin.elapsed() < time || sent % PIECE != 0 {
            let most = (PIECE - sent % PIECE).min(CALL as u64) as usize;
            let count = transport.write(BULK, &bytes[..most])?;
            sent += count as u64;
            if count < most {
                break;
            }
        }
        answered += transport.read(BULK, &mut answers)? as u64;
        if begin.elapsed() >= time && sent == answered * PIECE {
            return Ok([sent, begin.elapsed().as_nanos() as u64, 0, 0]);
        }
        transport.wait(&mut ready)?;
        ready.clear();
    }
}
