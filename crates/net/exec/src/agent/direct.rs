//! Connections in the stack that programs share: how they move there at a program's request, and come back, also
//! without its help.
//!
//! A connection leaves the agent's stack by [`Stack::detach`](ringway_netstack::Stack::detach), and the attendant lets
//! the shared one have it. It comes back before the agent answers any call about its socket, or if the program closes
//! the socket, ends, or writes to it by a call of the kernel: then all is as if it had never been away. It does not
//! move there again.

use super::calls::Reply;
use super::table::{Key, Owner, Stream};
use super::{ATTENDANT, Activity, Agent, PROCESSES, RESET_TIMEOUT, listening, local};
use crate::direct::Shared;
use crate::direct::attendant::{Answer, Command, LONGEST_STATE};
use ringway_direct::requests::{
    DESCRIPTORS, ENTER, ENTER_UNREAD, LEAVE, LEAVE_PASSED, LEAVE_UNSERVED, LEVEL, OFFER, PAUSE, SHARE,
    UNSHARE,
};
use ringway_direct::{Entry, Files};
use ringway_host::{Call, Clock, memfd, numbers as sys, send_with, try_receive_with, write_memory};
use ringway_netstack::{Diverted, SocketId};
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Most processes that share the stack. Attack: a program that starts them without an end.
const MAX_PROCESSES: usize = 64;
/// How often it is checked, once a millisecond, whether the last frames have been sent.
const SEND_CHECKS: u32 = 200;
/// The index of the image's data among the shared files.
const DATA: usize = 1;

/// The shared stack.
#[derive(Debug)]
pub struct Direct {
    shared: Shared,
    /// Processes that use the stack, with their numbers and their pidfds.
    processes: Vec<(i32, u64, OwnedFd)>,
    next_process: u64,
    /// Commands that the attendant's socket had no room for.
    commands: VecDeque<(Command, Option<File>)>,
    /// Listeners that come back, or are closed, in the shared stack.
    pub(super) stopping: HashMap<Key, Stopping>,
    /// The ports of listeners that their programs have closed, while the attendant was asked for them.
    pub(super) closed_early: HashMap<Key, u16>,
    /// Addresses of connections that listeners of the shared stack leave alone.
    pub(super) reserved: HashSet<(SocketAddr, SocketAddr)>,
    /// A listener was in the stack: connections that the agent does not know may be there.
    pub(super) has_listened: bool,
    /// What the attendant said last of bytes that were not acknowledged; 0: there are none; `None`: it was asked.
    pub(super) rest: Option<u64>,
    last_rest: u64,
    /// Peers have answered since this was looked at.
    pub(super) progresses: bool,
}

/// A listener that comes back from the shared stack, or is closed there.
#[derive(Debug)]
pub struct Stopping {
    /// Its handle there.
    pub id: SocketId,
    pub port: u16,
    /// Where the attendant writes the states of its connections, while it was asked for them.
    pub file: Option<File>,
    /// Its program has closed it.
    pub closes: bool,
}

impl Direct {
    /// Sends a command to the attendant, without waiting for it. Attack: a program that stops within its turn, so that
    /// the attendant waits.
    pub(super) fn send(&mut self, command: Command, file: Option<File>) {
        self.commands.push_back((command, file));
        self.flush();
    }

    fn flush(&mut self) {
        while let Some((command, file)) = self.commands.front() {
            if !self.has_room() {
                return;
            }
            let files: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
            // That it has ended is seen by an event.
            let _ = send_with(&self.shared.attendant, &command.to_bytes(), &files);
            self.commands.pop_front();
        }
    }

    /// Takes what the attendant says of bytes that were not acknowledged.
    fn note_rest(&mut self, rest: u64) {
        self.progresses |= self.last_rest != rest;
        (self.rest, self.last_rest) = (Some(rest), rest);
    }

    /// Whether sending does not block.
    fn has_room(&self) -> bool {
        !local::ready(self.shared.attendant.as_fd(), PollFlags::OUT).is_empty()
    }

