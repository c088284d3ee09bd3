//! The stack that this process shares with others: the image, its lock, and what is notified.

use crate::abi::words::{
    ACCEPTED, ANY, ATTENDANT_LEADS, ATTENDANT_SLEEPS, BITS, FOLLOWER_COUNTS, LEAD, LEADER_BITS,
    LEADER_DEADLINE, LOCK, MAX_LEADER_SLEEP, READY_COUNTS, SLEEPER_COUNTS, WITHDRAWN,
};
use crate::abi::{ADDRESSES, AGENT_AT, Call, Flags, Operation, PORT_AT};
use crate::deferral;
use crate::real::syscall;
use crate::table::{self, ADDRESS_WORDS};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// The indices of the notifiers.
const CALL: usize = 0;
const PORT: usize = 1;
const AGENT: usize = 2;
const ATTENDANT: usize = 3;
const FOLLOWERS: usize = 4;
const NOTIFIERS: usize = 5;
/// Entries of a list of descriptors to wait for that need no memory of their own, two for the library included.
const INLINE_ENTRIES: usize = 66;

/// The stack is lost, or withdrawn: all connections there are reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The addresses and lengths of the stack's memory, and its clock, as the agent says them.
#[derive(Clone, Copy, Debug)]
pub struct StackLayout {
    pub lengths: [u64; 2],
    pub clock: [u64; 3],
    pub entry: u64,
    pub text: u64,
    pub text_len: u64,
    pub data: u64,
}

/// The stack in this process.
#[derive(Debug)]
pub struct Group {
    layout: StackLayout,
    notifiers: [AtomicI32; NOTIFIERS],
}

static GROUP: AtomicPtr<Group> = AtomicPtr::new(std::ptr::null_mut());

/// The stack, if this process has joined it.
pub fn group() -> Option<&'static Group> {
    // SAFETY: null, or what `join` leaked.
    unsafe { GROUP.load(SeqCst).as_ref() }
}

/// What a call says besides its result.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub result: i64,
    pub flags: Flags,
    ready: u64,
    deadline: u64,
}

impl Turn {
    const NONE: Turn = Turn { result: 0, flags: Flags(0), ready: 0, deadline: u64::MAX };

    /// Combines this with what a later call of the same turn says.
    fn merge(self, other: Turn) -> Turn {
        let kicks = Flags::KICK_PORT.0 | Flags::KICK_AGENT.0;
        let flags = Flags(other.flags.0 | self.flags.0 & kicks);
        Turn { flags, ready: self.ready | other.ready, ..other }
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// Something may have happened to connections.
    Woken,
    /// The same, and descriptors of the program's may be ready.
    Any,
    /// A signal's handler ran.
    Interrupted,
}

/// Maps `len` bytes of a file at an address, where nothing else may be.
fn map(file: i32, address: u64, len: u64, is_code: bool) -> bool {
    let (protection, sharing) = match is_code {
        true => (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE),
        false => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
    };
    let flags = sharing | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let arguments = [address, len, protection as u64, flags as u64, file as u64, 0];
    // SAFETY: the flag makes the kernel refuse a place where something else is.
    unsafe { syscall(libc::SYS_mmap, arguments) == address as i64 }
}

fn length(file: i32) -> Option<u64> {
    // SAFETY: all zeros is a valid `stat`, which the kernel fills in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let result = unsafe { libc::fstat(file, &raw mut stat) };
    (result == 0).then_some(stat.st_size as u64)
}

/// Joins the stack, with the descriptors that the agent gave, which are closed. `false`: something else is at its
/// addresses, or the kernel refuses; this process may not try again then.
pub fn join(descriptors: &[i32], layout: StackLayout) -> bool {
    let [text, data, port, agent, notifiers @ ..] = descriptors else { return false };
    let mapped = notifiers.len() == NOTIFIERS
        && map(*text, layout.text, layout.text_len, true)
        && length(*data).is_some_and(|len| map(*data, layout.data, len, false))
        && map(*port, PORT_AT, layout.lengths[0], false)
        && map(*agent, AGENT_AT, layout.lengths[1], false);
    let own: Vec<i32> = notifiers.iter().map(|fd| if mapped { duplicate_high(*fd) } else { -1 }).collect();
    for fd in descriptors {
        close(*fd);
    }
    let Ok(own) = <[i32; NOTIFIERS]>::try_from(own) else { return false };
    if own.contains(&-1) {
        return false;
    }
    let group = Group { layout, notifiers: own.map(AtomicI32::new) };
    GROUP.store(Box::into_raw(Box::new(group)), SeqCst);
    true
}

pub fn close(fd: i32) {
    // SAFETY: the library's own descriptor, which nothing uses any more.
    unsafe { syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
}

/// Duplicates a descriptor to a number that programs seldom use; -1: the kernel refuses.
pub fn duplicate_high(fd: i32) -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills in the limits.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let most = limit.rlim_cur.min(table::MAX_DESCRIPTORS as u64);
    for from in [most.saturating_sub(64), most / 2, 10] {
        let arguments = [fd as u64, libc::F_DUPFD_CLOEXEC as u64, from, 0, 0, 0];
        // SAFETY: the call takes numbers.
        let moved = unsafe { syscall(libc::SYS_fcntl, arguments) } as i32;
        if moved >= 0 {
            table::init(moved, table::LIBRARY);
            return moved;
        }
    }
    -1
}

impl Group {
    /// Moves a descriptor of the library to another number, which the program wants.
    pub fn move_descriptor(&self, fd: i32) {
        if let Some(own) = self.notifiers.iter().find(|own| own.load(SeqCst) == fd) {
            own.store(duplicate_high(fd), SeqCst);
        }
    }

