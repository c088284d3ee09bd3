//! Click and FastClick, where their programs are named by the environment.

use super::frames::Frames;
use crate::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit of one run, in addition to its measured time.
const LIMIT: Duration = Duration::from_secs(30);

/// Click's program, or FastClick's, whichever is named; the latter first.
pub fn program() -> Option<PathBuf> {
    ["FASTCLICK", "CLICK"].iter().find_map(std::env::var_os).map(PathBuf::from)
}

/// Writes frames as a capture, for a source that loads them into memory.
pub fn capture(path: &Path, frames: &Frames) -> Result<(), Failure> {
    let header = ringway_wire::pcap::Header {
        big_endian: false,
        nanoseconds: false,
        snap_len: 65_535,
        link_type: ringway_wire::pcap::ETHERNET,
    };
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    file.write_all(&header.to_bytes())?;
    for number in 0..frames.len() {
        let (head, length) = frames.get(number);
        file.write_all(&header.record_header(1000 * number as u64, length as u32, length as u32))?;
        file.write_all(&head[..head.len().min(length)])?;
        let rest = frames.rest(number);
        file.write_all(rest)?;
        file.write_all(&[0; 1600][..length.saturating_sub(head.len() + rest.len())])?;
    }
    Ok(file.flush()?)
}

/// The source that sends the frames of a capture from memory. Packets share the frames until an element
/// writes to one, which then gets a copy; with `in_place`, elements write to the frame itself, which is
/// cheaper and available for FastClick's devices.
pub fn source(program: &Path, capture: &Path, in_place: bool, queue: &str) -> String {
    let dump = format!("FromDump({}, STOP false, MMAP false)", capture.display());
    let fast = std::env::var_os("FASTCLICK").is_some_and(|fast| fast == program);
    let clone = if fast { format!(", QUICK_CLONE {in_place}") } else { String::new() };
    let queue = if queue.is_empty() { String::new() } else { format!(" -> {queue}") };
    format!("{dump} -> ReplayUnqueue(STOP -1, BURST 32{clone}){queue}")
}

/// Runs a configuration whose packets `count :: Counter` counts; returns millions of packets a second,
/// measured after the first `first` packets. `filled` is the number of packets that its queue, if any,
/// collects first.
pub fn rate(
    program: &Path,
    configuration: &str,
    filled: usize,
    first: usize,
    time: Duration,
) -> Result<f64, Failure> {
    let seconds = time.as_secs_f64();
    let look = "print $(now), print $(count.count)";
    let fill = match filled {
        0 => String::new(),
        _ => format!(
            "label fill, wait 0.02s, goto fill $(lt $(queue.length) {filled}), write unqueue.active true, "
        ),
    };
    let driver = format!(
        "DriverManager({fill}label open, wait 0.05s, goto open $(lt $(count.count) {first}), \
         {look}, wait {seconds}s, {look}, stop);"
    );
    let mut child = Command::new("taskset")
        .args(["-c", &crate::rig::WORKER.to_string()])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(input) = &mut child.stdin {
        input.write_all(configuration.as_bytes())?;
        input.write_all(driver.as_bytes())?;
    }
    let output = crate::peer::finish(child, time + LIMIT)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    match numbers[..] {
        [begin, before, end, after] if end > begin => Ok((after - before) / (end - begin) / 1e6),
        _ => {
            Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it gave no counts").into())
        }
    }
}
