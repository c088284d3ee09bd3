//! What the next agent must know if this one is killed: calls that wait for an answer, and sockets that listen.
//!
//! The kernel gives a trapped call to one agent once, and accepts an answer from any process that has the descriptor of
//! the trapped calls. So the next agent serves the calls again that are written here. A call whose receiver is killed
//! before it was written here, some nanoseconds later, waits until its thread is interrupted.

use super::options::OptionValues;
use ringway_host::{Call, HostError, Mapping, memfd};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Calls that are written at most. Attack: a program with threads that wait without an end; what finds no place waits
/// for ever if the agent is killed.
const CALLS: usize = 4096;
/// Words of a call: its number in the kernel (0: there is none), its thread and number, its arguments.
const CALL: usize = 8;
/// Listening sockets that are written at most; a further one is not known to the next agent.
const LISTENERS: usize = 1024;
/// Words of a listener: its path (0: there is none), its flags, its port and backlog, and its address.
const LISTENER: usize = 4;
/// Words before the places: the number of the call that the agent is at, and the times at which agents took over.
const TAKEOVERS: usize = 2;
const PLACES: usize = 1 + TAKEOVERS;
const WORDS: usize = PLACES + CALLS * CALL + LISTENERS * LISTENER;
/// How far apart the first and the third end of agents are at least, if another one is to take over.
const TAKEOVERS_TIME: u64 = 60;
/// The bit of a listener's flags for IPv4's address in place of IPv6's. The others are those of its options.
const IS_V4: u64 = 1 << 63;

/// Memory that an agent shares with the process that is to be the next one.
#[derive(Debug)]
pub struct Journal {
    memory: Mapping,
    /// Where to look for a free place first, for calls and for listeners.
    next: [AtomicUsize; 2],
}

/// A place that is free again when this is dropped.
#[derive(Debug)]
pub struct Record {
    journal: Arc<Journal>,
    word: usize,
}

impl Record {
    /// Leaves it written, for an agent that finds it in the journal.
    pub fn leave(mut self) {
        // The stand-in for a word outside is not in the journal.
        self.word = usize::MAX;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.journal.word(self.word).store(0, Release);
    }
}

/// A socket that listens, for the next agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerEntry {
    /// The number in the name of its path.
    pub path: u64,
    pub local: SocketAddr,
    pub backlog: i32,
    /// Whether it is a socket of IPv6, and the options that say who else may listen.
    pub flags: u64,
}

impl Journal {
    /// An empty journal, and its file.
    ///
    /// # Errors
    /// There is no memory or no descriptor.
    pub fn create() -> Result<(Arc<Journal>, OwnedFd), HostError> {
        let file = memfd("ringway-journal", 8 * WORDS)?;
        Ok((Journal::open(&file)?, file))
    }

    /// The journal of another agent.
    ///
    /// # Errors
    /// There is no memory.
    pub fn open(file: &OwnedFd) -> Result<Arc<Journal>, HostError> {
        let memory = Mapping::shared(file, 0, 8 * WORDS)?;
        Ok(Arc::new(Journal { memory, next: [AtomicUsize::new(0), AtomicUsize::new(0)] }))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        /// Stands in for a word outside: that of a record that was left.
        static NONE: AtomicU64 = AtomicU64::new(0);
        self.memory.words().get(at).unwrap_or(&NONE)
    }

    /// Writes values to the first free place of `count` places; the first value, which is not 0, last.
    fn write(self: &Arc<Journal>, kind: usize, values: &[u64]) -> Option<Record> {
        let (begin, count, size) =
            if kind == 0 { (PLACES, CALLS, CALL) } else { (PLACES + CALLS * CALL, LISTENERS, LISTENER) };
        let next = self.next.get(kind)?;
        let from = next.load(Relaxed);
        let mut places = (0..count).map(|step| (from + step) % count);
        let place = places.find(|place| self.word(begin + place * size).load(Relaxed) == 0)?;
        // The one that becomes free soon is used again.
        next.store(place, Relaxed);
        let word = begin + place * size;
        let (first, rest) = values.split_first()?;
        rest.iter().zip(word + 1..).for_each(|(value, at)| self.word(at).store(*value, Relaxed));
        self.word(word).store(*first, Release);
        Some(Record { journal: self.clone(), word })
    }

    /// Writes a call. `None`: there is no place.
    pub fn record_call(self: &Arc<Journal>, call: &Call) -> Option<Record> {
        let [a, b, c, d, e, f] = call.arguments;
        let what = u64::from(call.thread.cast_unsigned()) << 32 | call.number.cast_unsigned() & 0xffff_ffff;
        self.write(0, &[call.id, what, a, b, c, d, e, f])
    }

    /// Writes a listener. `None`: there is no place.
    pub fn record_listener(self: &Arc<Journal>, entry: &ListenerEntry) -> Option<Record> {
        let (v4, bits) = match entry.local.ip() {
            IpAddr::V4(ip) => (IS_V4, u128::from(ip.to_bits())),
            IpAddr::V6(ip) => (0, ip.to_bits()),
        };
        let [high, low] = [(bits >> 64) as u64, bits as u64];
        // An address has 16 bytes; the flags share their word with port and backlog.
        let flags = entry.flags << 48 & !IS_V4 | v4;
        let number = u64::from(entry.local.port()) | u64::from(entry.backlog.cast_unsigned()) << 16;
        self.write(1, &[entry.path, flags | number, high, low])
    }

    /// Writes the number of the call that the agent is at (0: none), and returns the one that was written before.
    pub fn begin_call(&self, id: u64) -> u64 {
        let at = self.word(0);
        let before = at.load(Relaxed);
        at.store(id, Relaxed);
        before
    }

