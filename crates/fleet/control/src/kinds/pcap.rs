//! `kind = "pcap"`: replays a capture file, and records what it receives.

use super::{Described, Opening, PortControl};
use crate::open::EngineHandle;
use ringway_host::{Mapping, OwnFile, PageChoice, memfd, on_node, open_own, read_file};
use ringway_port::pcap::{Image, KIND, LARGEST_FILE, ReplayError, Settings};
use ringway_ring::capture::{Consumer, Geometry, Statistics};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port, printable};
use ringway_wire::pcapng::{self, Direction, Packet};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle as Thread;
use std::time::Duration;

pub struct Pcap;

/// Speed of the recording, in thousandths.
const ORIGINAL: u32 = 1000;
/// Memory for recorded frames that are not written yet.
const BUFFER: usize = 32 << 20;
/// Time between two looks at recorded frames.
const LOOK: Duration = Duration::from_millis(10);
/// Delay before a file that can't be replayed is read again.
const AGAIN: Duration = Duration::from_secs(10);

impl PortControl for Pcap {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let file = section.parsed("file", "/var/tmp/in.pcap", absolute);
        let record = section.parsed("record", "/var/tmp/out.pcapng", absolute);
        if !section.has("file") && !section.has("record") {
            section.missing(
                "file",
                "add file = \"/var/tmp/in.pcap\", record = \"/var/tmp/out.pcapng\", or both",
            );
        }
        if file.is_some() && file == record {
            section.error("record", "`record` is the file that is replayed", "name another file");
        }
        let speed = section.parsed("speed", "2x", speed);
        let repeat = section.boolean("loop");
        for key in ["speed", "loop"] {
            if section.has(key) && !section.has("file") {
                section.error(
                    key,
                    format!("`{key}` is for a `file` that is replayed"),
                    "add `file`, or delete it",
                );
            }
        }
        let speed = speed.unwrap_or(ORIGINAL);
        let settings = Settings { file, record, speed, repeat: repeat.unwrap_or(false) };
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues: 1 }
    }

    fn open(&self, port: &Port, engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        let recorder = match &settings.record {
            Some(path) => Some(Recorder::start(port, path).map_err(|error| engine.no_door(error))?),
            None => None,
        };
        Ok(Some(tokio::spawn(serve(engine, settings, recorder))))
    }

    fn claims(&self, port: &Port) -> Option<(&'static str, String)> {
        Some(("record", port.kind.settings::<Settings>().ok()?.record?))
    }

    fn needs(&self, port: &Port) -> Option<(&'static str, PathBuf)> {
        Some(("file", port.kind.settings::<Settings>().ok()?.file?.into()))
    }

    fn peer(&self, port: &Port) -> String {
        let Ok(Settings { file, record, .. }) = port.kind.settings() else { return String::new() };
        file.or(record).unwrap_or_default()
    }
}

fn absolute(text: &str) -> Result<String, (String, String)> {
    match Path::new(text).is_absolute() && !text.ends_with('/') {
        true => Ok(text.into()),
        false => Err((
            format!("\"{}\" is no absolute path of a file", printable(text)),
            "write the whole path, such as \"/var/tmp/in.pcap\"".into(),
        )),
    }
}

/// A speed in thousandths; 0 is as fast as possible.
fn speed(text: &str) -> Result<u32, (String, String)> {
    if text == "max" {
        return Ok(0);
    }
    let factor: Option<f64> = text.strip_suffix('x').and_then(|factor| factor.parse().ok());
    match factor {
        Some(factor) if (0.001..=1_000_000.0).contains(&factor) => Ok((factor * 1000.0).round() as u32),
        _ => Err((
            format!("\"{}\" is no speed", printable(text)),
            "write a factor from \"0.001x\" to \"1000000x\", \"1x\" for the recorded times, or \"max\""
                .into(),
        )),
    }
}

