//! Names of functions, by `blazesym`, at the end of a trace. A file that is not the one that ran
//! (replaced, deleted) is opened through the process that still runs it, or its frames stay
//! without names. A name is never guessed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use hugeleaf_host::Root;

use super::stacks::{Frame, Module, Stacks};
use crate::model::Symbol;

/// What names came to.
#[derive(Debug, Default)]
pub struct Named {
    /// The functions, each once.
    pub symbols: Vec<Symbol>,
    /// For each frame the place of its function.
    pub of_frame: Vec<u32>,
    /// Things to know: files without symbols, files that were replaced.
    pub notes: Vec<String>,
}

/// Said once: there is one such frame.
const ENDED: &str = "Some programs ended within a moment, before their code was looked at: \
                     functions of their own have no names.";

/// Finds the functions of all frames.
pub fn name_all(stacks: &Stacks, root: &Root) -> Named {
    let symbolizer = Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(false)
        .build();
    let mut names: Vec<Option<Symbol>> = vec![None; stacks.frames().len()];
    let mut notes = Vec::new();
    name_kernel(&symbolizer, stacks, &mut names, &mut notes);
    let mut by_module: BTreeMap<u32, Vec<(usize, u64)>> = BTreeMap::new();
    let mut jit: HashMap<u32, JitMap> = HashMap::new();
    for (at, frame) in stacks.frames().iter().enumerate() {
        match frame {
            Frame::File(module, offset) => {
                by_module.entry(*module).or_default().push((at, *offset));
            }
            Frame::Process(pid, address) => {
                let map = jit.entry(*pid).or_insert_with(|| JitMap::of(root, *pid));
                names[at] = Some(map.symbol(*address));
            }
            Frame::Ended => {
                names[at] = Some(Symbol {
                    name: "[ended before it was looked at]".to_owned(),
                    module: "[not known]".to_owned(),
                    kernel: false,
                    unnamed: true,
                });
                notes.push(ENDED.to_owned());
            }
            Frame::Kernel(_) => {}
        }
    }
    let mut without = Vec::new();
    for (number, frames) in by_module {
        let module = &stacks.modules()[number as usize];
        if module.path.starts_with('[') {
            // The kernel's own, mapped into every program: no file to look into.
            for (at, offset) in frames {
                names[at] = Some(nameless(&module.path, offset, false));
            }
            continue;
        }
        let named = name_file(&symbolizer, module, &frames, root);
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
            "No symbols for what was sampled in {}: such functions are shown as [file+offset]; \
             install the packages with their debug symbols to see names.",
            without.join(", ")
        ));
    }
    collect(names, notes)
}

/// A name as its language writes it. Only what is mangled is taken apart: to a demangler of C++ the
/// functions `f`, `v` and `d` of C are the types float, void and double.
fn demangled(name: &str) -> String {
    // What linkers and clones add behind is no part of it: `_ZN1aE.constprop.0`, `_ZN1aE@@V1`.
    if name.starts_with("_R") || name.starts_with("__R") {
        return rustc_demangle::try_demangle(name)
            .map_or_else(|_| name.to_owned(), |name| format!("{name:#}"));
    }
    // Systems with an underscore before all names have one more.
    let is_mangled = ["_Z", "__Z", "___Z"].iter().any(|p| name.starts_with(p));
    if !is_mangled {
        return name.to_owned();
    }
    // Rust's older names are C++ names that end in a hash.
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        return format!("{name:#}");
    }
    let symbol = cpp_demangle::Symbol::new(name).ok();
    let text = symbol.and_then(|symbol| symbol.demangle().ok());
    text.unwrap_or_else(|| name.to_owned())
}

