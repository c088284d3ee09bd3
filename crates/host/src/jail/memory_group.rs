//! Control groups that limit a program's memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Prefix of the groups' names, followed by the id of the creating process.
const NAME: &str = "ringway-";
/// Control groups are numbered, since guests' names come from a file.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A control group with a memory limit for its processes. It is removed when this is dropped, after they have
/// ended.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
}

/// A hierarchy in which control groups with a memory limit can be created.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Its mount point.
    mount: PathBuf,
    /// Our own group.
    own: PathBuf,
    is_v2: bool,
}

impl MemoryGroup {
    /// A group with at most `bytes` of memory and, if swap can be limited, no swap.
    pub fn new(bytes: u64) -> io::Result<MemoryGroup> {
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut last =
            io::Error::new(io::ErrorKind::Unsupported, "no hierarchy of control groups is mounted");
        for hierarchy in hierarchies(&groups, &mounts) {
            for folder in hierarchy.folders() {
                match make(&folder, hierarchy.is_v2, bytes) {
                    Ok(group) => return Ok(group),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// The `cgroup.procs` files to which a process writes `0` to join.
    pub(super) fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let door = OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))?;
        Ok(vec![door.into()])
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group that still has a process is removed when the next one is created.
        let _ = std::fs::remove_dir(&self.folder);
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

/// The hierarchies that can limit memory, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn hierarchies(groups: &str, mounts: &str) -> Vec<Hierarchy> {
    let mounted = |line: &str| {
        // cgroups(7), proc_pid_mountinfo(5): root and mount point are the fourth and fifth words, kind, source and
        // options follow the dash.
        let (before, behind) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, mount) = (before.next()?, before.next()?);
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        let is_v2 = kind == "cgroup2";
        if !is_v2 && !(kind == "cgroup" && options.split(',').any(|option| option == "memory")) {
            return None;
        }
        let ours = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_meant = match is_v2 {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|controller| controller == "memory"),
            };
            is_meant.then_some(path)
        })?;
        let below = Path::new(ours).strip_prefix(root).unwrap_or(Path::new(""));
        Some(Hierarchy { mount: mount.into(), own: Path::new(mount).join(below), is_v2 })
    };
    let mut found: Vec<Hierarchy> = mounts.lines().filter_map(mounted).collect();
    // If both versions are mounted, only one controls memory; the other lacks its files.
    found.sort_by_key(|hierarchy| !hierarchy.is_v2);
    found
}

fn make(within: &Path, is_v2: bool, bytes: u64) -> io::Result<MemoryGroup> {
    if is_v2 {
        let read = |file| std::fs::read_to_string(within.join(file)).unwrap_or_default();
        let has = |file| read(file).split_whitespace().any(|controller| controller == "memory");
        if !has("cgroup.controllers") {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its control group has no memory controller",
            ));
        }
        if !has("cgroup.subtree_control") {
            put(&within.join("cgroup.subtree_control"), "+memory")?;
        }
    }
    sweep(within);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = within.join(format!("{NAME}{}-{number}", std::process::id()));
    std::fs::create_dir(&folder)?;
    // From here on the group is removed on failure.
    let group = MemoryGroup { folder };
    let file = |name| group.folder.join(name);
    if is_v2 {
        put(&file("memory.max"), &bytes.to_string())?;
        // Kernels without swap lack these files; without the other one, the group's processes are ended one
        // by one.
        let _ = put(&file("memory.swap.max"), "0");
        let _ = put(&file("memory.oom.group"), "1");
    } else {
        put(&file("memory.limit_in_bytes"), &bytes.to_string())?;
        let _ = put(&file("memory.memsw.limit_in_bytes"), &bytes.to_string());
    }
    group.doors()?;
    Ok(group)
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
        let found = hierarchies("0::/user.slice/a.scope\n", v2);
        let folder = "/sys/fs/cgroup/user.slice";
        assert_eq!(found[0].own, Path::new(folder).join("a.scope"));
        let all = [&format!("{folder}/a.scope"), folder, "/sys/fs/cgroup"].map(PathBuf::from);
        assert_eq!(found[0].folders(), all);
        let v1 = "31 24 0:27 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  32 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let groups = "9:name=systemd:/\n4:memory:/docker/x/y\n0::/\n";
        let found = hierarchies(groups, &format!("{v1}{v2}"));
        assert_eq!(found.iter().map(|one| one.is_v2).collect::<Vec<_>>(), [true, false]);
        assert_eq!(found[1].folders(), [PathBuf::from("/sys/fs/cgroup/memory/y")]);
        assert_eq!(hierarchies(groups, "32 24 0:28 / /sys rw - sysfs sysfs rw\n"), []);
    }
}
