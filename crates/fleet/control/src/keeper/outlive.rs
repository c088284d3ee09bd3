//! Processes of the fabric that outlive `control`: the keeper becomes their parent, and the next `control` goes on with
//! them by their descriptors.

use super::Keeper;
use ringway_host::{children_of, wait_readable};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgid, getpid, getppid, kill_process, kill_process_group, pidfd_open,
};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;

/// A process that was started by this `control`, or by a former one.
#[derive(Clone, Debug)]
pub struct Outliving {
    pid: Pid,
    descriptor: Arc<OwnedFd>,
    keeper: Keeper,
}

impl Outliving {
    /// A child of this process, which leads a process group. From now on it outlives this process.
    ///
    /// # Errors
    /// There are no descriptors left; the process was ended.
    pub fn started(pid: Pid, keeper: &Keeper) -> io::Result<Outliving> {
        keeper.watch(pid);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Outliving { pid, descriptor: Arc::new(descriptor), keeper: keeper.clone() }),
            Err(error) => {
                // It has not been waited for: its number is its own.
                let _ = kill_process_group(pid, Signal::KILL);
                keeper.unwatch(pid);
                Err(error.into())
            }
        }
    }

    /// A process that a former `control` had started, with the descriptor that the keeper had.
    pub fn adopted(pid: Pid, descriptor: OwnedFd, keeper: &Keeper) -> Outliving {
        Outliving { pid, descriptor: Arc::new(descriptor), keeper: keeper.clone() }
    }

    /// As [`Outliving::adopted`], of a process whose number was kept.
    ///
    /// # Errors
    /// It is no number of a process.
    pub fn kept(pid: i32, descriptor: OwnedFd, keeper: &Keeper) -> io::Result<Outliving> {
        Ok(Outliving::adopted(Pid::from_raw(pid).ok_or(Errno::SRCH)?, descriptor, keeper))
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has ended; nobody has taken its status, so that its number stays its own.
    pub fn has_ended(&self) -> bool {
        wait_readable(&[self.descriptor.as_fd()], Some(0)).is_ok_and(|ready| ready.contains(&true))
    }

    /// Waits for its end without taking its status.
    pub fn wait_for_end(&self) {
        while !matches!(wait_readable(&[self.descriptor.as_fd()], None), Ok(ready) if ready.contains(&true)) {
        }
    }

    /// Waits for its end, and takes its status.
    pub fn status(&self) -> ExitStatus {
        self.wait_for_end();
        self.keeper.status(self.pid)
    }
}

impl AsFd for Outliving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Ends children of the keeper that nobody knows: `control` was killed between starting them and telling the keeper.
/// `known` are those that this process goes on with; `belongs` says which of the others are somebody's all the same.
pub fn end_strays(keeper: &Keeper, known: &HashSet<Pid>, belongs: impl Fn(Pid) -> bool) {
    let Some(parent) = getppid().filter(|_| keeper.is_process()) else { return };
    let is_of_known = |pid| getpgid(Some(pid)).is_ok_and(|group| known.contains(&group));
    for pid in children_of(parent).into_iter().filter_map(Pid::from_raw) {
        if pid != getpid() && !known.contains(&pid) && !is_of_known(pid) && !belongs(pid) {
            tracing::warn!(
                pid = pid.as_raw_nonzero().get(),
                "ending a process of the previous control process"
            );
            keeper.unwatch(pid);
            // A child that does not lead its group has none of this number.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
