//! Operating systems as oVirt names them: `RHEL - 7.2 - 9.el7`.

use crate::object::Vm;
use crate::unit::Context;

/// An operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Os {
    /// Its name.
    pub family: String,
    /// Its version, part by part.
    pub version: Vec<u32>,
}

impl Os {
    /// Reads `NAME - VERSION - RELEASE`.
    pub fn read(text: &str) -> Option<Os> {
        let (family, rest) = text.split_once('-')?;
        let version = rest.split('-').next()?.trim();
        let version = version.split('.').map_while(|part| part.parse().ok()).collect::<Vec<u32>>();
        let family = family.trim().to_string();
        (!family.is_empty() && !version.is_empty()).then_some(Os { family, version })
    }

    /// Whether this is an older major version than `other`.
    pub fn is_older(&self, other: &Os) -> bool {
        self.version.first() < other.version.first()
    }

    /// Whether both have the same major version.
    pub fn is_same(&self, other: &Os) -> bool {
        self.version.first() == other.version.first()
    }
}

/// The operating system of the host that a VM is on or was last on.
pub fn last(context: &Context<'_>, vm: &Vm) -> Option<Os> {
    let name = vm.host.as_ref().or(vm.last_host.as_ref())?;
    let slot = context.model.slot(context.model.host(name)?)?;
    Os::read(&slot.host.os)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operating_systems_are_parsed_and_compared() {
        let seven = Os::read("RHEL - 7.2 - 9.el7").unwrap();
        assert_eq!((seven.family.as_str(), seven.version.as_slice()), ("RHEL", &[7, 2][..]));
        let six = Os::read("RHEL - 6.9 - 1").unwrap();
        assert!(six.is_older(&seven) && !seven.is_older(&six) && !seven.is_same(&six));
        assert_eq!(Os::read("oVirt"), None);
        assert_eq!(Os::read(" - "), None);
    }
}
