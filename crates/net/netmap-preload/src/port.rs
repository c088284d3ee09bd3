//! A registered port: netmap's two rings, and copying between them and the port's ring.

use crate::Result;
use crate::real::syscall;
use crate::region::{BUF_CHANGED, BUFFER, INDIRECT, MOREFRAG, REPORT, Region, Slot};
use arrayvec::ArrayVec;
use ringway_mem::copy;
use ringway_ring_client::{FRAGMENTS, Ring, RingError, Span, Taken, Wait};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};

/// Events of poll that ask for room to send, and for frames.
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;
const IN: i16 = libc::POLLIN | libc::POLLRDNORM;

const TX: usize = 0;
const RX: usize = 1;
/// How long closing waits until the port has taken what was sent.
const DRAIN: Duration = Duration::from_secs(1);
/// Syncs without a frame after which the port's socket is asked whether it is there.
const IDLE: u32 = 256;
/// What a handle watches.
const CALL: u64 = 0;
const SOCKET: u64 = 1;

/// One of netmap's rings, as far as it was accepted from the program.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    slots: u32,
    head: u32,
    cur: u32,
    tail: u32,
    /// To send: the next slot to copy, up to `head`.
    next: u32,
    /// The sync ended because there was no room for a frame: in the port's ring to send, in netmap's to receive.
    is_full: bool,
}

impl Side {
    fn distance(self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    fn after(self, at: u32, by: u32) -> u32 {
        let at = at + by;
        if at >= self.slots { at - self.slots } else { at }
    }

    /// Takes the program's head and cur. Attack: it writes any numbers; they must lie between what it gave last and
    /// the tail.
    fn accept(&mut self, (head, cur): (u32, u32)) -> bool {
        if head >= self.slots || cur >= self.slots {
            return false;
        }
        let [given, woken, most] = [head, cur, self.tail].map(|to| self.distance(self.head, to));
        let is_valid = given <= woken && woken <= most;
        if is_valid {
            (self.head, self.cur) = (head, cur);
        }
        is_valid
    }

    fn is_ready(self) -> bool {
        self.cur != self.tail
    }
}

/// What a handle has of its port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// The number of its `netmap_if`.
    pub number: u32,
    /// The rings that it sends to and receives from.
    pub bound: [bool; 2],
    /// Frames to send are sent by a poll that does not ask for POLLOUT.
    pub sends: bool,
    /// Slots are returned, and frames received, by a poll that does not ask for POLLIN.
    pub receives: bool,
}

/// A registered port.
#[derive(Debug)]
pub struct Port {
    ring: Ring,
    pub region: Region,
    pub id: u16,
    /// One handle has it alone.
    pub is_exclusive: bool,
    /// The numbers that handles have, a bit each.
    pub numbers: u32,
    sides: [Side; 2],
    idle: u32,
    is_gone: bool,
}

impl Port {
    pub fn new(ring: Ring, region: Region, id: u16) -> Port {
        let slots = region.sizes().slots;
        let side = |dir: usize, tail| Side { slots: slots[dir], tail, ..Side::default() };
        let sides = [side(TX, slots[TX] - 1), side(RX, 0)];
        Port { ring, region, id, is_exclusive: false, numbers: 0, sides, idle: 0, is_gone: false }
    }

    /// Lets a handle's descriptor watch the ring's eventfd and its socket. The eventfd is watched by its edges, so that
    /// it never has to be read.
    pub fn let_watch(&self, fd: i32) -> Result<()> {
        let (edge, level) = (libc::EPOLLIN | libc::EPOLLET, libc::EPOLLIN | libc::EPOLLRDHUP);
        let socket = self.ring.socket().map(|socket| (socket.as_raw_fd(), level, SOCKET));
        for (watched, bits, data) in
            [Some((self.ring.as_fd().as_raw_fd(), edge, CALL)), socket].into_iter().flatten()
        {
            let mut event = libc::epoll_event { events: bits as u32, u64: data };
            let at = (&raw mut event).addr() as u64;
            let arguments = [fd as u64, libc::EPOLL_CTL_ADD as u64, watched as u64, at, 0, 0];
            // SAFETY: the call reads the event, which lives.
            if unsafe { syscall(libc::SYS_epoll_ctl, arguments) } < 0 {
                return Err(libc::ENOMEM);
            }
        }
        Ok(())
    }

    /// The port is lost for good.
    fn lost(&mut self) -> i32 {
        self.is_gone = true;
        libc::ENXIO
    }

