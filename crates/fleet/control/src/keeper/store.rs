//! What the keeper holds.

use super::{DATA, Request, Response, TRIAL};
use crate::data::KEPT;
use crate::engine::kept_port;
use ringway_fabric::records::{DATAGRAM, Record};
use ringway_fabric::{DESCRIPTORS, MessageStream, StreamError};
use ringway_host::{BackgroundClose, children, try_receive_with};
use ringway_port::UNRESTORABLE;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

/// Largest number of records of a peer: more than those of the most rings and regions of memory that a port may have,
/// and those of two generations of a switch's addresses.
const RECORDS: usize = 2 * ringway_fabric::PORTS + 1;
/// Datagrams of `data` that are read before requests. Attack: a `data` process that sends without end.
const DATAGRAMS: usize = 65_536;

/// What a port's peer told `data`.
#[derive(Default)]
pub(super) struct Slot {
    /// Largest number of descriptors.
    pub most: usize,
    /// Number of descriptors in `records`.
    held: usize,
    pub records: BTreeMap<u32, (Vec<u8>, Vec<OwnedFd>)>,
}

impl Slot {
    /// A slot with these records.
    pub fn new(most: usize, records: BTreeMap<u32, (Vec<u8>, Vec<OwnedFd>)>) -> Slot {
        let held = records.values().map(|(_, descriptors)| descriptors.len()).sum();
        Slot { most, held, records }
    }

    /// Puts a record in place of a former one, whose descriptors are returned; without one, only removes that.
    fn replace(&mut self, key: u32, record: Option<(Vec<u8>, Vec<OwnedFd>)>) -> Vec<OwnedFd> {
        let added = record.as_ref().map_or(0, |(_, descriptors)| descriptors.len());
        let former = match record {
            Some(record) => self.records.insert(key, record),
            None => self.records.remove(&key),
        };
        let former = former.map(|(_, descriptors)| descriptors).unwrap_or_default();
        self.held = self.held + added - former.len();
        former
    }
}

/// The name of a process that outlives `control`.
fn watched(process: i32) -> String {
    format!("watched/{process}")
}

/// A text and its descriptors.
pub(super) type Entry = (String, Vec<OwnedFd>);

/// Everything that is held.
#[derive(Default)]
pub struct Store {
    pub(super) named: BTreeMap<String, Entry>,
    pub(super) slots: BTreeMap<String, Slot>,
    pub(super) data: Option<OwnedFd>,
    /// What the entries were before another program changed them, which may have to be undone.
    pub(super) former: Option<Former>,
    /// The program to which the fabric shall move, and who is told how that went.
    pub(super) upgrade: Option<[OwnedFd; 2]>,
    /// The notes of a `control` of another program that serves the fabric.
    pub(super) serving: Option<Vec<String>>,
    /// Attack: descriptors of peers whose closing blocks.
    pub(super) closer: BackgroundClose,
}

/// Entries before another program changed them.
#[derive(Default)]
pub(super) struct Former {
    named: BTreeMap<String, Option<Entry>>,
    /// Ports that got another peer, or lost theirs.
    ports: BTreeSet<String>,
}

impl Store {
    /// From now on, changes of entries can be undone.
    pub fn remember(&mut self) {
        self.former = Some(Former::default());
    }

    /// Undoes the changes of entries since [`Store::remember`], but those which tell what has really happened: of the
    /// `data` process, and of peers that are gone.
    pub fn undo(&mut self) {
        let Former { named, ports } = self.former.take().unwrap_or_default();
        let stays = |name: &str| name == KEPT || ports.iter().any(|port| name == kept_port(port));
        for (name, entry) in named {
            let former = match entry {
                entry if stays(&name) => entry,
                Some(entry) => self.named.insert(name, entry),
                None => self.named.remove(&name),
            };
            self.close(former.map(|(_, held)| held).unwrap_or_default());
        }
    }

    /// Sets or removes an entry.
    pub fn set(&mut self, name: String, entry: Option<Entry>) {
        let former = match entry {
            Some(entry) => self.named.insert(name.clone(), entry),
            None => self.named.remove(&name),
        };
        match self.former.as_mut().map(|log| &mut log.named) {
            Some(log) if !log.contains_key(&name) => _ = log.insert(name, former),
            _ => self.close(former.map(|(_, held)| held).unwrap_or_default()),
        }
    }

    fn peer_changes(&mut self, port: &str) {
        if let Some(former) = &mut self.former {
            former.ports.insert(port.into());
        }
    }

    /// A store with the socket from which records come.
    pub(super) fn with_data(data: Option<OwnedFd>) -> Store {
        Store { data, ..Store::default() }
    }

    /// The socket from which records come.
    pub fn data(&self) -> Option<&OwnedFd> {
        self.data.as_ref()
    }

