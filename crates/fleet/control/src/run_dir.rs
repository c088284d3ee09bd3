//! The run directory of a fabric: its API socket, its lock, its ports' sockets, its guests' files.

use ringway_host::{OwnFile, check_own_path, open_own, peer};
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, DirEntry, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The folder of functions' sockets in a run directory.
pub const FUNCTIONS: &str = "functions";

/// The folder of hosts in a run directory; each has a folder there.
pub const HOSTS: &str = "hosts";
/// The folder of programs' logs in a run directory.
pub const PROGRAMS: &str = "programs";
/// The folder of switches' sockets, in the run directory.
pub const SWITCHES: &str = "switches";
/// The file in a host's folder that keeps its network namespace.
const NAMESPACE: &str = "net";

/// The file of a host's network namespace.
pub fn namespace(run: &Path, host: &str) -> PathBuf {
    run.join(HOSTS).join(host).join(NAMESPACE)
}

/// Removes the namespaces of hosts of a fabric that was killed in this run directory, and ends what runs there.
fn remove_left_over(run: &Path, kept: &[String]) {
    let Ok(folders) = std::fs::read_dir(run.join(HOSTS)) else { return };
    let is_kept = |entry: &DirEntry| kept.iter().any(|name| entry.file_name() == **name);
    for folder in folders.flatten().filter(|entry| !is_kept(entry)).map(|entry| entry.path()) {
        let namespace = folder.join(NAMESPACE);
        if namespace.exists() {
            tracing::warn!(namespace = %namespace.display(), "removing what an earlier fabric left");
            ringway_host::remove_namespace(&namespace);
        }
        let _ = std::fs::remove_dir_all(folder);
    }
    if kept.is_empty() {
        let _ = std::fs::remove_dir_all(run.join(HOSTS));
    }
}

/// Why a run directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// The fabric is up already.
    #[error(
        "the fabric in {path} is up already (process {pid}); \
         stop it with `ringway down`, or change it with `ringway apply`; \
         add --socket PATH to these commands if it came up with that option"
    )]
    Taken {
        /// The run directory.
        path: PathBuf,
        /// Process ID of the fabric that has it.
        pid: String,
    },
    /// Another user created the directory, or its path is a link.
    #[error("{path} belongs to user {owner} or is a link; remove it, or choose another in [fabric]")]
    Foreign {
        /// The run directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Another user could exchange the directory for another one.
    #[error("run directory {path}: {error}; choose another one in [fabric], such as /run/ringway/NAME")]
    Reachable {
        /// The run directory.
        path: PathBuf,
        /// What of it the other user can change.
        error: io::Error,
    },
    /// The system refused.
    #[error("{path}: {error}; choose a run directory that you may write to, in [fabric] or by RINGWAY_RUN")]
    System {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

/// Default parent of run directories: `/run/ringway` for root, the user's runtime directory for others.
pub fn base() -> PathBuf {
    if let Some(base) = std::env::var_os("RINGWAY_RUN").filter(|base| !base.is_empty()) {
        return std::path::absolute(&base).unwrap_or(base.into());
    }
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/ringway".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => Path::new(&runtime).join("ringway"),
        _ => fallback(),
    }
}

/// Parent of run directories for users without a runtime directory: in a world-writable folder.
fn fallback() -> PathBuf {
    format!("/tmp/ringway-{}", rustix::process::geteuid().as_raw()).into()
}

/// Creates the parent of run directories at `base` if it does not exist. Refused if it is the one in `/tmp` and
/// another user created it, who could put links and sockets there.
pub fn make_base(base: &Path) -> Result<(), RunDirError> {
    let system = |error: io::Error| RunDirError::System { path: base.into(), error };
    DirBuilder::new().recursive(true).mode(0o755).create(base).map_err(system)?;
    if base == fallback() {
        check_owner(base, &[rustix::process::geteuid().as_raw()])?;
    }
    Ok(())
}

fn check_owner(path: &Path, owners: &[u32]) -> Result<(), RunDirError> {
    let seen =
        std::fs::symlink_metadata(path).map_err(|error| RunDirError::System { path: path.into(), error })?;
    // Attack: another user creates the directory first, and owns the sockets in it; or a link to a directory of ours.
    if owners.contains(&seen.uid()) && seen.is_dir() {
        return Ok(());
    }
    Err(RunDirError::Foreign { path: path.into(), owner: seen.uid() })
}

/// The API socket in a run directory.
pub fn api_socket(run: &Path) -> PathBuf {
    run.join("api.sock")
}

/// The socket for captures in a run directory.
pub fn capture_socket(run: &Path) -> PathBuf {
    run.join("captures")
}

/// The socket for upgrades in a run directory.
pub fn upgrade_socket(run: &Path) -> PathBuf {
    run.join("upgrade")
}

/// Names of the fabrics below `base` that are up.
pub fn running(base: &Path) -> Vec<String> {
    fabrics(base, |connected| connected.is_ok())
}

/// Names of the fabrics below `base` that this user may not connect to.
pub fn denied(base: &Path) -> Vec<String> {
    let denied = io::ErrorKind::PermissionDenied;
    fabrics(base, |connected| connected.is_err_and(|error| error.kind() == denied))
}

fn fabrics(base: &Path, are_meant: impl Fn(io::Result<UnixStream>) -> bool) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            are_meant(UnixStream::connect(api_socket(&entry.path()))).then_some(())?;
            entry.file_name().into_string().ok()
        })
        .collect();
    names.sort();
    names
}

/// Whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |seen: std::fs::Metadata| (seen.dev(), seen.ino());
    let (ours, seen) = (file.metadata(), std::fs::symlink_metadata(path));
    ours.is_ok_and(|ours| seen.is_ok_and(|seen| inode(ours) == inode(seen)))
}

/// The process that listens on a socket.
fn listener(socket: &Path) -> Option<String> {
    let connected = UnixStream::connect(socket).ok()?;
    Some(peer(connected).map(|peer| peer.process.to_string()).unwrap_or_default())
}

/// Checks that no fabric is up in a run directory.
///
/// # Errors
/// [`RunDirError::Taken`].
pub fn check_free(path: &Path) -> Result<(), RunDirError> {
    // The lock of a running fabric may have been removed by hand.
    match listener(&api_socket(path)) {
        Some(pid) => Err(RunDirError::Taken { path: path.into(), pid }),
        None => Ok(()),
    }
}

/// A run directory, locked until this value is dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    lock: File,
    made: bool,
}

impl RunDir {
    /// Creates the directory if it does not exist, and locks it. What is in it is opened by its name from then on: a
    /// directory that another user could exchange is refused.
    pub fn take(path: &Path) -> Result<RunDir, RunDirError> {
        check_own_path(path).map_err(|error| RunDirError::Reachable { path: path.into(), error })?;
        let system = |error: io::Error| RunDirError::System { path: path.into(), error };
        let made = !path.exists();
        if let Some(base) = path.parent() {
            make_base(base)?;
        }
        DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(system)?;
        check_owner(path, &[rustix::process::geteuid().as_raw(), 0])?;
        let lock = path.join("lock");
        loop {
            let mut file = open_own(&lock, OwnFile::Keep, 0o644)
                .map_err(|error| RunDirError::System { path: lock.clone(), error })?;
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut pid = String::new();
                // The process ID is only used in the message.
                let _ = file.read_to_string(&mut pid);
                return Err(RunDirError::Taken { path: path.into(), pid: pid.trim().to_string() });
            }
            // The previous holder may have removed the file between our open and our lock.
            if is_at(&file, &lock) {
                check_free(path)?;
                file.set_len(0).map_err(system)?;
                file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(system)?;
                // Ends guests of a fabric that was killed in this directory.
                ringway_linux_guests::end_left_over(&path.join("guests"));
                remove_left_over(path, &[]);
                return Ok(RunDir { path: path.into(), lock: file, made });
            }
        }
    }

    /// Goes on with a directory, its lock and these hosts, which a former process had.
    ///
    /// # Errors
    /// The system's.
    pub fn adopt(path: &Path, lock: OwnedFd, made: bool, hosts: &[String]) -> io::Result<RunDir> {
        let mut lock = File::from(lock);
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(format!("{}\n", std::process::id()).as_bytes())?;
        remove_left_over(path, hosts);
        Ok(RunDir { path: path.into(), lock, made })
    }

    /// Its lock, which can be handed on.
    pub fn lock(&self) -> &File {
        &self.lock
    }

    /// Its path, if the directory was created for this fabric.
    pub fn made(&self) -> Option<&Path> {
        self.made.then_some(&*self.path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a guest.
    pub fn guest(&self, name: &str) -> PathBuf {
        self.path.join("guests").join(name)
    }

    /// The folder of a host.
    pub fn host(&self, name: &str) -> PathBuf {
        self.path.join(HOSTS).join(name)
    }

    /// The folder of programs' logs.
    pub fn programs(&self) -> PathBuf {
        self.path.join(PROGRAMS)
    }

    /// The folder of switches' sockets.
    pub fn switches(&self) -> PathBuf {
        self.path.join(SWITCHES)
    }

    /// The folder of functions' sockets.
    pub fn functions(&self) -> PathBuf {
        self.path.join(FUNCTIONS)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let lock = self.path.join("lock");
        if !is_at(&self.lock, &lock) {
            // The lock was removed, and another fabric may have the directory.
            return;
        }
        // Errors are ignored: entries may be gone already, and files of others keep the directory in place.
        let _ = std::fs::remove_dir_all(self.path.join("guests"));
        let _ = std::fs::remove_dir_all(self.functions());
        let _ = std::fs::remove_dir_all(self.switches());
        let _ = std::fs::remove_dir_all(self.path.join(HOSTS));
        let _ = std::fs::remove_dir_all(self.programs());
        let _ = std::fs::remove_file(lock);
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
        if self.made {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::time::{Duration, Instant};

    #[test]
    fn a_directory_has_one_fabric() {
        let path = std::env::temp_dir().join(format!("ringway-run-dir-{}", std::process::id()));
        let first = RunDir::take(&path).unwrap();
        let second = RunDir::take(&path).unwrap_err().to_string();
        assert!(second.contains(&format!("process {}", std::process::id())), "{second}");
        drop(first);
        assert!(!path.exists());
        drop(RunDir::take(&path).unwrap());
    }

    #[test]
    fn removing_the_lock_file_does_not_free_the_run_directory() {
        let path = std::env::temp_dir().join(format!("ringway-run-lock-{}", std::process::id()));
        let first = RunDir::take(&path).unwrap();
        let api = std::os::unix::net::UnixListener::bind(api_socket(&path)).unwrap();
        let sockets = first.functions().join("f.sock");
        std::fs::create_dir(first.functions()).unwrap();
        std::fs::write(&sockets, "").unwrap();
        std::fs::remove_file(path.join("lock")).unwrap();
        let second = RunDir::take(&path).unwrap_err().to_string();
        assert!(second.contains(&format!("process {}", std::process::id())), "{second}");
        assert!(api_socket(&path).exists() && sockets.exists());
        drop(api);
        // A process that another test starts may have a copy of the listener for a moment.
        let end = Instant::now() + Duration::from_secs(20);
        let third = loop {
            match RunDir::take(&path) {
                Ok(third) => break third,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        drop(first);
        assert!(third.path().join("lock").exists() && sockets.exists(), "they are the other's");
        drop(third);
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_run_directory_that_another_user_can_exchange_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: folders of another user need root");
            return;
        }
        let above = std::env::temp_dir().join(format!("ringway-run-above-{}", std::process::id()));
        let (run, precious) = (above.join("sw"), above.join("precious"));
        let other = 65_534;
        for (owner, mode, is_safe) in [
            (0, 0o755, true),
            (0, 0o1777, true),
            (0, 0o777, false),
            (other, 0o755, false),
            (other, 0o1777, false),
        ] {
            std::fs::create_dir_all(&run).unwrap();
            std::fs::write(&precious, "precious").unwrap();
            std::os::unix::fs::chown(&above, Some(owner), None).unwrap();
            std::fs::set_permissions(&above, std::fs::Permissions::from_mode(mode)).unwrap();
            let taken = RunDir::take(&run);
            let script =
                "mv sw old && mkdir -p sw/hosts/h1 && ln -s ../../../precious sw/hosts/h1/programs.log";
            let mut swap = std::process::Command::new("sh");
            swap.args(["-c", script]).current_dir(&above).uid(other).gid(other);
            let swapped = swap.stderr(std::process::Stdio::null()).status().unwrap().success();
            assert_eq!((taken.is_ok(), !swapped), (is_safe, is_safe), "{owner} {mode:o}: {taken:?}");
            if let Err(error) = taken {
                assert!(matches!(error, RunDirError::Reachable { .. }), "{error}");
                assert!(!above.join("old/lock").exists(), "nothing was made there");
            }
            std::fs::remove_dir_all(&above).unwrap();
        }
    }

    #[test]
    fn a_run_directory_of_another_owner_is_refused() {
        let path = std::env::temp_dir().join(format!("ringway-run-owner-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let ours = rustix::process::geteuid().as_raw();
        check_owner(&path, &[ours]).unwrap();
        let refused = check_owner(&path, &[ours + 1]);
        assert!(matches!(refused, Err(RunDirError::Foreign { owner, .. }) if owner == ours));
        let link = path.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(check_owner(&link, &[ours]), Err(RunDirError::Foreign { .. })));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
