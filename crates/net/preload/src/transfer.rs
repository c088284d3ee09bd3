//! Reading and writing connections in the shared stack.

use crate::abi::{BAD_SOCKET, WOULD_BLOCK};
use crate::group::{Group, Locked, WaitRequest, WakeReason, group};
use crate::guard::SignalsHeld;
use crate::moving::{LeaveReason, Route, leave_ended, leave_now, route};
use crate::real::{set_errno, syscall};
use crate::signals::{Handlers, handlers};
use crate::table::Slot;
use libc::{c_int, c_void, iovec, msghdr, off_t};
use std::sync::atomic::Ordering::SeqCst;

/// Bytes of small pieces that are sent by one call of the image: each call of the image may make a segment of its own.
const GATHER_LEN: usize = 8192;
/// Bytes of a file that are read at once, to be sent.
const FILE_PIECE: usize = 64 << 10;
/// Most pieces of a call (`UIO_MAXIOV`).
const MAX_IOVECS: usize = 1024;
/// Flags of receiving and sending that are served, or whose effect is only one of speed.
const RECEIVE_FLAGS: c_int =
    libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;

/// The kernel is to serve the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kernel;

/// A result, or an error of the kernel's.
type Outcome = Result<Result<usize, i32>, Kernel>;

/// The C function's return value, with `errno`; `None`: the kernel is to serve the call.
fn to_c_result(outcome: Outcome) -> Option<isize> {
    match outcome {
        Ok(Ok(count)) => Some(count as isize),
        Ok(Err(error)) => {
            set_errno(error);
            Some(-1)
        }
        Err(Kernel) => None,
    }
}

/// Whether calls on a socket don't wait.
pub fn is_nonblocking(fd: c_int) -> bool {
    let arguments = [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0];
    // SAFETY: the call takes numbers.
    unsafe { syscall(libc::SYS_fcntl, arguments) & i64::from(libc::O_NONBLOCK) != 0 }
}

/// A call that may have to wait.
pub struct BlockingCall {
    fd: c_int,
    handle: u64,
    never: bool,
    most: u64,
    until: Option<u64>,
    has_slept: bool,
}

/// Why a blocking call stopped waiting.
pub enum StopReason {
    /// With this error, if nothing was done.
    Error(i32),
    /// The connection is not there any more, or has ended.
    Kernel,
    /// Only the kernel can wait as the program expects it.
    Mixed,
}

impl BlockingCall {
    pub fn new(fd: c_int, handle: u64, flags: c_int, most: u64) -> BlockingCall {
        let never = flags & libc::MSG_DONTWAIT != 0;
        BlockingCall { fd, handle, never, most, until: None, has_slept: false }
    }

    /// Sleeps until it can be tried again.
    pub fn sleep(
        &mut self,
        locked: Locked,
        seen: u32,
        group: &Group,
        signals: &SignalsHeld,
    ) -> Result<(), StopReason> {
        if self.never || is_nonblocking(self.fd) {
            return Err(StopReason::Error(libc::EAGAIN));
        }
        let handlers = handlers();
        if handlers == Handlers::Mixed {
            return Err(StopReason::Mixed);
        }
        let now = group.now();
        let most = self.most;
        let until = *self.until.get_or_insert(if most == 0 { u64::MAX } else { now.saturating_add(most) });
        if now >= until {
            return Err(StopReason::Error(libc::EAGAIN));
        }
        let bits = 1 << (self.handle as u32 % 64);
        self.has_slept = true;
        match locked.sleep(&WaitRequest { bits, seen, until, mask: signals.mask, others: &[] }) {
            // With a time limit, no call goes on (signal(7)).
            WakeReason::Interrupted if handlers == Handlers::Interrupt || most != 0 => {
                Err(StopReason::Error(libc::EINTR))
            }
            _ => Ok(()),
        }
    }

    pub fn end(&self, group: &Group) {
        if self.has_slept {
            group.end_wait();
        }
    }