    /// Carries out a request; answers on `stream`.
    pub fn handle(
        &mut self,
        request: Request,
        descriptors: Vec<OwnedFd>,
        stream: &MessageStream,
    ) -> Result<(), StreamError> {
        // A port's records were sent before what made `control` close or ask for them.
        self.take_records();
        match request {
            Request::Put { name, text } => self.set(name, Some((text, descriptors))),
            Request::More { name } => match self.named.get_mut(&name) {
                Some((_, held)) => held.extend(descriptors),
                None => self.close(descriptors),
            },
            Request::Remove { name } => self.set(name, None),
            Request::Open { port, descriptors } => {
                self.peer_changes(&port);
                let slot = Slot { most: descriptors, ..Slot::default() };
                if let Some(former) = self.slots.insert(port, slot) {
                    self.end(former);
                }
                stream.send(&Response::End, &[])?;
            }
            Request::Close { port } => {
                self.peer_changes(&port);
                if let Some(former) = self.slots.remove(&port) {
                    self.end(former);
                }
            }
            Request::Records { port } => {
                for (key, (bytes, held)) in self.slots.get(&port).into_iter().flat_map(|slot| &slot.records) {
                    let held: Vec<_> = held.iter().map(AsFd::as_fd).collect();
                    stream.send(&Response::Record { key: *key, bytes: bytes.clone() }, &held)?;
                }
                stream.send(&Response::End, &[])?;
            }
            Request::Data => self.data = descriptors.into_iter().next(),
            Request::Entries => self.send_all(stream)?,
            Request::Upgrade => self.upgrade = descriptors.try_into().ok(),
            Request::Serving { notes } => {
                self.set(TRIAL.into(), None);
                self.serving = Some(notes);
            }
            Request::Watch { process } => _ = self.named.insert(watched(process), Default::default()),
            Request::Unwatch { process } => _ = self.named.remove(&watched(process)),
            Request::Status { process } => {
                if let Some(status) = self.status(process) {
                    stream.send(&Response::Status { status }, &[])?;
                }
                stream.send(&Response::End, &[])?;
            }
        }
        Ok(())
    }

    /// The wait status of a process that has come here and has ended.
    fn status(&mut self, process: i32) -> Option<i32> {
        let pid = Pid::from_raw(process).filter(|_| self.is_watched(process))?;
        let (_, status) = waitpid(Some(pid), WaitOptions::NOHANG).ok()??;
        self.named.remove(&watched(process));
        Some(status.as_raw())
    }

    fn is_watched(&self, process: i32) -> bool {
        self.named.contains_key(&watched(process))
    }

    /// Collects children that have ended, but not those that are watched: their numbers stay taken until somebody asks
    /// for their status. Returns the status of `wanted` if it is one of them.
    pub fn collect(&self, wanted: Pid) -> Option<i32> {
        let collected = |pid| waitpid(Some(pid), WaitOptions::NOHANG).ok().flatten();
        let found = collected(wanted).map(|(_, status)| status.as_raw());
        // The list may lack one while others end; that one is collected later.
        let others = children().into_iter().filter(|child| !self.is_watched(*child));
        others.filter_map(Pid::from_raw).filter(|pid| *pid != wanted).for_each(|pid| _ = collected(pid));
        found
    }

    fn send_all(&self, stream: &MessageStream) -> Result<(), StreamError> {
        for (name, (text, held)) in &self.named {
            let held: Vec<_> = held.iter().map(AsFd::as_fd).collect();
            let (first, rest) = held.split_at(held.len().min(DESCRIPTORS));
            stream.send(&Response::Named { name: name.clone(), text: text.clone() }, first)?;
            rest.chunks(DESCRIPTORS).try_for_each(|more| stream.send(&Response::More, more))?;
        }
        if let Some(data) = &self.data {
            stream.send(&Response::Named { name: DATA.into(), text: String::new() }, &[data.as_fd()])?;
        }
        stream.send(&Response::End, &[])
    }

    /// Takes the records that `data` has sent.
    pub fn take_records(&mut self) {
        let Some(data) = self.data.take() else { return };
        let mut datagram = vec![0; DATAGRAM];
        for _ in 0..DATAGRAMS {
            match try_receive_with(&data, &mut datagram, DESCRIPTORS) {
                Ok(Some((count @ 1.., descriptors))) => self.take(&datagram[..count], descriptors),
                Ok(None) => break,
                // The process has ended.
                Ok(Some(_)) | Err(_) => return,
            }
        }
        self.data = Some(data);
    }

    fn take(&mut self, datagram: &[u8], descriptors: Vec<OwnedFd>) {
        let record = Record::decode(datagram);
        let slot = record.as_ref().and_then(|record| self.slots.get_mut(record.port));
        // The port or the peer is gone.
        let (Some(Record { key, bytes, .. }), Some(slot)) = (record, slot) else {
            return self.close(descriptors);
        };
        let Some(bytes) = bytes else {
            let former = slot.replace(key, None);
            return self.close(former);
        };
        // Attack: a `data` process that was taken over, and a front-end with more descriptors than may be held.
        let former = slot.records.get(&key);
        let rest = slot.held - former.map_or(0, |(_, former)| former.len());
        let is_refused = bytes.len() > ringway_fabric::records::LONGEST
            || rest + descriptors.len() > slot.most
            || former.is_none() && slot.records.len() >= RECORDS;
        let former = if is_refused {
            let mut closed = slot.replace(UNRESTORABLE, Some((Vec::new(), Vec::new())));
            closed.extend(descriptors);
            closed
        } else {
            slot.replace(key, Some((bytes.to_vec(), descriptors)))
        };
        self.close(former);
    }

