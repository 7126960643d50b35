//! Function names, resolved by `blazesym` at the end of a trace. A file that differs from the one that
//! ran (replaced or deleted) is opened through a process that still runs it, or its frames have no names.
//! A name is never guessed.
//!
//! Files with code are untrusted: the program of an unprivileged user determines their number and
//! contents. Only regular files are opened. A file that others could truncate or change is copied first,
//! and only its symbol table is read. JIT maps must belong to the process's user or to root. All sizes
//! are limited. A file on a file system that does not answer is skipped (`answered`).

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use hugeleaf_host::Root;
use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_sys::{
    ConfinedFolder, UserCredentials, copy_in_memory, effective_uid, is_safe_from_others,
    open_regular, read_at_most, with_stall_limit,
};
use hugeleaf_units::Bytes;

use super::stacks::{Frame, Module, Stacks};
use crate::model::Symbol;

#[derive(Debug, Default)]
pub struct SymbolizedFrames {
    pub symbols: Vec<Symbol>,
    /// The index of the function of each frame.
    pub of_frame: Vec<u32>,
    /// Remarks: files without symbols, replaced files.
    pub notes: Vec<String>,
}

/// Added once, because there is one such frame.
const ENDED: &str = "Some processes ended before their mappings were read, or are outside this PID namespace: \
                     their own functions have no names.";

/// Maximum length of a name; symbol tables can hold names of any length.
const LONGEST_NAME: usize = 2000;

/// Maximum size of a file that others control, and of all such files together.
const LARGEST_OF_OTHERS: Bytes = Bytes(48 << 20);
const ALL_OF_OTHERS: u64 = 512 << 20;

/// Maximum size of a JIT map, and of all together.
const LARGEST_MAP: Bytes = Bytes(32 << 20);
const ALL_MAPS: u64 = 128 << 20;

pub fn name_all(stacks: &Stacks, root: &Root) -> SymbolizedFrames {
    let mut names: Vec<Option<Symbol>> = vec![None; stacks.frames().len()];
    let mut notes = Vec::new();
    name_kernel(stacks, &mut names, &mut notes);
    let mut by_module: BTreeMap<u32, Vec<(usize, u64)>> = BTreeMap::new();
    let mut made: BTreeMap<u32, Vec<(usize, u64)>> = BTreeMap::new();
    for (at, frame) in stacks.frames().iter().enumerate() {
        match frame {
            Frame::File(module, offset) => {
                by_module.entry(*module).or_default().push((at, *offset));
            }
            Frame::Process(pid, address) => {
                made.entry(*pid).or_default().push((at, *address));
            }
            Frame::Ended => {
                names[at] = Some(Symbol {
                    name: "[program could not be looked at]".to_owned(),
                    module: "[not known]".to_owned(),
                    kernel: false,
                    unnamed: true,
                });
                notes.push(ENDED.to_owned());
            }
            Frame::Kernel(_) => {}
        }
    }
    let mut left = ALL_MAPS;
    for (pid, frames) in made {
        // Keep one map at a time in memory.
        let map = JitMap::of(root, pid, &mut left, &mut notes);
        for (at, address) in frames {
            names[at] = Some(map.symbol(address));
        }
    }
    let mut without = Vec::new();
    let mut left = ALL_OF_OTHERS;
    for (number, frames) in by_module {
        let module = &stacks.modules()[number as usize];
        if module.path.starts_with('[') {
            // The kernel's own code, mapped into every process, has no file.
            for (at, offset) in frames {
                names[at] = Some(nameless(&module.path, offset, false));
            }
            continue;
        }
        let named = name_file(module, &frames, root, &mut left);
        if let Some(note) = named.1 {
            notes.push(note);
        } else if named.0.iter().all(|s| s.unnamed) {
            without.push(file_name(&module.path));
        }
        for ((at, _), symbol) in frames.iter().zip(named.0) {
            names[*at] = Some(symbol);
        }
    }
    if !without.is_empty() {
        without.sort();
        without.dedup();
        notes.push(format!(
            "No symbols for samples in {}: functions are shown as [file+offset]. \
             Install the packages with debug symbols to see names.",
            without.join(", ")
        ));
    }
    collect(names, notes)
}

