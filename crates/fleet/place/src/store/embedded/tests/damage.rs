//! Damaged files either contain everything acknowledged, or are refused and left unchanged.

use super::super::backup::{backup, check, restore, salvage};
use super::super::files::{Files, log_of};
use super::*;
use crate::store::memory::State;

/// Contents of a store, for comparison.
fn contents(state: &State) -> Vec<String> {
    let keys = state.keys.iter().map(|(key, versions)| format!("{key} {versions:?}"));
    keys.chain([format!("{} {} {:?}", state.revision, state.oldest, state.leases)]).collect()
}

struct Lab {
    folder: Folder,
    /// Files after a crash: some log records are in the database, others are not.
    crashed: Files,
    closed: Files,
    holds: Vec<String>,
}

impl Lab {
    fn new(name: &str) -> Lab {
        let folder = Folder::new(name);
        let path = folder.store();
        let store = Embedded::with_log(&path, 0, 8 * 512).unwrap();
        let lease = store.lease(100, 0).unwrap();
        for round in 0..8 {
            let put = |key: &str, lease| Op::Put { key: key.into(), value: vec![round; 700].into(), lease };
            let ops =
                vec![put("host/a", None), put(&format!("vm/{round}"), None), put("pending/v", Some(lease))];
            store.durable(store.transact(&[], ops).unwrap()).unwrap();
        }
        let crashed = Files::read(&path).unwrap();
        let holds = store.memory.with(contents);
        drop(store);
        let closed = Files::read(&path).unwrap();
        let lab = Lab { folder, crashed, closed, holds };
        let found = lab.crashed.examine(0).unwrap().unwrap();
        assert!(!found.ahead.is_empty() && found.ahead.len() < 8, "the log is ahead of a part of it");
        assert!(lab.holds_all(&lab.crashed) && lab.holds_all(&lab.closed));
        lab
    }

    /// Whether files contain everything; if not, they must be refused.
    fn holds_all(&self, files: &Files) -> bool {
        match files.examine(0) {
            Ok(Some(found)) => {
                assert_eq!(contents(&found.state), self.holds);
                true
            }
            Ok(None) => panic!("a damaged store was taken for none"),
            Err(_) => false,
        }
    }

    fn write(&self, files: &Files) -> PathBuf {
        let path = self.folder.store();
        for (path, bytes) in [(&path, &files.database), (&log_of(&path), &files.log)] {
            match bytes {
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
                None => drop(std::fs::remove_file(path)),
            }
        }
        path
    }
}

/// Flips every bit of a log, and truncates it to every length.
#[test]
fn a_damaged_log_is_never_a_shorter_one() {
    let lab = Lab::new("damaged-log");
    for files in [&lab.crashed, &lab.closed] {
        let (database, log) = (files.database.clone(), files.log.clone().unwrap());
        let mut damaged = Files { database, log: Some(log.clone()) };
        for bit in 0..log.len() * 8 {
            let mut bytes = log.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            damaged.log = Some(bytes);
            assert!(!lab.holds_all(&damaged), "bit {bit}");
        }
        for length in 0..log.len() {
            damaged.log = Some(log[..length].to_vec());
            assert!(!lab.holds_all(&damaged), "{length} bytes");
        }
        // Missing or old sectors, except at the end, are not an interrupted write.
        for at in (0..log.len() - 512).step_by(512) {
            let mut bytes = log.clone();
            bytes[at..at + 512].fill(0);
            damaged.log = Some(bytes);
            lab.holds_all_but_the_last(&damaged);
        }
    }
}

/// Flips every bit of a database's header, bits of every page and many others, and truncates it.
#[test]
fn a_damaged_database_is_complete_or_refused() {
    let lab = Lab::new("damaged-database");
    let mut refused = 0;
    for files in [&lab.crashed, &lab.closed] {
        let (database, log) = (files.database.clone().unwrap(), files.log.clone());
        let head = 0..320 * 8;
        let used = (320..database.len()).filter(|at| database[*at] != 0);
        let sparse = if std::env::var_os("RINGWAY_STEPS").is_some() { 1 } else { 23 };
        let mut damaged = Files { database: None, log };
        for bit in head.chain(used.step_by(sparse).map(|at| at * 8 + at % 8)) {
            let mut bytes = database.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            damaged.database = Some(bytes);
            refused += u32::from(!lab.holds_all(&damaged));
        }
        for length in (0..320).chain((320..database.len()).step_by(4096 - 1)) {
            damaged.database = Some(database[..length].to_vec());
            assert!(!lab.holds_all(&damaged), "{length} bytes");
        }
    }
    assert!(refused > 100, "only {refused}");
}

impl Lab {
    /// The last record may look interrupted, if its sectors have their previous content.
    fn holds_all_but_the_last(&self, files: &Files) {
        if let Ok(found) = files.examine(0) {
            let found = found.unwrap();
            assert!(contents(&found.state) == self.holds || !found.log.torn.is_empty());
        }
    }
}

