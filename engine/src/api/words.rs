//! A builder's choices as words by key, for the languages that hand words on: C and Python have no enums of ours.
//!
//! Keys and values are those of `userswap run`, with `_` in place of `-`: most are read as [`Options`] reads them. What is
//! added here are sizes as people write them, and the choices that only a library has.
use crate::api::builder::Builder;
use crate::base::error::Error;
use crate::base::size::parse_size;
use std::fmt::Display;

/// The keys, as in "use …".
const KEYS: &str = "swap, fault, transfer, io, on_full, placement, poll, swap_ra_policy, page_cluster, vma_ra_enabled, \
     compress, encrypt, ram_max, arena, ram_of_node, fake_numa or control";

impl Builder {
    /// Makes the choice `key` as a word says, by the names of `userswap run`'s options, such as "compress" and "64M"; "swap" and "ram_of_node"
    /// (NODE:SIZE) add one each time. Whether choices go together is looked at by [`Builder::build`].
    ///
    /// # Errors
    /// [`Error::Setting`]: there is no such key, or it does not take the value.
    pub fn option(mut self, key: &str, value: &str) -> Result<Self, Error> {
        match key {
            "swap" | "fault" | "transfer" | "io" | "on_full" | "placement" | "poll"
            | "page_cluster" | "vma_ra_enabled" | "compress" | "encrypt" => {
                self.options_mut().set(key, value).map_err(refusal)?;
            }
            "swap_ra_policy" => self = self.readahead(value.parse().map_err(refusal)?),
            "ram_max" => self = self.ram_max(size(key, value)?),
            "arena" => self = self.arena_bytes(size(key, value)?),
            "ram_of_node" => {
                let wrong = || not(key, value, "NODE:SIZE, such as 0:64M");
                let (node, bytes) = value.split_once(':').ok_or_else(wrong)?;
                self = self.ram_of_node(node.parse().map_err(|_| wrong())?, size(key, bytes)?);
            }
            "fake_numa" => {
                let nodes = value.parse().ok().filter(|nodes| (1..=64).contains(nodes));
                self =
                    self.fake_numa(nodes.ok_or_else(|| not(key, value, "a number from 1 to 64"))?);
            }
            "control" if value == "on" => self = self.control(),
            "control" => return Err(not(key, value, "on")),
            _ => return Err(Error::Setting(format!("{key:?} is no option: use {KEYS}"))),
        }
        Ok(self)
    }
}

fn size(key: &str, value: &str) -> Result<u64, Error> {
    parse_size(value).map_err(|error| Error::Setting(format!("{key}: {error}")))
}

fn not(key: &str, value: &str, allowed: &str) -> Error {
    Error::Setting(format!("{key}: {value:?} is not allowed: use {allowed}"))
}

fn refusal(error: impl Display) -> Error {
    Error::Setting(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(key: &str, value: &str) -> Result<Builder, Error> {
        Builder::new(64 << 20).option(key, value)
    }

    #[test]
    fn words_choose_what_the_methods_choose() {
        let builder = Builder::new(64 << 20);
        for (key, value, chosen) in [
            ("compress", "16M", builder.clone().compress("16M".parse().unwrap())),
            ("compress", "auto", builder.clone().compress("auto".parse().unwrap())),
            ("encrypt", "true", builder.clone().encrypt()),
            ("encrypt", "false", builder.clone()),
            ("ram_max", "1G", builder.clone().ram_max(1 << 30)),
            ("arena", "1T", builder.clone().arena_bytes(1 << 40)),
            ("swap", "mem:64M", builder.clone().swap("mem:64M".parse().unwrap())),
            ("swap_ra_policy", "vma", builder.clone().readahead("vma".parse().unwrap())),
            ("page_cluster", "5", builder.clone().page_cluster(5)),
            ("ram_of_node", "1:32M", builder.clone().ram_of_node(1, 32 << 20)),
            ("fake_numa", "4", builder.clone().fake_numa(4)),
            ("control", "on", builder.clone().control()),
        ] {
            let found = format!("{:?}", option(key, value).unwrap());
            assert_eq!(found, format!("{chosen:?}"), "{key}={value}");
        }
    }

    #[test]
    fn every_key_that_is_named_is_known() {
        for key in KEYS.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or") {
            let refusal = option(key, "mem:no such value").unwrap_err().to_string();
            assert!(
                refusal.contains("mem:no such value") && !refusal.contains("option"),
                "{refusal}"
            );
        }
        // What the injected library is told is nobody's choice here.
        for key in ["quiet", "root_pid", "ledger", "colour", ""] {
            let refusal = option(key, "1").unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{key:?} is no option: use swap")), "{refusal}");
        }
    }

    #[test]
    fn what_is_refused_is_named_in_one_line() {
        for (key, value, named) in [
            ("compress", "1M", "\"1M\" is no amount of compressed memory: use a size"),
            ("encrypt", "yes", "encrypt: \"yes\" is not allowed: use true or false"),
            ("ram_max", "much", "ram_max: "),
            ("ram_of_node", "16M", "ram_of_node: \"16M\" is not allowed: use NODE:SIZE"),
            ("ram_of_node", "0:big", "big"),
            ("fake_numa", "65", "use a number from 1 to 64"),
            ("control", "off", "control: \"off\" is not allowed: use on"),
            ("fault", "fast", "\"fast\" is not a fault mode: use thread or signal"),
        ] {
            let refusal = option(key, value).unwrap_err().to_string();
            assert!(refusal.contains(named) && refusal.lines().count() == 1, "{refusal}");
        }
    }
}