/// Demangles a name. Unmangled names stay, because a C++ demangler reads the C functions `f`, `v` and `d`
/// as the types float, void and double.
fn demangled(name: &str) -> String {
    // A symbol table may hold anything, but lists have one line per function.
    let name = &cut(name).replace('\n', "\\n");
    // Suffixes of linkers and clones are not part of the name: `_ZN1aE.constprop.0`, `_ZN1aE@@V1`.
    // Systems that prefix all names with an underscore have one more.
    let marks = ["_R", "__R", "_Z", "__Z", "___Z"];
    if !marks.iter().any(|mark| name.starts_with(mark)) {
        return name.to_owned();
    }
    // Rust comes first: its older names are C++ names that end in a hash.
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        return limited(&format_args!("{name:#}"));
    }
    let Ok(symbol) = cpp_demangle::Symbol::new(name) else {
        return name.to_owned();
    };
    let mut text = BoundedText::default();
    let written = symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default());
    match written.is_ok() || text.is_full {
        true => text.text,
        false => name.to_owned(),
    }
}

/// Text with a maximum length: a mangled name may expand exponentially.
#[derive(Default)]
struct BoundedText {
    text: String,
    is_full: bool,
}

impl Write for BoundedText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.text.len() + part.len() > LONGEST_NAME {
            self.is_full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

fn limited(name: &fmt::Arguments<'_>) -> String {
    let mut text = BoundedText::default();
    let _ = text.write_fmt(*name);
    text.text
}

fn cut(name: &str) -> &str {
    let mut ends = (0..=LONGEST_NAME.min(name.len())).rev();
    let end = ends.find(|at| name.is_char_boundary(*at));
    &name[..end.unwrap_or(0)]
}

fn collect(names: Vec<Option<Symbol>>, notes: Vec<String>) -> SymbolizedFrames {
    let mut named = SymbolizedFrames {
        notes,
        ..SymbolizedFrames::default()
    };
    let mut places: HashMap<Symbol, u32> = HashMap::new();
    for symbol in names {
        let symbol = symbol.unwrap_or_else(|| nameless("[unknown]", 0, false));
        let next = u32::try_from(named.symbols.len()).unwrap_or(u32::MAX);
        let place = *places.entry(symbol.clone()).or_insert_with(|| {
            named.symbols.push(symbol);
            next
        });
        named.of_frame.push(place);
    }
    named
}

/// Code generated at run time. The process itself names its functions in `/tmp/perf-PID.map`, a
/// convention of `perf`.
#[derive(Debug, Default)]
struct JitMap {
    text: String,
    /// Start, end, and position and length of the name in the text; sorted by start, each start once.
    functions: Vec<(u64, u64, u32, u32)>,
}

impl JitMap {
    fn of(root: &Root, pid: u32, left: &mut u64, notes: &mut Vec<String>) -> JitMap {
        let file = root.path(format!("proc/{pid}/root/tmp/perf-{pid}.map"));
        let root = root.clone();
        let read = answered(&file, left, move |left| JitMap::read(&root, pid, left));
        let (map, note) = read.unwrap_or_else(|| {
            let note = format!("/tmp/perf-{pid}.map was ignored: its file system does not answer.");
            (JitMap::default(), Some(note))
        });
        notes.extend(note);
        map
    }

    /// Returns the map, or an empty one and the reason if it was ignored.
    fn read(root: &Root, pid: u32, left: &mut u64) -> (JitMap, Option<String>) {
        let name = format!("tmp/perf-{pid}.map");
        let status = root.parse(format!("proc/{pid}/status"), parse_status);
        let user = status.known().map(|status| status.uid);
        // Open it with the rights of the process's user and without following links. Anyone can put a
        // link there, to a file that only root may read.
        let rights = root.is_live().then(|| {
            status
                .known()
                .map_or_else(nobody, |s| UserCredentials::of_ids(s.uid, &s.groups))
        });
        let look_in = |folder: String| {
            let folder = ConfinedFolder::new(&root.path(folder), rights.clone())?.without_links();
            folder.open(Path::new(&name))
        };
        let found = look_in(format!("proc/{pid}/root")).or_else(|_| look_in(String::new()));
        let Ok(file) = found else {
            return (JitMap::default(), None);
        };
        let read = may_name(&file, user)
            .and_then(|()| read_at_most(&file, Bytes(LARGEST_MAP.get().min(*left))));
        match read {
            Ok(bytes) => {
                *left -= bytes.len() as u64;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (JitMap::parse(text), None)
            }
            Err(error) => {
                let note = format!("/{name} was ignored: {error}.");
                (JitMap::default(), Some(note))
            }
        }
    }