    /// The outcome when it stopped after `done` bytes. If the kernel is to go on, the connection leaves; with what
    /// remains if it is to go on with that.
    fn stopped(
        &self,
        stopped: StopReason,
        done: usize,
        signals: SignalsHeld,
        rest: impl FnOnce() -> i64,
    ) -> Outcome {
        drop(signals);
        match stopped {
            StopReason::Mixed if done > 0 => {
                leave_ended(self.fd, self.handle);
                Ok(Ok(done + usize::try_from(rest()).unwrap_or(0)))
            }
            _ if done > 0 => Ok(Ok(done)),
            StopReason::Error(error) => Ok(Err(error)),
            StopReason::Kernel | StopReason::Mixed => {
                leave_ended(self.fd, self.handle);
                Err(Kernel)
            }
        }
    }
}

/// Receives bytes that arrived at the kernel's socket before the connection entered; `None`: there are no more.
///
/// # Safety
/// The memory can be written.
unsafe fn receive_from_kernel(
    fd: c_int,
    slot: &Slot,
    (at, len): (*const u8, usize),
) -> Option<Result<usize, i32>> {
    let arguments = [fd as u64, at.addr() as u64, len as u64, libc::MSG_DONTWAIT as u64, 0, 0];
    // SAFETY: the caller's memory, which the kernel checks.
    let count = unsafe { syscall(libc::SYS_recvfrom, arguments) };
    if count == -i64::from(libc::EAGAIN) {
        slot.may_have_unread.store(false, SeqCst);
        return None;
    }
    Some(usize::try_from(count).map_err(|_| -count as i32))
}

/// # Safety
/// The pieces are the caller's memory, and can be written.
unsafe fn receive(fd: c_int, slot: &Slot, pieces: &[iovec], flags: c_int) -> Outcome {
    let group = group().ok_or(Kernel)?;
    let handle = slot.handle();
    let (mut cursor, mut done) = (Cursor::new(pieces), 0);
    let waits_for_all = flags & libc::MSG_WAITALL != 0;
    while let Some(piece) = cursor.piece()
        && slot.may_have_unread.load(SeqCst)
    {
        // SAFETY: the caller's.
        match unsafe { receive_from_kernel(fd, slot, piece) } {
            Some(Ok(count)) if waits_for_all && count > 0 => {
                cursor.advance(count);
                done += count;
            }
            Some(result) => return Ok(if done > 0 { Ok(done) } else { result }),
            None => break,
        }
    }
    if cursor.piece().is_none() {
        return Ok(Ok(done));
    }
    let signals = SignalsHeld::hold();
    let mut waiting = BlockingCall::new(fd, handle, flags, slot.receive_time.load(SeqCst));
    let stopped = loop {
        let Ok(mut locked) = group.begin() else { break StopReason::Kernel };
        let seen = locked.seen();
        let mut result = 0;
        while let Some((at, len)) = cursor.piece() {
            // SAFETY: the caller's memory.
            result = unsafe { locked.receive(handle, at.cast_mut(), len) };
            let Ok(count) = usize::try_from(result) else { break };
            (cursor.at, done) = (cursor.at + count, done + count);
            if count < len {
                break;
            }
        }
        match result {
            WOULD_BLOCK if done == 0 || waits_for_all => {}
            error if error < 0 && error != WOULD_BLOCK => {
                drop(locked);
                break StopReason::Kernel;
            }
            // The end of the stream, or all that there is.
            count => {
                if count == 0 || !waits_for_all || cursor.piece().is_none() {
                    drop(locked);
                    waiting.end(group);
                    return Ok(Ok(done));
                }
            }
        }
        if let Err(stopped) = waiting.sleep(locked, seen, group, &signals) {
            break stopped;
        }
    };
    waiting.end(group);
    waiting.stopped(stopped, done, signals, || {
        let Some((at, len)) = cursor.piece() else { return 0 };
        let arguments = [fd as u64, at.addr() as u64, len as u64, libc::MSG_WAITALL as u64, 0, 0];
        // SAFETY: the caller's memory.
        unsafe { syscall(libc::SYS_recvfrom, arguments) }
    })
}

