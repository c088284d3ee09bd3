//! Confinement of the process that runs a guest.

use super::user::Lease;
use super::{Attachment, Error, Launch, Runner, Spec, image};
use ringway_host::jail::{Calls, ControlGroup, Fence, Jail, Limits, can_change_user, fence};
use ringway_host::listener::{Access, Listener, OpenError};
use rustix::fs::Mode;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the program of a guest may have.
struct Allowance {
    /// Processes and threads of the guest's user. User-Mode Linux has one for each process of the guest.
    ///
    /// Attack: a few guests use up all process numbers of the host (`kernel.pid_max`, 32,768 or more).
    processes: u64,
    /// Bytes of memory beyond the guest's memory and an eighth of that for page tables and queues.
    overhead: u64,
}

impl Allowance {
    fn of(runner: Runner) -> Allowance {
        match runner {
            Runner::Uml => Allowance { processes: 2048, overhead: 64 << 20 },
            // QEMU's translator caches up to 1 GB of translated code.
            Runner::Qemu => Allowance { processes: 512, overhead: 1536 << 20 },
        }
    }
}

/// Size in bytes of User-Mode Linux's memory file beyond the guest's memory; QEMU has no such file.
const SCRATCH: u64 = 32 << 20;

/// The user that a guest runs as: the configured one, or a unique one; `None` if this process can't change
/// users.
pub fn user(spec: &Spec) -> Result<Option<Arc<Lease>>, Error> {
    if spec.user.is_some() || !can_change_user() {
        return Ok(spec.user.clone());
    }
    let lease = Lease::any().map_err(|source| Error::User { name: spec.name.clone(), source })?;
    Ok(Some(Arc::new(lease)))
}

/// Whether a guest of this kind may run with the available confinement.
pub fn suffices(spec: &Spec) -> Result<(), Error> {
    let (found, changes) = (fence(), can_change_user());
    let needed = match spec.kind {
        // With landlock alone a guest of our user would connect to our own sockets.
        Runner::Uml if changes => Fence::Landlock,
        Runner::Uml => Fence::Namespaces,
        Runner::Qemu => Fence::None,
    };
    if found < needed {
        return Err(Error::Unconfined(spec.name.clone()));
    }
    if found < Fence::Namespaces {
        let guest = &spec.name;
        tracing::warn!(
            guest,
            "no namespaces for it: {}",
            if found == Fence::None {
                "it sees all files of its user"
            } else {
                "landlock alone keeps it from files"
            }
        );
    }
    Ok(())
}

/// Makes paths absolute: a guest's program starts in the root directory.
pub fn resolve(spec: &mut Spec) {
    let absolute = |path: &mut PathBuf| *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
    for interface in &mut spec.interfaces {
        match &mut interface.attachment {
            Attachment::VhostUser { socket, .. } | Attachment::VfioUser { socket, .. } => absolute(socket),
            Attachment::Tap { .. } => {}
        }
    }
    let files = [&mut spec.kernel, &mut spec.initrd, &mut spec.program].into_iter().flatten();
    files.chain(&mut spec.shared).for_each(absolute);
}

/// A private folder for the process that runs a guest.
pub fn scratch() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // In shareable memory: User-Mode Linux's guest memory is there.
    format!("/dev/shm/ringway-{}-{count}", std::process::id()).into()
}

/// The folder for the sockets on which the program listens.
pub fn sockets(folder: &Path, user: Option<&Lease>) -> Result<PathBuf, image::Error> {
    let path = folder.join("sockets");
    let failed = |source| image::Error::File { path: path.clone(), source };
    // A folder left by an earlier start belongs to another user.
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::create_dir(&path).map_err(failed)?;
    user.map_or(Ok(()), |user| give_to_user(&path, 0o700, user)).map_err(failed)?;
    Ok(path)
}

/// The configured name of a socket on which a guest's program listens; a symbolic link, removed when dropped.
pub struct Named {
    path: PathBuf,
    to: PathBuf,
}

impl Named {
    /// Links the name to the socket. Replaces a link or a dead socket of an earlier run.
    pub fn new(path: &Path, to: PathBuf) -> Result<Named, OpenError> {
        let named = Named { path: path.to_path_buf(), to };
        named.remove();
        // Any other file is reported as an error.
        drop(Listener::bind(path, Access::default())?);
        let system = |error| OpenError::System { path: path.to_path_buf(), error };
        std::os::unix::fs::symlink(&named.to, path).map_err(system)?;
        Ok(named)
    }

    /// A name that another process has linked.
    pub fn adopted(path: PathBuf, to: PathBuf) -> Named {
        Named { path, to }
    }

