//! Placement on a file that is made when it is first asked for: a fabric that places nothing leaves nothing.

use super::measure::Measure;
use super::{DecisionView, Failed, Link, Service, this_host};
use ringway_place::engine::Object;
use ringway_place::policy::Policy;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Placement, opened or not.
#[derive(Clone)]
pub struct Place {
    path: Option<PathBuf>,
    policies: Arc<Mutex<Vec<Policy>>>,
    link: Option<Arc<Link>>,
    service: Arc<Mutex<Option<Service>>>,
    measure: Arc<Mutex<Measure>>,
}

impl Place {
    /// Placement on the file at `path`, with policies that are put in first, beside the fabric of this host.
    pub(crate) fn at(path: PathBuf, policies: Vec<Policy>, link: Link) -> Place {
        Place {
            path: Some(path),
            policies: Arc::new(Mutex::new(policies)),
            link: Some(Arc::new(link)),
            service: Arc::default(),
            measure: Arc::default(),
        }
    }

    /// Placement that is open.
    pub fn on(service: Service) -> Place {
        Place {
            path: None,
            policies: Arc::default(),
            link: None,
            service: Arc::new(Mutex::new(Some(service))),
            measure: Arc::default(),
        }
    }

    fn policies(&self) -> Vec<Policy> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Placement if it is open, or if there is something to open.
    fn kept(&self) -> Result<Option<Service>, Failed> {
        let open = self.service.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let there = open || self.path.as_ref().is_some_and(|path| path.exists());
        there.then(|| self.service()).transpose()
    }

    /// Placement, opened, with this host as it is now, and without reservations whose time is over.
    pub fn service(&self) -> Result<Service, Failed> {
        let mut opened = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let service = match (&*opened, &self.path) {
            (Some(service), _) => service.clone(),
            (None, Some(path)) => {
                let service = Service::open(path).map_err(|error| Failed::Conflict(error.to_string()))?;
                let host = this_host();
                let known = service.engine.view(|model| model.host(&host.name).is_some())?;
                service.put(self.policies().into_iter().map(Object::Policy).collect())?;
                // What people said of it since holds.
                if !known {
                    service.put(vec![Object::Host(Box::new(host))])?;
                }
                opened.insert(service).clone()
            }
            (None, None) => return Err(Failed::Conflict("placement has no file".into())),
        };
        drop(opened);
        if self.path.is_some() {
            let mut measure = self.measure.lock().unwrap_or_else(PoisonError::into_inner);
            measure.take(&service, self.link.as_deref())?;
        }
        service.engine.expire(service.clock.now())?;
        Ok(service)
    }

    /// Places a guest of the fabric here and starts it.
    pub fn start_guest(&self, name: &str) -> Result<DecisionView, Failed> {
        let service = self.service()?;
        let link = self.link.as_ref().ok_or_else(|| Failed::Conflict("there is no fabric".into()))?;
        link.start(&service, &super::this_host::name(), name)
    }

    /// Does what is due without being asked: measures, ends leases, balances. Nothing where nothing was ever placed.
    pub(crate) fn tick(&self) -> Result<(), Failed> {
        match self.kept()? {
            Some(service) => {
                service.engine.tidy()?;
                service.balance_due()
            }
            None => Ok(()),
        }
    }

    /// Takes over the policies of a changed file. What changed, in words.
    pub(crate) async fn policies_are(&self, policies: Vec<Policy>) -> Vec<String> {
        let place = self.clone();
        // It waits for the disk.
        let task = tokio::task::spawn_blocking(move || place.take_over(policies));
        task.await.unwrap_or_else(|error| vec![format!("policies: {error}")])
    }

    fn take_over(&self, policies: Vec<Policy>) -> Vec<String> {
        let before = {
            let mut ours = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *ours, policies.clone())
        };
        let opened = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let put = |policy: &Policy| match &opened {
            Some(service) => service.put(vec![Object::Policy(policy.clone())]).map(drop),
            None => Ok(()),
        };
        let remove = |name: &str| match &opened {
            Some(service) => service.remove("policy", name),
            None => Ok(()),
        };
        let mut said = Vec::new();
        let mut say = |verb: &str, name: &str, result: Result<(), Failed>| {
            said.push(match result {
                Ok(()) => format!("{verb} policy {name}"),
                Err(error) => format!("policy {name} is left as it was: {error}"),
            });
        };
        for policy in &policies {
            match before.iter().find(|old| old.name == policy.name) {
                Some(old) if old == policy => {}
                Some(_) => say("change", &policy.name, put(policy)),
                None => say("add", &policy.name, put(policy)),
            }
        }
        for old in before.iter().filter(|old| !policies.iter().any(|policy| policy.name == old.name)) {
            say("remove", &old.name, remove(&old.name));
        }
        said
    }
}
