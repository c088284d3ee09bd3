//! Limits of a program's processes (getrlimit(2)).

use crate::ExecError;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A limit: of each process, not of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open descriptors.
    Files(u64),
    /// Bytes of address space.
    Memory(u64),
    /// Seconds of processor time.
    Cpu(u64),
}

impl Limit {
    /// The kernel's name of it, and its value.
    pub(crate) fn resource(&self) -> (Resource, u64) {
        match *self {
            Limit::Files(most) => (Resource::Nofile, most),
            Limit::Memory(most) => (Resource::As, most),
            Limit::Cpu(most) => (Resource::Cpu, most),
        }
    }

    /// Reads `nofile=N`, `memory=BYTES` or `cpu=SECONDS`.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn parse(text: &str) -> Result<Limit, String> {
        let wrong = || {
            let text = text.escape_debug();
            format!("\"{text}\" is no limit; use nofile=N, memory=BYTES or cpu=SECONDS")
        };
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let value = value.parse().map_err(|_| wrong())?;
        match name {
            "nofile" => Ok(Limit::Files(value)),
            "memory" => Ok(Limit::Memory(value)),
            "cpu" => Ok(Limit::Cpu(value)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::Files(most) => write!(f, "nofile={most}"),
            Limit::Memory(most) => write!(f, "memory={most}"),
            Limit::Cpu(most) => write!(f, "cpu={most}"),
        }
    }
}

/// Limits a process, and those that it will start.
pub fn set(process: Pid, limits: &[Limit]) -> Result<(), ExecError> {
    for limit in limits {
        let (resource, most) = limit.resource();
        let both = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(Some(process), resource, both).map_err(|error| ExecError::Limit(*limit, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_or_explained() {
        assert_eq!(Limit::parse("nofile=64"), Ok(Limit::Files(64)));
        assert_eq!(Limit::parse("cpu=5"), Ok(Limit::Cpu(5)));
        assert_eq!(Limit::parse(&Limit::Memory(7).to_string()), Ok(Limit::Memory(7)));
        for wrong in ["nofile", "nofile=", "nofile=-1", "memory=1MB", "stack=1", "="] {
            let said = Limit::parse(wrong).unwrap_err();
            assert!(said.contains("use nofile=N, memory=BYTES or cpu=SECONDS"), "{said}");
        }
    }
}
