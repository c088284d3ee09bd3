//! Handlers: named values and actions of an element, each declared once.
//!
//! ```text
//! fn handlers(&self) -> Vec<Handler> {
//!     [
//!         Handler::read("count", |e: &Self| e.count),
//!         Handler::field("limit", |e: &mut Self| &mut e.limit).calm(),
//!         Handler::field("active", |e: &mut Self| &mut e.active).checkbox().then(Self::go_on),
//!         Handler::button("reset_counts", |e: &mut Self, _| e.count = 0),
//!     ]
//!     .into()
//! }
//! ```
mod call;
mod info;

pub use call::{HandlerCall, HandlerError};
pub use info::HandlerInfo;

use crate::arg::Arg;
use crate::{Context, Element, Pieces, Progress};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::any::Any;
use core::fmt::{self, Display};
use core::marker::PhantomData;

/// Parameters of a handler call.
struct Request<'a> {
    /// Its name, for handlers that serve several names.
    name: &'a str,
    /// The value to write, or the parameters for reading.
    value: &'a str,
    pieces: &'a mut Pieces,
}

type Outcome = Result<Progress, HandlerError>;

/// What a handler does. Not `Fn`: its objects have each function three times, and there are hundreds of handlers.
trait Act {
    fn act(&self, element: &mut dyn Element, request: Request<'_>, cx: &mut Context<'_>) -> Outcome;
}

type Action = Box<dyn Act>;

/// An action on elements of one type.
struct Typed<E, F>(F, PhantomData<fn(&mut E)>);

impl<E: Element, F: Fn(&mut E, Request<'_>, &mut Context<'_>) -> Outcome> Act for Typed<E, F> {
    fn act(&self, element: &mut dyn Element, request: Request<'_>, cx: &mut Context<'_>) -> Outcome {
        match downcast(element) {
            Some(element) => self.0(element, request, cx),
            None => foreign(),
        }
    }
}

/// An action, and what follows once it is complete.
struct Then<E, F>(Action, F, PhantomData<fn(&mut E)>);

impl<E: Element, F: Fn(&mut E, &mut Context<'_>)> Act for Then<E, F> {
    fn act(&self, element: &mut dyn Element, request: Request<'_>, cx: &mut Context<'_>) -> Outcome {
        let progress = self.0.act(element, request, cx)?;
        if progress == Progress::Done {
            let Some(element) = downcast(element) else { return foreign() };
            self.1(element, cx);
        }
        Ok(progress)
    }
}

