//! Functions of a chain in different fault domains.

use crate::filters::chain_mates;
use crate::model::Row;
use crate::unit::{Context, Weight, unit};
use std::collections::HashMap;

unit! {
    /// Prefers fault domains with fewer functions of the chain
    pub struct FaultDomains = "FaultDomains";
}

impl Weight for FaultDomains {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let mut taken: HashMap<&str, i32> = HashMap::new();
        for (_, mate) in chain_mates(context) {
            let host = mate.place().and_then(|place| context.model.slot(place));
            if let Some(host) = host {
                *taken.entry(&host.host.fault_domain).or_default() += 1;
            }
        }
        if taken.is_empty() {
            return;
        }
        for (row, raw) in rows.iter().zip(raw) {
            let domain = context.cluster.slot(*row).map_or("", |slot| &slot.host.fault_domain);
            *raw = taken.get(domain).copied().unwrap_or(0);
        }
    }
}
