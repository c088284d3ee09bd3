//! Tests of walks through a fabric that is a table.

use super::*;
use ringway_fabric::proto::Traced;
use ringway_spec::{Configuration, Isolation};

/// What becomes of a frame at a port, and what is behind each destination.
type FakeStep = (Vec<TracedCopy>, Vec<(&'static str, NextHop)>);

/// A fabric whose ports lead to others, and whose functions send what a table says.
#[derive(Default)]
struct Fake {
    /// By port.
    steps: BTreeMap<&'static str, FakeStep>,
    /// By function: the ports that it sends to.
    functions: BTreeMap<&'static str, Result<Vec<&'static str>, String>>,
}

fn copy(port: &str, verdict: &str) -> TracedCopy {
    TracedCopy { port: port.into(), verdict: verdict.into(), frames: 1, ..TracedCopy::default() }
}

fn function(name: &str, ports: &[&str]) -> Function {
    Function {
        name: name.into(),
        configuration: Configuration::default(),
        program: None,
        isolation: Isolation::Process,
        fallback: false,
        snapshots: true,
        parameters: Vec::new(),
        ports: ports.iter().map(ToString::to_string).collect(),
        chained: true,
        devices: Vec::new(),
        memory: 0,
        core: None,
        burst: 1,
        start: true,
        first_frame: false,
        idle: 0,
        instance: None,
    }
}

fn behind(function: Option<Function>) -> NextHop {
    let function = function.map(|function| (Box::new(function), "running".to_string()));
    NextHop { kind: "ring".into(), function, link: None }
}

impl Fake {
    fn port(
        mut self,
        name: &'static str,
        copies: Vec<TracedCopy>,
        behind: Vec<(&'static str, NextHop)>,
    ) -> Fake {
        self.steps.insert(name, (copies, behind));
        self
    }
}

impl Traceable for Fake {
    async fn step(&self, step: Step) -> Result<TracedStep, Failure> {
        let unknown = || Failure::unknown(format!("there is no port \"{}\"", step.port));
        let (copies, behind) = self.steps.get(&*step.port).ok_or_else(unknown)?;
        Ok(TracedStep {
            traced: Traced { copies: copies.clone(), lookup: "patch".into(), ..Traced::default() },
            to: String::new(),
            table: String::new(),
            next_hops: behind.iter().map(|(port, behind)| (port.to_string(), behind.clone())).collect(),
            arguments: Vec::new(),
            fabric: "lab".into(),
        })
    }

    async fn try_function(&self, trial: Trial, _arguments: Vec<OsString>) -> TrialAnswer {
        let sent = self.functions.get(&*trial.start.name).cloned().unwrap_or(Ok(Vec::new()))?;
        let sent = sent.into_iter().map(|port| (port.to_string(), trial.frame.clone(), 5)).collect();
        Ok(Passage { sent, ..Passage::default() })
    }
}

async fn follow(fake: &Fake, port: &str) -> TraceView {
    let frame = Frame { bytes: vec![2; 60], offload: [0; 10] };
    Walk::new(fake).follow(port.into(), frame).await.unwrap_or_else(|failure| panic!("{}", failure.reason()))
}

#[tokio::test]
async fn frames_are_followed_through_functions_of_a_chain_and_links() {
    let link = BTreeMap::from([("delay".to_string(), "20ms".to_string())]);
    let wan = ("wan".to_string(), "b".to_string(), link, 0);
    let wire = NextHop { kind: "link".into(), function: None, link: Some(wan) };
    let fake = Fake {
        functions: BTreeMap::from([("fw", Ok(vec!["inside", "nowhere"])), ("ids", Err("no".into()))]),
        ..Fake::default()
    };
    let fake = fake
        .port(
            "a",
            vec![copy("fw.outside", "delivered"), copy("c", "dropped")],
            vec![("fw.outside", behind(Some(function("fw", &["outside", "inside"]))))],
        )
        .port("fw.inside", vec![copy("wan/b", "delivered")], vec![("wan/b", wire)])
        .port(
            "wan/b",
            vec![copy("ids.outside", "delivered")],
            vec![("ids.outside", behind(Some(function("ids", &["outside", "inside"]))))],
        );
    let view = follow(&fake, "a").await;
    let hops: Vec<_> = view.hops.iter().map(|hop| (&*hop.port, hop.after, &*hop.through)).collect();
    let expected = [("a", None, ""), ("fw.inside", Some(1), "function fw"), ("wan/b", Some(2), "link wan")];
    assert_eq!(hops, expected);
    let first = &view.hops[0].destinations;
    let wall = first[0].function.as_ref().unwrap();
    // What it sends to an unknown port is left out.
    assert_eq!((&*wall.input, wall.sent.len(), &first[0].next[..]), ("outside", 1, &[2][..]));
    assert!(first[1].next.is_empty());
    let link = view.hops[1].destinations[0].link.as_ref().unwrap();
    assert_eq!((&*link.name, link.delay), ("wan", 20_000_000));
    assert_eq!(view.hops[2].destinations[0].function.as_ref().unwrap().unknown, "no");
}

#[tokio::test]
async fn a_loop_of_functions_and_a_function_that_multiplies_end() {
    let all = vec!["outside"; 40];
    let fake = Fake { functions: BTreeMap::from([("f", Ok(all))]), ..Fake::default() };
    let fake = fake
        .port(
            "a",
            vec![copy("f.inside", "delivered")],
            vec![("f.inside", behind(Some(function("f", &["outside", "inside"]))))],
        )
        .port(
            "f.outside",
            vec![copy("f.inside", "delivered")],
            vec![("f.inside", behind(Some(function("f", &["outside", "inside"]))))],
        );
    let view = follow(&fake, "a").await;
    assert_eq!(view.hops.len(), HOPS);
    assert!(view.omitted > 0);
    let tried = |hop: &HopView| {
        hop.destinations
            .iter()
            .filter(|to| to.function.as_ref().is_some_and(|one| one.unknown.is_empty()))
            .count()
    };
    assert_eq!(view.hops.iter().map(tried).sum::<usize>(), TRIALS);
}

#[tokio::test]
async fn only_the_first_port_must_exist() {
    let fake = Fake { functions: BTreeMap::from([("f", Ok(vec!["inside"]))]), ..Fake::default() };
    let fake = fake.port(
        "a",
        vec![copy("f.outside", "delivered")],
        vec![("f.outside", behind(Some(function("f", &["outside", "inside"]))))],
    );
    let view = follow(&fake, "a").await;
    assert_eq!(view.hops[1].note, "there is no port \"f.inside\"");
    let frame = Frame { bytes: vec![2; 60], offload: [0; 10] };
    assert!(Walk::new(&fake).follow("b".into(), frame).await.is_err());
}

#[test]
fn wrong_frames_are_refused_with_their_column() {
    let reason = |frame: &str| {
        let new = NewTrace { frame: frame.into(), gso_size: Some(1000), ..NewTrace::default() };
        Frame::of(&new, "a").unwrap_err().reason()
    };
    assert_eq!(
        reason("tcp,x"),
        "the frame, column 5: unknown word `x`; the fields are those of `man ovs-fields`"
    );
    assert_eq!(reason("udp,in_port=b"), "the frame, column 13: in_port is \"b\", but the port is \"a\"");
    assert!(reason("arp").starts_with("the frame is neither TCP nor UDP"));
}
