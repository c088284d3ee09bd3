//! The client of the keeper, used by `control`.

use super::{Answer, Order, store::Store};
use ringway_fabric::{DESCRIPTORS, MessageStream, StreamError};
use ringway_host::wait_readable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the keeper holds under a name.
#[derive(Debug, Default)]
pub struct Found {
    /// The text.
    pub text: String,
    /// The descriptors, in order.
    pub descriptors: Vec<OwnedFd>,
}

/// The stream to the keeper. Without a keeper, orders have no effect, and the fabric ends with this process.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<Mutex<Option<MessageStream>>>);

impl Keeper {
    /// The keeper at the other end of a stream socket.
    pub fn new(socket: OwnedFd) -> Keeper {
        Keeper(Arc::new(Mutex::new(Some(MessageStream::new(socket)))))
    }

    /// Runs a keeper as a thread, which ends with this process.
    ///
    /// # Errors
    /// The socket pair or the thread can't be created.
    pub fn thread() -> io::Result<Keeper> {
        let (ours, theirs) = UnixStream::pair()?;
        let stream = MessageStream::new(theirs.into());
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            let mut store = Store::default();
            while serve(&mut store, &stream, None).is_ok() {}
        })?;
        Ok(Keeper::new(ours.into()))
    }

    /// Holds a text and copies of descriptors under a name, in place of what had it.
    pub fn put<'d, F: AsFd + 'd>(
        &self,
        name: &str,
        text: &str,
        descriptors: impl IntoIterator<Item = &'d F>,
    ) {
        let all: Vec<BorrowedFd<'_>> = descriptors.into_iter().map(AsFd::as_fd).collect();
        let (first, rest) = all.split_at(all.len().min(DESCRIPTORS));
        let mut stream = self.lock();
        send(&mut stream, &Order::Put { name: name.into(), text: text.into() }, first);
        for more in rest.chunks(DESCRIPTORS) {
            send(&mut stream, &Order::More { name: name.into() }, more);
        }
    }

    /// As [`Keeper::put`], with a value as JSON.
    pub fn put_value<'d, F: AsFd + 'd>(
        &self,
        name: &str,
        value: &impl Serialize,
        descriptors: impl IntoIterator<Item = &'d F>,
    ) {
        match serde_json::to_string(value) {
            Ok(text) => self.put(name, &text, descriptors),
            Err(error) => {
                tracing::error!(name, %error, "not encoded; a later control process will not restore it")
            }
        }
    }

    /// Closes what has a name.
    pub fn remove(&self, name: &str) {
        self.order(Order::Remove { name: name.into() }, &[]);
    }

    /// Waits until all orders are carried out.
    pub fn settle(&self) {
        self.ask(&Order::Records { port: String::new() }, |_, _| {});
    }

    /// Opens a slot for the records of a port's new peer. Once it returns, `data` may send them.
    pub fn open(&self, port: &str, descriptors: usize) {
        self.ask(&Order::Open { port: port.into(), descriptors }, |_, _| {});
    }

    /// Closes the records of a port's peer.
    pub fn close(&self, port: &str) {
        self.order(Order::Close { port: port.into() }, &[]);
    }

    /// Takes records from a new `data` process.
    pub fn data(&self, socket: &OwnedFd) {
        self.order(Order::Data, &[socket.as_fd()]);
    }

    /// The records of a port's peer, in the order of their keys.
    pub fn records(&self, port: &str) -> Vec<(u32, Vec<u8>, Vec<OwnedFd>)> {
        let mut records = Vec::new();
        self.ask(&Order::Records { port: port.into() }, |answer, descriptors| {
            if let Answer::Record { key, bytes } = answer {
                records.push((key, bytes, descriptors));
            }
        });
        records
    }

    /// Everything but records, by name.
    pub fn everything(&self) -> BTreeMap<String, Found> {
        let (mut all, mut last) = (BTreeMap::<String, Found>::new(), String::new());
        self.ask(&Order::Everything, |answer, descriptors| match answer {
            Answer::Named { name, text } => {
                last.clone_from(&name);
                all.insert(name, Found { text, descriptors });
            }
            _ => all.entry(last.clone()).or_default().descriptors.extend(descriptors),
        });
        all
    }

    fn order(&self, order: Order, descriptors: &[BorrowedFd<'_>]) {
        send(&mut self.lock(), &order, descriptors);
    }

    /// Calls `each` with every answer but the last.
    fn ask(&self, order: &Order, mut each: impl FnMut(Answer, Vec<OwnedFd>)) {
        let mut stream = self.lock();
        send(&mut stream, order, &[]);
        while let Some(open) = &*stream {
            match open.receive::<Answer>() {
                Ok((Answer::End, _)) => return,
                Ok((answer, descriptors)) => each(answer, descriptors),
                Err(error) => lose(&mut stream, &error),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<MessageStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(stream: &mut Option<MessageStream>, order: &Order, descriptors: &[BorrowedFd<'_>]) {
    if let Some(Err(error)) = stream.as_ref().map(|stream| stream.send(order, descriptors)) {
        lose(stream, &error);
    }
}

fn lose(stream: &mut Option<MessageStream>, error: &StreamError) {
    tracing::error!(%error, "the keeper is lost: the control process can't be restarted after a crash");
    *stream = None;
}

/// Waits for orders and records, or until `other` is readable, and carries them out.
///
/// # Errors
/// `control` is gone.
pub(super) fn serve(
    store: &mut Store,
    stream: &MessageStream,
    other: Option<BorrowedFd<'_>>,
) -> Result<(), StreamError> {
    let data = store.data().map(AsFd::as_fd);
    let sockets: Vec<_> = [Some(stream.as_fd()), other, data].into_iter().flatten().collect();
    let ready = wait_readable(&sockets, None)?;
    if ready[0] {
        let (order, descriptors) = stream.receive::<Order>()?;
        store.obey(order, descriptors, stream)
    } else {
        store.take_records();
        Ok(())
    }
}