    fn signal(&self, number: usize) {
        let one = 1_u64;
        let fd = self.notifiers[number].load(SeqCst);
        let arguments = [fd as u64, (&raw const one).addr() as u64, 8, 0, 0, 0];
        // SAFETY: the kernel reads eight bytes. One that is full is signalled already.
        unsafe { syscall(libc::SYS_write, arguments) };
    }

    /// The time, of the clock of all processes.
    pub fn now(&self) -> u64 {
        let [tick, nanoseconds, rate] = self.layout.clock;
        if rate == 0 {
            return monotonic();
        }
        // SAFETY: reading the counter touches no memory.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() }.saturating_sub(tick);
        nanoseconds + ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
    }

    fn at(&self, offset: usize) -> usize {
        self.layout.data as usize + offset
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in the image's first page, which stays mapped, and aligned; all processes access it as this.
        unsafe { &*std::ptr::with_exposed_provenance(self.at(offset)) }
    }

    fn long_word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `word`.
        unsafe { &*std::ptr::with_exposed_provenance(self.at(offset)) }
    }

    /// How often connections with this bit, or any, became ready.
    pub fn changes(&self, bit: usize) -> u32 {
        self.word(READY_COUNTS + 4 * bit).load(SeqCst)
    }

    fn mutex(&self, offset: usize) -> *mut libc::pthread_mutex_t {
        std::ptr::with_exposed_provenance_mut(self.at(offset))
    }

    /// Waits for this process's turn.
    fn lock(&self) -> Result<(), Lost> {
        let mutex = self.mutex(LOCK);
        // SAFETY: the image has this lock of the C library, which the attendant made.
        let taken = match unsafe { libc::pthread_mutex_lock(mutex) } {
            0 if self.word(WITHDRAWN).load(SeqCst) == 0 => return Ok(()),
            0 | libc::EOWNERDEAD => true,
            _ => false,
        };
        if taken {
            // After a holder that has ended, all others fail from now on.
            // SAFETY: this thread has it.
            unsafe { libc::pthread_mutex_unlock(mutex) };
        }
        // All who sleep are to see it.
        for bit in 0..=ANY {
            self.word(READY_COUNTS + 4 * bit).fetch_add(1, SeqCst);
            self.wake(bit, i32::MAX);
        }
        [CALL, ATTENDANT, FOLLOWERS].iter().for_each(|number| self.signal(*number));
        Err(Lost)
    }

    fn unlock(&self) {
        // SAFETY: this thread has it.
        unsafe { libc::pthread_mutex_unlock(self.mutex(LOCK)) };
    }

    fn take_lead(&self) -> bool {
        let mutex = self.mutex(LEAD);
        // SAFETY: as in `lock`; the lead protects no data, so that one that has ended within is followed.
        match unsafe { libc::pthread_mutex_trylock(mutex) } {
            0 => true,
            // SAFETY: this thread has it.
            libc::EOWNERDEAD => unsafe { libc::pthread_mutex_consistent(mutex) == 0 },
            _ => false,
        }
    }

    fn leave_lead(&self) {
        // SAFETY: this thread has it.
        unsafe { libc::pthread_mutex_unlock(self.mutex(LEAD)) };
    }

    /// Wakes threads of processes that sleep by other means than this library's; how many.
    fn wake(&self, bit: usize, most: i32) -> i64 {
        let word = self.at(READY_COUNTS + 4 * bit) as u64;
        // SAFETY: the call only names the word.
        unsafe { syscall(libc::SYS_futex, [word, libc::FUTEX_WAKE as u64, most as u64, 0, 0, 0]) }
    }

