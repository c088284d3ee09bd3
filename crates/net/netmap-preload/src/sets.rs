//! Handles in epoll sets. The kernel's sets do not have them: waiting for such a set looks at its handles, asks the
//! kernel for the rest, and sleeps for both.

use crate::handles;
use crate::waiting::{Time, sleep};
use crate::{Result, real};
use libc::{c_int, epoll_event, pollfd, sigset_t};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Member {
    set: c_int,
    fd: c_int,
    events: u32,
    data: u64,
}

static MEMBERS: Mutex<Vec<Member>> = Mutex::new(Vec::new());
/// There has been one.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Keeps the sets until a fork is over.
pub struct Locked {
    _members: MutexGuard<'static, Vec<Member>>,
}

/// Before a fork; `None`: another thread has them until `end`.
pub fn lock_by(end: Instant) -> Option<Locked> {
    handles::locked_by(&MEMBERS, end).map(|members| Locked { _members: members })
}

/// In a child: if a thread of its parent had them, its sets have no handles.
pub fn renew_if_locked() {
    if MEMBERS.try_lock().is_err() {
        // SAFETY: the child has one thread alone, which holds no reference to them.
        unsafe { handles::renew(&MEMBERS, Vec::new()) };
    }
}

fn members() -> MutexGuard<'static, Vec<Member>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a handle has ever been in a set.
pub fn is_used() -> bool {
    IS_USED.load(Relaxed)
}

/// A descriptor is closed, which may be a set or a member.
pub fn closed(fd: c_int) {
    if IS_USED.load(Relaxed) {
        members().retain(|member| member.set != fd && member.fd != fd);
    }
}

/// Whether a descriptor is an epoll set that can have this member.
fn check(set: c_int, fd: c_int) -> Result<()> {
    let arguments = [set as u64, libc::EPOLL_CTL_DEL as u64, fd as u64, 0, 0, 0];
    // SAFETY: the call reads nothing. The kernel's sets do not have handles.
    match unsafe { real::syscall(libc::SYS_epoll_ctl, arguments) } {
        0 => Ok(()),
        error if -error as c_int == libc::ENOENT => Ok(()),
        error => Err(-error as c_int),
    }
}

/// `epoll_ctl` for a handle.
pub fn control(set: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) -> Result<()> {
    check(set, fd)?;
    let mut members = members();
    let found = members.iter().position(|member| (member.set, member.fd) == (set, fd));
    match (operation, found, event) {
        (libc::EPOLL_CTL_ADD, Some(_), _) => return Err(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None, Some(event)) => {
            IS_USED.store(true, Relaxed);
            members.push(Member { set, fd, events: event.events, data: event.u64 });
        }
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => return Err(libc::ENOENT),
        (libc::EPOLL_CTL_MOD, Some(at), Some(event)) => {
            members[at] = Member { set, fd, events: event.events, data: event.u64 };
        }
        (libc::EPOLL_CTL_DEL, Some(at), _) => drop(members.swap_remove(at)),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => return Err(libc::EFAULT),
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// Whether a set has handles.
pub fn has_handle(set: c_int) -> bool {
    IS_USED.load(Relaxed) && members().iter().any(|member| member.set == set)
}

/// `epoll_wait` for a set with handles.
pub fn wait(
    set: c_int,
    out: &mut [epoll_event],
    time: Option<Duration>,
    mask: *const sigset_t,
) -> Result<usize> {
    let end = Time::of(time);
    loop {
        let own: Vec<Member> = members().iter().filter(|member| member.set == set).copied().collect();
        let mut count = look(&own, out);
        if let Some(rest) = out.get_mut(count..).filter(|rest| !rest.is_empty()) {
            let arguments = [set as u64, rest.as_mut_ptr().addr() as u64, rest.len() as u64, 0, 0, 8];
            // SAFETY: the call writes as many events as there is room for.
            let more = unsafe { real::syscall(libc::SYS_epoll_pwait, arguments) };
            count += usize::try_from(more).map_err(|_| -more as c_int)?;
        }
        if count > 0 || end.is_over() {
            return Ok(count);
        }
        let awaited = own.iter().filter(|member| member.events != 0);
        let is_armed = awaited.clone().all(|member| {
            handles::get(member.fd).is_none_or(|handle| handle.arm(member.fd, member.events as i16))
        });
        let one = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        let watch = |member: &Member| handles::get(member.fd).map_or(-1, |handle| handle.watch(member.fd));
        let awaited: Vec<&Member> = awaited.collect();
        let mut fds: Vec<pollfd> =
            awaited.iter().map(|member| one(watch(member))).chain([one(set)]).collect();
        sleep(&mut fds, if is_armed { end.left() } else { Duration::ZERO }, mask)?;
        for (member, _) in awaited.iter().zip(&fds).filter(|(_, one)| one.revents != 0) {
            if let Some(handle) = handles::get(member.fd) {
                handle.woken(member.fd);
            }
        }
    }
}

/// The events of handles, as many as there is room for. The numbers of events are those of poll.
fn look(own: &[Member], out: &mut [epoll_event]) -> usize {
    let mut count = 0;
    for member in own.iter().filter(|member| member.events & 0xffff != 0) {
        let Some(place) = out.get_mut(count) else { break };
        let Some(handle) = handles::get(member.fd) else { continue };
        let ready = handle.poll(member.fd, member.events as i16);
        if ready != 0 {
            *place = epoll_event { events: ready as u16 as u32, u64: member.data };
            count += 1;
            if member.events & libc::EPOLLONESHOT as u32 != 0 {
                spend(member);
            }
        }
    }
    count
}

/// An event that is told once: the member has none until it is changed.
fn spend(member: &Member) {
    let is_it = |other: &&mut Member| (other.set, other.fd) == (member.set, member.fd);
    if let Some(member) = members().iter_mut().find(is_it) {
        member.events = 0;
    }
}