    /// NIOCTXSYNC and NIOCRXSYNC; `false`: the program had written what can't be, and the ring was put right.
    pub fn sync(&mut self, dir: usize) -> Result<bool> {
        if self.is_gone {
            return Err(libc::ENXIO);
        }
        let before = [self.sides[TX].next, self.sides[RX].tail];
        let done = if dir == TX { self.send() } else { self.receive() };
        let is_right = done.map_err(|_| self.lost())?;
        if let Ok(time) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            self.region.set_time(dir, time);
        }
        let has_moved = before != [self.sides[TX].next, self.sides[RX].tail];
        self.idle = if has_moved { 0 } else { self.idle + 1 };
        if self.idle >= IDLE {
            self.look()?;
        }
        Ok(is_right)
    }

    /// Looks whether the port is still there.
    pub fn look(&mut self) -> Result<()> {
        self.idle = 0;
        if self.is_gone || self.ring.is_hung_up() { Err(self.lost()) } else { Ok(()) }
    }

    /// Puts a ring back to the last positions that were accepted.
    fn reset(&mut self, dir: usize) {
        let side = &mut self.sides[dir];
        side.cur = side.head;
        self.region.set_position(dir, side.head);
        self.region.set_tail(dir, side.tail);
        for at in 0..side.slots {
            let slot = self.region.slot(dir, at);
            if self.region.buffer(slot.buf_idx, slot.len.into()).is_none() {
                self.repair(dir, at);
            }
        }
    }

    fn repair(&self, dir: usize, at: u32) {
        let buf_idx = self.region.own_buffer(dir, at);
        self.region.set_slot(dir, at, Slot { buf_idx, len: 0, flags: 0 });
    }

    fn send(&mut self) -> std::result::Result<bool, RingError> {
        let position = self.region.position(TX);
        let mut is_right = self.sides[TX].accept(position);
        if !is_right {
            self.reset(TX);
        }
        let first = self.sides[TX].next;
        self.sides[TX].is_full = false;
        while self.sides[TX].next != self.sides[TX].head {
            match self.send_frame()? {
                Sent::Yes => {}
                Sent::Wrong => is_right = false,
                Sent::NoRoom => {
                    self.sides[TX].is_full = true;
                    break;
                }
                Sent::Incomplete => break,
            }
        }
        self.ring.tx.sync()?;
        let is_taken = self.is_taken()?;
        let side = &mut self.sides[TX];
        // While the port has not taken everything, one more slot stays netmap's, so that the program sees that
        // something is pending.
        if side.next != first || is_taken {
            side.tail = side.after(side.next, side.slots - if is_taken { 1 } else { 2 });
            self.region.set_tail(TX, side.tail);
        }
        Ok(is_right)
    }

    /// Whether the port has taken everything.
    fn is_taken(&mut self) -> std::result::Result<bool, RingError> {
        Ok(self.ring.tx.consumed()? == self.ring.tx.head())
    }

    /// Copies the next frame to the ring.
    fn send_frame(&mut self) -> std::result::Result<Sent, RingError> {
        let (region, side) = (&self.region, self.sides[TX]);
        let mut parts: ArrayVec<Span<'_>, FRAGMENTS> = ArrayVec::new();
        let (mut at, mut is_wrong) = (side.next, false);
        loop {
            if at == side.head && is_wrong {
                // One that can't be sent any more is not waited for.
                self.sides[TX].next = at;
                return Ok(Sent::Wrong);
            }
            if at == side.head {
                return Ok(Sent::Incomplete);
            }
            let slot = region.slot(TX, at);
            match region.buffer(slot.buf_idx, slot.len.into()) {
                Some(span) if slot.flags & INDIRECT == 0 => {
                    is_wrong |= parts.try_push(span.as_span()).is_err();
                    if slot.flags & (REPORT | BUF_CHANGED) != 0 {
                        let flags = slot.flags & !(REPORT | BUF_CHANGED);
                        region.set_slot(TX, at, Slot { flags, ..slot });
                    }
                }
                _ => {
                    is_wrong = true;
                    self.repair(TX, at);
                }
            }
            at = side.after(at, 1);
            if slot.flags & MOREFRAG == 0 {
                break;
            }
        }
        let sent = match is_wrong {
            true => Sent::Wrong,
            false => match self.ring.tx.push_gathered(parts.iter().copied(), [0; 10]) {
                Ok(true) => Sent::Yes,
                Ok(false) => return Ok(Sent::NoRoom),
                Err(RingError::TooLong { .. }) => Sent::Wrong,
                Err(error) => return Err(error),
            },
        };
        self.sides[TX].next = at;
        Ok(sent)
    }

    fn receive(&mut self) -> std::result::Result<bool, RingError> {
        let position = self.region.position(RX);
        let mut is_right = self.sides[RX].accept(position);
        if !is_right {
            self.reset(RX);
        }
        let side = &mut self.sides[RX];
        side.is_full = false;
        while let Some(len) = self.ring.rx.frame_len()? {
            let needed = (len as u32).div_ceil(BUFFER).max(1);
            let free = side.slots - 1 - side.distance(side.head, side.tail);
            if needed > free && needed < side.slots {
                side.is_full = true;
                break;
            }
            let Some(frame) = self.ring.rx.take()? else { break };
            // One that no ring of this size can have is dropped.
            if needed < side.slots {
                is_right &= fill(&self.region, side, &frame, needed);
            }
        }
        self.ring.rx.sync()?;
        self.region.set_tail(RX, side.tail);
        Ok(is_right)
    }

    /// Syncs for a poll, and says what is ready.
    pub fn poll(&mut self, own: Use, events: i16) -> i16 {
        let wants = [events & OUT != 0, events & IN != 0];
        let mut ready = 0;
        for (dir, always, bits) in [(TX, own.sends, OUT), (RX, own.receives, IN)] {
            if !own.bound[dir] || !(wants[dir] || always) {
                continue;
            }
            match self.sync(dir) {
                Ok(true) => {}
                Ok(false) | Err(_) => ready |= libc::POLLERR,
            }
            if wants[dir] && self.sides[dir].is_ready() {
                ready |= events & bits;
            }
        }
        if self.is_gone { libc::POLLERR } else { ready }
    }

    /// Before sleeping: lets the port wake the handle when `events` may be ready. `false`: they may be now.
    pub fn arm(&mut self, own: Use, events: i16) -> bool {
        let (tx, rx) = (self.sides[TX], self.sides[RX]);
        let is_awaited = events & OUT != 0 && !tx.is_ready();
        let slots = self.ring.tx.slots();
        let wait = Wait {
            rx: u32::from(events & IN != 0 && own.bound[RX] && !rx.is_full),
            tx: match (tx.is_full && (is_awaited || own.sends), is_awaited) {
                (true, _) => (slots / 4).max(FRAGMENTS as u32),
                (false, true) if tx.next == tx.head => slots,
                _ => 0,
            },
        };
        match self.ring.arm(wait) {
            Ok(may_sleep) => may_sleep,
            Err(_) => {
                self.lost();
                false
            }
        }
    }

    /// After the handle was readable as the descriptor `fd`: takes the wake, and notes if the port is gone.
    pub fn woken(&mut self, fd: i32) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
        let arguments = [fd as u64, events.as_mut_ptr().addr() as u64, events.len() as u64, 0, 0, 8];
        // SAFETY: the call writes at most as many events.
        let count = unsafe { syscall(libc::SYS_epoll_pwait, arguments) };
        let told = events.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
        if told.iter().any(|event| event.u64 == SOCKET) {
            self.lost();
        }
    }

    /// Before the last descriptor is closed: waits until the port has taken what was sent.
    pub fn finish(&mut self) {
        let begin = std::time::Instant::now();
        while begin.elapsed() < DRAIN && self.sync(TX).is_ok() {
            let has_rest = self.sides[TX].is_full || !self.is_taken().unwrap_or(true);
            if !has_rest || self.look().is_err() {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

enum Sent {
    Yes,
    /// A slot is impossible; the frame was left out.
    Wrong,
    NoRoom,
    /// Its last slot is not given yet.
    Incomplete,
}

/// Copies a frame to the next `needed` slots. `false`: one of them named no buffer, and was given its own.
fn fill(region: &Region, side: &mut Side, frame: &Taken<'_>, needed: u32) -> bool {
    let mut is_right = true;
    let mut pieces = frame.pieces.iter().copied();
    let mut piece = Span::empty();
    for left in (0..needed).rev() {
        let mut buf_idx = region.slot(RX, side.tail).buf_idx;
        if region.buffer(buf_idx, BUFFER).is_none() {
            (buf_idx, is_right) = (region.own_buffer(RX, side.tail), false);
        }
        let Some(mut room) = region.buffer(buf_idx, BUFFER) else { return false };
        while !room.is_empty() {
            if piece.is_empty() {
                let Some(next) = pieces.next() else { break };
                piece = next;
            }
            let count = copy(piece, room);
            (piece, room) = (piece.split(count).1, room.split(count).1);
        }
        // A frame of several slots has their number in the upper half.
        let flags = if needed > 1 { (needed as u16) << 8 } else { 0 } | if left > 0 { MOREFRAG } else { 0 };
        let len = (BUFFER as usize - room.len()) as u16;
        region.set_slot(RX, side.tail, Slot { buf_idx, len, flags });
        side.tail = side.after(side.tail, 1);
    }
    is_right
}