    /// Parses lines of start, length and name, both numbers hexadecimal. The later of two with the same
    /// start counts.
    fn parse(text: String) -> JitMap {
        let mut functions: Vec<(u64, u64, u32, u32)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.splitn(3, ' ');
                let mut number = || {
                    let word = words.next()?;
                    u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
                };
                let (start, length) = (number()?, number()?);
                let name = cut(words.next()?.trim());
                let at = name.as_ptr().addr() - text.as_ptr().addr();
                let (at, size) = (u32::try_from(at).ok()?, u32::try_from(name.len()).ok()?);
                Some((start, start.saturating_add(length), at, size))
            })
            .collect();
        functions.reverse();
        functions.sort_by_key(|(start, ..)| *start);
        functions.dedup_by_key(|(start, ..)| *start);
        JitMap { text, functions }
    }

    fn symbol(&self, address: u64) -> Symbol {
        let after = self
            .functions
            .partition_point(|(start, ..)| *start <= address);
        let found = after.checked_sub(1).and_then(|at| self.functions.get(at));
        let named = found.filter(|(_, end, ..)| address < *end);
        let name = |at: u32, size: u32| self.text.get(at as usize..(at + size) as usize);
        let named = named.and_then(|(_, _, at, size)| name(*at, *size));
        Symbol {
            // All unnamed code is one entry, because single addresses would be useless.
            name: named.unwrap_or("[no file]").to_owned(),
            module: "[made while it ran]".to_owned(),
            kernel: false,
            unnamed: named.is_none(),
        }
    }
}

fn nobody() -> UserCredentials {
    /// The default of `/proc/sys/fs/overflowuid`.
    const NOBODY: u32 = 65534;
    UserCredentials {
        uid: NOBODY,
        gid: NOBODY,
        groups: Vec::new(),
    }
}

/// Refuses a map owned neither by root nor by the user of the process, because anyone may put a file of
/// that name into `/tmp`.
fn may_name(file: &File, user: Option<u32>) -> std::io::Result<()> {
    let owner = file.metadata()?.uid();
    if owner == 0 || user == Some(owner) {
        return Ok(());
    }
    let what = match user {
        Some(user) => {
            format!("its owner is uid {owner}, neither the process's uid {user} nor root")
        }
        None => format!("its owner is uid {owner}, not root, and the process has ended"),
    };
    Err(std::io::Error::other(what))
}

fn nameless(module: &str, offset: u64, kernel: bool) -> Symbol {
    let file = file_name(module);
    let file = file.trim_start_matches('[').trim_end_matches(']');
    Symbol {
        name: format!("[{file}+{offset:#x}]"),
        module: module.to_owned(),
        kernel,
        unnamed: true,
    }
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn name_kernel(stacks: &Stacks, names: &mut [Option<Symbol>], notes: &mut Vec<String>) {
    let (places, addresses): (Vec<usize>, Vec<u64>) = stacks
        .frames()
        .iter()
        .enumerate()
        .filter_map(|(at, frame)| match frame {
            Frame::Kernel(address) => Some((at, *address)),
            _ => None,
        })
        .unzip();
    if addresses.is_empty() {
        return;
    }
    // Use the list of the running kernel, not a file that may be of another build.
    let source = Source::Kernel(Kernel {
        vmlinux: blazesym::MaybeDefault::None,
        ..Kernel::default()
    });
    let symbolizer = symbolizer_of_names();
    let found = symbolizer.symbolize(&source, Input::AbsAddr(&addresses));
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            notes.push(format!(
                "Kernel functions have no names: {error}. Run as root, or set \
                 kernel.kptr_restrict=0."
            ));
            Vec::new()
        }
    };
    for (n, (at, address)) in places.iter().zip(&addresses).enumerate() {
        names[*at] = Some(match found.get(n) {
            Some(Symbolized::Sym(sym)) => Symbol {
                name: demangled(&sym.name),
                module: "[kernel]".to_owned(),
                kernel: true,
                unnamed: false,
            },
            _ => nameless("[kernel]", *address, true),
        });
    }
}

