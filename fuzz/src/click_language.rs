//! Click's language: parsing any text terminates, and printing an accepted configuration keeps its meaning.
use ringway_click_lang::check::{ClassProperties, Classes, check};
use ringway_click_lang::config::{self, Budget, Scope};
use ringway_click_lang::tools::align::align;
use ringway_click_lang::tools::undead::undead;
use ringway_click_lang::tools::{ToolSource, xform};
use ringway_click_lang::{Anything, Diagnostics, Element, Graph, Landmark, Limits, Source, archive};

const LIMITS: Limits = Limits {
    text: 1 << 16,
    depth: 50,
    expansion_depth: 50,
    elements: 2000,
    connections: 4000,
    ports: 64,
    expansion: 1 << 20,
    diagnostics: 100,
};

struct Passing;

impl Classes for Passing {
    fn properties(&self, element: &Element) -> Option<ClassProperties<'_>> {
        let (processing, flow) = match element.class.len() % 3 {
            0 => ("h/l", "x/x"),
            1 => ("a/a", "#/[^#]"),
            _ => ("hl/ah", "xy/[xy]"),
        };
        Some(ClassProperties { ports: "-/-", processing, flow, flags: "" })
    }
}

/// Parses bytes as a configuration in every mode.
pub fn run(data: &[u8]) {
    strings(&String::from_utf8_lossy(data));
    tools(data);
    let Ok(text) = str::from_utf8(data) else { return };
    let parsed = Source { limits: LIMITS, ..Source::new(text, "f") }.read(&mut Anything);
    if parsed.diagnostics.errors() > 0 {
        return;
    }
    check(&parsed.graph, &Passing, &LIMITS, &mut Diagnostics::new(100));
    // A variable may contain an unbalanced parenthesis, which can't be printed.
    if text.contains(['$', '#']) {
        return;
    }
    let flat = parsed.graph.unparse();
    let again = Source { limits: LIMITS, ..Source::new(&flat, "f") }.read(&mut Anything);
    assert_eq!(again.diagnostics.errors(), 0, "{flat}");
    assert_eq!(bare(again.graph), bare(parsed.graph));
}

fn bare(mut graph: Graph) -> Graph {
    let nowhere = Landmark::new("", 0);
    graph.elements.iter_mut().for_each(|element| element.landmark = nowhere.clone());
    graph.connections.iter_mut().for_each(|connection| connection.landmark = nowhere.clone());
    graph
}

fn strings(text: &str) {
    for argument in config::split_arguments(text) {
        assert_eq!(config::uncomment(&argument), argument);
        for word in config::split_words(&argument) {
            let bytes = config::unquote(&word);
            assert_eq!(config::unquote(&config::quote(&bytes)), bytes);
        }
    }
    let mut scope = Scope::new(None);
    scope.define("x", text);
    let budget = Budget::new(1 << 16);
    config::expand(text, &scope, &budget);
    config::expand_quoted(text, &scope, &budget);
}

fn tools(data: &[u8]) {
    if let Ok(members) = archive::parse(data) {
        archive::parse(&archive::unparse(&members)).expect("an archive that was written can be read");
    }
    let mut diagnostics = Diagnostics::new(100);
    let source = ToolSource { bytes: data, file: "f", variables: &[], may_be_empty: true, limits: LIMITS };
    let loaded = source.load(&mut Anything, &mut diagnostics);
    let mut router = loaded.flatten(true, &mut diagnostics);
    if diagnostics.errors() > 0 || router.places() > 50 {
        return;
    }
    let patterns = loaded.patterns(&mut diagnostics);
    let few = Limits { elements: 20, ..LIMITS };
    xform::transform(&mut router, &patterns, &few, &mut diagnostics);
    undead(&mut router.clone(), &Passing, &mut diagnostics);
    align(&mut router, &Passing, &mut diagnostics);
    router.graph().unparse_for_tools();
}

/// Texts that cover the whole syntax.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "define($n 3, $m ${n-4}); require(package foo, compact_config)\n\
         elementclass C { $a, KEY $k, __REST__ $r | input -> Foo($a, \"$k\", ${r[1]}) -> output || ... }\n\
         a, b :: Idle; a [0,2-3] => [1,] b; C(1, KEY 2) -> ( -> Null -> ) -> { [0] -> [0] } -> b;\n",
        "# 7 \"x.click\"\nFoo(\\<00 11 /* a */>, 'q', \"\\x41\\n\") // end\n -> Bar@4 :: Bar;\r\n",
        "elementclass P { input -> Foo($x) -> output }\n\
         elementclass P_Replacement { input -> Bar($x) -> output }\n\
         Idle -> Foo(1) -> s :: StaticSwitch(1) -> Idle; \
         s [1] -> Queue -> RoundRobinSched -> Align(4, 2) -> ToDump;\n",
    ];
    let archived = archive::Member { name: "config".into(), data: texts[0].into(), ..Default::default() };
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    seeds.push(archive::unparse(&[archived]));
    seeds
}
