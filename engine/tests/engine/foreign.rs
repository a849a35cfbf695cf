//! What a program has mapped over managed memory (a file in a reservation, as the JVM, V8 and loaders do) stays the
//! kernel's: an engine starts around it, and a forked child has it.
use crate::support::*;
use std::io::Write;
use std::sync::Arc;
use userswap::Engine;

/// Sixteen pages of a file over the arena, from a page on; what the program does before its engine starts.
fn map_file(arena: &Arena, range: PageRange) -> u8 {
    let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
    let byte = 0xA7;
    file.write_all(&vec![byte; range.count as usize * PAGE]).unwrap();
    cover_with(&file, arena.address_of(range.first), range.count as usize);
    arena.set_foreign(range);
    byte
}

fn is_as_mapped(arena: &Arena, range: PageRange, byte: u8) -> bool {
    let first = arena.address_of(range.first);
    (0..range.count as usize * PAGE).all(|at| touch(first + at) == byte)
}

fn engages_around_a_file(way: Way) {
    println!("{way:?}");
    let arena =
        Arc::new(Arena::reserve(64 * MIB as u32 / PAGE as u32 * 4, Access::ReadWrite).unwrap());
    let all = arena.allocate(24 * 256, 1).unwrap();
    let file = PageRange { first: all.first + 1000, count: 16 };
    let byte = map_file(&arena, file);
    let before = Pages { address: arena.address_of(all.first), count: 1000 };
    let after = Pages { address: arena.address_of(file.end()), count: 5000 };
    before.fill_all(1);
    after.fill_all(2);
    let mut options = Options::new(16 << 20);
    (options.fault, options.transfer) = way;
    options.swaps.push("mem:128M".parse().unwrap());
    let engine = Engine::engage(arena.clone(), &options).unwrap();
    for _ in 0..2 {
        before.check_all(1);
        after.check_all(2);
        assert!(is_as_mapped(&arena, file, byte));
    }
    let child = || {
        assert!(is_as_mapped(&arena, file, byte), "the child has the file");
        before.check_all(1);
        after.check_all(2);
        before.fill_all(3);
        before.check_all(3);
    };
    join(fork(&engine, child));
    before.check_all(1);
    after.check_all(2);
    assert!(is_as_mapped(&arena, file, byte));
    audit(&engine);
}

#[test]
fn an_engine_starts_and_forks_around_what_the_program_has_mapped() {
    alone(60, || WAYS.into_iter().for_each(engages_around_a_file));
}
