//! `poll` and `epoll`.

use crate::machine::{FIRST, File, Machine};
use crate::sockets::Kind;
use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};
use ringway_netstack::State;

/// What is known about a socket from the stack's events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    pub writable: bool,
    /// Counts events.
    pub events: u64,
}

/// One descriptor of an epoll set.
#[derive(Clone, Copy, Debug)]
struct Watch {
    fd: i32,
    events: u32,
    data: u64,
    /// The socket's events when it was last reported, if it is edge-triggered.
    seen: Option<u64>,
    disabled: bool,
}

/// An epoll set.
#[derive(Clone, Debug, Default)]
pub struct Epoll(Vec<Watch>);

const IN: u32 = EPOLLIN as u32;
const OUT: u32 = EPOLLOUT as u32;

impl Machine {
    /// Notes the stack's events.
    pub fn tell(&mut self) {
        self.complete_zerocopy();
        while let Some((id, readiness)) = self.stack.next_event() {
            for file in self.files.iter_mut().flatten() {
                if let File::Socket(socket) = file
                    && (socket.kind == Kind::Stream(id) || socket.kind == Kind::Listener(id))
                {
                    socket.ready.writable |= readiness.writable;
                    socket.ready.events += 1;
                }
            }
        }
    }

    /// The events of a descriptor: `poll`'s, which have the same values as `epoll`'s.
    pub fn events(&mut self, fd: i32) -> Result<u32, i32> {
        let socket = self.socket(fd)?.clone();
        let id = match socket.kind {
            Kind::New => return Ok(OUT | EPOLLHUP as u32),
            Kind::Deferred(_) => return Ok(OUT),
            Kind::Listener(id) => {
                let waits = self.stack.has_connections(id);
                return Ok(if waits { IN } else { 0 });
            }
            Kind::Stream(id) => id,
        };
        let Ok(info) = self.stack.info(id) else { return Ok(EPOLLHUP as u32) };
        let mut events = 0;
        let finished = self.stack.is_finished(id) == Ok(true);
        let fin = matches!(
            info.tcpi_state,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait | State::Closed
        );
        let connecting = info.tcpi_state == State::SynSent;
        if finished || self.unread(fd)? > 0 || fin {
            events |= IN;
        }
        if fin {
            events |= EPOLLRDHUP as u32;
        }
        if (socket.ready.writable && !connecting) || info.tcpi_state == State::Closed {
            events |= OUT;
        }
        let failed = self.stack.error(id).is_ok_and(|error| error.is_some()) && !socket.told;
        if failed || socket.zerocopy.has_news() {
            events |= EPOLLERR as u32;
        }
        if matches!(info.tcpi_state, State::Closed | State::TimeWait | State::LastAck | State::Closing) {
            events |= EPOLLHUP as u32;
        }
        Ok(events)
    }

    /// Fills in what is ready; `EAGAIN` if nothing is.
    pub fn poll(&mut self, wanted: &[(i32, i16)], found: &mut [i16]) -> Result<i32, i32> {
        let mut count = 0;
        for (&(fd, events), found) in wanted.iter().zip(found) {
            let always = (libc::POLLERR | libc::POLLHUP) as u32;
            let now = self.events(fd).map_or(libc::POLLNVAL, |now| (now & (events as u32 | always)) as i16);
            *found = now;
            count += i32::from(now != 0);
        }
        if count == 0 { Err(libc::EAGAIN) } else { Ok(count) }
    }

    pub fn epoll_create(&mut self) -> i32 {
        self.add(File::Epoll(Epoll::default()))
    }

    fn epoll(&mut self, fd: i32) -> Result<&mut Epoll, i32> {
        match self.file(fd)? {
            File::Epoll(epoll) => Ok(epoll),
            _ => Err(libc::EINVAL),
        }
    }

    pub fn epoll_ctl(&mut self, epfd: i32, op: i32, fd: i32, event: Option<(u32, u64)>) -> Result<i32, i32> {
        self.file(fd)?;
        let set = &mut self.epoll(epfd)?.0;
        let place = set.iter().position(|watch| watch.fd == fd);
        match (op, place) {
            (libc::EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(libc::ENOENT),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, Some(place)) => {
                let old = set.remove(place);
                let exclusive = (old.events | event.map_or(0, |event| event.0)) & libc::EPOLLEXCLUSIVE as u32;
                if op == libc::EPOLL_CTL_MOD && exclusive != 0 {
                    set.push(old);
                    return Err(libc::EINVAL);
                }
            }
            (libc::EPOLL_CTL_ADD, None) => {}
            _ => return Err(libc::EINVAL),
        }
        if op != libc::EPOLL_CTL_DEL {
            let (events, data) = event.ok_or(libc::EFAULT)?;
            set.push(Watch { fd, events, data, seen: None, disabled: false });
        }
        Ok(0)
    }

    /// The ready descriptors, at most `most`; `EAGAIN` if there are none.
    pub fn epoll_wait(&mut self, epfd: i32, most: usize) -> Result<Vec<(u32, u64)>, i32> {
        let mut set = self.epoll(epfd)?.clone();
        let mut ready = Vec::new();
        for watch in &mut set.0 {
            let always = (EPOLLERR | EPOLLHUP) as u32;
            let now = self.events(watch.fd).unwrap_or(0) & (watch.events | always);
            let count = self.socket(watch.fd).map_or(0, |socket| socket.ready.events);
            let edge = watch.events & EPOLLET as u32 != 0;
            if now == 0 || watch.disabled || ready.len() >= most || (edge && watch.seen == Some(count)) {
                continue;
            }
            watch.seen = Some(count);
            watch.disabled = watch.events & EPOLLONESHOT as u32 != 0;
            ready.push((now, watch.data));
        }
        *self.epoll(epfd)? = set;
        if ready.is_empty() { Err(libc::EAGAIN) } else { Ok(ready) }
    }

    /// Whether a number is one of ours.
    pub fn owns(fd: i32) -> bool {
        fd >= FIRST
    }
}
