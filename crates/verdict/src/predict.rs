//! What larger pages would bring a process, before anything is changed: a range, or why none is said. Pure.
//!
//! With the processor's counters the share of its time in page walks is known, and with it the most that can be won.
//! Without them it is reasoned from three things that every host has. How many base pages it touches in a short while is
//! the least number of translations it needed; those beyond what a TLB holds were missed. What a miss costs is what a
//! dependent random read takes longer on base pages than on large ones in as much memory, measured here. And how much of
//! its time it computes in user mode bounds all of it: what waits for a disk or the kernel wins nothing there.
//!
//! How far that is right was tried: [`MODEL`] holds what was fitted to programs whose gain was proven, and
//! docs/figures.md how often the proven gain was in the range.

use std::time::Duration;

use hugeleaf_host::{Host, Process};
use hugeleaf_units::{Bytes, PageSize, Range};
use serde::Serialize;

use crate::eligible::{self, Kind, Reason};

/// What was seen of a process in short looks at which of its base pages it touches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    pub time: Duration,
    pub resident: Bytes,
    pub touched: Bytes,
    pub large: Bytes,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    pub base_page: PageSize,
    /// Short looks, and a long one last: what it touches in a second is what it works with.
    pub looks: Vec<Seen>,
    pub time: Duration,
    /// Processor time in user mode meanwhile, of all threads.
    pub user: Duration,
    pub system: Duration,
    pub busiest: Duration,
    /// Time that its threads waited for a processor; `None` where the kernel does not count that.
    pub waited: Option<Duration>,
    pub faults: u64,
    /// Share of its cycles in page walks, where the processor counts them.
    pub walks: Option<f64>,
}

/// What a dependent random read costs on this host in as much memory as the process works with, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reads {
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    pub base_ns: f64,
    pub large_ns: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predicted {
    /// Work in the same time, over now: at least.
    pub low: f64,
    /// At most.
    pub high: f64,
    pub by: By,
    /// Translations that it missed a second, at least; where they were counted by touched pages.
    pub misses_per_second: Option<f64>,
    /// Memory it touches in a second, on base pages.
    #[serde(rename = "working_set_bytes")]
    pub working_set: Bytes,
    /// Share of its processor time that page walks take, at least and at most.
    pub walks: [f64; 2],
    /// Share of its processor time in user mode.
    pub user_share: f64,
    /// The part of the time in which its busiest thread has a processor.
    pub busy: f64,
    pub faults_per_second: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    WalkCycles,
    TouchedPages,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unsaid {
    #[error(
        "it used {percent:.0} % of a processor while it was watched, and what rests gains nothing: watch it while it works"
    )]
    Rests { percent: f64 },
    #[error(
        "it had a processor for {percent:.0} % of the time and waited for one for {waited:.0} %: watch it while the \
         host is less busy"
    )]
    Starved { percent: f64, waited: f64 },
    #[error(
        "it works with {0} on base pages that could be larger, which the TLB covers well enough: nothing to gain"
    )]
    Small(Bytes),
    #[error(
        "it touched between {low:.0} and {high:.0} pages a second from one look to the next: watch it for longer, with --for"
    )]
    Varies { low: f64, high: f64 },
    #[error("between ×{low:.2} and ×{high:.2}, which is no answer: hugeleaf prove measures it")]
    Wide { low: f64, high: f64 },
}

#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// A TLB of two levels holds about so many translations of base pages (1,536 in Intel's since Skylake, 2,048 and more in
    /// AMD's since Zen 2: their optimisation manuals).
    pub reach: f64,
    /// Of a miss's cost a program feels at least this part: what it does meanwhile, and reads in order, hide the rest.
    pub felt_least: f64,
    /// And at most this: it is more than one where several misses stand behind each page that is seen. Redis felt 3.5
    /// and memcached 1.6 of what was counted (bench/runs/2026-11-25-vm-3).
    pub felt_most: f64,
    /// A program may win so much more of its time than a random read does: the kernel, too, touches its memory, and
    /// page tables that are not read leave the caches to it. Redis won 1.1 of it.
    pub over_reads: f64,
    /// Processor time that a page fault takes which a larger page would spare, in seconds: a first touch of new memory took
    /// 1.45 to 1.55 µs on base pages and 0.37 to 0.39 µs for as much of a huge one (docs/internals/kernel-notes.md).
    pub fault: f64,
    pub margin: f64,
    /// A look that found so large a part of all pages touched was too long to count by.
    pub full: f64,
    /// Ends further apart say nothing.
    pub widest: f64,
}

pub const MODEL: Model = Model {
    reach: 1536.0,
    felt_least: 0.3,
    felt_most: 4.0,
    over_reads: 1.3,
    fault: 1.1e-6,
    margin: 0.03,
    full: 0.9,
    widest: 1.0,
};