/// Names the functions at offsets of a file, with a note if it is unreadable or not the file that ran.
fn name_file(
    module: &Module,
    frames: &[(usize, u64)],
    root: &Root,
    left: &mut u64,
) -> (Vec<Symbol>, Option<String>) {
    let offsets: Vec<u64> = frames.iter().map(|(_, offset)| *offset).collect();
    let path = root.path(module.path.trim_start_matches('/'));
    let (ran, root, wanted) = (module.clone(), root.clone(), offsets.clone());
    let found = answered(&path, left, move |left| {
        functions_of(&ran, &wanted, &root, left)
    });
    let found = found.unwrap_or_else(|| {
        Err(format!(
            "{}: its functions have no names, because its file system does not answer.",
            module.path
        ))
    });
    let (names, note) = match found {
        Ok(names) => (names, None),
        Err(note) => (vec![None; offsets.len()], Some(note)),
    };
    let symbols = names
        .into_iter()
        .zip(&offsets)
        .map(|(name, offset)| match name {
            Some(name) => Symbol {
                name,
                module: module.path.clone(),
                kernel: false,
                unnamed: false,
            },
            None => nameless(&module.path, *offset, false),
        })
        .collect();
    (symbols, note)
}

/// Calls `act` in another thread, because the file system of the file may never answer (NFS without its server, FUSE).
/// `act` gets the number of bytes that may still be read. Returns `None` if there is no answer.
fn answered<T: Send + 'static>(
    file: &Path,
    left: &mut u64,
    act: impl FnOnce(&mut u64) -> T + Send + 'static,
) -> Option<T> {
    let before = *left;
    let (answer, after) = with_stall_limit(file, move || {
        let mut left = before;
        let answer = act(&mut left);
        (answer, left)
    })?;
    *left = after;
    Some(answer)
}

/// Returns the names of the functions at these offsets.
///
/// # Errors
/// A note that says why there are none.
fn functions_of(
    module: &Module,
    offsets: &[u64],
    root: &Root,
    left: &mut u64,
) -> Result<Vec<Option<String>>, String> {
    let (path, file) = the_file_that_ran(module, root).ok_or_else(|| {
        format!(
            "{} is not the file that ran (replaced or deleted, and no process runs it now): \
             its functions have no names.",
            module.path
        )
    })?;
    // A symbolizer for each file: a descriptor's number will later mean another file, so nothing may be cached.
    let symbolizer = symbolizer_of_names();
    if let Some(path) =
        path.filter(|path| is_safe_from_others(path, effective_uid()).unwrap_or(false))
    {
        // Use its own path: debug information may be next to it.
        return Ok(named_with_debug(&symbolizer, &path, offsets));
    }
    let (file, is_ours) = stable_copy(file, left).map_err(|error| {
        format!(
            "{}: its functions have no names, because other users can change it, and it is {error}.",
            module.path
        )
    })?;
    let path = root.path(format!("proc/self/fd/{}", file.as_raw_fd()));
    Ok(match is_ours {
        true => named_with_debug(&symbolizer, &path, offsets),
        false => symbolize(&symbolizer, &path, offsets, false),
    })
}

/// Returns a file that cannot change while it is read: itself with true if only root and this user can
/// write to it, else a copy.
fn stable_copy(file: File, left: &mut u64) -> std::io::Result<(File, bool)> {
    let meta = file.metadata()?;
    let is_owned = meta.uid() == 0 || meta.uid() == effective_uid();
    if is_owned && meta.mode() & 0o022 == 0 {
        return Ok((file, true));
    }
    let copy = copy_in_memory(&file, Bytes(LARGEST_OF_OTHERS.get().min(*left)))?;
    *left -= copy.metadata()?.len().min(*left);
    Ok((copy, false))
}

fn symbolizer_of_names() -> Symbolizer {
    Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(false)
        .build()
}

/// Resolves by the symbol table first. Debug information of a large program takes seconds to read, and is
/// used only if there is nothing else.
fn named_with_debug(symbolizer: &Symbolizer, path: &Path, offsets: &[u64]) -> Vec<Option<String>> {
    let found = symbolize(symbolizer, path, offsets, false);
    match found.iter().all(Option::is_none) {
        true => symbolize(symbolizer, path, offsets, true),
        false => found,
    }
}

