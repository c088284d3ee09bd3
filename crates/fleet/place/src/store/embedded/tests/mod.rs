//! Tests of the store on files.

mod crash;
mod damage;
mod full;

use super::*;
use std::path::PathBuf;

/// A temporary folder of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("rw-place-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn store(&self) -> PathBuf {
        self.0.join("placement.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Op {
    Op::Put { key: key.into(), value: value.as_bytes().into(), lease }
}

fn keys(store: &dyn Store, at: Option<Revision>) -> Vec<String> {
    let (_, entries) = store.range("", at).unwrap();
    entries.into_iter().map(|e| format!("{}={}", e.key, String::from_utf8_lossy(&e.value))).collect()
}

#[test]
fn both_stores_support_compare_lease_and_delete() {
    let folder = Folder::new("both");
    let path = folder.store();
    let embedded = Embedded::open(&path, 0).unwrap();
    for store in [&Memory::default() as &dyn Store, &embedded] {
        let first = store.transact(&[], vec![put("a", "1", None), put("b", "1", None)]).unwrap();
        let lease = store.lease(100, 1000).unwrap();
        store
            .transact(&[Compare { key: "a".into(), modified: first }], vec![put("a", "2", Some(lease))])
            .unwrap();
        let late = Compare { key: "a".into(), modified: first };
        assert_eq!(store.transact(&[late], vec![put("a", "3", None)]), Err(StoreError::Conflict("a".into())));
        assert_eq!(keys(store, Some(first)), ["a=1", "b=1"]);
        assert_eq!(keys(store, None), ["a=2", "b=1"]);
        store.expire(1099).unwrap();
        store.keep_alive(lease, 1050).unwrap();
        store.expire(1149).unwrap();
        assert_eq!(keys(store, None), ["a=2", "b=1"]);
        assert_eq!(store.watch(first).unwrap().len(), 1);
        store.expire(1150).unwrap();
        assert_eq!(keys(store, None), ["b=1"]);
        assert!(store.watch(first).unwrap().last().unwrap().value.is_none());
        assert_eq!(store.keep_alive(lease, 0), Err(StoreError::NoLease(lease)));
        let now = store.range("", None).unwrap().0;
        store.compact(now).unwrap();
        assert!(matches!(store.range("", Some(first)), Err(StoreError::Compacted { .. })));
        assert!(matches!(store.watch(first), Err(StoreError::Compacted { .. })));
        store.durable(now).unwrap();
    }
    drop(embedded);
    let again = Embedded::open(&path, 0).unwrap();
    assert_eq!(keys(&again, None), ["b=1"]);
}

#[test]
fn durable_state_and_leases_survive_a_restart() {
    let folder = Folder::new("lease");
    let path = folder.store();
    let store = Embedded::open(&path, 5_000).unwrap();
    let lease = store.lease(100, 5_000).unwrap();
    let first = store.transact(&[], vec![put("p", "1", Some(lease)), put("q", "1", None)]).unwrap();
    let last = store.transact(&[], vec![put("q", "2", None)]).unwrap();
    store.durable(last).unwrap();
    drop(store);
    // The clock went back meanwhile: the lease lasts no longer for that.
    let store = Embedded::open(&path, 1_000).unwrap();
    assert_eq!(keys(&store, Some(first)), ["p=1", "q=1"]);
    assert_eq!(keys(&store, None), ["p=1", "q=2"]);
    store.expire(1_100).unwrap();
    assert_eq!(keys(&store, None), ["q=2"]);
    assert_eq!(store.transact(&[], vec![put("r", "1", None)]).unwrap(), last + 2);
}
