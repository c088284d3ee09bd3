//! `ringway pktgen`: frames that a receiver checks, and measurements by RFC 2544, on ring ports.
//!
//! `ringway-pktgen` sends, checks and searches; here are the ports, the end of a run and what is shown.

mod output;

use crate::arguments::{At, Ping, PktgenCommand, Pong, Rfc2544, Rx, Target, Tx, Until};
use crate::command_error::CommandError;
use crate::ring_wait;
use crate::target::ring_socket;
use crate::text;
use output::{Meter, ReturnedView, Rfc2544View};
use ringway_pktgen::rfc2544::{self, MeasureError, Options};
use ringway_pktgen::run::{Load, ping, pong, receive, transmit};
use ringway_pktgen::{Checker, Generator, Rate, RingLine, monotonic};
use ringway_ring_client::{PendingRing, Ring, RingOptions};
use ringway_spec::MacAddress;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Runs `ringway pktgen`.
pub fn pktgen(target: &Target, json: bool, command: PktgenCommand) -> Result<(), CommandError> {
    match command {
        PktgenCommand::Tx(arguments) => tx(target, json, &arguments),
        PktgenCommand::Rx(arguments) => rx(target, json, &arguments),
        PktgenCommand::Ping(arguments) => pings(target, json, &arguments),
        PktgenCommand::Pong(arguments) => pongs(target, json, &arguments),
        PktgenCommand::Rfc2544(arguments) => measure(target, json, &arguments),
    }
}

/// Where frames are sent to unless the command line says otherwise, and the address of `pong`.
const PONG_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

fn ring(target: &Target, port: &str, slots: u32, signals: &Signals) -> Result<Ring, CommandError> {
    let path = ring_socket(target, port, &["ring", "pipe"])?;
    // In a guest.
    if path.is_dir() {
        return Ring::open_device(&path).map_err(CommandError::because);
    }
    let options = RingOptions { slots: [slots; 2], ..RingOptions::default() };
    let asked = PendingRing::connect(&path, options).map_err(CommandError::because)?;
    if !ring_wait::comes(&path, asked.as_fd(), signals.came.as_fd())? {
        return Err(CommandError::Failed(ring_wait::ended(&path)));
    }
    asked.ring(None).map_err(CommandError::because)
}

fn line(target: &Target, at: &At, signals: &Signals) -> Result<RingLine, CommandError> {
    let mut ring = ring(target, &at.port, at.slots, signals)?;
    ring.set_spin(Duration::from_nanos(at.spin));
    Ok(RingLine::new(ring, None))
}

/// Whether a signal asked for the end.
struct Signals {
    flag: Arc<AtomicBool>,
    /// Readable once it did.
    came: UnixStream,
}

impl Signals {
    fn new() -> Result<Signals, CommandError> {
        let flag = Arc::new(AtomicBool::new(false));
        let (came, written) = UnixStream::pair().map_err(CommandError::because)?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, flag.clone()).map_err(CommandError::because)?;
            let written = written.try_clone().map_err(CommandError::because)?;
            signal_hook::low_level::pipe::register(signal, written).map_err(CommandError::because)?;
        }
        Ok(Signals { flag, came })
    }

    fn goes_on(&self) -> bool {
        !self.flag.load(Relaxed)
    }
}

fn load(rate: Option<Rate>, until: &Until) -> Load {
    Load { rate: rate.unwrap_or(Rate::Most), first: 0, frames: until.count, time: until.duration }
}

fn tx(target: &Target, json: bool, arguments: &Tx) -> Result<(), CommandError> {
    let flows = arguments.headers.flows(MacAddress::BROADCAST);
    let generator = Generator::new(&arguments.size, &flows).map_err(CommandError::because)?;
    let signals = Signals::new()?;
    let mut line = line(target, &arguments.at, &signals)?;
    let mut meter = Meter::new(json);
    let load = load(arguments.rate, &arguments.until);
    let sent = transmit(&mut line, &generator, load, |sent, now| {
        meter.show(now, [sent.frames, sent.bytes], String::new);
        signals.goes_on()
    });
    let sent = sent.map_err(CommandError::because)?;
    output::sent(&sent, json);
    // The port takes what is in the ring before the program leaves it.
    let (mut ring, _) = line.into_rings();
    output::settled(&mut ring);
    let offered = sent.frames + sent.skipped;
    if sent.skipped * 1000 > offered {
        let why = match sent.refused {
            0 => "this program was not in time: is its core busy?",
            _ => "the port had no room: it takes fewer frames",
        };
        let (skipped, share) = (sent.skipped, 100.0 * sent.skipped as f64 / offered as f64);
        return Err(CommandError::Failed(format!(
            "the rate was missed by {skipped} frames ({share:.1}%); {why}"
        )));
    }
    Ok(())
}

