//! Pods that kube-scheduler asked about, as it described them: when it binds one, it says the name alone.

use ringway_place::object::Vm;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Attack: pods without end. So many are remembered; the oldest go first.
const MOST: usize = 10_000;
/// How long one is remembered, in milliseconds. Who lets pods wait for others binds them minutes later.
pub(crate) const KEPT: u64 = 15 * 60_000;
/// Attack: a UID without end.
const UID: usize = 64;

/// Pods, by the names of their VMs.
#[derive(Default)]
pub struct Pods(Mutex<BTreeMap<String, Pod>>);

struct Pod {
    vm: Vm,
    uid: String,
    at: u64,
    /// Why it last found no node.
    why: String,
}

fn cut(uid: &str) -> String {
    uid.chars().take(UID).collect()
}

impl Pods {
    /// Remembers a pod.
    pub fn see(&self, vm: Vm, uid: &str, now: u64) {
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pods.len() >= MOST && !pods.contains_key(&vm.name) {
            pods.retain(|_, pod| now < pod.at.saturating_add(KEPT));
        }
        if pods.len() >= MOST && !pods.contains_key(&vm.name) {
            let oldest = pods.iter().min_by_key(|(_, pod)| pod.at).map(|(name, _)| name.clone());
            oldest.into_iter().for_each(|oldest| drop(pods.remove(&oldest)));
        }
        let uid = cut(uid);
        let before = pods.remove(&vm.name).filter(|pod| pod.uid == uid);
        let why = before.map_or(String::new(), |pod| pod.why);
        pods.insert(vm.name.clone(), Pod { vm, uid, at: now, why });
    }

    /// Notes why a pod found no node. Whether that is news: kube-scheduler asks for it again and again.
    pub fn is_news(&self, name: &str, why: String) -> bool {
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pods.get_mut(name).is_none_or(|pod| std::mem::replace(&mut pod.why, why) != pod.why)
    }

    /// The pod as it was last described, unless that was long ago or another one of the same name.
    pub fn seen(&self, name: &str, uid: &str, now: u64) -> Option<Vm> {
        let pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = pods.get(name).filter(|pod| now < pod.at.saturating_add(KEPT))?;
        let is_it = uid.is_empty() || pod.uid.is_empty() || pod.uid == cut(uid);
        is_it.then(|| pod.vm.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_remembered_for_a_while_and_not_without_end() {
        let pods = Pods::default();
        let vm = |name: String| Vm { name, ..Vm::default() };
        for index in 0..MOST as u64 + 10 {
            pods.see(vm(format!("p{index}")), "u", index / 10);
        }
        assert_eq!(pods.0.lock().unwrap().len(), MOST);
        assert!(pods.seen("p0", "u", 5000).is_none() && pods.seen("p10009", "u", 5000).is_some());
        assert!(pods.seen("p10009", "other", 5000).is_none() && pods.seen("p10009", "", 5000).is_some());
        assert!(pods.seen("p10009", "u", 1000 + KEPT).is_none());
        assert!(pods.is_news("p10009", "full".into()) && !pods.is_news("p10009", "full".into()));
        pods.see(vm("p10009".into()), "u", 1001);
        assert!(!pods.is_news("p10009", "full".into()));
        pods.see(vm("p10009".into()), "another of that name", 1001);
        assert!(pods.is_news("p10009", "full".into()));
        // Those whose time is over make room for all that come.
        pods.see(vm("late".into()), "u", 999 + KEPT);
        assert!(pods.0.lock().unwrap().len() < 100);
        assert!(pods.seen("late", "u", 1000 + KEPT).is_some());
    }
}