    /// Writes that an agent takes over, `now` seconds after some moment, which is never 0; whether one may. Attack: a
    /// program, or a peer, that has found out how to end an agent, and does it again and again.
    pub fn take_over(&self, now: u64) -> bool {
        let [oldest, newest] = [self.word(1), self.word(2)];
        let first = oldest.load(Relaxed);
        if first != 0 && now < first + TAKEOVERS_TIME {
            return false;
        }
        oldest.store(newest.load(Relaxed), Relaxed);
        newest.store(now, Relaxed);
        true
    }

    /// A place that is written, for an agent that goes on with what it says.
    fn record(self: &Arc<Journal>, word: usize) -> Record {
        Record { journal: self.clone(), word }
    }

    /// The calls that were not answered; their places are free when the records are dropped.
    pub fn take_calls(self: &Arc<Journal>) -> Vec<(Record, Call)> {
        let read = |place: usize| {
            let words: [u64; CALL] =
                std::array::from_fn(|at| self.word(PLACES + place * CALL + at).load(Acquire));
            let [id, what, arguments @ ..] = words;
            let (thread, number) = (((what >> 32) as u32).cast_signed(), (what as u32).cast_signed());
            let call = Call { id, thread, number: number.into(), arguments };
            (id != 0).then(|| (self.record(PLACES + place * CALL), call))
        };
        (0..CALLS).filter_map(read).collect()
    }

    /// The sockets that listen, in the same way.
    pub fn take_listeners(self: &Arc<Journal>) -> Vec<(Record, ListenerEntry)> {
        let read = |place: usize| {
            let word = PLACES + CALLS * CALL + place * LISTENER;
            let words: [u64; LISTENER] = std::array::from_fn(|at| self.word(word + at).load(Acquire));
            let [path, number, high, low] = words;
            let ip: IpAddr = match number & IS_V4 {
                0 => (u128::from(high) << 64 | u128::from(low)).to_be_bytes().into(),
                _ => (low as u32).to_be_bytes().into(),
            };
            let local = SocketAddr::new(ip, number as u16);
            let backlog = ((number >> 16) as u32).cast_signed();
            let flags = number >> 48 & 0x7fff;
            let entry = ListenerEntry { path, local, backlog, flags };
            (path != 0).then(|| (self.record(word), entry))
        };
        (0..LISTENERS).filter_map(read).collect()
    }
}

/// Flags of a listener: that it is a socket of IPv6, and [`OptionValues::listen_flags`].
pub fn flags(v6: bool, options: &OptionValues) -> u64 {
    u64::from(v6) | options.listen_flags() << 1
}

impl ListenerEntry {
    /// What [`flags`] was made of.
    pub fn options(&self) -> (bool, OptionValues) {
        (self.flags & 1 != 0, OptionValues::of_listen_flags(self.flags >> 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u64) -> Call {
        Call { id, thread: 70_000, number: 43, arguments: [3, u64::MAX, 5, 6, 7, id] }
    }

    fn entry(path: u64, local: &str) -> ListenerEntry {
        ListenerEntry { path, local: local.parse().unwrap(), backlog: 4096, flags: 0b1011 }
    }

    #[test]
    fn the_next_agent_reads_what_was_not_finished() {
        let (journal, file) = Journal::create().unwrap();
        let entries = [entry(7, "10.0.0.1:65535"), entry(u64::MAX, "[fd00::ffff]:80")];
        let kept: Vec<_> = entries.iter().map(|entry| journal.record_listener(entry).unwrap()).collect();
        let mut records: Vec<_> = (1..5).map(|id| journal.record_call(&call(id)).unwrap()).collect();
        records.remove(1);
        let next = Journal::open(&file).unwrap();
        let (calls, listeners) = (next.take_calls(), next.take_listeners());
        assert!(calls.iter().map(|(_, call)| *call).eq([1, 3, 4].map(call)));
        assert!(listeners.iter().map(|(_, entry)| entry).eq(&entries));
        // The next agent's records are those of the places, which stay written until it is done with them.
        std::mem::forget((kept, records));
        calls.into_iter().next().unwrap().0.leave();
        assert_eq!(journal.take_calls().len(), 1);
        assert_eq!(next.take_calls().len(), 0);
        drop(listeners);
        assert_eq!(next.take_listeners().len(), 0);
    }

    #[test]
    fn the_call_that_an_agent_is_at_and_the_ends_of_agents_are_written() {
        let (journal, file) = Journal::create().unwrap();
        assert_eq!((journal.begin_call(7), journal.begin_call(8)), (0, 7));
        let next = Journal::open(&file).unwrap();
        assert_eq!((next.begin_call(0), next.take_calls().len()), (8, 0));
        // Two within a minute, and none more; later again.
        let taken = [100, 130, 150, 159, 160, 189, 190].map(|now| next.take_over(now));
        assert_eq!(taken, [true, true, false, false, true, false, true]);
    }

    #[test]
    fn places_are_limited_and_used_again() {
        let (journal, _file) = Journal::create().unwrap();
        let mut records: Vec<_> = (1..=CALLS as u64).map(|id| journal.record_call(&call(id))).collect();
        assert!(records.iter().all(Option::is_some) && journal.record_call(&call(9)).is_none());
        records.truncate(CALLS / 2);
        assert!(journal.record_call(&call(9)).is_some());
        drop(records);
        assert!(journal.take_calls().is_empty());
    }

    #[test]
    fn flags_are_those_of_the_options() {
        for flags_of in 0..16 {
            let of = ListenerEntry { flags: flags_of, ..entry(1, "10.0.0.1:1") };
            let (v6, options) = of.options();
            assert_eq!(flags(v6, &options), flags_of);
        }
    }
}
