//! Huge pages.

use crate::model::Row;
use crate::object::Vm;
use crate::unit::{Context, Filter, unit};
use std::collections::BTreeMap;

unit! {
    /// Only hosts with enough free huge pages
    pub struct HugePages = "HugePages";
}

impl Filter for HugePages {
    fn concerns(&self, vm: &Vm) -> bool {
        vm.huge_page_kb.is_some()
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
        let mut needed: BTreeMap<u64, u64> = BTreeMap::new();
        for (size, count) in context.new_on(row).filter_map(|slot| slot.vm.huge_pages()) {
            *needed.entry(size).or_default() += count;
        }
        if needed.is_empty() {
            return None;
        }
        let host = &context.cluster.slot(row)?.host;
        let mut free = host.huge_pages.clone();
        for (size, count) in context.others_on(row).filter_map(|slot| slot.vm.huge_pages()) {
            if let Some(left) = free.get_mut(&size) {
                *left = left.saturating_sub(count);
            }
        }
        needed.into_iter().find_map(|(size, count)| {
            let left = free.get(&size).copied().unwrap_or(0);
            (left < count).then(|| format!("{left} huge pages of {size} kB are free, {count} are needed"))
        })
    }
}
