//! `ringway click` with an additional element: the same options, one more class.
//!
//! ```sh
//! cargo run -- -e 'InfiniteSource(LIMIT 3, STOP true) -> s :: SizeHistogram -> Discard' -h s.histogram
//! cargo run -- --elements SizeHistogram
//! ```
mod elements;

use ringway_click::{Console, Registry};
use ringway_click_driver::click::{self, Terminal};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(run(&arguments, Terminal))
}

fn run(arguments: &[String], console: impl Console + Clone + Send + 'static) -> u8 {
    click::run_with(registry(), arguments, console)
}

/// Every element of Ringway, and this program's.
fn registry() -> Registry {
    let mut registry = click::registry();
    registry.add(elements::CLASSES);
    registry.document(elements::DOCUMENTATION);
    registry
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_click_driver::click::Recorder;

    fn output(arguments: &[&str]) -> String {
        let console = Recorder::default();
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        assert_eq!(run(&arguments, console.clone()), 0, "{}", console.chatter());
        console.output()
    }

    #[test]
    fn the_external_element_runs_with_built_in_ones() {
        let text = "InfiniteSource(LENGTH 100, LIMIT 3, STOP true) -> s :: SizeHistogram(64) -> Discard;
            Idle -> Strip(1) -> SizeHistogram -> Discard;";
        assert_eq!(output(&["--simtime", "-e", text, "-h", "s.histogram"]), "<128 3\n");
    }

    #[test]
    fn the_external_element_is_documented() {
        assert!(output(&["--elements"]).contains("SizeHistogram            counts packets"));
        assert!(output(&["--elements", "SizeHistogram"]).contains("`LEAST`"));
    }
}
