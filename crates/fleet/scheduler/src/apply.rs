//! Applies the placement part of the fabric file. Objects added through the API stay.

use super::{Failed, Service};
use crate::Placement;
use ringway_place::engine::{Described, Object};
use ringway_place::object::Cluster;
use ringway_place::policy::Policy;
use std::collections::BTreeMap;

/// The state before a change of the file.
struct Before {
    policies: BTreeMap<String, Policy>,
    clusters: BTreeMap<String, Cluster>,
    /// The objects described by a file.
    described: Described,
}

/// A step from the previous to the new state.
enum Step {
    Put(&'static str, Box<Object>),
    Remove(&'static str, String),
}

/// The result of applying a file, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Changes made, one line each.
    pub changes: Vec<String>,
    /// Changes that failed, in words.
    pub refused: Vec<String>,
}

impl Before {
    fn of_file(file: &Placement) -> Before {
        Before {
            policies: file.policies.iter().map(|it| (it.name.clone(), it.clone())).collect(),
            clusters: file.clusters.iter().map(|it| (it.name.clone(), it.clone())).collect(),
            described: described(file),
        }
    }

    fn of_store(service: &Service) -> Result<Before, Failed> {
        let described = service.engine.described()?;
        Ok(service.engine.view(|model| Before {
            policies: model.policies().iter().map(|(name, it)| (name.clone(), (**it).clone())).collect(),
            clusters: model
                .clusters()
                .iter()
                .map(|state| (state.cluster.name.clone(), (*state.cluster).clone()))
                .collect(),
            described,
        })?)
    }

    /// Clusters are removed before their policies, and added after them.
    fn steps(&self, now: &Placement) -> Vec<Step> {
        let verb = |is_there: bool| if is_there { "change" } else { "add" };
        let mut steps = Vec::new();
        for policy in &now.policies {
            let old = self.policies.get(&policy.name);
            if old != Some(policy) {
                steps.push(Step::Put(verb(old.is_some()), Box::new(Object::Policy(policy.clone()))));
            }
        }
        for cluster in &now.clusters {
            let old = self.clusters.get(&cluster.name);
            if old != Some(cluster) {
                steps.push(Step::Put(verb(old.is_some()), Box::new(Object::Cluster(cluster.clone()))));
            }
        }
        let gone = |kind, old: &String| Step::Remove(kind, old.clone());
        let is = described(now);
        steps.extend(self.described.clusters.difference(&is.clusters).map(|old| gone("cluster", old)));
        steps.extend(self.described.policies.difference(&is.policies).map(|old| gone("policy", old)));
        steps
    }
}

fn described(file: &Placement) -> Described {
    Described {
        policies: file.policies.iter().map(|policy| policy.name.clone()).collect(),
        clusters: file.clusters.iter().map(|cluster| cluster.name.clone()).collect(),
    }
}

impl Step {
    fn kind_and_name(&self) -> (&'static str, &str) {
        match self {
            Step::Put(_, object) => match &**object {
                Object::Cluster(cluster) => ("cluster", &cluster.name),
                Object::Policy(policy) => ("policy", &policy.name),
                _ => ("object", ""),
            },
            Step::Remove(kind, name) => (kind, name),
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Step::Put(verb, _) => verb,
            Step::Remove(..) => "remove",
        }
    }