    /// The name, and where it leads.
    pub fn paths(&self) -> (PathBuf, PathBuf) {
        (self.path.clone(), self.to.clone())
    }

    fn remove(&self) {
        if std::fs::read_link(&self.path).is_ok_and(|to| to == self.to) {
            // The owner of the folder may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The control group of a guest's program. Attack: thousands of busy processes, as many as User-Mode Linux may
/// have, leave no CPU time to others.
pub fn group(spec: &Spec) -> Option<ControlGroup> {
    let guest = spec.memory << 20;
    let overhead = Allowance::of(spec.kind).overhead;
    let limits = Limits { memory: guest + guest / 8 + overhead, threads: spec.processors + 1 };
    match ControlGroup::new(limits) {
        Ok(group) => {
            if !group.shares_processors() {
                let guest = &spec.name;
                tracing::warn!(guest, "its share of CPU time is not limited: no control group with `cpu`");
            }
            Some(group)
        }
        Err(error) => {
            let guest = &spec.name;
            tracing::warn!(guest, %error, "NO BOUND OF MEMORY for it: it may take all that this host has");
            None
        }
    }
}

/// The jail of a guest. Its control group is added at start.
pub fn jail(spec: &Spec, launch: &Launch, user: Option<&Lease>) -> Jail<'static> {
    let has_tap = spec.interfaces.iter().any(|one| matches!(one.attachment, Attachment::Tap { .. }));
    let sockets = spec.interfaces.iter().filter_map(|one| match &one.attachment {
        Attachment::VhostUser { socket, listen: false } | Attachment::VfioUser { socket, .. } => {
            Some(socket.clone())
        }
        Attachment::VhostUser { .. } | Attachment::Tap { .. } => None,
    });
    let devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"].map(PathBuf::from);
    let tun = has_tap.then(|| PathBuf::from("/dev/net/tun"));
    let write =
        devices.into_iter().chain(tun).chain(launch.devices.iter().cloned()).filter(|path| path.exists());
    let group = |device: &PathBuf| device.metadata().ok().map(|seen| seen.gid());
    let exe = PathBuf::from("/proc/self/exe");
    Jail {
        user: user.map(Lease::user),
        groups: launch.devices.iter().filter_map(group).collect(),
        read: launch.reads.clone(),
        write: write.chain(launch.sockets.iter().chain(&spec.shared).cloned()).collect(),
        sockets: sockets.collect(),
        // Newer programs execute themselves again, or look for files next to themselves.
        links: launch.links.iter().cloned().chain([(exe, launch.program.clone())]).collect(),
        scratch: Some((
            launch.scratch.clone(),
            SCRATCH + if spec.kind == Runner::Uml { spec.memory << 20 } else { 0 },
        )),
        files: launch.preloaded.iter().map(|path| (path.clone(), ringway_host::ptrace_library())).collect(),
        network: has_tap,
        calls: if spec.kind == Runner::Uml { Calls::Uml } else { Calls::Qemu },
        processes: Some(Allowance::of(spec.kind).processes),
        group: None,
        ..Jail::default()
    }
}

/// A program and the libraries that the dynamic linker loads for it.
pub fn with_libraries(program: &Path) -> Vec<PathBuf> {
    [program.to_path_buf()].into_iter().chain(image::libraries(program)).collect()
}

/// A file that the guest's user can read: the file itself, or a copy in `folder`, where nobody else can
/// write.
pub fn readable(path: &Path, folder: &Path, user: Option<&Lease>) -> Result<PathBuf, image::Error> {
    let failed = |source| image::Error::File { path: path.to_path_buf(), source };
    let seen = path.metadata().map_err(failed)?;
    // Files that their owner can execute, such as User-Mode Linux, must be executable.
    let needed = 0o004 | if seen.mode() & 0o100 == 0 { 0 } else { 0o001 };
    let Some(user) = user.filter(|_| seen.mode() & needed != needed && seen.is_file()) else {
        return Ok(path.to_path_buf());
    };
    let copy = folder.join(path.file_name().unwrap_or_default());
    std::fs::copy(path, &copy)
        .and_then(|_| give_to_user(&copy, seen.mode() & 0o500, user))
        .map_err(failed)?;
    Ok(copy)
}

/// Gives the guest's user a file that only that user and root can read.
pub fn give_to_user(path: &Path, mode: u32, user: &Lease) -> io::Result<()> {
    let file = File::open(path)?;
    rustix::fs::fchmod(&file, Mode::from_bits_truncate(mode))?;
    std::os::unix::fs::fchown(&file, Some(user.user()), Some(user.user()))
}
