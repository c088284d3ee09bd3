//! DPDK's testpmd with virtio-user ports: a user-space front-end.
use crate::eventually;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// A testpmd that forwards frames between its two ports.
pub struct Testpmd {
    child: Child,
    input: ChildStdin,
    log: PathBuf,
}

/// Whether testpmd is installed; otherwise tests report this and are skipped.
pub fn installed() -> bool {
    ringway_linux_guests::image::program("dpdk-testpmd").is_some()
}

impl Testpmd {
    /// Starts testpmd with one virtio-user port on each of two sockets; `options` such as `packed_vq=1`. Its memory
    /// is
    /// a memfd of 4 KB pages, which needs no privilege, or consists of `huge` pages.
    pub fn start(
        folder: &Path,
        sockets: [&Path; 2],
        options: &str,
        queues: u16,
        huge: bool,
    ) -> io::Result<Testpmd> {
        let log = folder.join("testpmd.log");
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new("setpriv");
        // Without stdbuf it would buffer its statistics.
        command.args(["--pdeathsig", "KILL", "--", "stdbuf", "-oL", "dpdk-testpmd"]);
        command.args(["-l", "0,1", "--no-pci", "-m", "256"]);
        command.arg(if huge { "--in-memory" } else { "--no-huge" });
        command.args(["--single-file-segments", "--no-telemetry", "--file-prefix", &name]);
        for (index, socket) in sockets.iter().enumerate() {
            let more = if options.is_empty() { String::new() } else { format!(",{options}") };
            let path = socket.display();
            let mac = mac(index);
            command.arg("--vdev").arg(format!(
                "net_virtio_user{index},path={path},mac={mac},queues={queues},queue_size=256{more}"
            ));
        }
        command.args(["--", "-i", "--nb-cores=1", "--forward-mode=mac", "--total-num-mbufs=8192"]);
        command.args([format!("--eth-peer=0,{}", mac(1)), format!("--eth-peer=1,{}", mac(0))]);
        command.args(["--txd=256", "--rxd=256", &format!("--rxq={queues}"), &format!("--txq={queues}")]);
        let output = File::create(&log)?;
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or_else(|| io::Error::other("testpmd has no input"))?;
        let mut testpmd = Testpmd { child, input, log };
        if testpmd.says("testpmd>", 1, Duration::from_secs(40)) {
            Ok(testpmd)
        } else {
            Err(testpmd.failure("start"))
        }
    }

    /// Sends a command.
    pub fn command(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush())
    }

    /// Starts with a few bursts; each port then forwards received frames.
    pub fn forward(&mut self) -> io::Result<()> {
        self.command("start tx_first 2")
    }

    /// Number of frames received by each port so far.
    pub fn received(&mut self) -> io::Result<[u64; 2]> {
        let before = self.text().matches("RX-packets:").count();
        self.command("show port stats all")?;
        if !self.says("RX-packets:", before + 2, Duration::from_secs(10)) {
            return Err(self.failure("show port stats"));
        }
        let text = self.text();
        let numbers = text.split("RX-packets:").skip(1 + before);
        let mut numbers = numbers.filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        Ok([numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])
    }

    /// Whether both ports receive at least `more` frames within `bound`.
    pub fn flows(&mut self, more: u64, bound: Duration) -> io::Result<bool> {
        let before = self.received()?;
        let mut failed = None;
        let flows = eventually(bound, || match self.received() {
            Ok(now) => now.iter().zip(before).all(|(now, before)| *now >= before + more),
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        failed.map_or(Ok(flows), Err)
    }

    /// Kills testpmd, like a crash.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn says(&mut self, word: &str, times: usize, bound: Duration) -> bool {
        let mut ended = false;
        let is_found = eventually(bound, || {
            ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            ended || self.text().matches(word).count() >= times
        });
        is_found && !ended
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn failure(&self, what: &str) -> io::Error {
        let text = self.text();
        let last: Vec<&str> = text.lines().rev().take(12).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        io::Error::other(format!("testpmd: {what} failed; it says:\n{}", last.join("\n")))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn mac(index: usize) -> String {
    format!("02:00:00:00:00:a{index}")
}
