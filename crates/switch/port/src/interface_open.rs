//! Opening a port on an interface that the host has already: the side of `control`.

use crate::{InterfacePage, InterfaceState};
use ringway_host::{HostError, InterfaceWatch, NetworkInterface, within_namespace};
use std::any::Any;
use std::os::fd::OwnedFd;

/// Why an interface can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// A system call failed.
    #[error("interface {name}: {error}{}", advice(error))]
    Host {
        /// The interface.
        name: String,
        /// The system's answer.
        error: HostError,
    },
    /// No call about an interface yet: its namespace.
    #[error("{0}")]
    Namespace(#[from] HostError),
    /// There is none of that name.
    #[error(
        "there is no interface {name}{place}; create it, move it there, or change `interface`: the port \
         goes on when it is there"
    )]
    Missing {
        /// The name.
        name: String,
        /// Where it was looked for.
        place: String,
    },
    /// Its frames are not Ethernet's.
    #[error("interface {0} has no Ethernet frames; use a network card, a veth or a bridge")]
    NotEthernet(String),
    /// An error of the kind itself.
    #[error("{0}")]
    Kind(String),
}

fn advice(error: &HostError) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; run as root, or give the program CAP_NET_RAW",
        std::io::ErrorKind::OutOfMemory => "; use fewer queues, or free memory",
        _ => "",
    }
}

/// Which interface.
#[derive(Clone, Debug)]
pub struct InterfaceName {
    /// Its name.
    pub name: String,
    /// Name or path of its network namespace; ours if none.
    pub namespace: Option<String>,
}

impl InterfaceName {
    /// Where it is, for people.
    pub fn place(&self) -> String {
        self.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default()
    }
}

/// What is left to do when `data` has the descriptors. Returns what must not be dropped while the port has the
/// interface.
pub type Finish = Box<dyn FnOnce(&InterfacePage) -> Result<Box<dyn Any + Send>, InterfaceError> + Send>;

/// An interface that is open.
pub struct OpenedInterface {
    /// What is left to do, if anything.
    pub finish: Option<Finish>,
    /// What `data` needs: the page first.
    pub descriptors: Vec<OwnedFd>,
    /// The page.
    pub page: InterfacePage,
    /// Reports changes.
    pub watch: InterfaceWatch,
    /// The interface as it was opened.
    pub interface: NetworkInterface,
}

/// What the page says about an interface; its queues and mode are those of `before`.
pub fn state_of(interface: &NetworkInterface, before: &InterfaceState) -> InterfaceState {
    let NetworkInterface { index, mtu, has_carrier, .. } = *interface;
    InterfaceState { index, mtu, has_carrier, ..*before }
}

/// Finds an interface and opens it by `open`, which returns further descriptors, and the queues and the mode for the
/// page. Blocks only in the kernel.
///
/// # Errors
/// There is no such interface, or the system refused.
pub fn open_interface(
    wanted: &InterfaceName,
    open: impl FnOnce(
        &InterfaceWatch,
        &NetworkInterface,
    ) -> Result<(Vec<OwnedFd>, InterfaceState), InterfaceError>
    + Send,
) -> Result<OpenedInterface, InterfaceError> {
    within_namespace(wanted.namespace.as_deref(), || {
        let host = |error| InterfaceError::Host { name: wanted.name.clone(), error };
        // Watched from before it is looked at, so that no change is missed.
        let watch = InterfaceWatch::new()?;
        let missing = || InterfaceError::Missing { name: wanted.name.clone(), place: wanted.place() };
        let interface = watch.by_name(&wanted.name).map_err(host)?.ok_or_else(missing)?;
        if !interface.is_ethernet {
            return Err(InterfaceError::NotEthernet(wanted.name.clone()));
        }
        let (mut descriptors, state) = open(&watch, &interface)?;
        let (page, file) = InterfacePage::create(&state_of(&interface, &state)).map_err(host)?;
        descriptors.insert(0, file);
        Ok(OpenedInterface { finish: None, descriptors, page, watch, interface })
    })
}

/// Goes on with the page of an interface that a former `control` opened.
///
/// # Errors
/// It is gone, or the system refused.
pub fn adopt_interface(wanted: &InterfaceName, page: &OwnedFd) -> Result<OpenedInterface, InterfaceError> {
    within_namespace(wanted.namespace.as_deref(), || {
        let host = |error| InterfaceError::Host { name: wanted.name.clone(), error };
        let page = InterfacePage::open(page).map_err(host)?;
        let watch = InterfaceWatch::new()?;
        let found = watch.by_index(page.get().index).map_err(host)?;
        let missing = || InterfaceError::Missing { name: wanted.name.clone(), place: wanted.place() };
        let interface = found.ok_or_else(missing)?;
        page.set(&state_of(&interface, &page.get()));
        Ok(OpenedInterface { finish: None, descriptors: Vec::new(), page, watch, interface })
    })
}
