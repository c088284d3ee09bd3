//! The process that says what a function would do with a frame.

use super::{configuration, end_with_control};
use crate::command_error::CommandError;
use ringway_click_driver::trial;
use ringway_control::function::trial::{Passage, Trial, TrialAnswer};
use ringway_fabric::MessageStream;
use ringway_wire::fields::{Described, hex};
use std::sync::Arc;

/// Confines the process, and answers.
pub fn run(stream: &Arc<MessageStream>, trial: Trial) -> Result<(), CommandError> {
    let Trial { start, port, frame } = trial;
    crate::name_process(&format!("ringway {}", start.name));
    ringway_host::confine_function(start.user, start.memory).map_err(CommandError::because)?;
    end_with_control(stream, None, &Arc::default())?;
    let answer: TrialAnswer = Described::read(&frame)
        .map_err(|error| error.to_string())
        .and_then(|described| trial::run(configuration(&start), &port, &described.frame))
        .map(passage);
    stream.send(&answer, &[]).map_err(CommandError::because)
}

fn passage(own: trial::Passage) -> Passage {
    let trial::Passage { elements, connections, sent, omitted, printed } = own;
    Passage {
        elements: elements.into_iter().map(|one| (one.name, one.class, one.kept, one.has_state)).collect(),
        connections: connections
            .into_iter()
            .map(|one| (one.from, one.output, one.to, one.input, one.packets))
            .collect(),
        sent: sent.into_iter().map(|one| (one.port, hex(&one.data), one.after)).collect(),
        omitted,
        printed,
    }
}
