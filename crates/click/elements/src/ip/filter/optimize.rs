//! Optimization of decision programs: branches skip tests whose result is known, tests are sorted, merged if one can
//! replace two, and removed if unreachable.
use super::program::{Jump, Step, Test};
use ringway_click::prelude::*;

/// Maximum number of paths to a step that are kept apart; beyond it, only the facts common to all paths are kept.
const WAYS: usize = 4;

/// A test, by its step, and its outcome on a path.
type Fact = (usize, bool);

/// Optimizes steps; the remaining steps are in order and only branch forward.
pub(super) fn optimize(steps: &mut Vec<Step>) -> Option<Jump> {
    sort(steps);
    Shortcuts::new(steps).run();
    join(steps);
    sweep(steps)
}

struct Shortcuts<'a> {
    steps: &'a mut Vec<Step>,
    /// The first step with the same test.
    same: Vec<usize>,
    /// Number of bytes known to be present when a step is reached.
    known: Vec<usize>,
    /// For each step, the facts on the paths to it, without its own test.
    ways: Vec<Vec<Vec<Fact>>>,
}

impl<'a> Shortcuts<'a> {
    fn new(steps: &'a mut Vec<Step>) -> Self {
        let find = |test: &Test| steps.iter().position(|other| other.test == *test).unwrap_or(0);
        let same = steps.iter().map(|step| find(&step.test)).collect();
        let mut known = vec![usize::MAX; steps.len()];
        if let Some(first) = known.first_mut() {
            *first = 0;
        }
        for (index, step) in steps.iter().enumerate() {
            let tested = step.test.required().max(known[index]);
            if let Some(next) = step.branch(!step.test.short).step() {
                known[next] = known[next].min(tested);
            }
            if let Some(next) = step.branch(step.test.short).step() {
                known[next] = known[next].min(known[index]);
            }
        }
        Self { steps, same, known, ways: Vec::new() }
    }

    fn run(mut self) {
        for state in 0..self.steps.len() {
            self.arrive(state);
            self.shift(state, true);
            self.shift(state, false);
        }
    }

    /// The branches that lead to a step.
    fn before(&self, state: usize) -> Vec<Fact> {
        let mut before = Vec::new();
        for (index, step) in self.steps[..state].iter().enumerate() {
            for yes in [true, false] {
                if step.branch(yes) == Jump::Step(state) {
                    before.push((index, yes));
                }
            }
        }
        before
    }

    /// Computes the paths to a step; bypasses the step if all of them imply the same outcome of its test.
    fn arrive(&mut self, state: usize) {
        if state == 0 {
            self.ways.push(vec![Vec::new()]);
            return;
        }
        let before = self.before(state);
        let mut ways: Vec<Vec<Fact>> = Vec::new();
        for &(from, yes) in &before {
            let both = before.contains(&(from, !yes));
            if both && !yes {
                continue;
            }
            for way in &self.ways[from] {
                let fact = (self.same[from], yes);
                if way.contains(&(fact.0, !yes)) && !both {
                    continue;
                }
                let mut way: Vec<Fact> = way.iter().filter(|old| old.0 != fact.0).copied().collect();
                if !both {
                    way.push(fact);
                }
                ways.push(way);
            }
        }
        if ways.len() > WAYS {
            let mut common = ways.swap_remove(0);
            common.retain(|fact| ways.iter().all(|way| way.contains(fact)));
            ways = vec![common];
        } else if let Some(yes) = self.decided(state, &ways) {
            let target = self.steps[state].branch(yes);
            for (from, branch) in before {
                *self.steps[from].branch_mut(branch) = target;
            }
            ways.clear();
        }
        if ways.is_empty() {
            (self.steps[state].yes, self.steps[state].no) = (Jump::Drop, Jump::Drop);
        }
        self.ways.push(ways);
    }

    /// The outcome of a step's own test, if all paths to it have made that test.
    fn decided(&self, state: usize, ways: &[Vec<Fact>]) -> Option<bool> {
        let own = self.same[state];
        let mut outcomes =
            ways.iter().map(|way| way.iter().find(|(test, _)| *test == own).map(|fact| fact.1));
        let first = outcomes.next()??;
        outcomes.all(|outcome| outcome == Some(first)).then_some(first)
    }

    /// Redirects a branch past steps whose outcome is implied on every path.
    fn shift(&mut self, state: usize, yes: bool) {
        let Jump::Step(_) = self.steps[state].branch(yes) else { return };
        let fact = (self.same[state], yes);
        let mut common: Option<Vec<Jump>> = None;
        for way in &self.ways[state] {
            let chain = self.follow(self.steps[state].branch(yes), way, fact);
            common = Some(match common {
                None => chain,
                Some(common) => common.into_iter().filter(|jump| chain.contains(jump)).collect(),
            });
        }
        if let Some(target) = common.and_then(|chain| chain.last().copied()) {
            *self.steps[state].branch_mut(yes) = target;
        }
    }

    /// The possible targets of a branch, as far as the facts decide.
    fn follow(&self, from: Jump, way: &[Fact], own: Fact) -> Vec<Jump> {
        let mut chain = vec![from];
        let mut at = from;
        while let Jump::Step(next) = at {
            let test = &self.steps[next].test;
            let facts = core::iter::once(&own).chain(way.iter().rev());
            let certain = facts
                .filter_map(|(fact, yes)| self.steps[*fact].test.implies(*yes, test, self.known[*fact]))
                .next();
            let Some(outcome) = certain else { break };
            at = self.steps[next].branch(outcome);
            chain.push(at);
        }
        chain
    }
}

