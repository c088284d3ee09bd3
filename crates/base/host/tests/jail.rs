//! The files and operations available to a program in a jail, checked by a shell.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]

use ringway_host::jail::{Calls, ControlGroup, Fence, Jail, Limits, Pipes, Program, can_change_user, fence};
use ringway_host::{SocketFile, SocketRights};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// A statically linked shell with the usual programs; tests are skipped where it is not installed.
const SHELL: &str = "/bin/busybox";
/// A user id that is not used otherwise.
const USER: u32 = 1_900_123_456;

/// A test's folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ringway-jail-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftovers are harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `false`, with a message, if there is no confinement or no shell.
fn can_be_tried() -> bool {
    let can = fence() == Fence::Namespaces && Path::new(SHELL).is_file();
    if !can {
        eprintln!("no namespaces or no {SHELL} here: not tried");
    }
    can
}

fn jail() -> Jail<'static> {
    let user = can_change_user().then_some(USER);
    let scratch = Some((PathBuf::from("/dev/shm/own"), 1 << 20));
    Jail { user, read: vec![SHELL.into()], write: vec!["/dev/null".into()], scratch, ..Jail::default() }
}

/// The output and exit status of a script in a jail.
fn run(jail: &Jail<'_>, script: &str) -> (String, ExitStatus) {
    let arguments = ["sh".to_string(), "-c".to_string(), script.to_string()];
    let environment = [("MARK".to_string(), "here".to_string())];
    let path = Path::new(SHELL);
    let program = Program { path, arguments: &arguments, environment: &environment };
    let (jailed, Pipes { input, mut output, mut errors }) = jail.start(&program).unwrap();
    drop(input);
    let (mut text, mut error_text) = (String::new(), String::new());
    output.read_to_string(&mut text).unwrap();
    errors.read_to_string(&mut error_text).unwrap();
    (text + &error_text, jailed.wait())
}

fn says(jail: &Jail<'_>, script: &str) -> String {
    let (output, status) = run(jail, script);
    assert!(status.success(), "{script}: {status}: {output}");
    output.trim().to_string()
}

#[test]
fn a_jail_shows_only_the_listed_files() {
    if !can_be_tried() {
        return;
    }
    let jail = jail();
    let mut seen: Vec<String> = says(&jail, "cd /; busybox find .").lines().map(String::from).collect();
    seen.sort();
    let expected = [".", "./bin", "./bin/busybox", "./dev", "./dev/null", "./dev/shm", "./dev/shm/own"];
    assert_eq!(seen, expected);
    assert_eq!(says(&jail, "echo $MARK; busybox env | busybox grep -c CARGO; true"), "here\n0");
    let writes =
        "for f in /a /bin/busybox /dev/x; do (echo 1 >$f) 2>/dev/null && echo wrote $f; done; echo over";
    assert_eq!(says(&jail, writes), "over");
    assert_eq!(says(&jail, "echo kept >/dev/shm/own/f && busybox cat /dev/shm/own/f"), "kept");
    let full = "busybox dd if=/dev/zero of=/dev/shm/own/f bs=4096 count=1000; echo $?";
    assert!(says(&Jail { read: vec![SHELL.into(), "/dev/zero".into()], ..jail }, full).contains("No space"));
}

#[test]
fn a_jailed_program_has_its_own_user_and_no_capabilities_or_foreign_descriptors() {
    if !can_be_tried() {
        return;
    }
    let mut jail = jail();
    // The host's own `/proc`, so that the kernel's checks are tested.
    jail.read.push("/proc".into());
    let kept = std::fs::File::open("/etc/passwd").unwrap();
    let open = rustix::io::fcntl_dupfd_cloexec(&kept, 50).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    // In a new process namespace the host's `/proc/self` is empty; the process is found by its command line.
    let found = "busybox grep -l 'jail-mark' /proc/[0-9]*/cmdline 2>/dev/null";
    let number = format!("n=$({found} | busybox cut -d/ -f3 | busybox head -n 1)");
    let script = format!("{number}; busybox cat /proc/$n/status; busybox ls /proc/$n/fd; : jail-mark");
    let output = says(&jail, &script);
    let field = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    if let Some(user) = jail.user {
        assert_eq!(field("Uid:"), format!("{user} {user} {user} {user}"));
        assert_eq!(field("Gid:"), format!("{user} {user} {user} {user}"));
        assert_eq!(field("Groups:"), "");
    }
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert!(!output.lines().any(|line| line == "50"), "{output}");
    assert_eq!(says(&jail, "echo $$"), "1", "it has processes of its own");
    let kill = format!("busybox kill -0 {} 2>/dev/null || echo none", std::process::id());
    assert_eq!(says(&jail, &kill), "none");
}

