//! Arms of `hugeleaf-lab amm`: who divides the memory, and its pages.

use std::fmt;
use std::str::FromStr;

use hugeleaf_units::Bytes;

/// An arm: `amm:large`, `manual:base`, `manual:large:75`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmmArm {
    /// True if memory moves; otherwise the division stays as at the start.
    pub automatic: bool,
    /// The pages of the buffer pools.
    pub pages: AmmPages,
    /// The part of the first server at the start, in percent.
    pub share: u8,
}

/// The pages of the buffer pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmmPages {
    /// Base pages.
    Base,
    /// Huge pages by `promote`, while the servers run.
    Large,
    /// Huge pages of the pool, by MariaDB's `large_pages`; such a buffer pool cannot grow.
    Hugetlb,
}

const HALF: u8 = 50;

impl AmmArm {
    /// Returns both sizes at the start, in whole steps of `step`.
    pub fn split(self, target: Bytes, least: Bytes, step: Bytes) -> [Bytes; 2] {
        let part = u128::from(target.get()) * u128::from(self.share) / 100;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let step = step.get().max(1);
        let most = target.get().saturating_sub(least.get());
        let first = (part / step * step).clamp(least.get().min(most), most);
        [Bytes(first), Bytes(target.get() - first)]
    }
}

impl fmt::Display for AmmArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.automatic { "amm" } else { "manual" };
        let pages = match self.pages {
            AmmPages::Base => "base",
            AmmPages::Large => "large",
            AmmPages::Hugetlb => "hugetlb",
        };
        match self.share {
            HALF => write!(f, "{who}:{pages}"),
            share => write!(f, "{who}:{pages}:{share}"),
        }
    }
}

impl FromStr for AmmArm {
    type Err = String;

    fn from_str(text: &str) -> Result<AmmArm, String> {
        let mut words = text.split(':');
        let automatic = match words.next() {
            Some("amm") => true,
            Some("manual") => false,
            _ => return Err(format!("'{text}' does not begin with amm: or manual:")),
        };
        let pages = match words.next() {
            Some("base") => AmmPages::Base,
            Some("large") => AmmPages::Large,
            Some("hugetlb") => AmmPages::Hugetlb,
            _ => {
                return Err(format!(
                    "the pages of '{text}' are not one of base, large, hugetlb"
                ));
            }
        };
        if automatic && pages == AmmPages::Hugetlb {
            return Err(
                "a MariaDB buffer pool on hugetlb pages cannot grow: use amm:large".to_owned(),
            );
        }
        let share = match words.next().map(str::parse) {
            None => HALF,
            Some(Ok(share @ 1..=99)) => share,
            Some(_) => {
                return Err(format!(
                    "the share of the first server in '{text}' is not a percentage from 1 to 99"
                ));
            }
        };
        match words.next() {
            None => Ok(AmmArm {
                automatic,
                pages,
                share,
            }),
            Some(_) => Err(format!("'{text}' has more than three parts")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back() {
        for text in ["amm:large", "amm:base", "manual:hugetlb", "manual:large:75"] {
            assert_eq!(text.parse::<AmmArm>().unwrap().to_string(), text);
        }
        assert_eq!(
            "amm:base:50".parse::<AmmArm>().unwrap().to_string(),
            "amm:base"
        );
        for text in [
            "",
            "amm",
            "amm:x",
            "auto:base",
            "amm:hugetlb",
            "manual:base:0",
            "manual:base:100",
            "manual:base:x",
            "manual:base:50:1",
        ] {
            assert!(text.parse::<AmmArm>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_split_is_the_whole_target_and_nobody_is_below_the_least() {
        let mib = Bytes::from_mib;
        let split = |text: &str| {
            let arm: AmmArm = text.parse().unwrap();
            arm.split(mib(100), mib(20), mib(8))
        };
        assert_eq!(split("manual:base"), [mib(48), mib(52)]);
        // Half of a power of two is exact.
        let half: AmmArm = "manual:base".parse().unwrap();
        assert_eq!(half.split(mib(64), mib(8), mib(8)), [mib(32); 2]);
        assert_eq!(split("manual:base:75"), [mib(72), mib(28)]);
        assert_eq!(split("manual:base:99"), [mib(80), mib(20)]);
        assert_eq!(split("manual:base:1"), [mib(20), mib(80)]);
    }
}
