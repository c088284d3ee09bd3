//! `IPFilter(ACTION PATTERN, ...)`: filters IPv4 packets by their contents.
//!
//! Ports: one push input; any number of push outputs.
//!
//! Arguments: rules. The first rule whose pattern matches applies; packets that match none are dropped.
//! - `ACTION`: an output's number; `allow`, which is output 0; `deny` or `drop`.
//! - `PATTERN`: as IPClassifier's.
//!
//! `file NAME` includes the rules of a file, one per line (FastClick).
//!
//! Handlers: `program`: the decision program, one test of four bytes per line; `drops`; `memory`: bytes of the lookup
//! tables; `count`: number of rules (read); `rules` (write): replaces all rules by those of a text, one per line; empty
//! lines and those that begin with `#` are comments. If one is wrong, nothing changes; packets wait meanwhile. The
//! IPv4 header must be marked.
use super::filter::Filter;
use ringway_click::Progress;
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class =
    Class::new("IPFilter", || Box::<IpFilter>::default()).ports("1/-").processing("h").live();

#[derive(Debug, Default)]
pub struct IpFilter {
    filter: Filter,
    count: usize,
}

/// The rules of an argument: itself, or those of a file.
fn rules(argument: String, cx: &mut Context<'_>) -> Result<Vec<String>, String> {
    if config::shift_word(&argument).0 != "file" {
        return Ok(vec![argument]);
    }
    let [_, name] = &config::split_words(&argument)[..] else {
        return Err("file must have a single argument, the filename".into());
    };
    let bytes = cx.console().read_file(&config::unquote_text(name))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect())
}

/// An error of the compiler, with the line of the rule instead of its index.
fn with_line(error: &str, lines: &[(usize, String)]) -> String {
    let (head, what) = error.split_once(": ").unwrap_or((error, "empty rule"));
    let index = head.rsplit_once(' ').and_then(|(_, index)| index.parse::<usize>().ok());
    match index.and_then(|index| lines.get(index)) {
        Some((line, _)) => format!("line {line}: {what}"),
        None => error.into(),
    }
}

impl IpFilter {
    /// Replaces the rules by those of a text.
    fn set_rules(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
        let is_rule = |line: &str| !line.is_empty() && !line.starts_with('#');
        let lines: Vec<(usize, String)> =
            lines.filter(|(_, line)| is_rule(line)).map(|(number, line)| (number, line.into())).collect();
        let rules: Vec<String> = lines.iter().map(|(_, rule)| rule.clone()).collect();
        let compiled = Filter::compile(&rules, cx.noutputs(), &cx.scope(), &mut || ());
        let filter = compiled.map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(|error| with_line(error, &lines)).collect();
            HandlerError::failed(errors.join("\n"))
        })?;
        filter.warnings.iter().for_each(|warning| cx.message(with_line(warning, &lines)));
        self.filter = filter.instead_of(&self.filter);
        self.count = rules.len();
        Ok(())
    }
}

impl Element for IpFilter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut all = Vec::new();
        for (number, argument) in args.take_rest().into_iter().enumerate() {
            match rules(argument, cx) {
                Ok(rules) => all.extend(rules),
                Err(error) => args.error(format!("pattern {number}: {error}")),
            }
        }
        let outputs = cx.noutputs();
        match Filter::compile(&all, outputs, args.scope(), &mut || cx.breathe()) {
            Ok(filter) => {
                filter.warnings.iter().for_each(|warning| cx.message(warning.as_str()));
                (self.filter, self.count) = (filter, all.len());
            }
            Err(errors) => errors.into_iter().for_each(|error| args.error(error)),
        }
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.filter.push(burst, cx);
    }

    fn dispose(&mut self) -> Progress {
        self.filter.give_up()
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("program", |e: &Self| e.filter.text()),
            Handler::counter("drops", |e: &mut Self| e.filter.drops()),
            Handler::read("memory", |e: &Self| e.filter.memory()),
            Handler::read("count", |e: &Self| e.count),
            Handler::write("rules", Self::set_rules),
        ]
        .into()
    }
}