/// # Safety
/// The pieces are the caller's memory.
unsafe fn send(fd: c_int, slot: &Slot, pieces: &[iovec], flags: c_int) -> Outcome {
    let group = group().ok_or(Kernel)?;
    let handle = slot.handle();
    let signals = SignalsHeld::hold();
    let mut waiting = BlockingCall::new(fd, handle, flags, slot.send_time.load(SeqCst));
    let (mut cursor, mut done) = (Cursor::new(pieces), 0);
    let mut gathered = [0_u8; GATHER_LEN];
    let stopped = loop {
        let Ok(mut locked) = group.begin() else { break StopReason::Kernel };
        let seen = locked.seen();
        let mut result = 0;
        // SAFETY: the caller's memory.
        while let Some((at, len)) = unsafe { cursor.chunk(&mut gathered) } {
            // SAFETY: the caller's memory, or `gathered`.
            result = unsafe { locked.send(handle, at, len) };
            let Ok(count) = usize::try_from(result) else { break };
            cursor.advance(count);
            done += count;
        }
        if result >= 0 {
            drop(locked);
            waiting.end(group);
            return Ok(Ok(done));
        }
        if result != WOULD_BLOCK {
            drop(locked);
            break StopReason::Kernel;
        }
        if let Err(stopped) = waiting.sleep(locked, seen, group, &signals) {
            break stopped;
        }
    };
    waiting.end(group);
    waiting.stopped(stopped, done, signals, || {
        let mut sent = 0;
        while let Some((at, len)) = cursor.piece() {
            let arguments = [fd as u64, at.addr() as u64, len as u64, flags as u64, 0, 0];
            // SAFETY: the caller's memory.
            let Ok(count) = usize::try_from(unsafe { syscall(libc::SYS_sendto, arguments) }) else { break };
            cursor.advance(count);
            sent += count as i64;
        }
        sent
    })
}

/// A place in the memory of a call.
struct Cursor<'a> {
    pieces: &'a [iovec],
    index: usize,
    at: usize,
}

impl Cursor<'_> {
    fn new(pieces: &[iovec]) -> Cursor<'_> {
        Cursor { pieces, index: 0, at: 0 }
    }

    /// The rest of the piece at the place; `None` at the end.
    fn piece(&mut self) -> Option<(*const u8, usize)> {
        loop {
            let piece = self.pieces.get(self.index)?;
            if self.at < piece.iov_len {
                return Some((piece.iov_base.cast::<u8>().wrapping_add(self.at), piece.iov_len - self.at));
            }
            (self.index, self.at) = (self.index + 1, 0);
        }
    }

    /// The next bytes: of one piece, or of several small ones.
    ///
    /// # Safety
    /// The pieces can be read.
    unsafe fn chunk(&mut self, gathered: &mut [u8; GATHER_LEN]) -> Option<(*const u8, usize)> {
        let (at, len) = self.piece()?;
        if len >= GATHER_LEN || self.pieces[self.index + 1..].iter().all(|piece| piece.iov_len == 0) {
            return Some((at, len));
        }
        let (mut ahead, mut filled) = (Cursor { ..*self }, 0);
        while filled < GATHER_LEN
            && let Some((at, len)) = ahead.piece()
        {
            let count = len.min(GATHER_LEN - filled);
            // SAFETY: the caller's memory, and within `gathered`.
            unsafe { std::ptr::copy_nonoverlapping(at, gathered[filled..].as_mut_ptr(), count) };
            ahead.at += count;
            filled += count;
        }
        Some((gathered.as_ptr(), filled))
    }

    fn advance(&mut self, mut count: usize) {
        while let Some((_, len)) = self.piece() {
            let step = len.min(count);
            self.at += step;
            count -= step;
            if count == 0 {
                return;
            }
        }
    }
}

