//! A QEMU without a processor, whose bus a test accesses itself (QEMU's qtest protocol).
use crate::sleeper::Failure;
use ringway_host::wait_readable;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(30);

/// A running one, ended when dropped.
pub struct Qtest {
    child: Child,
    stream: BufReader<UnixStream>,
}

/// Whether a QEMU has a kind of device.
pub fn has_device(program: &Path, device: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["-M", "none", "-device", &format!("{device},help")]);
    // QEMU 7 exits with 0 for a device that it lacks.
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

/// The next connection, which must come soon.
pub fn accept(listener: &UnixListener) -> Result<UnixStream, Failure> {
    match wait_readable(&[listener.as_fd()], Some(BOUND.as_nanos() as u64))?[..] {
        [true] => Ok(listener.accept()?.0),
        _ => Err("no connection".into()),
    }
}

impl Qtest {
    /// Starts a PC with 64 MB of shared memory and a vfio-user device at `socket` in slot 4.
    pub fn start(program: &Path, folder: &Path, socket: &Path) -> Result<Qtest, Failure> {
        let path = folder.join("qtest.sock");
        let listener = UnixListener::bind(&path)?;
        let memory = "memory-backend-memfd,id=memory,size=64M,share=on";
        let socket = format!(r#"{{"path": "{}", "type": "unix"}}"#, socket.display());
        let device = format!(r#"{{"driver": "vfio-user-pci", "addr": "4", "socket": {socket}}}"#);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args([
            "-accel",
            "qtest",
            "-qtest-log",
            "none",
            "-qtest",
        ]);
        command.arg(format!("unix:{}", path.display())).args(["-M", "pc,memory-backend=memory", "-m", "64"]);
        command.args(["-object", memory, "-nodefaults", "-display", "none", "-device", &device]);
        let child = command.stdin(Stdio::null()).spawn()?;
        let stream = accept(&listener)?;
        stream.set_read_timeout(Some(BOUND))?;
        Ok(Qtest { child, stream: BufReader::new(stream) })
    }

    /// Sends a command; returns the answer without `OK`.
    pub fn ask(&mut self, command: &str) -> Result<String, Failure> {
        writeln!(self.stream.get_mut(), "{command}")?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("QEMU ended".into());
            }
            if let Some(answer) = line.trim().strip_prefix("OK") {
                return Ok(answer.trim().to_owned());
            }
            if !line.starts_with("IRQ") {
                return Err(format!("{command}: {line}").into());
            }
        }
    }

    /// Reads `readb`, `readw`, `readl` or `readq` of an address.
    pub fn read(&mut self, command: &str, address: u64) -> Result<u64, Failure> {
        let answer = self.ask(&format!("{command} {address:#x}"))?;
        Ok(u64::from_str_radix(answer.trim_start_matches("0x"), 16)?)
    }

    /// Writes the configuration space of the device in slot 4.
    pub fn configure(&mut self, offset: u32, value: u32) -> Result<(), Failure> {
        self.ask(&format!("outl 0xcf8 {:#x}", 0x8000_2000 | offset))?;
        self.ask(&format!("outl 0xcfc {value:#x}")).map(drop)
    }
}

impl Drop for Qtest {
    fn drop(&mut self) {
        // QEMU may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
