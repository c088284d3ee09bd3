//! Blacklists, and the hosts that a request allows and excludes.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts that are not blacklisted, and that the request allows
    pub struct Blacklist = "Blacklist";
}

impl Filter for Blacklist {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let now = context.now;
        if !context.cluster.barred.is_empty() {
            let barred = &context.cluster.columns.barred;
            kept.reject_each(barred.iter().map(|until| now < *until));
        }
        for row in context.rows_of(&context.request.without) {
            kept.remove(row);
        }
        if !context.request.only.is_empty() {
            let only = context.rows_of(&context.request.only);
            kept.reject(|row| !only.contains(&row));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        if context.now < context.cluster.columns.barred[row as usize] {
            let why = context.cluster.barred.get(&row).map_or("", String::as_str);
            return format!("it is blacklisted: {why}");
        }
        if context.request.without.contains(context.cluster.name(row)) {
            return "the request excludes it".into();
        }
        "it is not among the hosts that the request names".into()
    }
}
