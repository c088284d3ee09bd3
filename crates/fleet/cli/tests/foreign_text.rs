//! Text that others wrote, as the program prints it: nothing that a terminal would obey.

use crate::lab::Lab;

/// A name with an escape sequence of terminals, one in a single letter of C1, and a mark that reverses letters.
const HOSTILE: &str = "x\u{1b}[2J\u{9b}2J\u{202e}y";

/// What acts on a terminal or changes the order of letters.
fn acts(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t') || letter == '\u{202e}'
}

#[test]
fn messages_about_click_configurations_are_printable() {
    let lab = Lab::new("foreign-click", "");
    let wrong = [
        format!("a :: {HOSTILE}; a -> ;"),
        format!("a :: Idle -> Discard({HOSTILE});"),
        format!("require({HOSTILE});"),
        format!("Idle -> \"{HOSTILE}\" -> Discard;"),
        format!("a :: Idle; a -> Print({HOSTILE}, {HOSTILE}) -> Discard; a[9] -> Discard; $ {HOSTILE}"),
    ];
    let tools = ["click", "click-align", "click-flatten", "click-undead", "click-combine", "click-xform"];
    for text in &wrong {
        std::fs::write(lab.folder.join("wrong.click"), text).unwrap();
        for tool in tools {
            let output = lab.run(&[tool, "wrong.click"]);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!errors.contains(acts), "{tool}: {text:?}: {errors:?}");
        }
    }
    let name = format!("no{HOSTILE}.click");
    for words in
        [vec!["click", &name], vec!["click", "-h", HOSTILE, "-qe", "Idle"], vec!["click-flatten", &name]]
    {
        let errors = lab.fails(&words).1;
        assert!(errors.contains("\\u{9b}2J\\u{202e}y") && !errors.contains(acts), "{words:?}: {errors:?}");
    }
}

#[test]
fn what_click_s_elements_say_is_printable() {
    let lab = Lab::new("foreign-chatter", "");
    let text = format!("Message(\"{HOSTILE}\"); DriverManager(print \"{HOSTILE}\", stop)");
    let output = lab.run(&["click", "-e", &text]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.contains("x\\u{1b}[2J\\u{9b}2J\\u{202e}y"), "{errors:?}");
    assert!(!errors.contains(acts), "{errors:?}");
}

#[test]
fn kernels_that_would_get_the_frames_too_are_warned_of() {
    if !crate::lab::net::can_create_taps() {
        return;
    }
    let lab = Lab::new("foreign-sniffer", "");
    let output = lab.run(&["click", "-qe", "FromDevice(lo, SNIFFER false) -> Discard"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("SNIFFER false has no effect: the kernel receives the frames of lo too"),
        "{errors}"
    );
    let output = lab.run(&["click", "-qe", "FromDevice(lo, SNIFFER true) -> Discard"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("SNIFFER"));
}
