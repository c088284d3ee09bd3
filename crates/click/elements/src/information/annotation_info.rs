//! `AnnotationInfo(NAME OFFSET SIZE, ..., CHECK_OVERLAP NAMES)`: names annotations.
//!
//! No ports, no handlers. The names are valid in its compound element and in those inside.
//!
//! Arguments: in each, a name, the annotation's offset and its size in bytes (1 by default); and
//! - `CHECK_OVERLAP`: names of annotations that must not overlap, separated by spaces.
use ringway_click::arg::{Annotation, Arg, NameKind, Raw, Scope};
use ringway_click::element::ANNOTATION_BYTES;
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class =
    Class::new("AnnotationInfo", || Box::<AnnotationInfo>::default()).phase(Class::INFO).reach(Reach::Each);

#[derive(Debug, Default)]
pub struct AnnotationInfo;

/// An annotation's name, offset and length in bytes.
fn parse(text: &str, scope: &Scope) -> Result<(String, u8, u8), String> {
    let words = config::split_words(text);
    let (name, place) = match words.as_slice() {
        [name, offset] => (name, (offset.as_str(), "1")),
        [name, offset, size] => (name, (offset.as_str(), size.as_str())),
        _ => return Err(format!("expected 'NAME OFFSET SIZE', not '{text}'")),
    };
    let number = |text: &str| u8::parse(text, scope).map_err(|error| format!("{name}: {error}"));
    let (offset, size) = (number(place.0)?, number(place.1)?);
    if size == 0 || usize::from(offset) + usize::from(size) > ANNOTATION_BYTES {
        return Err(format!("{name}: annotations have {ANNOTATION_BYTES} bytes"));
    }
    Ok((name.clone(), offset, size))
}

/// Reports two names whose annotations share bytes.
fn overlap(names: &str, scope: &Scope) -> Result<(), String> {
    let mut seen: Vec<(String, Annotation)> = Vec::new();
    for name in config::split_words(names) {
        let own = Annotation::parse(&name, scope).map_err(|_| format!("no annotation called '{name}'"))?;
        let end = |annotation: &Annotation| annotation.offset + annotation.size.max(1);
        let shared = |(_, other): &&(String, Annotation)| own.offset < end(other) && other.offset < end(&own);
        if let Some((other, _)) = seen.iter().find(shared) {
            return Err(format!("annotations '{other}' and '{name}' overlap"));
        }
        seen.push((name, own));
    }
    Ok(())
}

impl Element for AnnotationInfo {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut checked = Raw::default();
        args.read("CHECK_OVERLAP", &mut checked);
        for argument in args.take_rest() {
            match parse(&argument, args.scope()) {
                Ok((name, _, _)) if Annotation::parse(&name, args.scope()).is_ok_and(|own| own.size > 0) => {
                    args.error(format!("annotation '{name}' is known already"));
                }
                Ok((name, offset, size)) => {
                    args.scope().names().define(NameKind::Annotation, &name, cx.name(), &[offset, size]);
                }
                Err(error) => args.error(error),
            }
        }
        if let Err(error) = overlap(&checked.0, args.scope()) {
            args.error(error);
        }
        args.complete()
    }
}
