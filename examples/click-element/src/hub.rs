//! `lookup = "hub"`: each frame goes to all other ports.

use ringway_control::lookups::LookupKeys;
use ringway_frame::Burst;
use ringway_spec::Kind;
use ringway_spec::file::{Diagnostics, Section};
use ringway_switch::{Entry, FLOOD, Lookup, LookupContext, LookupFactory, LookupKind, PortId, Verdicts};
use std::sync::Arc;

const NAME: &str = "hub";

/// The data path's side.
pub const LOOKUP: LookupKind = LookupKind { name: NAME, open: |_| Ok(Box::new(Hub)) };

/// The control side: it has no keys.
pub struct Keys;

impl LookupKeys for Keys {
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, _section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Kind {
        Kind::new(NAME, &())
    }

    fn ports(&self, _lookup: &Kind) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// The lookup.
struct Hub;

impl LookupFactory for Hub {
    fn make(&mut self, _context: &LookupContext<'_>) -> Arc<dyn Lookup> {
        Arc::new(Hub)
    }
}

impl Lookup for Hub {
    fn lookup(&self, burst: &Burst<'_>, _from: PortId, _now: u64, verdicts: &mut Verdicts) -> u32 {
        verdicts.iter_mut().take(burst.len()).for_each(|verdict| *verdict = FLOOD);
        0
    }

    fn remove_port(&self, _port: PortId) {}

    fn entries(&self, _now: u64) -> Vec<Entry> {
        Vec::new()
    }
}
