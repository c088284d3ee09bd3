//! Control groups that limit a program's memory and its share of CPU time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Prefix of the groups' names, followed by the id of the creating process.
const NAME: &str = "ringway-";
/// Control groups are numbered, since guests' names come from a file.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Limits on all processes of a control group together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory, without swap if swap can be limited.
    pub memory: u64,
    /// CPU time while others need it too: that of so many busy threads.
    pub threads: u32,
}

/// A control group with limits for its processes. It is removed when this is dropped, after they have ended.
#[derive(Debug)]
pub struct ControlGroup {
    memory: Group,
    /// In version 1, a separate group for CPU time, if there can be one.
    processors: Option<Group>,
}

/// A group in one hierarchy.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
}

/// A controller of a resource.
#[derive(Clone, Copy, Debug)]
enum Controller {
    Memory,
    Processors,
}

/// A hierarchy in which control groups with a controller can be created.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Its mount point.
    mount: PathBuf,
    /// Our own group.
    own: PathBuf,
    is_v2: bool,
}

impl ControlGroup {
    /// A group with these limits. Without a way to limit CPU time, only its memory is limited.
    pub fn new(limits: Limits) -> io::Result<ControlGroup> {
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let group = |controller| {
            let mut last =
                io::Error::new(io::ErrorKind::Unsupported, "no hierarchy of control groups is mounted");
            for hierarchy in hierarchies(&groups, &mounts, controller) {
                for folder in hierarchy.folders() {
                    match make(&folder, hierarchy.is_v2, controller, limits) {
                        Ok(group) => return Ok((group, hierarchy.is_v2)),
                        Err(error) => last = error,
                    }
                }
            }
            Err(last)
        };
        let (memory, is_v2) = group(Controller::Memory)?;
        let processors = if is_v2 { None } else { group(Controller::Processors).ok().map(|(made, _)| made) };
        Ok(ControlGroup { memory, processors })
    }

    /// A group that another process has made, by its [`ControlGroup::folders`].
    pub fn adopted(folders: &[PathBuf]) -> Option<ControlGroup> {
        let mut groups = folders.iter().map(|folder| Group { folder: folder.clone() });
        Some(ControlGroup { memory: groups.next()?, processors: groups.next() })
    }

    /// Its folders.
    pub fn folders(&self) -> Vec<PathBuf> {
        [&self.memory].into_iter().chain(&self.processors).map(|group| group.folder.clone()).collect()
    }

    /// Whether CPU time is limited.
    pub fn shares_processors(&self) -> bool {
        self.processors.is_some() || self.memory.folder.join(WEIGHT).exists()
    }

    /// The `cgroup.procs` files to which a process writes `0` to join.
    pub(super) fn procs_files(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.memory].into_iter().chain(&self.processors).map(Group::procs_file).collect()
    }
}

impl Group {
    fn procs_file(&self) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))?.into())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group that still has a process is removed when the next one is created.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The file of a group's weight in version 2. A single thread, or a group by default, has 100 of at most 10,000.
const WEIGHT: &str = "cpu.weight";

impl Controller {
    /// Its name in version 2, and as a mount option in version 1.
    fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Processors => "cpu",
        }
    }
}

impl Hierarchy {
    /// Possible parent groups, the nearest first.
    fn folders(&self) -> Vec<PathBuf> {
        let above = self.own.ancestors().take_while(|folder| folder.starts_with(&self.mount));
        // In version 2 a group has processes or child groups; if ours has processes, its parent may take
        // another child.
        above.take(if self.is_v2 { usize::MAX } else { 1 }).map(Path::to_path_buf).collect()
    }
}

/// The hierarchies with a controller, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn hierarchies(groups: &str, mounts: &str, controller: Controller) -> Vec<Hierarchy> {
    let name = controller.name();
    let mounted = |line: &str| {
        // cgroups(7), proc_pid_mountinfo(5): root and mount point are the fourth and fifth words, kind, source and
        // options follow the dash.
        let (before, behind) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, mount) = (before.next()?, before.next()?);
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        let is_v2 = kind == "cgroup2";
        if !is_v2 && !(kind == "cgroup" && options.split(',').any(|option| option == name)) {
            return None;
        }
        let ours = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_meant = match is_v2 {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|controller| controller == name),
            };
            is_meant.then_some(path)
        })?;
        let below = Path::new(ours).strip_prefix(root).unwrap_or(Path::new(""));
        Some(Hierarchy { mount: mount.into(), own: Path::new(mount).join(below), is_v2 })
    };
    let mut found: Vec<Hierarchy> = mounts.lines().filter_map(mounted).collect();
    // If both versions are mounted, only one has the controller; the other lacks its files.
    found.sort_by_key(|hierarchy| !hierarchy.is_v2);
    found
}

