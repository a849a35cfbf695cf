//! Which pages are looked at next: active ones that give way, or the oldest newcomers.
//!
//! A look takes a page from the program and sees, while it has its second chance, whether it comes back: it costs a soft
//! fault if so, and is a page gained if not. So the looks go to those of the two that come back less. When demoted pages
//! had all of them, newcomers that were filled once and never used again stayed for ever beside a table in use, each page of
//! which left and came back in turn. The kernel shares its scanning between anonymous and file pages by what either has
//! cost, too (get_scan_count in mm/vmscan.c, lru_note_cost in mm/swap.c, Linux 5.8).

/// What a page is that is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// It has not proved yet that it is used again.
    Newcomer,
    /// It was active.
    Demoted,
}

/// Looks that are remembered; with more, all count half.
const KEPT: u32 = 1024;
/// One page in so many of a batch is a demoted one at least.
const LEAST: u32 = 16;
/// Parts of a whole, where one is divided.
const ONE: u64 = 1 << 16;

/// How many pages of a kind were looked at of late, and how many of these came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Found {
    looked: u32,
    returned: u32,
}

impl Found {
    /// The share that came back, of [`ONE`]: before much is known, as if an eighth of a look had been before the first, of
    /// which so many sixteenths of a page came back.
    fn share(self, assumed: u64) -> u64 {
        let [looked, returned] = [self.looked, self.returned].map(|pages| u64::from(pages) * 16);
        ((returned + assumed) * ONE / (looked + 2)).min(ONE)
    }
}

/// What looks have found of late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Looks {
    newcomers: Found,
    demoted: Found,
    /// Of a demoted page that is due, the part that there is already, of [`ONE`].
    due: u64,
}

impl Looks {
    /// A page is looked at.
    pub fn on_look(&mut self, page: Looked) {
        self.found(page).looked += 1;
        if self.newcomers.looked + self.demoted.looked > KEPT {
            for Found { looked, returned } in [&mut self.newcomers, &mut self.demoted] {
                *looked /= 2;
                *returned /= 2;
            }
        }
    }

    /// A page that was looked at has come back.
    pub fn on_return(&mut self, page: Looked) {
        let found = self.found(page);
        found.returned = (found.returned + 1).min(found.looked);
    }

    /// How many of so many newcomers and active pages are expected to come back; nothing known, half of them.
    pub fn expected_back(&self, newcomers: u32, active: u32) -> u32 {
        let [of_newcomers, of_active] = [self.newcomers, self.demoted].map(|found| found.share(1));
        ((of_newcomers * u64::from(newcomers) + of_active * u64::from(active)) / ONE) as u32
    }

    /// How many of the next so many looks are for demoted pages.
    pub fn of(&mut self, looks: u32) -> u32 {
        let due = self.due + u64::from(looks) * self.share();
        self.due = due % ONE;
        (due / ONE) as u32
    }

    /// The share of looks that is for demoted pages, of [`ONE`]. Nothing known, most are: a program that moves to new memory has
    /// done with its old one, and has not used all of the new one yet.
    fn share(&self) -> u64 {
        // Squared: a quarter as many looks for what comes back twice as often.
        let [newcomers, demoted] =
            [self.newcomers.share(2), self.demoted.share(1)].map(|share| (share * share).max(1));
        (newcomers * ONE / (newcomers + demoted)).max(ONE / u64::from(LEAST))
    }

    fn found(&mut self, page: Looked) -> &mut Found {
        match page {
            Looked::Newcomer => &mut self.newcomers,
            Looked::Demoted => &mut self.demoted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 64 looks, those for demoted pages after some looks at both, of which so many came back.
    fn of_64(looked: u32, newcomers: u32, demoted: u32) -> u32 {
        let mut looks = Looks::default();
        for page in 0..looked {
            looks.on_look(Looked::Newcomer);
            looks.on_look(Looked::Demoted);
            (page < newcomers).then(|| looks.on_return(Looked::Newcomer));
            (page < demoted).then(|| looks.on_return(Looked::Demoted));
        }
        looks.of(64)
    }

    #[test]
    fn looks_go_to_what_comes_back_less() {
        assert_eq!(of_64(0, 0, 0), 51, "demoted ones go first");
        assert_eq!(of_64(100, 50, 50), 32);
        assert_eq!(of_64(100, 80, 40), 51);
        assert_eq!(of_64(100, 40, 80), 12);
        assert_eq!(of_64(100, 0, 90), 4, "some are always looked at");
        assert_eq!(of_64(100, 90, 0), 63);
    }

    #[test]
    fn what_comes_back_is_expected_as_it_was_found() {
        let mut looks = Looks::default();
        assert_eq!(looks.expected_back(100, 100), 100, "nothing known");
        for page in 0..160 {
            looks.on_look(Looked::Newcomer);
            looks.on_look(Looked::Demoted);
            (page % 16 == 0).then(|| looks.on_return(Looked::Newcomer));
            (page % 2 == 0).then(|| looks.on_return(Looked::Demoted));
        }
        assert_eq!(looks.expected_back(1600, 0), 100);
        assert_eq!(looks.expected_back(0, 1600), 800);
    }

    #[test]
    fn small_batches_get_as_many_in_all() {
        let mut looks = Looks::default();
        assert_eq!((0..64).map(|_| looks.of(1)).sum::<u32>(), 51);
        assert_eq!((0..32).map(|_| looks.of(2)).sum::<u32>(), 51);
    }

    #[test]
    fn what_was_found_long_ago_is_forgotten() {
        let mut looks = Looks::default();
        let mut look = |times, page: Looked, comes_back: bool| {
            for _ in 0..times {
                looks.on_look(page);
                comes_back.then(|| looks.on_return(page));
            }
            looks.of(64)
        };
        look(KEPT, Looked::Demoted, true);
        assert_eq!(look(KEPT, Looked::Newcomer, false), 4);
        look(4 * KEPT, Looked::Demoted, false);
        assert!(look(4 * KEPT, Looked::Newcomer, true) > 60);
    }
}
