//! `Classifier(PATTERN...)`: sends packets to the output of the first pattern that matches.
//!
//! Ports: one push input, a push output for each pattern. Packets that match none are dropped.
//!
//! Arguments:
//! - `PATTERN`: clauses `OFFSET/VALUE` or `OFFSET/VALUE%MASK`, all of which must hold, or `-` for every packet. Offsets
//!   are decimal, values and masks hexadecimal, `?` is any digit; `!` before a clause negates it.
//!
//! Handlers: `program` (read): the comparisons, in words of four bytes.
mod program;

use program::Program;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Classifier", || Box::<Classifier>::default()).ports("1/-").processing("h").live();

#[derive(Debug, Default)]
pub struct Classifier {
    program: Program,
}

impl Element for Classifier {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let patterns = args.take_rest();
        args.complete()?;
        if patterns.len() != cx.noutputs() {
            let text = format!("need {} arguments, one per output port", cx.noutputs());
            return Err(cx.error(text));
        }
        match Program::compile(&patterns) {
            Ok(program) => self.program = program,
            Err(errors) => {
                for error in errors {
                    cx.error(error);
                }
                return Err(Failed);
            }
        }
        for port in self.program.unused(cx.noutputs()) {
            cx.warning(format!("output {port} matches no packets"));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cx.scatter(burst, |_, packet| self.program.run(packet.data()));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("program", |e: &Self| e.program.text()).calm()].into()
    }
}
