//! Properties of all texts.
use proptest::collection::vec;
use proptest::prelude::*;
use ringway_click_lang::config::{quote, split_arguments, split_words, uncomment, unquote};
use ringway_click_lang::tools::ToolSource;
use ringway_click_lang::{Anything, Connection, Diagnostics, Element, Graph, Landmark, Limits, Port, Source};

/// Limits that keep the tests fast and are rarely reached.
fn limits() -> Limits {
    Limits { elements: 2000, connections: 5000, ports: 100, expansion: 1 << 20, ..Limits::default() }
}

fn read(text: &str) -> (Graph, usize) {
    let parsed = Source { limits: limits(), ..Source::new(text, "f") }.read(&mut Anything);
    (parsed.graph, parsed.diagnostics.errors())
}

/// The graph without positions.
fn bare(mut graph: Graph) -> Graph {
    let nowhere = Landmark::new("", 0);
    graph.elements.iter_mut().for_each(|element| element.landmark = nowhere.clone());
    graph.connections.iter_mut().for_each(|connection| connection.landmark = nowhere.clone());
    graph
}

/// The messages about a text, for a router and for tools.
fn messages(text: &str) -> Vec<String> {
    let router = Source { limits: limits(), ..Source::new(text, "f") }.read(&mut Anything).diagnostics;
    let bytes = text.as_bytes();
    let source = ToolSource { bytes, file: "f", variables: &[], may_be_empty: true, limits: limits() };
    let mut tools = Diagnostics::new(100);
    source.load(&mut Anything, &mut tools).flatten(false, &mut tools);
    router.iter().chain(tools.iter()).map(|message| message.text.clone()).collect()
}

/// Tokens of the language in any order.
fn text() -> impl Strategy<Value = String> {
    let words = "a b Foo Bar Idle@3 elementclass define require input output -> => :: ; , ( ) [ ] { } | || \
                 ... $x $y \
                 ${x[1]-z} 0 1 0-3 -2 __REST__ KEY // /* */ \" ' \\< > \\ # #line é compact_config package";
    let words: Vec<&'static str> = words.split(' ').collect();
    let gap = prop::sample::select(vec![" ", " ", "\n", "", "\r\n"]);
    vec((prop::sample::select(words), gap), 0..80)
        .prop_map(|items| items.into_iter().map(|(word, gap)| format!("{word}{gap}")).collect())
}

/// Statements that are mostly valid together.
fn statements() -> impl Strategy<Value = String> {
    let statements = [
        "a -> b;",
        "a [1] -> Null -> [2] c;",
        "a [0-2] => b, [3] c, b;",
        "b => ( -> Foo(1, \"x)\") -> ) => [2,] c;",
        "elementclass C { input -> Bar -> output || input => Null => output; input[1] -> Null }",
        "a -> C -> b;",
        "x :: { a :: Idle -> Foo -> output; [1] input -> a; input -> a };",
        "elementclass D { elementclass C { input -> Inner -> output } input -> C -> C -> output }",
        "a -> D -> D -> c;",
        "elementclass C { input => Other => output; || ... }",
        "Foo, Bar, Foo(2 /* , */ 3);",
        "require(package foo, compact_config);",
        "Foo@3 :: Foo;",
        "{ Null -> Idle };",
    ];
    vec(prop::sample::select(statements.to_vec()), 0..12)
        .prop_map(|statements| String::from("a, b, c :: Idle;\n") + &statements.join("\n"))
}

/// A flat graph.
fn graph() -> impl Strategy<Value = Graph> {
    let configuration =
        prop::sample::select(vec!["", "1, 2", "\"a)\" /* ( */", "\\<00 > , X 'y'", "(x), [1]", "a // b\n"]);
    let element = (0..4usize, configuration);
    let link = (any::<(prop::sample::Index, prop::sample::Index)>(), 0..4usize, 0..4usize);
    (vec(element, 1..20), vec(link, 0..40)).prop_map(|(elements, links)| {
        let count = elements.len();
        let nowhere = Landmark::new("", 0);
        let element = |(number, (class, configuration)): (usize, (usize, &str))| Element {
            name: format!("part/e{number}@{number}"),
            class: ["Foo", "Bar", "Null", "Idle"][class].into(),
            configuration: configuration.into(),
            landmark: nowhere.clone(),
        };
        let connection =
            |((from, to), out, into): ((prop::sample::Index, prop::sample::Index), usize, usize)| {
                Connection {
                    from: Port { element: from.index(count), port: out },
                    to: Port { element: to.index(count), port: into },
                    landmark: nowhere.clone(),
                }
            };
        let mut graph = Graph {
            elements: elements.into_iter().enumerate().map(element).collect(),
            connections: links.into_iter().map(connection).collect(),
            ..Graph::default()
        };
        graph.connections.sort_by_key(|connection| (connection.to, connection.from));
        graph.connections.dedup_by_key(|connection| (connection.to, connection.from));
        graph
    })
}

