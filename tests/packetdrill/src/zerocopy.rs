//! Notifications of `MSG_ZEROCOPY` (Linux's `Documentation/networking/msg_zerocopy.rst`). The stack copies what it is
//! given, as Linux may; each notification says so.

use crate::machine::{File, Machine};
use crate::sockets::Kind;
use std::collections::VecDeque;

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED`.
const ORIGIN: u8 = 5;
const COPIED: u8 = 1;

/// The sends of a socket that its program is told about.
#[derive(Clone, Debug, Default)]
pub struct Zerocopy {
    /// Bytes that the stack took from the program.
    pub sent: u64,
    next: u32,
    /// Ends of sends in the stream, and their numbers.
    pending: VecDeque<(u64, u32)>,
    /// Ranges of numbers of acknowledged sends.
    done: VecDeque<(u32, u32)>,
}

impl Zerocopy {
    /// Whether a notification waits.
    pub fn has_news(&self) -> bool {
        !self.done.is_empty()
    }

    /// The peer acknowledged so many bytes. Returns whether there are new notifications.
    fn acknowledge(&mut self, acked: u64) -> bool {
        let mut news = false;
        while let Some((_, id)) = self.pending.pop_front_if(|(end, _)| *end <= acked) {
            news = true;
            match self.done.back_mut().filter(|(_, last)| last.wrapping_add(1) == id) {
                Some((_, last)) => *last = id,
                None => self.done.push_back((id, id)),
            }
        }
        news
    }
}

impl Machine {
    /// A send with `MSG_ZEROCOPY` was taken.
    pub fn note_zerocopy(&mut self, fd: i32) -> Result<(), i32> {
        let socket = self.socket(fd)?;
        let wanted = socket.others.get(&(libc::SOL_SOCKET, libc::SO_ZEROCOPY)).is_some_and(|on| *on != 0);
        if wanted {
            let zerocopy = &mut socket.zerocopy;
            zerocopy.pending.push_back((zerocopy.sent, zerocopy.next));
            zerocopy.next = zerocopy.next.wrapping_add(1);
        }
        Ok(())
    }

    /// Looks which sends are acknowledged.
    pub fn complete_zerocopy(&mut self) {
        let Machine { files, stack, .. } = self;
        for file in files.iter_mut().flatten() {
            let File::Socket(socket) = file else { continue };
            let Kind::Stream(id) = socket.kind else { continue };
            let Ok(info) = stack.info(id) else { continue };
            // The SYN counts as a byte.
            if socket.zerocopy.acknowledge(info.tcpi_bytes_acked.saturating_sub(1)) {
                socket.ready.events += 1;
            }
        }
    }

    /// The next notification, as a control message: its level, its type and `struct sock_extended_err` with an empty
    /// address; `EAGAIN` if there is none.
    pub fn next_error(&mut self, fd: i32) -> Result<(i32, i32, Vec<u8>), i32> {
        let socket = self.socket(fd)?;
        let (first, last) = socket.zerocopy.done.pop_front().ok_or(libc::EAGAIN)?;
        let mut bytes = vec![0; 4];
        bytes.extend([ORIGIN, 0, COPIED, 0]);
        bytes.extend(first.to_ne_bytes());
        bytes.extend(last.to_ne_bytes());
        let (level, kind, address) = match socket.v6 {
            true => (libc::SOL_IPV6, libc::IPV6_RECVERR, size_of::<libc::sockaddr_in6>()),
            false => (libc::SOL_IP, libc::IP_RECVERR, size_of::<libc::sockaddr_in>()),
        };
        bytes.resize(bytes.len() + address, 0);
        Ok((level, kind, bytes))
    }
}