fn symbolize(
    symbolizer: &Symbolizer,
    path: &Path,
    offsets: &[u64],
    debug_syms: bool,
) -> Vec<Option<String>> {
    let mut elf = Elf::new(path);
    elf.debug_syms = debug_syms;
    match symbolizer.symbolize(&Source::Elf(elf), Input::FileOffset(offsets)) {
        Ok(found) => found
            .into_iter()
            .map(|s| s.into_sym().map(|sym| demangled(&sym.name)))
            .collect(),
        Err(_) => vec![None; offsets.len()],
    }
}

/// Opens the file that was mapped, and returns its path too if it is in this mount namespace.
fn the_file_that_ran(module: &Module, root: &Root) -> Option<(Option<PathBuf>, File)> {
    let relative = module.path.trim_start_matches('/');
    let is_it = |file: &File| {
        let inode = file.metadata().map(|meta| meta.ino());
        inode.is_ok_and(|inode| module.inode == 0 || inode == module.inode)
    };
    let path = root.path(relative);
    if let Some(file) = open_regular(&path).ok().filter(is_it) {
        return Some((Some(path), file));
    }
    // The file is in another mount namespace, or was deleted while it runs.
    let there = ConfinedFolder::new(&root.path(format!("proc/{}/root", module.pid)), None);
    let there = there.and_then(|root| root.open(Path::new(relative)));
    if let Some(file) = there.ok().filter(is_it) {
        return Some((None, file));
    }
    let running = open_regular(&root.path(format!("proc/{}/exe", module.pid)));
    Some((None, running.ok().filter(is_it)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mangled_is_demangled() {
        for name in [
            "f", "v", "d", "i", "St", "main", "_start", "Zone", "__zlib", "r", "_", "",
        ] {
            assert_eq!(demangled(name), name);
        }
        for (name, means) in [
            ("_ZN3foo3barEv", "foo::bar()"),
            ("__ZN3foo3barEv", "foo::bar()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
        ] {
            assert_eq!(demangled(name), means);
        }
        // A name that only resembles a mangled one stays.
        for name in ["_Z", "_Zzz?", "_R", "_Rust", "__Z"] {
            assert_eq!(demangled(name), name);
        }
    }

    #[test]
    fn this_very_program_has_names() {
        let exe = std::env::current_exe().unwrap();
        let root = Root::live();
        let module = |inode| Module {
            path: exe.display().to_string(),
            inode,
            pid: std::process::id(),
        };
        assert_eq!(
            the_file_that_ran(&module(0), &root).unwrap().0,
            Some(exe.clone())
        );
        // Another inode is another file, not to be opened even through the process.
        assert!(the_file_that_ran(&module(1), &root).is_none());
        let frames = [(0, 0x40)];
        let named = name_file(&module(1), &frames, &root, &mut 0);
        let (symbols, note) = named;
        assert!(note.unwrap().contains("not the file that ran"));
        assert!(symbols[0].unnamed && symbols[0].name.ends_with("+0x40]"));
    }

    /// A program, and the folder of its JIT map, on a file server that is gone.
    #[test]
    fn a_file_system_that_does_not_answer_blocks_no_trace() {
        let test = "collect::symbols::tests::a_file_system_that_does_not_answer_blocks_no_trace";
        if !hugeleaf_testkit::apart_from_processes(test) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("proc/77/root/tmp");
        std::fs::create_dir_all(&theirs).unwrap();
        let Some(_dead) = hugeleaf_testkit::HungMount::mount(test, &theirs) else {
            return;
        };
        let module = Module {
            path: theirs.join("program").display().to_string(),
            inode: 0,
            pid: std::process::id(),
        };
        let (symbols, note) = name_file(&module, &[(0, 0x40)], &Root::live(), &mut 0);
        assert!(note.unwrap().contains("does not answer"));
        assert!(symbols[0].unnamed && symbols[0].name.ends_with("+0x40]"));
        let (mut left, mut notes) = (ALL_MAPS, Vec::new());
        let map = JitMap::of(&Root::at(dir.path()), 77, &mut left, &mut notes);
        assert!(map.symbol(0).unnamed && left == ALL_MAPS);
        assert!(notes.join(" ").contains("does not answer"), "{notes:?}");
    }

    #[test]
    fn code_that_a_program_made() {
        let map = JitMap::parse(
            "7f00 10 old\n7f00 10 Lfoo;::bar\n0x7f20 8 two words\nnonsense\n".to_owned(),
        );
        assert_eq!(map.symbol(0x7f0f).name, "Lfoo;::bar");
        assert_eq!(map.symbol(0x7f20).name, "two words");
        let none = map.symbol(0x7f10);
        assert!(none.unnamed && none.name == "[no file]");
    }

    #[test]
    fn a_function_is_listed_once() {
        let one = nameless("/bin/a", 16, false);
        let named = collect(vec![Some(one.clone()), None, Some(one)], Vec::new());
        assert_eq!(named.of_frame, [0, 1, 0]);
        assert_eq!(named.symbols[0].name, "[a+0x10]");
    }

    /// A map must be owned by the process's user, limited in size, and a regular file.
    #[test]
    fn a_map_that_is_not_the_programs_is_not_read() {
        use std::os::unix::fs::chown;
        const OTHER: u32 = 65534;
        const PID: u32 = 77;
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let at = |name: &str| dir.path().join(name);
        for folder in ["tmp", "proc/77/root/tmp"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        let status = |uid: u32| format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        std::fs::write(at("proc/77/status"), status(0)).unwrap();
        let (inside, outside) = (at("proc/77/root/tmp/perf-77.map"), at("tmp/perf-77.map"));
        let look = || {
            let (mut left, mut notes) = (ALL_MAPS, Vec::new());
            let map = JitMap::of(&root, PID, &mut left, &mut notes);
            (map.symbol(0x1005).name, notes.join(" "))
        };
        let nothing = || ("[no file]".to_owned(), String::new());
        std::fs::write(&outside, "1000 10 outside\n").unwrap();
        assert_eq!(look().0, "outside");
        std::fs::write(&inside, "1000 10 inside\n").unwrap();
        assert_eq!(look(), ("inside".to_owned(), String::new()));
        if effective_uid() == 0 {
            chown(&inside, Some(OTHER), None).unwrap();
            let (name, note) = look();
            assert_eq!(name, "[no file]");
            assert!(
                note.contains("uid 65534") && note.contains("nor root"),
                "{note}"
            );
            std::fs::write(at("proc/77/status"), status(OTHER)).unwrap();
            assert_eq!(look().0, "inside");
        } else {
            println!(
                "not run: the part of a_map_that_is_not_the_programs_is_not_read about owners: needs root to give files away"
            );
        }
        std::fs::File::create(&inside)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(look().1.contains("more than 32M"), "{}", look().1);
        // FIFOs and links out of the root are not maps.
        std::fs::remove_file(&inside).unwrap();
        std::fs::remove_file(&outside).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &inside, kind, mode, 0).unwrap();
        assert_eq!(look(), nothing());
        std::fs::remove_file(&inside).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &inside).unwrap();
        assert_eq!(look(), nothing());
    }

    /// Names of any length, and short ones that expand to long ones.
    #[test]
    fn a_name_has_an_end() {
        let long = "x".repeat(1 << 20);
        assert_eq!(demangled(&long).len(), LONGEST_NAME);
        // Each pair doubles the length: in the end a thousand million characters.
        let mut pairs = "St4pairIiiE".to_owned();
        for _ in 0..30 {
            pairs = format!("St4pairI{pairs}S_E").replace("S_E", "S1_E");
        }
        let name = demangled(&format!("_Z1fI{pairs}Evv"));
        assert!(name.len() <= LONGEST_NAME.max(600), "{}", name.len());
    }

    /// A file of another user is copied before it is mapped, and must be limited in size.
    #[test]
    fn what_others_can_change_is_copied() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
        };
        let look =
            |left: &mut u64| stable_copy(open_regular(&path).unwrap(), left).map(|(_, ours)| ours);
        mode(0o755);
        let (mut left, length) = (ALL_OF_OTHERS, std::fs::metadata(&path).unwrap().len());
        assert!(look(&mut left).unwrap());
        assert_eq!(left, ALL_OF_OTHERS);
        mode(0o777);
        match look(&mut left) {
            Ok(ours) => assert!(!ours && left == ALL_OF_OTHERS - length),
            Err(error) => assert!(length > LARGEST_OF_OTHERS.get(), "{error}"),
        }
        assert!(look(&mut 10).unwrap_err().to_string().contains("more than"));
    }
}
