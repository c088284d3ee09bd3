//! Operations that a confined process can and can't perform. Runs without a test harness, whose threads and files
//! would be confined too.

use ringway_host::kvm::Machine;
use ringway_host::{
    Clock, Epoll, EventFd, HostError, Mapping, MonitorFence, Signal, catch_sigbus, confine_data,
    confine_function, grace, map_region, memfd, receive_with, send_with, spawn, wait_readable,
};
use ringway_mem::{Hint, Memory, Region};
use std::io::ErrorKind::PermissionDenied;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("confined") => return confined(),
        Some("monitor") => return monitor(MonitorFence::new),
        Some("monitor in two parts") => return monitor(MonitorFence::begin),
        Some("function behind a part") => return function_behind_a_part(),
        _ => {}
    }
    let program = std::env::current_exe().expect("a running program has a path");
    for part in ["confined", "monitor", "monitor in two parts", "function behind a part"] {
        let status = Command::new(&program).arg(part).status().expect("the test runs itself");
        assert!(status.success(), "{part}: {status}");
    }
}

fn confined() {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let file = memfd("before", 8192).expect("a memfd");
    let confinement = confine_data().expect("this kernel has seccomp");
    // In a user namespace without `nobody`, root stays root.
    assert!(confinement.is_namespaced || !rustix::process::geteuid().is_root());
    catch_sigbus().expect("a handler");
    let parts = move || {
        cannot();
        assert_eq!(call(libc::SYS_accept4, 0, 0, 0), Some(libc::EPERM), "accept4");
        can(&ours, &theirs, &file);
    };
    parts();
    let thread = spawn("confined", None, parts);
    thread.expect("threads can be made").join().expect("what holds for the first thread holds for all");
}

/// A monitor's requests of KVM that are refused, by name and number (linux/kvm.h).
const REFUSED: &[(&str, usize)] = &[
    ("KVM_GET_API_VERSION", 0xae00),
    ("KVM_CREATE_VM", 0xae01),
    ("KVM_GET_VCPU_MMAP_SIZE", 0xae04),
    ("KVM_CREATE_VCPU", 0xae41),
    ("KVM_GET_DIRTY_LOG", 0x4010_ae42),
    ("KVM_SET_TSS_ADDR", 0xae47),
    ("KVM_CREATE_IRQCHIP", 0xae60),
    ("KVM_IRQFD", 0x4020_ae76),
    ("KVM_SET_REGS", 0x4090_ae82),
    ("KVM_SET_SREGS", 0x4138_ae84),
    ("KVM_TRANSLATE", 0xc018_ae85),
    ("KVM_SET_MSRS", 0x4008_ae89),
    ("KVM_SET_CPUID2", 0x4008_ae90),
    ("KVM_ENABLE_CAP", 0x4068_aea3),
    ("KVM_CREATE_DEVICE", 0xc00c_aee0),
    ("KVM_SET_USER_MEMORY_REGION2", 0x40a0_ae49),
    ("TUNSETIFF", 0x4004_54ca),
    ("TIOCSTI", 0x5412),
];

/// What was to be a monitor runs its function by itself: it may do no more than another function's process.
fn function_behind_a_part() {
    let _rest = MonitorFence::begin().expect("this kernel has seccomp");
    confine_function(54_321, 256 << 20).expect("this kernel has seccomp");
    cannot();
    let requests = [("KVM_RUN", 0xae80), ("KVM_SET_USER_MEMORY_REGION", 0x4020_ae46)];
    for (what, number) in REFUSED.iter().chain(&requests) {
        assert_eq!(call(libc::SYS_ioctl, 0, *number, 0), Some(libc::EPERM), "{what}");
    }
    let thread = spawn("function", None, cannot).expect("threads can be made");
    thread.join().expect("what holds for the first thread holds for all");
}

/// A monitor may run the machine that it has, and change its memory and doorbells, and no more.
fn monitor(fence: fn() -> Result<MonitorFence, HostError>) {
    // The fences are the same where KVM can't be opened.
    let mut machine = Machine::new().ok();
    fence().and_then(|fence| fence.confine(54_321, 0)).expect("this kernel has seccomp");
    cannot();
    for (what, number) in REFUSED {
        assert_eq!(call(libc::SYS_ioctl, 0, *number, 0), Some(libc::EPERM), "{what}");
    }
    assert!(Machine::new().is_err(), "another machine");
    let thread = spawn("monitor", None, cannot).expect("threads can be made");
    thread.join().expect("what holds for the first thread holds for all");
    let Some(machine) = &mut machine else { return eprintln!("left out: there is no KVM here") };
    let is_denied = |error: HostError| match error {
        HostError::Call { error, .. } => error == rustix::io::Errno::PERM,
        _ => false,
    };
    let memory = machine.space().add_memory(&Region::private(0, 0, 4096)).expect("memory");
    machine.space().remove_memory(memory).expect("no memory");
    let event = EventFd::new().expect("an eventfd").as_fd().try_clone_to_owned().expect("a copy");
    let doorbell = machine.space().add_doorbell(0xd000_0000, event).expect("a doorbell");
    machine.space().remove_doorbell(&doorbell).expect("no doorbell");
    // The doorbell's address has no memory.
    assert!(!machine.run().map(drop).is_err_and(is_denied), "it runs");
    assert!(machine.enter_pvh(0, 0).is_err_and(is_denied), "its registers can't be changed");
}

fn call(number: libc::c_long, first: usize, second: usize, third: usize) -> Option<i32> {
    // SAFETY: each call is refused before it reads its arguments; if not, the test fails, whatever it did.
    let result = unsafe { libc::syscall(number, first, second, third, 0, 0, 0) };
    if result == -1 { std::io::Error::last_os_error().raw_os_error() } else { None }
}

