//! The role of a mapping, such as heap, stack or shared memory.

use crate::model::{MappingRole, VmFlags};
use crate::process::maps::{MapLine, is_zero_device};

/// Derives the role of `map` from its name, its rights and the mapping before it.
pub fn role_of(map: &MapLine, before: Option<&MapLine>, flags: &VmFlags) -> MappingRole {
    let name = map.name.as_str();
    match name {
        "[heap]" => return MappingRole::Heap,
        "[stack]" => return MappingRole::Stack,
        _ if name.starts_with("[stack:") => return MappingRole::ThreadStack,
        _ if name.starts_with("[anon_shmem:") => return MappingRole::Shm,
        // Names that the library of `hugeleaf run` gives to memory it moved or mapped.
        "[anon:hugeleaf-stack]" => return MappingRole::ThreadStack,
        "[anon:hugeleaf-text]" => return MappingRole::Text,
        "/memfd:hugeleaf-libc (deleted)" => return MappingRole::Text,
        _ if name.starts_with("[anon:") => return MappingRole::Anon,
        _ if name.starts_with("[v") => return MappingRole::Vdso,
        _ => {}
    }
    let no_object = map.object.2 == 0 && (name.is_empty() || is_zero_device(name));
    if no_object {
        return if is_thread_stack(map, before, flags) {
            MappingRole::ThreadStack
        } else if before.is_some_and(|b| is_bss(map, b)) {
            MappingRole::Data
        } else {
            MappingRole::Anon
        };
    }
    if is_shared_memory(name) {
        // A private mapping of a nameless object is private memory: MAP_HUGETLB makes those.
        return if map.shared {
            MappingRole::Shm
        } else {
            MappingRole::Anon
        };
    }
    match (map.permissions, map.shared) {
        ([_, _, true], _) => MappingRole::Text,
        ([_, true, _], false) => MappingRole::Data,
        _ => MappingRole::File,
    }
}

/// True for the stack of a thread. It has an inaccessible guard before it, which is not larger than
/// the stack, and the kernel refuses huge pages on it. glibc maps stacks with MAP_STACK, which sets
/// `nh` since Linux 6.7.
fn is_thread_stack(map: &MapLine, before: Option<&MapLine>, flags: &VmFlags) -> bool {
    let guarded = before.is_some_and(|b| {
        b.permissions == [false; 3]
            && b.range.end() == map.range.start()
            && b.object.2 == 0
            && b.range.len() <= map.range.len()
    });
    guarded && !map.shared && map.permissions == [true, true, false] && flags.has("nh")
}

/// True for zero data, which follows the initialised data of its file without a gap.
fn is_bss(map: &MapLine, before: &MapLine) -> bool {
    before.object.2 != 0
        && before.permissions[1]
        && !before.shared
        && before.range.end() == map.range.start()
}

/// True for the names under which the kernel shows shared memory (mm/shmem.c, ipc/shm.c,
/// mm/memfd.c, fs/hugetlbfs), and the folder of POSIX shared memory (shm_overview(7)).
fn is_shared_memory(name: &str) -> bool {
    name == "/dev/zero (deleted)"
        || [
            "/SYSV",
            "/memfd:",
            "/dev/shm/",
            "/anon_hugepage",
            "/dev/hugepages/",
            // A file of the library of `hugeleaf run`, on a tmpfs that is mounted nowhere.
            "/hugeleaf-shm",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || is_unnamed_file_of_no_mount(name)
}

/// True for an unnamed file (O_TMPFILE), shown as `#` and its inode, directly below `/`. It is
/// there only if its file system is mounted nowhere, as that of the library of `hugeleaf run`.
fn is_unnamed_file_of_no_mount(name: &str) -> bool {
    name.strip_prefix("/#")
        .and_then(|rest| rest.strip_suffix(" (deleted)"))
        .is_some_and(|inode| !inode.is_empty() && inode.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps::read_maps;

    #[test]
    fn roles() {
        let text = "\
1000-2000 r-xp 00000000 08:01 11 /usr/bin/server
2000-3000 rw-p 00001000 08:01 11 /usr/bin/server
3000-4000 rw-p 00000000 00:00 0 
5000-6000 rw-p 00000000 00:00 0 [heap]
7000-8000 ---p 00000000 00:00 0 
8000-9000 rw-p 00000000 00:00 0 
a000-b000 rw-p 00000000 00:00 0 
b000-c000 rw-s 00000000 00:01 77 /dev/zero (deleted)
c000-d000 rw-s 00000000 00:01 78 /SYSV00000000 (deleted)
d000-e000 rw-p 00000000 00:0f 79 /anon_hugepage (deleted)
e000-f000 r--s 00000000 08:01 12 /data/file
f000-10000 rw-p 00000000 00:00 0 [stack]
10000-11000 r-xp 00000000 00:00 0 [vdso]
11000-12000 rw-s 00000000 00:01 80 /dev/shm/PostgreSQL.1
12000-13000 rw-p 00000000 00:00 0 [anon:hugeleaf]
13000-14000 rw-s 00000000 00:2f 81 /hugeleaf-shm (deleted)
14000-15000 rw-s 00000000 00:2f 82 /#82 (deleted)
15000-16000 rw-p 00000000 00:00 0 [anon:hugeleaf-stack]
16000-17000 r-xp 00000000 00:00 0 [anon:hugeleaf-text]
17000-18000 rw-s 00000000 08:01 83 /tmp/#83 (deleted)
18000-19000 r-xp 00000000 00:01 84 /memfd:hugeleaf-libc (deleted)
19000-1a000 rw-p 00003000 00:05 4 /dev/zero
1a000-1b000 rw-p 00000000 08:01 85 /srv/dev/zero
";
        let maps = read_maps(&mut text.as_bytes()).unwrap().unwrap();
        let nh = VmFlags(vec![*b"nh"]);
        let roles: Vec<MappingRole> = maps
            .iter()
            .enumerate()
            .map(|(i, map)| {
                let flags = if map.range.start() == 0x8000 {
                    nh.clone()
                } else {
                    VmFlags::default()
                };
                role_of(map, i.checked_sub(1).map(|b| &maps[b]), &flags)
            })
            .collect();
        use MappingRole::*;
        assert_eq!(
            roles,
            [
                Text,
                Data,
                Data,
                Heap,
                Anon,
                ThreadStack,
                Anon,
                Shm,
                Shm,
                Anon,
                File,
                Stack,
                Vdso,
                Shm,
                Anon,
                Shm,
                Shm,
                ThreadStack,
                Text,
                File,
                Text,
                Anon,
                Data
            ]
        );
    }
}
