//! netmap's own programs, unmodified, on ports of a fabric, by the preloaded library. `NETMAP` names a folder with a
//! build of them.

use crate::Failure;
use crate::entry::{Better, Entry};
use crate::exec::lab::{Running, program};
use crate::keys::Folder;
use crate::peer::{finish, signal};
use crate::plan::Plan;
use ringway_linux_guests::{Attachment, Guest, Interface, Runner, Spec, image};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// How long frames are sent for a slice.
const SLICE: Duration = Duration::from_millis(1500);
/// After the last frame, until the receiver is told to end.
const SETTLE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(10);
const BOOT: Duration = Duration::from_secs(60);
/// A driver of the guest's kernel that lets programs map the device.
const UIO: &str = "uio_pci_generic";
/// Seconds after which pkt-gen is ended in a guest. It waits one of them before it sends.
const IN_GUEST: u64 = 3;
/// Folders below the named one that are searched.
const DEPTH: usize = 4;
const FABRIC: &str = "[fabric]\nname = \"netmap\"\n\n[switch.s]\n\n[switch.t]\n";

/// What a pkt-gen that sends is told beside its port.
const SENDS: [&str; 8] = ["-f", "tx", "-l", "60", "-S", "02:00:00:00:00:0a", "-D", "02:00:00:00:00:0d"];

/// An executable file below a folder.
fn find(folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let is_program = |path: &&PathBuf| {
        let data = std::fs::metadata(path).ok().filter(|data| data.is_file());
        path.file_name() == Some(OsStr::new(name))
            && data.is_some_and(|data| data.permissions().mode() & 0o100 != 0)
    };
    let here = entries.iter().find(is_program).cloned();
    here.or_else(|| match depth {
        0 => None,
        _ => entries.iter().filter(|path| path.is_dir()).find_map(|path| find(path, name, depth - 1)),
    })
}

/// A program of the build of netmap that `NETMAP` names.
fn of_netmap(name: &str) -> Result<PathBuf, Failure> {
    let folder = std::env::var_os("NETMAP").filter(|folder| !folder.is_empty());
    let folder = folder.ok_or("NETMAP names no folder with a build of netmap's programs")?;
    let found = find(folder.as_ref(), name, DEPTH);
    found.ok_or_else(|| format!("no program {name} below {}", folder.display()).into())
}

/// A fabric with the ports a and b, and that of a guest, g, on one switch, c and d on another.
struct Ports {
    folder: Folder,
    library: PathBuf,
    _fabric: Running,
}

