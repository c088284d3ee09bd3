/// C's `isspace`, which unlike Rust's ASCII whitespace includes the vertical tab.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 0x09..=0x0d)
}

/// The position of the first byte at or after `at` that is not a space.
pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).copied().is_some_and(is_space) {
        at += 1;
    }
    at
}

/// Whether a comment begins at `at`.
pub(crate) fn comment_at(text: &[u8], at: usize) -> bool {
    text.get(at) == Some(&b'/') && matches!(text.get(at + 1), Some(b'/' | b'*'))
}

/// The position after the comment at `at`; a line comment includes its newline.
pub(crate) fn skip_comment(text: &[u8], at: usize) -> usize {
    let body = text.get(at + 2..).unwrap_or_default();
    let length = if text.get(at + 1) == Some(&b'/') {
        match body.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(end) if body[end..].starts_with(b"\r\n") => end + 2,
            Some(end) => end + 1,
            None => body.len(),
        }
    } else {
        body.windows(2).position(|pair| pair == b"*/").map_or(body.len(), |end| end + 2)
    };
    (at + 2 + length).min(text.len())
}

/// The position after the backslash escape at `at`.
pub(crate) fn skip_backslash(text: &[u8], at: usize) -> usize {
    match text.get(at + 1) {
        None => at + 1,
        Some(b'<') => {
            let mut at = at + 2;
            while let Some(&byte) = text.get(at) {
                if byte == b'>' {
                    return at + 1;
                }
                at = if comment_at(text, at) { skip_comment(text, at) } else { at + 1 };
            }
            at
        }
        Some(b'\r') if text.get(at + 2) == Some(&b'\n') => at + 3,
        Some(_) => at + 2,
    }
}

/// The position after the double-quoted string at `at`, or the end if it is not closed.
pub fn skip_double_quoted(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at = skip_backslash(text, at),
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The position after the single-quoted string at `at`, or the end if it is not closed.
pub(crate) fn skip_single_quoted(text: &[u8], at: usize) -> usize {
    let body = text.get(at + 1..).unwrap_or_default();
    body.iter().position(|&byte| byte == b'\'').map_or(text.len(), |end| at + end + 2)
}

/// The position of the first byte at or after `at` that is neither space nor comment.
pub fn skip_comments(text: &[u8], mut at: usize) -> usize {
    loop {
        at = skip_space(text, at);
        if !comment_at(text, at) {
            return at;
        }
        at = skip_comment(text, at);
    }
}

/// The position after the item at `at`: a quoted string, a `\<..>`, or one byte.
pub(crate) fn skip_item(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b'"') => skip_double_quoted(text, at),
        Some(b'\'') => skip_single_quoted(text, at),
        Some(b'\\') if text.get(at + 1) == Some(&b'<') => skip_backslash(text, at),
        _ => at + 1,
    }
}
