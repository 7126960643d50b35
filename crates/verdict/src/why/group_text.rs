//! Describes several verdicts of one id: a sentence with their sums, and one command for all.

use hugeleaf_host::Process;
use hugeleaf_units::Bytes;

use crate::advice::{self, AdvisedCommand};
use crate::clean;

use super::{DisabledThpSize, RangeVerdict, Reason, VerdictFigures};

pub const NOTHING: &str = "# nothing to do";

/// Verdicts with one remedy, and their processes.
pub struct VerdictGroup<'a> {
    pub verdicts: Vec<&'a RangeVerdict>,
    pub processes: Vec<&'a Process>,
}

/// True if all verdicts of the id become one line regardless of their numbers. Their texts describe one
/// range, and one command covers all.
pub const fn is_summed(id: Reason) -> bool {
    use Reason::*;
    matches!(
        id,
        PartlyResident
            | PartlyMapped
            | Sparse
            | Swapped
            | CopyOnWrite
            | Merged
            | OrdersOff
            | PrivateFile
    )
}

impl VerdictGroup<'_> {
    /// Returns the sentence and the command for the sums of bytes and figures.
    pub fn words(&self, bytes: Bytes, f: &VerdictFigures) -> (String, AdvisedCommand) {
        let first = self.verdicts[0];
        let next = || AdvisedCommand {
            command: first.command.clone(),
            changes: first.changes.clone(),
        };
        if self.verdicts.len().max(self.processes.len()) == 1 {
            return (first.text.clone(), next());
        }
        let text = match first.id {
            Reason::PartlyResident | Reason::PartlyMapped | Reason::Sparse | Reason::Swapped => {
                partly(first.id, bytes, f)
            }
            Reason::CopyOnWrite => self.copy_on_write(bytes, f),
            Reason::Merged => first.id.says().to_owned(),
            Reason::OrdersOff => orders_off(bytes, f),
            Reason::PrivateFile => self.private_files(),
            _ => first.text.clone(),
        };
        let next = match first.id {
            Reason::PartlyResident | Reason::PartlyMapped | Reason::Swapped => {
                promote_and_grow(bytes, f)
            }
            Reason::CopyOnWrite if self.processes.len() > 1 => {
                once_ended("the children have", f).into()
            }
            Reason::OrdersOff => turn_size_on(bytes, f, &self.who()),
            _ => next(),
        };
        (text, next)
    }

    fn copy_on_write(&self, bytes: Bytes, f: &VerdictFigures) -> String {
        let who = match self.processes.as_slice() {
            [_] => format!("with {}", f.sharer),
            many => format!("since fork by {} of the processes", many.len()),
        };
        copy_on_write(&who, bytes)
    }

    fn private_files(&self) -> String {
        let mut names: Vec<&str> = self.verdicts.iter().map(|v| v.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        match names.as_slice() {
            [one] => private_copies(one),
            many => private_copies(&format!("{} files", many.len())),
        }
    }

    fn who(&self) -> String {
        match self.processes.as_slice() {
            [one] => clean(&one.name),
            many => format!("the {} processes", many.len()),
        }
    }
}

/// Describes partly resident memory.
pub fn partly(id: Reason, bytes: Bytes, f: &VerdictFigures) -> String {
    let whole = bytes + f.missing + f.swapped;
    let (percent, missing) = (Bytes(100).scaled(bytes, whole).get(), f.missing);
    match id {
        Reason::PartlyResident => format!(
            "{percent}% of these pages are in memory; huge pages would add the rest, {missing} \
             more{}",
            without_room(f, missing)
        ),
        Reason::PartlyMapped => format!(
            "shared memory of which this process has touched {percent}%; promotion counts the \
             pages of all processes that it is given"
        ),
        Reason::Sparse => format!(
            "only {percent}% of these pages are in memory; huge pages would cost {missing} more"
        ),
        _ if bytes.is_zero() => format!(
            "{}, all in swap: it returns on base pages when it is used",
            f.swapped
        ),
        _ => format!(
            "{} of it is in swap; promotion would swap it in{}",
            f.swapped,
            without_room(f, missing + f.swapped)
        ),
    }
}

/// Describes the memory limit if the process's cgroup has no room for `adds` bytes.
fn without_room(f: &VerdictFigures, adds: Bytes) -> String {
    match &f.tightest_limit {
        Some(room) if room.left < adds + room.page => format!(
            ". The memory limit of cgroup {} leaves {}",
            room.cgroup, room.left
        ),
        _ => String::new(),
    }
}

pub fn cgroup_memory(f: &VerdictFigures) -> String {
    let Some(room) = &f.tightest_limit else {
        return "a cgroup limits memory".to_owned();
    };
    format!(
        "cgroup {} has {} left of its memory limit of {}: the kernel charges a huge page before it \
         frees the base pages, so there must be room for one",
        room.cgroup, room.left, room.limit
    )
}

