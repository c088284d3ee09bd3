//! The examples of docs/nic.md: the fabric files, and libvirt's domain, which `virt-xml-validate` checks if it is
//! there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use ringway_control::file::{Host, read};
use std::path::PathBuf;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/nic.md");

/// The first block of this language.
fn block(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

#[test]
fn the_fabric_files_are_good() {
    let base = Some(PathBuf::from("/run/ringway"));
    let host = Host { cores: vec![0, 1], base, ..Host::default() };
    let files: Vec<&str> = PAGE.split("\n```toml\n").skip(1).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        let read = read("lab.toml", file.split_once("\n```").unwrap().0, &host);
        assert!(read.is_ok(), "{}", read.err().unwrap().render(true));
    }
}

#[test]
fn the_domain_is_valid() {
    let domain = block("xml").replace("  ...\n", "");
    let (_, rest) = domain.split_once("value='{").unwrap();
    let device = format!("{{{}}}", rest.split_once("}'/>").unwrap().0);
    let device: serde_json::Value = serde_json::from_str(&device).unwrap();
    assert_eq!((&device["driver"], &device["socket"]["type"]), (&"vfio-user-pci".into(), &"unix".into()));
    let file = std::env::temp_dir().join(format!("ringway-domain-{}.xml", std::process::id()));
    std::fs::write(&file, &domain).unwrap();
    let checked = Command::new("virt-xml-validate").arg(&file).arg("domain").output();
    std::fs::remove_file(&file).unwrap();
    match checked {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => eprintln!("virt-xml-validate is not installed: the domain's form is not checked"),
    }
}
