//! FastClick, where its programs are named by the environment.

use super::frames::Frames;
use crate::Failure;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::peer::{Peer, signal};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit for the start, and for the next counts.
const COUNTS_TIMEOUT: Duration = Duration::from_secs(60);

/// The environment variable with the program that was built without clones.
const COPYING: &str = "FASTCLICK_NOCLONE";

/// A mode in which FastClick sends the same frames again.
pub struct Way {
    /// Its name.
    pub name: &'static str,
    program: PathBuf,
    quick: bool,
    /// Whether each frame is in a separate buffer.
    pub apart: bool,
    /// Time limit for the next counts.
    timeout: Duration,
}

/// The modes of the available programs; the one in which elements modify the frames themselves only if `again`:
/// modified frames may be sent again.
pub fn ways(again: bool) -> Vec<Way> {
    let ways = [
        (COPYING, "copies (--disable-clone)", false),
        ("FASTCLICK", "clones", false),
        ("FASTCLICK", "QUICK_CLONE", true),
    ];
    let named = ways.into_iter().filter(|(.., quick)| again || !quick);
    named
        .filter_map(|(variable, name, quick)| {
            let program = std::env::var_os(variable)?.into();
            let apart = variable == COPYING;
            Some(Way { name, program, quick, apart, timeout: COUNTS_TIMEOUT })
        })
        .collect()
}

/// Writes frames to capture files, which sources load into memory.
pub fn capture(folder: &Path, frames: &Frames) -> Result<(), Failure> {
    let header = ringway_wire::pcap::Header {
        big_endian: false,
        nanoseconds: false,
        snap_len: 65_535,
        link_type: ringway_wire::pcap::ETHERNET,
    };
    for (name, numbers) in [("once", 0..frames.once()), ("frames", frames.once()..frames.len())] {
        let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join(name))?);
        file.write_all(&header.to_bytes())?;
        for number in numbers {
            let (head, length) = frames.get(number);
            file.write_all(&header.record_header(1000 * number as u64, length as u32, length as u32))?;
            file.write_all(&head[..head.len().min(length)])?;
            let rest = frames.rest(number);
            file.write_all(rest)?;
            file.write_all(&[0; 1600][..length.saturating_sub(head.len() + rest.len())])?;
        }
        file.flush()?;
    }
    Ok(())
}

/// A running program, stopped (SIGSTOP) except while it is measured.
pub struct Running {
    child: Child,
    counts: Receiver<Vec<f64>>,
    timeout: Duration,
}

