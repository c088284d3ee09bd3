//! Logging: text for people, or JSON if requested.

use crate::arguments::Log;
use ringway_spec::{printable, printable_json};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};

/// Sets up logging to standard error. `RINGWAY_LOG` is the filter, such as `info` or `ringway_control=debug`.
pub fn start(log: Log) {
    let least = if matches!(log, Log::Warnings) { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("RINGWAY_LOG").unwrap_or_else(|_| EnvFilter::new(least));
    let colour =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let base =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match log {
        Log::Text | Log::Warnings => base.fmt_fields(fields()).with_ansi(colour).init(),
        Log::Json => base.json().with_writer(|| Printable(std::io::stderr())).init(),
    }
}

/// Writes JSON without characters that a terminal would obey.
struct Printable<W>(W);

impl<W: Write> Write for Printable<W> {
    /// A whole event: its letters are not divided.
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        self.0.write_all(printable_json(&String::from_utf8_lossy(json)).as_bytes())?;
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Messages and fields, each line one event.
///
/// Attack: a text of a guest, a plugin or a peer with line feeds, which would begin a false event, or with escape
/// sequences of terminals.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    debug_fn(|to: &mut Writer<'_>, field: &tracing::field::Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(to, "{}", printable(&value)),
            name => write!(to, "{name}={}", printable(&value)),
        }
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use super::Printable;
    use std::io::{Result, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_printable_line() {
        let written = Written::default();
        let to = written.clone();
        let log = tracing_subscriber::fmt().fmt_fields(super::fields()).with_ansi(false).without_time();
        tracing::subscriber::with_default(log.with_writer(move || to.clone()).finish(), || {
            let reason = "gone\n INFO all is well\u{1b}[2J\u{202e}";
            tracing::warn!(port = "a\nb", error = %reason, number = 7, "it said: {reason}");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let escaped = "gone\\n INFO all is well\\u{1b}[2J\\u{202e}";
        let expected = format!("it said: {escaped} port=\"a\\nb\" error={escaped} number=7\n");
        assert!(text.ends_with(&expected) && text.lines().count() == 1, "{text}");
    }
    #[test]
    fn an_event_in_json_is_printable_too() {
        let written = Written::default();
        let to = written.clone();
        let log = tracing_subscriber::fmt().json().with_writer(move || Printable(to.clone()));
        let reason = "gone\u{1b}[2J\u{9b}2J\u{202e}\u{7f}";
        tracing::subscriber::with_default(
            log.finish(),
            || tracing::warn!(error = %reason, "it said: {reason}"),
        );
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert!(text.is_ascii() && text.lines().count() == 1, "{text}");
        assert!(!text.trim_end().contains(|letter: char| letter.is_control()), "{text}");
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["fields"]["error"], reason);
        assert_eq!(event["fields"]["message"], format!("it said: {reason}"));
    }
}
