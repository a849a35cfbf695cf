use userswap_sim::scenario::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap();
    let sets: Vec<_> = args.map(|a| a.parse().unwrap()).collect();
    let t = std::time::Instant::now();
    let checking = if std::env::var("CHECK").is_ok() { Checking::EveryEvent } else { Checking::Off };
    match run(&name, &sets, &Options { seed: std::env::var("SEED").map_or(1, |s| s.parse().unwrap()), checking }) {
        Ok(r) => { println!("{r}"); let e = t.elapsed().as_secs_f64(); println!("{e:.2} s, {:.2} Mevents/s", r.events as f64 / e / 1e6) }
        Err(e) => println!("{e}"),
    }
}
