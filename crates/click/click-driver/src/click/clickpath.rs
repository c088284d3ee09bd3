//! Files that configurations name, along Click's search path.

/// Searches a file in `given`, or else in `CLICKPATH`: in each directory, first below `kind`, then directly.
/// An empty entry, or an empty path, stands for `default`.
pub fn find(given: Option<&str>, name: &str, kind: &str, default: &str) -> Option<String> {
    if name.starts_with('/') {
        return Some(name.into());
    }
    let path = given.map(String::from).or_else(|| std::env::var("CLICKPATH").ok());
    let path = path.unwrap_or_else(|| ":".into());
    path.split(':').find_map(|directory| {
        let places = if directory.is_empty() {
            vec![format!("{default}/{name}")]
        } else {
            let directory = directory.trim_end_matches('/');
            let in_kind = |inner: &str| format!("{directory}/{kind}/{inner}{name}");
            vec![in_kind("click/"), in_kind(""), format!("{directory}/{name}")]
        };
        places.into_iter().find(|place| std::path::Path::new(place).exists())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clickpath_directories_are_searched_in_order() {
        let folder = std::env::temp_dir().join(format!("ringway-clickpath-{}", std::process::id()));
        for part in ["a/conf/click", "a/conf", "b"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let name = |part: &str| folder.join(part).to_string_lossy().into_owned();
        let path = format!("{}:{}", name("a"), name("b"));
        let find = |path: &str, file: &str| find(Some(path), file, "conf", "/nowhere");
        for file in ["b/x", "a/conf/x", "a/conf/click/x"] {
            std::fs::write(folder.join(file), "").unwrap();
            assert_eq!(find(&path, "x"), Some(name(file)));
        }
        assert_eq!(find(&path, "y"), None);
        assert_eq!(find(&path, "/etc/x"), Some("/etc/x".into()));
        assert_eq!(super::find(Some(":"), "x", "conf", &name("b")), Some(name("b/x")));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