/// Does a call in the shared stack if its connection is there, and otherwise lets the kernel do it.
///
/// # Safety
/// As of both.
unsafe fn serve(
    fd: c_int,
    kernel: impl Fn() -> isize,
    direct: impl FnOnce(&Slot) -> Outcome,
) -> Option<isize> {
    match route(fd) {
        Route::Kernel => None,
        Route::Candidate(_busy) => Some(kernel()),
        Route::Direct(slot) => to_c_result(direct(slot)),
    }
}

/// The pieces of a call; `None`: the kernel says what is wrong with them.
///
/// # Safety
/// The pieces are as a program gives them to the kernel.
unsafe fn pieces<'a>(at: *const iovec, count: usize) -> Option<&'a [iovec]> {
    if count > MAX_IOVECS || at.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let pieces = unsafe { std::slice::from_raw_parts(at, count) };
    let sum = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.iov_len));
    sum.filter(|sum| *sum <= isize::MAX as usize).map(|_| pieces)
}

/// Reads by `read` and the like.
///
/// # Safety
/// As the call.
pub unsafe fn read(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    kernel: impl Fn() -> isize,
) -> Option<isize> {
    if flags & !RECEIVE_FLAGS != 0 {
        leave_now(fd, LeaveReason::Unserved);
        return None;
    }
    let piece = [iovec { iov_base: at, iov_len: len.min(isize::MAX as usize) }];
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, |slot| receive(fd, slot, &piece, flags)) }
}

/// Writes by `write` and the like.
///
/// # Safety
/// As the call.
pub unsafe fn write(
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    kernel: impl Fn() -> isize,
) -> Option<isize> {
    if flags & !SEND_FLAGS != 0 {
        leave_now(fd, LeaveReason::Unserved);
        return None;
    }
    let piece = [iovec { iov_base: at.cast_mut(), iov_len: len.min(isize::MAX as usize) }];
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, |slot| send(fd, slot, &piece, flags)) }
}

/// `readv`.
///
/// # Safety
/// As the call.
pub unsafe fn readv(fd: c_int, at: *const iovec, count: c_int, kernel: impl Fn() -> isize) -> Option<isize> {
    let of = usize::try_from(count).unwrap_or(usize::MAX);
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, |slot| receive(fd, slot, pieces(at, of).ok_or(Kernel)?, 0)) }
}

/// `writev`.
///
/// # Safety
/// As the call.
pub unsafe fn writev(fd: c_int, at: *const iovec, count: c_int, kernel: impl Fn() -> isize) -> Option<isize> {
    let of = usize::try_from(count).unwrap_or(usize::MAX);
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, |slot| send(fd, slot, pieces(at, of).ok_or(Kernel)?, 0)) }
}

/// `recvmsg`.
///
/// # Safety
/// As the call.
pub unsafe fn recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    kernel: impl Fn() -> isize,
) -> Option<isize> {
    // SAFETY: the caller's; null is refused by the kernel.
    let simple = unsafe { message.as_ref() }.is_some_and(|message| message.msg_name.is_null());
    if !simple || flags & !RECEIVE_FLAGS != 0 {
        leave_now(fd, LeaveReason::Unserved);
        return None;
    }
    let direct = |slot: &Slot| {
        // SAFETY: as above.
        let message = unsafe { &mut *message };
        // SAFETY: the caller's.
        let pieces = unsafe { pieces(message.msg_iov, message.msg_iovlen) }.ok_or(Kernel)?;
        // SAFETY: the caller's.
        let outcome = unsafe { receive(fd, slot, pieces, flags) };
        if let Ok(Ok(_)) = outcome {
            (message.msg_controllen, message.msg_flags) = (0, 0);
        }
        outcome
    };
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, direct) }
}

