//! The current state and capabilities of this machine, without judging them.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Whether a device file can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device can be used.
    Usable,
    /// The file does not exist.
    Missing,
    /// Opening it is not permitted.
    Denied,
    /// The file exists, but the device does not work.
    Broken,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of one page.
    pub size: u64,
    /// Total number of pages.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
}

impl HugePages {
    /// Huge pages of all sizes that the kernel supports, smallest first.
    pub fn list() -> Vec<HugePages> {
        huge_pages(Path::new("/sys/kernel/mm/hugepages"))
    }
}

/// A resource limit of this process; `None` if unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The current limit.
    pub soft: Option<u64>,
    /// The highest value that it may be raised to.
    pub hard: Option<u64>,
}

/// When the kernel uses transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transparent {
    /// Always.
    Always,
    /// On request.
    Madvise,
    /// Never, or not for this kind of memory.
    Never,
}

/// Processor cores, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// Online cores.
    pub online: Vec<usize>,
    /// Cores that this process may use.
    pub allowed: Vec<usize>,
    /// Cores excluded from scheduling (`isolcpus=`).
    pub isolated: Vec<usize>,
    /// Cores without a timer tick while only one thread runs there (`nohz_full=`).
    pub tickless: Vec<usize>,
}

/// Properties of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The kernel's release, as in `uname -r`.
    pub kernel: String,
    /// Processor cores.
    pub cores: Cores,
    /// Total and available memory in bytes.
    pub memory: (u64, u64),
    /// Huge pages, smallest first.
    pub huge_pages: Vec<HugePages>,
    /// Transparent huge pages of private memory.
    pub transparent: Transparent,
    /// Transparent huge pages of memfds.
    pub transparent_shared: Transparent,
    /// Bytes that may be locked.
    pub memlock: Limit,
    /// Descriptors that may be open.
    pub nofile: Limit,
    /// `/dev/kvm`.
    pub kvm: Access,
    /// `/dev/net/tun`.
    pub tun: Access,
    /// `/dev/vhost-net`.
    pub vhost_net: Access,
    /// Whether this is root.
    pub is_root: bool,
    /// Whether interfaces can be created (CAP_NET_ADMIN).
    pub net_admin: bool,
    /// Whether unprivileged users may create user namespaces, as far as can be determined without trying.
    pub user_namespaces: bool,
    /// Whether asynchronous I/O, which signals peers' eventfds, is available.
    pub aio: bool,
    /// Requests of asynchronous I/O that processes have taken, and may take.
    pub aio_requests: (u64, u64),
    /// Whether a barrier can be executed on all threads at once.
    pub membarrier: bool,
    /// Whether io_uring can be used.
    pub io_uring: bool,
    /// Whether page faults can be handled here.
    pub userfaultfd: bool,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Version of landlock; 0 if unavailable.
    pub landlock: u32,
    /// Whether the processor's ticks can be used as a clock.
    pub ticks: bool,
}

impl Machine {
    /// Gathers all properties; changes nothing.
    pub fn gather() -> Machine {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let thp = Path::new("/sys/kernel/mm/transparent_hugepage");
        Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cores: cores(),
            memory: (meminfo(&memory, "MemTotal:"), meminfo(&memory, "MemAvailable:")),
            huge_pages: HugePages::list(),
            transparent: transparent(&thp.join("enabled")),
            transparent_shared: transparent(&thp.join("shmem_enabled")),
            memlock: limit(Resource::Memlock),
            nofile: limit(Resource::Nofile),
            kvm: kvm(),
            tun: access("/dev/net/tun"),
            vhost_net: access("/dev/vhost-net"),
            is_root: rustix::process::geteuid().is_root(),
            net_admin: net_admin(),
            user_namespaces: user_namespaces(),
            aio: crate::aio::prepare_shared().is_ok(),
            aio_requests: (
                number("/proc/sys/fs/aio-nr").unwrap_or(0),
                number("/proc/sys/fs/aio-max-nr").unwrap_or(0),
            ),
            membarrier: crate::grace::is_expedited(),
            io_uring: io_uring(),
            userfaultfd: userfaultfd(),
            seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            landlock: landlock(),
            ticks: crate::clock::are_ticks_steady(),
        }
    }
}

/// The first word of a file; empty if there is none.
pub(crate) fn word(path: impl AsRef<Path>) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next().unwrap_or_default().into()
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    word(path).parse().ok()
}

/// Reads `0-3,8,10-11`.
pub(crate) fn list(text: &str) -> Vec<usize> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

