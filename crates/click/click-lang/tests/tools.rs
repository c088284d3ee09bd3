//! Tests of the tools with small configurations.
use ringway_click_lang::check::{ClassProperties, Classes};
use ringway_click_lang::tools::combine::{Component, combine, uncombine};
use ringway_click_lang::tools::{Router, ToolSource, align::align, undead::undead, xform};
use ringway_click_lang::{Anything, Diagnostics, Element, Limits};

struct Known;

impl Classes for Known {
    fn properties(&self, element: &Element) -> Option<ClassProperties<'_>> {
        let (flow, flags) = match element.class.as_str() {
            "Idle" => ("x/y", "S0"),
            "Source" => ("x/x", "S1"),
            _ => ("x/x", ""),
        };
        Some(ClassProperties { ports: "-/-", processing: "a/a", flow, flags })
    }
}

fn source(text: &str) -> ToolSource<'_> {
    let limits = Limits::default();
    ToolSource { bytes: text.as_bytes(), file: "f", variables: &[], may_be_empty: true, limits }
}

fn flat(text: &str) -> Router {
    let mut diagnostics = Diagnostics::new(10);
    let router = source(text).load(&mut Anything, &mut diagnostics).flatten(false, &mut diagnostics);
    assert!(diagnostics.is_empty(), "{diagnostics}");
    router
}

fn text(router: &Router) -> String {
    router.graph().unparse()
}

#[test]
fn patterns_are_replaced_until_none_matches() {
    let patterns = "elementclass Pair { input -> Strip($n) -> c :: Check($n, $m) -> output;
                                        c [1] -> [1] output }
                    elementclass Pair_Replacement { input -> c :: Both($n, $m) -> output;
                                                    c [1] -> [1] output }";
    let mut diagnostics = Diagnostics::new(10);
    let patterns = source(patterns).load(&mut Anything, &mut diagnostics).patterns(&mut diagnostics);
    let mut router = flat(
        "s :: Source -> Strip(14) -> c1 :: Check(14, a) -> Strip(2) -> c2 :: Check(2, b) -> d :: Sink;
         c1 [1] -> d; c2 [1] -> d; Source -> Strip(1) -> Check(2, c) -> d",
    );
    xform::transform(&mut router, &patterns, &Limits::default(), &mut diagnostics);
    assert!(diagnostics.is_empty(), "{diagnostics}");
    let text = text(&router);
    for line in [
        "c1 :: Both(14, a);",
        "c2 :: Both(2, b);",
        "Strip@8 :: Strip(1);",
        "s -> c1\n    -> c2\n    -> d;",
        "c1 [1] -> d;",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("Strip(14)"));
}

#[test]
fn inverse_patterns_terminate() {
    let patterns = "elementclass A { input -> Foo -> output }
                    elementclass A_Replacement { input -> Bar -> output }
                    elementclass B { input -> Bar -> output }
                    elementclass B_Replacement { input -> Foo -> output }";
    let mut diagnostics = Diagnostics::new(10);
    let patterns = source(patterns).load(&mut Anything, &mut diagnostics).patterns(&mut diagnostics);
    let mut router = flat("Source -> Foo -> Sink;");
    let limits = Limits { elements: 50, ..Limits::default() };
    xform::transform(&mut router, &patterns, &limits, &mut diagnostics);
    assert_eq!(diagnostics.to_string(), "patterns match without end\n");
}

#[test]
fn combined_routers_are_separated_again() {
    let component = |name: &str, text| Component { name: name.into(), router: flat(text) };
    let parts = [
        component("A", "Source -> out :: ToDevice(eth1);"),
        component("B", "FromDevice(eth0) -> s :: Sink;"),
    ];
    let mut diagnostics = Diagnostics::new(10);
    let limits = Limits::default();
    let combined = combine(&parts, &["A.eth1=B.eth0".into()], &limits, &mut diagnostics).unwrap();
    let link = "link1 :: RouterLink(A out ToDevice, eth1, B FromDevice@1 FromDevice, eth0);";
    assert!(text(&combined).contains(link), "{}", text(&combined));
    for part in parts {
        let mut one = combined.clone();
        uncombine(&mut one, &part.name, "f", &limits, &mut diagnostics);
        let lines = |router: &Router| {
            let text = text(router);
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&one), lines(&part.router));
    }
    assert!(diagnostics.is_empty(), "{diagnostics}");
    assert!(combine(&[], &["A.x=B.y".into(), "nonsense".into()], &limits, &mut diagnostics).is_none());
    let errors = "no router named 'A'\nno router named 'B'\nbad link definition 'nonsense'\n";
    assert_eq!(diagnostics.to_string(), errors);
}

#[test]
fn dead_elements_are_removed() {
    let mut router = flat(
        "Source -> Null -> t :: Tee -> s :: Sink; t [1] -> Idle; Idle -> Counter -> Sink;
         Source -> Counter -> Idle;
         Source -> w :: StaticSwitch(1) -> Sink; w [1] -> last :: Sink",
    );
    let mut diagnostics = Diagnostics::new(10);
    assert!(undead(&mut router, &Known, &mut diagnostics));
    assert!(diagnostics.is_empty(), "{diagnostics}");
    assert_eq!(
        text(&router),
        "Source@1 :: Source;\ns :: Sink;\nSource@12 :: Source;\nlast :: Sink;\n\n\
         Source@1 -> s;\nSource@12 -> last;\n"
    );
    let mut nothing = flat("Idle -> Counter -> Idle;");
    assert!(!undead(&mut nothing, &Known, &mut diagnostics));
}

#[test]
fn alignment_is_inserted_only_where_needed() {
    let mut router = flat(
        "FromDevice(a) -> Strip(14) -> CheckIPHeader -> ToHost;
         FromDevice(b) -> c :: CheckIPHeader -> Discard",
    );
    let mut diagnostics = Diagnostics::new(10);
    align(&mut router, &Known, &mut diagnostics);
    let text = text(&router);
    assert!(
        text.contains(":: Align(4, 0);") && text.contains("-> Align@click_align@9\n    -> c\n"),
        "{text}"
    );
    assert_eq!(text.matches(" :: Align(").count(), 2, "before c and before ToHost: {text}");
    assert!(text.contains("AlignmentInfo(CheckIPHeader@3  4 0,\n  c  4 0)"), "{text}");
}
