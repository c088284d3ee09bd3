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
        if self.is_direct || self.is_disabled { self.events & FLAGS } else { self.events }
    }

    fn is_level_triggered(&self) -> bool {
        self.events & FLAGS == 0
    }
}

/// Events that say how a program is told, and not of what.
const FLAGS: u32 = (libc::EPOLLET | libc::EPOLLONESHOT) as u32;

/// An epoll set.
#[derive(Debug)]
pub struct EpollSet {
    /// Others than this process's calls on this descriptor may wait for it: its members are never direct.
    pub is_kernel_only: bool,
    pub members: Vec<Member>,
    /// Direct sockets that the program has removed, with the data of their events, and that the kernel's set still has
    /// for no events: many programs add them again at once. Attack on its own memory: each is an open descriptor.
    removed: Vec<(i32, u64)>,
    /// How many members are direct.
    direct: usize,
    /// The counts of ready connections of each bit when they were checked last.
    pub counts: [u32; BITS],
    /// The bits of level-triggered members that were ready then.
    pub ready_bits: u64,
    /// The index of the member that is checked first, so that none starves.
    pub first: usize,
    /// Calls in a row in which the kernel's descriptors were not checked.
    pub skipped: u32,
}

impl EpollSet {
    fn new() -> EpollSet {
        EpollSet {
            is_kernel_only: false,
            members: Vec::new(),
            removed: Vec::new(),
            direct: 0,
            counts: [0; BITS],
            ready_bits: 0,
            first: 0,
            skipped: 0,
        }
    }

    /// The index of a member: mostly where it was found last.
    fn position(&self, fd: i32) -> Option<usize> {
        let place = &table::slot(fd)?.place;
        let at = place.load(SeqCst) as usize;
        if self.members.get(at).is_some_and(|member| member.fd == fd) {
            return Some(at);
        }
        let at = self.members.iter().position(|member| member.fd == fd)?;
        place.store(at as u32, SeqCst);
        Some(at)
    }

    fn member(&self, fd: i32) -> Option<&Member> {
        self.position(fd).map(|at| &self.members[at])
    }

    /// Removes a member, if it is one.
    pub fn forget(&mut self, fd: i32) {
        if let Some(at) = self.position(fd) {
            self.direct -= usize::from(self.members[at].is_direct);
            self.members.swap_remove(at);
        }
    }

    /// Adds a member, or replaces it.
    fn insert(&mut self, member: Member) {
        self.direct += usize::from(member.is_direct);
        match self.position(member.fd) {
            Some(at) => {
                self.direct -= usize::from(self.members[at].is_direct);
                self.members[at] = member;
            }
            None => self.members.push(member),
        }
    }

    /// Stores how many members the library serves, or has to keep from the program. This set is `set`.
    fn publish(&self, set: i32) {
        if let Some(slot) = table::slot(set) {
            slot.value.store((self.direct + self.removed.len()) as u64, SeqCst);
        }
    }