/// Brings the port its files.
async fn serve(mut engine: EngineHandle, settings: Settings, recorder: Option<Recorder>) {
    loop {
        match descriptors(&settings, recorder.as_ref(), engine.node()).await {
            Ok(descriptors) => {
                engine.arrived(descriptors, true);
                engine.wait().await;
            }
            Err(error) => {
                engine.report(error).await;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn descriptors(
    settings: &Settings,
    recorder: Option<&Recorder>,
    node: Option<u16>,
) -> io::Result<Vec<OwnedFd>> {
    let mut descriptors = Vec::new();
    if let Some(path) = settings.file.clone() {
        let read = tokio::task::spawn_blocking(move || on_node(node, || image(Path::new(&path)))).await;
        descriptors.push(read.map_err(io::Error::other)??);
    }
    if let Some(recorder) = recorder {
        descriptors.push(recorder.memory.try_clone()?);
    }
    Ok(descriptors)
}

/// Reads a file into memory that can be passed on.
fn image(path: &Path) -> io::Result<OwnedFd> {
    let shown = path.display();
    let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("{shown}: {error}"));
    let size = std::fs::metadata(path).map_err(|error| wrong(&error))?.len();
    // Attack: a file that is larger than memory, or grows while it is read.
    if size > LARGEST_FILE {
        return Err(wrong(&ReplayError::Large(size)));
    }
    // Attack: a pipe that nobody writes to, whose opening blocks a thread, or a device that never ends.
    let bytes = read_file(path, LARGEST_FILE as usize).map_err(|error| wrong(&error))?;
    let Image { bytes, frames, skipped } = Image::of(&bytes).map_err(|error| wrong(&error))?;
    tracing::info!(file = %shown, frames, "replaying{skipped}");
    let memory = memfd("ringway-replay", bytes.len()).map_err(|error| wrong(&error))?;
    File::from(memory.try_clone()?).write_all(&bytes)?;
    Ok(memory)
}

/// The thread that writes what a port receives; it ends when this is dropped.
struct Recorder {
    memory: OwnedFd,
    ends: Arc<AtomicBool>,
    thread: Option<Thread<()>>,
}

impl Recorder {
    fn start(port: &Port, path: &str) -> io::Result<Recorder> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
        // What a capture shows is its owner's only.
        let file = open_own(Path::new(path), OwnFile::Rewrite, 0o600).map_err(named)?;
        let geometry = Geometry::new(1, 1, BUFFER);
        let memory = memfd("ringway-recording", geometry.bytes()).map_err(io::Error::other)?;
        let mapping = Mapping::sealed(&memory).map_err(io::Error::other)?;
        geometry.initialize(mapping.words());
        let ends = Arc::new(AtomicBool::new(false));
        let (name, path, until) = (port.name.clone(), path.to_string(), ends.clone());
        let record = move || {
            if let Err((error, lost)) = record(file, &name, (&mapping, geometry), &until) {
                tracing::error!(port = name, file = path, %error, lost, "frames are no longer recorded");
            }
        };
        let thread = Some(std::thread::Builder::new().name("recorder".into()).spawn(record)?);
        Ok(Recorder { memory, ends, thread })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // A panic was reported by its thread.
        let _ = self.thread.take().map(Thread::join);
    }
}

/// Writes frames until the end. After an error the port counts its frames as dropped, and the file ends with the last
/// whole one; how many frames the port had taken that are not in it comes with the error.
fn record(
    mut file: File,
    port: &str,
    (mapping, geometry): (&Mapping, Geometry),
    ends: &AtomicBool,
) -> Result<(), (io::Error, u64)> {
    let lane = geometry.lane(mapping.words(), 0);
    let lane = lane.ok_or_else(|| (io::Error::from(io::ErrorKind::InvalidData), 0u64))?;
    let mut out = Vec::new();
    pcapng::write_section_of(&mut out, concat!("ringway ", env!("CARGO_PKG_VERSION")));
    pcapng::write_interface(&mut out, port);
    // Where in `out` there may be an end: after what precedes the first frame, and after each frame.
    let mut cuts = vec![out.len()];
    // Bytes and cuts of the file.
    let (mut written, mut passed) = (0u64, 0u64);
    let mut consumer = Consumer::default();
    loop {
        let is_last = ends.load(Relaxed);
        let drained = consumer.drain(&lane, |record, data| {
            let (time, original_len) = (record.time, record.len);
            let packet = Packet { interface: 0, time, original_len, direction: Direction::Outbound, data };
            pcapng::write_packet(&mut out, &packet);
            cuts.push(out.len());
        });
        let drained = drained.map_err(|_| io::Error::other("the data process wrote what is no frame"));
        if let Err(error) = drained.and_then(|()| file.write_all(&out)) {
            consumer.close(&lane);
            let reached = file.stream_position().unwrap_or(written) - written;
            let whole = cuts.partition_point(|cut| *cut as u64 <= reached);
            // If this fails too, readers say that the file is cut.
            let _ = file.set_len(written + cuts[..whole].last().map_or(0, |cut| *cut as u64));
            // A worker may be adding a frame.
            std::thread::sleep(LOOK);
            let Statistics { accepted, dropped, .. } = lane.statistics(0);
            let recorded = (passed + whole as u64).saturating_sub(1);
            return Err((error, accepted.saturating_sub(dropped).saturating_sub(recorded)));
        }
        written += out.len() as u64;
        passed += cuts.len() as u64;
        out.clear();
        cuts.clear();
        if is_last {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_ring::capture::{Producer, Record};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::io::Read;

    #[test]
    fn speeds_are_factors() {
        assert_eq!((speed("1x"), speed("0.5x"), speed("max")), (Ok(1000), Ok(500), Ok(0)));
        for wrong in ["", "x", "0x", "-1x", "2", "1e9x", "NaNx", "infx"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn on_a_full_disk_each_frame_is_in_the_file_or_known_to_be_lost() {
        let geometry = Geometry::new(1, 1, BUFFER);
        let mapping = Mapping::sealed(&memfd("recording", geometry.bytes()).unwrap()).unwrap();
        geometry.initialize(mapping.words());
        let lane = geometry.lane(mapping.words(), 0).unwrap();
        let mut producer = Producer::new(&lane);
        let mut add = |count: usize| {
            let header = Record { port: 0, kind: 0, time: 1, len: 100 };
            let added = (0..count).filter(|_| producer.push(&lane, &header, &[7; 100])).count();
            producer.publish(&lane);
            added
        };
        assert_eq!(add(1000), 1000);
        // A file that can't become longer, as on a disk that is full.
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let mut file = File::from(memfd_create("full", flags).unwrap());
        file.set_len(64 << 10).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let ends = AtomicBool::new(false);
        let (_, lost) = record(file.try_clone().unwrap(), "a", (&mapping, geometry), &ends).unwrap_err();
        assert_eq!(add(10), 0, "the port counts them as dropped");
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let packets: Vec<_> = pcapng::Reader::new(&bytes).map(|packet| packet.unwrap()).collect();
        let frames = packets.len() as u64;
        assert!(frames > 0 && frames + lost == 1000, "{frames} in {} bytes, {lost} lost", bytes.len());
    }

    #[test]
    fn a_large_sparse_file_is_refused() {
        let path = std::env::temp_dir().join(format!("ringway-sparse-{}", std::process::id()));
        File::create(&path).unwrap().set_len(4 << 30).unwrap();
        let error = image(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("the file has 4294967296 bytes, more than 1073741824; cut it with editcap"),
            "{error}"
        );
        std::fs::remove_file(&path).unwrap();
    }
    #[test]
    fn only_regular_files_are_replayed() {
        let folder = std::env::temp_dir().join(format!("ringway-replayed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe.pcap");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, what) in
            [(pipe.as_path(), "a pipe"), (Path::new("/dev/zero"), "a device"), (&folder, "a folder")]
        {
            let error = image(path).unwrap_err().to_string();
            assert_eq!(error, format!("{}: {what}, not a file", path.display()));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