/// Less work is too little to go by, of one processor.
const RESTS: f64 = 0.05;
/// So far may looks differ, a factor; noise is a part of it.
const VARIES: f64 = 8.0;

/// The ranges of a process whose pages could be larger, by whatever method: what is no file, on no pool and long enough.
/// Settings that forbid it now do not count.
pub fn could_be_larger(host: &Host, process: &Process) -> Vec<Range> {
    let could = |segment: &&hugeleaf_host::Segment| match eligible::mapping(host, process, segment)
    {
        Err(Reason::Hugetlb | Reason::Special | Reason::TooSmall) => false,
        Ok(kind) => kind != Kind::File,
        Err(_) => Kind::of(segment) != Kind::File,
    };
    process
        .segments
        .iter()
        .filter(could)
        .map(|segment| segment.range)
        .collect()
}

/// Whether there is anything to predict, before it is measured what a read costs: how much it works with.
pub fn working_set(watched: &Watched, model: &Model) -> Result<Bytes, Unsaid> {
    let used = (watched.user + watched.system).as_secs_f64() / seconds(watched);
    let waited = watched.waited.unwrap_or_default().as_secs_f64() / seconds(watched);
    let percent = used * 100.0;
    if used < RESTS {
        return Err(match used + waited < RESTS {
            true => Unsaid::Rests { percent },
            false => Unsaid::Starved {
                percent,
                waited: waited * 100.0,
            },
        });
    }
    let touched = watched.looks.iter().map(|look| look.touched).max();
    let touched = touched.unwrap_or_default();
    match touched.as_f64() / watched.base_page.bytes().as_f64() <= model.reach {
        true => Err(Unsaid::Small(touched)),
        false => Ok(touched),
    }
}

/// Several processes that were watched at the same time as one: a server with a process for each client. Each has a TLB
/// to itself while it runs, so of each only what is beyond that counts. `None` of none.
pub fn together(all: &[Watched], model: &Model) -> Option<Watched> {
    let first = all.first()?;
    if all.len() == 1 {
        return Some(first.clone());
    }
    let page = first.base_page.bytes().as_f64();
    #[expect(clippy::cast_possible_truncation, reason = "some thousand pages")]
    let reach = Bytes((model.reach * page) as u64);
    let look = |at: usize| {
        let looks = || all.iter().filter_map(move |one| one.looks.get(at));
        let beyond: Bytes = looks().map(|look| look.touched.saturating_sub(reach)).sum();
        let most = looks().map(|look| look.touched).max().unwrap_or_default();
        let count = u32::try_from(looks().count().max(1)).unwrap_or(u32::MAX);
        Seen {
            time: looks().map(|look| look.time).sum::<Duration>() / count,
            resident: looks().map(|look| look.resident).sum(),
            // The amount that is subtracted once below is of all of them.
            touched: most.max(beyond + most.min(reach)),
            large: looks().map(|look| look.large).sum(),
        }
    };
    let looks = all.iter().map(|one| one.looks.len()).min().unwrap_or(0);
    let waited = all.iter().filter_map(|one| one.waited);
    Some(Watched {
        base_page: first.base_page,
        looks: (0..looks).map(look).collect(),
        time: all.iter().map(|one| one.time).max().unwrap_or_default(),
        user: all.iter().map(|one| one.user).sum(),
        system: all.iter().map(|one| one.system).sum(),
        busiest: all.iter().map(|one| one.busiest).max().unwrap_or_default(),
        waited: waited.reduce(|one, other| one + other),
        faults: all.iter().map(|one| one.faults).sum(),
        walks: None,
    })
}

fn seconds(watched: &Watched) -> f64 {
    watched.time.as_secs_f64().max(1e-6)
}

pub fn predict(watched: &Watched, reads: &Reads, model: &Model) -> Result<Predicted, Unsaid> {
    let working_set = working_set(watched, model)?;
    let time = seconds(watched);
    let used = watched.user + watched.system;
    let busy = (watched.busiest.as_secs_f64() / time).min(1.0);
    let user_share = watched.user.as_secs_f64() / used.as_secs_f64();
    let of_read = (1.0 - reads.large_ns / reads.base_ns).max(0.0);
    let bound = model.over_reads * of_read;
    let (misses, is_full) = misses(watched, model)?;
    let counted = watched.walks.map(|share| share.clamp(0.0, 1.0));
    let of_large = of_large(watched);
    let (by, walks) = match counted {
        // Not all walks go away with larger pages; how many do could be counted on no machine of the tests.
        Some(share) => (By::WalkCycles, [share * 0.5 * (1.0 - of_large), share]),
        None => {
            let miss = (reads.base_ns - reads.large_ns).max(0.0) * 1e-9;
            let share = misses * miss / watched.user.as_secs_f64().max(0.01) * time;
            let most = if is_full {
                bound
            } else {
                (share * model.felt_most).min(bound)
            };
            (
                By::TouchedPages,
                [(share.min(of_read) * model.felt_least).min(most), most],
            )
        }
    };
    let faults_per_second = watched.faults as f64 / time;
    let faults =
        (faults_per_second * model.fault / (used.as_secs_f64() / time)).min(1.0 - user_share);
    // What waits for others wins less than it computes faster: down to nothing.
    let low = gain(walks[0] * user_share * busy) - model.margin;
    let high = gain(walks[1] * user_share + faults) + model.margin;
    if high - low > model.widest {
        return Err(Unsaid::Wide { low, high });
    }
    Ok(Predicted {
        low,
        high,
        by,
        misses_per_second: counted.is_none().then_some(misses),
        working_set,
        walks,
        user_share,
        busy,
        faults_per_second,
    })
}

