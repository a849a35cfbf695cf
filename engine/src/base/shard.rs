//! Shards: equal parts of a table, of which a thread uses one, so that threads seldom wait for each other's locks.
use std::sync::atomic::{AtomicUsize, Ordering};

/// For the CPUs of a small machine. What a heap has begun in each is the price: a page or two of every size in use.
pub const SHARDS: usize = 8;

thread_local! {
    static MINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: any shard is right.
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

/// The shard of the calling thread, the same for as long as it lives: dealt out in turn. Not for signal handlers.
pub fn mine() -> usize {
    MINE.with(|mine| *mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_shard_and_others_have_others() {
        let shards: Vec<_> = (0..SHARDS)
            .map(|_| std::thread::spawn(|| (mine(), mine())).join().expect("it only looks"))
            .collect();
        assert!(shards.iter().all(|(first, again)| first == again && *first < SHARDS));
        assert!(shards.iter().any(|(shard, _)| *shard != shards[0].0), "{shards:?}");
    }
}
