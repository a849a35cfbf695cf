//! How an engine takes its part of its job's budget: when it starts, in the child of a fork, and as it changes.
use crate::base::choice::FaultMode;
use crate::base::error::Error;
use crate::base::limits::NODE_MIN_PAGES;
use crate::device::record::Device;
use crate::job::member::{ALLOWANCE_PAGES, Member};
use crate::job::needs::Need;
use crate::request::budget::OUTSIDE_PART;
use crate::state::core::{Core, Path};
use crate::sys::own_fd::Own;
use crate::sys::uffd::Rights;
use crate::sys::{PAGE_BYTES, process};
use std::io::Read;
use userswap_policy::lru::ListId;

/// The kernel's count of this process's anonymous pages: one that n processes share counts 1/n.
const ROLLUP: &str = "/proc/thread-self/smaps_rollup";

/// What an engine that is in use should have.
const FLOOR_PAGES: u32 = ALLOWANCE_PAGES;
/// What one should have whose turn it is not: the less, the more the others get on.
const WAITING_PAGES: u32 = FLOOR_PAGES / 2;

/// What it must have changed by: the kernel's count is not exact, and every step moves watermarks.
const OUTSIDE_STEP_PAGES: u32 = 128;

/// What an engine has of its budget, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// What it may have.
    pub budget: u32,
    /// Over it, on their way out.
    pub debt: u32,
    /// Not taken from the kernel yet.
    pub spare: u32,
    /// Not taken yet, or empty.
    pub unused: u32,
    /// Of content that is mapped or in a slot; what has both counts twice.
    pub content: u64,
    /// Available when reclaim rests.
    pub reserved: u32,
}

impl Holding {
    /// Pages of RAM.
    pub fn held(self) -> u32 {
        self.budget + self.debt - self.spare
    }

    /// Pages of RAM with something in them.
    pub fn used(self) -> u32 {
        self.budget + self.debt - self.unused
    }
}

