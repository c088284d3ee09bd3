//! Names of elements, and names defined by AddressInfo, PortInfo and similar elements.
use crate::{Device, ElementId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{OnceCell, RefCell};
use ringway_click_lang::Graph;
use ringway_click_lang::near::proposal;

/// The kind of value of a defined name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// An IPv4 address: 4 bytes.
    Ipv4,
    /// An IPv4 prefix: address and mask, 8 bytes.
    Ipv4Prefix,
    /// An IPv6 address: 16 bytes.
    Ipv6,
    /// An IPv6 prefix: address and, in one byte, length.
    Ipv6Prefix,
    /// An Ethernet address: 6 bytes.
    Ethernet,
    /// A TCP port: 2 bytes, network order.
    TcpPort,
    /// A UDP port: 2 bytes, network order.
    UdpPort,
    /// An annotation: offset and size, a byte each.
    Annotation,
    /// An IP protocol: 1 byte.
    IpProtocol,
    /// A pattern of rewriters, as text.
    Pattern,
    /// The gateway of a network device: 4 bytes.
    Gateway,
    /// A lock: nothing.
    Spinlock,
}

/// The names of a configuration.
#[derive(Debug, Default)]
pub struct Names {
    elements: BTreeMap<String, ElementId>,
    defined: RefCell<BTreeMap<(NameKind, String), Vec<u8>>>,
    /// Lists the network devices.
    list: Option<fn() -> Vec<Device>>,
    /// The network devices, once a name was looked for among them.
    devices: OnceCell<Vec<Device>>,
}

/// A name's compound, with its slash; nothing at the top.
fn compound(name: &str) -> &str {
    name.rfind('/').map_or("", |slash| &name[..=slash])
}

impl Names {
    pub(crate) fn new(graph: &Graph, devices: fn() -> Vec<Device>) -> Self {
        let names = graph.elements.iter().map(|element| element.name.as_str());
        Self { list: Some(devices), ..Self::of(names) }
    }

    /// The names of elements in configuration order.
    pub(crate) fn of<'a>(elements: impl Iterator<Item = &'a str>) -> Self {
        let mut names = Self::default();
        // Collecting into a map sorts, which is more code.
        names.elements.extend((0..).zip(elements).map(|(index, name)| (name.into(), ElementId(index))));
        names
    }

    /// Tries `name` in the compound of `context`, then in the enclosing ones.
    fn outwards<T>(name: &str, context: &str, find: impl Fn(String) -> Option<T>) -> Option<T> {
        let mut around = compound(context);
        loop {
            if let Some(found) = find(format!("{around}{name}")) {
                return Some(found);
            }
            if around.is_empty() {
                return None;
            }
            around = compound(&around[..around.len() - 1]);
        }
    }

    /// The element of this name, searched from the compound of `context` outwards.
    pub fn find(&self, name: &str, context: &str) -> Option<ElementId> {
        Self::outwards(name, context, |full| self.elements.get(&full).copied())
    }

    /// Defines a name in the compound of the element `context`.
    pub fn define(&self, kind: NameKind, name: &str, context: &str, value: &[u8]) {
        let full = format!("{}{name}", compound(context));
        self.defined.borrow_mut().insert((kind, full), value.to_vec());
    }

    /// The address of the network device of this name.
    pub fn device(&self, kind: NameKind, name: &str) -> Option<Vec<u8>> {
        let list = self.list?;
        let device = self.devices.get_or_init(list).iter().find(|device| device.name == name)?;
        match kind {
            NameKind::Ethernet => device.ethernet.map(Vec::from),
            NameKind::Ipv4 => device.address.map(|[address, _]| address.into()),
            NameKind::Ipv4Prefix => device.address.map(|[address, mask]| {
                let network = u32::from_be_bytes(address) & u32::from_be_bytes(mask);
                [network.to_be_bytes(), mask].concat()
            }),
            NameKind::Gateway => device.gateway.map(Vec::from),
            _ => None,
        }
    }

    /// A suggestion of the defined name nearest to a word, of those that an element `context` can use.
    pub fn proposal(&self, kind: NameKind, word: &str, context: &str) -> Option<String> {
        let defined = self.defined.borrow();
        let own = defined.keys().filter(|(known, _)| *known == kind).map(|(_, full)| full.as_str());
        let visible = own.filter(|full| context.starts_with(compound(full)));
        proposal(word, visible.map(|full| &full[compound(full).len()..]))
    }

    /// The value of a name.
    pub fn value(&self, kind: NameKind, name: &str, context: &str) -> Option<Vec<u8>> {
        let defined = self.defined.borrow();
        Self::outwards(name, context, |full| defined.get(&(kind, full)).cloned())
    }
}