/// What goes faster by where a share of its time goes away.
fn gain(share: f64) -> f64 {
    1.0 / (1.0 - share.clamp(0.0, 0.95))
}

fn of_large(watched: &Watched) -> f64 {
    let last = watched.looks.last();
    last.map_or(0.0, |look| {
        look.large
            .share_of(look.large + look.resident)
            .unwrap_or(0.0)
    })
}

/// Translations missed a second, at least, in the middle of all short looks; and whether they were too long to tell.
fn misses(watched: &Watched, model: &Model) -> Result<(f64, bool), Unsaid> {
    let page = watched.base_page.bytes().as_f64();
    let short = &watched.looks[..watched.looks.len().saturating_sub(1)];
    let rate = |look: &Seen| {
        let (all, touched) = (look.resident.as_f64() / page, look.touched.as_f64() / page);
        if all <= 0.0 || touched <= model.reach {
            return 0.0;
        }
        // Touched more than once counts once: of random touches so many stand behind the pages that were seen.
        let part = (touched / all).min(model.full);
        let touches = -all * (1.0 - part).ln();
        touches * (1.0 - model.reach / touched) / look.time.as_secs_f64().max(1e-6)
    };
    let mut rates: Vec<f64> = short.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let Some(middle) = rates.get(rates.len() / 2).copied() else {
        return Ok((0.0, true));
    };
    let (low, high) = (rates[rates.len() / 4], rates[rates.len() * 3 / 4]);
    if low * VARIES < high && high > 1e6 {
        return Err(Unsaid::Varies { low, high });
    }
    let full = short.iter().filter(|look| {
        look.touched
            .share_of(look.resident)
            .is_some_and(|part| part >= model.full)
    });
    Ok((middle, full.count() * 2 > short.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn look(millis: u64, resident: u64, touched: u64) -> Seen {
        Seen {
            time: Duration::from_millis(millis),
            resident: Bytes(resident * PAGE),
            touched: Bytes(touched * PAGE),
            large: Bytes::ZERO,
        }
    }

    /// One thread that computes, and touches so many of 262,144 pages in 10 ms.
    fn works(touched: u64) -> Watched {
        let mut looks = vec![look(10, 1 << 18, touched); 9];
        looks.push(look(1000, 1 << 18, 1 << 18));
        Watched {
            base_page: PageSize::new(Bytes(PAGE)).unwrap(),
            looks,
            time: Duration::from_secs(4),
            user: Duration::from_secs(4),
            system: Duration::ZERO,
            busiest: Duration::from_secs(4),
            waited: None,
            faults: 0,
            walks: None,
        }
    }

    const READS: Reads = Reads {
        size: Bytes(1 << 30),
        base_ns: 150.0,
        large_ns: 100.0,
    };

    fn said(watched: &Watched) -> Predicted {
        predict(watched, &READS, &MODEL).unwrap()
    }

    #[test]
    fn more_misses_bring_more() {
        let few = said(&works(2_000));
        let many = said(&works(40_000));
        assert!(
            few.high < many.high && few.low < many.low,
            "{few:?} {many:?}"
        );
        assert!(few.low <= 1.0 && few.high < 1.1, "{few:?}");
        // 40,000 pages in 10 ms are four million misses a second at least, 50 ns each: a fifth of the time.
        let misses = many.misses_per_second.unwrap();
        assert!((4e6..5e6).contains(&misses), "{misses}");
        assert!(many.high > 1.2, "{many:?}");
    }

    #[test]
    fn hardly_more_than_a_read_itself() {
        let all = said(&works(1 << 18));
        let most = 1.0 / (1.0 - MODEL.over_reads / 3.0) + MODEL.margin;
        assert!(all.high <= most + 1e-9, "{all:?}");
        let same = Reads {
            large_ns: READS.base_ns,
            ..READS
        };
        let none = predict(&works(1 << 18), &same, &MODEL).unwrap();
        assert!(
            none.low < 1.0 && none.high <= 1.0 + MODEL.margin,
            "{none:?}"
        );
    }

    #[test]
    fn what_the_kernel_does_gains_nothing() {
        let mut watched = works(40_000);
        watched.user = Duration::from_secs(1);
        watched.system = Duration::from_secs(3);
        let server = said(&watched);
        assert!((server.user_share - 0.25).abs() < 1e-9);
        // As many misses in a quarter of the time take more of it, but never more than all of that quarter.
        assert!(server.high <= 1.0 / 0.75 + MODEL.margin);
    }

    #[test]
    fn faults_count_where_there_is_time_in_the_kernel() {
        let mut watched = works(2_000);
        watched.faults = 400_000;
        watched.system = Duration::from_millis(400);
        watched.user = Duration::from_millis(3_600);
        assert!(said(&watched).high > said(&works(2_000)).high);
    }

    /// Ten backends, each of which would rest by itself, and one that does as much as all of them.
    #[test]
    fn a_tree_is_judged_as_a_whole() {
        let mut backend = works(5_536);
        backend.user = Duration::from_millis(150);
        backend.busiest = backend.user;
        assert!(matches!(
            working_set(&backend, &MODEL),
            Err(Unsaid::Rests { .. })
        ));
        let tree = together(&vec![backend.clone(); 10], &MODEL).unwrap();
        let all = said(&tree);
        // For each 4,000 pages beyond a TLB, in 10 ms.
        let misses = all.misses_per_second.unwrap();
        assert!((3.9e6..4.1e6).contains(&misses), "{misses}");
        assert_eq!(tree.user, Duration::from_millis(1500));
        // The same work in one process.
        let mut one = works(41_536);
        (one.user, one.busiest) = (tree.user, tree.busiest);
        let one = said(&one);
        assert!((all.low - one.low).abs() < 1e-6 && (all.high - one.high).abs() < 1e-6);
        // Those that do nothing change nothing.
        let mut idle = works(0);
        (idle.user, idle.busiest) = (Duration::ZERO, Duration::ZERO);
        let mut with_idle = vec![backend; 10];
        with_idle.extend(vec![idle; 50]);
        let with_idle = said(&together(&with_idle, &MODEL).unwrap());
        assert!((with_idle.high - all.high).abs() < 1e-6);
        assert_eq!(together(&[], &MODEL), None);
    }

    #[test]
    fn who_gets_no_processor_does_not_rest() {
        let mut starved = works(40_000);
        (starved.time, starved.user) = (Duration::from_secs(20), Duration::from_millis(250));
        starved.waited = Some(Duration::from_secs(19));
        let error = working_set(&starved, &MODEL).unwrap_err();
        assert!(matches!(error, Unsaid::Starved { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("waited for one for 95 %"), "{said}");
        starved.waited = Some(Duration::from_millis(10));
        let error = working_set(&starved, &MODEL).unwrap_err();
        assert!(matches!(error, Unsaid::Rests { .. }), "{error}");
    }

    #[test]
    fn counters_are_believed() {
        let mut watched = works(2_000);
        watched.walks = Some(0.3);
        let counted = said(&watched);
        assert_eq!(counted.by, By::WalkCycles);
        assert!(counted.misses_per_second.is_none());
        assert!(counted.low > 1.1 && counted.high > 1.4, "{counted:?}");
    }

    #[test]
    fn what_would_mislead_is_not_said() {
        let mut rests = works(40_000);
        rests.user = Duration::from_millis(40);
        assert!(matches!(
            predict(&rests, &READS, &MODEL),
            Err(Unsaid::Rests { .. })
        ));
        let mut small = works(1_000);
        for look in &mut small.looks {
            look.touched = Bytes(1_000 * PAGE);
        }
        assert!(matches!(
            predict(&small, &READS, &MODEL),
            Err(Unsaid::Small(_))
        ));
        let mut varies = works(100_000);
        for look in &mut varies.looks[..4] {
            look.touched = Bytes(1_700 * PAGE);
        }
        assert!(matches!(
            predict(&varies, &READS, &MODEL),
            Err(Unsaid::Varies { .. })
        ));
        let wide = Reads {
            large_ns: 10.0,
            ..READS
        };
        assert!(matches!(
            predict(&works(1 << 18), &wide, &MODEL),
            Err(Unsaid::Wide { .. })
        ));
    }

    #[test]
    fn nothing_at_all_is_no_panic() {
        let mut nothing = works(0);
        nothing.looks.clear();
        nothing.time = Duration::ZERO;
        assert!(predict(&nothing, &READS, &MODEL).is_err());
        nothing.user = Duration::from_secs(1);
        let zero = Reads {
            base_ns: 0.0,
            ..READS
        };
        let _ = predict(&nothing, &zero, &MODEL);
    }
}
