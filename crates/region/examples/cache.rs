//! Example of a key-value cache of a fixed capacity that grows and shrinks under load, on huge
//! pages. The C version is `cache.c`.
//!
//! ```text
//! cache [MEGABYTES [LADDER [shared]]]
//! ```
//!
//! Two components share one elastic range, as the parts of a database share its memory:
//!
//! - `index`: a table from keys to places. It has a fixed size and is taken once, for the maximum
//!   size of the cache.
//! - `entries`: granules full of entries. They are taken one at a time while the target allows.
//!   After that, the oldest granule is emptied and reused without a system call.
//!
//! Readers look up keys and insert those they miss. Meanwhile the main thread halves the target, as
//! a database would when another process needs memory. It evicts granule by granule down to the
//! target, then raises the target again. The value of each entry follows from its key, so every
//! byte that a reader gets is checked.
#![allow(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use hugeleaf::{
    Bytes, Component, Elastic, ElasticError, ElasticOptions, Granule, MemoryError, ParseError,
};

const VALUE_BYTES: usize = 248;
const READERS: usize = 2;

type Value = [u8; VALUE_BYTES];

#[repr(C)]
struct Entry {
    key: u64,
    value: Value,
}

/// Place of an entry, valid if its block is still in the ring.
#[derive(Clone, Copy)]
#[repr(C)]
struct Place {
    block: u32,
    slot: u32,
}

/// A granule of entries; the first `used` are filled.
#[derive(Clone, Copy)]
struct Block {
    granule: Granule,
    entries: *mut Entry,
    used: usize,
}

/// State that readers read and writers change.
struct Inner {
    index: *mut Place,
    places: usize,
    /// Ring of blocks, oldest first. The oldest has number `oldest`, counted from 1, so a place of
    /// zeroes is always invalid.
    blocks: std::collections::VecDeque<Block>,
    oldest: u32,
}

// SAFETY: its pointers lead into granules that this cache holds and no other code writes to; the
// lock around it keeps readers and writers apart.
unsafe impl Send for Inner {}
// SAFETY: as above: through a shared reference it is only read.
unsafe impl Sync for Inner {}

struct Cache {
    memory: Elastic,
    entries: Component,
    slots_a_block: usize,
    most_blocks: usize,
    /// Read-locked by readers, so that no granule is returned during a read.
    inner: RwLock<Inner>,
    // Counters of the readers.
    looked_up: AtomicU64,
    found: AtomicU64,
    wrong: AtomicU64,
    stop: AtomicBool,
}

