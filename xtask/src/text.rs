//! The project's text files, read once.
use std::path::Path;
use std::process::Command;

/// A tracked (or new and not ignored) file that is valid UTF-8.
pub struct File {
    /// Path from the workspace's folder, with `/`.
    pub path: String,
    /// Contents.
    pub text: String,
}

impl File {
    /// Whether it is a Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Its crate: `mem` for `crates/base/mem/src/lib.rs`.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').nth(1)
    }
}

/// Reads files that git tracks, and untracked ones that are not ignored.
pub fn tracked(root: &Path) -> Result<Vec<File>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git: {error}; install git"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = names.split('\0').filter(|path| !path.is_empty());
    Ok(paths
        .filter_map(|path| {
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            Some(File { path: path.to_string(), text })
        })
        .collect())
}

/// The source with blanked comments and string contents, line by line, so that words in them don't count.
pub fn code_lines(source: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut state = State::Code;
    let mut rest = source.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\n' {
            lines.push(std::mem::take(&mut line));
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            continue;
        }
        let next = rest.peek().copied();
        state = match (state, c) {
            (State::Code, '/') if next == Some('/') => State::LineComment,
            (State::Code, '/') if next == Some('*') => State::BlockComment,
            (State::Code, '"') => State::Text,
            (State::Code, 'r') if next == Some('#') && !ends_in_word(&line) => {
                rest.next();
                if rest.peek() == Some(&'"') { State::RawText } else { State::Code }
            }
            (State::Code, '\'') if next == Some('"') => {
                rest.next();
                State::Code
            }
            (State::Code, c) => {
                line.push(c);
                State::Code
            }
            (State::BlockComment, '*') if next == Some('/') => {
                rest.next();
                State::Code
            }
            (State::Text, '\\') if next != Some('\n') => {
                rest.next();
                State::Text
            }
            (State::Text, '"') => State::Code,
            (State::RawText, '"') if next == Some('#') => {
                rest.next();
                State::Code
            }
            (state, _) => state,
        };
    }
    lines.push(line);
    lines
}

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    BlockComment,
    Text,
    RawText,
}

fn ends_in_word(line: &str) -> bool {
    line.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// Whether `word` occurs in `line` as a whole word.
pub fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        let source = "a // unsafe\nb \"unsafe \\\" x\" c\n/* unsafe\nunsafe */ d\nr#\"unsafe\"# e\n'\"' f";
        let lines = code_lines(source);
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|line| !has_word(line, "unsafe")), "{lines:?}");
        for (line, word) in lines.iter().zip(["a", "c", "", "d", "e", "f"]) {
            assert!(word.is_empty() || has_word(line, word), "{line:?} lacks {word}");
        }
    }
}
