//! `ringway man`.

use crate::arguments::Arguments;
use crate::command_error::CommandError;
use clap::CommandFactory;
use std::path::Path;

/// Writes a manual page for the program, and one for each command that `--help` lists, into a folder.
pub fn write(folder: &Path) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| {
        CommandError::Failed(format!("the pages can't be written into {}: {error}", folder.display()))
    };
    clap_mangen::generate_to(Arguments::command(), folder).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_names_it() {
        let folder = folder_of_pages();
        write(&folder).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page("ringway").contains("ringway\\-up(1)"), "{}", page("ringway"));
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = format!("ringway-{}", command.get_name());
            let page = page(&name);
            assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
            assert!(page.contains("Examples") || command.has_subcommands(), "{name} has no examples: {page}");
        }
        assert!(page("ringway-guest-migrate").contains("QEMU"));
        std::fs::remove_dir_all(folder).unwrap();
        let error = write(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
    }

    fn folder_of_pages() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ringway-man-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
