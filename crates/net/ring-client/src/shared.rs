//! The part of a ring that both directions share.

use crate::RingError;
use ringway_host::Signal;
use ringway_mem::{OwnedSpan, Words};
use ringway_ring::RingMemory;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

const CALL: u64 = 0;
const SOCKET: u64 = 1;

/// How long a program sleeps that nobody wakes, in nanoseconds.
const NAP: i64 = 100_000;

/// What notifies the other side.
#[derive(Debug)]
enum Kick {
    Eventfd(Signal, Arc<OwnedFd>),
    /// A register of a device, the first word of these.
    Register(OwnedSpan),
}

/// The memory and the descriptors of a ring.
#[derive(Debug)]
pub(crate) struct Shared {
    pub memory: RingMemory,
    kick: Kick,
    /// Readable when the other side notifies us, or by a timer if it can't.
    pub call: OwnedFd,
    naps: bool,
    epoll: OwnedFd,
}

/// An epoll that watches `call`. Edge-triggered, so that it never has to be read.
fn watch(call: &OwnedFd) -> Result<OwnedFd, RingError> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, call, epoll::EventData::new_u64(CALL), edge)?;
    Ok(epoll)
}

impl Shared {
    pub fn new(
        memory: RingMemory,
        kick: OwnedFd,
        call: OwnedFd,
        socket: &UnixStream,
    ) -> Result<Shared, RingError> {
        let epoll = watch(&call)?;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&epoll, socket, epoll::EventData::new_u64(SOCKET), interest)?;
        let kick = Arc::new(kick);
        let kick = Kick::Eventfd(Signal::of(kick.clone())?, kick);
        Ok(Shared { memory, kick, call, naps: false, epoll })
    }

    /// What waits for `call` and the socket.
    pub fn epoll(&self) -> std::os::fd::BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// What both directions of a ring in a device share; it is kicked by its doorbell. Without `call`,
    /// nobody wakes the program.
    pub fn to_device(
        memory: RingMemory,
        doorbell: OwnedSpan,
        call: Option<OwnedFd>,
    ) -> Result<Shared, RingError> {
        let naps = call.is_none();
        let timer =
            || timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK);
        let call = call.map_or_else(timer, Ok)?;
        let epoll = watch(&call)?;
        Ok(Shared { memory, kick: Kick::Register(doorbell), call, naps, epoll })
    }

    /// Notifies the other side.
    #[cold]
    pub fn kick(&self) {
        match &self.kick {
            Kick::Eventfd(signal, _) => signal.send(),
            Kick::Register(doorbell) => {
                if let Some(words) = Words::<u32>::new(doorbell.span()) {
                    words.store_release(0, 1);
                }
            }
        }
    }

    /// The eventfd that notifies the other side, if there is one.
    pub fn kick_fd(&self) -> Option<&Arc<OwnedFd>> {
        match &self.kick {
            Kick::Eventfd(_, fd) => Some(fd),
            Kick::Register(_) => None,
        }
    }

    /// Before sleeping: starts the timer of a program that nobody wakes.
    pub fn arm(&self) -> Result<(), RingError> {
        if self.naps {
            let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
            let once = Itimerspec { it_interval: time(0), it_value: time(NAP) };
            timerfd_settime(&self.call, TimerfdTimerFlags::empty(), &once)?;
        }
        Ok(())
    }

    /// Sleeps until the other side notifies us; `false` after `timeout`.
    pub fn sleep(&self, timeout: Option<Duration>) -> Result<bool, RingError> {
        let timeout = timeout
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
        let (events, _) = match epoll::wait(self.epoll.as_fd(), &mut events, timeout.as_ref()) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        // The socket only becomes readable for a pipe's new end, or when it is closed.
        if events.iter().any(|event| event.data.u64() == SOCKET) {
            return Err(RingError::Closed);
        }
        Ok(!events.is_empty())
    }
}
