//! Programs in User-Mode Linux over the host's files, beside those of the other stacks.

use crate::lab::{Folder, Lab, Running, has, is_root};
use ringway_host::{Terminal, open_terminal};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PYTHON: &str = "/usr/bin/python3";

fn can_run() -> bool {
    has("linux.uml")
}

/// Runs a program of a guest alone, with variables for `exec-on-socket`.
fn alone_with(variables: &[(&str, &str)], program: &[&str]) -> ((Option<i32>, String), String) {
    let lab = Lab::new();
    let mut command = lab.command(1, "linux", program);
    command.envs(variables.iter().copied());
    Running::of(command).end_with_errors()
}

fn alone(program: &[&str]) -> (Option<i32>, String) {
    let (ended, errors) = alone_with(&[], program);
    assert_eq!(errors, "");
    ended
}

#[test]
fn bytes_pass_between_a_guest_and_both_other_stacks() {
    if !can_run() || !has("curl") {
        return;
    }
    let folder = Folder::new("linux-bytes");
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number * 7 / 5) as u8).collect();
    folder.write("file", &content);
    let shown = folder.0.display().to_string();
    let server = format!(
        "import http.server, os
os.chdir('{shown}')
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words): pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
s = http.server.ThreadingHTTPServer(('10.0.0.1', 80), Handler)
print('ready', flush=True); s.serve_forever()"
    );
    for (one, two) in [("linux", "native"), ("native", "linux"), ("kernel", "linux"), ("linux", "linux")] {
        let lab = Lab::new();
        let start = |number, mode, program: &[&str]| {
            let mut command = lab.command(number, mode, program);
            command.env("WRITABLE", &shown);
            Running::of(command)
        };
        let mut serving = start(1, one, &[PYTHON, "-c", &server]);
        assert_eq!(serving.line(), "ready", "{one}");
        let script = format!(
            "cd {shown} && curl -sS -o got http://10.0.0.1/file && cmp got file \
             && curl -sS --data-binary @file -o back http://10.0.0.1/ && cmp back file \
             && rm got back && echo same
             curl -s http://10.0.0.1:81/; echo $?"
        );
        let ended = start(2, two, &["sh", "-c", &script]).end();
        assert_eq!(ended, (Some(0), "same\n7\n".into()), "{one} {two}");
    }
}

#[test]
fn datagrams_names_and_both_versions_of_ip_are_served() {
    if !can_run() {
        return;
    }
    let server = "import socket
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.bind(('::', 9)); print('ready', flush=True)
while True:
    data, peer = u.recvfrom(9000); u.sendto(data[::-1], peer)";
    let client = "import socket
for family, address in [(socket.AF_INET, '10.0.0.1'), (socket.AF_INET6, 'fd00::1')]:
    u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(20)
    for size in [1, 1400, 5000]:
        data = bytes(n * n % 251 for n in range(size))
        u.sendto(data, (address, 9))
        print(u.recvfrom(9000)[0] == data[::-1])
print(socket.gethostbyname(socket.gethostname()), open('/etc/resolv.conf').read().split()[-1])";
    for (one, two) in [("native", "linux"), ("linux", "kernel")] {
        let lab = Lab { names: true, ..Lab::new() };
        let mut serving = lab.start(1, one, &[PYTHON, "-c", server]);
        assert_eq!(serving.line(), "ready", "{one}");
        let ended = lab.start(2, two, &[PYTHON, "-c", client]).end();
        let expected = format!("{}10.0.0.2 10.0.0.1\n", "True\n".repeat(6));
        assert_eq!(ended, (Some(0), expected), "{one} {two}");
    }
}

#[test]
fn the_tools_are_linuxs_and_a_controller_is_one_of_the_guests() {
    if !can_run() || !has("ip") || !has("ss") {
        return;
    }
    let script = "ip -o -4 addr show eth0 | cut -d' ' -f7; cat /proc/sys/net/ipv4/tcp_congestion_control
cat /proc/sys/net/ipv4/tcp_sack; cat /proc/sys/net/core/default_qdisc
ip link show eth0 | grep -o 'qdisc [a-z]*'";
    let variables = [("CC", "bbr"), ("SYSCTL", "net.core.default_qdisc=fq")];
    let (ended, errors) = alone_with(&variables, &["sh", "-c", script]);
    assert_eq!(ended, (Some(0), "10.0.0.1/24\nbbr\n1\nfq\nqdisc fq\n".into()), "{errors}");
    let (ended, errors) = alone_with(&[("CC", "bbr9")], &["true"]);
    assert_eq!(ended.0, Some(125));
    let has =
        errors.contains("has no \"bbr9\"; it has ") && errors.contains("bbr, ") && errors.contains("cubic");
    assert!(has, "{errors}");
    let (ended, errors) = alone_with(&[("SYSCTL", "net.ipv4.nothing=1")], &["true"]);
    assert!(ended.0 == Some(125) && errors.contains("has no net.ipv4.nothing"), "{errors}");
}

