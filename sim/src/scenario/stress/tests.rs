use super::*;

/// Seeds in the short form; the long one has twenty times as many.
const SEEDS: u64 = 300;

fn seeds() -> u64 {
    let is_long = std::env::var_os("USERSWAP_TEST_LONG").is_some_and(|value| value == "1");
    if is_long { SEEDS * 20 } else { SEEDS }
}

#[test]
fn no_seed_loses_a_page_and_every_path_is_taken() {
    let mut total = Coverage::default();
    for seed in 0..seeds() {
        match run_case(seed, Limit::default()) {
            Ok(found) => total.add(&found),
            Err(_) => panic!("{}", explain(seed, Limit::default())),
        }
    }
    let Coverage { events, swapped_in, swapped_out, direct, io_errors, lost, .. } = total;
    assert!(events > 100_000 && swapped_in > 1000 && swapped_out > 1000, "{total:?}");
    assert!(direct > 100 && io_errors > 100 && lost > 10, "{total:?}");
    assert!(
        total.stalls > 0 && total.swapoffs_done > 10 && total.swapoffs_failed > 10,
        "{total:?}"
    );
}

#[test]
fn a_defect_is_found_and_cut_down_to_a_case_that_fails_again() {
    use crate::memory::BELIEVES_EVERY_WRITE;
    BELIEVES_EVERY_WRITE.set(true);
    let seed = (0..1000).find(|seed| run_case(*seed, Limit::default()).is_err());
    let seed = seed.expect("one of a thousand cases has a write that fails");
    let limit = shrink(seed, Limit::default());
    let said = explain(seed, Limit::default());
    assert!(run_case(seed, limit).is_err(), "{said}");
    BELIEVES_EVERY_WRITE.set(false);
    assert!(run_case(seed, limit).is_ok(), "without the defect the same case passes: {said}");
    assert!(limit.tasks == 1 && limit.swapoffs == 0 && limit.steps < 400, "{said}");
    assert!(said.contains("--set limit.tasks=1 "), "{said}");
}