    /// Begins a turn.
    ///
    /// # Errors
    /// The stack is lost.
    pub fn begin(&'static self) -> Result<Locked, Lost> {
        self.lock()?;
        Ok(Locked { group: self, turn: Turn::NONE })
    }

    /// Notifies, and wakes, after a turn.
    fn notify(&self, turn: &Turn) {
        if turn.flags.has(Flags::KICK_PORT) {
            self.signal(PORT);
        }
        if turn.flags.has(Flags::KICK_AGENT) {
            self.signal(AGENT);
        }
        let mut follows = false;
        let any = (turn.ready != 0).then_some(ANY);
        for bit in (0..BITS).filter(|bit| turn.ready >> bit & 1 != 0).chain(any) {
            self.word(READY_COUNTS + 4 * bit).fetch_add(1, SeqCst);
            if self.word(SLEEPER_COUNTS + 4 * bit).load(SeqCst) > 0 {
                self.wake(bit, i32::MAX);
            }
            follows |= bit != ANY && self.word(FOLLOWER_COUNTS + 4 * bit).load(SeqCst) > 0;
        }
        if follows {
            self.signal(FOLLOWERS);
        }
    }

    /// As `notify`, for a thread that does not lead.
    fn finish(&self, turn: &Turn) {
        self.notify(turn);
        let planned = self.long_word(LEADER_DEADLINE);
        let is_late = turn.deadline < planned.load(SeqCst);
        if is_late {
            // The one who leads would sleep too long.
            planned.store(turn.deadline, SeqCst);
        }
        if is_late || turn.ready & self.long_word(LEADER_BITS).load(SeqCst) != 0 {
            self.signal(CALL);
        }
    }

    /// After the lead was left: one who waits takes it, or else the attendant does, in a while.
    pub fn pass_lead(&self) {
        for bit in (0..=ANY).filter(|bit| self.word(SLEEPER_COUNTS + 4 * bit).load(SeqCst) > 0) {
            self.word(READY_COUNTS + 4 * bit).fetch_add(1, SeqCst);
            if self.wake(bit, 1) > 0 {
                return;
            }
        }
        if self.word(FOLLOWER_COUNTS + 4 * ANY).load(SeqCst) > 0 {
            self.signal(FOLLOWERS);
        }
        if self.word(ATTENDANT_SLEEPS).swap(0, SeqCst) == 1 {
            self.signal(ATTENDANT);
        }
    }

    /// Wakes all threads that wait, since the connections that they wait for have changed.
    pub fn wake_waiters(&self) {
        self.signal(CALL);
        self.signal(FOLLOWERS);
    }

    /// Passes the lead on after a thread has waited, which led or was woken to lead.
    pub fn end_wait(&self) {
        if self.take_lead() {
            self.leave_lead();
            self.pass_lead();
        }
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A time that a wait is for.
pub fn timespec(nanoseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
    }
}

/// What a thread waits for while it sleeps.
#[derive(Debug)]
pub struct WaitRequest<'a> {
    /// The bits of its connections.
    pub bits: u64,
    /// How often any became ready before it looked.
    pub seen: u32,
    /// Until when, at most.
    pub until: u64,
    /// The signal mask meanwhile; `None`: signals are deferred, and the mask is the program's.
    pub mask: Option<u64>,
    /// Descriptors of its program.
    pub others: &'a [libc::pollfd],
}

/// This process's turn.
#[derive(Debug)]
pub struct Locked {
    group: &'static Group,
    turn: Turn,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.group.unlock();
        self.group.finish(&self.turn);
    }
}

impl Locked {
    /// Calls the image.
    fn call_image(&mut self, operation: Operation, with: Call) -> Turn {
        let mut call =
            Call { operation: operation as u64, now: self.group.now(), deadline: u64::MAX, ..with };
        let entry = std::ptr::with_exposed_provenance::<()>(self.group.layout.entry as usize);
        // SAFETY: the image is mapped, and has this function there.
        let entry: unsafe extern "C" fn(*mut Call) = unsafe { std::mem::transmute(entry) };
        // SAFETY: this thread has the lock; `call` names memory that its program lends.
        unsafe { entry(&raw mut call) };
        let Call { result, ready, deadline, .. } = call;
        let turn = Turn { result, flags: Flags(call.flags), ready, deadline };
        if operation != Operation::Arm {
            self.turn = self.turn.merge(turn);
        }
        turn
    }

