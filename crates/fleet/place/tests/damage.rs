//! Randomly damaged files of a store: they either contain everything, or are refused and left unchanged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, Object};
use ringway_place::object::{Host, Vm};
use ringway_place::store::{Embedded, StoreError};
use std::path::PathBuf;
use std::sync::Arc;

/// Reproducible random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        // Xorshift, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }
}

struct Files {
    folder: PathBuf,
    store: PathBuf,
    log: PathBuf,
    whole: [Vec<u8>; 2],
}

impl Files {
    /// A store with decisions, some of which are only in the log.
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("rw-damage-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (store, log) = (folder.join("placement.redb"), folder.join("placement.redb.log"));
        let engine = Engine::open(Arc::new(Embedded::open(&store, 1).unwrap())).unwrap();
        let host = Host { name: "h".into(), cores: 64, threads: 64, memory_mb: 65_536, ..Host::default() };
        engine.put(vec![Object::Host(Box::new(host))]).unwrap();
        for index in 0..20 {
            let vm = Vm { name: format!("v{index}"), memory_mb: 64, ..Vm::default() };
            engine.put(vec![Object::Vm(Box::new(vm.clone()))]).unwrap();
            engine
                .place(PlacementRequest { vms: vec![vm.name], now: 1, ..PlacementRequest::default() })
                .unwrap();
        }
        // As after a crash: the log is ahead of the database.
        let whole = [&store, &log].map(|file| std::fs::read(file).unwrap());
        drop(engine);
        Files { folder, store, log, whole }
    }

    fn write(&self, store: &[u8], log: &[u8]) {
        std::fs::write(&self.store, store).unwrap();
        std::fs::write(&self.log, log).unwrap();
    }

    /// Opens the store and uses it. Returns the number of VMs, or the error.
    fn open(&self) -> Result<usize, String> {
        let store = match Embedded::open(&self.store, 2) {
            Ok(store) => store,
            Err(StoreError::Damaged(what)) => return Err(what),
            Err(other) => return Err(other.to_string()),
        };
        let engine = Engine::open(Arc::new(store)).map_err(|error| error.to_string())?;
        let vms = engine.view(|model| model.vm_slots().count()).map_err(|error| error.to_string())?;
        // What remains is either usable, or returns an error.
        let ask = PlacementRequest { vms: vec!["v3".into()], now: 2, ..PlacementRequest::default() };
        let _ = engine.place(ask).map(|decision| engine.explain(decision.id));
        let _ = (engine.decisions(100), engine.hosts(2), engine.tidy());
        Ok(vms)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn damaged(dice: &mut Dice, whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    match dice.below(4) {
        0 => bytes.truncate(dice.below(whole.len())),
        1 => bytes.extend_from_within(0..dice.below(whole.len()).min(8192)),
        2 => {
            let (from, many) = (dice.below(whole.len()), dice.below(4096));
            let end = (from + many).min(bytes.len());
            bytes[from..end].fill(dice.below(256) as u8);
        }
        _ => {}
    }
    for _ in 0..dice.below(30) {
        // Most data is at the beginning.
        let within = if dice.below(2) == 0 { 8192 } else { bytes.len() };
        let at = dice.below(within.min(bytes.len()));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = dice.below(256) as u8;
        }
    }
    bytes
}

/// Whether files contain everything. If not, they must be refused and left unchanged.
fn complete(files: &Files, database: &[u8], log: &[u8]) -> bool {
    files.write(database, log);
    match files.open() {
        Ok(vms) => {
            assert_eq!(vms, 20);
            true
        }
        Err(what) => {
            assert!(
                what.contains("placement.redb") && what.contains("ringway place store restore"),
                "{what}"
            );
            assert!(std::fs::read(&files.store).unwrap() == database, "{what}");
            assert!(std::fs::read(&files.log).unwrap() == log, "{what}");
            false
        }
    }
}

#[test]
fn a_damaged_log_is_refused() {
    let files = Files::new("log");
    let [store, log] = files.whole.clone();
    assert!(complete(&files, &store, &log));
    let mut dice = Dice(7);
    for _ in 0..40 {
        complete(&files, &store, &damaged(&mut dice, &log));
    }
    assert!(!complete(&files, &store, b""));
    assert!(!complete(&files, &store, &Files::new("other").whole[1]));
}

#[test]
fn a_damaged_database_is_complete_or_refused() {
    let files = Files::new("database");
    let [store, log] = files.whole.clone();
    let mut dice = Dice(11);
    let refused = (0..60).filter(|_| !complete(&files, &damaged(&mut dice, &store), &log)).count();
    assert!(refused > 10, "only {refused} were refused");
    for bytes in [&b"no database at all"[..], &[0; 65_536], b"redb", b""] {
        assert!(!complete(&files, bytes, &log));
    }
}
