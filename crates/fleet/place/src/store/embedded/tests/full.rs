//! A full disk: changes are refused, and accepted again when there is room.

use super::super::database;
use super::super::writer::{Open, run};
use super::*;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file on a disk that can be set to full.
#[derive(Clone, Debug)]
struct Disk(Arc<InMemoryBackend>, Arc<AtomicBool>);

impl Disk {
    fn room(&self) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.0.write(offset, data)
    }
}

/// A store whose database is on such a disk, and whose log is in `file`.
fn store(disk: &Disk, folder: &Folder, file: Option<&str>) -> Embedded {
    let copy = disk.clone();
    let open: Open = Box::new(move || Ok(Database::builder().create_with_backend(copy.clone())?));
    let database = open().unwrap();
    database::begin(&database, 7).unwrap();
    let path = folder.0.join("log");
    log::create(&path, 7, 0, 8 * 512).unwrap();
    let contents = log::read(&std::fs::read(&path).unwrap()).unwrap();
    let path = file.map_or(path, PathBuf::from);
    let log = Log::resume(OpenOptions::new().write(true).open(path).unwrap(), &contents).unwrap();
    let progress = Arc::new(Progress::default());
    let (sender, receiver) = channel();
    let shared = progress.clone();
    let writer = std::thread::spawn(move || run(&open, database, log, &receiver, &shared));
    let (memory, writer) = (Memory::default(), Some(writer));
    Embedded { memory, sender: Some(sender), progress, writer, cut: None }
}

fn put(store: &Embedded, value: u8) -> Result<Revision, StoreError> {
    let op = Op::Put { key: format!("k{value}"), value: vec![value; 300].into(), lease: None };
    let revision = store.transact(&[], vec![op])?;
    store.durable(revision)?;
    Ok(revision)
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let folder = Folder::new("full");
    let disk = Disk(Arc::new(InMemoryBackend::new()), Arc::default());
    let store = store(&disk, &folder, None);
    put(&store, 0).unwrap();
    for round in 1..4u8 {
        disk.1.store(true, Ordering::Relaxed);
        // The log has room for some more changes.
        let refused = (0..100).find_map(|index| put(&store, round * 50 + index % 50).err()).unwrap();
        assert!(matches!(&refused, StoreError::Full(_)), "{refused}");
        let before = store.range("", None).unwrap();
        for _ in 0..3 {
            assert!(matches!(put(&store, 1), Err(StoreError::Full(_))));
            assert!(matches!(store.lease(1, 1), Err(StoreError::Full(_))));
            assert!(matches!(store.expire(1), Err(StoreError::Full(_))));
        }
        assert_eq!(store.range("", None).unwrap(), before, "what is refused changes nothing");
        disk.1.store(false, Ordering::Relaxed);
        while put(&store, round).is_err() {
            std::thread::yield_now();
        }
    }
    let holds = store.range("", None).unwrap();
    drop(store);
    let again = Database::builder().create_with_backend(disk).unwrap();
    let again = Memory::of(database::load(&again, 0).unwrap());
    assert_eq!(again.range("", None).unwrap(), holds);
}

#[test]
fn a_full_log_refuses_writes() {
    let folder = Folder::new("full-log");
    let disk = Disk(Arc::new(InMemoryBackend::new()), Arc::default());
    let store = store(&disk, &folder, Some("/dev/full"));
    let refused = put(&store, 0).unwrap_err();
    assert!(refused.to_string().contains("disk is full"), "{refused}");
}