    /// Receives bytes. The result is as of the image.
    ///
    /// # Safety
    /// The memory is the caller's, and can be written.
    pub unsafe fn receive(&mut self, handle: u64, at: *mut u8, len: usize) -> i64 {
        let output = [at.addr() as u64, len as u64];
        self.call_image(Operation::Receive, Call { socket: handle, output, ..Call::default() }).result
    }

    /// Sends bytes.
    ///
    /// # Safety
    /// The memory can be read.
    pub unsafe fn send(&mut self, handle: u64, at: *const u8, len: usize) -> i64 {
        let input = [at.addr() as u64, len as u64];
        self.call_image(Operation::Send, Call { socket: handle, input, ..Call::default() }).result
    }

    /// Accepts a connection for this process; its handle, and its addresses in `addresses`.
    pub fn accept(&mut self, listener: u64, process: u64, addresses: &mut [u64; ADDRESS_WORDS]) -> i64 {
        let output = [addresses.as_mut_ptr().addr() as u64, ADDRESSES as u64];
        let numbers = [process, 0];
        let call = Call { socket: listener, output, numbers, ..Call::default() };
        let result = self.call_image(Operation::Accept, call).result;
        if result >= 0 {
            self.group.long_word(ACCEPTED).fetch_add(1, SeqCst);
        }
        result
    }

    /// Gives a connection up, whose handle is invalid then.
    pub fn close(&mut self, handle: u64) {
        self.call_image(Operation::Close, Call { socket: handle, ..Call::default() });
    }

    /// What a connection is ready for, and how many bytes can be read.
    pub fn ready(&mut self, handle: u64) -> (i64, Flags) {
        let turn = self.call_image(Operation::Readiness, Call { socket: handle, ..Call::default() });
        (turn.result, turn.flags)
    }

    /// Receives and sends what there is.
    pub fn run(&mut self) {
        self.call_image(Operation::Run, Call::default());
    }

    /// Publishes now which connections became ready, so that the counts are those of what this thread has seen.
    pub fn publish_ready(&mut self) {
        let ready = Turn { ready: self.turn.ready, ..Turn::NONE };
        self.group.notify(&ready);
        if self.turn.ready & self.group.long_word(LEADER_BITS).load(SeqCst) != 0 {
            self.group.signal(CALL);
        }
        self.turn.ready = 0;
    }

    /// How often any connection became ready so far.
    pub fn seen(&self) -> u32 {
        self.group.changes(ANY)
    }

    /// Ends the turn, and sleeps until something may have happened.
    pub fn sleep(mut self, wanted: &WaitRequest<'_>) -> WakeReason {
        let group = self.group;
        let changed = || group.changes(ANY) != wanted.seen;
        if !group.take_lead() {
            drop(self);
            return follow(group, wanted);
        }
        let now = group.now();
        let due = self.turn.deadline;
        let planned = if due == u64::MAX { u64::MAX } else { due.min(now + MAX_LEADER_SLEEP) };
        let planned = planned.min(wanted.until);
        group.long_word(LEADER_DEADLINE).store(planned, SeqCst);
        group.long_word(LEADER_BITS).store(wanted.bits, SeqCst);
        let may_sleep = self.call_image(Operation::Arm, Call::default()).result > 0 && !changed();
        let turn = self.turn;
        // The one who leads does not call itself.
        std::mem::forget(self);
        group.unlock();
        group.notify(&turn);
        let mut slept = WakeReason::Any;
        if may_sleep {
            let notifier = group.notifiers[CALL].load(SeqCst);
            let (woken, is_notified) = wait_for(notifier, wanted, planned.saturating_sub(group.now()));
            slept = woken;
            if is_notified {
                let mut count = 0_u64;
                // SAFETY: the kernel writes eight bytes.
                unsafe {
                    syscall(libc::SYS_read, [notifier as u64, (&raw mut count).addr() as u64, 8, 0, 0, 0])
                };
            }
        }
        group.long_word(LEADER_BITS).store(0, SeqCst);
        group.long_word(LEADER_DEADLINE).store(0, SeqCst);
        group.leave_lead();
        slept
    }
}

