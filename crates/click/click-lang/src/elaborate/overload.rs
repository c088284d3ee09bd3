use crate::config::{Budget, assign_arguments};
use crate::parse::Dialect;
use crate::tree::{Body, Compound, CompoundId, Type, TypeId, use_signature};
use crate::{Diagnostics, Landmark};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The overload chosen for a use of a compound.
pub(crate) enum Choice {
    /// A compound, and the values of its formals.
    Compound(CompoundId, Vec<String>),
    /// A class that is not a compound.
    Class(TypeId),
    /// No match; the error has been reported.
    None,
}

/// The first overload whose ports and arguments fit. If there is a single compound whose arguments fit but
/// not its ports, it is chosen, since later errors are more specific.
#[allow(clippy::too_many_arguments)]
pub(crate) fn choose(
    dialect: Dialect,
    types: &[Type],
    compounds: &[Compound],
    first: CompoundId,
    (inputs, outputs): (usize, usize),
    arguments: Vec<String>,
    landmark: &Landmark,
    budget: &Budget,
    diagnostics: &mut Diagnostics,
) -> Choice {
    let mut closest = None;
    let mut candidates = Vec::new();
    let mut next = Some(first);
    while let Some(id) = next {
        // Attack: a long chain of overloads that is used often.
        if !budget.spend(64) {
            return Choice::None;
        }
        let compound = &compounds[id];
        candidates.push(id);
        if let Some(values) = assign_arguments(&arguments, &compound.keywords()) {
            if (compound.inputs, compound.outputs) == (inputs, outputs) {
                return Choice::Compound(id, values);
            }
            closest = Some((id, values));
        }
        next = match compound.overload.map(|class| (class, &types[class].body)) {
            Some((_, Body::Compound(id))) => Some(*id),
            Some((class, _)) => return Choice::Class(class),
            None => None,
        };
    }
    if candidates.len() != 1 || closest.is_none() {
        let name = &compounds[first].name;
        let used = use_signature(name, arguments.len(), inputs, outputs);
        diagnostics.error(landmark.clone(), format!("no match for '{used}'"));
        for (number, &id) in candidates.iter().enumerate() {
            let compound = &compounds[id];
            if number == 0 {
                diagnostics.note(compound.landmark.clone(), "candidates are:");
            }
            diagnostics.note(compound.landmark.clone(), format!("  {}", compound.signature(dialect)));
        }
    }
    closest.map_or(Choice::None, |(id, values)| Choice::Compound(id, values))
}
