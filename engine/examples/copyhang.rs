#![allow(unsafe_code, missing_docs)]
use std::sync::atomic::*;
use userswap::options::*;
fn main() {
    let engine = userswap::Builder::new(16 << 20).transfer(Transfer::Copy).build().unwrap();
    let mut region = engine.map(48 << 20).unwrap();
    let pages = region.len() / 4096;
    let p = region.as_mut_slice().as_mut_ptr() as usize;
    let done = AtomicU32::new(0);
    std::thread::scope(|s| {
        for t in 0..4usize { let done=&done; s.spawn(move || {
            let mut r = t as u64 + 77;
            for _ in 0..20000 { r ^= r << 13; r ^= r >> 7; r ^= r << 17;
                let page = (r as usize % (pages/4)) * 4 + t;
                let w = unsafe { &*((p + page*4096) as *const AtomicU64) };
                w.fetch_add(1, Ordering::Relaxed);
            }
            done.fetch_add(1, Ordering::Relaxed);
        }); }
        let e=&engine; let done=&done;
        s.spawn(move || { for _ in 0..5 { std::thread::sleep(std::time::Duration::from_secs(1)); if done.load(Ordering::Relaxed)==4 {break}
          println!("{:?} {:?}", e.usage(), e.counters());
          let mut h = std::collections::BTreeMap::new();
          for p in 0..pages as u32 { *h.entry(format!("{:?}", e.core().pages.state(p)).split(' ').next().unwrap().to_string()).or_insert(0) += 1; }
          println!("{h:?} lists {:?}", e.core().nodes[0].lock().lists.len(userswap_policy::lru::ListId::Resident));
        } if done.load(Ordering::Relaxed)!=4 {std::process::exit(1)} });
    });
}
