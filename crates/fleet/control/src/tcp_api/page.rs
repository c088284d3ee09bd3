//! The page: files that anybody may load, since nothing of the fabric is in them. What it shows it asks the API for,
//! with a token.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderName, Method};
use axum::routing::get;

/// The page's usual address, that of this host alone.
pub const PAGE_ADDRESS: &str = "127.0.0.1:9466";

/// Paths, types and contents. `page/` has their sources; `npm run build` there writes them.
const FILES: [(&str, &str, &[u8]); 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../../../../page/dist/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_bytes!("../../../../../page/dist/page.js")),
    ("/layout.js", "text/javascript; charset=utf-8", include_bytes!("../../../../../page/dist/layout.js")),
    ("/page.css", "text/css; charset=utf-8", include_bytes!("../../../../../page/dist/page.css")),
];

/// Attack: a name in the fabric that a browser takes for a program. Only the page's own files are run, and only its own
/// host is asked.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; \
    img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Whether a request is for one of the files, for which nobody needs a token.
pub(super) fn is_file(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && FILES.iter().any(|(file, _, _)| *file == path)
}

/// Adds the files to `router`.
pub(super) fn with_files(router: Router) -> Router {
    FILES.into_iter().fold(router, |router, (path, kind, content)| {
        let headers: [(HeaderName, &str); 3] =
            [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "no-cache")];
        router.route(path, get(async move || (headers, content)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_need_no_token() {
        for path in ["/", "/page.js", "/layout.js", "/page.css"] {
            assert!(is_file(&Method::GET, path) && !is_file(&Method::POST, path), "{path}");
        }
        for path in ["", "//", "/v1/ports", "/page.js/", "/../", "/PAGE.JS", "/page.js?x"] {
            assert!(!is_file(&Method::GET, path), "{path}");
        }
    }

    #[test]
    fn the_files_have_no_text_that_the_policy_forbids() {
        let text = String::from_utf8_lossy(FILES[0].2);
        assert!(
            text.contains("src=\"/page.js\"") && !text.contains("style=") && !text.contains("<style"),
            "{text}"
        );
        assert_eq!(text.matches("<script").count(), 1);
    }
}