/// Waits for a descriptor of the library's and for those of a program, so many nanoseconds at most. How it ended, and
/// whether the library's is ready.
fn wait_for(notifier: i32, wanted: &WaitRequest<'_>, most: u64) -> (WakeReason, bool) {
    let count = wanted.others.len() + 1;
    let empty = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let (mut few, mut many) = ([empty; INLINE_ENTRIES], Vec::new());
    let list = match few.get_mut(..count) {
        Some(list) => list,
        None => {
            many.resize(count, empty);
            &mut many[..]
        }
    };
    list[0] = libc::pollfd { fd: notifier, events: libc::POLLIN, revents: 0 };
    list[1..].copy_from_slice(wanted.others);
    let time = timespec(most);
    let time_at = if most > 1 << 62 { 0 } else { (&raw const time).addr() as u64 };
    let result = match &wanted.mask {
        // SAFETY: the time lives until the call is over.
        None => unsafe { deferral::sleep(list, time_at) },
        Some(mask) => {
            let mask_at = std::ptr::from_ref(mask).addr() as u64;
            let arguments = [list.as_mut_ptr().addr() as u64, count as u64, time_at, mask_at, 8, 0];
            // SAFETY: the kernel reads and writes the list, and reads the others, all of which live until then.
            unsafe { syscall(libc::SYS_ppoll, arguments) }
        }
    };
    let is_notified = result > 0 && list[0].revents != 0;
    let slept = match result - i64::from(is_notified) {
        0 => WakeReason::Woken,
        error if error == -i64::from(libc::EINTR) => WakeReason::Interrupted,
        _ => WakeReason::Any,
    };
    (slept, is_notified)
}

/// Sets by which followers sleep, each of one thread at a time: each sees every new signal, since nobody takes any.
static FREE_FOLLOWER_SETS: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

fn acquire_follower_set(group: &Group) -> i32 {
    for place in &FREE_FOLLOWER_SETS {
        let fd = place.swap(-1, SeqCst);
        if fd >= 0 {
            return fd;
        }
    }
    // SAFETY: the calls take numbers, and the kernel reads `event`.
    unsafe {
        let fd = syscall(libc::SYS_epoll_create1, [libc::O_CLOEXEC as u64, 0, 0, 0, 0, 0]) as i32;
        if fd < 0 {
            return -1;
        }
        let own = duplicate_high(fd);
        close(fd);
        let flags = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let mut event = libc::epoll_event { events: flags, u64: 0 };
        let notifier = group.notifiers[FOLLOWERS].load(SeqCst);
        let at = (&raw mut event).addr() as u64;
        syscall(libc::SYS_epoll_ctl, [own as u64, libc::EPOLL_CTL_ADD as u64, notifier as u64, at, 0, 0]);
        own
    }
}

/// Takes the events of a set that have come, so that only new ones count.
fn clear(set: i32) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let at = (&raw mut event).addr() as u64;
    // SAFETY: the kernel writes one event.
    unsafe { syscall(libc::SYS_epoll_pwait, [set as u64, at, 1, 0, 0, 8]) };
}

fn release_follower_set(set: i32) {
    for place in &FREE_FOLLOWER_SETS {
        if place.compare_exchange(-1, set, SeqCst, SeqCst).is_ok() {
            return;
        }
    }
    if let Some(slot) = table::slot(set) {
        slot.state.store(table::NONE, SeqCst);
    }
    close(set);
}

/// In the child of a fork: its parent has the same sets, and would take their events.
pub fn close_follower_sets() {
    for place in &FREE_FOLLOWER_SETS {
        let fd = place.swap(-1, SeqCst);
        if fd >= 0 {
            if let Some(slot) = table::slot(fd) {
                slot.state.store(table::NONE, SeqCst);
            }
            close(fd);
        }
    }
}

/// Sleeps while another thread leads, until a connection with one of the bits changed, or the lead is free.
fn follow(group: &Group, wanted: &WaitRequest<'_>) -> WakeReason {
    if group.word(ATTENDANT_LEADS).swap(0, SeqCst) == 1 {
        // The attendant leaves the lead to this thread.
        group.signal(ATTENDANT);
    }
    let set = acquire_follower_set(group);
    if set < 0 {
        // Without descriptors it looks again and again, every millisecond.
        return wait_for(-1, wanted, 1_000_000).0;
    }
    clear(set);
    let bits = || (0..BITS).filter(|bit| wanted.bits >> bit & 1 != 0).chain([ANY]);
    bits().for_each(|bit| _ = group.word(FOLLOWER_COUNTS + 4 * bit).fetch_add(1, SeqCst));
    let mut slept = WakeReason::Any;
    // Whoever leaves the lead from here on notifies the followers.
    if group.take_lead() {
        group.leave_lead();
    } else if group.changes(ANY) == wanted.seen {
        let most = MAX_LEADER_SLEEP.min(wanted.until.saturating_sub(group.now()));
        slept = wait_for(set, wanted, most).0;
    }
    bits().for_each(|bit| _ = group.word(FOLLOWER_COUNTS + 4 * bit).fetch_sub(1, SeqCst));
    release_follower_set(set);
    slept
}
