//! Sends, receives, pings or answers over a ring: `pkt-gen tx /run/ringway/ports/a --to 02:00:00:00:00:02`.

use clap::{Args, Parser, Subcommand};
use ringway_ring_client::{Ring, RingError, RingOptions, Wait};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// EtherType for local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const BURST: usize = 64;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Bytes per frame, without FCS.
    #[arg(long, global = true, default_value_t = 64, value_parser = clap::value_parser!(u16).range(14..))]
    size: u16,
    /// Destination address.
    #[arg(long, global = true, default_value = "ff:ff:ff:ff:ff:ff", value_parser = address)]
    to: [u8; 6],
    /// Source address; 02:00:00:00:00:02 for `pong`, 02:00:00:00:00:01 otherwise.
    #[arg(long, global = true, value_parser = address)]
    from: Option<[u8; 6]>,
    /// Frames to send, receive or answer; 0: unlimited.
    #[arg(long, global = true, default_value_t = 0)]
    count: u64,
    /// Slots of each ring; 0: the port's own choice.
    #[arg(long, global = true, default_value_t = 0)]
    slots: u32,
    /// Microseconds of polling before sleeping.
    #[arg(long, global = true, default_value_t = 0)]
    spin: u64,
}

#[derive(Clone, Subcommand)]
enum What {
    /// Sends as fast as it can.
    Tx(At),
    /// Receives and counts.
    Rx(At),
    /// Sends one frame, waits for its return, sends the next.
    Ping(At),
    /// Sends every frame back.
    Pong(At),
}

#[derive(Clone, Args)]
struct At {
    /// The port's or the pipe's socket.
    path: PathBuf,
}

impl What {
    fn path(&self) -> &Path {
        let (What::Tx(At { path })
        | What::Rx(At { path })
        | What::Ping(At { path })
        | What::Pong(At { path })) = self;
        path
    }
}

fn address(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    bytes.try_into().map_err(|_| "an address has six bytes".into())
}

/// Frames so far, printed once a second.
struct Meter {
    frames: u64,
    bytes: u64,
    since: Instant,
    shown: (u64, u64),
}

impl Meter {
    fn new() -> Meter {
        Meter { frames: 0, bytes: 0, since: Instant::now(), shown: (0, 0) }
    }

    fn add(&mut self, frames: u64, bytes: u64) {
        self.frames += frames;
        self.bytes += bytes;
        let time = self.since.elapsed();
        if time >= Duration::from_secs(1) {
            let rate = |now: u64, then: u64| (now - then) as f64 / time.as_secs_f64();
            let (frames, bytes) = (rate(self.frames, self.shown.0), rate(self.bytes, self.shown.1));
            println!("{:9.3} Mpps  {:9.3} Gb/s", frames / 1e6, bytes * 8.0 / 1e9);
            (self.since, self.shown) = (Instant::now(), (self.frames, self.bytes));
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pkt-gen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), RingError> {
    let options = RingOptions { slots: [arguments.slots; 2], ..RingOptions::default() };
    let mut ring = Ring::connect_with(arguments.what.path(), options, None)?;
    ring.set_spin(Duration::from_micros(arguments.spin));
    let mut frame = vec![0; usize::from(arguments.size)];
    frame[..6].copy_from_slice(&arguments.to);
    let own = [2, 0, 0, 0, 0, if let What::Pong(_) = arguments.what { 2 } else { 1 }];
    let own = arguments.from.unwrap_or(own);
    frame[6..12].copy_from_slice(&own);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    let most = if arguments.count == 0 { u64::MAX } else { arguments.count };
    match arguments.what {
        What::Tx(_) => tx(&mut ring, &frame, most),
        What::Rx(_) => rx(&mut ring, most),
        What::Ping(_) => ping(&mut ring, &frame, most),
        What::Pong(_) => pong(&mut ring, own, most),
    }
}

fn tx(ring: &mut Ring, frame: &[u8], most: u64) -> Result<(), RingError> {
    let mut meter = Meter::new();
    while meter.frames < most {
        let burst = (most - meter.frames).min(BURST as u64) as usize;
        let sent = ring.tx.send(&[frame; BURST][..burst])? as u64;
        if sent == 0 {
            ring.wait(Wait::TX, None)?;
        }
        meter.add(sent, sent * frame.len() as u64);
    }
    Ok(())
}

fn rx(ring: &mut Ring, most: u64) -> Result<(), RingError> {
    let (mut meter, mut frame) = (Meter::new(), vec![0; 65_557]);
    while meter.frames < most {
        let (mut frames, mut bytes) = (0, 0);
        while frames < BURST as u64
            && let Some(received) = ring.rx.pop(&mut frame)?
        {
            (frames, bytes) = (frames + 1, bytes + received.whole as u64);
        }
        if frames == 0 {
            ring.wait(Wait::RX, None)?;
        }
        ring.rx.sync()?;
        meter.add(frames, bytes);
    }
    Ok(())
}

fn ping(ring: &mut Ring, frame: &[u8], most: u64) -> Result<(), RingError> {
    let mut back = vec![0; 65_557];
    let mut times = Vec::new();
    let mut sent = 0;
    while sent < most {
        let before = Instant::now();
        ring.tx.send(&[frame])?;
        sent += 1;
        if ring.wait(Wait::RX, Some(Duration::from_secs(1)))? && ring.rx.pop(&mut back)?.is_some() {
            times.push(before.elapsed().as_secs_f64() * 1e6);
        } else {
            println!("no answer within a second");
        }
        if times.len() == 10_000 || sent == most && !times.is_empty() {
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            println!("us: min {:.2}  p50 {:.2}  p99 {:.2}", at(0.0), at(0.5), at(0.99));
            times.clear();
        }
    }
    Ok(())
}

fn pong(ring: &mut Ring, own: [u8; 6], most: u64) -> Result<(), RingError> {
    let (mut meter, mut frame) = (Meter::new(), vec![0; 65_557]);
    while meter.frames < most {
        ring.wait(Wait::RX, None)?;
        while let Some(received) = ring.rx.pop(&mut frame)? {
            if received.len < 14 {
                continue;
            }
            frame.copy_within(6..12, 0);
            frame[6..12].copy_from_slice(&own);
            while !ring.tx.push(&frame[..received.len])? {
                ring.wait(Wait::TX, None)?;
            }
            meter.add(1, received.len as u64);
        }
    }
    Ok(())
}