#[test]
fn bbr_sends_to_the_native_stack() {
    if !can_run() || !has("ss") {
        return;
    }
    let server = "import socket; s = socket.create_server(('', 9)); print('ready', flush=True)
c, peer = s.accept(); count = 0
while data := c.recv(65536): count += len(data)
c.sendall(b'%d' % count)";
    let client = "import socket, subprocess; s = socket.create_connection(('10.0.0.1', 9))
s.sendall(bytes(2_000_000))
print('bbr' in subprocess.run(['ss', '-tin'], stdout=subprocess.PIPE, text=True).stdout)
s.shutdown(socket.SHUT_WR); print(s.recv(99))";
    let lab = Lab::new();
    let mut serving = lab.start(1, "native", &[PYTHON, "-c", server]);
    assert_eq!(serving.line(), "ready");
    let mut command = lab.command(2, "linux", &[PYTHON, "-c", client]);
    command.env("CC", "bbr");
    assert_eq!(Running::of(command).end(), (Some(0), "True\nb'2000000'\n".into()));
}

#[test]
fn files_are_read_only_but_for_a_folder() {
    if !can_run() {
        return;
    }
    let folder = Folder::new("linux-files");
    let shown = folder.0.display().to_string();
    let beside = format!("{shown}-beside");
    folder.write("old", "old");
    let script = format!(
        "for at in /etc /usr /var /root {shown}/..; do echo x 2>/dev/null >$at/ringway-new && ls -l $at; done
ls -A /tmp | grep -v $(basename {shown}); ls -A /run | grep -v ringway
mkdir /tmp/own && echo own >/tmp/own/file && cat /tmp/own/file {shown}/old
cd {shown} && umask 027 && echo new >new && mv old older && mkdir deep && ln -s new link
chmod 600 older; ls
echo x 2>/dev/null >{beside}; mount -o remount,rw / 2>/dev/null
echo x 2>/dev/null >/etc/ringway-new; echo $?"
    );
    let (ended, errors) = alone_with(&[("WRITABLE", &shown)], &["sh", "-c", &script]);
    let expected = "own\nolddeep\nlink\nnew\nolder\n";
    assert!(ended.1.contains(expected), "{ended:?} {errors}");
    assert_ne!(ended.1.lines().last(), Some("0"));
    let seen = std::fs::metadata(folder.0.join("new")).unwrap();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!((seen.permissions().mode() & 0o777, seen.uid()), (0o640, own));
    assert_eq!(std::fs::read_to_string(folder.0.join("link")).unwrap(), "new\n");
    assert_eq!(std::fs::metadata(folder.0.join("older")).unwrap().mode() & 0o777, 0o600);
    assert!(folder.0.join("deep").is_dir() && !Path::new(&beside).exists());
    assert!(!Path::new("/etc/ringway-new").exists() && !Path::new("/tmp/own").exists());
}

#[test]
fn a_folder_of_the_host_that_the_guest_does_not_have_is_named() {
    if !can_run() {
        return;
    }
    let folder = Folder::new("linux-folder");
    let lab = Lab::new();
    let mut command = lab.command(1, "linux", &["pwd"]);
    command.current_dir(&folder.0);
    let (ended, errors) = Running::of(command).end_with_errors();
    let shown = folder.0.display().to_string();
    assert!(ended.0 == Some(125) && errors.contains(&format!("or add --writable {shown}")), "{errors}");
    let mut command = lab.command(1, "linux", &["pwd"]);
    command.current_dir(&folder.0).env("WRITABLE", &folder.0);
    assert_eq!(Running::of(command).end(), (Some(0), format!("{shown}\n")));
}

#[test]
fn status_signals_and_limits_are_those_of_the_program() {
    if !can_run() {
        return;
    }
    assert_eq!(alone(&["sh", "-c", "exit 7"]).0, Some(7));
    let lab = Lab::new();
    let mut own = lab.start(1, "linux", &["sh", "-c", "trap 'echo term; exit 3' TERM; echo ready; read x"]);
    assert_eq!(own.line(), "ready");
    kill_process(Pid::from_child(&own.child), Signal::TERM).unwrap();
    assert_eq!(own.end(), (Some(3), "term\n".into()));
    let mut killed = lab.start(1, "linux", &["sh", "-c", "kill -USR1 $$"]);
    let status = killed.child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(10));
    let (missing, errors) = alone_with(&[], &["no-such-program"]);
    assert_eq!(missing.0, Some(125));
    assert!(errors.contains("no-such-program: No such file"), "{errors}");
    // What it leaves running ends with it.
    assert_eq!(alone(&["sh", "-c", "setsid sleep 1000 & echo left"]), (Some(0), "left\n".into()));
    let (_, errors) = alone_with(&[("KERNEL", "/nowhere/linux")], &["true"]);
    assert!(errors.contains("/nowhere/linux is not there") && errors.contains("user-mode-linux"), "{errors}");
    let (_, errors) = alone_with(&[("KERNEL", "/bin/false")], &["true"]);
    assert!(errors.contains("the guest's kernel has ended (exit status: 1)"), "{errors}");
}

