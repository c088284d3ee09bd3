//! `IPRewriterPatterns(NAME SADDR SPORT DADDR DPORT, ...)`: names patterns of rewriters.
//!
//! Ports: none.
//!
//! Arguments: in each, a name and a pattern.
//!
//! No handlers.
use super::pattern::Pattern;
use ringway_click::arg::NameKind;
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class = Class::new("IPRewriterPatterns", || Box::<IpRewriterPatterns>::default())
    .phase(Class::INFO + 1)
    .reach(Reach::Each);

#[derive(Debug, Default)]
pub struct IpRewriterPatterns;

impl Element for IpRewriterPatterns {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let texts = args.take_rest();
        let scope = cx.scope();
        for text in &texts {
            let words = config::split_words(text);
            let Some((name, pattern)) = words.split_first() else { continue };
            if scope.names().value(NameKind::Pattern, name, scope.element_name()).is_some() {
                return Err(cx.error(format!("pattern '{name}' already defined")));
            }
            Pattern::parse(pattern, &scope).map_err(|error| cx.error(error))?;
            scope.names().define(NameKind::Pattern, name, scope.element_name(), pattern.join(" ").as_bytes());
        }
        args.complete()
    }
}
