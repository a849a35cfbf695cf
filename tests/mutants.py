#!/usr/bin/env python3
"""Takes the engine's wires away, one at a time, and expects a test to notice.

Policy decides and has tests of its own; a wire is the place where the engine asks it, or acts on the answer. Each
mutant below cuts one, in a copy of the tree, and runs the tests of a file of engine/tests/engine: wiring.rs if the mutant
names no other. A mutant that they pass has survived: exit status 1.

  tests/mutants.py            all of them
  tests/mutants.py NAME...    some
  tests/mutants.py --check    only whether every wire is still where this list says
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["cargo", "test", "--quiet", "-p", "userswap", "--test", "engine", "--"]
# A mutant that hangs is noticed by the tests' own limits; this is for those that are not.
SECONDS_MAX = 900


class Mutant(NamedTuple):
    name: str
    file: str
    wire: str
    cut: str
    tests: str = "wiring"


MUTANTS = [
    Mutant("moved-page-not-compared", "demotion/batch.rs",
           "let is_same = self.devices.checksum(old) == checksum;",
           "let is_same = checksum > 0;", tests="demotion"),
    Mutant("unsorted-free", "device/cache.rs",
           "free_batch::free_all(self.buffers.free_order(),",
           "free_batch::free_all(FreeOrder::Unsorted,"),
    Mutant("list-lock-at-every-flush", "device/cache.rs",
           "let indexes_used = self.indexes_used.load(Ordering::Relaxed);",
           "let indexes_used = self.table().indexes_used();"),
    Mutant("no-return-buffers", "device/cache.rs",
           "if self.buffers.source() == Source::Devices || span.count as usize >= BATCH {",
           "if self.buffers.source() == Source::Devices || span.count > 0 {"),
    Mutant("no-slot-buffers", "device/cache.rs",
           "        if want as usize >= BATCH {\n            if self.buffers",
           "        if want > 0 {\n            if self.buffers"),
    Mutant("list-of-node-0", "device/mod.rs",
           ".next(near, &mut search))",
           ".next(NodeId(0), &mut search))"),
    Mutant("node-of-sysfs", "device/mod.rs",
           "None => file.and_then(node_of).and_then(|number| topology.find(number)),",
           "None => { let _ = (file.and_then(node_of), topology); None }"),
    Mutant("seeks-of-sysfs", "device/mod.rs",
           "let is_rotational = file.is_some_and(|file| sysfs::is_rotational(topology.sysfs(), file));",
           "let is_rotational = file.is_some_and(|_| false);"),
    Mutant("address-order-everywhere", "fault/readahead.rs",
           "ReadaheadPolicy::Scaling if self.devices.any_rotational() => ReadaheadPolicy::Scaling,",
           ""),
    Mutant("no-throttle", "device/request.rs",
           "let not_before_ns = device.not_before_ns(bytes, near);",
           "let not_before_ns = device.not_before_ns(bytes, near) & 0;"),
    Mutant("fixed-is-scaling", "swapoff/method.rs",
           "SwapoffMethod::Fixed => self.walk(task, Windows::Fixed, between),",
           "SwapoffMethod::Fixed => self.walk(task, Windows::Scaling, between),"),
    Mutant("hits-uncounted", "swapoff/kernel/walk.rs",
           "self.hit(page, slot);",
           ""),
    Mutant("blind-is-not", "swapoff/method.rs",
           "SwapoffMethod::Scaling56 => self.walk(task, Windows::Blind(Bump::None), between),",
           "SwapoffMethod::Scaling56 => self.walk(task, Windows::Scaling, between),"),
    Mutant("blind-asks-for-the-missing-only", "swapoff/kernel/walk.rs",
           "if !matches!(self.windows, Windows::Blind(_)) || self.asked.replace(page) == Some(page) {",
           "if page == self.asked.replace(page).unwrap_or(page) || page > 0 {"),
    Mutant("no-hits-made-up", "swapoff/kernel/walk.rs",
           "(0..made_up).for_each(|_| self.cluster.count_hit());",
           "let _ = made_up;"),
    Mutant("unmap-one-by-one", "reclaim/victims.rs",
           "let same = take_same(waiting, |victim| parts.of(victim.page));",
           "let same = take_same(waiting, |victim| parts.of(victim.page)).min(1);"),
    Mutant("background-is-direct", "reclaim/kswapd.rs",
           "(self.core.clone(), Unmapper::Background(node.id.0));",
           "(self.core.clone(), Unmapper::Direct);"),
    Mutant("turn-without-end", "reclaim/turn.rs",
           "&& self.unmap_locks.exclusive.release(node.id.0)",
           "&& false"),
    Mutant("balanced-ends-no-turn", "reclaim/turn.rs",
           "if pressure == Pressure::Balanced {",
           "if pressure == Pressure::Balanced && false {"),
    Mutant("every-sleep-ends-a-turn", "reclaim/kswapd.rs",
           "core.end_turn(node, TurnEvent::Sleeps);",
           "core.end_turn(node, TurnEvent::GivesUp);"),
    Mutant("faults-never-wait", "reclaim/direct.rs",
           "if self.is_throttled(node) {",
           "if self.is_throttled(node) && false {"),
    Mutant("blocks-are-not-waited-for", "reclaim/direct.rs",
           "(goes_by_block || is_near && state.writing > 0)",
           "((goes_by_block || is_near) && state.writing > 0)", "faults_leave"),
    Mutant("spare-frames-forgotten", "transfer/frames.rs",
           "node.lock().spare += spare - run.count;",
           "let _ = spare - run.count;", "reclaim"),
    Mutant("debt-unpaid", "reclaim/kswapd.rs",
           "self.core.repay(node, self.core.payment_after(batch.unmapped, put_back, owed));",
           ""),
    Mutant("debt-before-faults", "reclaim/repay.rs",
           "_ => Payment::Half { owed, rest: owed.saturating_sub(unmapped.div_ceil(2)) },",
           "_ => Payment::All,", "debt"),
    Mutant("blocks-announced-that-come-back", "reclaim/block.rs",
           "if unmapped > 0 && !self.shortage.devices_full.load(Ordering::Relaxed) {",
           "if unmapped > 0 {", "block_waits"),
    Mutant("one-bank-each", "device/mod.rs",
           "for bank in banks_from(bank, slots) {",
           "for bank in banks_from(bank, 1) {", "numbers"),
    Mutant("banks-of-one-slot", "device/mod.rs",
           "banks.keep(device.first_bank(), label.max);",
           "banks.keep(device.first_bank(), 1);", "numbers"),
    Mutant("a-child-has-numbers-for-all", "device/inherit.rs",
           "let is_numbered = holding == Holding::Borrowed || then.take(max).is_some();",
           "let is_numbered = holding == Holding::Borrowed || then.take(max).is_some() || true;", "numbers"),
    Mutant("way-out-unasked", "reclaim/block.rs",
           "blocks.ways.next(self.reclaim_way()) == Way::Runs",
           "blocks.ways.next(Default::default()) == Way::Runs", "blocks"),
    Mutant("beside-is-asked", "transfer/lru_add.rs",
           "if asked == Some(page) { Need::Asked } else { Need::Beside };",
           "if asked.is_some() || page > 0 { Need::Asked } else { Need::Beside };", "reclaim"),
    Mutant("runs-cost-nothing", "reclaim/kswapd.rs",
           "self.blocks.ways.on_batch(Way::Runs, batch.unmapped, clock::thread_cpu_ns() - start);",
           "let _ = (start, Way::Runs);", "blocks"),
    Mutant("looks-not-counted", "reclaim/isolate.rs",
           "state.workingset.on_look(page);",
           "let _ = page;"),
    Mutant("returns-not-counted", "transfer/lru_add.rs",
           "state.workingset.on_activation(page);",
           "state.workingset.on_activation(1);"),
    Mutant("every-block-pays", "reclaim/block.rs",
           "(pays(mapped, own, back) && has_room)",
           "(pays(mapped.max(32), own.max(32), back) && has_room)", "blocks"),
    Mutant("code-is-copied-where-it-lies", "transfer/unmap.rs",
           "moved.map_err(|stopped| stopped.error)?;\n        pages::copy(self.frame_address(frame), stage.address, 1);\n"
           "        drop_memory(Call::DropFrames, stage.address, PAGE_BYTES);",
           "if moved.as_ref().is_err_and(|stopped| stopped.error != libc::EBUSY) { return Err(libc::EINVAL); }\n"
           "        let from = if moved.is_ok() { stage.address } else { self.page_address(page) };\n"
           "        pages::copy(self.frame_address(frame), from, 1);\n"
           "        drop_memory(Call::DropFrames, from, PAGE_BYTES);", "system_calls"),
    Mutant("a-childs-stage-is-not-registered", "state/core.rs",
           "self.staging.register(&self.uffd)?;", "", "system_calls"),
    Mutant("undone-protections-stay", "state/blocks.rs",
           "if begun == ended {",
           "if begun == ended || true {", "blocks"),
    Mutant("no-server-is-woken", "fault/server.rs",
           "self.core.threads.wake_helper();",
           "", "servers"),
    Mutant("servers-without-limit", "state/threads.rs",
           "let allowed = usize::from(self.servers()) - 1;",
           "let allowed = self.helpers.len();", "servers"),
    Mutant("servers-sleep-for-ever", "fault/helper.rs",
           "            self.help();\n            helper.awake.store(false, Ordering::Relaxed);",
           "            self.help();\n            let _ = Ordering::Relaxed;", "servers"),
    Mutant("helpers-know-node-0", "fault/helper.rs",
           "let near = self.messages.node_of(&core, fault.thread);",
           "let near = crate::base::index::NodeId(0);", "servers"),
    Mutant("stored-uncharged", "transfer/stored.rs",
           "node.lock().on_stored(change as u32);",
           "let _ = NodeState::on_stored;", "zram"),
    Mutant("stored-without-limit", "transfer/stored.rs",
           "self.devices.allowance.set_budget(budget);",
           "let _: u32 = budget;\n        self.devices.allowance.set_budget(u32::MAX);", "zram"),
    Mutant("nothing-promised", "device/zram/supply.rs",
           "if zram.reserve(run) {",
           "if zram.reserve(run) || true {", "zram"),
    Mutant("nothing-beside", "fault/beside.rs",
           "            block => block,",
           "            _ => ReadWindow::Stream(window),", tests="beside"),
    Mutant("uses-of-blocks-uncounted", "fault/beside.rs",
           "self.readahead.beside.lock().on_use(self.devices.number_of(slot));",
           "let _ = slot;", tests="beside"),
    Mutant("pages-of-blocks-uncounted", "fault/beside.rs",
           "self.readahead.beside.lock().on_read(self.devices.number_of(target.slot), pages);",
           "let _ = (target, pages);", tests="beside"),
    Mutant("shared-slot-freed-early", "device/pack/mod.rs",
           "if before & !BAD == 1 {",
           "if before & !BAD > 0 {", tests="packs"),
    Mutant("shared-slot-used-again", "device/packs.rs",
           "Health::Bad => self.withdraw(below, &mut store, run),",
           "Health::Bad => self.free_run(below, &mut store, run),", tests="packs"),
    Mutant("shared-slot-not-opened", "device/pack/mod.rs",
           "                self.open(kept.slot, buffer.address);\n",
           "", tests="packs"),
    Mutant("reads-of-shared-slots-not-unpacked", "fault/retry.rs",
           "        self.unpack_read(record, entries.clone());\n",
           "        let _ = Self::unpack_read;\n", tests="packs"),
    Mutant("populate-believes-what-words-say", "request/populate.rs",
           "page != first && self",
           "self", tests="populate"),
    Mutant("short-for-ever", "device/zram/supply.rs",
           "            if is_short {\n                self.look_for_supply(device);\n            }",
           "            let _ = is_short;", "zram"),
]


def text_of(mutant: Mutant) -> tuple[str, str]:
    """The file's text, and with the wire cut."""
    text = (ROOT / "engine/src" / mutant.file).read_text()
    found = text.count(mutant.wire)
    if found != 1:
        sys.exit(f"mutants.py: {mutant.name}: engine/src/{mutant.file} has its wire {found} times: {mutant.wire}")
    return text, text.replace(mutant.wire, mutant.cut)


