//! `ringway capture`: copies of ports' frames, as a pcapng file or a line each.
//!
//! `reader` merges the copies that workers wrote, `sink` writes them, `line` shows a frame, `mirror` is an interface
//! that carries frames, `extcap` speaks Wireshark's protocol.

mod extcap;
mod line;
mod mirror;
pub mod reader;
mod sink;

use crate::arguments::{CaptureArguments, CaptureDirection, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text;
use mirror::Mirror;
use reader::{Frame, Reader};
use ringway_control::api::{FabricView, PortView};
use ringway_control::captures::{CaptureAnswer, CaptureRequest};
use ringway_control::run_dir::capture_socket;
use ringway_fabric::capture::LONGEST_COPY;
use ringway_fabric::proto::Capture;
use ringway_fabric::{MessageStream, StreamError};
use ringway_host::listener;
use ringway_spec::file::nearest;
use ringway_wire::filter::Filter;
use sink::{Format, Sink, WriteError};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time between two reads of the copies, while there are none, and while there are some.
pub const IDLE_INTERVAL: Duration = Duration::from_millis(10);
pub const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// Memory for copies that were not read yet, in MB, unless the command line says another.
pub const BUFFER_MB: u64 = 32;

/// Runs `ringway capture`.
pub fn capture(target: &Target, json: bool, arguments: CaptureArguments) -> Result<(), CommandError> {
    match extcap::asked(target, &arguments) {
        Some(done) => done,
        None => run(target, json, &arguments),
    }
}

fn run(target: &Target, json: bool, arguments: &CaptureArguments) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let ports: Vec<PortView> = client.get("/v1/ports")?;
    let FabricView { run, .. } = client.get("/v1/fabric")?;
    let known: Vec<&str> = ports.iter().map(|port| &*port.name).collect();
    let (ports, filter) = words(&known, arguments)?;
    Filter::parse(&filter)
        .map_err(|error| CommandError::Failed(format!("the filter \"{filter}\", {error}")))?;
    let format = match (&arguments.write, json) {
        (Some(_), _) => Format::Pcapng,
        (None, true) => Format::Json,
        (None, false) => Format::Text,
    };
    if arguments.write.as_deref() == Some(Path::new("-")) && std::io::stdout().is_terminal() {
        return Err(CommandError::Failed(
            "standard output is a terminal; write to a file by -w FILE, or pass the output on by `|`".into(),
        ));
    }
    let snap_len = match arguments.snaplen {
        0 => LONGEST_COPY,
        bytes => bytes.min(LONGEST_COPY),
    };
    let capture = Capture {
        inbound: arguments.direction != CaptureDirection::Out && !arguments.only_drops,
        outbound: arguments.direction != CaptureDirection::In && !arguments.only_drops,
        drops: arguments.drops || arguments.only_drops,
        ports,
        filter,
        snap_len,
        verdicts: false,
    };
    // Opened first: what can't be written is not captured.
    let mirror = arguments.interface.as_deref().map(Mirror::open).transpose()?;
    let mut sink = Sink::open(arguments.write.as_deref(), format, &capture, arguments.ring)?;
    sink.mirror = mirror;
    let request = CaptureRequest { capture, buffer: arguments.buffer << 20 };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::because)?;
    // A signal ends the capture as it should from the first frame on.
    let mut signals = Signals::new(&runtime).map_err(CommandError::because)?;
    let mut reader = begin(Path::new(&run), &request)?;
    if !json && !arguments.quiet {
        let names = request.capture.ports.join(", ");
        text::note(&format!("capturing at {names}; Ctrl-C ends it"));
    }
    let ended = runtime.block_on(follow(&mut reader, &mut sink, &mut signals, arguments));
    let ended = ended.and_then(|ended| sink.end(&reader.statistics()).map(|()| ended));
    match ended {
        Ok(()) | Err(WriteError::Closed) => {}
        Err(WriteError::Failed(what)) => return Err(CommandError::Failed(what)),
    }
    if !json && !arguments.quiet {
        report(&reader, &sink);
    }
    Ok(())
}

/// The ports at the beginning of the words, and the expression that follows.
fn words(known: &[&str], arguments: &CaptureArguments) -> Result<(Vec<String>, String), CommandError> {
    let all = &arguments.words;
    let count = match arguments.filter {
        Some(_) => all.len(),
        None => all.iter().take_while(|word| known.contains(&&***word)).count(),
    };
    let (ports, rest) = all.split_at(count);
    if let Some(unknown) = ports.iter().find(|port| !known.contains(&&***port)).or_else(|| all.first())
        && (count == 0 || !known.contains(&&**unknown))
    {
        let near = nearest(unknown, known.iter().copied());
        let fix = near.map_or("`ringway port list` shows those there are".into(), |near| {
            format!("did you mean \"{near}\"?")
        });
        return Err(CommandError::Unknown(format!("there is no port \"{}\"; {fix}", unknown.escape_debug())));
    }
    if known.is_empty() {
        return Err(CommandError::Failed("the fabric has no ports to capture at".into()));
    }
    if ports.is_empty() {
        return Err(CommandError::Failed(format!("name the ports to capture at: {}", known.join(", "))));
    }
    let mut names: Vec<String> = Vec::new();
    for port in ports {
        if !names.contains(port) {
            names.push(port.clone());
        }
    }
    Ok((names, arguments.filter.clone().unwrap_or_else(|| rest.join(" "))))
}

