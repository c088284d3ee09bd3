//! Placement on a file that is made when it is first asked for: a fabric that places nothing leaves nothing.

use super::{DecisionView, Failed, Link, Service, this_host};
use ringway_place::engine::Object;
use ringway_place::object::Load;
use ringway_place::policy::Policy;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Placement, opened or not.
#[derive(Clone)]
pub struct Place {
    path: Option<PathBuf>,
    policies: Vec<Policy>,
    link: Option<Arc<Link>>,
    service: Arc<Mutex<Option<Service>>>,
}

impl Place {
    /// Placement on the file at `path`, with policies that are put in first, beside the fabric of this host.
    pub(crate) fn at(path: PathBuf, policies: Vec<Policy>, link: Link) -> Place {
        Place { path: Some(path), policies, link: Some(Arc::new(link)), service: Arc::default() }
    }

    /// Placement that is open.
    pub fn on(service: Service) -> Place {
        Place { path: None, policies: Vec::new(), link: None, service: Arc::new(Mutex::new(Some(service))) }
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
                service.put(self.policies.iter().cloned().map(Object::Policy).collect())?;
                // What people said of it since holds.
                if !known {
                    service.put(vec![Object::Host(Box::new(host))])?;
                }
                opened.insert(service).clone()
            }
            (None, None) => return Err(Failed::Conflict("placement has no file".into())),
        };
        if self.path.is_some() {
            self.measure(&service)?;
        }
        service.engine.expire(service.clock.now())?;
        Ok(service)
    }

    /// Places a guest of the fabric's file here and starts it.
    pub fn start_guest(&self, name: &str) -> Result<DecisionView, Failed> {
        let service = self.service()?;
        let link = self.link.as_ref().ok_or_else(|| Failed::Conflict("there is no fabric".into()))?;
        link.start(&service, &super::this_host::free().0, name)
    }

    /// Says how much memory of this host is free, where that changed by more than a little, and the
    /// fabric's rates.
    fn measure(&self, service: &Service) -> Result<(), Failed> {
        let (name, free_mb, swap_free_mb) = super::this_host::free();
        let last = service.engine.view(|model| {
            let slot = model.host(&name).and_then(|id| model.slot(id))?;
            Some(slot.load.as_ref().and_then(|load| load.free_mb).unwrap_or(0))
        })?;
        if last.is_some_and(|last| last.abs_diff(free_mb) > 64) {
            let (free_mb, swap_free_mb) = (Some(free_mb), Some(swap_free_mb));
            service.put(vec![Object::Load(Load {
                host: name.clone(),
                free_mb,
                swap_free_mb,
                ..Load::default()
            })])?;
        }
        if let Some(link) = &self.link {
            let rates = link.rates(&name, service.clock.now())?;
            if !rates.is_empty() {
                service.put(rates)?;
            }
        }
        Ok(())
    }
}
