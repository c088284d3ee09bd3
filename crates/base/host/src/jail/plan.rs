//! The steps of a confinement, in their order.

use super::step::{OLD, Show, Step};
use super::{Fence, Jail, JailError, above, calls, given};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getegid, geteuid};
use rustix::thread::{CapabilitySet, Gid};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A folder that exists on every host; the program's root is mounted there.
const ROOT: &str = "/proc";
/// The new root contains only folders, and empty files as mount points.
const ROOT_OPTIONS: &str = "mode=755,size=1m";
/// Newest landlock version to use; older kernels ignore unknown parts.
const LANDLOCK: ABI = ABI::V6;

/// The steps of the child before it executes its program.
pub(super) struct Plan {
    pub steps: Vec<Step>,
    /// The child's new namespaces, for `clone`.
    pub flags: libc::c_int,
    /// Number of the program's descriptors, from 0 on.
    pub descriptors: usize,
    /// Reserves the descriptor number that is used while mounting.
    _slot: OwnedFd,
}

/// Whether mounts are possible without a user namespace.
pub(super) fn can_mount() -> bool {
    let needed = CapabilitySet::SYS_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

impl Plan {
    pub fn new(jail: &Jail<'_>, fence: Fence, descriptors: &[BorrowedFd<'_>]) -> Result<Plan, JailError> {
        let count = descriptors.len();
        let failed = |error| JailError::Given { what: "a descriptor".into(), error };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let slot = rustix::fs::open(ROOT, flags, Mode::empty()).and_then(|any| above(any.as_fd(), count));
        let slot = slot.map_err(failed)?;
        let held = descriptors.iter().map(|descriptor| above(*descriptor, count));
        let held: Vec<OwnedFd> = held.collect::<Result<_, _>>().map_err(failed)?;
        let mut plan = Plan { steps: vec![Step::Group], flags: 0, descriptors: count, _slot: slot };
        if let Some(group) = jail.group {
            let groups = group.procs_files().map_err(|error| given("its control group", &error))?;
            plan.steps.extend(groups.into_iter().map(Step::Join));
        }
        if fence == Fence::Namespaces {
            plan.namespaces(jail)?;
        }
        plan.steps.push(Step::Limit(Resource::Core, 0));
        plan.steps.extend(jail.processes.map(|most| Step::Limit(Resource::Nproc, most)));
        plan.steps.push(Step::Bound);
        let groups = jail.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        plan.steps.extend(jail.user.map(|user| Step::User(user, groups)));
        plan.steps.push(Step::Drop);
        // It is cleared when privileges change.
        plan.steps.extend((!jail.outlives).then_some(Step::ParentDeathSignal));
        // The files of a guest that has the host's have the permissions which its programs give them.
        let umask = if jail.trees.is_empty() { Mode::RWXG | Mode::RWXO } else { Mode::empty() };
        plan.steps.push(Step::Defaults(umask));
        plan.steps.push(Step::Descriptors(held));
        plan.steps.push(Step::NoNewPrivileges);
        if fence == Fence::Landlock {
            let ruleset = ruleset(jail).and_then(|ruleset| above(ruleset.as_fd(), count));
            plan.steps.push(Step::Landlock(ruleset.map_err(failed)?));
        }
        plan.steps.extend(calls::filter(jail.calls)?.map(Step::Filter));
        Ok(plan)
    }

    /// An empty root with the visible files, and a process namespace.
    fn namespaces(&mut self, jail: &Jail<'_>) -> Result<(), JailError> {
        self.flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        if !jail.network {
            self.flags |= libc::CLONE_NEWNET;
        }
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        if !can_mount() {
            self.flags |= libc::CLONE_NEWUSER;
            self.steps.push(Step::Dumpable);
            for (file, line) in [
                ("setgroups", "deny".to_string()),
                ("uid_map", format!("{user} {user} 1")),
                ("gid_map", format!("{group} {group} 1")),
            ] {
                self.steps.push(Step::Put(text(format!("/proc/self/{file}"))?, line.into()));
            }
        }
        self.steps.push(Step::Private);
        self.steps.push(Step::Memory(text(ROOT)?, text(ROOT_OPTIONS)?));
        self.steps.push(Step::Pivot(text(ROOT)?));
        let mut made = BTreeSet::new();
        for path in &jail.folders {
            self.folders(Some(path), &mut made)?;
        }
        for (path, to) in &jail.links {
            self.folders(path.parent(), &mut made)?;
            self.steps.push(Step::Link(text(path)?, text(to)?));
        }
        self.shows(jail, &mut made)?;
        if let Some((path, bytes)) = &jail.scratch {
            self.folders(Some(path), &mut made)?;
            let (user, group) = (jail.user.unwrap_or(user), jail.user.unwrap_or(group));
            let options = format!("mode=700,size={bytes},uid={user},gid={group}");
            self.steps.push(Step::Memory(text(path)?, text(options)?));
            for (file, content) in &jail.files {
                self.steps.push(Step::Make(text(file)?, content.to_vec(), 0o644));
            }
        }
        self.steps.push(Step::Seal);
        Ok(())
    }

    fn shows(&mut self, jail: &Jail<'_>, made: &mut BTreeSet<PathBuf>) -> Result<(), JailError> {
        let trees = jail.trees.iter().map(|path| (path, false, false, true));
        let read = jail.read.iter().map(|path| (path, false, false, false));
        let write = jail.write.iter().map(|path| (path, true, false, !jail.trees.is_empty()));
        let sockets = jail.sockets.iter().map(|path| (path, true, true, false));
        let mut all: Vec<(&PathBuf, bool, bool, bool)> =
            trees.chain(read).chain(write).chain(sockets).collect();
        all.sort();
        let mut folders: Vec<(&PathBuf, bool)> = Vec::new();
        for (path, write, socket, tree) in all {
            // The file is visible at the link's target.
            if jail.links.iter().any(|(link, _)| path.starts_with(link)) {
                continue;
            }
            // The file is visible with its folder.
            let shown = folders.iter().rev().find(|(folder, _)| path.starts_with(folder));
            if shown.is_some_and(|(_, is_tree)| !is_tree || !(write || socket)) {
                continue;
            }
            let found = if socket { with_folder(path) } else { path.canonicalize() };
            let seen = found.and_then(|from| Ok((from.symlink_metadata()?.file_type(), from)));
            let (kind, from) = seen.map_err(|error| given(path.display(), &error))?;
            if kind.is_dir() {
                self.folders(Some(path), made)?;
                folders.push((path, tree && !write));
            } else if shown.is_none() {
                self.folders(path.parent(), made)?;
                self.steps.push(Step::Make(text(path)?, Vec::new(), 0o644));
            }
            let slot = self._slot.as_raw_fd();
            self.steps.push(Step::Show(Show {
                from: text(Path::new(OLD).join(from.strip_prefix("/").unwrap_or(&from)))?,
                to: text(path)?,
                write,
                device: kind.is_char_device(),
                socket,
                tree: tree && kind.is_dir(),
                slot: (slot, text(format!("{OLD}/proc/self/fd/{slot}"))?),
            }));
        }
        Ok(())
    }

    /// Creates a folder and its parents, once.
    fn folders(&mut self, path: Option<&Path>, made: &mut BTreeSet<PathBuf>) -> Result<(), JailError> {
        let Some(path) = path.filter(|path| path.parent().is_some()) else { return Ok(()) };
        if made.insert(path.to_path_buf()) {
            self.folders(path.parent(), made)?;
            self.steps.push(Step::Folder(text(path)?));
        }
        Ok(())
    }
}