fn cannot() {
    let denied = |result: std::io::Result<()>, what: &str| {
        assert_eq!(result.err().map(|error| error.kind()), Some(PermissionDenied), "{what}");
    };
    denied(std::fs::File::open("/etc/passwd").map(drop), "open");
    denied(std::fs::File::create("/tmp/ringway-confined").map(drop), "create");
    denied(std::fs::read_dir("/").map(drop), "reading a folder");
    denied(std::fs::remove_file("/tmp/ringway-nothing"), "unlink");
    denied(std::net::UdpSocket::bind("127.0.0.1:0").map(drop), "socket");
    denied(std::net::TcpStream::connect("127.0.0.1:1").map(drop), "connect");
    denied(UnixStream::connect("/run/nothing").map(drop), "connect");
    denied(UnixStream::pair().map(drop), "socketpair");
    denied(Command::new("/bin/true").status().map(drop), "fork and exec");
    let executable = libc::PROT_READ as usize | libc::PROT_EXEC as usize;
    let page = [0_u8; 4096];
    let refused = [
        ("execve", call(libc::SYS_execve, 0, 0, 0)),
        ("execveat", call(libc::SYS_execveat, 0, 0, 0)),
        ("fork", call(libc::SYS_clone, libc::SIGCHLD as usize, 0, 0)),
        ("ptrace", call(libc::SYS_ptrace, libc::PTRACE_TRACEME as usize, 0, 0)),
        ("process_vm_readv", call(libc::SYS_process_vm_readv, 1, 0, 0)),
        ("process_vm_writev", call(libc::SYS_process_vm_writev, 1, 0, 0)),
        ("mount", call(libc::SYS_mount, 0, 0, 0)),
        ("kill", call(libc::SYS_kill, std::process::id() as usize, 0, 0)),
        ("tgkill", call(libc::SYS_tgkill, 1, 1, 0)),
        ("setuid", call(libc::SYS_setuid, 0, 0, 0)),
        ("bpf", call(libc::SYS_bpf, 0, 0, 0)),
        ("io_uring_setup", call(libc::SYS_io_uring_setup, 1, 0, 0)),
        ("userfaultfd", call(libc::SYS_userfaultfd, 0, 0, 0)),
        ("unshare", call(libc::SYS_unshare, libc::CLONE_NEWUSER as usize, 0, 0)),
        ("openat2", call(libc::SYS_openat2, 0, 0, 0)),
        ("bind", call(libc::SYS_bind, 0, 0, 0)),
        ("executable mmap", call(libc::SYS_mmap, 0, 4096, executable)),
        ("executable mprotect", call(libc::SYS_mprotect, page.as_ptr().addr(), 4096, executable)),
        ("TUNSETIFF", call(libc::SYS_ioctl, 0, 0x4004_54ca, 0)),
        ("F_SETOWN", call(libc::SYS_fcntl, 0, libc::F_SETOWN as usize, 1)),
        ("seccomp", call(libc::SYS_seccomp, 0, 0, 0)),
    ];
    for (what, errno) in refused {
        assert_eq!(errno, Some(libc::EPERM), "{what}");
    }
}

fn can(ours: &UnixStream, theirs: &UnixStream, file: &OwnedFd) {
    let event = EventFd::new().expect("an eventfd");
    let epoll = Epoll::new().expect("an epoll");
    epoll.add_edge(event.as_fd(), 5).expect("watching");
    event.signal();
    let mut keys = Vec::new();
    epoll.wait(Some(1_000_000), |key| keys.push(key));
    assert_eq!(keys, [5]);
    epoll.wait(Some(100_000), |key| keys.push(key));
    assert_eq!(keys, [5]);
    send_with(theirs, b"x", &[file.as_fd()]).expect("sending");
    assert_eq!(wait_readable(&[ours.as_fd()], None).expect("poll"), [true]);
    let (count, received) = receive_with(ours, &mut [0; 8], 4).expect("receiving");
    assert_eq!((count, received.len()), (1, 1));
    let region = map_region(&received[0], 0, 8192, 0x1000, 0).expect("mapping what was received");
    let memory = Memory::new(vec![region]).expect("one region");
    memory.span_mut(0x1000, 4, &mut Hint::default()).expect("its begin").write(b"ring");
    drop(Mapping::sealed(&received[0]).expect("mapping again"));
    ours.set_nonblocking(true).expect("a socket that doesn't block");
    ours.set_nonblocking(false).expect("and does again");
    wake();
    grace();
    assert!(Clock::new().now() > 0);
    let large = vec![1_u8; 64 << 20];
    assert_eq!(large.iter().filter(|&&byte| byte == 1).count(), large.len());
    ringway_host::random().expect("a random number");
    let pinned = ringway_host::allowed_cores().expect("cores").first().copied();
    let thread = spawn("pinned", pinned, ringway_host::allowed_cores).expect("a pinned thread");
    assert_eq!(thread.join().expect("it ends").expect("cores").first().copied(), pinned);
}

/// Signals peers whose descriptors are full and blocking.
fn wake() {
    let (event, (reader, writer)) = (EventFd::new().expect("an eventfd"), std::io::pipe().expect("a pipe"));
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("an eventfd takes nearly all");
    rustix::fs::fcntl_setfl(&event, rustix::fs::OFlags::empty()).expect("it blocks now");
    let fds = [event.as_fd(), writer.as_fd()].map(|fd| Arc::new(fd.try_clone_to_owned().expect("a copy")));
    let signals = fds.map(|fd| Signal::of(fd).expect("an eventfd and a pipe are ways to wake somebody"));
    (0..1000).for_each(|_| signals.iter().for_each(Signal::send));
    assert_eq!(wait_readable(&[event.as_fd(), reader.as_fd()], None).expect("poll"), [true, true]);
}
