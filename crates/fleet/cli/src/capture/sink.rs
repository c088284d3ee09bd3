//! Where captured frames go: a pcapng file, or lines.

use super::line::{json, line};
use super::mirror::Mirror;
use super::reader::Frame;
use crate::command_error::CommandError;
use ringway_fabric::capture::CaptureEvent;
use ringway_fabric::proto::Capture;
use ringway_host::since_1970;
use ringway_ring::capture::Statistics;
use ringway_wire::pcapng::{self, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of encoded frames that are written without waiting for more.
const FLUSH_LEN: usize = 256 << 10;

/// How frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The pcapng format.
    Pcapng,
    /// A line of text each.
    Text,
    /// A line of JSON each.
    Json,
}

/// Why a frame can't be written.
#[derive(Debug)]
pub enum WriteError {
    /// Nobody reads any more.
    Closed,
    /// Another reason, for people.
    Failed(String),
}

/// Where the output goes.
struct Output {
    file: File,
    name: String,
    /// Bytes of a regular file that are whole; `None` for others.
    written: Option<u64>,
}

impl Output {
    fn open(path: Option<&Path>) -> Result<Output, CommandError> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(CommandError::because)?);
            return Ok(Output { file, name: "standard output".into(), written: None });
        };
        let name = path.display().to_string();
        // What a capture shows is its owner's only.
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.map_err(|error| CommandError::Failed(format!("{name}: {error}")))?;
        let is_regular = file.metadata().is_ok_and(|seen| seen.is_file());
        Ok(Output { file, name, written: is_regular.then_some(0) })
    }

    /// Writes whole blocks or lines. After an error a regular file ends with the last whole ones.
    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.written = self.written.map(|written| written + bytes.len() as u64);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(WriteError::Closed),
            Err(error) => {
                let kept = match self.written {
                    Some(written) if self.file.set_len(written).is_ok() => {
                        "; what was written before is complete"
                    }
                    _ => "",
                };
                Err(WriteError::Failed(format!("{}: {error}{kept}", self.name)))
            }
        }
    }
}

/// Writes frames.
pub struct Sink {
    /// The interface that carries the frames, instead of the output.
    pub mirror: Option<Mirror>,
    output: Output,
    format: Format,
    ports: Vec<String>,
    /// What was encoded and not written.
    encoded: Vec<u8>,
    /// The last frames, encoded, with their total size and its limit; `None` unless `--ring` is given.
    recent: Option<RecentFrames>,
    frames: u64,
    begun: u64,
}

/// The last frames of a capture, encoded, which are written at its end.
struct RecentFrames {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of all of them, and the most that are kept.
    bytes: usize,
    limit: usize,
}

impl Sink {
    /// Opens the output of a capture. `ring`: only frames of the last so many MB are kept, and written at the end.
    pub fn open(
        path: Option<&Path>,
        format: Format,
        capture: &Capture,
        ring: Option<u64>,
    ) -> Result<Sink, CommandError> {
        let output = Output::open(path)?;
        let mut encoded = Vec::new();
        if format == Format::Pcapng {
            pcapng::write_section_of(&mut encoded, concat!("ringway ", env!("CARGO_PKG_VERSION")));
            for port in &capture.ports {
                pcapng::write_interface_of(&mut encoded, port, capture.snap_len);
            }
        }
        let most = |mb: u64| usize::try_from(mb << 20).unwrap_or(usize::MAX);
        let recent = ring.map(|mb| RecentFrames { frames: VecDeque::new(), bytes: 0, limit: most(mb) });
        let ports = capture.ports.clone();
        let begun = since_1970();
        let mut sink = Sink { mirror: None, output, format, ports, encoded, recent, frames: 0, begun };
        match sink.flush() {
            Ok(()) | Err(WriteError::Closed) => Ok(sink),
            Err(WriteError::Failed(what)) => Err(CommandError::Failed(what)),
        }
    }

    /// Number of frames that were added.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Number of frames that are, or will be, in the output.
    pub fn kept(&self) -> u64 {
        self.recent.as_ref().map_or(self.frames, |recent| recent.frames.len() as u64)
    }

    /// Adds a frame.
    pub fn add(&mut self, frame: &Frame) -> Result<(), WriteError> {
        // `data` may have been taken over: it names ports and lengths.
        let Some(port) = self.ports.get(usize::from(frame.port)) else { return Ok(()) };
        self.frames += 1;
        if let Some(mirror) = &mut self.mirror {
            return mirror.send(frame).map_err(WriteError::Failed);
        }
        let mut one = std::mem::take(&mut self.encoded);
        match self.format {
            Format::Pcapng => {
                let packet = Packet {
                    interface: frame.port.into(),
                    time: frame.time,
                    original_len: frame.len,
                    direction: frame.event.direction,
                    data: &frame.data,
                };
                pcapng::write_commented(&mut one, &packet, &comment(frame.event));
            }
            Format::Text => {
                one.extend_from_slice((line(port, frame, &comment(frame.event)) + "\n").as_bytes())
            }
            Format::Json => one.extend_from_slice((json(port, frame) + "\n").as_bytes()),
        }
        let Some(recent) = &mut self.recent else {
            self.encoded = one;
            return if self.encoded.len() >= FLUSH_LEN { self.flush() } else { Ok(()) };
        };
        recent.bytes += one.len();
        recent.frames.push_back(one);
        while recent.bytes > recent.limit {
            let Some(oldest) = recent.frames.pop_front() else { break };
            recent.bytes -= oldest.len();
        }
        Ok(())
    }