/// The path with the links of its folder resolved, since absolute links have other targets in the jail.
fn with_folder(path: &Path) -> std::io::Result<PathBuf> {
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    Ok(folder.canonicalize()?.join(name))
}

fn text(text: impl AsRef<std::ffi::OsStr>) -> Result<CString, JailError> {
    let text = text.as_ref();
    CString::new(text.as_bytes())
        .map_err(|_| JailError::Given { what: text.to_string_lossy().into_owned(), error: Errno::INVAL })
}

/// The files that landlock lets the program open; TCP connections and signals to outside processes are
/// forbidden.
fn ruleset(jail: &Jail<'_>) -> Result<OwnedFd, Errno> {
    let all = AccessFs::from_all(LANDLOCK);
    let made = || -> Result<Option<OwnedFd>, landlock::RulesetError> {
        let mut ruleset = Ruleset::default().handle_access(all)?.scope(Scope::from_all(LANDLOCK))?;
        if !jail.network {
            ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
        }
        let mut ruleset = ruleset.create()?;
        let scratch = jail.scratch.iter().map(|(path, _)| path);
        let write = jail.write.iter().chain(scratch).map(|path| (path, all));
        let read = jail.read.iter().chain(&jail.trees);
        let read = read.map(|path| (path, AccessFs::from_read(LANDLOCK)));
        for (path, rights) in read.chain(write) {
            // Missing files need no rule.
            let Ok(found) = PathFd::new(path) else { continue };
            let fit = if path.is_dir() { rights } else { rights & AccessFs::from_file(LANDLOCK) };
            let fit: BitFlags<AccessFs> = fit;
            ruleset = ruleset.add_rule(PathBeneath::new(found, fit))?;
        }
        Ok(ruleset.into())
    };
    made().ok().flatten().ok_or(Errno::NOSYS)
}