/// Merges a step with one of its successors, if one test can replace both.
fn join(steps: &mut [Step]) {
    for index in (0..steps.len()).rev() {
        while join_one(steps, index) {}
    }
}

fn flip(step: &mut Step) {
    step.test.value ^= step.test.mask;
    step.test.short = !step.test.short;
    core::mem::swap(&mut step.yes, &mut step.no);
}

/// Returns whether steps were merged.
fn join_one(steps: &mut [Step], index: usize) -> bool {
    let mut step = steps[index];
    if let Some(behind) = step.no.step().map(|no| steps[no]) {
        if behind.test.is_compatible(&step.test, false) && step.test.is_one_bit() {
            flip(&mut step);
            steps[index] = step;
        } else if let Some(mask) = without_difference(&step, &behind) {
            step.test.mask = mask;
            step.test.value &= mask;
            step.no = behind.no;
            steps[index] = step;
            return true;
        }
    }
    let Some(next) = step.yes.step() else { return false };
    if step.no == steps[next].yes && steps[next].test.is_one_bit() {
        flip(&mut steps[next]);
    }
    let behind = steps[next];
    if step.no != behind.no || !behind.test.is_compatible(&step.test, true) {
        return false;
    }
    step.yes = behind.yes;
    if step.test.mask == 0 {
        step.test.offset = behind.test.offset;
    }
    step.test.value |= behind.test.value;
    step.test.mask |= behind.test.mask;
    steps[index] = step;
    true
}

/// The mask of a test that replaces two tests with the same outcome, if their values differ in one bit.
fn without_difference(step: &Step, behind: &Step) -> Option<u32> {
    let (own, other) = (&step.test, &behind.test);
    let difference = own.value ^ other.value;
    let alike = own.offset != 0
        && own.offset == other.offset
        && own.mask != 0
        && own.mask == other.mask
        && (own.short || !other.short)
        && step.yes == behind.yes
        && difference & difference.wrapping_sub(1) == 0;
    let mask = own.mask & !difference;
    (alike && Test { mask, ..*own }.required() == own.required()).then_some(mask)
}

/// Removes redundant and unreachable steps; returns the outcome of all packets if no step is left.
pub(super) fn sweep(steps: &mut Vec<Step>) -> Option<Jump> {
    let mut target: Vec<Jump> = vec![Jump::Drop; steps.len()];
    for index in (0..steps.len()).rev() {
        let mut step = steps[index];
        for yes in [true, false] {
            if let Jump::Step(next) = step.branch(yes) {
                *step.branch_mut(yes) = target[next];
            }
        }
        steps[index] = step;
        let decides = step.yes != step.no && step.test.mask != 0;
        target[index] = if decides { Jump::Step(index) } else { step.yes };
    }
    let first = match target.first()? {
        Jump::Step(first) => *first,
        everything => {
            let everything = *everything;
            steps.clear();
            return Some(everything);
        }
    };
    steps[0] = steps[first];
    let mut place = vec![None; steps.len()];
    place[0] = Some(0);
    let mut count = 0;
    for index in 0..steps.len() {
        if place[index].is_none() {
            continue;
        }
        place[index] = Some(count);
        count += 1;
        for next in [steps[index].yes, steps[index].no].into_iter().filter_map(Jump::step) {
            place[next] = Some(0);
        }
    }
    let old = core::mem::take(steps);
    for (mut step, _) in old.into_iter().zip(&place).filter(|(_, place)| place.is_some()) {
        for jump in [&mut step.yes, &mut step.no] {
            if let Jump::Step(next) = jump {
                *next = place[*next].unwrap_or(0);
            }
        }
        steps.push(step);
    }
    None
}

/// The preferred order of tests where the order does not matter: protocols first, then addresses.
fn rank(test: &Test) -> (u16, u32, u32) {
    let offset =
        if test.offset == super::program::NETWORK + 8 { super::program::NETWORK + 3 } else { test.offset };
    (offset, test.mask, test.value)
}

/// Sorts chains of tests that share an outcome.
pub(super) fn sort(steps: &mut [Step]) {
    // The only predecessor of a step, unless that is the first step, which stays in place.
    let mut from: Vec<Option<usize>> = vec![None; steps.len()];
    let mut branches = vec![0; steps.len()];
    for (index, step) in steps.iter().enumerate() {
        for next in [step.no, step.yes].into_iter().filter_map(Jump::step) {
            branches[next] += 1;
            from[next] = Some(index).filter(|from| *from > 0 && branches[next] == 1);
        }
    }
    let mut index = 0;
    let mut moves = 0;
    while index < steps.len() {
        let mut swapped = false;
        for yes in [false, true] {
            let Some(next) = steps[index].branch(yes).step() else { continue };
            if from[next].is_none() {
                continue;
            }
            let (first, second) = (steps[index], steps[next]);
            let disordered = rank(&first.test) > rank(&second.test);
            if first.branch(!yes) != second.branch(!yes) || !disordered {
                continue;
            }
            steps[index] = Step { test: second.test, ..first };
            steps[next] = Step { test: first.test, ..second };
            swapped = true;
            break;
        }
        // Attack: an expression whose sorting never ends. Each swap brings a chain nearer to its order.
        moves += usize::from(swapped);
        if swapped && moves < 1 << 20 {
            index = from[index].unwrap_or(index);
        } else {
            index += 1;
        }
    }
}
