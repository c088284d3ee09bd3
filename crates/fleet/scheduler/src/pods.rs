//! Pods as described in kube-scheduler's queries, since `bind` only has the name.

use ringway_place::object::Vm;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Attack: endless pods. Largest number remembered; the oldest are dropped first.
const MOST: usize = 10_000;
/// Attack: pods with long labels. Largest size in bytes of all remembered pods.
const BYTES: usize = 8 << 20;
/// How long a pod is remembered, in milliseconds. Schedulers that let pods wait for others bind them minutes
/// later.
pub(crate) const KEPT: u64 = 15 * 60_000;
/// Attack: an endless UID or reason. Largest number of characters remembered.
const UID: usize = 64;
const REASON: usize = 1024;

/// Pods, by the names of their VMs.
#[derive(Default)]
pub struct Pods(Mutex<Known>);

#[derive(Default)]
struct Known {
    pods: BTreeMap<String, Pod>,
    /// Total bytes of all remembered pods.
    bytes: usize,
}

struct Pod {
    vm: Vm,
    bytes: usize,
    uid: String,
    at: u64,
    /// Why no node was found for the pod last time.
    why: String,
}

fn cut(text: &str, letters: usize) -> String {
    text.chars().take(letters).collect()
}

impl Known {
    fn remove(&mut self, name: &str) -> Option<Pod> {
        let pod = self.pods.remove(name)?;
        self.bytes -= pod.bytes;
        Some(pod)
    }

    /// Whether there is no room for another pod.
    fn is_full(&self, bytes: usize) -> bool {
        !self.pods.is_empty() && (self.pods.len() >= MOST || self.bytes + bytes > BYTES)
    }

    /// Makes room for a pod by removing expired ones, then the oldest.
    fn make_room(&mut self, bytes: usize, now: u64) {
        if self.is_full(bytes) {
            self.pods.retain(|_, pod| now < pod.at.saturating_add(KEPT));
            self.bytes = self.pods.values().map(|pod| pod.bytes).sum();
        }
        while self.is_full(bytes) {
            let oldest = self.pods.iter().min_by_key(|(_, pod)| pod.at).map(|(name, _)| name.clone());
            oldest.into_iter().for_each(|oldest| drop(self.remove(&oldest)));
        }
    }
}

impl Pods {
    /// Remembers a pod.
    pub fn see(&self, vm: Vm, uid: &str, now: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = serde_json::to_vec(&vm).map_or(0, |text| text.len());
        let uid = cut(uid, UID);
        let before = known.remove(&vm.name).filter(|pod| pod.uid == uid);
        known.make_room(bytes, now);
        let why = before.map_or(String::new(), |pod| pod.why);
        known.bytes += bytes;
        known.pods.insert(vm.name.clone(), Pod { vm, bytes, uid, at: now, why });
    }

    /// Records why no node was found for a pod. Returns whether that is new, since kube-scheduler retries.
    pub fn is_news(&self, name: &str, why: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let why = cut(why, REASON);
        known.pods.get_mut(name).is_none_or(|pod| std::mem::replace(&mut pod.why, why.clone()) != why)
    }

    /// The pod as last described, unless that was long ago or for another pod of the same name.
    pub fn seen(&self, name: &str, uid: &str, now: u64) -> Option<Vm> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = known.pods.get(name).filter(|pod| now < pod.at.saturating_add(KEPT))?;
        let is_it = uid.is_empty() || pod.uid.is_empty() || pod.uid == cut(uid, UID);
        is_it.then(|| pod.vm.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_pods_are_limited_in_time_and_number() {
        let pods = Pods::default();
        let vm = |name: String| Vm { name, ..Vm::default() };
        for index in 0..MOST as u64 + 10 {
            pods.see(vm(format!("p{index}")), "u", index / 10);
        }
        assert_eq!(pods.0.lock().unwrap().pods.len(), MOST);
        assert!(pods.seen("p0", "u", 5000).is_none() && pods.seen("p10009", "u", 5000).is_some());
        assert!(pods.seen("p10009", "other", 5000).is_none() && pods.seen("p10009", "", 5000).is_some());
        assert!(pods.seen("p10009", "u", 1000 + KEPT).is_none());
        assert!(pods.is_news("p10009", "full") && !pods.is_news("p10009", "full"));
        pods.see(vm("p10009".into()), "u", 1001);
        assert!(!pods.is_news("p10009", "full"));
        pods.see(vm("p10009".into()), "another of that name", 1001);
        assert!(pods.is_news("p10009", "full"));
        // Expired pods make room for new ones.
        pods.see(vm("late".into()), "u", 999 + KEPT);
        assert!(pods.0.lock().unwrap().pods.len() < 100);
        assert!(pods.seen("late", "u", 1000 + KEPT).is_some());
    }

    #[test]
    fn remembered_pods_are_limited_in_bytes() {
        let pods = Pods::default();
        for index in 0..100u64 {
            let labels = vec!["x".repeat(1 << 17)];
            pods.see(Vm { name: format!("p{index}"), labels, ..Vm::default() }, "u", index);
        }
        assert!(pods.seen("p36", "u", 99).is_none() && pods.seen("p38", "u", 99).is_some());
        let bytes = || {
            let known = pods.0.lock().unwrap();
            assert_eq!(known.bytes, known.pods.values().map(|pod| pod.bytes).sum::<usize>());
            known.bytes
        };
        assert!(bytes() <= BYTES);
        // A pod that is seen again takes no additional memory.
        let before = bytes();
        let labels = vec!["y".repeat(1 << 17)];
        pods.see(Vm { name: "p99".into(), labels, ..Vm::default() }, "u", 100);
        assert_eq!(bytes(), before);
    }
}