/// Each function once.
fn collect(names: Vec<Option<Symbol>>, notes: Vec<String>) -> Named {
    let mut named = Named {
        notes,
        ..Named::default()
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

/// Code that a program made while it ran, named by the program itself in the file that
/// `perf` has made a convention of: `/tmp/perf-PID.map`.
#[derive(Debug, Default)]
struct JitMap {
    /// Start to end and name.
    functions: BTreeMap<u64, (u64, String)>,
}

impl JitMap {
    fn of(root: &Root, pid: u32) -> JitMap {
        let inside = root.read(format!("proc/{pid}/root/tmp/perf-{pid}.map"));
        let outside = root.read(format!("tmp/perf-{pid}.map"));
        let text = inside.known().or(outside.known());
        text.map_or_else(JitMap::default, |text| JitMap::parse(text))
    }

    /// Lines of start, length and name, both numbers hexadecimal.
    fn parse(text: &str) -> JitMap {
        let functions = text.lines().filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut number = || {
                let word = words.next()?;
                u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
            };
            let (start, length) = (number()?, number()?);
            let name = words.next()?.trim().to_owned();
            Some((start, (start.saturating_add(length), name)))
        });
        JitMap {
            functions: functions.collect(),
        }
    }

    fn symbol(&self, address: u64) -> Symbol {
        let found = self.functions.range(..=address).next_back();
        let named = found.filter(|(_, (end, _))| address < *end);
        Symbol {
            // All that has no name is one entry: each address alone would say nothing.
            name: named.map_or("[no file]".to_owned(), |(_, (_, name))| name.clone()),
            module: "[made while it ran]".to_owned(),
            kernel: false,
            unnamed: named.is_none(),
        }
    }
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

fn name_kernel(
    symbolizer: &Symbolizer,
    stacks: &Stacks,
    names: &mut [Option<Symbol>],
    notes: &mut Vec<String>,
) {
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
    // The list of the running kernel, not a file that may be of another build.
    let source = Source::Kernel(Kernel {
        vmlinux: blazesym::MaybeDefault::None,
        ..Kernel::default()
    });
    let found = symbolizer.symbolize(&source, Input::AbsAddr(&addresses));
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            notes.push(format!(
                "The kernel's functions have no names: {error}. As root, or with \
                 kernel.kptr_restrict=0, they would."
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

/// The functions at offsets of a file, and a note where it is not the file that ran.
fn name_file(
    symbolizer: &Symbolizer,
    module: &Module,
    frames: &[(usize, u64)],
    root: &Root,
) -> (Vec<Symbol>, Option<String>) {
    let all_nameless = || {
        frames
            .iter()
            .map(|(_, offset)| nameless(&module.path, *offset, false))
            .collect()
    };
    let Some(path) = the_file_that_ran(module, root) else {
        let note = format!(
            "{} is not the file that ran any more (replaced or deleted, and nobody runs it now): \
             its functions have no names.",
            module.path
        );
        return (all_nameless(), Some(note));
    };
    let offsets: Vec<u64> = frames.iter().map(|(_, offset)| *offset).collect();
    // The symbol table first: debug information of a large program takes seconds to read, and is
    // worth that only where there is nothing else.
    let mut found = symbolize(symbolizer, &path, &offsets, false);
    if found.iter().all(Option::is_none) {
        found = symbolize(symbolizer, &path, &offsets, true);
    }
    let symbols = found
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
    (symbols, None)
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

/// The path under which the file that was mapped can be opened now.
fn the_file_that_ran(module: &Module, root: &Root) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let relative = module.path.trim_start_matches('/');
    let is_it = |path: &Path| {
        std::fs::metadata(path)
            .is_ok_and(|m| m.is_file() && (module.inode == 0 || m.ino() == module.inode))
    };
    let candidates = [
        root.path(relative),
        // Of another mount namespace, or deleted while it runs.
        root.path(format!("proc/{}/root/{relative}", module.pid)),
        root.path(format!("proc/{}/exe", module.pid)),
    ];
    candidates.into_iter().find(|path| is_it(path))
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
        // What only looks so stays as it is.
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
        assert_eq!(the_file_that_ran(&module(0), &root), Some(exe.clone()));
        // Another inode: another file. Not even through the process itself.
        assert_eq!(the_file_that_ran(&module(1), &root), None);
        let (symbols, note) = name_file(&Symbolizer::new(), &module(1), &[(0, 0x40)], &root);
        assert!(note.unwrap().contains("not the file that ran"));
        assert!(symbols[0].unnamed && symbols[0].name.ends_with("+0x40]"));
    }

    #[test]
    fn code_that_a_program_made() {
        let map = JitMap::parse("7f00 10 Lfoo;::bar\n0x7f20 8 two words\nnonsense\n");
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
}