#[test]
fn a_jailed_program_connects_only_to_its_sockets() {
    if !can_be_tried() {
        return;
    }
    let folder = Folder::new("sockets");
    let (mut jail, socket) = (jail(), folder.0.join("a.sock"));
    let rights = SocketRights { owner: jail.user, group: jail.user, mode: 0o600 };
    let listener = SocketFile::bind(&socket, rights).unwrap();
    jail.sockets = vec![socket.clone()];
    let other = folder.0.join("b.sock");
    let _other = SocketFile::bind(&other, rights).unwrap();
    let look = format!("[ -S {} ] && echo there; busybox ls {}", socket.display(), folder.0.display());
    assert_eq!(says(&jail, &look), "there\na.sock");
    drop(listener);
    std::os::unix::fs::symlink("/etc/passwd", &socket).unwrap();
    let path = Path::new(SHELL);
    let program = Program { path, arguments: &[], environment: &[] };
    let refused = jail.start(&program).unwrap_err().to_string();
    assert!(refused.contains("a.sock"), "{refused}");
}

#[test]
fn a_jailed_program_makes_only_user_mode_linux_calls() {
    if !can_be_tried() {
        return;
    }
    let filtered = Jail { calls: Calls::Uml, ..jail() };
    for script in [
        "busybox unshare -U true",
        "busybox chroot / true",
        "busybox nc 127.0.0.1 1",
        "busybox renice -n 1 -p 1",
    ] {
        let (output, status) = run(&filtered, script);
        assert!(!status.success(), "{script}: {output}");
        assert!(output.contains("not implemented"), "{script}: {output}");
    }
    let usual = "busybox true && echo a >/dev/shm/own/f && busybox cat /dev/shm/own/f | busybox tr a b";
    assert_eq!(says(&filtered, usual), "b");
}

/// What a guest that took over QEMU can't do, even before QEMU's own filter is in place.
#[test]
fn a_jailed_qemu_makes_no_namespaces_and_only_unix_sockets() {
    if !can_be_tried() {
        return;
    }
    let filtered = Jail { calls: Calls::Qemu, ..jail() };
    for script in ["busybox unshare -U true", "busybox chroot / true", "busybox nc 127.0.0.1 1"] {
        let (output, status) = run(&filtered, script);
        assert!(!status.success() && output.contains("not implemented"), "{script}: {output}");
    }
    assert_eq!(says(&filtered, "busybox echo a | busybox tr a b"), "b");
}

/// Attack: a guest with hundreds of busy processes, each of which would otherwise have as much CPU time as a worker.
#[test]
fn busy_jailed_programs_share_the_cpu_time_of_one_thread() {
    if !can_be_tried() {
        return;
    }
    let group = match ControlGroup::new(Limits { memory: 64 << 20, threads: 1 }) {
        Ok(group) if group.shares_processors() => group,
        other => return eprintln!("no control groups for CPU time here ({other:?}): not tried"),
    };
    let jail = Jail { group: Some(&group), read: vec![SHELL.into()], ..jail() };
    let own = format!("ringway-{}-", std::process::id());
    let arguments = ["sh".to_string(), "-c".into(), "read a".into()];
    let program = Program { path: Path::new(SHELL), arguments: &arguments, environment: &[] };
    let (jailed, _pipes) = jail.start(&program).unwrap();
    let process = jailed.process().as_raw_nonzero();
    let joined = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let of_processors = |line: &&str| {
        line.starts_with("0::")
            || line.split(':').nth(1).is_some_and(|all| all.split(',').any(|it| it == "cpu"))
    };
    assert!(joined.lines().filter(of_processors).any(|line| line.contains(&own)), "{joined}");
}

#[test]
fn a_jailed_programs_memory_is_limited() {
    if !can_be_tried() {
        return;
    }
    let group = match ControlGroup::new(Limits { memory: 32 << 20, threads: 1 }) {
        Ok(group) => group,
        Err(error) => return eprintln!("no control groups here ({error}): not tried"),
    };
    let scratch = Some((PathBuf::from("/dev/shm/own"), 256 << 20));
    let read = vec![SHELL.into(), "/dev/zero".into()];
    let jail = Jail { group: Some(&group), scratch, read, ..jail() };
    let fill =
        |count| format!("busybox dd if=/dev/zero of=/dev/shm/own/f bs=1048576 count={count} 2>/dev/null");
    assert!(run(&jail, &fill(8)).1.success());
    assert!(!run(&jail, &format!("{}; busybox test $? = 0", fill(128))).1.success(), "more than its bound");
}

#[test]
fn a_jailed_program_ends_with_its_children_and_uses_its_pipes() {
    if !can_be_tried() {
        return;
    }
    let arguments = [
        "sh".to_string(),
        "-c".into(),
        "busybox sleep 1000 & read a; echo got $a; echo that >&3; exec busybox sleep 1000".into(),
    ];
    let path = Path::new(SHELL);
    let program = Program { path, arguments: &arguments, environment: &[] };
    let (jailed, Pipes { mut input, mut output, mut errors }) = jail().start(&program).unwrap();
    input.write_all(b"this\n").unwrap();
    let mut answer = [0; 9];
    output.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"got this\n");
    let mut error_text = [0; 5];
    errors.read_exact(&mut error_text).unwrap();
    assert_eq!(&error_text, b"that\n");
    rustix::process::kill_process(jailed.process(), rustix::process::Signal::KILL).unwrap();
    assert!(!jailed.wait().success());
    // The processes that it started had these descriptors too, and have ended.
    assert_eq!(output.read(&mut [0; 9]).unwrap(), 0);
}