/// `sendmsg`.
///
/// # Safety
/// As the call.
pub unsafe fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
    kernel: impl Fn() -> isize,
) -> Option<isize> {
    // SAFETY: the caller's; null is refused by the kernel.
    let given = unsafe { message.as_ref() };
    if let Some(given) = given.filter(|given| given.msg_controllen > 0) {
        // SAFETY: the caller's.
        unsafe { handle_rights(given) };
    }
    let plain = given.is_some_and(|given| given.msg_name.is_null() && given.msg_controllen == 0);
    if !plain || flags & !SEND_FLAGS != 0 {
        leave_now(fd, LeaveReason::Unserved);
        return None;
    }
    // SAFETY: the caller's.
    let direct = |slot: &Slot| unsafe {
        let message = &*message;
        send(fd, slot, pieces(message.msg_iov, message.msg_iovlen).ok_or(Kernel)?, flags)
    };
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, direct) }
}

/// As [`handle_rights`] for several messages.
///
/// # Safety
/// As the call.
pub unsafe fn handle_all_rights(messages: *const libc::mmsghdr, count: u32) {
    if messages.is_null() {
        return;
    }
    for index in 0..count.min(MAX_IOVECS as u32) as usize {
        // SAFETY: the caller's.
        unsafe { handle_rights(&(*messages.add(index)).msg_hdr) };
    }
}

/// Handles the descriptors that a message passes to other processes.
///
/// # Safety
/// Its control messages can be read.
unsafe fn handle_rights(message: &msghdr) {
    // SAFETY: the caller's; the C library's macros stay within the length.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let len = control.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for index in 0..len / size_of::<c_int>() {
                    crate::descriptors::before_sharing(data.add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// A part of a file; `None`: it can't be read at a place.
unsafe fn read_file(file: c_int, bytes: &mut [u8], at: off_t) -> Option<Result<usize, i32>> {
    let arguments = [file as u64, bytes.as_mut_ptr().addr() as u64, bytes.len() as u64, at as u64, 0, 0];
    // SAFETY: the kernel writes to `bytes`.
    let count = unsafe { syscall(libc::SYS_pread64, arguments) };
    match usize::try_from(count) {
        Ok(count) => Some(Ok(count)),
        Err(_) if count == -i64::from(libc::ESPIPE) => None,
        Err(_) => Some(Err(-count as i32)),
    }
}

/// `sendfile`.
///
/// # Safety
/// As the call.
pub unsafe fn sendfile(
    fd: c_int,
    file: c_int,
    offset: *mut off_t,
    count: usize,
    kernel: impl Fn() -> isize,
) -> Option<isize> {
    leave_now(file, LeaveReason::Unserved);
    let seek = |to: off_t, how: c_int| {
        let arguments = [file as u64, to as u64, how as u64, 0, 0, 0];
        // SAFETY: the call takes numbers.
        unsafe { syscall(libc::SYS_lseek, arguments) }
    };
    let direct = |slot: &Slot| -> Outcome {
        // SAFETY: the caller's; null is valid.
        let given = unsafe { offset.as_mut() };
        let begin = given.as_ref().map_or_else(|| seek(0, libc::SEEK_CUR), |offset| **offset);
        let mut bytes = vec![0; FILE_PIECE.min(count)];
        let mut done = 0;
        let error = loop {
            let room = (count - done).min(bytes.len());
            // SAFETY: `bytes` is memory of this call.
            let read = unsafe { read_file(file, &mut bytes[..room], begin + done as off_t) };
            let len = match read {
                _ if room == 0 => break None,
                None if done == 0 => {
                    leave_ended(fd, slot.handle());
                    return Err(Kernel);
                }
                None | Some(Ok(0)) => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok(len)) => len,
            };
            let piece = [iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len }];
            // SAFETY: as above.
            match unsafe { send(fd, slot, &piece, 0) } {
                Ok(Ok(sent)) => {
                    done += sent;
                    if sent < len {
                        break None;
                    }
                }
                Ok(Err(error)) => break Some(error),
                Err(Kernel) if done == 0 => return Err(Kernel),
                Err(Kernel) => break None,
            }
        };
        match (error, given) {
            (Some(error), _) if done == 0 => return Ok(Err(error)),
            (_, Some(offset)) => *offset = begin + done as off_t,
            (_, None) => _ = seek(begin + done as off_t, libc::SEEK_SET),
        }
        Ok(Ok(done))
    };
    // SAFETY: the caller's.
    unsafe { serve(fd, kernel, direct) }
}