    /// Marks a member as direct, or as the kernel's.
    fn set_direct(&mut self, set: i32, fd: i32, is_direct: bool) {
        if let Some(at) = self.removed.iter().position(|(removed, _)| *removed == fd) {
            self.removed.swap_remove(at);
            control_kernel(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
        if let Some(at) = self.position(fd) {
            let member = &mut self.members[at];
            self.direct -= usize::from(member.is_direct);
            self.direct += usize::from(is_direct);
            member.is_direct = is_direct;
            member.is_pending = is_direct && !member.is_disabled;
            // The kernel's set does not have a socket that is connected to nothing.
            let is_new = table::slot(fd).is_some_and(|slot| slot.is_unknown.load(SeqCst));
            let operation = if is_new { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
            // The kernel tells at once what it is ready for.
            control_kernel(set, operation, fd, member.kernel_events(), member.data);
        }
        self.publish(set);
    }

    /// Lets the kernel's set have what the program's `epoll_ctl` on a direct socket says, as far as the program can see
    /// it: it asks that set for no events, and level-triggered members differ by their data only.
    fn control_kernel(&mut self, set: i32, operation: i32, fd: i32, flags: u32, data: u64) -> i64 {
        if table::slot(fd).is_some_and(table::Slot::is_unknown) {
            return match (operation, self.position(fd)) {
                (libc::EPOLL_CTL_ADD, Some(_)) => -i64::from(libc::EEXIST),
                (libc::EPOLL_CTL_DEL | libc::EPOLL_CTL_MOD, None) => -i64::from(libc::ENOENT),
                (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_DEL | libc::EPOLL_CTL_MOD, _) => 0,
                _ => -i64::from(libc::EINVAL),
            };
        }
        let removed = self.removed.iter().position(|(removed, _)| *removed == fd);
        let level = self.member(fd).filter(|member| member.is_level_triggered()).map(|member| member.data);
        match (operation, removed, level) {
            (libc::EPOLL_CTL_DEL, None, Some(data)) => {
                self.removed.push((fd, data));
                0
            }
            (libc::EPOLL_CTL_DEL | libc::EPOLL_CTL_MOD, Some(_), _) => -i64::from(libc::ENOENT),
            (libc::EPOLL_CTL_ADD, Some(at), _) => {
                let is_same = self.removed[at].1 == data && flags == 0;
                let changed =
                    if is_same { 0 } else { control_kernel(set, libc::EPOLL_CTL_MOD, fd, flags, data) };
                if changed >= 0 {
                    self.removed.swap_remove(at);
                }
                changed
            }
            (libc::EPOLL_CTL_MOD, None, Some(old)) if old == data && flags == 0 => 0,
            _ => control_kernel(set, operation, fd, flags, data),
        }
    }

    /// Removes from the kernel's set what the program has removed.
    pub fn flush_removed(&mut self, set: i32) {
        for (fd, _) in std::mem::take(&mut self.removed) {
            control_kernel(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
        self.publish(set);
    }

    /// Drops the kernel's events of sockets that the program has removed: errors and hang-ups, which it tells unasked.
    /// Returns how many events are left.
    pub fn drop_removed(&mut self, set: i32, events: &mut [libc::epoll_event]) -> usize {
        const UNASKED: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let mut kept = 0;
        for at in 0..events.len() {
            let event = events[at];
            let is_removed = |(_, data): &(i32, u64)| event.events & !UNASKED == 0 && event.u64 == *data;
            if let Some(at) = self.removed.iter().position(is_removed) {
                let (fd, _) = self.removed.swap_remove(at);
                control_kernel(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
                self.publish(set);
                continue;
            }
            events[kept] = event;
            kept += 1;
        }
        kept
    }
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
fn control_kernel(set: i32, operation: i32, fd: i32, events: u32, data: u64) -> i64 {
    let mut event = libc::epoll_event { events, u64: data };
    let at = (&raw mut event).addr() as u64;
    // SAFETY: the kernel reads one event.
    unsafe { syscall(libc::SYS_epoll_ctl, [set as u64, operation as u64, fd as u64, at, 0, 0]) }
}

/// Adds a set by its descriptor.
pub fn add(guard: &mut StateGuard, fd: i32) {
    sets(guard).insert(fd, EpollSet::new());
    table::init(fd, table::EPOLL);
}

/// Whether a socket may enter: nobody waits for a set with it by the kernel's call alone, and no member is one that the
/// library could not serve.
pub fn may_enter(guard: &mut StateGuard, fd: i32) -> bool {
    sets(guard).iter().all(|(set, found)| {
        let is_idle = table::slot(*set).is_some_and(|slot| slot.busy.load(SeqCst) == 0);
        found.member(fd).is_none() || is_idle && !found.is_kernel_only
    })
}

/// Marks the members of a socket that has entered direct mode, or left it.
pub fn set_direct(guard: &mut StateGuard, fd: i32, is_direct: bool) {
    for (set, found) in sets(guard) {
        found.set_direct(*set, fd, is_direct);
    }
}

/// Removes a socket, which the kernel serves from now on, from what is known of the sets.
pub fn forget(guard: &mut StateGuard, fd: i32) {
    for (set, found) in sets(guard) {
        found.forget(fd);
        found.publish(*set);
    }
}

/// Removes a descriptor that is closed, as a member and as a set.
pub fn remove(guard: &mut StateGuard, fd: i32) {
    sets(guard).remove(&fd);
    for found in sets(guard).values_mut() {
        // The kernel's sets lose it with its file.
        found.removed.retain(|(removed, _)| *removed != fd);
    }
    forget(guard, fd);
}

/// The members of a set that are known.
pub fn members(guard: &mut StateGuard, set: i32) -> Vec<i32> {
    sets(guard).get(&set).map_or(Vec::new(), |set| set.members.iter().map(|member| member.fd).collect())
}

/// Applies a program's `epoll_ctl` on a direct socket; the kernel's result.
pub fn control_direct(
    guard: &mut StateGuard,
    set: i32,
    operation: i32,
    fd: i32,
    (events, data): (u32, u64),
) -> i64 {
    let Some(found) = sets(guard).get_mut(&set) else { return -i64::from(libc::EBADF) };
    let result = found.control_kernel(set, operation, fd, events & FLAGS, data);
    if result >= 0 {
        handle_control(guard, set, operation, fd, (events, data));
    }
    result
}

/// Applies a program's `epoll_ctl` on a known socket, after the kernel did it.
pub fn handle_control(guard: &mut StateGuard, set: i32, operation: i32, fd: i32, (events, data): (u32, u64)) {
    let Some(found) = sets(guard).get_mut(&set) else { return };
    let is_direct = table::state(fd) == table::DIRECT;
    match operation {
        libc::EPOLL_CTL_DEL => found.forget(fd),
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
            if let Some(slot) = table::slot(fd) {
                slot.is_awaited.store(true, SeqCst);
            }
            let is_pending = is_direct;
            found.insert(Member { fd, events, data, is_direct, is_pending, is_disabled: false });
        }
        _ => {}
    }
    found.publish(set);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn new_set() -> i32 {
        // SAFETY: the call takes a number.
        unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }
    }

    /// What a kernel's set tells now.
    fn events(set: i32) -> Vec<libc::epoll_event> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 16];
        // SAFETY: there is room for so many.
        let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), 16, 0) };
        events.truncate(usize::try_from(count).unwrap());
        events
    }