fn cores() -> Cores {
    let read = |name: &str| list(&word(Path::new("/sys/devices/system/cpu").join(name)));
    Cores {
        online: read("online"),
        allowed: crate::thread::allowed_cores().unwrap_or_default(),
        isolated: read("isolated"),
        tickless: read("nohz_full"),
    }
}

/// Value of `name` in bytes; the kernel reports KB.
fn meminfo(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

fn huge_pages(folder: &Path) -> Vec<HugePages> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let total = number(entry.path().join("nr_hugepages"))?;
        let free = number(entry.path().join("free_hugepages"))?;
        Some(HugePages { size: kilobytes << 10, total, free })
    });
    let mut sizes: Vec<HugePages> = sizes.collect();
    sizes.sort_by_key(|pages| pages.size);
    sizes
}

fn transparent(path: &Path) -> Transparent {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let chosen = text.split('[').nth(1).and_then(|rest| rest.split(']').next());
    match chosen {
        Some("always" | "force" | "within_size") => Transparent::Always,
        Some("madvise" | "advise") => Transparent::Madvise,
        _ => Transparent::Never,
    }
}

fn limit(resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit { soft: limit.current, hard: limit.maximum }
}

fn open(path: &str) -> Result<OwnedFd, Access> {
    let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
    opened.map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Access::Missing,
        Errno::ACCESS | Errno::PERM => Access::Denied,
        _ => Access::Broken,
    })
}

fn access(path: &str) -> Access {
    open(path).map_or_else(|access| access, |_| Access::Usable)
}

fn kvm() -> Access {
    /// `KVM_GET_API_VERSION`, and the only version since Linux 2.6.22.
    const GET_API_VERSION: libc::Ioctl = 0xae00;
    const VERSION: libc::c_int = 12;
    match open("/dev/kvm") {
        // SAFETY: the call takes no argument and only gives a number.
        Ok(fd) if unsafe { libc::ioctl(fd.as_raw_fd(), GET_API_VERSION, 0) } == VERSION => Access::Usable,
        Ok(_) => Access::Broken,
        Err(access) => access,
    }
}

fn net_admin() -> bool {
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

fn user_namespaces() -> bool {
    let kernel = Path::new("/proc/sys/kernel");
    // The second setting is Debian's, the third Ubuntu's.
    number("/proc/sys/user/max_user_namespaces").unwrap_or(0) > 0
        && number(kernel.join("unprivileged_userns_clone")) != Some(0)
        && number(kernel.join("apparmor_restrict_unprivileged_userns")).unwrap_or(0) == 0
}

/// Makes a call that returns a descriptor, closes the descriptor, and returns whether there was one.
fn gives_descriptor(number: libc::c_long, first: usize, second: usize) -> bool {
    // SAFETY: the callers' arguments are numbers, or point to memory that is large enough.
    let fd = unsafe { libc::syscall(number, first, second) };
    let Some(fd) = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0) else { return false };
    // SAFETY: the kernel just made it for us.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    true
}

fn io_uring() -> bool {
    // `struct io_uring_params`, all zeros except for the kernel's output.
    let mut parameters = [0_u64; 15];
    gives_descriptor(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr().addr())
}

fn userfaultfd() -> bool {
    /// `UFFD_USER_MODE_ONLY`: the mode permitted without root.
    const USER_MODE_ONLY: usize = 1;
    gives_descriptor(libc::SYS_userfaultfd, libc::O_CLOEXEC as usize | USER_MODE_ONLY, 0)
}

fn landlock() -> u32 {
    /// `LANDLOCK_CREATE_RULESET_VERSION`
    const VERSION: usize = 1;
    // SAFETY: asked for its version, the call reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_parsed() {
        assert_eq!(list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list(""), []);
        assert_eq!(list("(null)"), []);
    }

    #[test]
    fn meminfo_sizes_are_converted_to_bytes() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:   8192 kB\n";
        assert_eq!(meminfo(text, "MemTotal:"), 16 << 20);
        assert_eq!(meminfo(text, "MemAvailable:"), 8 << 20);
        assert_eq!(meminfo(text, "HugeTotal:"), 0);
    }

    #[test]
    fn facts_of_this_machine_can_be_gathered() {
        let machine = Machine::gather();
        assert!(machine.memory.0 >= machine.memory.1 && machine.memory.1 > 0);
        assert!(machine.cores.allowed.iter().all(|core| machine.cores.online.contains(core)));
        assert!(machine.nofile.soft.is_none_or(|soft| soft > 0));
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(access("/dev/no-such-device"), Access::Missing);
        assert!(
            machine.huge_pages.iter().all(|pages| pages.free <= pages.total && pages.size.is_power_of_two())
        );
    }
}
