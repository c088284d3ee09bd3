//! Network namespaces, bridges and iperf3, all removed at the end of the process that created them.

use crate::Failure;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a transfer, in addition to its duration.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `ip` with these words.
pub fn ip(words: &str) -> Result<(), Failure> {
    finished(&format!("ip {words}"), Command::new("ip").args(words.split_whitespace()).output()?)
}

fn finished(what: &str, output: Output) -> Result<(), Failure> {
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// A bridge in this process's namespace that sends no packets of its own.
pub fn bridge(name: &str) -> Result<(), Failure> {
    ip(&format!("link add {name} type bridge mcast_snooping 0"))?;
    ip(&format!("link set {name} addrgenmode none up"))
}

/// A veth pair, one end of which is in a namespace of its own, where nobody takes frames.
pub struct Veth {
    /// The namespace of the other end.
    pub space: Space,
    own: &'static str,
}

impl Veth {
    /// One with these names of its ends.
    pub fn new(own: &'static str, other: &str) -> Result<Veth, Failure> {
        let space = Space::new()?;
        ip(&format!("link add {own} type veth peer name {other}"))?;
        let veth = Veth { space, own };
        veth.space.take_silently(other)?;
        veth.space.ip(&format!("link set {other} up"))?;
        ip(&format!("link set {own} addrgenmode none up"))?;
        Ok(veth)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // Deleting one end deletes the other one.
        let _ = ip(&format!("link del {}", self.own));
    }
}

/// A network namespace, kept by a process that sleeps.
pub struct Space {
    keeper: Child,
}

impl Space {
    /// Creates a namespace, with its loopback interface up.
    pub fn new() -> Result<Space, Failure> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare", "--net", "--", "sleep", "infinity"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let space = Space { keeper: command.spawn()? };
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::read_link(space.path()).is_ok_and(|theirs| theirs == ours) {
            if Instant::now() > end {
                return Err("can't create a network namespace".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        space.ip("link set lo up")?;
        Ok(space)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }

    /// Runs `work` on a thread in the namespace; the sockets that it opens stay there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        let space = std::fs::File::open(self.path())?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(space.as_fd(), kind)?;
                work()
            });
            thread.join().map_err(|_| "a thread failed")?
        })
    }

    /// A command that runs in the namespace and ends with this process.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "nsenter"]);
        command.arg(format!("--net={}", self.path().display())).args(["--", program]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, words: &str) -> Result<(), Failure> {
        finished(&format!("ip {words}"), self.command("ip").args(words.split_whitespace()).output()?)
    }

    /// Frames that an interface in the namespace has received.
    pub fn received(&self, interface: &str) -> Result<u64, Failure> {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.keeper.id()))?;
        received_of(&text, interface).ok_or_else(|| "the interface has no counters".into())
    }

    /// Moves an interface into the namespace, without an address.
    pub fn take_silently(&self, interface: &str) -> Result<(), Failure> {
        ip(&format!("link set {interface} netns {}", self.keeper.id()))?;
        self.ip(&format!("link set {interface} addrgenmode none up"))
    }

    /// Moves an interface into the namespace, and sets its address, of a network of 24 bits.
    pub fn take(&self, interface: &str, address: [u8; 4]) -> Result<(), Failure> {
        let own = std::net::Ipv4Addr::from(address);
        self.take_silently(interface)?;
        self.ip(&format!("addr add {own}/24 dev {interface}"))
    }

    /// As [`Space::take`]; connections of that network begin with CUBIC. The host's default may be another, and one
    /// that begins with BBR stays paced when that is changed. It is the route's, since a namespace's default can only
    /// be a controller that the host permits to everybody.
    pub fn take_with_cubic(&self, interface: &str, address: [u8; 4]) -> Result<(), Failure> {
        let [a, b, c, _] = address;
        let own = std::net::Ipv4Addr::from(address);
        self.take(interface, address)?;
        self.ip(&format!("route change {a}.{b}.{c}.0/24 dev {interface} src {own} congctl cubic"))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Received frames of an interface in a table as /proc/net/dev.
fn received_of(table: &str, interface: &str) -> Option<u64> {
    let mut rows = table.lines().filter_map(|line| line.trim_start().split_once(':'));
    let (_, figures) = rows.find(|(name, _)| *name == interface)?;
    figures.split_whitespace().nth(1)?.parse().ok()
}

/// A server of iperf3 in a namespace.
pub struct IperfServer(Child);

impl IperfServer {
    /// Starts a server, and waits until it listens.
    pub fn start(space: &Space) -> Result<IperfServer, Failure> {
        super::program("iperf3")?;
        let mut command = space.command("iperf3");
        let child = command.args(["-s", "--forceflush"]).stdout(Stdio::piped()).spawn()?;
        let mut server = IperfServer(child);
        let output = server.0.stdout.take().ok_or("iperf3 has no output")?;
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
        if !lines.any(|line| line.is_ok_and(|line| line.contains("listening"))) {
            return Err("iperf3 does not listen".into());
        }
        // Its further output must be read.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }
}

impl Drop for IperfServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gb/s of one TCP stream from `space` to `address`.
pub fn iperf(space: &Space, address: &str, time: Duration) -> Result<f64, Failure> {
    let seconds = format!("{}", time.as_secs_f64().ceil());
    let mut command = space.command("iperf3");
    command.args(["-J", "-c", address, "-t", &seconds]).stdout(Stdio::piped());
    let output = super::finish(command.spawn()?, time + LIMIT)?;
    let value: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    if let Some(error) = value.get("error").and_then(|error| error.as_str()) {
        return Err(format!("iperf3: {error}").into());
    }
    let bits = value.pointer("/end/sum_received/bits_per_second").and_then(|bits| bits.as_f64());
    Ok(bits.ok_or("iperf3 gave no rate")? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_an_interface_are_read() {
        let table = "Inter-| Receive             |  Transmit\n face |bytes    packets errs drop|bytes\n    \
            lo:       0       0    0    0       0\n  far0:     128       2    0    0      64\n   \
            far: 6400064 100001    0    0      64\n";
        assert_eq!(received_of(table, "far"), Some(100_001));
        assert_eq!(received_of(table, "far0"), Some(2));
        assert_eq!(received_of(table, "near"), None);
    }
}
