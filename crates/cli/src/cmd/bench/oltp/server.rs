//! A PostgreSQL server of our own. Of several arms it is started anew for each run, with the same
//! data and other pages.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use hugeleaf_host::{Held, Host};
use hugeleaf_proof::bench::oltp::{
    Cell, Io, OltpResult, OltpRunError, Processes, Turn, Watcher, tree_usage,
};
use hugeleaf_proof::bench::{NotHad, Spread};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::why::to_be_had;
use hugeleaf_workload::tpcc::{PostgresServer, PostgresStore, ServerSettings, TpccError, Warmed};

use super::child::{program, refusal};
use super::copier::Copier;
use super::{Args, Ground, Pages, Setup, failure};
use crate::context::{Context, Failure};

/// From this version on PostgreSQL can read its files past the page cache.
const DIRECT_FROM: u32 = 16;

/// So much of its shared memory has to be on the pages of an arm: where it begins and ends a block
/// may be shared with what is smaller.
const NEARLY_ALL: f64 = 0.99;

fn fail(error: TpccError) -> Failure {
    failure(&OltpRunError::Tpcc(error))
}

fn settings(args: &Args, setup: Setup) -> ServerSettings {
    ServerSettings {
        below: args.below.clone(),
        shared_buffers: setup.cache,
        huge_pages: false,
        durability: args.durability,
        connections: setup.connections,
        more: match setup.io {
            Io::Direct => vec!["debug_io_direct=data".to_owned()],
            Io::Cached | Io::Buffered => Vec::new(),
        },
        start_with: Vec::new(),
    }
}

fn start(args: &Args, setup: Setup) -> Result<PostgresServer, Failure> {
    if setup.io == Io::Direct {
        let version = PostgresServer::version().map_err(fail)?;
        if version < DIRECT_FROM {
            return Err(Failure::missing(
                format!(
                    "bench oltp: --io direct: PostgreSQL {version} reads through the page cache; \
                     {DIRECT_FROM} can do otherwise"
                ),
                format!("--io buffered, or: apt-get install postgresql-{DIRECT_FROM}"),
            ));
        }
    }
    PostgresServer::start(&settings(args, setup)).map_err(fail)
}

fn store_of(
    server: &PostgresServer,
    args: &Args,
    context: &Context,
) -> Result<PostgresStore, Failure> {
    let store = PostgresStore::new(&server.dsn(), args.durability).map_err(fail)?;
    let store = store.in_folder(server.folder());
    Ok(match server.pid() {
        Some(pid) => {
            let root = context.root.clone();
            store.with_usage(Box::new(move || tree_usage(&root, pid)))
        }
        None => store,
    })
}

fn processes<'h>(server: &PostgresServer, host: &'h Host) -> Processes<'h> {
    match server.pid() {
        Some(pid) => Processes::Server { pid, host },
        None => Processes::Elsewhere,
    }
}

/// One run, as it is.
pub(super) fn one(
    args: &Args,
    setup: Setup,
    ground: &Ground,
    context: &Context,
) -> Result<OltpResult, Failure> {
    let server = start(args, setup)?;
    let store = store_of(&server, args, context)?;
    let copier = Copier::start(args.copy_beside, server.folder())?;
    let copied = || copier.as_ref()?.copied(&context.root);
    let watcher = Watcher::of(processes(&server, &ground.host), &context.root);
    let mut watcher = watcher.with_copier(&copied);
    super::on(&store, args, setup, ground, &mut watcher, context).map_err(|e| failure(&e))
}

/// Several arms.
pub(super) struct Server<'a> {
    args: &'a Args,
    setup: Setup,
    ground: &'a Ground,
    context: &'a Context,
    server: PostgresServer,
    /// Seconds that promoting it took, run by run.
    promoted: Vec<f64>,
    warmed: Option<Warmed>,
}