    /// Registers a thread's process as one that uses the stack, unless there are too many; its number.
    pub(super) fn register_process(&mut self, thread: i32, epoll: &OwnedFd) -> Result<u64, Errno> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| Errno::SRCH)?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        let process = process.ok_or(Errno::SRCH)?;
        if let Some((_, number, _)) = self.processes.iter().find(|(known, ..)| *known == process) {
            return Ok(*number);
        }
        if self.processes.len() >= MAX_PROCESSES {
            return Err(Errno::USERS);
        }
        let end = pidfd_open(Pid::from_raw(process).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        epoll::add(epoll, &end, epoll::EventData::new_u64(PROCESSES), epoll::EventFlags::IN)?;
        self.next_process += 1;
        self.processes.push((process, self.next_process, end));
        Ok(self.next_process)
    }
}

/// Whether a call is one of `ringway-direct` about the shared stack.
fn is_about_sharing(call: &Call) -> bool {
    call.number == sys::GETSOCKOPT && call.arguments[1] as i32 == LEVEL
}

impl Agent {
    /// Lets programs share a stack.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn share(&mut self, shared: Shared) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(ATTENDANT);
        epoll::add(&self.epoll, &shared.attendant, data, epoll::EventFlags::IN)?;
        self.has_shared = true;
        self.direct = Some(Direct {
            shared,
            processes: Vec::new(),
            next_process: 0,
            commands: VecDeque::new(),
            stopping: HashMap::new(),
            closed_early: HashMap::new(),
            reserved: HashSet::new(),
            has_listened: false,
            rest: Some(u64::MAX),
            last_rest: 0,
            progresses: false,
        });
        Ok(())
    }

    /// Answers what the shared stack has to do with; `None`: the agent's stack answers the call.
    pub(super) fn answer_shared(
        &mut self,
        call: &Call,
        key: Key,
        socket: &OwnedFd,
    ) -> Option<Result<Reply, Errno>> {
        if is_about_sharing(call) {
            return Some(self.answer_sharing_request(call, key, socket));
        }
        if matches!(call.number, sys::GETSOCKNAME | sys::GETPEERNAME) {
            return None;
        }
        if let Some(reply) = self.answer_for_listener(call, key) {
            return Some(reply);
        }
        if self.table.stream(key)?.owner.is_agent() {
            return None;
        }
        self.report.returned(call.thread, call.arguments[0] as i32, "for a call that the agent answers");
        self.request_return(key);
        // If it could not even be asked for, it is lost already.
        let is_own = self.table.stream(key).is_none_or(|stream| stream.owner.is_agent());
        (!is_own).then_some(Ok(Reply::Wait(key)))
    }

    fn answer_sharing_request(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        if listening::is_adoption(call) {
            // It was begun by the same call.
            let moves = self.table.stream(key).is_some_and(|stream| !stream.owner.is_agent());
            return Ok(if moves { Reply::WaitForMove(key) } else { Reply::Value(0) });
        }
        let direct = self.direct.as_mut().ok_or(Errno::NOPROTOOPT)?;
        match call.arguments[2] as i32 {
            name @ 0..DESCRIPTORS => {
                direct.register_process(call.thread, &self.epoll)?;
                let file = direct.shared.files.get(name as usize).ok_or(Errno::NOPROTOOPT)?;
                self.trap.give(call.id, file.as_fd(), true)?;
                Ok(Reply::Done)
            }
            OFFER => {
                let after = direct.shared.after.to_ne_bytes();
                self.trap.check_waiting(call.id)?;
                write_memory(call.thread, call.arguments[3], &after)?;
                Ok(Reply::Value(0))
            }
            ENTER | ENTER_UNREAD => self.enter(call, key, socket),
            name @ (LEAVE | LEAVE_PASSED | LEAVE_UNSERVED | PAUSE) => self.leave(call, key, name),
            SHARE => self.share_listener(call, key, socket),
            UNSHARE => self.unshare_listener(call, key),
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    /// Answers a program that asks for a connection to come back, or waits for that.
    fn leave(&mut self, call: &Call, key: Key, name: i32) -> Result<Reply, Errno> {
        if self.table.listening(key).is_some() {
            return Ok(self.leave_listener(key));
        }
        let stream = self.table.stream(key).ok_or(Errno::NOTCONN)?;
        stream.may_reenter = name == PAUSE;
        if stream.owner.is_agent() {
            stream.owner = if stream.may_reenter { Owner::Agent } else { Owner::Returned };
            return Ok(Reply::Value(0));
        }
        let why = match name {
            PAUSE => "for a call that the agent answers, until it enters again",
            LEAVE_PASSED => "since another process or descriptor gets it",
            LEAVE_UNSERVED => "for a call that direct mode does not serve, or at its end",
            _ => "since the program asked for it",
        };
        if matches!(stream.owner, Owner::Shared(_)) {
            self.report.returned(call.thread, call.arguments[0] as i32, why);
        }
        self.request_return(key);
        // If it could not even be asked for, it is lost already.
        let is_own = self.table.stream(key).is_none_or(|stream| stream.owner.is_agent());
        Ok(if is_own { Reply::Value(0) } else { Reply::WaitForMove(key) })
    }

    /// Answers a program that asks for a connection to enter the shared stack, or waits for that.
    fn enter(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        match self.table.stream(key).ok_or(Errno::NOTCONN)?.owner {
            Owner::Agent => self.start_entering(call, key, socket),
            Owner::Entering(_) | Owner::Leaving(..) => Ok(Reply::WaitForMove(key)),
            Owner::Shared(id) => {
                let direct = self.direct.as_mut().ok_or(Errno::NOPROTOOPT)?;
                let process = direct.register_process(call.thread, &self.epoll)?;
                self.report.entered(call.thread, call.arguments[0] as i32);
                self.write_entry(call, id, process)
            }
            Owner::Returned => Err(Errno::OPNOTSUPP),
        }
    }

    pub(super) fn write_entry(
        &mut self,
        call: &Call,
        socket: SocketId,
        process: u64,
    ) -> Result<Reply, Errno> {
        let lengths = self.direct.as_ref().ok_or(Errno::NOPROTOOPT)?.shared.lengths;
        let entry = Entry { socket, lengths, clock: Clock::new(), process }.to_bytes();
        self.trap.check_waiting(call.id)?;
        write_memory(call.thread, call.arguments[3], &entry)?;
        write_memory(call.thread, call.arguments[4], &(Entry::LEN as u32).to_ne_bytes())?;
        Ok(Reply::Value(0))
    }

    fn start_entering(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        // All that the program has written goes to the stack first.
        self.pump(key, Activity::ProgramWrote);
        let direct = self.direct.as_mut().ok_or(Errno::NOPROTOOPT)?;
        direct.register_process(call.thread, &self.epoll)?;
        let stream = self.table.stream(key).ok_or(Errno::NOTCONN)?;
        if !stream.owner.is_agent() {
            // A call that was served meanwhile has let it leave.
            return Ok(Reply::WaitForMove(key));
        }
        let end = stream.end.as_ref().filter(|_| stream.is_established).ok_or(Errno::NOTCONN)?;
        if stream.is_write_shut || stream.is_eof_delivered {
            return Err(Errno::OPNOTSUPP);
        }
        let reads = call.arguments[2] as i32 == ENTER_UNREAD;
        let has_unread =
            !reads && (stream.is_receive_blocked || !local::ready(socket.as_fd(), PollFlags::IN).is_empty());
        if has_unread || !direct.commands.is_empty() || !direct.has_room() {
            return Err(Errno::AGAIN);
        }
        if stream.is_send_blocked || end.has_unread() {
            return if reads { Ok(Reply::WaitBriefly(key)) } else { Err(Errno::AGAIN) };
        }
        self.trap.check_waiting(call.id)?;
        let (now, tcp) = (self.host.now(), stream.tcp);
        let state = self.host.stack().detach(now, tcp).map_err(|_| Errno::OPNOTSUPP)?;
        let len = state.len();
        let file = memfd("ringway-connection", len).ok().map(File::from);
        let file = file.filter(|file| file.write_all_at(&state, 0).is_ok());
        stream.owner = Owner::Entering(state);
        if let Some(file) = file {
            direct.send(Command::Enter { key: key.into(), len: len as u64 }, Some(file));
            return Ok(Reply::WaitForMove(key));
        }
        self.finish_return(key, None, Vec::new());
        Err(Errno::NOBUFS)
    }

    /// Asks the attendant for a connection in the shared stack. One that is on its way there is asked for when it
    /// arrives.
    pub(super) fn request_return(&mut self, key: Key) {
        let Some(stream) = self.table.stream(key) else { return };
        let Owner::Shared(id) = stream.owner else { return };
        // The file takes memory only for what is written.
        let file = memfd("ringway-connection", LONGEST_STATE as usize).ok().map(File::from);
        let copy = file.as_ref().and_then(|file| file.try_clone().ok());
        let (Some(file), Some(copy), Some(direct)) = (file, copy, self.direct.as_mut()) else {
            // Without descriptors, it can't be had any more.
            return self.lose_connection(key);
        };
        stream.owner = Owner::Leaving(copy, Vec::new());
        let (local, peer) = (stream.local, stream.peer);
        direct.send(Command::Leave { key: key.into(), socket: id.to_bits() }, Some(file));
        self.keep_reserved(local, peer);
    }

    /// Handles what happened to the socket of a connection in the shared stack: its program has written to it, or
    /// closed it.
    pub(super) fn handle_shared_activity(&mut self, key: Key) {
        let Some(Stream { owner: Owner::Shared(_), end: Some(end), .. }) = self.table.stream(key) else {
            // The connection is served when it is back.
            return;
        };
        if end.has_unread() {
            self.request_return(key);
        }
    }

    /// Receives the attendant's answers. Attack: one that is taken over, and answers without an end.
    pub(super) fn receive_answers(&mut self) {
        let mut bytes = [0; Answer::LEN];
        for _ in 0..super::EVENTS {
            let Some(direct) = &mut self.direct else { return };
            let answer = match try_receive_with(&direct.shared.attendant, &mut bytes, 0) {
                Ok(None) => return direct.flush(),
                Ok(Some((len, _))) => Answer::from_bytes(&bytes[..len]),
                Err(_) => None,
            };
            match answer {
                Some(Answer::Entered { key, socket }) => self.handle_entered(key.into(), socket),
                Some(Answer::Left { key, len }) => self.handle_left(key.into(), len),
                Some(Answer::Stopped { key, len, is_gone }) => {
                    self.handle_stopped_listening(key.into(), len, is_gone);
                }
                Some(Answer::Drained(rest)) => direct.note_rest(rest),
                // The attendant has ended: the shared stack is lost.
                None => self.lose_shared(),
            }
        }
    }

    fn handle_entered(&mut self, key: Key, socket: Option<u64>) {
        let Some(stream) = self.table.stream(key) else { return self.handle_listening(key, socket) };
        let Owner::Entering(state) = &mut stream.owner else { return };
        let state = std::mem::take(state);
        match socket {
            Some(id) => {
                stream.owner = Owner::Shared(SocketId::from_bits(id));
                self.wake(key);
                // The program may have closed the socket meanwhile.
                self.handle_shared_activity(key);
            }
            None => {
                let tcp = stream.tcp;
                self.finish_return(key, Some(state), Vec::new());
                self.reserve_connection(tcp);
            }
        }
    }

    fn handle_left(&mut self, key: Key, len: u64) {
        let Some(stream) = self.table.stream(key) else { return };
        let Owner::Leaving(file, segments) = &mut stream.owner else { return };
        let mut state = vec![0; len.min(LONGEST_STATE) as usize];
        // Attack: an attendant that is taken over, and wrote something else: it is refused, as any bytes may be.
        let is_read = file.read_exact_at(&mut state, 0).is_ok();
        let segments = std::mem::take(segments);
        self.finish_return(key, is_read.then_some(state), segments);
    }

    /// Attaches a connection to the agent's stack again.
    fn finish_return(&mut self, key: Key, state: Option<Vec<u8>>, segments: Vec<Diverted>) {
        let now = self.host.now();
        let Some(stream) = self.table.stream(key) else { return };
        let state = match (state, &mut stream.owner) {
            (None, Owner::Entering(state)) => Some(std::mem::take(state)),
            (state, _) => state,
        };
        stream.owner = if stream.may_reenter { Owner::Agent } else { Owner::Returned };
        let (tcp, stack) = (stream.tcp, self.host.stack());
        if !state.is_some_and(|state| stack.attach_again(now, tcp, &state).is_ok()) {
            return self.lose_connection(key);
        }
        for segment in segments {
            stack.receive_diverted(now, 0, &segment);
        }
        self.wake(key);
        self.handle_activity(key, Activity::Any);
        self.recheck.push(key);
    }

    /// Resets the peer and the program's socket of a connection that was lost with the shared stack.
    pub(super) fn lose_connection(&mut self, key: Key) {
        let now = self.host.now();
        let Some(stream) = self.table.stream(key) else { return };
        stream.owner = Owner::Returned;
        let tcp = stream.tcp;
        self.resets_until = now + RESET_TIMEOUT;
        // The connection has moved to the shared stack, so this does not fail.
        let _ = self.host.stack().lose(now, tcp);
        self.fail(key, Errno::CONNRESET);
    }

    /// Gives up the shared stack, which is lost: the agent serves all connections from now on.
    fn lose_shared(&mut self) {
        self.count_accepted();
        let Some(direct) = self.direct.take() else { return };
        if let Some(data) = direct.shared.files.get(DATA) {
            // Processes that use it see that it is lost, by this or by its lock.
            let _ = Files::withdraw(data);
        }
        direct.shared.switch.lose();
        self.host.stack().divert_strays(false);
        self.report.lost();
        let keys: Vec<Key> = self.table.iter().map(|(key, _)| key).collect();
        for key in keys {
            if self.table.stream(key).is_some_and(|stream| !stream.owner.is_agent()) {
                self.lose_connection(key);
            }
        }
        self.lose_listeners();
    }

    /// Reports how many connections programs have accepted in the shared stack.
    pub(super) fn count_accepted(&mut self) {
        let data = self.direct.as_ref().and_then(|direct| direct.shared.files.get(DATA));
        if let Some(count) = data.and_then(|data| Files::accepted(data).ok()) {
            self.report.accepted(count);
        }
    }

    /// Forwards segments for connections that have left the agent's stack, and checks whether the shared one is lost.
    pub(super) fn forward_diverted(&mut self) {
        if self.direct.as_ref().is_some_and(|direct| direct.shared.switch.is_lost()) {
            self.lose_shared();
        }
        while let Some(segment) = self.host.stack().next_diverted() {
            if segment.is_stray() {
                // The peer sends again what finds no room.
                if let Some(direct) = self.direct.as_mut().filter(|direct| direct.commands.is_empty()) {
                    direct.send(Command::Divert(segment.to_bytes()), None);
                }
                continue;
            }
            let keys = self.table.keys_of(segment.socket());
            let Some(stream) = keys.first().copied().and_then(|key| self.table.stream(key)) else { continue };
            match &mut stream.owner {
                // The peer sends again what finds no room.
                Owner::Leaving(_, segments) if segments.len() < super::EVENTS => segments.push(segment),
                Owner::Entering(_) | Owner::Shared(_) => {
                    if let Some(direct) = &mut self.direct
                        && direct.commands.is_empty()
                    {
                        direct.send(Command::Divert(segment.to_bytes()), None);
                    }
                }
                _ => {}
            }
        }
    }

    /// Removes processes that have ended, and tells the attendant.
    pub(super) fn remove_ended_processes(&mut self) {
        let Some(direct) = &mut self.direct else { return };
        let is_over = |end: &OwnedFd| !local::ready(end.as_fd(), PollFlags::IN).is_empty();
        let ended: Vec<_> = direct.processes.extract_if(.., |(_, _, end)| is_over(end)).collect();
        for (_, process, _) in ended {
            if let Some(direct) = &mut self.direct {
                direct.send(Command::Ended(process), None);
            }
            self.remove_from_listeners(process);
        }
    }

    /// Whether commands wait to be sent to the attendant, or it is to be asked again for connections of a listener.
    pub(super) fn has_commands(&self) -> bool {
        let waits = |direct: &Direct| !direct.commands.is_empty() || !direct.stopping.is_empty();
        self.direct.as_ref().is_some_and(waits)
    }

    pub(super) fn send_commands(&mut self) {
        self.direct.iter_mut().for_each(Direct::flush);
    }

    /// Waits until the last frames have been sent. Attack: a program that stopped within its turn; the wait is short.
    pub(super) fn wait_until_sent(&self) {
        let Some(direct) = &self.direct else { return };
        for _ in 0..SEND_CHECKS {
            if direct.shared.switch.is_idle() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
