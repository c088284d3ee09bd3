//! Functions of a chain in different fault domains.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};
use std::collections::BTreeMap;

unit! {
    /// Limits the functions of a chain in a fault domain
    pub struct FaultDomains = "FaultDomains", reads "FaultDomainLimit";
}

impl Filter for FaultDomains {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let limit = context.whole("FaultDomainLimit", 1) as usize;
        for (domain, count) in taken(context) {
            if count + context.group.len() > limit {
                let with = context.cluster.with("domain", domain);
                kept.reject(|row| with.is_some_and(|with| with.has(row)));
            }
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let domain = context.cluster.slot(row).map_or("", |slot| &slot.host.fault_domain);
        format!("its fault domain {domain} has functions of the chain already")
    }
}

/// Number of the chains' functions by fault domain.
fn taken<'m>(context: &Context<'m>) -> BTreeMap<&'m str, usize> {
    let mut taken = BTreeMap::new();
    for (id, slot) in super::chain_mates(context) {
        let host = slot.place().and_then(|place| context.model.slot(place));
        let domain = host.map(|host| host.host.fault_domain.as_str()).filter(|domain| !domain.is_empty());
        if let Some(domain) = domain.filter(|_| !context.has(id)) {
            *taken.entry(domain).or_default() += 1;
        }
    }
    taken
}
