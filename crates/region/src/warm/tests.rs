//! Memory on trial, on this kernel.

use hugeleaf_testkit::host_lock;
use std::sync::Mutex;

use super::*;

fn base() -> PageSize {
    hugeleaf_sys::Kernel::new().base_page()
}

fn thp(pages: u64) -> Option<WarmPart> {
    let host = HostMemory::read().unwrap().host;
    Some(WarmPart {
        page: host.pmd_page.get()?,
        kind: PageKind::Thp,
        node: None,
        pages: Pages(pages),
    })
}

#[test]
fn a_trial_is_populated_and_read_back() {
    let _host = host_lock::shared();
    let Some(part) = thp(32) else {
        return hugeleaf_testkit::not_run("warm::a_trial", "this kernel has no THP");
    };
    let seen = Mutex::new(Vec::new());
    let progress = |done: Bytes, total: Bytes| seen.lock().unwrap().push((done, total));
    let options = WarmOptions {
        progress: Some(&progress),
        ..WarmOptions::default()
    };
    let warmed = warm(WarmSource::Trial, &[part], &options).unwrap();
    let done: Bytes = warmed.nodes.iter().map(|node| node.bytes).sum();
    assert_eq!(done, part.bytes());
    assert_eq!(warmed.pages.len(), 1);
    assert_eq!(warmed.pages[0].wanted, part.bytes());
    // The kernel may lack contiguous memory, but then it says so.
    assert_eq!(warmed.is_complete(), warmed.pages[0].got >= part.bytes());
    assert_eq!(seen.lock().unwrap().last(), Some(&(done, done)));
}

/// Base pages where huge ones were requested are a silent fallback.
#[test]
fn base_pages_are_no_huge_pages() {
    let _host = host_lock::shared();
    let Some(part) = thp(4) else {
        return hugeleaf_testkit::not_run("warm::base_pages", "this kernel has no THP");
    };
    let layout = Layout::map(WarmSource::Trial, &[part]).unwrap();
    let (_, range) = layout.parts[0];
    layout.space.advise(range, Advice::NoHugePage).unwrap();
    populate(&layout.space, range).unwrap();
    let pages = layout.read_back().unwrap();
    assert_eq!(pages[0].got, Bytes::ZERO);
    assert_eq!(pages[0].wanted, part.bytes());
}

#[test]
fn a_stop_ends_it() {
    let stop = AtomicBool::new(true);
    let part = WarmPart {
        page: base(),
        kind: PageKind::Thp,
        node: None,
        pages: Pages(16),
    };
    let options = WarmOptions {
        stop: Some(&stop),
        ..WarmOptions::default()
    };
    let warmed = warm(WarmSource::Trial, &[part], &options).unwrap();
    assert!(warmed.stopped && !warmed.is_complete());
    assert!(warmed.nodes.iter().all(|node| node.bytes.is_zero()));
}

#[test]
fn a_short_pool_is_an_error_before_the_first_fault() {
    let Some(host) = host_lock::alone_as_root("warm::a_short_pool") else {
        return;
    };
    let facts = HostMemory::read().unwrap().host;
    let Some(page) = facts.memory.default_hugetlb_page.get() else {
        return hugeleaf_testkit::not_run("warm::a_short_pool", "no hugetlb");
    };
    let file = hugeleaf_host::pool_file(page, None, "nr_hugepages");
    host.set(&file, "4");
    let part = |pages| WarmPart {
        page,
        kind: PageKind::Hugetlb,
        node: facts.nodes.first().copied(),
        pages: Pages(pages),
    };
    let refused = warm(WarmSource::Trial, &[part(5)], &WarmOptions::default()).unwrap_err();
    let is_short = |error: &SysError| error.errno == hugeleaf_sys::Errno::NOMEM;
    assert!(
        matches!(&refused, MemoryError::Sys(error) if is_short(error)),
        "{refused}"
    );
    let warmed = warm(WarmSource::Trial, &[part(4)], &WarmOptions::default()).unwrap();
    assert!(warmed.is_complete(), "{warmed:?}");
    assert_eq!(warmed.pages[0].got, part(4).bytes());
    let pool = hugeleaf_host::read_memory_facts(&Root::live(), &hugeleaf_sys::Kernel::new());
    let pool = pool.unwrap();
    let free = pool.pool(page).map(|pool| pool.free.get());
    assert_eq!(free, Some(Some(Pages(4))), "all pages are back");
}

#[test]
fn chunks_without_a_node_are_dealt_evenly() {
    let job = |node| NodeJob {
        node: Some(node),
        cpus: vec![node],
        chunks: Vec::new(),
        next: AtomicUsize::new(0),
    };
    let mut jobs = [job(0), job(1)];
    let chunk = |at: u64| Chunk {
        range: Range::new(at, at + 1).unwrap(),
        is_thp: false,
    };
    let chunks: Vec<Chunk> = (0..5).map(chunk).collect();
    deal(&mut jobs, &chunks);
    let starts = |job: &NodeJob| {
        job.chunks
            .iter()
            .map(|c| c.range.start())
            .collect::<Vec<_>>()
    };
    assert_eq!(starts(&jobs[0]), [0, 1, 2]);
    assert_eq!(starts(&jobs[1]), [3, 4]);
}
