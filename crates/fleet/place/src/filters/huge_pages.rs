//! Huge pages.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};
use std::collections::BTreeMap;

unit! {
    /// Only hosts with enough free huge pages
    pub struct HugePages = "HugePages";
}

impl Filter for HugePages {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.huge_page_kb.is_none()) {
            return;
        }
        kept.reject(|row| wrong(context, row).is_some());
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        wrong(context, row).unwrap_or_default()
    }
}

fn wrong(context: &Context<'_>, row: Row) -> Option<String> {
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
