//! `RandomSeed(SEED)`: seeds the random number generator of the router's elements.
//!
//! No ports.
//!
//! Arguments:
//! - `SEED`: the same seed gives the same numbers; without it they differ in each run. Numbers that elements draw from
//!   a range (rewriters' patterns, RandomSwitch, Script's `random`) are those of Click with GNU's C library.
//!
//! With `ringway click -j N` each thread has its own generator, with other numbers; those of the first thread are
//! Click's.
//!
//! Handlers: `seed` (read, write): the last seed; an empty value chooses an unpredictable one.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("RandomSeed", || Box::<RandomSeed>::default()).phase(Class::INFO).live().reach(Reach::Each);

#[derive(Debug, Default)]
pub struct RandomSeed {
    seed: String,
}

impl Element for RandomSeed {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut seed = 0u32;
        let given = args.read_p("SEED", &mut seed);
        args.complete()?;
        if given {
            cx.router().seed_like_click(seed);
            self.seed = seed.to_string();
        }
        Ok(())
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("seed", |e: &Self| e.seed.clone()).calm().writes(|e: &mut Self, value, cx| {
            if value.trim_ascii().is_empty() {
                let seed = cx.now() ^ u64::from(cx.random());
                cx.router().seed(seed);
                e.seed = String::new();
            } else {
                let seed = cx.parse(value).map_err(|_| HandlerError::failed("seed must be a number"))?;
                cx.router().seed_like_click(seed);
                e.seed = seed.to_string();
            }
            Ok(())
        })]
        .into()
    }
}
