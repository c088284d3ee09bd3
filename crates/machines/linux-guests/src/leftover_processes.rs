//! Leftover processes of guests whose fabric was killed.

use rustix::process::{Pid, Signal, kill_process_group};
use std::path::Path;

/// The file in a guest's folder that names its process group.
const GROUP: &str = "group";

/// Records the process group of the guest with this folder. After a crash, helpers of User-Mode Linux would
/// otherwise remain.
pub fn note(folder: &Path, group: Pid) {
    let _ = std::fs::write(folder.join(GROUP), group.as_raw_nonzero().to_string());
}

/// Ends the remaining processes of guests with folders in `guests` whose fabric was killed: the kernel only
/// ends each guest's first process.
pub fn end_left_over(guests: &Path) {
    let Ok(folders) = std::fs::read_dir(guests) else { return };
    for folder in folders.flatten().map(|entry| entry.path()) {
        let text = std::fs::read_to_string(folder.join(GROUP)).unwrap_or_default();
        // Process ids are reused: an unrelated group does not have a file of this guest on its command line.
        if let Some(group) = text.parse().ok().and_then(Pid::from_raw).filter(|&group| is_of(group, &folder))
        {
            tracing::warn!(folder = %folder.display(), "ending what an earlier fabric left");
            // The group may have ended meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Whether a process of this group has a file of `folder` on its command line.
fn is_of(group: Pid, folder: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let folder = folder.as_os_str().as_encoded_bytes();
    processes.flatten().map(|entry| entry.path()).any(|process| {
        group_of(&process) == Some(group)
            && std::fs::read(process.join("cmdline"))
                .is_ok_and(|words| words.windows(folder.len().max(1)).any(|part| part == folder))
    })
}

/// The process group from a folder of `/proc`: the third field after the program's name, which may contain
/// any characters.
fn group_of(process: &Path) -> Option<Pid> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    let group = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?;
    Pid::from_raw(group.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    /// A shell with a path on its command line, and with a child.
    struct Shell(Child);

    impl Shell {
        fn new(path: &Path) -> Shell {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 1000 & wait"]).arg(path).process_group(0);
            Shell(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            // The group may have ended already.
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }

    #[test]
    fn only_leftover_processes_of_guests_are_ended() {
        let guests = std::env::temp_dir().join(format!("ringway-left-over-{}", std::process::id()));
        let [left, right] = ["left", "right"].map(|name| guests.join(name));
        [&left, &right].iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let mut ours = Shell::new(&left.join("initramfs.cpio"));
        let mut other = Shell::new(Path::new("/elsewhere"));
        note(&left, Pid::from_child(&ours.0));
        // Its id was reused by another process.
        note(&right, Pid::from_child(&other.0));
        end_left_over(&guests);
        assert_eq!(ours.0.wait().unwrap().signal(), Some(9));
        assert!(other.0.try_wait().unwrap().is_none());
        std::fs::remove_dir_all(&guests).unwrap();
        end_left_over(&guests);
    }
}
