//! The epoll sets of this process, and which TCP sockets are in them. A direct socket is in the kernel's set too, but
//! for no events, so that the set is what its program made it whenever the connection leaves direct mode.

use crate::abi::words::BITS;
use crate::guard::StateGuard;
use crate::real::syscall;
use crate::table;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;

/// A socket in a set.
#[derive(Debug)]
pub struct Member {
    pub fd: i32,
    pub events: u32,
    pub data: u64,
    pub is_direct: bool,
    /// The program is told of the present readiness, even if nothing has changed.
    pub is_pending: bool,
    /// The program was told once (`EPOLLONESHOT`).
    pub is_disabled: bool,
}

impl Member {
    fn kernel_events(&self) -> u32 {
        let flags = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
        if self.is_direct || self.is_disabled { self.events & flags } else { self.events }
    }
}

/// An epoll set.
#[derive(Debug)]
pub struct EpollSet {
    /// Others than this process's calls on this descriptor may wait for it: its members are never direct.
    pub is_kernel_only: bool,
    pub members: Vec<Member>,
    /// The counts of ready connections of each bit when they were checked last.
    pub counts: [u32; BITS],
    /// The bits of level-triggered members that were ready then.
    pub ready_bits: u64,
    /// The index of the member that is checked first, so that none starves.
    pub first: usize,
    /// Calls in a row in which the kernel's descriptors were not checked.
    pub skipped: u32,
}

struct Sets(UnsafeCell<BTreeMap<i32, EpollSet>>);

// SAFETY: only `sets` uses it, for the one thread that has the lock.
unsafe impl Sync for Sets {}

static SETS: Sets = Sets(UnsafeCell::new(BTreeMap::new()));

/// All sets.
pub fn sets(_guard: &mut StateGuard) -> &mut BTreeMap<i32, EpollSet> {
    // SAFETY: there is one `StateGuard` at a time, which is borrowed as long as this is.
    unsafe { &mut *SETS.0.get() }
}

/// Calls the kernel's `epoll_ctl`; its result, or a negative error.
pub fn control_kernel(set: i32, operation: i32, fd: i32, events: u32, data: u64) -> i64 {
    let mut event = libc::epoll_event { events, u64: data };
    let at = (&raw mut event).addr() as u64;
    // SAFETY: the kernel reads one event.
    unsafe { syscall(libc::SYS_epoll_ctl, [set as u64, operation as u64, fd as u64, at, 0, 0]) }
}

/// Adds a set by its descriptor.
pub fn add(guard: &mut StateGuard, fd: i32) {
    let set = EpollSet {
        is_kernel_only: false,
        members: Vec::new(),
        counts: [0; BITS],
        ready_bits: 0,
        first: 0,
        skipped: 0,
    };
    sets(guard).insert(fd, set);
    table::init(fd, table::EPOLL);
}

/// Stores the number of each set's direct members.
fn update_counts(guard: &mut StateGuard) {
    for (fd, set) in sets(guard) {
        let direct = set.members.iter().filter(|member| member.is_direct).count();
        if let Some(slot) = table::slot(*fd) {
            slot.value.store(direct as u64, SeqCst);
        }
    }
}

/// Whether a socket may enter: nobody waits for a set with it by the kernel's call alone, and no member is one that the
/// library could not serve.
pub fn may_enter(guard: &mut StateGuard, fd: i32) -> bool {
    sets(guard).iter().all(|(set, found)| {
        let has = found.members.iter().any(|member| member.fd == fd);
        let is_idle = table::slot(*set).is_some_and(|slot| slot.busy.load(SeqCst) == 0);
        !has || is_idle && !found.is_kernel_only
    })
}

/// Marks the members of a socket that has entered direct mode, or left it.
pub fn set_direct(guard: &mut StateGuard, fd: i32, is_direct: bool) {
    for (set, found) in sets(guard) {
        for member in found.members.iter_mut().filter(|member| member.fd == fd) {
            member.is_direct = is_direct;
            member.is_pending = is_direct && !member.is_disabled;
            // The kernel tells at once what it is ready for.
            control_kernel(*set, libc::EPOLL_CTL_MOD, fd, member.kernel_events(), member.data);
        }
    }
    update_counts(guard);
}

/// Removes a descriptor that is closed, as a member and as a set.
pub fn remove(guard: &mut StateGuard, fd: i32) {
    let all = sets(guard);
    all.remove(&fd);
    for set in all.values_mut() {
        set.members.retain(|member| member.fd != fd);
    }
    update_counts(guard);
}

/// The members of a set that are known.
pub fn members(guard: &mut StateGuard, set: i32) -> Vec<i32> {
    sets(guard).get(&set).map_or(Vec::new(), |set| set.members.iter().map(|member| member.fd).collect())
}

/// Applies a program's `epoll_ctl` on a known socket, after the kernel did it.
pub fn handle_control(guard: &mut StateGuard, set: i32, operation: i32, fd: i32, events: u32, data: u64) {
    let Some(found) = sets(guard).get_mut(&set) else { return };
    let is_direct = table::state(fd) == table::DIRECT;
    match operation {
        libc::EPOLL_CTL_DEL => found.members.retain(|member| member.fd != fd),
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
            if let Some(slot) = table::slot(fd) {
                slot.is_awaited.store(true, SeqCst);
            }
            found.members.retain(|member| member.fd != fd);
            found.members.push(Member {
                fd,
                events,
                data,
                is_direct,
                is_pending: is_direct,
                is_disabled: false,
            });
        }
        _ => {}
    }
    update_counts(guard);
}
