//! The budget and the watermarks, changed while the program runs.
use crate::base::error::Error;
use crate::base::limits::{NODE_MIN_PAGES, RAM_MIN_BYTES};
use crate::base::topology::shares;
use crate::job::member::{ALLOWANCE_PAGES, Member};
use crate::reclaim::repay::Payment;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::shares::budget_most;
use crate::state::watermarks::WatermarkSettings;
use crate::sys::PAGE_BYTES;
use std::sync::atomic::Ordering;
use userswap_policy::watermark::Watermarks;

/// What an engine goes on with beside compressed pages: three quarters of the smallest budget, as a job leaves it.
const BESIDE_STORED_PAGES: u32 = (RAM_MIN_BYTES / PAGE_BYTES as u64) as u32 / 4 * 3;

/// At most one part in so many of a share is charged with what is outside the engine.
pub const OUTSIDE_PART: u32 = 4;

impl Core {
    /// Changes the budget while the program runs; every node keeps its share of it, and a smaller one is reclaimed
    /// for until it fits.
    ///
    /// # Errors
    /// A budget below the minimum or above what the frame pools have room for; nothing is changed then.
    pub fn set_budget(&self, pages: u32) -> Result<(), Error> {
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        if bytes < RAM_MIN_BYTES {
            return Err(Error::BudgetTooSmall(bytes));
        }
        self.shrinking_to(pages, || self.resize(pages))
    }

    /// As [`Self::set_budget`], also below the smallest budget that a user can give.
    ///
    /// # Errors
    /// As [`Self::set_budget`].
    pub(crate) fn resize(&self, pages: u32) -> Result<(), Error> {
        self.resize_to(|| pages)
    }

    /// As [`Self::resize`], to the pages that are taken for it when no other thread changes the budget.
    ///
    /// # Errors
    /// As [`Self::set_budget`].
    pub(crate) fn resize_to(&self, take: impl FnOnce() -> u32) -> Result<(), Error> {
        self.with_budget(|| {
            let pages = take();
            self.check_pins(pages)?;
            self.check_stored(pages)?;
            self.divide_budget(pages)
        })
    }

    /// Acts while no other thread changes the budget.
    pub(crate) fn with_budget<T>(&self, act: impl FnOnce() -> T) -> T {
        let _inside = self.gate.enter();
        let _changing = self.budget_change.lock();
        act()
    }

    /// As [`Self::resize`], also while the gate is closed.
    ///
    /// # Errors
    /// As [`Self::set_budget`].
    pub(crate) fn divide_budget(&self, pages: u32) -> Result<(), Error> {
        let budgets = self.divided(pages)?;
        let settings = self.watermark_settings();
        for (node, budget) in self.nodes.iter().zip(&budgets) {
            self.set_share(node, *budget, settings.fitting(*budget, budgets.iter().sum()));
        }
        self.readahead.fit(&budgets);
        self.limit_stored();
        Ok(())
    }

    /// An engine that has given way as a member of a job has again what one in use should have, if so many pages more can be pinned
    /// then. Returns whether it had less.
    pub(crate) fn take_floor(&self, pins: u32) -> bool {
        let Some(member) = self.member.get() else { return false };
        // As it is charged of such a share.
        let outside = member.outside().min(ALLOWANCE_PAGES / OUTSIDE_PART);
        let budget = ALLOWANCE_PAGES - outside;
        let pinned = self.pinned().0.saturating_add(pins);
        if self.budget_pages() >= budget || pinned > self.usable_of(budget) {
            return false;
        }
        member.needs.insist();
        self.exceed_to(member, budget, outside)
    }

    /// Has at least such a budget, whatever others hold: they are told, and give up what that is too much.
    pub(crate) fn exceed_to(&self, member: &Member, budget: u32, outside: u32) -> bool {
        let outcome = self.resize_to(|| {
            let debt: u32 = self.nodes.iter().map(|node| node.lock().debt).sum();
            let (before, all) = (self.budget_pages(), budget + debt + outside);
            member.exceed(all.saturating_sub(member.inherited()));
            if !member.holds(all) {
                return before;
            }
            member.set_outside(outside);
            before.max(budget)
        });
        outcome.is_ok()
    }

    /// Finds out whether the engine could have this budget.
    ///
    /// # Errors
    /// As [`Self::set_budget`].
    pub(crate) fn check_budget(&self, pages: u32) -> Result<(), Error> {
        self.with_budget(|| {
            self.check_pins(pages)?;
            self.check_stored(pages)?;
            self.divided(pages).map(drop)
        })
    }