def copy_of_the_tree(into: Path) -> None:
    """Only what differs is written, and so is newer than what was built of it, also after a run that was killed."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    for file in [file for file in into.rglob("*") if file.is_file()]:
        if str(file.relative_to(into)) not in names:
            file.unlink()
    for name in names:
        here, there = ROOT / name, into / name
        if not there.is_file() or there.read_bytes() != here.read_bytes():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)


def passes(tree: Path, target: Path, tests: set[str]) -> tuple[bool, str]:
    """Whether the tests of these files pass in a tree, and what they printed."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "RUST_BACKTRACE": "0"}
    try:
        run = subprocess.run(TESTS + [f"{name}::" for name in sorted(tests)], cwd=tree, env=environment, timeout=SECONDS_MAX, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return False, "no end"
    if "error: could not compile" in run.stdout:
        sys.exit(f"mutants.py: the mutant does not compile:\n{run.stdout}")
    return run.returncode == 0, run.stdout


def main() -> None:
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    unknown = set(names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        sys.exit(f"mutants.py: no mutant {', '.join(sorted(unknown))}: there are "
                 f"{', '.join(mutant.name for mutant in MUTANTS)}")
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    texts = {mutant: text_of(mutant) for mutant in chosen}
    if "--check" in sys.argv:
        return
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "mutants"
    tree = target / "tree"
    copy_of_the_tree(tree)
    good, said = passes(tree, target, {mutant.tests for mutant in chosen})
    if not good:
        sys.exit(f"mutants.py: the tests fail without any mutant:\n{said}")
    survivors = []
    for mutant in chosen:
        text, cut = texts[mutant]
        file = tree / "engine/src" / mutant.file
        file.write_text(cut)
        survived, _ = passes(tree, target, {mutant.tests})
        file.write_text(text)
        print(f"{mutant.name:31} {'SURVIVES' if survived else 'killed'}", flush=True)
        survivors += [mutant.name] if survived else []
    if survivors:
        sys.exit(f"mutants.py: {len(survivors)} of {len(chosen)} mutants survive: {', '.join(survivors)}")
    print(f"mutants.py: {len(chosen)} mutants, none survives")


main()