/// Formats an error with its remedy.
fn in_words(error: ElasticError) -> String {
    format!("{error}\n       try: {}", error.next())
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the value of a key: arbitrary, but always the same.
fn value_of(key: u64) -> Value {
    let mut value = [0; VALUE_BYTES];
    for (i, word) in (0u64..).zip(value.chunks_exact_mut(8)) {
        let seed = key.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word.copy_from_slice(&mixed(seed).to_ne_bytes());
    }
    value
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Inner {
    /// Returns the place of a key in the index.
    fn place(&self, key: u64) -> *mut Place {
        let at = index_of(mixed(key)) & (self.places - 1);
        // SAFETY: the index holds `places` places, and `at` is one of them.
        unsafe { self.index.add(at) }
    }

    fn find(&self, key: u64) -> Option<Value> {
        // SAFETY: a place of the index, which is only written under the write lock.
        let place = unsafe { self.place(key).read() };
        let behind = place.block.checked_sub(self.oldest)?;
        let block = self.blocks.get(behind as usize)?;
        // SAFETY: the block is in the ring, and a place leads to a slot of it that was filled.
        let entry = unsafe { &*block.entries.add(place.slot as usize) };
        (entry.key == key).then_some(entry.value)
    }

    /// Removes the oldest block and its entries. The block number of a place then shows that it is
    /// stale.
    fn evict_oldest(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.oldest += 1;
        Some(Block { used: 0, ..block })
    }
}

impl Cache {
    fn open(options: &ElasticOptions) -> Result<Cache, ElasticError> {
        let memory = Elastic::new(options)?;
        let granule = memory.granule().bytes().get();
        let capacity = index_of(options.max.get()) / size_of::<Entry>();
        let (index, places) = take_index(&memory, capacity)?;
        Ok(Cache {
            entries: memory.component("entries", true)?,
            slots_a_block: index_of(granule) / size_of::<Entry>(),
            most_blocks: index_of(options.max.get() / granule),
            inner: RwLock::new(Inner {
                index,
                places,
                blocks: std::collections::VecDeque::new(),
                oldest: 1,
            }),
            memory,
            looked_up: AtomicU64::new(0),
            found: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    /// Ensures a block with room at the end of the ring: a new granule while the target allows,
    /// else the emptied oldest one.
    fn make_room(&self, inner: &mut Inner) -> Result<(), ElasticError> {
        if inner
            .blocks
            .back()
            .is_some_and(|b| b.used < self.slots_a_block)
        {
            return Ok(());
        }
        let fresh = match self.memory.take(self.entries) {
            Ok(granule) => Block {
                granule,
                entries: self.memory.address(granule)?.cast(),
                used: 0,
            },
            // The target or the range is exhausted, or a mandatory ladder has no more pages, or the
            // host has no more memory.
            Err(
                error @ (ElasticError::OverTarget { .. }
                | ElasticError::Full { .. }
                | ElasticError::Memory(
                    MemoryError::Short { .. } | MemoryError::TooLarge { .. },
                )),
            ) => inner.evict_oldest().ok_or(error)?,
            Err(error) => return Err(error),
        };
        inner.blocks.push_back(fresh);
        Ok(())
    }

    fn put(&self, key: u64) -> Result<(), ElasticError> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        self.make_room(&mut inner)?;
        let newer = u32::try_from(inner.blocks.len()).unwrap_or(u32::MAX) - 1;
        let number = inner.oldest + newer;
        let Some(block) = inner.blocks.back_mut() else {
            return Ok(());
        };
        let slot = block.used;
        block.used += 1;
        let value = value_of(key);
        // SAFETY: a slot below `slots_a_block` of a held granule; no reader reads it meanwhile.
        unsafe { block.entries.add(slot).write(Entry { key, value }) };
        let place = Place {
            block: number,
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
        };
        // SAFETY: a place of the index; no reader reads it meanwhile.
        unsafe { inner.place(key).write(place) };
        Ok(())
    }

    fn get(&self, key: u64) -> Option<Value> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.find(key)
    }

    fn read_all_the_time(&self, mut random: u64) -> Result<(), ElasticError> {
        // Slightly more keys than fit, so that there is always something to evict.
        let keys = (self.most_blocks * self.slots_a_block * 5 / 4) as u64;
        while !self.stop.load(Relaxed) {
            random = mixed(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let key = random % keys;
            self.looked_up.fetch_add(1, Relaxed);
            let Some(value) = self.get(key) else {
                self.put(key)?;
                continue;
            };
            self.found.fetch_add(1, Relaxed);
            if value != value_of(key) {
                self.wrong.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Sets the target of the cache and returns the memory above it, one granule at a time. Readers
    /// wait for one granule at most.
    fn resize(&self, target: Bytes) -> Result<(), ElasticError> {
        let above = self.memory.set_target(target)?;
        let mut given_back = Bytes::ZERO;
        while self.memory.held() > target {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let Some(oldest) = inner.evict_oldest() else {
                break; // The rest is the index, whose size is fixed.
            };
            self.memory.give_back(self.entries, &[oldest.granule])?;
            given_back += self.memory.granule().bytes();
        }
        println!(
            "target {}K: {}K above it, {}K returned",
            kib(target),
            kib(above),
            kib(given_back)
        );
        Ok(())
    }

    /// Lets the readers do `look_ups` more look-ups, or until they stop. `recover` finds pages
    /// created by access to returned granules; there must be none.
    fn load(&self, look_ups: u64) -> Result<(), ElasticError> {
        let (before, found) = (self.looked_up.load(Relaxed), self.found.load(Relaxed));
        let since = || self.looked_up.load(Relaxed) - before;
        while since() < look_ups && !self.stop.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let strays = self.memory.recover()?.cleaned;
        self.wrong.fetch_add(strays.get(), Relaxed);
        println!(
            "load: {} % found, {}K held, {} wrong",
            (self.found.load(Relaxed) - found) * 100 / since().max(1),
            kib(self.memory.held()),
            self.wrong.load(Relaxed)
        );
        Ok(())
    }

    /// Runs the load and resizes the cache meanwhile.
    fn go_through(&self, most: Bytes, look_ups: u64) -> Result<(), ElasticError> {
        self.load(look_ups)?;
        self.resize(Bytes(most.get() / 2))?; // Another process needs memory.
        self.load(look_ups)?;
        self.resize(most)?; // The other process has returned it.
        self.load(look_ups)
    }

    /// Prints the table of components: bytes and page sizes of each.
    fn show(&self) -> Result<(), ElasticError> {
        let info = self.memory.info()?;
        println!(
            "{:<10} {:>10} {:<9} PAGES",
            "COMPONENT", "BYTES", "RESIZABLE"
        );
        for line in &info.components {
            let resizable = if line.resizable { "yes" } else { "no" };
            print!("{:<10} {:>9}K {resizable:<9}", line.name, kib(line.bytes));
            for share in &line.by_page {
                let (bytes, page) = (kib(share.bytes), kib(share.page.bytes()));
                print!(" {bytes}K on {page}K {}", share.kind);
            }
            println!();
        }
        println!("{:<10} {:>9}K", "free", kib(info.free));
        // The first extent has the reason if the pages are not as requested.
        let extents = self.memory.extents()?;
        if let Some(why) = extents.first().and_then(|extent| extent.why.as_ref()) {
            println!("why: {why}\nnext: {}", why.next());
        }
        Ok(())
    }
}

const fn kib(bytes: Bytes) -> u64 {
    bytes.get() / 1024
}

/// Takes the granules of the index in one call, because its size is fixed. Taken first, they are
/// adjacent and form one table.
fn take_index(memory: &Elastic, capacity: usize) -> Result<(*mut Place, usize), ElasticError> {
    let places = (capacity * 2).next_power_of_two();
    let granule = index_of(memory.granule().bytes().get());
    let count = (places * size_of::<Place>()).div_ceil(granule);
    let component = memory.component("index", false)?;
    let granules = memory.take_many(component, count)?;
    let mut first = std::ptr::null_mut();
    for granule in granules.iter().rev() {
        first = memory.address(*granule)?;
    }
    // Granules are zeroed when taken, so no place leads anywhere.
    Ok((first.cast(), places))
}

fn run() -> Result<u64, String> {
    let mut arguments = std::env::args().skip(1);
    let megabytes = arguments.next().unwrap_or_else(|| "32".to_owned());
    let megabytes = megabytes.parse().map_err(|e| format!("{megabytes}: {e}"))?;
    let bytes = Bytes::from_mib(megabytes);
    let ladder = arguments.next().unwrap_or_else(|| "2M".to_owned());
    let ladder = ladder.parse().map_err(|e: ParseError| e.to_string())?;
    let mut options = ElasticOptions::new(bytes, ladder);
    if arguments.next().as_deref() == Some("shared") {
        options = options.shared();
    }
    let cache = Cache::open(&options).map_err(in_words)?;
    let look_ups = 4 * (cache.most_blocks * cache.slots_a_block) as u64;

    std::thread::scope(|scope| {
        let reader = |seed| {
            let outcome = cache.read_all_the_time(seed);
            cache.stop.store(true, Relaxed);
            outcome
        };
        let readers: Vec<_> = (0..READERS as u64)
            .map(|seed| scope.spawn(move || reader(seed)))
            .collect();
        let outcome = cache.go_through(bytes, look_ups);
        cache.stop.store(true, Relaxed);
        let ended = readers.into_iter().map(|reader| {
            let outcome = reader.join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.fold(outcome, Result::and).map_err(in_words)
    })?;
    cache.show().map_err(in_words)?;
    Ok(cache.wrong.load(Relaxed))
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("cache: {message}");
            ExitCode::FAILURE
        }
    }
}
