//! Handlers: named values and actions of an element, each declared once.
//!
//! ```text
//! fn handlers(&self) -> Vec<Handler> {
//!     [
//!         Handler::read("length", |e: &Self| e.packets.len()),
//!         Handler::counter("drops", |e: &mut Self| &mut e.drops),
//!         Handler::field("limit", |e: &mut Self| &mut e.limit).calm(),
//!         Handler::field("active", |e: &mut Self| &mut e.active).checkbox().then(Self::go_on),
//!         Handler::button("reset_counts", |e: &mut Self, _| e.drops = 0),
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

    /// Copies what it reads from one element to another of the same type, if it is a counter.
    fn carry(&self, _from: &mut dyn Element, _to: &mut dyn Element) {}
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

/// Reads a counter.
struct Count<E, F>(F, PhantomData<fn(&mut E)>);

impl<E: Element, F: Fn(&mut E) -> &mut [u64]> Act for Count<E, F> {
    fn act(&self, element: &mut dyn Element, request: Request<'_>, _: &mut Context<'_>) -> Outcome {
        match downcast(element) {
            Some(element) => Ok(request.pieces.show(&self.0(element).iter().sum::<u64>())),
            None => foreign(),
        }
    }

    fn carry(&self, from: &mut dyn Element, to: &mut dyn Element) {
        if let (Some(from), Some(to)) = (downcast(from), downcast(to)) {
            self.0(to).iter_mut().zip(self.0(from)).for_each(|(to, from)| *to = *from);
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
// A pointer: lists of handlers are built by hundreds of functions, which would move all parts in each call.
pub struct Handler(Box<Parts>);

struct Parts {
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

// Once a type, not in each of its handlers.
#[inline(never)]
fn downcast<E: Element>(element: &mut dyn Element) -> Option<&mut E> {
    element.downcast_mut()
}

// Outside of the many functions that need it.
#[cold]
#[inline(never)]
fn foreign() -> Outcome {
    Err(HandlerError::failed("declared for another type of element"))
}

// Outside of the many functions that need it.
#[inline(never)]
fn whole(text: Result<String, HandlerError>, pieces: &mut Pieces) -> Outcome {
    text.map(|text| pieces.whole(text))
}

#[inline(never)]
fn done(result: Result<(), HandlerError>) -> Outcome {
    result.map(|()| Progress::Done)
}

#[inline(never)]
fn set<T: Arg>(field: &mut T, value: &str, cx: &Context<'_>) -> Outcome {
    *field = cx.parse(value)?;
    Ok(Progress::Done)
}

impl Handler {
    #[inline(never)]
    fn new(name: Cow<'static, str>, read: Option<Action>, write: Option<Action>) -> Self {
        let mut info = HandlerInfo::new(name);
        (info.readable, info.writable) = (read.is_some(), write.is_some());
        Self(Box::new(Parts { info, read, write }))
    }

    #[inline(never)]
    fn with_write(mut self, write: Option<Action>) -> Self {
        self.0.write = write;
        self.0.info.writable = true;
        self
    }

    /// A value to read, as text.
    pub fn read<E: Element, T: Display>(
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&E) -> T + 'static,
    ) -> Self {
        let read =
            move |e: &mut E, request: Request<'_>, _: &mut Context<'_>| Ok(request.pieces.show(&value(e)));
        Self::new(name.into(), action(read), None)
    }

    /// A counter to read. It goes on when the element's configuration is changed, and when another router takes over
    /// ([`Element::take_state`]).
    pub fn counter<E: Element>(
        name: impl Into<Cow<'static, str>>,
        field: impl Fn(&mut E) -> &mut u64 + 'static,
    ) -> Self {
        Self::counters(name, move |e: &mut E| core::slice::from_mut(field(e)))
    }

    /// Several counters, such as those of dropped packets by reason, whose sum is read. They go on as that of
    /// [`Handler::counter`].
    pub fn counters<E: Element>(
        name: impl Into<Cow<'static, str>>,
        fields: impl Fn(&mut E) -> &mut [u64] + 'static,
    ) -> Self {
        Self::new(name.into(), Some(Box::new(Count(fields, PhantomData))), None)
    }

    /// A value to read that depends on the router, or on parameters ([`Handler::parameters`]).
    pub fn read_with<E: Element>(
        name: impl Into<Cow<'static, str>>,
        value: impl Fn(&mut E, &str, &mut Context<'_>) -> Result<String, HandlerError> + 'static,
    ) -> Self {
        let read = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            whole(value(e, request.value, cx), request.pieces)
        };
        Self::new(name.into(), action(read), None)
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
        Self::new(name.into(), action(read), None)
    }

    /// A field to read and write: read as text, written as an argument of its type.
    pub fn field<E: Element, T: Arg + Display>(
        name: impl Into<Cow<'static, str>>,
        field: impl Fn(&mut E) -> &mut T + Copy + 'static,
    ) -> Self {
        Self::read_in_pieces(name, move |e: &mut E, _, pieces, _| Ok(pieces.show(field(e))))
            .writes_in_pieces(move |e: &mut E, value, _, cx| set(field(e), value, cx))
    }

    /// A value to write.
    pub fn write<E: Element>(
        name: impl Into<Cow<'static, str>>,
        write: impl Fn(&mut E, &str, &mut Context<'_>) -> Result<(), HandlerError> + 'static,
    ) -> Self {
        Self::new(name.into(), None, None).writes(write)
    }

    /// An action; the written value is ignored.
    pub fn button<E: Element>(
        name: impl Into<Cow<'static, str>>,
        press: impl Fn(&mut E, &mut Context<'_>) + 'static,
    ) -> Self {
        let write = move |e: &mut E, _: &str, _: &mut Pieces, cx: &mut Context<'_>| {
            press(e, cx);
            Ok(Progress::Done)
        };
        Self::write_in_pieces(name, write).ignores_value()
    }

    /// The handler `*`, for all names that the element does not declare. `call` also gets the name, and
    /// whether it is a write.
    pub fn others<E: Element>(
        call: impl Fn(&mut E, (&str, bool), &str, &mut Context<'_>) -> Result<String, HandlerError>
        + Copy
        + 'static,
    ) -> Self {
        let read = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            whole(call(e, (request.name, false), request.value, cx), request.pieces)
        };
        let write = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            call(e, (request.name, true), request.value, cx).map(|_| Progress::Done)
        };
        Self::new("*".into(), action(read), action(write))
    }

    /// The handler can be written as well.
    pub fn writes<E: Element>(
        self,
        write: impl Fn(&mut E, &str, &mut Context<'_>) -> Result<(), HandlerError> + 'static,
    ) -> Self {
        self.writes_in_pieces(move |e: &mut E, value, _, cx| done(write(e, value, cx)))
    }

    /// Makes it writable in steps, for long operations, as in [`Handler::read_in_pieces`].
    pub fn writes_in_pieces<E: Element>(
        self,
        write: impl Fn(&mut E, &str, &mut Pieces, &mut Context<'_>) -> Outcome + 'static,
    ) -> Self {
        let write = move |e: &mut E, request: Request<'_>, cx: &mut Context<'_>| {
            write(e, request.value, request.pieces, cx)
        };
        self.with_write(action(write))
    }

    /// A value to write in pieces, likewise.
    pub fn write_in_pieces<E: Element>(
        name: impl Into<Cow<'static, str>>,
        write: impl Fn(&mut E, &str, &mut Pieces, &mut Context<'_>) -> Outcome + 'static,
    ) -> Self {
        Self::new(name.into(), None, None).writes_in_pieces(write)
    }

    /// A function to call after a successful write.
    pub fn then<E: Element>(mut self, act: impl Fn(&mut E, &mut Context<'_>) + 'static) -> Self {
        match self.0.write.take() {
            Some(write) => self.with_write(Some(Box::new(Then(write, act, PhantomData)))),
            None => self,
        }
    }

    /// Its value is an argument of the element: a write changes `config`. `position` is the argument's, if it may
    /// stand there without its keyword.
    pub fn argument(mut self, position: Option<usize>, keyword: &'static str) -> Self {
        self.0.write = self.0.write.map(|write| Box::new(Argument(write, position, keyword)) as Action);
        self
    }

    /// The error text of a failed write, for any invalid value.
    pub fn error(mut self, text: &'static str) -> Self {
        self.0.write = self.0.write.map(|write| Box::new(Excused(write, text)) as Action);
        self
    }

    /// Reading takes parameters.
    pub fn parameters(mut self) -> Self {
        self.0.info.parameters = true;
        self
    }

    /// Raw: no newline is appended to the value read.
    pub fn raw(mut self) -> Self {
        self.0.info.raw = true;
        self
    }

    /// Its value changes rarely.
    pub fn calm(mut self) -> Self {
        self.0.info.calm = true;
        self
    }

    /// Reading it is expensive.
    pub fn expensive(mut self) -> Self {
        self.0.info.expensive = true;
        self
    }

    /// The written value is ignored.
    pub fn ignores_value(mut self) -> Self {
        self.0.info.button = true;
        self
    }

    /// The value is a Boolean.
    pub fn checkbox(mut self) -> Self {
        self.0.info.checkbox = true;
        self
    }

    /// User interfaces need not show it.
    pub fn uncommon(mut self) -> Self {
        self.0.info.uncommon = true;
        self
    }

    /// The handler is there for old configurations only.
    pub fn deprecated(mut self) -> Self {
        self.0.info.deprecated = true;
        self
    }

    /// The handler can be read and written from inside the configuration only.
    pub fn private(mut self) -> Self {
        (self.0.info.read_private, self.0.info.write_private) = (true, true);
        self
    }

    /// Its name and properties.
    pub fn info(&self) -> &HandlerInfo {
        &self.0.info
    }

    /// Adds the properties of the runtime's handler of the same name, which this one overrides.
    pub(crate) fn combine(&mut self, other: &HandlerInfo) {
        self.0.info.combine(other);
    }

    /// Copies a counter from one element to another of the same type.
    pub(crate) fn carry(&self, from: &mut dyn Element, to: &mut dyn Element) {
        if let Some(read) = &self.0.read {
            read.carry(from, to);
        }
    }

    /// Whether it has a function for reading, or for writing.
    pub(crate) fn answers(&self, write: bool) -> bool {
        if write { self.0.write.is_some() } else { self.0.read.is_some() }
    }

    /// Reads or writes it, or performs the next step of that, under the name used by the caller.
    pub(crate) fn call(
        &self,
        element: &mut dyn Element,
        (name, value, write): (&str, &str, bool),
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        match if write { &self.0.write } else { &self.0.read } {
            Some(action) => action.act(element, Request { name, value, pieces }, cx),
            None => Err(HandlerError::missing(name)),
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.info.fmt(f)
    }
}

#[cfg(test)]
mod tests;
