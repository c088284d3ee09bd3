//! Two programs whose networks are joined by a pair of sockets.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whose TCP serves the first program, and the second.
pub type Modes = (&'static str, &'static str);

/// The kernel's alone is what the others are compared with.
pub const MODES: [Modes; 4] =
    [("kernel", "kernel"), ("kernel", "native"), ("native", "kernel"), ("native", "native")];

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
}

impl Lab {
    pub fn new() -> Lab {
        let (one, two) = UnixDatagram::pair().unwrap();
        for end in [&one, &two] {
            end.set_nonblocking(true).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(end, QUEUE).unwrap();
        }
        Lab { ends: [one, two], user: None }
    }

    /// Starts a program with the address 10.0.0.1, or 10.0.0.2, in `mode`.
    pub fn start(&self, number: usize, mode: &str, program: &[&str]) -> Running {
        Running::of(self.command(number, mode, program))
    }

    /// The command that does.
    pub fn command(&self, number: usize, mode: &str, program: &[&str]) -> Command {
        // Every started program gets both ends, and uses one.
        let end = &self.ends[number - 1];
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty()).unwrap();
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
        command.arg(end.as_raw_fd().to_string()).arg(mode).arg(format!("10.0.0.{number}/24"));
        command.args(program);
        command
    }
}

/// A program that runs.
pub struct Running {
    pub child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Runs a command.
    pub fn of(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    /// Waits for the end: its exit status, and the rest of what it printed.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut errors = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                if !errors.is_empty() {
                    eprintln!("{errors}");
                }
                return (status.code(), text);
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
    let mut expected = None;
    for modes in MODES {
        let lab = Lab::new();
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
