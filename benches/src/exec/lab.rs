//! Two places for programs on one network: ports of a fabric, or namespaces of the kernel.

use crate::Failure;
use crate::keys::Folder;
use crate::peer::{finish, net, signal};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a client, in addition to its measuring time.
const LIMIT: Duration = Duration::from_secs(20);
/// Time limit for a server to listen, and to end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The program that users start, which `make bench-exec` has built.
pub fn program() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name("ringway");
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display()).into()) }
}

/// Programs in guests.
pub const LINUX: &str = "linux";
/// Programs that run the native stack themselves.
pub const DIRECT: &str = "direct";

/// How the two places are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// By a switch; the kernel's by veth and a bridge.
    Switch,
    /// By a pipe; the kernel's by a veth pair.
    Pipe,
}

/// A place for a server, and one for its client.
pub trait Places {
    /// A command in one of them: 0 for the server, 1 for the client.
    fn command(&self, place: usize, words: &[&OsStr]) -> Result<Command, Failure>;
    /// The server's address.
    fn server(&self) -> &'static str;
}

/// Ports of a fabric.
pub struct Ports {
    fabric: Running,
    folder: Folder,
    joined: Joined,
    stack: &'static str,
}

impl Ports {
    /// Starts a fabric. With `tap`, the switch has an interface of this name too.
    pub fn new(joined: Joined, stack: &'static str, tap: Option<&str>) -> Result<Ports, Failure> {
        let folder = Folder::new()?;
        // As of `make bench-tcp`: frames of 64 KB need many slots.
        let slots = "slots = 512\nslot-size = \"16KB\"\n";
        let ring = |name: &str| {
            let to = "switch = \"main\"\nhold = \"10ms\"\n";
            // A guest connects to its port by itself.
            let kind = match stack {
                LINUX => "vhost-user\"\n".to_string(),
                _ => format!("ring\"\n{slots}"),
            };
            format!("[port.{name}]\nsocket = \"{name}\"\n{to}kind = \"{kind}")
        };
        let mut text = match joined {
            Joined::Switch => format!("[switch.main]\n{}{}", ring("p0"), ring("p1")),
            Joined::Pipe => format!("[port.p0]\nkind = \"pipe\"\nsocket = \"p0\"\n{slots}"),
        };
        if let Some(name) = tap {
            text += &format!("[port.tap]\nkind = \"tap\"\ninterface = \"{name}\"\nswitch = \"main\"\n");
        }
        let file = folder.path().join("fabric.toml");
        let run = folder.path().join("run");
        let fabric = format!("[fabric]\nname = \"bench\"\nrun = \"{}\"\n{text}", run.display());
        std::fs::write(&file, fabric)?;
        let mut command = Command::new(program()?);
        command.arg("up").arg(&file);
        let fabric = Running::start(&command)?;
        let ports = Ports { fabric, folder, joined, stack };
        let end = Instant::now() + SERVER_TIMEOUT;
        while [0, 1].iter().any(|place| !ports.socket(*place).exists()) {
            if Instant::now() > end {
                return Err("the fabric does not start".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(ports)
    }

    fn socket(&self, place: usize) -> PathBuf {
        let name = if self.joined == Joined::Pipe { "p0".into() } else { format!("p{place}") };
        self.folder.path().join("run").join(name)
    }

    /// Whether the fabric still runs.
    pub fn is_up(&mut self) -> bool {
        self.fabric.0.try_wait().is_ok_and(|status| status.is_none())
    }
}

impl Places for Ports {
    fn command(&self, place: usize, words: &[&OsStr]) -> Result<Command, Failure> {
        let mut command = Command::new(program()?);
        if self.stack == LINUX {
            // The kind of a port is known by its name only.
            command.arg("--socket").arg(self.folder.path().join("run/api.sock"));
        }
        match self.stack {
            DIRECT => command.args(["exec", "--direct", "--port"]),
            stack => command.args(["exec", "--stack", stack, "--port"]),
        };
        command.arg(if self.stack == LINUX { format!("p{place}").into() } else { self.socket(place) });
        command.arg("--address").arg(format!("10.95.0.{}/24", place + 1)).arg("--").args(words);
        Ok(command)
    }

    fn server(&self) -> &'static str {
        "10.95.0.1"
    }
}

/// Namespaces of the kernel.
pub struct Spaces(pub [net::Space; 2]);

impl Spaces {
    /// Creates them.
    pub fn new(joined: Joined) -> Result<Spaces, Failure> {
        let spaces = [net::Space::new()?, net::Space::new()?];
        let ends = ["vk1", "vk2"];
        match joined {
            Joined::Pipe => net::ip("link add vk1 type veth peer name vk2")?,
            Joined::Switch => {
                net::bridge("vkb")?;
                for end in ends {
                    net::ip(&format!("link add {end} type veth peer name {end}b"))?;
                    net::ip(&format!("link set {end}b master vkb addrgenmode none up"))?;
                }
            }
        }
        for ((end, space), last) in ends.iter().zip(&spaces).zip(1..) {
            space.take_with_cubic(end, [10, 97, 0, last])?;
        }
        Ok(Spaces(spaces))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        // A fabric ends with its ports' namespaces otherwise, but not at once, and the next one has the same name.
        let _ = net::ip("link del vkb");
    }
}

impl Places for Spaces {
    fn command(&self, place: usize, words: &[&OsStr]) -> Result<Command, Failure> {
        let program = words.first().and_then(|word| word.to_str()).ok_or("no program")?;
        let mut command = self.0.get(place).ok_or("no such place")?.command(program);
        command.args(words.get(1..).unwrap_or_default());
        Ok(command)
    }

    fn server(&self) -> &'static str {
        "10.97.0.1"
    }
}

/// A program that runs until it is dropped.
pub struct Running(Child);

impl Running {
    /// Starts it. Its output is discarded. It ends with this process.
    pub fn start(command: &Command) -> Result<Running, Failure> {
        let mut kept = Command::new("setpriv");
        kept.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program()).args(command.get_args());
        kept.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ok(Running(kept.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// Starts the fabric that `text` describes, `name` by its name, with `folder` for its file and run directory.
    pub fn fabric(folder: &Path, name: &str, text: &str) -> Result<Running, Failure> {
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, text)?;
        let mut command = Command::new(program()?);
        command.arg("up").arg(&file).env("RINGWAY_RUN", folder);
        Running::start(&command)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = signal(&self.0, Signal::TERM);
        let end = Instant::now() + SERVER_TIMEOUT;
        while self.0.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > end {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Starts a server, and waits until it accepts connections at a port.
pub fn serve(places: &dyn Places, port: u16, words: &[&str]) -> Result<Running, Failure> {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let running = Running::start(&places.command(0, &words)?)?;
    let at = format!("/dev/tcp/{}/{port}", places.server());
    let wait =
        format!("for i in {{1..400}}; do (exec 3<>{at}) 2>/dev/null && exit; sleep 0.02; done; exit 1");
    ask(places, &["bash", "-c", &wait], Duration::ZERO)?;
    Ok(running)
}

/// Runs a client to its end; returns what it printed.
pub fn ask(places: &dyn Places, words: &[&str], time: Duration) -> Result<String, Failure> {
    let shown = words.join(" ");
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let mut command = places.command(1, &words)?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let output = finish(child, time + LIMIT)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown}: {}", errors.lines().last().unwrap_or("it failed")).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
