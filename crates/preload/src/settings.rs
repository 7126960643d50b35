//! The launcher's decisions from the variable `HUGELEAF_RUN`: `key=value` pairs separated by `;`,
//! sizes in bytes. Pure: text in, settings out.

/// The page kinds for a role of memory, in the order of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLadder {
    /// Sizes of hugetlb pages in bytes, in the order of attempts. Zero: no more.
    pub pools: [usize; 4],
    pub thp: bool,
    /// True if base pages are not acceptable.
    pub mandatory: bool,
}

impl PageLadder {
    const NOTHING: PageLadder = PageLadder {
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

    pub const fn hugetlb_only(&self) -> bool {
        self.mandatory && !self.thp
    }

    fn parse(text: &[u8]) -> Option<PageLadder> {
        let mut rungs = PageLadder::NOTHING;
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

/// All decisions of the launcher. Sizes are in bytes, zero if not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSettings<'a> {
    pub base: usize,
    /// Size of a huge page mapped by the page middle directory (PMD). Zero: the host has none.
    pub pmd: usize,
    pub data: PageLadder,
    pub shm: PageLadder,
    pub stack: PageLadder,
    pub text: PageLadder,
    /// Size of the process from which private memory is placed on huge pages.
    pub data_after: usize,
    /// Size of the smallest shared segment that is handled.
    pub shm_after: usize,
    /// Size of the smallest stack that is handled.
    pub stack_after: usize,
    /// True if `MADV_HUGEPAGE` makes the next fault a huge one.
    pub touch: bool,
    /// The same as `touch`, for shared memory.
    pub shmem_touch: bool,
    pub reserve: usize,
    /// Names of the executables that the settings apply to. Empty: all.
    pub only: &'a [u8],
    /// Socket path for reporting a program's end to the launcher. Empty: none.
    pub report: &'a [u8],
}

impl<'a> LaunchSettings<'a> {
    /// The default settings.
    pub const NOTHING: LaunchSettings<'a> = LaunchSettings {
        base: 0,
        pmd: 0,
        data: PageLadder::NOTHING,
        shm: PageLadder::NOTHING,
        stack: PageLadder::NOTHING,
        text: PageLadder::NOTHING,
        data_after: usize::MAX,
        shm_after: 0,
        stack_after: 0,
        touch: false,
        shmem_touch: false,
        reserve: 0,
        only: b"",
        report: b"",
    };

    /// Parses settings. `None` if the text is damaged or of another version: the library then stays
    /// inactive. Unknown keys are left to other readers (`asked_data`).
    pub fn parse(text: &'a [u8]) -> Option<LaunchSettings<'a>> {
        let mut settings = LaunchSettings::NOTHING;
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
            b"data" => self.data = PageLadder::parse(value)?,
            b"shm" => self.shm = PageLadder::parse(value)?,
            b"stack" => self.stack = PageLadder::parse(value)?,
            b"text" => self.text = PageLadder::parse(value)?,
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

    /// Returns true if the base page is valid, and the huge page is a larger power of two or zero.
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

/// Parses a decimal number. `None` if it is invalid or too large.
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
        let settings = LaunchSettings::parse(TEXT).unwrap();
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
            assert_eq!(LaunchSettings::parse(text), None, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = LaunchSettings::parse(&text);
        }
    }
}