fn make(within: &Path, is_v2: bool, controller: Controller, limits: Limits) -> io::Result<Group> {
    let Limits { memory, threads } = limits;
    if is_v2 {
        enable(within, controller)?;
        // Memory is limited without it.
        let _ = enable(within, Controller::Processors);
    }
    sweep(within);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = within.join(format!("{NAME}{}-{number}", std::process::id()));
    std::fs::create_dir(&folder)?;
    // From here on the group is removed on failure.
    let group = Group { folder };
    let file = |name| group.folder.join(name);
    match (is_v2, controller) {
        (true, _) => {
            put(&file("memory.max"), &memory.to_string())?;
            // Kernels without swap lack these files; without the other one, the group's processes are ended one
            // by one.
            let _ = put(&file("memory.swap.max"), "0");
            let _ = put(&file("memory.oom.group"), "1");
            let _ = put(&file(WEIGHT), &threads.saturating_mul(100).clamp(1, 10_000).to_string());
        }
        (false, Controller::Memory) => {
            put(&file("memory.limit_in_bytes"), &memory.to_string())?;
            let _ = put(&file("memory.memsw.limit_in_bytes"), &memory.to_string());
        }
        (false, Controller::Processors) => {
            put(&file("cpu.shares"), &u64::from(threads).saturating_mul(1024).clamp(2, 262_144).to_string())?;
        }
    }
    group.procs_file()?;
    Ok(group)
}

/// Makes a controller available in the groups within a group of version 2.
fn enable(within: &Path, controller: Controller) -> io::Result<()> {
    let name = controller.name();
    let read = |file| std::fs::read_to_string(within.join(file)).unwrap_or_default();
    let has = |file| read(file).split_whitespace().any(|controller| controller == name);
    if !has("cgroup.controllers") {
        let lacks = format!("its control group has no {name} controller");
        return Err(io::Error::new(io::ErrorKind::Unsupported, lacks));
    }
    if !has("cgroup.subtree_control") {
        put(&within.join("cgroup.subtree_control"), &format!("+{name}"))?;
    }
    Ok(())
}

fn put(file: &Path, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut File::options().write(true).open(file)?, text.as_bytes())
}

/// Removes groups of processes that were killed.
fn sweep(within: &Path) {
    let Ok(entries) = std::fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split_once('-'));
        if process.is_some_and(|(process, _)| !Path::new("/proc").join(process).exists()) {
            // A group with processes stays.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_hierarchies_are_found_with_our_group() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = hierarchies("0::/user.slice/a.scope\n", v2, Controller::Memory);
        let folder = "/sys/fs/cgroup/user.slice";
        assert_eq!(found[0].own, Path::new(folder).join("a.scope"));
        let all = [&format!("{folder}/a.scope"), folder, "/sys/fs/cgroup"].map(PathBuf::from);
        assert_eq!(found[0].folders(), all);
        let v1 = "31 24 0:27 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  32 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let groups = "9:name=systemd:/\n4:memory:/docker/x/y\n2:cpu:/\n0::/\n";
        let found = hierarchies(groups, &format!("{v1}{v2}"), Controller::Memory);
        assert_eq!(found.iter().map(|one| one.is_v2).collect::<Vec<_>>(), [true, false]);
        assert_eq!(found[1].folders(), [PathBuf::from("/sys/fs/cgroup/memory/y")]);
        assert_eq!(hierarchies(groups, v1, Controller::Processors)[0].own, Path::new("/sys/fs/cgroup/cpu/"));
        assert_eq!(hierarchies(groups, "32 24 0:28 / /sys rw - sysfs sysfs rw\n", Controller::Memory), []);
    }
}
