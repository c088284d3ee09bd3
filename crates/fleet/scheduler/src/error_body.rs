//! The body of an error in the API.

use ringway_spec::file::{Problem, Problems};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was not fulfilled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error and the remedy.
    pub error: String,
    /// The errors in a fabric file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemView>,
}

impl ErrorBody {
    /// An error that is not one of a fabric file.
    pub fn new(error: impl ToString) -> ErrorBody {
        ErrorBody { error: error.to_string(), problems: Vec::new() }
    }
}

/// An error in a fabric file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemView {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The error.
    pub what: String,
    /// The remedy.
    pub fix: String,
}

impl ProblemView {
    /// All errors in a file.
    pub fn list(problems: &Problems) -> Vec<ProblemView> {
        let view = |(file, line, column, problem): (&str, usize, usize, &Problem)| ProblemView {
            file: file.into(),
            line,
            column,
            what: problem.what.clone(),
            fix: problem.fix.clone(),
        };
        problems.positions().map(view).collect()
    }
}
