//! Objects as keys and values: `host/NAME` and JSON.

use super::Value;
use crate::model::Change;
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Pending, Vm};
use crate::policy::Policy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A change as a key and its value; none for a deletion.
pub fn encode(change: &Change) -> (String, Option<Value>) {
    match change {
        Change::Cluster(it) => (format!("cluster/{}", it.name), json(it)),
        Change::NoCluster(name) => (format!("cluster/{name}"), None),
        Change::Policy(it) => (format!("policy/{}", it.name), json(&**it)),
        Change::NoPolicy(name) => (format!("policy/{name}"), None),
        Change::Host(it) => (format!("host/{}", it.name), json(it)),
        Change::NoHost(name) => (format!("host/{name}"), None),
        Change::Load(it) => (format!("load/{}", it.host), json(it)),
        Change::NoLoad(host) => (format!("load/{host}"), None),
        Change::Fact(it) => (format!("fact/{}/{}", it.host, it.name), json(it)),
        Change::NoFact(host, name) => (format!("fact/{host}/{name}"), None),
        Change::Blacklist(it) => (format!("blacklist/{}", it.host), json(it)),
        Change::NoBlacklist(host) => (format!("blacklist/{host}"), None),
        Change::Vm(it) => (format!("vm/{}", it.name), json(it)),
        Change::NoVm(name) => (format!("vm/{name}"), None),
        Change::Group(it) => (format!("group/{}", it.name), json(it)),
        Change::NoGroup(name) => (format!("group/{name}"), None),
        Change::Pending(it) => (format!("pending/{}", it.vm), json(it)),
        Change::NoPending(vm) => (format!("pending/{vm}"), None),
    }
}

fn json<T: Serialize>(it: &T) -> Option<Value> {
    // Only maps with keys other than strings and numbers can't be written, and there are none.
    serde_json::to_vec(it).ok().map(Value::from)
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

/// The change for a key and its value; none if the model does not hold such keys.
pub fn decode(key: &str, value: Option<&[u8]>) -> Option<Change> {
    let (kind, name) = key.split_once('/')?;
    let name = || name.to_string();
    Some(match (kind, value) {
        ("cluster", Some(value)) => Change::Cluster(read::<Cluster>(value)?),
        ("cluster", None) => Change::NoCluster(name()),
        ("policy", Some(value)) => Change::Policy(Arc::new(read::<Policy>(value)?)),
        ("policy", None) => Change::NoPolicy(name()),
        ("host", Some(value)) => Change::Host(read::<Host>(value)?),
        ("host", None) => Change::NoHost(name()),
        ("load", Some(value)) => Change::Load(read::<Load>(value)?),
        ("load", None) => Change::NoLoad(name()),
        ("fact", Some(value)) => Change::Fact(read::<Fact>(value)?),
        ("fact", None) => {
            let name = name();
            let (host, fact) = name.split_once('/')?;
            Change::NoFact(host.into(), fact.into())
        }
        ("blacklist", Some(value)) => Change::Blacklist(read::<Blacklist>(value)?),
        ("blacklist", None) => Change::NoBlacklist(name()),
        ("vm", Some(value)) => Change::Vm(read::<Vm>(value)?),
        ("vm", None) => Change::NoVm(name()),
        ("group", Some(value)) => Change::Group(read::<AffinityGroup>(value)?),
        ("group", None) => Change::NoGroup(name()),
        ("pending", Some(value)) => Change::Pending(read::<Pending>(value)?),
        ("pending", None) => Change::NoPending(name()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Attack: a store file written by another program.
        #[test]
        fn arbitrary_store_entries_never_panic(
            key in ".{0,40}",
            value in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = decode(&key, Some(&value));
            let _ = decode(&key, None);
        }
    }

    #[test]
    fn objects_round_trip() {
        for policy in crate::policy::built_in() {
            let (key, value) = encode(&Change::Policy(Arc::new(policy.clone())));
            let Some(Change::Policy(read)) = decode(&key, value.as_deref()) else { panic!("{key}") };
            assert_eq!(*read, policy);
        }
        let fact = Change::NoFact("h".into(), "temperature".into());
        let (key, value) = encode(&fact);
        assert!(matches!(decode(&key, value.as_deref()), Some(Change::NoFact(h, _)) if h == "h"));
    }
}