impl Ports {
    fn new() -> Result<Ports, Failure> {
        let library = program()?.with_file_name("libringway_netmap.so");
        if !library.exists() {
            return Err(format!("{} is not built (make netmap-library)", library.display()).into());
        }
        let folder = Folder::new()?;
        let port = |(name, switch)| {
            format!("\n[port.{name}]\nkind = \"ring\"\nsocket = \"{name}\"\nswitch = \"{switch}\"\n")
        };
        let all: String = [("a", "s"), ("b", "s"), ("c", "t"), ("d", "t")].map(port).concat();
        let of_guest = "\n[port.g]\nkind = \"ring-pci\"\nsocket = \"g\"\nmode = \"0666\"\nswitch = \"s\"\n";
        let fabric = Running::fabric(folder.path(), "netmap", &format!("{FABRIC}{all}{of_guest}"))?;
        let (sockets, end) = (folder.path().join("netmap"), Instant::now() + TIMEOUT);
        while !["a", "b", "c", "d", "g"].iter().all(|name| sockets.join(name).exists()) {
            if Instant::now() > end {
                return Err("the fabric does not come up".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Ports { folder, library, _fabric: fabric })
    }

    /// A program of netmap with the library.
    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).env("LD_PRELOAD", &self.library).env("RINGWAY_RUN", self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    /// pkt-gen, once its port is open.
    fn pkt_gen(&self, program: &Path, words: &[&str]) -> Result<Started, Failure> {
        let mut command = self.command(program, words);
        let mut child = command.args(["-w", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().ok_or("no output")?);
        let mut line = String::new();
        while !line.contains("Ready...") {
            line.clear();
            if said.read_line(&mut line)? == 0 {
                return Err("pkt-gen did not open its port".into());
            }
        }
        // What it says until its end fits into the pipes.
        Ok(Started { child, said })
    }

    /// Frames a second that one pkt-gen sends at a and another receives at `to`, in millions, and those sent.
    fn rates(&self, pkt_gen: &Path, to: &str, time: Duration) -> Result<[f64; 2], Failure> {
        let to = format!("netmap:{to}");
        let receiver = self.pkt_gen(pkt_gen, &["-i", &to, "-f", "rx"])?;
        let words = [&["-i", "netmap:a"][..], &SENDS[..]].concat();
        let sender = self.pkt_gen(pkt_gen, &words)?;
        std::thread::sleep(time);
        let (sent, seconds) = sender.end("Sent ")?;
        std::thread::sleep(SETTLE);
        let (received, _) = receiver.end("Received ")?;
        if received == 0 || received > sent {
            return Err(format!("of {sent} frames {received} were received").into());
        }
        Ok([received, sent].map(|frames| frames as f64 / seconds / 1e6))
    }
}

/// pkt-gen, while it runs.
struct Started {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Started {
    /// Ends it as Ctrl-C does; the frames, and in how many seconds, that it says behind this word.
    fn end(mut self, word: &str) -> Result<(u64, f64), Failure> {
        signal(&self.child, Signal::INT)?;
        let mut more = String::new();
        self.said.read_to_string(&mut more)?;
        let output = finish(self.child, TIMEOUT)?;
        let all = String::from_utf8_lossy(&output.stdout);
        counted(&all, word).ok_or_else(|| format!("pkt-gen says: {} {}", all.trim(), more.trim()).into())
    }
}

/// The frames and seconds of pkt-gen's last line that begins with this word.
fn counted(said: &str, word: &str) -> Option<(u64, f64)> {
    let line = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(word).filter(|line| line.contains(" packets ")))?;
    let frames = line.split_whitespace().next()?.parse().ok()?;
    let seconds = line.trim_end().strip_suffix(" seconds.")?.rsplit(' ').next()?.parse().ok()?;
    (seconds > 0.0).then_some((frames, seconds))
}

fn entry(plan: &Plan, mut rates: impl FnMut() -> Result<[f64; 2], Failure>) -> Result<Entry, Failure> {
    // Starting and ending both programs takes as long as a slice.
    let [received, sent] = plan.figures(2 * SLICE, |_| rates())?;
    let entry = received.entry("Mpps", Better::More).step_of("sent", &sent);
    Ok(entry.note("60 B without FCS, by pkt-gen's counts; a switch drops what the receiver leaves"))
}

/// pkt-gen to pkt-gen through a switch.
pub fn pktgen(plan: &Plan) -> Result<Entry, Failure> {
    let pkt_gen = of_netmap("pkt-gen")?;
    let ports = Ports::new()?;
    Ok(entry(plan, || ports.rates(&pkt_gen, "b", SLICE))?.best_at_least(15.0))
}

/// pkt-gen to pkt-gen through a switch, netmap's bridge, and another switch.
pub fn bridge(plan: &Plan) -> Result<Entry, Failure> {
    let (pkt_gen, bridge) = (of_netmap("pkt-gen")?, of_netmap("bridge")?);
    let ports = Ports::new()?;
    let command = ports.command(&bridge, &["-i", "netmap:b", "-i", "netmap:c", "-w", "1"]);
    let _bridge = Running::start(&command)?;
    let entry = entry(plan, || ports.rates(&pkt_gen, "d", SLICE))?.at_least(8.0);
    Ok(entry.note("bridge exchanges buffers by their numbers"))
}

/// pkt-gen in a Linux guest, on the memory of a `ring-pci` port's device, to pkt-gen on the host; from the host.
pub fn guest(plan: &Plan) -> Result<Entry, Failure> {
    let pkt_gen = of_netmap("pkt-gen")?;
    let qemu = ringway_tests::qemu::with_cards().ok_or("no QEMU with vfio-user is available")?;
    image::qemu(&[UIO])?;
    let ports = Ports::new()?;
    let socket = ports.folder.path().join("netmap/g");
    let card = Interface::new(Attachment::VfioUser { socket, driver: UIO.into() });
    let spec = Spec {
        program: Some(qemu),
        drivers: vec!["uio".into()],
        carried: vec![pkt_gen.clone(), ports.library.clone()],
        ..Spec::new("netmap", Runner::Qemu, vec![card])
    };
    let guest = Guest::start(spec, &ports.folder.path().join("guest"))?;
    guest.ready(BOOT)?;
    let (library, program) = (ports.library.display(), pkt_gen.display());
    let sends = SENDS.join(" ");
    let command = format!(
        "LD_PRELOAD={library} timeout -s INT {IN_GUEST} {program} -i netmap:ring0 {sends} -w 1 2>&1; true"
    );
    let inside = || -> Result<f64, Failure> {
        let receiver = ports.pkt_gen(&pkt_gen, &["-i", "netmap:b", "-f", "rx"])?;
        let said = guest.run(&command, 3 * TIMEOUT)?.text;
        std::thread::sleep(SETTLE);
        let (received, _) = receiver.end("Received ")?;
        let sent = counted(&said, "Sent ").filter(|(sent, _)| received > 0 && received <= *sent);
        let (_, seconds) =
            sent.ok_or_else(|| format!("{received} received; pkt-gen says: {}", said.trim()))?;
        Ok(received as f64 / seconds / 1e6)
    };
    let on_host = |_| ports.rates(&pkt_gen, "b", SLICE).map(|[received, _]| received);
    let slices = plan.pairs(2 * SLICE, |_| inside(), on_host)?;
    let note = format!("60 B without FCS; the guest runs in {}; peer: the same from the host", guest.note());
    Ok(slices.entry("Mpps", Better::More).note(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkt_gens_counts_are_read() {
        let said = "Sent 0 packets 0 bytes\n\
            Sent 1500 packets 90000 bytes 12 events 60 bytes each in 0.50 seconds.\n\
            Speed: 3.000 Kpps Bandwidth: 1.440 Mbps (raw 2.016 Mbps). Average batch: 125.00 pkts\n";
        assert_eq!((counted(said, "Sent "), counted(said, "Received ")), (Some((1500, 0.5)), None));
        assert_eq!(counted("Sent 0 packets 0 bytes\n", "Sent "), None);
    }

    #[test]
    fn programs_are_found_below_the_folder() {
        let folder = Folder::new().unwrap();
        let below = folder.path().join("build-apps/pkt-gen");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("pkt-gen"), "").unwrap();
        assert_eq!(find(folder.path(), "pkt-gen", DEPTH), None, "it is not executable");
        std::fs::set_permissions(below.join("pkt-gen"), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(find(folder.path(), "pkt-gen", DEPTH), Some(below.join("pkt-gen")));
        assert_eq!(find(folder.path(), "pkt-gen", 1), None);
    }
}