    fn end(&self, slot: Slot) {
        self.close(slot.records.into_values().flat_map(|(_, held)| held).collect());
    }

    fn close(&self, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            self.closer.close(descriptors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::memfd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::unix::net::UnixStream;

    fn file() -> OwnedFd {
        memfd("kept", 4096).unwrap()
    }

    #[test]
    fn records_of_open_slots_are_held_within_their_bounds() {
        let mut store = Store::default();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (stream, control) = (MessageStream::new(ours.into()), MessageStream::new(theirs.into()));
        let (ours, data) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        store.handle(Request::Data, vec![ours], &stream).unwrap();
        store.handle(Request::Open { port: "a".into(), descriptors: 2 }, Vec::new(), &stream).unwrap();
        assert!(matches!(control.receive::<Response>(), Ok((Response::End, _))), "records may come");
        let say = |port: &str, key, bytes: Option<&[u8]>, files: usize| {
            let files: Vec<_> = (0..files).map(|_| file()).collect();
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            Record { port, key, bytes }.send(&data, &files).unwrap();
        };
        let records = |store: &mut Store| {
            store.handle(Request::Records { port: "a".into() }, Vec::new(), &stream).unwrap();
            let mut records = Vec::new();
            loop {
                match control.receive::<Response>().unwrap() {
                    (Response::Record { key, bytes }, files) => records.push((key, bytes, files.len())),
                    (Response::End, _) => return records,
                    (other, _) => panic!("{other:?}"),
                }
            }
        };
        say("a", 7, Some(b"x"), 1);
        say("a", 3, Some(b"y"), 1);
        say("none", 3, Some(b"z"), 1);
        // It replaces the one before.
        say("a", 7, Some(b"w"), 0);
        assert_eq!(records(&mut store), [(3, b"y".to_vec(), 1), (7, b"w".to_vec(), 0)]);
        say("a", 3, None, 0);
        assert_eq!(records(&mut store), [(7, b"w".to_vec(), 0)]);
        // What was replaced and removed does not count any more.
        for _ in 0..3 {
            say("a", 3, Some(b"u"), 2);
            assert_eq!(records(&mut store), [(3, b"u".to_vec(), 2), (7, b"w".to_vec(), 0)]);
        }
        say("a", 3, None, 0);
        say("a", 4, Some(b"v"), 3);
        say("a", 5, Some(&vec![0; ringway_fabric::records::LONGEST + 1]), 0);
        assert_eq!(records(&mut store), [(7, b"w".to_vec(), 0), (UNRESTORABLE, Vec::new(), 0)]);
        store.handle(Request::Close { port: "a".into() }, Vec::new(), &stream).unwrap();
        assert_eq!(records(&mut store), []);
    }

    #[test]
    fn the_status_of_a_watched_process_waits_until_it_is_asked_for() {
        let mut store = Store::default();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (stream, control) = (MessageStream::new(ours.into()), MessageStream::new(theirs.into()));
        let mut child = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let process = child.id().cast_signed();
        let ask = |store: &mut Store| {
            store.handle(Request::Status { process }, Vec::new(), &stream).unwrap();
            match control.receive::<Response>().unwrap().0 {
                Response::Status { status } => {
                    assert!(matches!(control.receive::<Response>(), Ok((Response::End, _))));
                    Some(status >> 8)
                }
                _ => None,
            }
        };
        assert_eq!(ask(&mut store), None, "it is not watched");
        store.handle(Request::Watch { process }, Vec::new(), &stream).unwrap();
        let status = loop {
            match ask(&mut store) {
                None => std::thread::yield_now(),
                status => break status,
            }
        };
        assert_eq!(status, Some(7));
        assert_eq!(ask(&mut store), None, "it was told");
        assert!(child.wait().is_err(), "nobody can get it a second time");
    }

    #[test]
    fn the_next_control_gets_everything() {
        let keeper = super::super::Keeper::thread().unwrap();
        let files: Vec<_> = (0..DESCRIPTORS * 2 + 1).map(|_| file()).collect();
        keeper.put("many", "text", files.iter());
        keeper.put("gone", "", [&files[0]]);
        keeper.put("one", "first", [&files[0]]);
        keeper.put("one", "second", [&files[1]]);
        keeper.remove("gone");
        let found = keeper.entries();
        let seen = found.into_iter().map(|(name, found)| (name, found.text, found.descriptors.len()));
        let expected = [("many", "text", DESCRIPTORS * 2 + 1), ("one", "second", 1)];
        assert_eq!(
            seen.collect::<Vec<_>>(),
            expected.map(|(name, text, count)| (name.to_string(), text.to_string(), count))
        );
    }
}
