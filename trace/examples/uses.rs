//! Keeps of a trace what simulations read: `cargo run -p userswap-trace --example uses -- FROM TO`.
//!
//! Which pages left, and which were mapped by a fault that the trace has as well, is more than half of a file.
use std::error::Error;
use std::fs::File;
use std::path::Path;
use userswap_trace::{Kind, Reader, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &names[..] else { return Err("name a trace and a new file".into()) };
    let mut reader = Reader::open(Path::new(from))?;
    let mut writer = Writer::new(File::create_new(to)?, reader.header())?;
    let mut at_ms = 0;
    while let Some(block) = reader.next_block()? {
        at_ms = block.at_ms;
        writer.note_lost(block.lost);
        let is_read = |kind| !matches!(kind, Kind::Back | Kind::Left | Kind::FirstTouch);
        for event in block.events.into_iter().filter(|event| is_read(event.kind)) {
            if writer.push(event) {
                writer.flush(at_ms)?;
            }
        }
    }
    if !reader.has_ended() {
        return Err(format!("{from}: has no end: the program was killed").into());
    }
    writer.end(at_ms)?;
    Ok(())
}
