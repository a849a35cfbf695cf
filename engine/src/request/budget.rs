//! The budget and the watermarks, changed while the program runs.
use crate::base::error::Error;
use crate::base::limits::{NODE_MIN_PAGES, RAM_MIN_BYTES};
use crate::base::topology::shares;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::watermarks::WatermarkSettings;
use crate::sys::PAGE_BYTES;
use std::sync::atomic::Ordering;
use userswap_policy::watermark::Watermarks;

impl Core {
    /// Changes the budget while running; every node keeps its share of it, and shrinking reclaims until it
    /// fits.
    ///
    /// # Errors
    /// A budget below the minimum or above what the frame pools have room for; nothing is changed then.
    pub fn set_budget(&self, pages: u32) -> Result<(), Error> {
        let _inside = self.gate.enter();
        let changing = self.budget_change.lock();
        let outcome = self.check_budget(pages).and_then(|()| self.divide_budget(pages));
        drop(changing);
        outcome
    }

    fn divide_budget(&self, pages: u32) -> Result<(), Error> {
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        let weights: Vec<u64> =
            self.nodes.iter().map(|node| u64::from(node.lock().budget)).collect();
        let budgets = shares(pages, &weights);
        for (node, budget) in self.nodes.iter().zip(&budgets) {
            let number = self.topology.nodes()[node.id.0 as usize].number;
            if self.nodes.len() > 1 && *budget < NODE_MIN_PAGES {
                let share = u64::from(*budget) * PAGE_BYTES as u64;
                return Err(Error::NodeBudgetTooSmall(number, share));
            }
            // A quarter more places than pages, so that whole runs of holes can be found.
            if u64::from(*budget) > u64::from(node.positions()) * 4 / 5 {
                let places: u64 = self.nodes.iter().map(|node| u64::from(node.positions())).sum();
                return Err(Error::BudgetTooLarge(bytes, places * 4 / 5 * PAGE_BYTES as u64));
            }
        }
        let marks = self.watermark_settings();
        for (node, budget) in self.nodes.iter().zip(&budgets) {
            self.set_share(node, *budget, marks.of_node(*budget, budgets.iter().sum()));
        }
        Ok(())
    }

    fn check_budget(&self, pages: u32) -> Result<(), Error> {
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        if bytes < RAM_MIN_BYTES {
            return Err(Error::BudgetTooSmall(bytes));
        }
        let pinned = self.pins.load(Ordering::Relaxed);
        if pages < pinned.saturating_add(pinned / 2) {
            return Err(Error::BudgetPinned(bytes, u64::from(pinned) * PAGE_BYTES as u64));
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
        self.repay(node);
        self.wake_reclaim(node);
    }

    /// Changes what decides about the marks, and with it the marks of all nodes.
    ///
    /// # Errors
    /// WatermarkSettings that would take more than half of some node's budget; nothing is changed then.
    pub fn set_watermarks(&self, change: impl FnOnce(&mut WatermarkSettings)) -> Result<(), Error> {
        let _inside = self.gate.enter();
        self.set_watermarks_inside(change)
    }

    fn set_watermarks_inside(
        &self,
        change: impl FnOnce(&mut WatermarkSettings),
    ) -> Result<(), Error> {
        let changing = self.budget_change.lock();
        let mut marks = self.watermark_settings();
        change(&mut marks);
        let budgets: Vec<u32> = self.nodes.iter().map(|node| node.lock().budget).collect();
        let total = budgets.iter().sum();
        for budget in &budgets {
            let high = marks.of_node(*budget, total).high;
            if high > budget / 2 {
                let bytes = |pages: u32| u64::from(pages) * PAGE_BYTES as u64;
                return Err(Error::WatermarksTooHigh(bytes(high), bytes(*budget)));
            }
        }
        *self.watermark_settings.lock() = marks;
        for (node, budget) in self.nodes.iter().zip(budgets) {
            node.lock().watermarks = marks.of_node(budget, total);
            self.wake_reclaim(node);
        }
        self.note_progress();
        drop(changing);
        Ok(())
    }
}
