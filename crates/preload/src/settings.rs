//! What the launcher decided, as it comes in the variable `HUGELEAF_RUN`: `key=value` pairs with
//! `;` between them, sizes in bytes. Pure: text in, settings out.

/// The memory that a role may be put on, in the order to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rungs {
    /// Sizes of reserved pages in bytes, the first to be tried first; zero: no more.
    pub pools: [usize; 4],
    pub thp: bool,
    /// Whether base pages are not acceptable.
    pub mandatory: bool,
}

impl Rungs {
    const NOTHING: Rungs = Rungs {
        pools: [0; 4],
        thp: false,
        mandatory: false,
    };

    pub const fn wanted(&self) -> bool {
        self.thp || self.pools[0] != 0
    }

    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.pools.into_iter().filter(|size| *size != 0)
    }

    pub const fn only_pools(&self) -> bool {
        self.mandatory && !self.thp
    }

    fn parse(text: &[u8]) -> Option<Rungs> {
        let mut rungs = Rungs::NOTHING;
        let mut pools = 0;
        for rung in text.split(|byte| *byte == b',') {
            match rung {
                b"thp" => rungs.thp = true,
                b"base" => {}
                b"!" => rungs.mandatory = true,
                _ => {
                    let size = number(rung.strip_prefix(b"hugetlb:")?)?;
                    if !size.is_power_of_two() {
                        return None;
                    }
                    *rungs.pools.get_mut(pools)? = size;
                    pools += 1;
                }
            }
        }
        Some(rungs)
    }
}

/// All that was decided. Sizes in bytes; zero where nothing was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings<'a> {
    pub base: usize,
    /// What a huge page of the page middle directory maps; zero: the host has none.
    pub pmd: usize,
    pub data: Rungs,
    pub shm: Rungs,
    pub stack: Rungs,
    pub text: Rungs,
    /// Private memory stays on base pages until the process holds this much.
    pub data_after: usize,
    /// The smallest shared segment that is looked at.
    pub shm_after: usize,
    /// The smallest stack that is looked at.
    pub stack_after: usize,
    /// Whether `MADV_HUGEPAGE` makes the next fault a huge one.
    pub touch: bool,
    /// The same for shared memory.
    pub shmem_touch: bool,
    pub reserve: usize,
    /// Names of the executables that the settings are for; empty: all.
    pub only: &'a [u8],
    /// Where the launcher listens for a program's end; empty: nowhere.
    pub report: &'a [u8],
}

impl<'a> Settings<'a> {
    /// What is so where nothing is said.
    pub const NOTHING: Settings<'a> = Settings {
        base: 0,
        pmd: 0,
        data: Rungs::NOTHING,
        shm: Rungs::NOTHING,
        stack: Rungs::NOTHING,
        text: Rungs::NOTHING,
        data_after: usize::MAX,
        shm_after: 0,
        stack_after: 0,
        touch: false,
        shmem_touch: false,
        reserve: 0,
        only: b"",
        report: b"",
    };

    /// The settings in a text, or `None` where it is not of this version or damaged: the library
    /// then stands aside. Keys that it does not know are left to others (`asked_data`).
    pub fn parse(text: &'a [u8]) -> Option<Settings<'a>> {
        let mut settings = Settings::NOTHING;
        let mut version = None;
        for pair in text.split(|byte| *byte == b';') {
            if pair.is_empty() {
                continue;
            }
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (pair.get(..at)?, pair.get(at + 1..)?);
            if key == b"v" {
                version = number(value);
            } else {
                settings.set(key, value)?;
            }
        }
        (version == Some(1) && settings.are_possible()).then_some(settings)
    }

    fn set(&mut self, key: &[u8], value: &'a [u8]) -> Option<()> {
        match key {
            b"base" => self.base = number(value)?,
            b"pmd" => self.pmd = number(value)?,
            b"data" => self.data = Rungs::parse(value)?,
            b"shm" => self.shm = Rungs::parse(value)?,
            b"stack" => self.stack = Rungs::parse(value)?,
            b"text" => self.text = Rungs::parse(value)?,
            b"data_after" => self.data_after = number(value)?,
            b"shm_after" => self.shm_after = number(value)?,
            b"stack_after" => self.stack_after = number(value)?,
            b"touch" => self.touch = value == b"1",
            b"shmem_touch" => self.shmem_touch = value == b"1",
            b"reserve" => self.reserve = number(value)?,
            b"only" => self.only = value,
            b"report" => self.report = value,
            _ => {}
        }
        Some(())
    }

    /// A base page there must be; the huge page is a power of two of several base pages.
    fn are_possible(&self) -> bool {
        self.base.is_power_of_two()
            && (self.pmd == 0 || (self.pmd.is_power_of_two() && self.pmd > self.base))
    }

    pub fn are_for(&self, name: &[u8]) -> bool {
        self.only.is_empty()
            || self
                .only
                .split(|byte| *byte == b':')
                .any(|only| only == name)
    }
}

/// A decimal number, or `None` where it is none or does not fit.
pub fn number(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0_usize;
    for digit in text {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(usize::from(digit - b'0'))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"v=1;base=4096;pmd=2097152;data=thp;shm=hugetlb:2097152,thp,!;stack=base;\
        data_after=33554432;touch=1;only=a:bc;asked_data=auto";

    #[test]
    fn what_the_launcher_says_is_understood() {
        let settings = Settings::parse(TEXT).unwrap();
        assert_eq!(settings.pmd, 2 << 20);
        assert!(settings.data.thp && settings.data.wanted() && !settings.data.mandatory);
        assert_eq!(settings.shm.pools, [2 << 20, 0, 0, 0]);
        assert!(settings.shm.mandatory && !settings.stack.wanted());
        assert!(settings.touch && !settings.shmem_touch);
        assert!(settings.are_for(b"bc") && !settings.are_for(b"b"));
    }

    #[test]
    fn other_versions_and_damage_are_refused() {
        for text in [
            &b"v=2;base=4096"[..],
            b"base=4096",
            b"v=1",
            b"v=1;base=4097",
            b"v=1;base=4096;pmd=3",
            b"v=1;base=4096;data=hugetlb:3",
            b"v=1;base=4096;data=gold",
            b"v=1;base=99999999999999999999999",
            b"v=1;base=4096;nonsense",
        ] {
            assert_eq!(Settings::parse(text), None, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Settings::parse(&text);
        }
    }
}