impl<'a> Server<'a> {
    /// Starts it and fills it.
    pub(super) fn start(
        args: &'a Args,
        setup: Setup,
        ground: &'a Ground,
        context: &'a Context,
    ) -> Result<Server<'a>, Failure> {
        for pages in &args.pages {
            refuse(*pages, &ground.host)?;
        }
        let server = start(args, setup)?;
        let store = store_of(&server, args, context)?;
        super::fill(&store, args, context).map_err(fail)?;
        Ok(Server {
            args,
            setup,
            ground,
            context,
            server,
            promoted: Vec::new(),
            warmed: None,
        })
    }

    /// One run.
    pub(super) fn turn(&mut self, cell: Cell<'_>) -> Result<Turn, Failure> {
        let (args, context) = (self.args, self.context);
        let setup = self.setup.at(args, cell.at);
        let mut named = args.pages.iter();
        let pages = named.find(|p| p.label(&self.ground.host) == cell.label);
        let pages = pages.copied().unwrap_or(Pages::Promoted);
        let settings = with_pages(settings(args, setup), pages, &self.ground.host)?;
        if let Some(short) = self.short_pool(pages, &settings)? {
            return Ok(Turn::NotHad(short));
        }
        self.server.restart(&settings).map_err(fail)?;
        let store = store_of(&self.server, args, context)?;
        let warm = store.warm(setup.touch).map_err(fail)?;
        self.warmed = Some(warm.how());
        if pages == Pages::Promoted {
            // As a server's own connections have: what nobody has in its page tables is left alone.
            if let Some(none) = self.promote()? {
                return Ok(Turn::NotHad(none));
            }
        }
        drop(warm);
        let copier = Copier::start(args.copy_beside, self.server.folder())?;
        let copied = || copier.as_ref()?.copied(&context.root);
        let watched = processes(&self.server, &self.ground.host);
        let mut watcher = Watcher::of(watched, &context.root).with_copier(&copied);
        if !args.no_translation {
            watcher = watcher.counting();
        }
        match super::on(&store, args, setup, self.ground, &mut watcher, context) {
            Ok(mut result) => {
                let host = &self.ground.host;
                let verified = watcher.pages().map(|held| is_on(held, pages, host));
                for run in &mut result.runs {
                    run.verified = verified;
                }
                Ok(Turn::Ran(Box::new(result)))
            }
            Err(OltpRunError::Tpcc(TpccError::Stopped)) => Ok(Turn::Stopped),
            Err(error) => Err(failure(&error)),
        }
    }

    /// What is missing of the pool that the shared memory is to come from.
    fn short_pool(
        &mut self,
        pages: Pages,
        settings: &ServerSettings,
    ) -> Result<Option<NotHad>, Failure> {
        let arm = pages.arm(&self.ground.host);
        let Some(arm) = arm.filter(|arm| arm.kind == PageKind::Hugetlb) else {
            return Ok(None);
        };
        // Before version 15 it does not say; its own tables are a small part of it.
        let needs = self.server.shared_memory(settings).map_err(fail)?;
        let needs =
            needs.unwrap_or(settings.shared_buffers + Bytes(settings.shared_buffers.get() / 16));
        let pages = needs.get().div_ceil(arm.size.bytes().get());
        let host = self.context.host()?;
        let mut pools = host.pools.iter();
        let pool = pools.find(|pool| pool.size == arm.size && pool.node.is_none());
        let free = pool.map_or(0, |pool| to_be_had(pool).get());
        Ok((free < pages).then(|| NotHad {
            from_bytes: needs.get(),
            reason: format!(
                "{needs} of shared memory take {pages} pages of {}, and {free} of the pool are free",
                arm.size
            ),
            next: format!(
                "hugeleaf plan --bytes {} --sizes {arm} --name postgres --user postgres --output \
                 pool.toml, then hugeleaf apply pool.toml",
                Bytes(pages * arm.size.bytes().get())
            ),
        }))
    }

    /// Moves the running server to large pages, as a person would. Answers why, where none of it
    /// could be moved.
    fn promote(&mut self) -> Result<Option<NotHad>, Failure> {
        let lost = |e: std::io::Error| {
            Failure::missing(format!("bench oltp: hugeleaf promote: {e}"), "run it again")
        };
        let Some(pid) = self.server.pid() else {
            return Ok(None);
        };
        let began = std::time::Instant::now();
        let output = Command::new(program()?)
            .args(["promote", "--json", "--budget", "100%"])
            .arg(format!("tree:{pid}"))
            .stdin(Stdio::null())
            .output()
            .map_err(lost)?;
        // Less than all of it is seen when the pages are read back.
        if matches!(output.status.code(), Some(0 | 1)) {
            let none = moved_none(&output.stdout);
            if none.is_none() {
                self.promoted.push(began.elapsed().as_secs_f64());
            }
            return Ok(none);
        }
        let (what, next) = refusal(&output);
        Err(Failure::missing(
            what.unwrap_or_else(|| format!("promote: {}", output.status)),
            next.unwrap_or_else(|| "hugeleaf status".to_owned()),
        ))
    }

    /// Adds what is to be known of all runs.
    pub(super) fn tell(self, mut result: OltpResult) -> OltpResult {
        if let Some(seconds) = Spread::of(&self.promoted, hugeleaf_proof::bench::CONFIDENCE) {
            result.caveats.push(format!(
                "promoting the running server took {:.1} s (median of {}), before the load",
                seconds.median,
                self.promoted.len()
            ));
        }
        if self.warmed == Some(Warmed::ByKeys) {
            result.caveats.push(
                "the cache was filled by reading tables through their keys, not block by block"
                    .to_owned(),
            );
        }
        result
    }
}

