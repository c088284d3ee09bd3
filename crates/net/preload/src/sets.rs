//! The epoll sets of this process, and which TCP sockets are in them. A direct socket is in the kernel's set too, but
//! for no events, so that the set is what its program made it whenever the connection leaves direct mode.

use crate::abi::words::BITS;
use crate::gate::Inside;
use crate::real::call;
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
    /// It is told what it is ready for, even if nothing has changed.
    pub is_pending: bool,
    /// It was told of once (`EPOLLONESHOT`).
    pub is_disabled: bool,
}

impl Member {
    fn kernel_events(&self) -> u32 {
        let flags = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;
        if self.is_direct || self.is_disabled { self.events & flags } else { self.events }
    }
}

/// A set.
#[derive(Debug)]
pub struct Set {
    /// Others than this process's calls on this descriptor may wait for it: its members are never direct.
    pub is_barred: bool,
    pub members: Vec<Member>,
    /// How often connections of each bit had become ready when they were looked at.
    pub watch: [u32; BITS],
    /// The bits of members that were ready then.
    pub hot: u64,
    /// The member that is looked at first, so that all have their turn.
    pub next: usize,
    /// Calls in which the kernel's descriptors were not looked at.
    pub skipped: u32,
}

struct Sets(UnsafeCell<BTreeMap<i32, Set>>);

// SAFETY: only `sets` uses it, for the one thread that is inside.
unsafe impl Sync for Sets {}

static SETS: Sets = Sets(UnsafeCell::new(BTreeMap::new()));

/// All sets.
pub fn sets(_inside: &mut Inside) -> &mut BTreeMap<i32, Set> {
    // SAFETY: there is one `Inside` at a time, which is borrowed as long as this is.
    unsafe { &mut *SETS.0.get() }
}

/// Calls the kernel's `epoll_ctl`; its result, or a negative error.
pub fn control(set: i32, operation: i32, fd: i32, events: u32, data: u64) -> i64 {
    let mut event = libc::epoll_event { events, u64: data };
    let at = (&raw mut event).addr() as u64;
    // SAFETY: the kernel reads one event.
    unsafe { call(libc::SYS_epoll_ctl, [set as u64, operation as u64, fd as u64, at, 0, 0]) }
}

/// A descriptor is a set.
pub fn add(inside: &mut Inside, fd: i32) {
    let set = Set { is_barred: false, members: Vec::new(), watch: [0; BITS], hot: 0, next: 0, skipped: 0 };
    sets(inside).insert(fd, set);
    table::begin(fd, table::SET);
}

/// Tells how many members of each set are direct.
fn count(inside: &mut Inside) {
    for (fd, set) in sets(inside) {
        let direct = set.members.iter().filter(|member| member.is_direct).count();
        if let Some(slot) = table::slot(*fd) {
            slot.value.store(direct as u64, SeqCst);
        }
    }
}

/// Whether a socket may enter: nobody waits for a set with it by the kernel's call alone, and no member is one that the
/// library could not serve.
pub fn may_enter(inside: &mut Inside, fd: i32) -> bool {
    sets(inside).iter().all(|(set, found)| {
        let has = found.members.iter().any(|member| member.fd == fd);
        let is_idle = table::slot(*set).is_some_and(|slot| slot.busy.load(SeqCst) == 0);
        !has || is_idle && !found.is_barred
    })
}

/// A socket has entered direct mode, or left it: its members follow.
pub fn change(inside: &mut Inside, fd: i32, is_direct: bool) {
    for (set, found) in sets(inside) {
        for member in found.members.iter_mut().filter(|member| member.fd == fd) {
            member.is_direct = is_direct;
            member.is_pending = is_direct && !member.is_disabled;
            // The kernel tells at once what it is ready for.
            control(*set, libc::EPOLL_CTL_MOD, fd, member.kernel_events(), member.data);
        }
    }
    count(inside);
}

/// A descriptor is closed: it is in no set, and none itself.
pub fn forget(inside: &mut Inside, fd: i32) {
    let all = sets(inside);
    all.remove(&fd);
    for set in all.values_mut() {
        set.members.retain(|member| member.fd != fd);
    }
    count(inside);
}

/// The members of a set that are known.
pub fn members(inside: &mut Inside, set: i32) -> Vec<i32> {
    sets(inside).get(&set).map_or(Vec::new(), |set| set.members.iter().map(|member| member.fd).collect())
}

/// What a program's `epoll_ctl` changed for a socket that is known, after the kernel did it.
pub fn changed(inside: &mut Inside, set: i32, operation: i32, fd: i32, events: u32, data: u64) {
    let Some(found) = sets(inside).get_mut(&set) else { return };
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
    count(inside);
}
