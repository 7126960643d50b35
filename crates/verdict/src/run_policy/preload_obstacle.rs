//! Returns why a program cannot load the library of `hugeleaf run`, from the program's file.

use hugeleaf_host::{Elf, ExecutableFormat, FilePrivilege, ProgramFile};

/// Makes the address sanitizer accept a library that is loaded before its own. Other programs
/// ignore it.
pub const SANITIZER_OPTION: &str = "verify_asan_link_order=0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreloadObstacle {
    pub reason: String,
    pub can_promote: bool,
    /// True if preloading the library is harmless. It is then preloaded anyway, for the child
    /// processes.
    pub may_pass_on: bool,
}

/// Returns the obstacle to loading a library built for `arch` (as in [`std::env::consts::ARCH`])
/// into a program. `None` if no obstacle is known.
pub fn obstacle(program: &ProgramFile, arch: &str) -> Option<PreloadObstacle> {
    let path = program.path.display();
    match (&program.privilege, &program.format) {
        (Some(privilege), _) => {
            let gains = match privilege {
                FilePrivilege::User(uid) => format!("runs as uid {uid} (setuid)"),
                FilePrivilege::Group(gid) => format!("runs as gid {gid} (setgid)"),
                FilePrivilege::Capabilities => "has file capabilities".to_owned(),
            };
            Some(PreloadObstacle::movable(format!(
                "{path} {gains}, and no library can be preloaded into such programs"
            )))
        }
        (None, ExecutableFormat::Elf(elf)) => of_elf(program, elf, arch),
        // The format is unknown. The loader will report a mismatch.
        (None, ExecutableFormat::Other | ExecutableFormat::Unknown(_)) => None,
    }
}

impl PreloadObstacle {
    fn movable(because: String) -> PreloadObstacle {
        PreloadObstacle {
            reason: because,
            can_promote: true,
            may_pass_on: false,
        }
    }
}

fn of_elf(program: &ProgramFile, elf: &Elf, arch: &str) -> Option<PreloadObstacle> {
    let path = program.path.display();
    let movable = |because: String| Some(PreloadObstacle::movable(because));
    let own_bits = usize::BITS;
    if u32::from(elf.bits) != own_bits {
        return movable(format!(
            "{path} is a {}-bit program, and the library is {own_bits}-bit",
            elf.bits
        ));
    }
    if machine(arch).is_some_and(|own| own != elf.machine) {
        return movable(format!("{path} is not for {arch} processors"));
    }
    let Some(loader) = &elf.interpreter else {
        // The loader itself is static too, but loads libraries.
        if is_glibc(&path.to_string()) && elf.needed.is_empty() {
            return None;
        }
        let because = format!("{path} is linked statically, so no library can be loaded into it");
        return Some(PreloadObstacle {
            may_pass_on: true,
            ..PreloadObstacle::movable(because)
        });
    };
    if !is_glibc(loader) {
        let is_musl = base_name(loader).starts_with("ld-musl");
        let whose = if is_musl { "musl's " } else { "" };
        return movable(format!(
            "{path} is loaded by {whose}{loader}, and the library is for glibc"
        ));
    }
    let sanitizer = elf.needed.iter().find(|name| is_sanitizer(name))?;
    let because =
        format!("{path} is built with a sanitizer ({sanitizer}), which controls the memory layout");
    Some(PreloadObstacle {
        can_promote: false,
        ..PreloadObstacle::movable(because)
    })
}

/// True for `ld-linux-x86-64.so.2`, `ld-linux-aarch64.so.1`, `ld64.so.2`, `ld.so.1`.
fn is_glibc(loader: &str) -> bool {
    let name = base_name(loader);
    let mut known = ["ld-linux", "ld64.so", "ld.so"].iter();
    known.any(|start| name.starts_with(start))
}

/// True for runtimes with a map of all memory. The undefined-behaviour runtime has none.
fn is_sanitizer(library: &str) -> bool {
    let mut known = ["asan", "hwasan", "tsan", "msan", "lsan"].iter();
    known.any(|name| {
        library.starts_with(&format!("lib{name}."))
            || library.starts_with(&format!("libclang_rt.{name}"))
    })
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the number of an architecture in ELF headers (elf.h).
fn machine(arch: &str) -> Option<u16> {
    Some(match arch {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        "powerpc64" => 21,
        "s390x" => 22,
        "loongarch64" => 258,
        _ => return None,
    })
}
