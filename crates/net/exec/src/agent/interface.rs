//! `ioctl` on sockets. The kernel would answer questions about interfaces with those of the agent's namespace, where
//! the UNIX sockets were made; the program's are asked about instead, and nothing is changed.

use super::Agent;
use super::calls::Reply;
use super::table::Key;
use ringway_host::{Call, INTERFACE_REQUEST, ask_interface, list_interfaces, read_memory, write_memory};
use rustix::io::Errno;
use std::os::fd::AsFd;

const SIOCOUTQ: u32 = 0x5411;
/// Requests about signals and urgent data (`FIOSETOWN` to `SIOCATMARK`), which the kernel answers.
const SIGNAL_REQUESTS: std::ops::RangeInclusive<u32> = 0x8901..=0x8905;
const SIOCGIFCONF: u32 = 0x8912;
/// Size of `struct ifconf`: the length of the list, and at offset 8 its address.
const IFCONF_LEN: usize = 16;
/// Bytes of the longest list. Attack: a program that says it has room for more.
const MAX_LIST_LEN: usize = 256 * INTERFACE_REQUEST;

impl Agent {
    /// `ioctl`.
    pub(super) fn control(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let [_, number, at, ..] = call.arguments;
        match number as u32 {
            SIOCOUTQ => Ok(Reply::Value(self.unsent(call, key)?)),
            number if SIGNAL_REQUESTS.contains(&number) => Ok(Reply::Resume),
            SIOCGIFCONF => self.list(call, at),
            number => {
                let mut request = [0; INTERFACE_REQUEST];
                if read_memory(call.thread, at, &mut request)? < request.len() {
                    return Err(Errno::FAULT);
                }
                ask_interface(self.control.as_fd(), number, &mut request)?;
                self.trap.check_waiting(call.id)?;
                write_memory(call.thread, at, &request)?;
                Ok(Reply::Value(0))
            }
        }
    }

    fn list(&self, call: &Call, at: u64) -> Result<Reply, Errno> {
        let mut request = [0; IFCONF_LEN];
        if read_memory(call.thread, at, &mut request)? < request.len() {
            return Err(Errno::FAULT);
        }
        let [room, list] =
            [0, 8].map(|at| request[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
        let room = usize::try_from(room as i32).map_err(|_| Errno::INVAL)?;
        let mut out = vec![0; if list == 0 { 0 } else { room.min(MAX_LIST_LEN) }];
        let len =
            if list != 0 && out.is_empty() { 0 } else { list_interfaces(self.control.as_fd(), &mut out)? };
        self.trap.check_waiting(call.id)?;
        write_memory(call.thread, list, &out[..len.min(out.len())])?;
        write_memory(call.thread, at, &(len as u32).to_ne_bytes())?;
        Ok(Reply::Value(0))
    }
}
