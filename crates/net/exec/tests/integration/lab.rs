//! Two programs whose networks are joined by a pair of sockets.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whose TCP serves the first program, and the second.
pub type Modes = (&'static str, &'static str);

/// The kernel's alone is what the others are compared with.
pub const MODES: [Modes; 4] =
    [("kernel", "kernel"), ("kernel", "native"), ("native", "kernel"), ("native", "native")];
/// With the preloaded library, by which each connection enters the shared stack at the first call that reads or writes.
pub const DIRECT: [Modes; 3] = [("kernel", "kernel"), ("direct", "kernel"), ("kernel", "direct")];

/// With the program of one side in User-Mode Linux.
pub const LINUX: [Modes; 3] = [("kernel", "kernel"), ("linux", "kernel"), ("kernel", "linux")];

/// No test takes as long.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of frames on their way.
const QUEUE: usize = 1 << 21;

/// A user without rights.
pub const NOBODY: u32 = 65_534;

/// Two joined networks.
pub struct Lab {
    pub ends: [UnixDatagram; 2],
    /// Runs the programs as this user; as the one who runs the tests if none.
    pub user: Option<u32>,
    /// Whether 10.0.0.1 is the second program's name server.
    pub names: bool,
    /// The folder that guests share with the host.
    pub shared: Option<String>,
}

impl Lab {
    pub fn new() -> Lab {
        let (one, two) = UnixDatagram::pair().unwrap();
        for end in [&one, &two] {
            end.set_nonblocking(true).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(end, QUEUE).unwrap();
        }
        Lab { ends: [one, two], user: None, names: false, shared: None }
    }

    /// Starts a program with the addresses 10.0.0.1 and fd00::1, or 10.0.0.2 and fd00::2, in `mode`.
    pub fn start(&self, number: usize, mode: &str, program: &[&str]) -> Running {
        Running::of(self.command(number, mode, program))
    }

    /// The command that does.
    pub fn command(&self, number: usize, mode: &str, program: &[&str]) -> Command {
        // Every started program gets both ends, and uses one.
        let end = &self.ends[number - 1];
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty()).unwrap();
        self.command_on(&end.as_raw_fd().to_string(), number, mode, program)
    }

    /// The command that runs a program on the network that `device` says.
    pub fn command_on(&self, device: &str, number: usize, mode: &str, program: &[&str]) -> Command {
        let driver = env!("CARGO_BIN_EXE_exec-on-socket");
        let mut command = match self.user {
            None => Command::new(driver),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
                command.arg(driver);
                command
            }
        };
        if mode == "linux" {
            // A guest does not have every folder of the host, below /tmp for instance.
            command.current_dir("/");
            command.envs(self.shared.iter().map(|folder| ("WRITABLE", folder)));
        }
        let is_direct = mode == "direct";
        if is_direct {
            command.env("DIRECT", "0");
        }
        command.arg(device).arg(if is_direct { "native" } else { mode });
        command.arg(format!("10.0.0.{number}/24,fd00::{number}/64"));
        if self.names && number == 2 {
            command.env("DNS", "10.0.0.1");
        }
        command.args(program);
        command
    }
}

/// A program that runs.
pub struct Running {
    pub child: Child,
    out: BufReader<Box<dyn Read>>,
}

impl Running {
    /// Runs a command.
    pub fn of(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out: Box<dyn Read> = Box::new(child.stdout.take().unwrap());
        let out = BufReader::new(out);
        Running { child, out }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    /// Reads so many bytes that it prints.
    pub fn read(&mut self, bytes: &mut [u8]) {
        self.out.read_exact(bytes).unwrap();
    }

    /// Reads no more of what it prints.
    pub fn close_output(&mut self) {
        let (reader, _) = std::io::pipe().unwrap();
        self.out = BufReader::new(Box::new(reader));
    }

    /// Waits for the end: its exit status, and the rest of what it printed.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let (end, errors) = self.end_with_errors();
        if !errors.is_empty() {
            eprintln!("{errors}");
        }
        end
    }

    /// As [`Running::end`], and what it printed to standard error.
    pub fn end_with_errors(&mut self) -> ((Option<i32>, String), String) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut errors = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                return ((status.code(), text), errors);
            }
            assert!(Instant::now() < end, "the program hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let pid = rustix::process::Pid::from_child(&self.child);
        if self.child.try_wait().unwrap().is_none() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            self.child.wait().unwrap();
        }
    }
}

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ringway-exec-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        // Programs of other users read it too.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Folder(path)
    }

    /// Writes a file there; returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command of the test itself; whether it succeeded.
pub fn succeeds(command: &mut Command) -> bool {
    let output = command.output().unwrap();
    if !output.status.success() {
        eprintln!("not run: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// Whether it runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this is a long run (`make soak`).
pub fn is_long() -> bool {
    std::env::var_os("RINGWAY_ROUNDS").is_some()
}

/// Runs a program alone in both modes. What it prints must be the same; returns that.
pub fn alone(program: &[&str]) -> String {
    let [kernel, native] = ["kernel", "native"].map(|mode| Lab::new().start(1, mode, program).end());
    assert_eq!(native, kernel);
    assert_eq!(kernel.0, Some(0));
    kernel.1
}

/// Whether a program is installed.
pub fn has(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .chain(["/usr/sbin".into()])
        .any(|folder| folder.join(program).exists());
    if !found {
        eprintln!("not run: {program} is not installed");
    }
    found
}

/// Runs a client against a server in every pair of modes; the server's first line says that it is ready. Both outputs
/// must be what they are with the kernel's TCP on both sides. Returns them.
pub fn compare(server: &[&str], client: &[&str]) -> (String, String) {
    compare_in(Lab::new, server, client)
}

/// As [`compare`], with the preloaded library on one of the sides.
pub fn compare_direct(server: &[&str], client: &[&str]) -> (String, String) {
    compare_modes(&DIRECT, Lab::new, server, client)
}

/// As [`compare`] and [`compare_direct`].
pub fn compare_all(server: &[&str], client: &[&str]) -> (String, String) {
    compare_modes(&[&MODES[..], &DIRECT[1..]].concat(), Lab::new, server, client)
}

/// As [`compare`], with each of the programs in a guest. It has the folder.
pub fn compare_linux(folder: Option<&Folder>, server: &[&str], client: &[&str]) {
    if has("linux.uml") {
        let shared = folder.map(|folder| folder.0.display().to_string());
        compare_modes(&LINUX, || Lab { shared: shared.clone(), ..Lab::new() }, server, client);
    }
}

/// As [`compare`], in other networks.
pub fn compare_in(lab: impl Fn() -> Lab, server: &[&str], client: &[&str]) -> (String, String) {
    compare_modes(&MODES, lab, server, client)
}

fn compare_modes(all: &[Modes], lab: impl Fn() -> Lab, server: &[&str], client: &[&str]) -> (String, String) {
    let mut expected = None;
    for modes in all {
        let lab = lab();
        let mut serving = lab.start(1, modes.0, server);
        let first = serving.line();
        let mut asking = lab.start(2, modes.1, client);
        let (status, answer) = asking.end();
        assert_eq!(status, Some(0), "{modes:?}: {answer}");
        drop(asking);
        let kernel = expected.get_or_insert((first.clone(), answer.clone()));
        assert_eq!(*kernel, (first, answer), "{modes:?}");
    }
    expected.unwrap()
}
