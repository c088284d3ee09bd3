//! What the keeper holds, as it hands it to another program that runs in its place in the same process: a text in a
//! sealed memfd, which names descriptors by their numbers.

use super::store::{Slot, Store};
use ringway_fabric::MessageStream;
use ringway_host::{constant_memfd, exec_in_place, take_inherited};
use rustix::fs::fstat;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// The number of this format; a row of [`crate::upgrade::FORMATS`].
pub const FORMAT: u32 = 1;

/// The text.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    format: u32,
    entries: Vec<ImageEntry>,
    ports: Vec<ImagePort>,
    /// The socket to `data`.
    data: Option<i32>,
    control: ImageControl,
    /// Who waits for the end of the upgrade.
    client: Option<i32>,
    notes: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ImageEntry {
    name: String,
    text: String,
    descriptors: Vec<i32>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ImagePort {
    name: String,
    most: usize,
    records: Vec<ImageRecord>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ImageRecord {
    key: u32,
    bytes: Vec<u8>,
    descriptors: Vec<i32>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ImageControl {
    process: i32,
    stream: i32,
}

/// What the next program goes on with.
pub struct Restored {
    pub store: Store,
    pub control: Pid,
    pub stream: MessageStream,
    pub client: Option<OwnedFd>,
    pub notes: Vec<String>,
}

fn numbers(descriptors: &[OwnedFd]) -> Vec<i32> {
    descriptors.iter().map(AsRawFd::as_raw_fd).collect()
}

impl Image {
    fn of(
        store: &Store,
        (control, stream): (Pid, &MessageStream),
        client: Option<&OwnedFd>,
        notes: Vec<String>,
    ) -> Image {
        let entry = |(name, (text, held)): (&String, &(String, Vec<OwnedFd>))| ImageEntry {
            name: name.clone(),
            text: text.clone(),
            descriptors: numbers(held),
        };
        let record = |(key, (bytes, held)): (&u32, &(Vec<u8>, Vec<OwnedFd>))| ImageRecord {
            key: *key,
            bytes: bytes.clone(),
            descriptors: numbers(held),
        };
        let port = |(name, slot): (&String, &Slot)| ImagePort {
            name: name.clone(),
            most: slot.most,
            records: slot.records.iter().map(record).collect(),
        };
        Image {
            format: FORMAT,
            entries: store.named.iter().map(entry).collect(),
            ports: store.slots.iter().map(port).collect(),
            data: store.data.as_ref().map(AsRawFd::as_raw_fd),
            control: ImageControl {
                process: control.as_raw_nonzero().get(),
                stream: stream.as_fd().as_raw_fd(),
            },
            client: client.map(AsRawFd::as_raw_fd),
            notes,
        }
    }

    fn sealed(&self) -> io::Result<OwnedFd> {
        constant_memfd("ringway-keeper", &serde_json::to_vec(self)?).map_err(io::Error::other)
    }

    fn read(file: &OwnedFd) -> io::Result<Image> {
        let mut text = vec![0; fstat(file)?.st_size as usize];
        let mut filled = 0;
        while filled < text.len() {
            match rustix::io::pread(file, &mut text[filled..], filled as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        let image: Image = serde_json::from_slice(&text)?;
        if image.format != FORMAT {
            let format = image.format;
            return Err(io::Error::other(format!("the keeper's image has format {format}, not {FORMAT}")));
        }
        Ok(image)
    }

    fn restore(self) -> io::Result<Restored> {
        let control = [Some(self.control.stream), self.data, self.client];
        let of_ports =
            self.ports.iter().flat_map(|port| &port.records).flat_map(|record| &record.descriptors);
        let of_entries = self.entries.iter().flat_map(|entry| &entry.descriptors);
        let all: Vec<i32> =
            control.into_iter().flatten().chain(of_ports.chain(of_entries).copied()).collect();
        let taken = take_inherited(&all).map_err(io::Error::other)?;
        let mut taken: BTreeMap<i32, OwnedFd> = all.into_iter().zip(taken).collect();
        let mut take = |numbers: &[i32]| numbers.iter().filter_map(|number| taken.remove(number)).collect();
        let mut one = |number: Option<i32>| {
            number.and_then(|number| -> Option<OwnedFd> {
                let found: Vec<OwnedFd> = take(&[number]);
                found.into_iter().next()
            })
        };
        let (stream, data, client) = (one(Some(self.control.stream)), one(self.data), one(self.client));
        let (Some(stream), Some(control)) = (stream, Pid::from_raw(self.control.process)) else {
            return Err(io::Error::other("the keeper's image names no control process"));
        };
        let mut store = Store::with_data(data);
        for ImageEntry { name, text, descriptors } in self.entries {
            store.named.insert(name, (text, take(&descriptors)));
        }
        for ImagePort { name, most, records } in self.ports {
            let held = |record: ImageRecord| (record.key, (record.bytes, take(&record.descriptors)));
            store.slots.insert(name, Slot::new(most, records.into_iter().map(held).collect()));
        }
        let stream = MessageStream::new(stream);
        Ok(Restored { store, control, stream, client, notes: self.notes })
    }
}

/// Runs the program in `binary` in place of this one, with everything that is held. `words` are its arguments, for the
/// number of the image's descriptor. Returns only if that fails; nothing has changed then.
pub fn become_program(
    binary: BorrowedFd<'_>,
    words: impl Fn(i32) -> Vec<OsString>,
    store: &Store,
    control: (Pid, &MessageStream),
    client: Option<&OwnedFd>,
    notes: Vec<String>,
) -> io::Error {
    let file = match Image::of(store, control, client, notes).sealed() {
        Ok(file) => file,
        Err(error) => return error,
    };
    let words = [OsString::from("ringway")].into_iter().chain(words(file.as_raw_fd()));
    let words: Vec<CString> = match words.map(|word| CString::new(word.into_vec())).collect() {
        Ok(words) => words,
        Err(error) => return error.into(),
    };
    let entries = store.named.values().flat_map(|(_, held)| held);
    let records = store.slots.values().flat_map(|slot| slot.records.values()).flat_map(|(_, held)| held);
    let all = entries.chain(records).chain(&store.data).chain(client).chain([&file]).map(AsFd::as_fd);
    let all: Vec<_> = all.chain([control.1.as_fd()]).collect();
    io::Error::other(exec_in_place(binary, &words, &all))
}

/// What the program before this one held, by the number of the image's descriptor.
///
/// # Errors
/// It is no image of ours.
pub fn take(number: i32) -> io::Result<Restored> {
    let file = take_inherited(&[number]).map_err(io::Error::other)?;
    Image::read(&file[0])?.restore()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ringway_host::memfd;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;

    fn file() -> OwnedFd {
        memfd("kept", 4096).unwrap()
    }

    /// An image with all fields, for the golden file.
    pub fn sample() -> Image {
        let record = ImageRecord { key: 2, bytes: vec![1, 255], descriptors: vec![12] };
        Image {
            format: FORMAT,
            entries: vec![ImageEntry { name: "api".into(), text: "text".into(), descriptors: vec![10, 11] }],
            ports: vec![ImagePort { name: "left".into(), most: 78, records: vec![record] }],
            data: Some(13),
            control: ImageControl { process: 4711, stream: 14 },
            client: Some(15),
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn the_next_program_has_everything() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut store = Store::with_data(Some(file()));
        store.named.insert("one".into(), ("text".into(), vec![file(), file()]));
        let records = BTreeMap::from([(7, (vec![1, 2], vec![file()])), (9, (Vec::new(), Vec::new()))]);
        store.slots.insert("left".into(), Slot::new(3, records));
        let (stream, client) = (MessageStream::new(ours.into()), file());
        let control = Pid::from_raw(4711).unwrap();
        let image = Image::of(&store, (control, &stream), Some(&client), vec!["a note".into()]);
        let read = Image::read(&image.sealed().unwrap()).unwrap();
        assert_eq!(read, image);
        // As after the other program has begun: nobody else has the descriptors.
        for held in store.named.into_values().map(|(_, held)| held).chain(
            store.slots.into_values().flat_map(|slot| slot.records.into_values()).map(|(_, held)| held),
        ) {
            held.into_iter().for_each(|fd| _ = fd.into_raw_fd());
        }
        store.data.into_iter().chain([client]).for_each(|fd| _ = fd.into_raw_fd());
        std::mem::forget(stream);
        let restored = read.restore().unwrap();
        assert_eq!((restored.control, restored.notes), (control, vec!["a note".to_string()]));
        assert!(restored.store.data.is_some() && restored.client.is_some());
        let (text, held) = &restored.store.named["one"];
        assert_eq!((text.as_str(), held.len()), ("text", 2));
        let slot = &restored.store.slots["left"];
        let records = slot.records.iter().map(|(key, (bytes, held))| (*key, bytes.clone(), held.len()));
        assert_eq!((slot.most, records.collect::<Vec<_>>()), (3, vec![(7, vec![1, 2], 1), (9, vec![], 0)]));
        MessageStream::new(theirs.into()).send(&"hello", &[]).unwrap();
        assert_eq!(restored.stream.receive::<String>().unwrap().0, "hello");
    }

    #[test]
    fn an_image_of_another_format_is_refused() {
        let image = Image { format: FORMAT + 1, ..sample() };
        let error = Image::read(&image.sealed().unwrap()).unwrap_err().to_string();
        assert!(error.contains(&format!("format {}", FORMAT + 1)), "{error}");
    }
}
