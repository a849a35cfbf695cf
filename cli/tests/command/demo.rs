//! The demo ends with a picture of its run, as text and as a file.

use std::process::{Command, Output};

fn demo(options: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_userswap"));
    demo.args(["demo", "--ram", "16M", "--no-kernel"]).args(options);
    demo.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn the_picture_shows_what_was_swapped() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("demo.svg");
    let output = demo(&["--svg", file.to_str().unwrap()], &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, picture) =
        said.split_once("no byte wrong\n").expect("the picture comes after the report");
    assert!(!said.contains('\x1b'), "colours without a terminal: {said}");
    let panel = |title: &str| picture.lines().find(|line| line.starts_with(title)).expect(title);
    // The highest value of each is in its first line.
    assert!(panel("RAM").contains("M |") && panel("throughput").contains("MB/s |"), "{picture}");
    let swapped: f64 =
        panel("swap").split_whitespace().nth(1).unwrap().trim_end_matches('M').parse().unwrap();
    assert!(swapped > 16.0, "four budgets in one: {picture}");
    assert!(panel("swap").ends_with(['█', '▇', '▆', '▅', '▄', '▃', '▂', '▁']), "{picture}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("64M of data") && text.matches("<polygon").count() == 3, "{text}");
}

#[test]
fn a_picture_that_cannot_be_written_is_named_before_anything_runs() {
    let output = demo(&["--svg", "/no/such/demo.svg"], &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("--svg /no/such/demo.svg") && errors.lines().count() == 1, "{errors}");
    assert!(output.stdout.is_empty());
}

/// On a terminal of its own, which script(1) makes.
fn on_a_terminal(no_colour: &str) -> String {
    let line = format!("{} demo --ram 16M --no-kernel", env!("CARGO_BIN_EXE_userswap"));
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("NO_COLOR", no_colour);
    let output = script.output().expect("util-linux is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_terminal_gets_colours_unless_it_wants_none() {
    let colour = "\x1b[32m";
    assert!(on_a_terminal("").contains(colour));
    assert!(!on_a_terminal("1").contains(colour));
}
