use super::*;
use crate::arg::Args;
use crate::{Class, Failed, Options, Recorder, Registry, Router};
use ringway_click_lang::{Anything, Source};

static CLASS: Class = Class::new("Sample", || Box::<Sample>::default()).live();

#[derive(Default)]
struct Sample {
    limit: u32,
    changes: u32,
}

impl Element for Sample {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("LIMIT", &mut self.limit);
        args.complete()
    }

    fn handlers(&self) -> Vec<Handler> {
        let limit = Handler::field("limit", |e: &mut Self| &mut e.limit);
        let others = |_: &mut Self, (name, write): (&str, bool), value: &str, _: &mut Context<'_>| {
            if write { Err(HandlerError::failed(value)) } else { Ok(format!("{name}({value})")) }
        };
        vec![
            limit.then(|e: &mut Self, _| e.changes += 1),
            Handler::field("terse", |e: &mut Self| &mut e.limit).error("no number"),
            Handler::read("changes", |e: &Self| e.changes),
            Handler::button("reset", |e: &mut Self, _| e.changes = 0),
            Handler::read("config", |e: &Self| format!("LIMIT {}", e.limit)),
            Handler::read_in_pieces("slow", |_: &mut Self, up_to, pieces, cx| {
                let next = pieces.kept::<u32>() + 1;
                pieces.text += &next.to_string();
                Ok(if next < cx.parse(up_to)? { pieces.keep(next) } else { Progress::Done })
            })
            .parameters(),
            Handler::others(others).parameters(),
        ]
    }
}

fn router() -> Router {
    let mut registry = Registry::empty();
    registry.add(&[&CLASS]);
    let graph = Source::new("s :: Sample(7)", "config").read(&mut Anything).graph;
    Router::build(graph, &registry, Options::simulated(1, Recorder::default(), "")).unwrap()
}

#[test]
fn only_successful_writes_run_the_change_hook() {
    let mut router = router();
    assert_eq!(router.read("s.limit").unwrap(), "7");
    router.write("s.limit 9").unwrap();
    let error = router.write("s.limit many").unwrap_err();
    assert_eq!(error, HandlerError::Value("invalid number".into()));
    assert_eq!(router.write("s.terse many").unwrap_err(), HandlerError::failed("no number"));
    assert_eq!([router.read("s.limit").unwrap(), router.read("s.changes").unwrap()], ["9", "1"]);
    router.write("s.reset whatever").unwrap();
    assert_eq!(router.read("s.changes").unwrap(), "0");
}

#[test]
fn a_long_value_is_read_in_pieces() {
    let mut router = router();
    let call = router.parse_call("s.slow 3", "").unwrap();
    let mut pieces = Pieces::default();
    assert_eq!(router.call_read_on(&call, &mut pieces), Ok(Progress::More));
    assert_eq!(pieces.text, "1");
    assert_eq!(router.read("s.slow 3").unwrap(), "123");
}

#[test]
fn a_custom_handler_overrides_only_its_declared_direction() {
    let mut router = router();
    router.write("s.limit 9").unwrap();
    assert_eq!(router.read("s.config").unwrap(), "LIMIT 9");
    router.write("s.config 11").unwrap();
    assert_eq!(router.read("s.config").unwrap(), "LIMIT 11");
    assert_eq!(router.read("s.class").unwrap(), "Sample");
}

#[test]
fn unknown_names_go_to_the_wildcard_handler() {
    let mut router = router();
    assert_eq!(router.read("s.anything at all").unwrap(), "anything(at all)");
    assert_eq!(router.write("s.anything x").unwrap_err(), HandlerError::failed("x"));
    let list = router.read("s.handlers").unwrap();
    assert!(
        list.contains("limit\trw\n") && list.contains("reset\twb\n") && list.contains("*\trw+\n"),
        "{list}"
    );
    assert!(list.contains("config\trw.\n"), "{list}");
}