impl Core {
    /// The member that this engine is of a job, unless its budget is its own.
    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.get().map(AsRef::as_ref)
    }

    /// Pages without which an engine does not work. What compressed pages take is beside them, as far as there is a budget for both;
    /// and beside fewer than one in use needs what the process has outside, which nobody else can have.
    pub(crate) fn floor_pages(&self) -> u32 {
        let pages = self.node_pages();
        let outside = self.member().map_or(0, |member| member.outside_seen());
        let outside = outside.min(FLOOR_PAGES.saturating_sub(pages));
        self.beside_stored(pages + outside).max(self.kept_pages())
    }

    fn beside_stored(&self, least: u32) -> u32 {
        let stored = self.devices.allowance.taken();
        least.saturating_add(stored).min(self.budget_pages().max(least))
    }

    /// What all nodes need: each some, and it has its part of any budget.
    fn node_pages(&self) -> u32 {
        let budgets: Vec<u32> = self.nodes.iter().map(|node| node.lock().budget).collect();
        let (total, smallest) = (budgets.iter().sum::<u32>(), budgets.iter().min().copied());
        let least = match smallest {
            Some(smallest @ 1..) if budgets.len() > 1 => {
                let parts = u64::from(total).div_ceil(smallest.into()) + 1;
                (parts * u64::from(NODE_MIN_PAGES)).min(total.into()) as u32
            }
            _ => NODE_MIN_PAGES,
        };
        match self.member().map_or(Need::Full, |member| member.needs.now()) {
            Need::Idle | Need::Waiting if self.works_with_little() => least,
            Need::Waiting => least.max(WAITING_PAGES),
            Need::Idle | Need::Full => least.max(FLOOR_PAGES),
        }
    }

    /// Where calls pin what they are about, because the kernel's faults are not served or copies do not notice what devices write,
    /// that takes room; and compressed pages cannot move on without some.
    fn works_with_little(&self) -> bool {
        let pins = self.tuning.fault == FaultMode::Signal
            || self.uffd.rights() != Rights::Kernel
            || self.path == Path::Copy;
        !pins && !self.devices.list_all().any(Device::is_compressed)
    }

    /// What the engine has at this moment.
    pub(crate) fn holding(&self) -> Holding {
        let _inside = self.gate.enter();
        self.holding_of_nodes()
    }

    /// As [`Self::holding`], also while the gate is closed.
    fn holding_of_nodes(&self) -> Holding {
        let mut holding = Holding { content: self.devices.usage().used, ..Holding::default() };
        for node in &self.nodes {
            let state = node.lock();
            holding.budget += state.budget;
            holding.debt += state.debt;
            holding.spare += state.spare;
            holding.unused += state.spare + state.pool.free();
            holding.reserved += state.watermarks.high;
            holding.content += u64::from(state.resident + state.lists.len(ListId::Cached));
        }
        holding
    }

    /// Before the engine has a page, with the gate closed: all that is free of the job's budget.
    ///
    /// # Errors
    /// A node would have too little.
    pub(crate) fn begin_share(&self, member: &Member) -> Result<(), Error> {
        let most = self.budget_pages();
        self.divide_budget(member.engage(self.floor_pages()).min(most))
    }

    /// In the child of a fork, with the gate closed: a share of its own, and what it shares with its parent.
    pub(crate) fn share_in_child(&self, member: &Member) {
        let holding = self.holding_of_nodes();
        let share = member.renew(holding.budget, self.floor_pages());
        let budget = (holding.held().saturating_add(share)).min(holding.budget);
        member.set_inherited(budget.saturating_sub(share));
        // It fails only where a node would have too little, and it stays as it was.
        let _ = self.divide_budget(budget.max(self.floor_pages()));
    }

    /// Sets the budget to what the share leaves the engine, and what is still its parent's as well; one that cannot be
    /// stays as it is.
    pub(crate) fn follow_share(&self, share: u32, inherited: u32) {
        let budget = self.of_share(share, inherited).max(self.least_budget());
        if budget != self.holding().budget {
            let _ = self.resize(budget);
        }
    }

    /// Takes a larger share, and sets the budget to what that leaves the engine.
    pub(crate) fn grow_share(&self, member: &Member, share: u32) {
        let least = self.least_budget();
        let inherited = member.inherited();
        let _ = self.resize_to(|| {
            // By what is new: of what there was, much is on its way out where the job's budget has just become smaller.
            let before = member.share();
            let after = member.grow(share);
            let all = self.holding_of_nodes().budget.saturating_add(after.saturating_sub(before));
            all.min(self.of_share(after, inherited)).max(self.at_most_now(least))
        });
    }

    /// As [`Self::follow_share`], to a smaller budget only: part of the share may be on its way out, and not in the budget.
    pub(crate) fn give_way(&self, share: u32, inherited: u32) {
        let budget = self.of_share(share, inherited).max(self.least_budget());
        if budget < self.holding().budget {
            let _ = self.resize_to(|| budget.min(self.holding_of_nodes().budget));
        }
    }

    /// A process that has lost its row has no share, and goes on with what an engine needs.
    fn least_budget(&self) -> u32 {
        self.beside_stored(self.bare_budget()).max(self.kept_pages())
    }

    /// Whether it has less than it needs: it had given way, and others hold it.
    pub(crate) fn lacks_floor(&self) -> bool {
        self.budget_pages() < self.least_budget()
    }

    /// Has what it needs whatever others hold: they have had time to give it up.
    pub(crate) fn exceed_to_floor(&self, member: &Member) {
        self.exceed_to(member, self.least_budget(), member.outside());
    }

    /// Without a larger share a budget does not grow, also where the engine needs more than it did: those that have too much are
    /// asked for it first.
    fn at_most_now(&self, least: u32) -> u32 {
        least.min(self.budget_pages())
    }

    /// Beside pages that stay in memory.
    fn bare_budget(&self) -> u32 {
        let pages = self.node_pages();
        pages - pages / OUTSIDE_PART
    }

    /// What a share leaves the engine, with what is still its parent's as well.
    fn of_share(&self, share: u32, inherited: u32) -> u32 {
        let outside = self.member().map_or(0, |member| member.outside());
        share.saturating_add(inherited).saturating_sub(outside)
    }

    /// Charges the share with what this process has outside its engine: stacks, data of libraries, the engine's own
    /// tables, memory that is not managed. At most a quarter of it: the engine has to go on, and more than
    /// that is told the user.
    pub(crate) fn charge_outside(&self, member: &Member) {
        let Some(bytes) = process::anonymous_bytes() else { return };
        let held = self.holding().held();
        let outside = (bytes / PAGE_BYTES as u64).saturating_sub(held.into());
        member.set_outside_seen(u32::try_from(outside).unwrap_or(u32::MAX));
        let most = match member.share() {
            // Below the floor it is what the share was made larger for.
            share if share < FLOOR_PAGES => {
                (share / OUTSIDE_PART).max(share.saturating_sub(self.node_pages()))
            }
            share => share / OUTSIDE_PART,
        };
        let outside = u32::try_from(outside).map_or(most, |outside| outside.min(most));
        if outside.abs_diff(member.outside()) < OUTSIDE_STEP_PAGES {
            return;
        }
        let (least, mut before) = (self.least_budget(), 0);
        let outcome = self.resize_to(|| {
            before = member.outside();
            member.set_outside(outside);
            // What is on its way out is in the share, and not in the budget; and the least budget may be more than the
            // share leaves.
            let all = self.holding_of_nodes().budget.saturating_add(before);
            let share = member.share().min(member.ledger.limit());
            let most = self.of_share(share, member.inherited());
            all.saturating_sub(outside).min(most).max(self.at_most_now(least))
        });
        if outcome.is_err() {
            // For the next look.
            member.set_outside(before);
        }
    }

    /// Changes the job's budget. This engine follows at once where it has all of it, and with the others otherwise.
    ///
    /// # Errors
    /// A budget below what is pinned, or above what the frame pools have room for; nothing is changed then.
    pub(crate) fn set_limit(&self, member: &Member, pages: u32) -> Result<(), Error> {
        let own = left_of(member, pages);
        self.shrinking_to(self.of_share(own, member.inherited()), || {
            self.set_limit_now(member, pages)
        })
    }

    fn set_limit_now(&self, member: &Member, pages: u32) -> Result<(), Error> {
        let own = left_of(member, pages).max(self.beside_stored(self.node_pages()));
        let before = member.ledger.limit();
        // Where there is not less for the job it is no worse for this engine, whatever the others have of it.
        let least = if pages < before { self.bare_budget() } else { self.least_budget() };
        let least = self.at_most_now(least);
        let of_share = |share| self.of_share(share, member.inherited()).max(least);
        // Before the others learn of a limit, and take pages for it.
        self.check_budget(of_share(own))?;
        let outcome = self.resize_to(|| {
            member.ledger.set_limit(pages);
            of_share(member.grow(own).min(own))
        });
        if outcome.is_err() {
            member.ledger.set_limit(before);
        }
        self.give_back_share(member);
        outcome
    }

    /// Gives back what the engine does not have of its share, and returns what it has. What another thread has taken for a
    /// larger budget is part of that.
    pub(crate) fn give_back_share(&self, member: &Member) -> Holding {
        self.with_budget(|| {
            let holding = self.holding_of_nodes();
            let all = holding.budget + holding.debt + member.outside();
            member.shrink(all.saturating_sub(member.inherited()));
            holding
        })
    }

    /// Takes over from the parent what has become this process's own by writing.
    pub(crate) fn take_over_inherited(&self, member: &Member) {
        let inherited = member.inherited();
        if inherited == 0 {
            return;
        }
        let holding = self.holding();
        let debt = holding.debt;
        // Without the kernel's count all of it is taken to be its own.
        let own = anonymous_pages().unwrap_or(u32::MAX);
        let all = holding.held().saturating_add(member.outside());
        let still = all.saturating_sub(own).min(inherited);
        if still < inherited {
            let budget = holding.budget.saturating_add(member.outside());
            let share = self.with_budget(|| {
                let wanted = budget.saturating_sub(still);
                let share = member.grow(wanted.saturating_add(debt)).min(wanted);
                let floor = self.floor_pages().saturating_sub(still);
                if share < floor {
                    member.exceed(floor);
                }
                member.set_inherited(still);
                share.max(floor)
            });
            self.follow_share(share, still);
        }
    }
}

/// What the others of a job leave a member of such a budget.
fn left_of(member: &Member, budget: u32) -> u32 {
    let others = member.ledger.held().saturating_sub(u64::from(member.share()));
    u64::from(budget).saturating_sub(others) as u32
}

/// None where /proc does not tell.
pub fn anonymous_pages() -> Option<u32> {
    // At a high number: the kernel takes its time, and a program that closes all it does not know begins with the low ones.
    let file = Own::raised(std::fs::File::open(ROLLUP).ok()?);
    let mut text = String::new();
    (&*file).read_to_string(&mut text).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
    let kib: u64 = kib.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    u32::try_from(kib / (PAGE_BYTES as u64 / 1024)).ok()
}
