//! Writes a report's tables and plots into a page of the documentation.

use crate::Failure;
use std::path::Path;

/// The lines between which a page's figures are.
const BEGIN: &str = "<!-- begin: figures -->\n";
const END: &str = "<!-- end: figures -->";

/// What a report adds to a page.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Text in Markdown.
    pub text: String,
    /// Images, by the names of their files; the text shows them as `PAGE/NAME`, `PAGE` being the page's name.
    pub images: Vec<(String, String)>,
}

/// Replaces the figures of `page`, a file `docs/NAME.md`; images are written to `docs/NAME/`.
///
/// # Errors
/// If the page has no lines between which to write, or a file can't be written.
pub fn write(page: &Path, figures: &Figures) -> Result<(), Failure> {
    let text = std::fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let new = replaced(&text, &figures.text)
        .ok_or_else(|| format!("{} needs the lines {BEGIN} and {END}", page.display()))?;
    let folder = page.with_extension("");
    std::fs::create_dir_all(&folder)?;
    for (name, image) in &figures.images {
        std::fs::write(folder.join(name), image)?;
    }
    Ok(std::fs::write(page, new)?)
}

fn replaced(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some([before, BEGIN, "\n", figures.trim(), "\n\n", END, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_figures_are_replaced() {
        let page = format!("# A\n\n{BEGIN}old\n{END}\n\nB\n");
        let new = replaced(&page, "| new |\n").unwrap();
        assert_eq!(new, format!("# A\n\n{BEGIN}\n| new |\n\n{END}\n\nB\n"));
        assert_eq!(replaced(&new, "| new |\n").unwrap(), new);
        assert_eq!(replaced("# A\n", "new"), None);
    }
}
