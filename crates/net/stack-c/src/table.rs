//! Networks and sockets by their numbers.

use crate::Result;
use crate::socket::Socket;
use ringway_sockets::Network;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first number: the kernel's descriptors are smaller, so that none is taken for a socket of this library.
const FIRST: c_int = 1 << 30;

/// What a number stands for.
#[derive(Clone, Debug)]
pub enum Entry {
    Network(Network),
    Socket(Arc<Socket>),
}

#[derive(Debug)]
struct Table {
    entries: BTreeMap<c_int, Entry>,
    /// Numbers are used again late, so that one that was closed is refused.
    next: c_int,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: BTreeMap::new(), next: FIRST });

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a new entry. The stack's settings bound how many sockets there are.
pub fn insert(entry: Entry) -> c_int {
    let mut table = table();
    loop {
        let number = table.next;
        table.next = number.checked_add(1).unwrap_or(FIRST);
        if let Vacant(place) = table.entries.entry(number) {
            place.insert(entry);
            return number;
        }
    }
}

fn get(number: c_int) -> Result<Entry> {
    table().entries.get(&number).cloned().ok_or(libc::EBADF)
}

pub fn network(number: c_int) -> Result<Network> {
    match get(number)? {
        Entry::Network(network) => Ok(network),
        Entry::Socket(_) => Err(libc::EBADF),
    }
}

pub fn socket(number: c_int) -> Result<Arc<Socket>> {
    match get(number)? {
        Entry::Socket(socket) => Ok(socket),
        Entry::Network(_) => Err(libc::ENOTSOCK),
    }
}

pub fn remove(number: c_int) -> Result<Entry> {
    table().entries.remove(&number).ok_or(libc::EBADF)
}