/// Why `promote` has moved nothing; `None` where it has.
fn moved_none(answer: &[u8]) -> Option<NotHad> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    let processes = answer["processes"].as_array()?;
    let bytes = |field: &str| {
        processes
            .iter()
            .filter_map(|p| p[field].as_u64())
            .sum::<u64>()
    };
    (bytes("done_bytes") + bytes("already_bytes") == 0).then(|| NotHad {
        from_bytes: 0,
        reason:
            "nothing of the running server could be moved: its shared memory lies at an address \
                 that does not agree with its offset, or the kernel does not collapse it"
                .to_owned(),
        // Where the knob is never the kernel aligns no shared memory, and base pages stay base
        // pages with advise, because the server asks for none.
        next: "before the server starts: echo advise > \
               /sys/kernel/mm/transparent_hugepage/shmem_enabled"
            .to_owned(),
    })
}

/// What a server cannot be put on, in words.
fn refuse(pages: Pages, host: &Host) -> Result<(), Failure> {
    let why = match (pages, pages.arm(host)) {
        (Pages::Locked, _) => "a server's shared memory is not locked by a setting",
        (Pages::Asked(_), Some(arm))
            if arm.kind == PageKind::Thp && host.pmd_page.get() != Some(arm.size) =>
        {
            "shared memory is put on the full transparent huge page only"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(
        format!("bench oltp: --pages {}: {why}", pages.label(host)),
        "hugeleaf bench oltp --start postgres --pages base,run,promoted,hugetlb:2M",
    ))
}

/// Settings with which a server comes to be on the pages of an arm.
fn with_pages(
    mut settings: ServerSettings,
    pages: Pages,
    host: &Host,
) -> Result<ServerSettings, Failure> {
    let run = |flags: &[String]| -> Result<Vec<OsString>, Failure> {
        let flags = flags.iter().map(OsString::from);
        Ok([program()?.into(), "run".into()]
            .into_iter()
            .chain(flags)
            .chain(["--".into()])
            .collect())
    };
    match (pages, pages.arm(host)) {
        (Pages::Run, _) => settings.start_with = run(&[])?,
        (Pages::Asked(_), Some(arm)) if arm.kind == PageKind::Hugetlb => {
            let kibibytes = arm.size.bytes().get() / 1024;
            settings.huge_pages = true;
            settings.more.push(format!("huge_page_size={kibibytes}kB"));
        }
        (Pages::Asked(_), Some(arm)) if arm.kind == PageKind::Thp => {
            let flags = [
                "--shm",
                &arm.to_string(),
                "--data",
                "base",
                "--stack",
                "base",
            ];
            settings.start_with = run(&flags.map(str::to_owned))?;
        }
        _ => {}
    }
    Ok(settings)
}

/// Whether nearly all of it is on the pages of an arm. `run` takes what large pages there are.
fn is_on(held: &[Held], pages: Pages, host: &Host) -> bool {
    let sum = |of: &dyn Fn(&&Held) -> bool| -> Bytes {
        held.iter().filter(of).map(|held| held.bytes).sum()
    };
    let arm = pages.arm(host);
    let on = sum(&|held| match pages {
        Pages::Run => held.kind != PageKind::Base,
        _ => arm.is_some_and(|arm| held.size == arm.size && held.kind == arm.kind),
    });
    let all = sum(&|_| true);
    // Sizes of memory are far below 2^52 bytes.
    #[allow(clippy::cast_precision_loss)]
    let nearly_all = on.get() as f64 >= NEARLY_ALL * all.get() as f64;
    !all.is_zero() && nearly_all
}

#[cfg(test)]
mod tests {
    use super::*;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::RealKernel;
    use hugeleaf_units::PageSize;

    #[test]
    fn a_promotion_that_moves_nothing_is_not_had() {
        let none = br#"{"processes": [{"done_bytes": 0, "already_bytes": 0}]}"#;
        assert!(moved_none(none).unwrap().next.contains("shmem_enabled"));
        let some = br#"{"processes": [{"done_bytes": 0}, {"done_bytes": 2, "already_bytes": 0}]}"#;
        assert_eq!(moved_none(some), None);
        assert_eq!(moved_none(b"no JSON"), None);
    }

    #[test]
    fn nearly_all_is_all() {
        let fixture = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/x86-4k-two-nodes"
        );
        let host = read_host(&Root::at(fixture), &RealKernel::new()).unwrap();
        let held = |size: PageSize, kind, mebibytes: u64| Held {
            size,
            kind,
            bytes: Bytes::from_mib(mebibytes),
        };
        let (base, large) = (host.base_page, host.pmd_page.get().unwrap());
        let small = |mebibytes| held(base, PageKind::Base, mebibytes);
        let thp = |mebibytes| held(large, PageKind::Thp, mebibytes);
        let pool = |mebibytes| held(large, PageKind::Hugetlb, mebibytes);
        let promoted = |held: &[Held]| is_on(held, Pages::Promoted, &host);
        assert!(promoted(&[small(10), thp(990)]));
        assert!(!promoted(&[small(11), thp(989)]));
        // Of a pool is not transparent, but to run both are large; of nothing nothing can be told.
        assert!(!promoted(&[pool(990)]) && is_on(&[pool(990)], Pages::Run, &host));
        assert!(!promoted(&[]) && !is_on(&[small(1)], Pages::Run, &host));
    }
}