/// What a direct connection is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    pub read: bool,
    pub write: bool,
    /// The peer sends no more, and all was read.
    pub finished: bool,
    /// The connection has ended, or is not in the shared stack: the kernel serves the call.
    pub is_ended: bool,
    pub unread: usize,
}

/// What a connection is ready for now.
pub fn ready(locked: &mut Locked, fd: c_int, slot: &Slot) -> Ready {
    use crate::abi::Flags;
    let (result, flags) = locked.ready(slot.handle());
    let is_ended = result == BAD_SOCKET || result < 0 || flags.has(Flags::CLOSED);
    let mut read = flags.has(Flags::READABLE);
    if slot.may_have_unread.load(SeqCst) {
        read |= unread_in_kernel(fd) > 0;
    }
    let (write, finished) = (flags.has(Flags::WRITABLE), flags.has(Flags::FINISHED));
    Ready { read, write, finished, is_ended, unread: usize::try_from(result).unwrap_or(0) }
}

/// Bytes in the kernel's socket, which arrived before the connection entered.
fn unread_in_kernel(fd: c_int) -> usize {
    let mut count: c_int = 0;
    let arguments = [fd as u64, libc::FIONREAD, (&raw mut count).addr() as u64, 0, 0, 0];
    // SAFETY: the kernel writes a number.
    unsafe { syscall(libc::SYS_ioctl, arguments) };
    usize::try_from(count).unwrap_or(0)
}

/// How many bytes can be read (`FIONREAD`); `None`: the kernel says it.
pub fn unread(fd: c_int, slot: &Slot) -> Option<usize> {
    let group = group()?;
    let _signals = SignalsHeld::hold();
    let mut locked = group.begin().ok()?;
    locked.run();
    let ready = ready(&mut locked, fd, slot);
    (!ready.is_ended).then(|| ready.unread + unread_in_kernel(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &[u8]) -> iovec {
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    fn bytes_of((at, len): (*const u8, usize)) -> Vec<u8> {
        // SAFETY: what the cursor returned.
        unsafe { std::slice::from_raw_parts(at, len) }.to_vec()
    }

    #[test]
    fn small_pieces_are_sent_as_one() {
        let large = vec![7; GATHER_LEN];
        let pieces = [piece(b""), piece(b"head"), piece(b"er"), piece(&large), piece(b"last"), piece(b"")];
        let mut cursor = Cursor::new(&pieces);
        let mut gathered = [0; GATHER_LEN];
        let mut next = |cursor: &mut Cursor<'_>, count: usize| {
            // SAFETY: the pieces live.
            let chunk = unsafe { cursor.chunk(&mut gathered) }.map(bytes_of);
            cursor.advance(count);
            chunk.map(|chunk| (chunk[0], chunk.len()))
        };
        assert_eq!(next(&mut cursor, 5), Some((b'h', GATHER_LEN)));
        assert_eq!(next(&mut cursor, 2), Some((b'r', GATHER_LEN)));
        // One byte of the large one was sent.
        assert_eq!(next(&mut cursor, GATHER_LEN - 1), Some((7, GATHER_LEN)));
        assert_eq!(next(&mut cursor, 4), Some((b'l', 4)));
        assert_eq!(next(&mut cursor, 0), None);
    }
}