/// Returns the promotion command for partly resident memory, which grows the process.
pub fn promote_and_grow(bytes: Bytes, f: &VerdictFigures) -> AdvisedCommand {
    match f.holes.growth() {
        Some(growth) => promote_within(f, growth.adds, &growth.command(&f.target)),
        None if bytes.is_zero() => {
            let target = &f.target;
            format!("# once it is back in memory: hugeleaf promote {target}").into()
        }
        None => NOTHING.into(),
    }
}

/// Returns a promotion command that adds `adds` bytes, after raising the cgroup limit if needed. Allows
/// two more huge pages, because the kernel charges in advance on each processor.
pub fn promote_within(f: &VerdictFigures, adds: Bytes, promote: &str) -> AdvisedCommand {
    let Some(room) = f
        .tightest_limit
        .as_ref()
        .filter(|room| room.left < adds + room.page)
    else {
        return promote.into();
    };
    let need = room.limit - room.left + adds + room.page + room.page;
    let pages = need.get().div_ceil(room.page.get().max(1));
    let limit = Bytes(pages.saturating_mul(room.page.get()));
    advice::raised_limit(&room.file, limit, room.is_in_container).then(promote)
}

pub fn copy_on_write(who: &str, bytes: Bytes) -> String {
    format!("shared copy-on-write {who}; promotion would copy it and take {bytes} more memory")
}

/// Returns the promotion command for copy-on-write pages once their sharers have exited. `who` includes
/// the verb.
pub fn once_ended(who: &str, f: &VerdictFigures) -> String {
    format!(
        "# wait until {who} ended, then: hugeleaf promote {}",
        f.target
    )
}

pub fn private_copies(of: &str) -> String {
    format!("private copies of pages of {of}, which the kernel copies one base page at a time")
}

/// Returns the smaller THP size to enable for `of` bytes. Among the sizes that fit at least half of
/// them, prefers the one that the processor translates with one entry, then the largest. Otherwise the
/// size that fits most. None if no size fits a tenth, because a host-wide setting must bring more than
/// that.
pub fn best_size(sizes: &[DisabledThpSize], of: Bytes) -> Option<&DisabledThpSize> {
    let at_least = |part: u64| {
        let fits = move |s: &&DisabledThpSize| s.bytes.get().saturating_mul(part) >= of.get();
        sizes.iter().filter(fits)
    };
    at_least(2)
        .max_by_key(|s| (s.is_translated_as_one, s.size))
        .or_else(|| at_least(10).max_by_key(|s| (s.bytes, s.size)))
}

pub fn orders_off(bytes: Bytes, f: &VerdictFigures) -> String {
    match best_size(&f.off_sizes, bytes) {
        Some(off) => format!(
            "no whole huge page fits here; {} pages would fit {} of it, but that size is off on \
             this host ({})",
            off.size, off.bytes, off.knob
        ),
        None => {
            "no whole huge page fits here, and no disabled smaller size would fit a tenth of it"
                .to_owned()
        }
    }
}

pub fn turn_size_on(bytes: Bytes, f: &VerdictFigures, who: &str) -> AdvisedCommand {
    let Some(off) = best_size(&f.off_sizes, bytes) else {
        return NOTHING.into();
    };
    let on = &off.turn_on;
    let is_refused_here = on.changes.is_empty() && !on.command.starts_with('#');
    if is_refused_here {
        return on.clone();
    }
    AdvisedCommand {
        command: format!(
            "# host-wide setting, helps at most {} here: {}, then restart {who}",
            off.bytes,
            on.command.trim_start_matches("# ")
        ),
        changes: on.changes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_units::PageSize;

    #[test]
    fn a_size_for_the_whole_host_brings_at_least_a_tenth() {
        let off = |size: &str, bytes: u64, is_translated_as_one| DisabledThpSize {
            turn_on: format!("echo always > {size}").into(),
            size: size.parse::<PageSize>().unwrap(),
            knob: size.to_owned(),
            is_translated_as_one,
            bytes: Bytes(bytes),
        };
        let best =
            |sizes: &[DisabledThpSize]| best_size(sizes, Bytes(1000)).map(|s| s.knob.clone());
        let is = |size: &str| Some(size.to_owned());
        let (small, mid, large) = (
            off("16K", 900, false),
            off("64K", 600, false),
            off("1M", 90, false),
        );
        assert_eq!(
            best(&[small.clone(), mid.clone(), large.clone()]),
            is("64K")
        );
        let one = off("16K", 900, true);
        assert_eq!(best(&[one, mid, large.clone()]), is("16K"));
        assert_eq!(
            best(&[off("16K", 400, false), off("64K", 300, true)]),
            is("16K")
        );
        assert_eq!(best(std::slice::from_ref(&large)), None);
        let figures = VerdictFigures {
            off_sizes: vec![large],
            ..VerdictFigures::default()
        };
        let next = turn_size_on(Bytes(1000), &figures, "x");
        assert_eq!(next.command, "# nothing to do");
        assert!(orders_off(Bytes(1000), &figures).contains("would fit a tenth"));
    }
}