/// Asks the fabric for the copies.
pub fn begin(run: &Path, request: &CaptureRequest) -> Result<Reader, CommandError> {
    let path = capture_socket(run);
    let socket = listener::connect(&path).map_err(|error| {
        CommandError::Failed(format!(
            "the fabric's socket for captures: {error}; only its user and root may capture"
        ))
    })?;
    let stream = MessageStream::new(socket);
    stream.send(request, &[]).map_err(CommandError::because)?;
    let (answer, memory) = stream.receive::<CaptureAnswer>().map_err(|error| match error {
        StreamError::Closed => {
            CommandError::Failed("the fabric ended, or has too many captures; end one".into())
        }
        error => CommandError::because(error),
    })?;
    match answer {
        CaptureAnswer::Begun => Reader::new(memory.first(), stream).map_err(CommandError::Failed),
        CaptureAnswer::Refused(why) => Err(CommandError::Failed(why)),
    }
}

/// The signals that end a capture.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Handles them from now on.
    pub fn new(runtime: &tokio::runtime::Runtime) -> std::io::Result<Signals> {
        let _entered = runtime.enter();
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them; whether one came within this time.
    pub async fn within(&mut self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => return false,
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
        true
    }
}

/// Passes frames on until a signal, the end of the fabric, or so many frames.
async fn follow(
    reader: &mut Reader,
    sink: &mut Sink,
    signals: &mut Signals,
    arguments: &CaptureArguments,
) -> Result<(), WriteError> {
    let mut is_last = false;
    let mut pause = BUSY_INTERVAL;
    let mut before = None;
    loop {
        let frames: Vec<Frame> = reader.next(is_last).map_err(WriteError::Failed)?;
        for frame in &frames {
            sink.add(frame)?;
            if arguments.count.is_some_and(|most| sink.frames() >= most) {
                return Ok(());
            }
        }
        if arguments.statistics {
            let statistics = reader.statistics();
            let dropped = statistics.iter().map(|port| port.dropped).fold(0, u64::wrapping_add);
            if before.replace(dropped) != Some(dropped) {
                sink.add_statistics(&statistics);
            }
        }
        sink.flush()?;
        if is_last {
            return Ok(());
        }
        is_last = reader.is_over();
        pause = if frames.is_empty() { (2 * pause).min(IDLE_INTERVAL) } else { BUSY_INTERVAL };
        is_last |= signals.within(pause).await;
        if !is_last && sink.is_closed() {
            return Err(WriteError::Closed);
        }
    }
}

/// Says how many frames were captured, and how many were not.
fn report(reader: &Reader, sink: &Sink) {
    let statistics = reader.statistics();
    let received: u64 = statistics.iter().map(|port| port.received).sum();
    let dropped: u64 = statistics.iter().map(|port| port.dropped).sum::<u64>() + reader.missed();
    let kept = sink.kept();
    let discarded = sink.frames() - kept;
    let mut line = format!("{kept} frames captured, {received} passed");
    if discarded > 0 {
        line.push_str(&format!(", {discarded} older ones discarded by --ring"));
    }
    if let Some(refused) = sink.mirror.as_ref().map(Mirror::refused).filter(|refused| *refused > 0) {
        line.push_str(&format!(", {refused} not carried by the interface"));
    }
    if dropped > 0 {
        line.push_str(&format!(", {dropped} not captured for lack of room; use a larger --buffer or -s 128"));
    }
    text::note(&line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser;

    fn read(line: &str) -> Result<(Vec<String>, String), String> {
        let words_of = ["ringway", "capture"].into_iter().chain(line.split(' '));
        let arguments = Arguments::try_parse_from(words_of).map_err(|error| error.to_string())?;
        let crate::arguments::Command::Capture(arguments) = arguments.command else {
            return Err("other".into());
        };
        words(&["left", "right", "tcp"], &arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn ports_precede_the_expression() {
        let is = |line: &str, ports: &[&str], filter: &str| {
            let (found, text) = read(line).unwrap();
            assert_eq!(
                (found.iter().map(|port| &**port).collect::<Vec<_>>(), &*text),
                (ports.to_vec(), filter)
            );
        };
        is("left", &["left"], "");
        is("left right left", &["left", "right"], "");
        is("left port 80 or arp", &["left"], "port 80 or arp");
        is("left not tcp", &["left"], "not tcp");
        is("left tcp port 80", &["left", "tcp"], "port 80");
        is("left --filter tcp", &["left"], "tcp");
        is("left tcp[13] & 2 != 0", &["left"], "tcp[13] & 2 != 0");
        is("left -w - -s 64 udp", &["left"], "udp");
        assert_eq!(read("lfet"), Err("there is no port \"lfet\"; did you mean \"left\"?".into()));
        assert_eq!(
            read("left lfet --filter ip"),
            Err("there is no port \"lfet\"; did you mean \"left\"?".into())
        );
        assert_eq!(read("--drops"), Err("name the ports to capture at: left, right, tcp".into()));
    }
}
