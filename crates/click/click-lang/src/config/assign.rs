use super::split::parse_keyword;
use alloc::string::String;
use alloc::vec::Vec;

/// The keyword of a formal that takes all remaining arguments.
pub(crate) const REST: &str = "__REST__";

/// Assigns arguments to a compound's formals (`cp_assign_arguments`). `None` if the arguments don't fit.
///
/// `formals` has the keyword of each formal: empty for a positional one, `__REST__` for a last one that takes
/// all remaining arguments. All other formals need an argument.
pub fn assign_arguments(arguments: &[String], formals: &[impl AsRef<str>]) -> Option<Vec<String>> {
    let formals: Vec<&str> = formals.iter().map(AsRef::as_ref).collect();
    if formals.last().is_none_or(|last| last.is_empty()) {
        return (arguments.len() == formals.len()).then(|| arguments.to_vec());
    }
    let takes_rest = formals.last() == Some(&REST);
    let named = &formals[..formals.len() - usize::from(takes_rest)];
    let positional = named.iter().take_while(|formal| formal.is_empty()).count();

    let mut values: Vec<Option<String>> = alloc::vec![None; named.len()];
    let mut rest: Vec<&str> = Vec::new();
    let (mut supplied, mut any_keyword) = (0, false);
    for argument in arguments {
        let keyword = if supplied >= positional { keyword_of(argument, named) } else { None };
        if let Some((index, value)) = keyword {
            values[index] = Some(value.into());
            any_keyword = true;
        } else if supplied < positional {
            values[supplied] = Some(argument.clone());
            supplied += 1;
        } else if takes_rest {
            rest.push(argument);
            supplied += usize::from(!any_keyword);
        } else {
            return None;
        }
    }
    let mut values: Vec<String> = values.into_iter().collect::<Option<_>>()?;
    if takes_rest {
        values.push(super::join_arguments(&rest));
    }
    Some(values)
}

/// The index of the formal with whose keyword `argument` begins, and the value after the keyword.
fn keyword_of<'a>(argument: &'a str, formals: &[&str]) -> Option<(usize, &'a str)> {
    let (keyword, value) = parse_keyword(argument)?;
    Some((formals.iter().position(|formal| *formal == keyword)?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign(arguments: &[&str], formals: &[&str]) -> Option<Vec<String>> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.into()).collect();
        assign_arguments(&arguments, formals)
    }

    #[test]
    fn positional_keyword_rest() {
        assert_eq!(assign(&["A", "B"], &["", ""]).unwrap(), ["A", "B"]);
        assert_eq!(assign(&["A"], &["", ""]), None);
        assert_eq!(assign(&["A", "TWO B"], &["", "TWO"]).unwrap(), ["A", "B"]);
        assert_eq!(assign(&["A", "B"], &["", "TWO"]), None);
        assert_eq!(
            assign(&["A", "X", "TWO B", "Y 1"], &["", "TWO", "__REST__"]).unwrap(),
            ["A", "B", "X, Y 1"]
        );
        assert_eq!(assign(&["A"], &["", "__REST__"]).unwrap(), ["A", ""]);
        assert_eq!(assign(&["A"], &["", "TWO", "__REST__"]), None);
        assert_eq!(assign(&[], &[]).unwrap(), [""; 0]);
        assert_eq!(assign(&["TWO 1", "TWO 2"], &["TWO"]).unwrap(), ["2"]);
    }
}
