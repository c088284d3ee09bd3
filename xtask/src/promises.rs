//! Each promise of docs/threat-model.md names tests that exist.
use crate::Findings;
use crate::text::File;

const PAGE: &str = "docs/threat-model.md";

/// Checks the files and tests that the table of promises names.
pub fn check(files: &[File]) -> Findings {
    let Some(page) = files.iter().find(|file| file.path == PAGE).map(|file| &file.text) else {
        return vec![format!("{PAGE}: missing; its table names the tests of the promises")];
    };
    let rows = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    rows.flat_map(|(index, line)| {
        let quoted = line.split('`').skip(1).step_by(2);
        let missing = quoted.filter(|word| is_missing(word, files));
        missing.map(move |word| format!("{PAGE}:{}: `{word}` does not exist", index + 1))
    })
    .collect()
}

/// Whether a word of a row is the path of a file, or the name of a test, that does not exist. A test's name has at
/// least four words; shorter ones may be options or system calls.
fn is_missing(word: &str, files: &[File]) -> bool {
    let is_path = [".rs", ".py"].iter().any(|end| word.ends_with(end)) && !word.contains(' ');
    if is_path {
        let path = word.trim_start_matches("../");
        return !files.iter().any(|file| file.path.ends_with(path));
    }
    let is_test = word.split('_').count() >= 4
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_test
        && !files.iter().any(|file| {
            ["fn ", "def "].iter().any(|keyword| file.text.contains(&format!("{keyword}{word}(")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tests_are_found() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let page = "| a promise | `a.rs`: `a_test_that_is_there`, `a_test_that_is_gone` |\n| b | `b.rs` |\n";
        let files = [file(PAGE, page), file("crates/x/a.rs", "fn a_test_that_is_there() {}")];
        let found = check(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("a_test_that_is_gone")
                && found[1].starts_with("docs/threat-model.md:2: `b.rs`")
        );
    }
}
