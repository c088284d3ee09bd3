//! Units of policies: filters, weights and balancers, built-in and external.

mod candidates;
mod context;
mod external;
mod parameter;

pub(crate) use parameter::{number, whole, whole_number};

pub use candidates::Kept;
pub use context::{Context, Request};
pub use external::{
    Delta, External, ExternalAction, ExternalError, ExternalKind, ExternalUnit, HostView, Outcome, Question,
    Rejected, Scores, VmView,
};
pub use parameter::{PARAMETERS, Parameter, allowed, describe};

use crate::model::Row;
use crate::object::Vm;

/// The worst score of a weight whose figures have no natural limit (oVirt's `MaxSchedulerWeight`).
pub const MAX_WEIGHT: i32 = 1000;

/// What policies, documentation and the API say of a filter or weight; [`unit!`] declares it.
pub trait Unit: Sync {
    /// Its name, used in policies.
    fn name(&self) -> &'static str;

    /// Its description for people.
    fn describes(&self) -> &'static str;

    /// Names of the custom properties that it reads.
    fn parameters(&self) -> &'static [&'static str];
}

/// Declares a unit: its documentation is its description, then the name in policies and the properties it reads.
macro_rules! unit {
    (
        $(#[doc = $describes:literal])+
        pub struct $unit:ident = $name:literal $(, reads $($parameter:literal),+)?;
    ) => {
        $(#[doc = $describes])+
        pub struct $unit;

        impl crate::unit::Unit for $unit {
            fn name(&self) -> &'static str {
                $name
            }

            fn describes(&self) -> &'static str {
                concat!($($describes),+).trim_start()
            }

            fn parameters(&self) -> &'static [&'static str] {
                &[$($($parameter),+)?]
            }
        }
    };
}
pub(crate) use unit;

/// Rejects hosts that can't run a group of VMs.
pub trait Filter: Unit {
    /// Whether a rejected host may pass after reservations there have ended.
    fn may_pass_later(&self) -> bool {
        false
    }

    /// Whether it may reject a host because of this VM.
    fn concerns(&self, _vm: &Vm) -> bool {
        true
    }

    /// Why a host can't run the group, which has VMs that the filter concerns; for filters that look at each host.
    fn wrong(&self, _context: &Context<'_>, _row: Row) -> Option<String> {
        None
    }

    /// Rejects hosts.
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().any(|vm| self.concerns(vm)) {
            kept.reject(|row| self.wrong(context, row).is_some());
        }
    }

    /// Why it rejects a host; only called for hosts that it rejects.
    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        self.wrong(context, row).unwrap_or_default()
    }
}

/// A filter that passes hosts with certain words, as the index of the cluster has them.
pub trait Words: Unit {
    /// The kind of the words.
    const KIND: &'static str;
    /// What is said of a host, before the words that it lacks.
    const LACKS: &'static str;

    /// The words that the group needs.
    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str>;
}

impl<W: Words> Filter for W {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for word in W::needed(context) {
            let with = context.cluster.with(W::KIND, word);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |word: &&str| context.cluster.with(W::KIND, word).is_some_and(|with| with.has(row));
        let missing: Vec<&str> = W::needed(context).filter(|word| !has(word)).collect();
        format!("{} {}", W::LACKS, missing.join(", "))
    }
}

/// Scores the remaining hosts; lower is better.
pub trait Weight: Unit {
    /// Whether all hosts have the same score for the group, so that [`Weight::weigh`] need not be called.
    fn is_neutral(&self, _: &Context<'_>) -> bool {
        false
    }

    /// Computes the scores of `rows`. `raw` has the same length and is initially 0; scores left unchanged are
    /// equal.
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]);
}

/// Minimum and maximum; 0 if there is none.
pub fn ends(raw: &[i32]) -> (i32, i32) {
    let (mut least, mut most) = (i32::MAX, i32::MIN);
    for figure in raw {
        least = least.min(*figure);
        most = most.max(*figure);
    }
    if least > most { (0, 0) } else { (least, most) }
}

/// Scales scores to 1 to [`MAX_WEIGHT`]; equal scores stay equal.
pub fn stretch(raw: &mut [i32]) {
    let (least, most) = ends(raw);
    if least == most {
        raw.fill(1);
        return;
    }
    let width = f64::from(most) - f64::from(least);
    for figure in raw {
        *figure = 1 + round((f64::from(*figure) - f64::from(least)) * f64::from(MAX_WEIGHT - 1) / width);
    }
}

/// Adding this number leaves the nearest integer in the lower half of the sum.
const INTEGERS: f64 = (3u64 << 51) as f64;

/// Rounds half up, limited to `i32`, by additions and comparisons alone, which vector instructions do. A quotient
/// of integers whose dividend is below 2^51 is rounded exactly: no double of another quotient is as near to a half.
pub fn round(figure: f64) -> i32 {
    let shifted = figure + 0.5;
    let (least, most) = (f64::from(i32::MIN), f64::from(i32::MAX));
    let shifted = if shifted > least { shifted } else { least };
    let shifted = if shifted < most { shifted } else { most };
    let sum = shifted + INTEGERS;
    sum.to_bits() as i32 - i32::from(sum - INTEGERS > shifted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_to_a_common_range() {
        let mut raw = [5, 10, 15];
        stretch(&mut raw);
        assert_eq!(raw, [1, 501, 1000]);
        let mut same = [7, 7];
        stretch(&mut same);
        assert_eq!(same, [1, 1]);
        assert_eq!([-1.5, -0.2, 0.5, 1.49].map(round), [-1, 0, 1, 1]);
        assert_eq!([f64::MIN, f64::MAX, -2_147_483_648.6].map(round), [i32::MIN, i32::MAX, i32::MIN]);
    }

    proptest::proptest! {
        #[test]
        fn rounding_equals_floor_of_a_half_more(whole in -5_000_000i64..5_000_000, part in 0u32..1000) {
            let figure = whole as f64 + f64::from(part) / 1000.0;
            proptest::prop_assert_eq!(f64::from(round(figure)), (figure + 0.5).floor());
        }

        #[test]
        fn quotients_are_rounded_exactly(
            top in -(1i64 << 50)..1i64 << 50,
            shift in 0u32..50,
            bottom in 1i32..,
            half in proptest::bool::ANY,
        ) {
            let bottom = i64::from(bottom);
            // Halves and their neighbours are those that rounding may confuse.
            let top = if half { (top >> shift) / bottom * bottom + bottom / 2 } else { top >> shift };
            let exact = (2 * top + bottom).div_euclid(2 * bottom);
            let limited = exact.clamp(i32::MIN.into(), i32::MAX.into());
            proptest::prop_assert_eq!(i64::from(round(top as f64 / bottom as f64)), limited);
        }
    }
}