fn rx(target: &Target, json: bool, arguments: &Rx) -> Result<(), CommandError> {
    let last = arguments.to_port.saturating_add(arguments.ports - 1);
    let checker = Checker::new(arguments.to_port..=last);
    let mut checker = if arguments.changed_headers { checker.permit_changed_headers() } else { checker };
    let signals = Signals::new()?;
    let mut line = line(target, &arguments.at, &signals)?;
    let (mut meter, began) = (Meter::new(json), monotonic());
    // When frames first and last came.
    let (mut first, mut last) = (None, began);
    let mut frames = 0;
    receive(&mut line, &mut checker, |checker, now| {
        if checker.frames() > frames {
            (frames, last) = (checker.frames(), now);
            first.get_or_insert(now);
        }
        meter.show(now, [frames, checker.bytes()], || {
            let lost = checker.lost();
            if lost == 0 { String::new() } else { format!("  {lost} lost") }
        });
        let is_idle = arguments.idle.is_some_and(|idle| first.is_some() && now.saturating_sub(last) >= idle);
        let is_late = arguments.until.duration.is_some_and(|time| now.saturating_sub(began) >= time);
        let is_full = arguments.until.count.is_some_and(|count| frames >= count);
        signals.goes_on() && !is_idle && !is_late && !is_full
    })
    .map_err(CommandError::because)?;
    let time = last.saturating_sub(first.unwrap_or(last));
    output::received(&checker.received(None), time, &checker.latency().buckets(), json);
    Ok(())
}

fn pings(target: &Target, json: bool, arguments: &Ping) -> Result<(), CommandError> {
    let flows = arguments.headers.flows(MacAddress::BROADCAST);
    let generator = Generator::new(&arguments.size, &flows).map_err(CommandError::because)?;
    let signals = Signals::new()?;
    let mut line = line(target, &arguments.at, &signals)?;
    let mut meter = Meter::new(json);
    let checker = Checker::of_answers(&flows);
    let load = load(arguments.rate, &arguments.until);
    let pinged = ping(&mut line, &generator, checker, load, arguments.timeout, |pinged, latency, now| {
        meter.show(now, [pinged.received, 0], || output::times(&latency.summary()));
        signals.goes_on()
    });
    let (pinged, mut latency) = pinged.map_err(CommandError::because)?;
    output::pinged(&pinged, &latency.buckets(), json);
    match pinged.received {
        0 if pinged.sent > 0 => {
            Err(CommandError::Late("no frame came back; does a program answer at the other port?".into()))
        }
        _ => Ok(()),
    }
}

fn pongs(target: &Target, json: bool, arguments: &Pong) -> Result<(), CommandError> {
    let signals = Signals::new()?;
    let mut line = line(target, &arguments.at, &signals)?;
    let (mut meter, began) = (Meter::new(json), monotonic());
    let Until { count, duration } = arguments.until;
    let returned = pong(&mut line, arguments.from, |frames, bytes, now| {
        meter.show(now, [frames, bytes], String::new);
        let is_late = duration.is_some_and(|time| now.saturating_sub(began) >= time);
        signals.goes_on() && !is_late && count.is_none_or(|count| frames < count)
    });
    output::print(&ReturnedView { returned: returned.map_err(CommandError::because)? }, json);
    let (mut ring, _) = line.into_rings();
    output::settled(&mut ring);
    Ok(())
}

fn measure(target: &Target, json: bool, arguments: &Rfc2544) -> Result<(), CommandError> {
    let flows = arguments.headers.flows(PONG_MAC);
    let options = Options {
        sizes: arguments.sizes.clone(),
        trial: arguments.trial,
        settle: arguments.settle,
        resolution: arguments.resolution,
        most: arguments.max_rate,
        loads: arguments.loads.clone(),
        burst: arguments.burst,
        repeat: arguments.repeat,
        ..Options::default()
    };
    if arguments.tx == arguments.rx {
        return Err(CommandError::Failed("frames can't go from a port to itself; name two ports".into()));
    }
    // Found before an hour of trials.
    if let Some(path) = &arguments.svg {
        std::fs::write(path, "")
            .map_err(|error| CommandError::Failed(format!("{}: {error}", path.display())))?;
    }
    let signals = Signals::new()?;
    let tx = ring(target, &arguments.tx, arguments.slots, &signals)?;
    let rx = ring(target, &arguments.rx, arguments.slots, &signals)?;
    let mut line = RingLine::new(tx, Some(rx)).polling();
    let report = rfc2544::measure(&mut line, &flows, &options, |frame, trial| {
        if !json && !arguments.quiet {
            text::note(&output::trial(frame, trial));
        }
        signals.goes_on()
    });
    let report = report.map_err(|error| match error {
        MeasureError::Ended => CommandError::Late(error.to_string()),
        error => CommandError::because(error),
    })?;
    output::print(&Rfc2544View(&report), json);
    if let Some(path) = &arguments.svg {
        let written = std::fs::write(path, rfc2544::svg(&report));
        written.map_err(|error| CommandError::Failed(format!("{}: {error}", path.display())))?;
    }
    report.failure().map_or(Ok(()), |why| Err(CommandError::Failed(why)))
}