    /// The nodes' parts of a budget: as they were of the first one, however often it has changed since.
    fn divided(&self, pages: u32) -> Result<Vec<u32>, Error> {
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        let weights: Vec<u64> = self.nodes.iter().map(|node| node.weight.into()).collect();
        let budgets = shares(pages, &weights);
        for (node, budget) in self.nodes.iter().zip(&budgets) {
            let number = self.topology.nodes()[node.id.0 as usize].number;
            if self.nodes.len() > 1 && *budget < NODE_MIN_PAGES {
                let share = u64::from(*budget) * PAGE_BYTES as u64;
                return Err(Error::NodeBudgetTooSmall(number, share));
            }
            if u64::from(*budget) > budget_most(node.positions().into()) {
                let most = |node: &Node| u64::from(node.positions());
                let positions: u64 = self.nodes.iter().map(most).sum();
                return Err(Error::BudgetTooLarge(
                    bytes,
                    budget_most(positions) * PAGE_BYTES as u64,
                ));
            }
        }
        Ok(budgets)
    }

    /// Has compressed pages move on that a smaller budget would have no room for, and then changes it.
    pub(crate) fn shrinking_to(
        &self,
        pages: u32,
        change: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let allowance = &self.devices.allowance;
        let beside = allowance.pins.load(Ordering::Relaxed).saturating_add(BESIDE_STORED_PAGES);
        let leaving = pages.saturating_sub(beside);
        if allowance.taken() <= leaving {
            return change();
        }
        self.make_room_beside(leaving);
        if allowance.taken() > leaving && self.inside_gate(|| self.devices.have_room_behind()) {
            // What is on its second chance does not move on by itself.
            self.release_all_cached();
            self.make_room_beside(leaving);
        }
        let outcome = change();
        allowance.unbind(leaving);
        outcome
    }

    /// Pages that pins have, and pages without which an engine does not go on beside them.
    fn pinned(&self) -> (u32, u32) {
        let pinned = self.devices.allowance.pins.load(Ordering::Relaxed);
        (pinned, pinned.saturating_add(pinned / 2))
    }

    /// Compressed pages, and pages without which an engine does not go on beside them and the pins.
    fn stored(&self) -> (u32, u32) {
        let stored = self.devices.allowance.taken();
        let beside = self.pinned().0.saturating_add(BESIDE_STORED_PAGES);
        (stored, if stored > 0 { stored.saturating_add(beside) } else { 0 })
    }

    /// The smallest budget that is not refused for what stays in memory.
    pub(crate) fn kept_pages(&self) -> u32 {
        self.pinned().1.max(self.stored().1).min(self.budget_pages())
    }

    /// A budget that is not smaller than before is no worse.
    fn check_pins(&self, pages: u32) -> Result<(), Error> {
        let (pinned, least) = self.pinned();
        if pages < self.budget_pages().min(least) {
            return Err(Error::BudgetPinned(bytes_of(pages), bytes_of(pinned)));
        }
        Ok(())
    }

    /// As [`Self::check_pins`].
    fn check_stored(&self, pages: u32) -> Result<(), Error> {
        let (stored, least) = self.stored();
        if pages < self.budget_pages().min(least) {
            return Err(Error::BudgetStored(bytes_of(pages), bytes_of(stored)));
        }
        Ok(())
    }

    fn set_share(&self, node: &Node, pages: u32, watermarks: Watermarks) {
        let mut state = node.lock();
        if pages >= state.budget {
            let more = pages - state.budget;
            state.on_released(more);
        } else {
            state.debt += state.budget - pages;
        }
        state.budget = pages;
        state.watermarks = watermarks;
        drop(state);
        self.note_progress();
        self.repay(node, Payment::Surplus);
        self.wake_reclaim(node);
    }

    /// Changes the settings of the watermarks, and with them the watermarks of all nodes.
    ///
    /// # Errors
    /// Watermarks that would take more than half of some node's budget, and more than those before; nothing is changed then.
    pub fn set_watermarks(&self, change: impl FnOnce(&mut WatermarkSettings)) -> Result<(), Error> {
        let _inside = self.gate.enter();
        let _changing = self.budget_change.lock();
        let before = self.watermark_settings();
        let mut settings = before;
        change(&mut settings);
        let budgets: Vec<u32> = self.nodes.iter().map(|node| node.lock().budget).collect();
        let total = budgets.iter().sum();
        for budget in &budgets {
            let high = settings.of_node(*budget, total).high;
            if high > budget / 2 && high > before.of_node(*budget, total).high {
                let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES as u64;
                return Err(Error::WatermarksTooHigh(bytes(high), bytes(*budget)));
            }
        }
        *self.watermark_settings.lock() = settings;
        for (node, budget) in self.nodes.iter().zip(budgets) {
            node.lock().watermarks = settings.fitting(budget, total);
            self.wake_reclaim(node);
        }
        self.note_progress();
        Ok(())
    }
}

fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES as u64
}
