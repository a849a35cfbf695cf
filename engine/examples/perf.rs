use std::time::Instant;
use userswap::options::FaultMode;
fn main() {
    let mode = if std::env::args().nth(1).as_deref() == Some("signal") { FaultMode::Signal } else { FaultMode::Thread };
    let engine = userswap::Builder::new(512 << 20).fault(mode).build().unwrap();
    let mut region = engine.map(2 << 30).unwrap();
    let words = region.as_typed_mut::<u64>();
    let step = if std::env::args().nth(2).is_some() { 512 } else { 1 };
    for pass in 0..3 {
        let t = Instant::now();
        let mut i = 0;
        while i < words.len() { if pass > 0 { assert_eq!(words[i], i as u64); } words[i] = i as u64; i += step; }
        println!("pass {pass}: {:.3}", t.elapsed().as_secs_f64());
    }
    println!("{:?}\n{:?}", engine.counters(), engine.usage());
}