proptest! {
    // Many random statements are invalid.
    #![proptest_config(ProptestConfig { max_global_rejects: 1 << 20, ..ProptestConfig::with_cases(400) })]

    /// Both parsers terminate on any text.
    #[test]
    fn arbitrary_text_never_panics(text in text()) {
        read(&text);
        let mut diagnostics = Diagnostics::new(100);
        let bytes = text.as_bytes();
        let source = ToolSource { bytes, file: "f", variables: &[], may_be_empty: true, limits: limits() };
        let loaded = source.load(&mut Anything, &mut diagnostics);
        loaded.flatten(false, &mut diagnostics).graph().unparse_for_tools();
        loaded.flatten(true, &mut diagnostics);
    }

    /// Printing and parsing a flat configuration gives the same graph.
    #[test]
    fn unparsed_text_parses_again(graph in graph()) {
        let (again, errors) = read(&graph.unparse());
        prop_assert_eq!(errors, 0);
        prop_assert_eq!(bare(again), graph);
    }

    /// Every accepted configuration is also accepted when flattened, with the same meaning.
    #[test]
    fn unparsed_graphs_are_equal(text in statements()) {
        let (graph, errors) = read(&text);
        prop_assume!(errors == 0);
        let (again, errors) = read(&graph.unparse());
        prop_assert_eq!(errors, 0, "{}", graph.unparse());
        prop_assert_eq!(bare(again), bare(graph));
    }

    /// Every message names what it is about.
    #[test]
    fn no_message_has_an_empty_word(text in text(), valid in statements(), cut: prop::sample::Index) {
        let cut = (0..=cut.index(valid.len() + 1)).rev().find(|at| valid.is_char_boundary(*at)).unwrap_or(0);
        for text in [&text[..], &valid[..cut]] {
            for message in messages(text) {
                // `'''` is the character.
                prop_assert!(!message.replace("'''", "").contains("''"), "{}: {}", text, message);
            }
        }
    }

    /// Quoting is undone by unquoting; splitting loses nothing that is quoted.
    #[test]
    fn quoting_keeps_bytes(parts in vec(vec(any::<u8>(), 0..20), 1..6)) {
        let quoted: Vec<String> = parts.iter().map(|part| quote(part)).collect();
        for (separator, split) in [(", ", split_arguments as fn(&str) -> Vec<String>), (" ", split_words)] {
            let joined = quoted.join(separator);
            let again: Vec<Vec<u8>> = split(&joined).iter().map(|part| unquote(part)).collect();
            prop_assert_eq!(&again, &parts);
        }
    }

    /// One pass removes all comments.
    #[test]
    fn removing_comments_is_idempotent(text in text()) {
        let once = uncomment(&text);
        prop_assert_eq!(uncomment(&once), once);
    }
}

#[test]
fn what_is_missing_at_the_end_is_said() {
    for (text, message) in [
        ("Idle ->", "syntax error at the end of the configuration"),
        ("a :: ", "missing element type"),
        ("require(library \"\");", "library without a name"),
        ("define($x 1", "expected ')'"),
    ] {
        let messages = messages(text);
        assert!(messages.iter().any(|other| other.contains(message)), "{text}: {messages:?}");
    }
}

#[test]
fn hostile_texts_are_parsed_in_bounded_time() {
    let chain = |count: usize| {
        let mut text = String::from("elementclass C0 { Idle; Idle }\n");
        for level in 1..count {
            text += &format!("elementclass C{level} {{ C{}; C{} }}\n", level - 1, level - 1);
        }
        text + &format!("C{};", count - 1)
    };
    let pass =
        "elementclass P { input -> output } a :: Idle -> ".to_string() + &"P -> ".repeat(5000) + "b :: Idle;";
    let texts = [
        chain(40),
        chain(2000),
        "{".repeat(100_000),
        "(".repeat(100_000),
        "a :: Idle; ".to_string() + &"a [0-65535] => [0-65535] a; ".repeat(2000),
        format!("define($x {}); Idle({})", "$y".repeat(1000), "$x".repeat(1000))
            + &format!("define($y {})", "$x".repeat(1000)),
        pass,
        "[".repeat(100_000),
        "a ".repeat(100_000),
        "# x\n".repeat(50_000),
    ];
    for text in texts {
        read(&text);
        let bytes = text.as_bytes();
        let source = ToolSource { bytes, file: "f", variables: &[], may_be_empty: true, limits: limits() };
        let mut diagnostics = Diagnostics::new(100);
        source.load(&mut Anything, &mut diagnostics).flatten(false, &mut diagnostics);
    }
}