    /// Writes what was added.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.encoded.is_empty() {
            return Ok(());
        }
        let written = self.output.write(&self.encoded);
        self.encoded.clear();
        written
    }

    /// Whether the reader of a pipe has closed it.
    pub fn is_closed(&self) -> bool {
        if self.mirror.is_some() {
            return false;
        }
        let mut polled = [PollFd::new(&self.output.file, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut polled, Some(&now));
        found.is_ok() && polled[0].revents().contains(PollFlags::ERR)
    }

    /// Writes the frames that were kept, and the statistics.
    pub fn end(&mut self, statistics: &[Statistics]) -> Result<(), WriteError> {
        if let Some(recent) = &self.recent {
            recent.frames.iter().for_each(|frame| self.encoded.extend_from_slice(frame));
            self.flush()?;
        }
        if self.format == Format::Pcapng {
            self.add_statistics(statistics);
        }
        self.flush()
    }

    /// Adds the statistics of each port to a pcapng file.
    pub fn add_statistics(&mut self, statistics: &[Statistics]) {
        for (interface, port) in (0..).zip(statistics) {
            let Statistics { received, accepted, dropped } = *port;
            let times = (self.begun, since_1970());
            let all = pcapng::Statistics { interface, times, received, accepted, dropped };
            pcapng::write_statistics(&mut self.encoded, &all);
        }
    }
}

/// What a drop is called in the output; empty for a frame that passed.
pub fn comment(event: CaptureEvent) -> String {
    match (event.drop, event.is_uncertain) {
        (None, _) => String::new(),
        (Some(reason), false) => format!("dropped: {}", reason.name()),
        (Some(reason), true) => format!("this frame, or others copied with it, dropped: {}", reason.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::Reason;
    use ringway_wire::pcapng::{Direction, Reader};

    fn frame(number: u64, drop: Option<Reason>) -> Frame {
        let event = CaptureEvent { direction: Direction::Outbound, drop, is_uncertain: false };
        Frame { port: (number % 3) as u16, event, time: number, len: 2000, data: vec![number as u8; 1000] }
    }

    fn capture() -> Capture {
        let ports = vec!["left".into(), "right".into()];
        let filter = String::new();
        Capture { ports, inbound: true, outbound: true, drops: true, filter, snap_len: 1000, verdicts: false }
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ringway-sink-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_last_megabytes_are_kept_and_unknown_ports_are_not_written() {
        let folder = folder("ring");
        let path = folder.join("out.pcapng");
        let mut sink = Sink::open(Some(&path), Format::Pcapng, &capture(), Some(1)).ok().unwrap();
        for number in 0..6000 {
            sink.add(&frame(number, Some(Reason::Full))).unwrap();
        }
        assert_eq!(sink.frames(), 4000, "the capture has no third port");
        let kept = sink.kept();
        assert!((900..1000).contains(&kept), "{kept}");
        sink.end(&[Statistics::default(); 2]).unwrap();
        let file = std::fs::read(&path).unwrap();
        assert!(file.windows(13).any(|window| window == b"dropped: full"));
        let packets: Vec<_> = Reader::new(&file).map(|packet| packet.unwrap()).collect();
        assert_eq!(packets.len() as u64, kept);
        assert_eq!((packets.last().unwrap().time, packets[0].original_len), (5998, 2000));
        assert!(packets.is_sorted_by_key(|packet| packet.time));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_full_disk_leaves_a_whole_file_and_a_closed_pipe_is_no_error() {
        let mut sink = Sink::open(None, Format::Pcapng, &capture(), None).ok().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        sink.output.file = File::from(std::os::fd::OwnedFd::from(writer));
        assert!(!sink.is_closed());
        drop(reader);
        assert!(sink.is_closed());
        sink.add(&frame(0, None)).unwrap();
        assert!(matches!(sink.flush(), Err(WriteError::Closed)));
        let Some(full) = File::create("/dev/full").ok() else { return };
        sink.output.file = full;
        sink.output.name = "out".into();
        sink.add(&frame(0, None)).unwrap();
        let Err(WriteError::Failed(what)) = sink.flush() else { panic!("the disk is full") };
        assert!(what.starts_with("out: No space left on device"), "{what}");
    }
}