/// The write of an argument: its position and keyword.
struct Argument(Action, Option<usize>, &'static str);

impl Act for Argument {
    fn act(&self, element: &mut dyn Element, request: Request<'_>, cx: &mut Context<'_>) -> Outcome {
        let Argument(write, position, keyword) = self;
        let value = request.value;
        let progress = write.act(element, request, cx).map_err(|error| match error {
            HandlerError::Value(text) => HandlerError::Arguments(format!("{keyword}: {text}")),
            HandlerError::Failed(text) => HandlerError::Arguments(text),
            other => other,
        })?;
        if progress == Progress::Done {
            cx.set_argument(*position, keyword, value);
        }
        Ok(progress)
    }
}

/// An action with one text for all errors.
struct Excused(Action, &'static str);

impl Act for Excused {
    fn act(&self, element: &mut dyn Element, request: Request<'_>, cx: &mut Context<'_>) -> Outcome {
        self.0.act(element, request, cx).map_err(|_| HandlerError::failed(self.1))
    }
}

/// A handler: its properties, and the functions that read and write it.
///
/// The functions get the element by its own type, which must be that of the declaring element.
pub struct Handler {
    info: HandlerInfo,
    read: Option<Action>,
    write: Option<Action>,
}

/// Converts an action on elements of one type to an action on any element.
fn action<E: Element>(
    run: impl Fn(&mut E, Request<'_>, &mut Context<'_>) -> Outcome + 'static,
) -> Option<Action> {
    Some(Box::new(Typed(run, PhantomData)))
}

fn downcast<E: Element>(element: &mut dyn Element) -> Option<&mut E> {
    let element: &mut dyn Any = element;
    element.downcast_mut()
}

// Outside of the many functions that need it.
#[cold]
#[inline(never)]
fn foreign() -> Outcome {
    Err(HandlerError::failed("declared for another type of element"))
}

impl Handler {
    fn new(name: impl Into<Cow<'static, str>>, read: Option<Action>, write: Option<Action>) -> Self {
        let mut info = HandlerInfo::new(name.into());
        (info.readable, info.writable) = (read.is_some(), write.is_some());
        Self { info, read, write }
    }

    /// A value to read, as text.
    pub fn read<E: Element, T: Display>(
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&E) -> T + 'static,
    ) -> Self {
        let read =
            move |e: &mut E, request: Request<'_>, _: &mut Context<'_>| Ok(request.pieces.show(&value(e)));
        Self::new(name, action(read), None)
    }

    /// A value to read that depends on the router, or on parameters ([`Handler::parameters`]).
    pub fn read_with<E: Element>(
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&mut E, &str, &mut Context<'_>) -> Result<String, HandlerError> + 'static,
    ) -> Self {
        let read = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            value(e, request.value, cx).map(|text| request.pieces.whole(text))
        };
        Self::new(name, action(read), None)
    }

    /// A possibly long value to read. Each call adds about [`LINES`](crate::LINES) lines to [`Pieces`] and
    /// stores its position there. Packets pass between calls, so anything may change.
    pub fn read_in_pieces<E: Element>(
        name: impl Into<Cow<'static, str>>,
        read: impl Fn(&mut E, &str, &mut Pieces, &mut Context<'_>) -> Outcome + 'static,
    ) -> Self {
        let read = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            read(e, request.value, request.pieces, cx)
        };
        Self::new(name, action(read), None)
    }

    /// A field to read and write: read as text, written as an argument of its type.
    pub fn field<E: Element, T: Arg + Display>(
        name: impl Into<Cow<'static, str>>,
        field: impl Fn(&mut E) -> &mut T + Copy + 'static,
    ) -> Self {
        Self::read_in_pieces(name, move |e: &mut E, _, pieces, _| Ok(pieces.show(field(e)))).writes(
            move |e: &mut E, value, cx| {
                *field(e) = cx.parse(value)?;
                Ok(())
            },
        )
    }

    /// A value to write.
    pub fn write<E: Element>(
        name: impl Into<Cow<'static, str>>,
        write: impl Fn(&mut E, &str, &mut Context<'_>) -> Result<(), HandlerError> + 'static,
    ) -> Self {
        Self::new(name, None, None).writes(write)
    }

    /// An action; the written value is ignored.
    pub fn button<E: Element>(
        name: impl Into<Cow<'static, str>>,
        press: impl Fn(&mut E, &mut Context<'_>) + 'static,
    ) -> Self {
        let write = move |e: &mut E, _: &str, cx: &mut Context<'_>| {
            press(e, cx);
            Ok(())
        };
        Self::write(name, write).ignores_value()
    }

    /// The handler `*`, for all names that the element does not declare. `call` also gets the name, and
    /// whether it is a write.
    pub fn others<E: Element>(
        call: impl Fn(&mut E, (&str, bool), &str, &mut Context<'_>) -> Result<String, HandlerError>
        + Copy
        + 'static,
    ) -> Self {
        let read = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            call(e, (request.name, false), request.value, cx).map(|text| request.pieces.whole(text))
        };
        let write = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            call(e, (request.name, true), request.value, cx).map(|_| Progress::Done)
        };
        Self::new("*", action(read), action(write))
    }

    /// It can be written as well.
    pub fn writes<E: Element>(
        self,
        write: impl Fn(&mut E, &str, &mut Context<'_>) -> Result<(), HandlerError> + 'static,
    ) -> Self {
        self.writes_in_pieces(move |e: &mut E, value, _, cx| write(e, value, cx).map(|()| Progress::Done))
    }

    /// Makes it writable in steps, for long operations, as in [`Handler::read_in_pieces`].
    pub fn writes_in_pieces<E: Element>(
        mut self,
        write: impl Fn(&mut E, &str, &mut Pieces, &mut Context<'_>) -> Outcome + 'static,
    ) -> Self {
        let write = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            write(e, request.value, request.pieces, cx)
        };
        self.write = action(write);
        self.info.writable = true;
        self
    }

    /// A value to write in pieces, likewise.
    pub fn write_in_pieces<E: Element>(
        name: impl Into<Cow<'static, str>>,
        write: impl Fn(&mut E, &str, &mut Pieces, &mut Context<'_>) -> Outcome + 'static,
    ) -> Self {
        Self::new(name, None, None).writes_in_pieces(write)
    }

    /// A function to call after a successful write.
    pub fn then<E: Element>(mut self, act: impl Fn(&mut E, &mut Context<'_>) + 'static) -> Self {
        self.write = self.write.map(|write| Box::new(Then(write, act, PhantomData)) as Action);
        self
    }

    /// Its value is an argument of the element: a write changes `config`. `position` is the argument's, if it may
    /// stand there without its keyword.
    pub fn argument(mut self, position: Option<usize>, keyword: &'static str) -> Self {
        self.write = self.write.map(|write| Box::new(Argument(write, position, keyword)) as Action);
        self
    }

    /// The error text of a failed write, for any invalid value.
    pub fn error(mut self, text: &'static str) -> Self {
        self.write = self.write.map(|write| Box::new(Excused(write, text)) as Action);
        self
    }

    /// Reading takes parameters.
    pub fn parameters(mut self) -> Self {
        self.info.parameters = true;
        self
    }

    /// Raw: no newline is appended to the value read.
    pub fn raw(mut self) -> Self {
        self.info.raw = true;
        self
    }

    /// Its value changes rarely.
    pub fn calm(mut self) -> Self {
        self.info.calm = true;
        self
    }

    /// Reading it is expensive.
    pub fn expensive(mut self) -> Self {
        self.info.expensive = true;
        self
    }

    /// The written value is ignored.
    pub fn ignores_value(mut self) -> Self {
        self.info.button = true;
        self
    }

    /// It is a Boolean.
    pub fn checkbox(mut self) -> Self {
        self.info.checkbox = true;
        self
    }

    /// User interfaces need not show it.
    pub fn uncommon(mut self) -> Self {
        self.info.uncommon = true;
        self
    }

    /// It is there for old configurations only.
    pub fn deprecated(mut self) -> Self {
        self.info.deprecated = true;
        self
    }

    /// It can be read and written from inside the configuration only.
    pub fn private(mut self) -> Self {
        (self.info.read_private, self.info.write_private) = (true, true);
        self
    }

    /// Its name and properties.
    pub fn info(&self) -> &HandlerInfo {
        &self.info
    }

    /// Adds the properties of the runtime's handler of the same name, which this one overrides.
    pub(crate) fn combine(&mut self, other: &HandlerInfo) {
        self.info.combine(other);
    }

    /// Whether it has a function for reading, or for writing.
    pub(crate) fn answers(&self, write: bool) -> bool {
        if write { self.write.is_some() } else { self.read.is_some() }
    }

    /// Reads or writes it, or performs the next step of that, under the name used by the caller.
    pub(crate) fn call(
        &self,
        element: &mut dyn Element,
        (name, value, write): (&str, &str, bool),
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        match if write { &self.write } else { &self.read } {
            Some(action) => action.act(element, Request { name, value, pieces }, cx),
            None => Err(HandlerError::missing(name)),
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

#[cfg(test)]
mod tests;