    fn sorted(set: i32) -> Vec<(u64, u32)> {
        let mut told: Vec<_> = events(set).iter().map(|event| (event.u64, event.events)).collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn a_set_is_to_its_program_what_the_kernels_is() {
        const EVENTS: [libc::c_int; 5] = [
            libc::EPOLLIN,
            libc::EPOLLOUT,
            libc::EPOLLIN | libc::EPOLLOUT,
            libc::EPOLLOUT | libc::EPOLLET,
            libc::EPOLLOUT | libc::EPOLLONESHOT,
        ];
        const OPERATIONS: [i32; 3] = [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_DEL];
        let (own, kernels) = (new_set(), new_set());
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let sockets: Vec<i32> = pairs.iter().map(|pair| pair.0.as_raw_fd()).collect();
        let mut guard = StateGuard::lock();
        add(&mut guard, own);
        sockets.iter().for_each(|fd| table::init(*fd, table::DIRECT));
        let mut random = 1_u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        let mut told = 0;
        for round in 0..4000 {
            let (fd, operation) = (sockets[below(4) as usize], OPERATIONS[below(3) as usize]);
            let (wanted, data) = (EVENTS[below(5) as usize] as u32, fd as u64 + 100 * below(2));
            let expected = control_kernel(kernels, operation, fd, wanted, data);
            let result = control_direct(&mut guard, own, operation, fd, (wanted, data));
            assert_eq!(result, expected, "round {round}");
            assert_eq!(events(own).len(), 0, "round {round}");
            if below(8) > 0 {
                continue;
            }
            // All leave, and enter again.
            for fd in &sockets {
                set_direct(&mut guard, *fd, false);
                let member = sets(&mut guard)[&own].member(*fd).map(|member| (member.events, member.data));
                if let Some((wanted, data)) = member {
                    assert_eq!(control_kernel(kernels, libc::EPOLL_CTL_MOD, *fd, wanted, data), 0);
                }
            }
            let expected = sorted(kernels);
            told += expected.len();
            assert_eq!(sorted(own), expected, "round {round}");
            sockets.iter().for_each(|fd| set_direct(&mut guard, *fd, true));
        }
        assert!(told > 100, "{told}");
        hang_up(&mut guard, own, pairs);
    }

    /// The agent has closed its ends of sockets that the program has removed: the program is told of others only.
    fn hang_up(guard: &mut StateGuard, set: i32, pairs: Vec<(UnixStream, UnixStream)>) {
        let sockets: Vec<UnixStream> = pairs.into_iter().map(|(socket, _)| socket).collect();
        for socket in &sockets {
            let (fd, wanted) = (socket.as_raw_fd(), libc::EPOLLIN as u32);
            control_direct(guard, set, libc::EPOLL_CTL_ADD, fd, (wanted, 1));
            control_direct(guard, set, libc::EPOLL_CTL_MOD, fd, (wanted, fd as u64));
            if fd != sockets[0].as_raw_fd() {
                assert_eq!(control_direct(guard, set, libc::EPOLL_CTL_DEL, fd, (0, 0)), 0);
            }
        }
        let mut told = events(set);
        assert_eq!(told.len(), 4);
        assert_eq!(sets(guard).get_mut(&set).unwrap().drop_removed(set, &mut told), 1);
        assert_eq!({ told[0].u64 }, sockets[0].as_raw_fd() as u64);
        assert_eq!(events(set).len(), 1);
        for socket in &sockets {
            remove(guard, socket.as_raw_fd());
            table::init(socket.as_raw_fd(), table::NONE);
        }
        remove(guard, set);
        table::init(set, table::NONE);
    }
}
