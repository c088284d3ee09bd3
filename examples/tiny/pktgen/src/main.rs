//! Sends, receives or returns frames, as fast as the port.
//!
//! | argument | meaning |
//! |---|---|
//! | `send`, `receive` or `echo` | what it does, the first argument |
//! | `to=ADDRESS`, `from=ADDRESS` | Ethernet addresses; everyone, and `02:00:00:00:00:01` |
//! | `size=BYTES` | of a frame without its CRC, 60 by default |
//! | `count=FRAMES` | after which a sender ends; none by default |
//! | `rate=FRAMES` | a second; as many as there is room for by default |
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use ringway_tiny_program::{Error, Port, Program, log};

/// A type for local experiments (IEEE 802, 9.2.4).
const TYPE: [u8; 2] = [0x88, 0xb5];
const SIZES: core::ops::RangeInclusive<usize> = 60..=2048;
/// How often it reports.
const REPORT: Duration = Duration::from_secs(1);
/// Frames that are handled before others have a turn.
const BURST: u64 = 256;

ringway_tiny_program::main!(main);

#[derive(Clone, Debug)]
struct Settings {
    role: String,
    to: [u8; 6],
    from: [u8; 6],
    size: usize,
    count: u64,
    rate: u64,
}

fn address(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

impl Settings {
    fn read(program: &Program) -> Result<Settings, Error> {
        let mut words = program.arguments();
        let role = words.next().filter(|role| ["send", "receive", "echo"].contains(role));
        let role = role.ok_or_else(|| Error::setting("arguments", "begin with send, receive or echo"))?;
        let mut settings = Settings {
            role: role.into(),
            to: [0xff; 6],
            from: [2, 0, 0, 0, 0, 1],
            size: *SIZES.start(),
            count: u64::MAX,
            rate: 0,
        };
        for word in words {
            let set = word.split_once('=').and_then(|(name, value)| settings.set(name, value));
            set.ok_or_else(|| Error::setting("arguments", format_args!("\"{word}\" is none")))?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "to" => self.to = address(value)?,
            "from" => self.from = address(value)?,
            "size" => self.size = value.parse().ok().filter(|size| SIZES.contains(size))?,
            "count" => self.count = value.parse().ok()?,
            "rate" => self.rate = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// Frames since the last report.
struct Meter {
    since: Duration,
    frames: u64,
    bytes: u64,
}

impl Meter {
    fn new(program: &Program) -> Meter {
        Meter { since: program.now(), frames: 0, bytes: 0 }
    }

    /// Reports, if it is time.
    fn report(&mut self, program: &Program, what: &str) {
        let time = program.now() - self.since;
        if time < REPORT {
            return;
        }
        let second = |number: u64| u128::from(number) * 1_000_000_000 / time.as_nanos().max(1);
        log!(
            program,
            "{what} {} frames/s, {} Mbit/s",
            second(self.frames),
            second(self.bytes * 8) / 1_000_000
        );
        *self = Meter::new(program);
    }
}

async fn main(program: Program) -> Result<(), Error> {
    let settings = Settings::read(&program)?;
    let name: String = program.ports().next().unwrap_or_default().into();
    let port = program.port(&name)?;
    match settings.role.as_str() {
        "send" => send(&program, port, &settings).await,
        "receive" => receive(&program, port).await,
        _ => echo(port).await,
    }
}

async fn send(program: &Program, mut port: Port, settings: &Settings) -> Result<(), Error> {
    let mut frame = vec![0; settings.size];
    frame[..6].copy_from_slice(&settings.to);
    frame[6..12].copy_from_slice(&settings.from);
    frame[12..14].copy_from_slice(&TYPE);
    let (begun, mut sent, mut meter) = (program.now(), 0_u64, Meter::new(program));
    while sent < settings.count {
        let due = match settings.rate {
            0 => settings.count,
            rate => {
                let due = (program.now() - begun).as_nanos() * u128::from(rate) / 1_000_000_000;
                u64::try_from(due).unwrap_or(u64::MAX).min(settings.count)
            }
        };
        if due <= sent {
            program.sleep(Duration::from_micros(50)).await;
            meter.report(program, "sent");
            continue;
        }
        let burst = BURST.min(due - sent);
        for number in sent..sent + burst {
            frame[14..22].copy_from_slice(&number.to_be_bytes());
            port.send(&frame).await?;
        }
        sent += burst;
        meter.frames += burst;
        meter.bytes += burst * frame.len() as u64;
        meter.report(program, "sent");
        program.pause().await;
    }
    log!(program, "sent {sent} frames in {} us", (program.now() - begun).as_micros());
    // The end of a program is followed by its restart.
    core::future::pending().await
}

async fn receive(program: &Program, mut port: Port) -> Result<(), Error> {
    let (mut frame, mut meter) = (vec![0; *SIZES.end()], Meter::new(program));
    let (mut received, mut lost, mut next) = (0_u64, 0_u64, 0_u64);
    loop {
        let first = program.timeout(REPORT, port.receive(&mut frame)).await;
        let mut len = first;
        while let Some(bytes) = len {
            (meter.frames, meter.bytes) = (meter.frames + 1, meter.bytes + bytes as u64);
            if bytes >= 22 && frame[12..14] == TYPE {
                let number = frame[14..22].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                received += 1;
                lost += number.saturating_sub(next);
                next = number.wrapping_add(1);
            }
            len = if meter.frames.is_multiple_of(BURST) { None } else { port.try_receive(&mut frame) };
        }
        let had = meter.frames > 0;
        meter.report(program, "received");
        if had && meter.frames == 0 {
            log!(program, "{received} numbered frames in all, {lost} missing");
        }
        program.pause().await;
    }
}

async fn echo(mut port: Port) -> Result<(), Error> {
    let mut frame = vec![0; *SIZES.end()];
    loop {
        let len = port.receive(&mut frame).await;
        if let Some((to, from)) = frame[..len].split_first_chunk_mut::<6>()
            && let Some((from, _)) = from.split_first_chunk_mut::<6>()
        {
            core::mem::swap(to, from);
        }
        port.send(&frame[..len]).await?;
    }
}
