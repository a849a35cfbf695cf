//! Prints userswap.h: `cargo run -p userswap-capi --example header >capi/include/userswap.h`.

/// The header that the source says.
pub fn header() -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{root}/cbindgen.toml")).expect("it is TOML");
    let header = cbindgen::Builder::new().with_crate(root).with_config(config).generate();
    let mut text = Vec::new();
    header.expect("the source can be read").write(&mut text);
    let text = String::from_utf8(text).expect("the source is UTF-8");
    // What Rust calls safety goes without saying in C: arguments are what their types and names say.
    let mut in_safety = false;
    let lines = text.lines().filter(|line| {
        in_safety = line.starts_with("//") && (in_safety || *line == "// # Safety");
        !in_safety
    });
    let header = lines.fold(String::new(), |header, line| header + line + "\n");
    // The empty comment that stood before it.
    header.replace("\n//\n", "\n")
}

#[allow(dead_code, reason = "a test takes this file in")]
fn main() {
    print!("{}", header());
}