#[test]
fn refused_files_are_unchanged_and_the_remedy_is_reported() {
    let lab = Lab::new("refused");
    let whole = || (lab.crashed.database.clone().unwrap(), lab.crashed.log.clone().unwrap());
    let flipped = |mut bytes: Vec<u8>, at: usize| {
        bytes[at] ^= 1;
        Some(bytes)
    };
    let (database, log) = whole();
    let cases = [
        (Some(database.clone()), None, "its log is missing"),
        (None, Some(log.clone()), "it is missing or empty"),
        (Some(Vec::new()), Some(log.clone()), "it is missing or empty"),
        (Some(database.clone()), Some(Vec::new()), "its log is damaged at the beginning"),
        (Some(database.clone()), Some(log[..4096].to_vec()), "its log has 4096 bytes instead of 8704"),
        (Some(database.clone()), flipped(log.clone(), 700), "its log is damaged at byte 512"),
        (Some(database.clone()), Some(vec![0; log.len()]), "its log is damaged at the beginning"),
        (Some(b"no database".to_vec()), Some(log.clone()), "it is damaged"),
        (Some(database.clone()), Lab::new("another").crashed.log.clone(), "belongs to another store"),
    ];
    for (database, log, what) in cases {
        let files = Files { database, log };
        let path = lab.write(&files);
        let refused = Embedded::open(&path, 0).err().unwrap();
        let StoreError::Damaged(message) = &refused else { panic!("{refused}") };
        assert!(message.contains(what) && message.contains("ringway place store restore"), "{message}");
        assert_eq!(check(&path, 0), Err(refused));
        let now = Files::read(&path).unwrap();
        assert!(now.database == files.database && now.log == files.log, "{what}");
    }
}

#[test]
fn an_interrupted_write_is_ignored_and_reported() {
    let lab = Lab::new("cut");
    let log = lab.crashed.log.clone().unwrap();
    // The last record's second sector was never written.
    let newest = lab.crashed.examine(0).unwrap().unwrap().log.newest;
    let number = |at: usize| u64::from_le_bytes(log[at + 4..at + 12].try_into().unwrap());
    let sectors: Vec<usize> = (512..log.len()).step_by(512).filter(|at| number(*at) == newest).collect();
    assert!(sectors.len() > 2);
    let mut bytes = log.clone();
    bytes[sectors[1]..][..512].fill(0);
    let path = lab.write(&Files { database: lab.crashed.database.clone(), log: Some(bytes) });
    let store = Embedded::open(&path, 0).unwrap();
    assert_eq!(store.cut(), Some(newest));
    assert_eq!(store.range("vm/", None).unwrap().1.len(), 7);
    drop(store);
    assert_eq!(Embedded::open(&path, 0).unwrap().cut(), None);
}

#[test]
fn a_backup_is_restored_completely_or_refused() {
    let lab = Lab::new("backup");
    let path = lab.write(&lab.crashed);
    let to = lab.folder.0.join("copy");
    let summary = backup(&path, &to, 0).unwrap();
    assert_eq!((summary.revision, summary.objects["vm"], summary.objects["pending"]), (8, 8, 1));
    // A store in use has the same backup.
    let store = Embedded::open(&path, 0).unwrap();
    let bytes = std::fs::read(&to).unwrap();
    assert_eq!(store.backup(&to).unwrap(), summary);
    assert_eq!(std::fs::read(&to).unwrap(), bytes);
    drop(store);
    let changed = Embedded::open(&path, 0).unwrap();
    changed.transact(&[], vec![Op::Delete("host/a".into())]).unwrap();
    drop(changed);
    let (restored, kept) = restore(&path, &to, 0).unwrap();
    assert_eq!((restored, kept.len()), (summary.clone(), 2));
    assert_eq!(check(&path, 0).unwrap(), summary);
    assert_eq!(contents(&Files::read(&path).unwrap().examine(0).unwrap().unwrap().state), lab.holds);
    // A restored store works like any other, and a missing one can be restored too.
    drop(Embedded::open(&path, 0).unwrap());
    kept.iter().for_each(|kept| assert!(kept.exists()));
    lab.write(&Files { database: None, log: None });
    assert_eq!(restore(&path, &to, 0).unwrap(), (summary, Vec::new()));
    let before = Files::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&to, &bytes).unwrap();
        assert!(matches!(restore(&path, &to, 0), Err(StoreError::Damaged(_))), "byte {at}");
    }
    let after = Files::read(&path).unwrap();
    assert!(after.database == before.database && after.log == before.log);
}

#[test]
fn salvage_keeps_all_readable_entries() {
    let lab = Lab::new("salvage");
    let mut log = lab.crashed.log.clone().unwrap();
    let database = lab.crashed.database.clone();
    let newest = lab.crashed.examine(0).unwrap().unwrap().log.newest;
    let last = (512..log.len())
        .step_by(512)
        .find(|at| u64::from_le_bytes(log[at + 4..at + 12].try_into().unwrap()) == newest);
    log[last.unwrap() + 100] ^= 4;
    let path = lab.write(&Files { database: database.clone(), log: Some(log) });
    let (summary, kept, lost) = salvage(&path, 0).unwrap();
    assert_eq!((summary.revision, kept.len(), lost.len()), (7, 2, 1), "{lost:?}");
    assert_eq!(check(&path, 0).unwrap(), summary);
    // A database without its log is salvaged alone.
    let path = lab.write(&Files { database, log: None });
    let (summary, _, lost) = salvage(&path, 0).unwrap();
    assert!(summary.revision < 8 && lost == ["its log is missing"], "{lost:?}");
    lab.write(&Files { database: Some(b"nothing".to_vec()), log: None });
    assert!(salvage(&path, 0).is_err());
}
