//! Checks that an object refers only to existing objects or those of the same request, and has no time in the
//! future.

use super::Object;
use crate::policy::Policy;
use std::sync::Arc;

/// Maximum difference between the clocks of several machines, in milliseconds.
const APART: u64 = 60_000;

/// Existing objects.
pub struct There<'t> {
    /// A host's ports; `Some(None)` if they are unknown, `None` if there is no such host.
    pub host: &'t dyn Fn(&str) -> Option<Option<Vec<String>>>,
    /// A policy; `Some(None)` if only its name is known, `None` if there is no such policy.
    pub policy: &'t dyn Fn(&str) -> Option<Option<Arc<Policy>>>,
    /// The time in milliseconds since 1970, if it is known.
    pub now: Option<u64>,
}

/// A reference to an object that does not exist, or a time in the future.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dangling {
    /// The object, such as `VM web`.
    pub object: String,
    /// The key with the reference.
    pub key: &'static str,
    /// The error.
    pub what: String,
    /// The remedy.
    pub fix: String,
}

impl There<'_> {
    /// Reports the first invalid reference of an object.
    pub fn check(&self, object: &Object) -> Result<(), Dangling> {
        match object {
            Object::Fact(fact) => {
                let of = format!("fact {} about host {}", fact.name, fact.host);
                self.host(&of, "host", &fact.host)?;
                self.past(&of, "pushed", fact.pushed)
            }
            Object::Blacklist(entry) => {
                self.host(&format!("blacklist entry of host {}", entry.host), "host", &entry.host).map(drop)
            }
            Object::Load(load) => {
                let of = format!("load of host {}", load.host);
                let ports = self.host(&of, "host", &load.host)?;
                let strange =
                    |name: &&str| ports.as_ref().is_some_and(|ports| !ports.iter().any(|port| port == name));
                if let Some(port) = load.ports.iter().map(|port| port.name.as_str()).find(strange) {
                    let what = format!("host {} has no port {}", load.host, port.escape_debug());
                    return Err(dangling(&of, "ports", what, "describe it among the host's `ports`"));
                }
                self.past(&of, "over_since", load.over_since)
            }
            Object::Vm(vm) => {
                let of = format!("VM {}", vm.name);
                if let Some(host) = vm.host.as_ref().filter(|_| vm.runs()) {
                    self.host(&of, "host", host)?;
                }
                if let Some(policy) = &vm.policy {
                    self.policy(&of, policy)?;
                }
                self.past(&of, "moved_at", vm.moved_at)
            }
            Object::Cluster(cluster) => {
                let of = format!("cluster {}", cluster.name);
                let Some(policy) = self.policy(&of, &cluster.policy)? else { return Ok(()) };
                match cluster.properties.keys().find_map(|property| policy.without_reader(property)) {
                    Some((what, fix)) => Err(dangling(&of, "properties", what, &fix)),
                    None => Ok(()),
                }
            }
            Object::Host(_) | Object::Policy(_) | Object::Group(_) => Ok(()),
        }
    }

    fn host(&self, of: &str, key: &'static str, name: &str) -> Result<Option<Vec<String>>, Dangling> {
        (self.host)(name).ok_or_else(|| {
            let what = format!("there is no host {}", name.escape_debug());
            dangling(of, key, what, "describe the host first, or with it")
        })
    }

    fn policy(&self, of: &str, name: &str) -> Result<Option<Arc<Policy>>, Dangling> {
        (self.policy)(name).ok_or_else(|| {
            let what = format!("there is no policy \"{}\"", name.escape_debug());
            dangling(of, "policy", what, "`ringway place policies` lists them")
        })
    }

    fn past(&self, of: &str, key: &'static str, at: Option<u64>) -> Result<(), Dangling> {
        match (at, self.now) {
            (Some(at), Some(now)) if at > now.saturating_add(APART) => {
                let what = format!("`{key}` is {at}, and it is {now} now");
                Err(dangling(of, key, what, "write milliseconds since 1970, of a time that is past"))
            }
            _ => Ok(()),
        }
    }
}

fn dangling(object: &str, key: &'static str, what: String, fix: &str) -> Dangling {
    Dangling { object: object.into(), key, what, fix: fix.into() }
}