    fn take(&self, service: &Service) -> Result<(), Failed> {
        match self {
            Step::Put(_, object) => service.put(vec![(**object).clone()]).map(drop),
            // Its hosts remain; it gets the defaults.
            Step::Remove("cluster", name) => {
                service.put(vec![Object::Cluster(Cluster { name: name.clone(), ..Cluster::default() })])?;
                Ok(())
            }
            Step::Remove(kind, name) => service.remove(kind, name),
        }
    }
}

/// The changes from one file to the next, if placement was never used.
pub(crate) fn words(before: &Placement, now: &Placement) -> Vec<String> {
    let steps = Before::of_file(before).steps(now);
    steps.iter().map(|step| [step.verb(), step.kind_and_name().0, step.kind_and_name().1].join(" ")).collect()
}

/// Applies the file. Changes that fail are skipped and reported.
pub(crate) fn follow(service: &Service, now: &Placement) -> Result<Outcome, Failed> {
    let before = Before::of_store(service)?;
    let wanted = described(now);
    let mut ours = wanted.clone();
    ours.policies.extend(before.described.policies.iter().cloned());
    ours.clusters.extend(before.described.clusters.iter().cloned());
    // First: an object that is added without being recorded could not be removed after a crash.
    service.engine.describe(&ours)?;
    let mut outcome = Outcome::default();
    let mut left = wanted;
    for step in before.steps(now) {
        let (kind, name) = step.kind_and_name();
        match step.take(service) {
            Ok(()) => outcome.changes.push(format!("{} {kind} {name}", step.verb())),
            Err(error) => {
                outcome.refused.push(format!("{kind} {name} is left as it was: {error}"));
                // The object is still to be removed.
                match kind {
                    "cluster" => left.clusters.insert(name.into()),
                    _ => left.policies.insert(name.into()),
                };
            }
        }
    }
    service.engine.describe(&left)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, base: &str) -> Policy {
        let built_in = ringway_place::policy::built_in().into_iter().find(|policy| policy.name == base);
        Policy { name: name.into(), ..built_in.unwrap() }
    }

    fn file(policies: &[&str], clusters: &[(&str, &str)]) -> Placement {
        let cluster = |(name, policy): &(&str, &str)| Cluster {
            name: name.to_string(),
            policy: policy.to_string(),
            ..Cluster::default()
        };
        Placement {
            policies: policies.iter().map(|name| policy(name, "packing")).collect(),
            clusters: clusters.iter().map(cluster).collect(),
            ..Placement::default()
        }
    }

    fn names(service: &Service) -> Vec<String> {
        let built_in = ringway_place::policy::built_in();
        let all = service.policies().unwrap().into_iter().map(|policy| policy.name);
        all.filter(|name| !built_in.iter().any(|policy| policy.name == *name)).collect()
    }

    #[test]
    fn only_objects_of_the_file_are_removed_with_it() {
        let service = Service::in_memory().unwrap();
        service.put(vec![Object::Policy(policy("mine", "none"))]).unwrap();
        let first = file(&["day", "night"], &[("default", "night")]);
        let changes = follow(&service, &first).unwrap().changes;
        assert_eq!(changes, ["add policy day", "add policy night", "add cluster default"]);
        assert_eq!(follow(&service, &first).unwrap(), Outcome::default(), "nothing is to be done twice");
        // With another file, the store tells which objects the previous one described.
        let changes = follow(&service, &file(&["day"], &[])).unwrap().changes;
        assert_eq!(changes, ["remove cluster default", "remove policy night"]);
        assert_eq!(names(&service), ["day", "mine"]);
        let default = service.engine.view(|model| model.cluster("default").unwrap().1.cluster.clone());
        assert_eq!(*default.unwrap(), Cluster::default());
    }

    #[test]
    fn objects_in_use_are_removed_once_unused() {
        let service = Service::in_memory().unwrap();
        follow(&service, &file(&["night"], &[])).unwrap();
        let user = Cluster { name: "c".into(), policy: "night".into(), ..Cluster::default() };
        service.put(vec![Object::Cluster(user.clone())]).unwrap();
        let refused = follow(&service, &file(&[], &[])).unwrap().refused;
        assert_eq!(refused, ["policy night is left as it was: policy night is that of cluster c"]);
        assert_eq!(follow(&service, &file(&[], &[])).unwrap().refused, refused);
        service.put(vec![Object::Cluster(Cluster { policy: "none".into(), ..user })]).unwrap();
        assert_eq!(follow(&service, &file(&[], &[])).unwrap().changes, ["remove policy night"]);
        assert_eq!(names(&service), [""; 0]);
    }

    #[test]
    fn planned_changes_are_described() {
        let changes = words(&file(&["a"], &[("c", "a")]), &file(&["b"], &[("c", "b")]));
        assert_eq!(changes, ["add policy b", "change cluster c", "remove policy a"]);
    }
}