impl Running {
    /// Starts the configuration `text` between a source of the captures in `folder` and a sink, and waits until
    /// every frame has been sent once. `counted`: packets are counted at the source too.
    pub fn start(
        way: &Way,
        folder: &Path,
        frames: &Frames,
        text: impl Fn(&str, &str) -> String,
        counted: bool,
    ) -> Result<Running, Failure> {
        let _pinned = Pinned::to(LOAD).ok();
        let dump = |name: &str| format!("FromDump({}, STOP false, MMAP false)", folder.join(name).display());
        let once = frames.once();
        let replay = format!(
            "{} -> replay :: ReplayUnqueue(STOP -1, BURST 32, QUICK_CLONE {}, ACTIVE {})",
            dump("frames"),
            way.quick,
            once == 0
        );
        let source = match once {
            0 => replay,
            _ => format!("{} -> in :: Null; {replay} -> in", dump("once")),
        };
        let source = if counted { format!("{source} -> sent :: Counter") } else { source };
        let text = text(&source, "sink :: Discard");
        // Some packets may wait for an ARP reply, or be dropped as intended.
        let most = |count: usize| count - count / 10;
        let after = |label: &str, count: usize| {
            format!("label {label}, wait 0.02s, goto {label} $(lt $(sink.count) {count}), ")
        };
        let opening = match once {
            0 => String::new(),
            _ => after("opening", most(once)) + "write replay.active true, ",
        };
        let sent = if counted { " $(sent.count)" } else { "" };
        let driver = format!(
            "DriverManager({opening}{}label more, print \"$(now) $(sink.count){sent}\", \
             wait 0.005s, goto more);",
            after("first", most(frames.len()))
        );
        let core = WORKER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "taskset", "-c", &core]).arg(&way.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
            input.write_all(driver.as_bytes())?;
        }
        let (sender, counts) = channel();
        let output = child.stdout.take().ok_or("no output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let numbers = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
                if sender.send(numbers).is_err() {
                    return;
                }
            }
        });
        let mut running = Running { child, counts, timeout: way.timeout };
        running.next()?;
        running.run(false)?;
        Ok(running)
    }

    /// The next counts: time, packets received, packets sent.
    fn next(&mut self) -> Result<Vec<f64>, Failure> {
        let error = match self.counts.recv_timeout(self.timeout) {
            Ok(counts) => return Ok(counts),
            Err(error) => error,
        };
        if error == RecvTimeoutError::Timeout {
            return Err(format!("FastClick gave no counts in {} s", self.timeout.as_secs()).into());
        }
        let mut stderr = String::new();
        if let Some(errors) = &mut self.child.stderr {
            errors.take(1 << 12).read_to_string(&mut stderr)?;
        }
        Err(format!("FastClick ended: {}", stderr.lines().collect::<Vec<_>>().join(" / ")).into())
    }

    /// Millions of packets a second at the sink, and, if packets are counted at the source, the share lost.
    pub fn measure(&mut self, time: Duration) -> Result<[f64; 2], Failure> {
        // Not on the measured core.
        let _pinned = Pinned::to(LOAD).ok();
        while self.counts.try_recv().is_ok() {}
        self.run(true)?;
        // The stop itself delayed these counts.
        self.next()?;
        let before = self.next()?;
        let end = Instant::now() + time;
        let mut after = self.next()?;
        while Instant::now() < end {
            after = self.next()?;
        }
        self.run(false)?;
        let passed: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        match passed[..] {
            [seconds, received, ..] if seconds > 0.0 => {
                let lost = passed.get(2).map_or(0.0, |sent| 1.0 - received / sent);
                Ok([received / seconds / 1e6, lost])
            }
            _ => Err("FastClick: no counts".into()),
        }
    }

    /// Millions of packets a second at the sink.
    pub fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        Ok(self.measure(time)?[0])
    }
}

impl Peer for Running {
    fn run(&self, on: bool) -> Result<(), Failure> {
        signal(&self.child, if on { Signal::CONT } else { Signal::STOP })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::click::frames::Length;
    use crate::keys::Folder;

    /// Runs a script instead of FastClick.
    fn start(timeout: Duration, script: &str) -> Result<Running, Failure> {
        let folder = Folder::new()?;
        let program = folder.path().join("click");
        // Written by another process: a program that is open for writing can't be run.
        let mut install = Command::new("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(&program).stdin(Stdio::piped());
        let mut install = install.spawn()?;
        write!(install.stdin.take().unwrap(), "#!/bin/sh\ncat >/dev/null\n{script}\n")?;
        install.wait()?;
        let way = Way { name: "script", program, quick: false, apart: false, timeout };
        let frames = Frames::made(Length::Fixed(64), 64, 1, |_, _| [0; 64]);
        Running::start(&way, folder.path(), &frames, |source, sink| format!("{source} -> {sink};"), true)
    }

    #[test]
    fn rates_and_losses_are_of_the_counts() {
        let counts = "i=0; while :; do i=$((i+1)); echo $i $((3000000*i)) $((4000000*i)); done";
        let mut running = start(COUNTS_TIMEOUT, counts).unwrap();
        assert_eq!(running.measure(Duration::from_millis(5)).unwrap(), [3.0, 0.25]);
    }

    #[test]
    fn a_program_that_ends_says_why() {
        let error = start(COUNTS_TIMEOUT, "echo no such element >&2").err().unwrap();
        assert!(error.to_string().contains("no such element"), "{error}");
    }

    #[test]
    fn a_hung_program_is_given_up() {
        let error = start(Duration::ZERO, "exec sleep infinity").err().unwrap();
        assert_eq!(error.to_string(), "FastClick gave no counts in 0 s");
    }
}
