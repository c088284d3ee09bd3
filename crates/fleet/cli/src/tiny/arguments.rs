//! Arguments of `ringway tiny`.

use clap::Subcommand;
use std::path::PathBuf;

/// What to do with programs for tiny VMs.
#[derive(Subcommand)]
pub enum TinyCommand {
    /// Make a folder with a program to begin with.
    #[command(after_help = "\
Examples:
  ringway tiny new web
  ringway tiny new --c echo
  ringway tiny new web --library ringway/crates/machines/tiny-program")]
    New {
        /// The folder.
        folder: PathBuf,
        /// The folder of the library ringway-tiny-program; by default it is looked for around this program.
        #[arg(long, value_name = "DIR", conflicts_with = "c")]
        library: Option<PathBuf>,
        /// A program in C.
        #[arg(long)]
        c: bool,
    },
    /// Build a folder's program, in Rust or in C, and write its image.
    #[command(after_help = "\
A fabric file runs the image: [function.NAME] image = \"FILE\".

Examples:
  ringway tiny build web   writes web/web.tiny
  ringway tiny build web --output /srv/web.tiny")]
    Build {
        /// The folder: a Rust package, or one with files *.c, itself or in its folder src.
        folder: PathBuf,
        /// The image's file; by default NAME.tiny in the folder.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The program, if the package has several.
        #[arg(long, value_name = "NAME")]
        bin: Option<String>,
        /// For a program in C: the folder of the library ringway-tiny-program; by default it is looked for around this
        /// program.
        #[arg(long, value_name = "DIR")]
        library: Option<PathBuf>,
    },
}