#[test]
fn input_and_output_pass_unchanged() {
    if !can_run() {
        return;
    }
    let lab = Lab::new();
    let mut running = lab.start(1, "linux", &["sh", "-c", "cat; echo errors >&2"]);
    let content: Vec<u8> = (0..300_000_u32).map(|number| (number.wrapping_mul(number) / 3) as u8).collect();
    let mut input = running.child.stdin.take().unwrap();
    let sent = content.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let mut got = vec![0; content.len()];
    running.read(&mut got);
    writer.join().unwrap().unwrap();
    assert!(got == content);
    assert_eq!(running.end_with_errors(), ((Some(0), String::new()), "errors\n".into()));
    // Who reads the output goes; the program is told as by a pipe.
    let mut endless = lab.start(1, "linux", &["sh", "-c", "yes; echo $? >&2"]);
    assert_eq!(endless.line(), "y");
    endless.close_output();
    endless.child.wait().unwrap();
    let mut errors = String::new();
    endless.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "141\n");
}

#[test]
fn a_program_has_a_terminal_where_the_user_has_one() {
    if !can_run() {
        return;
    }
    let Ok(Terminal { screen, program }) = open_terminal() else { return };
    let lab = Lab::new();
    let script = "tty; stty size; test -t 2 || echo no; read -r x; echo got $x; trap 'echo int; exit 9' INT
echo ready; sleep 50";
    let mut command = lab.command(1, "linux", &["sh", "-c", script]);
    rustix::termios::tcsetwinsize(
        &screen,
        rustix::termios::Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 },
    )
    .unwrap();
    let before = rustix::termios::tcgetattr(&program).unwrap();
    let end = |end: &OwnedFd| Stdio::from(end.try_clone().unwrap());
    let mut child = command.stdin(end(&program)).stdout(end(&program)).stderr(Stdio::null()).spawn().unwrap();
    let mut shown = String::new();
    let mut until = |what: &str| {
        let limit = Instant::now() + Duration::from_secs(60);
        while !shown.contains(what) {
            assert!(Instant::now() < limit, "{shown}");
            let mut bytes = [0; 500];
            let count = rustix::io::read(&screen, &mut bytes).unwrap();
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    until("no\r\n");
    rustix::io::write(&screen, b"typed\r").unwrap();
    until("ready\r\n");
    rustix::io::write(&screen, b"\x03").unwrap();
    until("int\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(
        shown.starts_with("/dev/pts/0\r\n33 101\r\nno\r\n") && shown.contains("got typed\r\n"),
        "{shown}"
    );
    let after = rustix::termios::tcgetattr(&program).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
}

/// Processes whose command line has a word.
fn processes_with(word: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |number: &i32| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    numbers.filter(has).collect()
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    if !can_run() {
        return;
    }
    let files = || -> Vec<_> {
        let folders =
            ["/dev/shm", "/run"].map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        let ours = |path: &std::path::PathBuf| {
            // Others' tests run at the same time.
            path.file_name().is_some_and(|name| name == "ringway")
        };
        folders.into_iter().flatten().map(|entry| entry.path()).filter(ours).collect()
    };
    let before = files();
    for signal in [Signal::KILL, Signal::TERM] {
        let lab = Lab::new();
        let mut running = lab.start(1, "linux", &["sh", "-c", "echo ready; sleep 1000 & sleep 1001"]);
        assert_eq!(running.line(), "ready");
        let launcher = running.child.id();
        let guest = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
        let guest: i32 = guest.trim().parse().unwrap();
        let group: Vec<i32> = processes_with("exec-first-process");
        assert!(group.contains(&guest));
        kill_process(Pid::from_child(&running.child), signal).unwrap();
        running.child.wait().unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while Path::new(&format!("/proc/{guest}")).exists() {
            assert!(Instant::now() < limit, "the guest goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(files(), before);
    }
}

#[test]
fn a_program_that_breaks_the_line_ends_with_its_guest() {
    if !can_run() || !is_root() {
        return;
    }
    let (ended, errors) =
        alone_with(&[], &["sh", "-c", "printf '\\377\\377\\377\\377\\377' >/dev/ttyS0; sleep 1000"]);
    assert_eq!(ended.0, Some(125));
    assert!(errors.contains("the guest sends what is no message"), "{errors}");
}

#[test]
fn a_user_without_rights_runs_one() {
    if !can_run() || !is_root() || !has("setpriv") {
        return;
    }
    let lab = Lab { user: Some(crate::lab::NOBODY), ..Lab::new() };
    let mut command = lab.command(
        1,
        "linux",
        &["sh", "-c", "id -u; cat /etc/hostname >/dev/null && head -c 9 /etc/shadow"],
    );
    command.current_dir("/");
    let (ended, errors) = Running::of(command).end_with_errors();
    if ended.0 == Some(125) && errors.contains("namespaces") {
        eprintln!("not run: users may not create namespaces here");
        return;
    }
    assert_eq!(ended, (Some(1), "65534\n".into()), "{errors}");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]);
    assert!(command.status().unwrap().success());
}
