//! Accounts, and their rights to huge pages.

use hugeleaf_sys::UserCredentials;

use super::User;
use crate::fact::Fact;
use crate::limits::CAP_IPC_LOCK;
use crate::model::Process;
pub use crate::process::proc_parsers::parse_memlock;
use crate::root::Root;
use crate::system::pam_limits;

/// Returns an account by name or number, with the rights of a new process. Absent if there is none.
pub fn read_user(root: &Root, name_or_uid: &str) -> Fact<User> {
    root.read("etc/passwd").and_then(|text| {
        let number: Option<u32> = name_or_uid.parse().ok();
        let entries = parse_passwd(&text);
        let entry = entries
            .iter()
            .find(|e| e.name == name_or_uid || Some(e.uid) == number);
        entry.map_or(Fact::Absent, |entry| Fact::Known(account(root, entry)))
    })
}

/// Returns the account of a running process, with its present rights. A new process might have
/// others.
pub(super) fn of_process(root: &Root, process: &Process) -> User {
    let rights = UserCredentials::of_ids(process.uid, &process.groups);
    let passwd = root.read("etc/passwd").or_default();
    let mut entries = parse_passwd(&passwd).into_iter();
    let name = entries.find(|entry| entry.uid == process.uid);
    let name = name.map(|entry| entry.name);
    let limits = root.parse(format!("proc/{}/limits", process.pid), parse_memlock);
    User {
        name,
        uid: rights.uid,
        gid: rights.gid,
        groups: rights.groups,
        memlock: limits.clone().and_then(|limits| Fact::from(limits.0)),
        memlock_hard: limits.and_then(|limits| Fact::from(limits.1)),
        ipc_lock: process.capabilities & (1 << CAP_IPC_LOCK) != 0,
    }
}

/// Returns an account that owns something, by its number alone.
pub(crate) fn of_uid(root: &Root, uid: u32) -> User {
    match read_user(root, &uid.to_string()) {
        Fact::Known(user) => user,
        _ => User {
            name: None,
            uid,
            gid: uid,
            groups: vec![uid],
            memlock: Fact::Absent,
            memlock_hard: Fact::Absent,
            ipc_lock: uid == 0,
        },
    }
}

fn account(root: &Root, entry: &PasswdEntry) -> User {
    let all_groups = parse_group(&root.read("etc/group").or_default());
    let is_in = |g: &&GroupEntry| g.gid == entry.gid || g.members.contains(&entry.name);
    let mine: Vec<&GroupEntry> = all_groups.iter().filter(is_in).collect();
    let mut groups = vec![entry.gid];
    groups.extend(mine.iter().map(|g| g.gid).filter(|gid| *gid != entry.gid));
    let names: Vec<String> = mine.iter().map(|g| g.name.clone()).collect();
    let limits =
        pam_limits::read(root).map(|lines| pam_limits::limits_of(&lines, &entry.name, &names));
    User {
        name: Some(entry.name.clone()),
        uid: entry.uid,
        gid: entry.gid,
        groups,
        memlock: limits.clone().and_then(|limits| Fact::from(limits.0)),
        memlock_hard: limits.and_then(|limits| Fact::from(limits.1)),
        ipc_lock: entry.uid == 0,
    }
}

/// A line of `/etc/passwd` (passwd(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswdEntry {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// Parses the accounts in `/etc/passwd`. Skips lines of another form.
pub fn parse_passwd(text: &str) -> Vec<PasswdEntry> {
    let parse = |line: &str| {
        let mut fields = line.split(':');
        Some(PasswdEntry {
            name: fields.next()?.to_owned(),
            uid: fields.nth(1)?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    };
    text.lines().filter_map(parse).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupEntry {
    pub name: String,
    pub gid: u32,
    pub members: Vec<String>,
}

/// Parses the groups in `/etc/group`. Skips lines of another form.
pub(super) fn parse_group(text: &str) -> Vec<GroupEntry> {
    let parse = |line: &str| {
        let mut fields = line.split(':');
        let (name, gid) = (fields.next()?, fields.nth(1)?);
        let members = fields.next().unwrap_or_default().split(',');
        let members = members.filter(|m| !m.is_empty()).map(str::to_owned);
        Some(GroupEntry {
            name: name.to_owned(),
            gid: gid.parse().ok()?,
            members: members.collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_units::Bytes;
    use proptest::prelude::*;

    fn host() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\njunk\noracle:x:54321:500:Oracle:/home/o:/bin/sh\n",
        );
        write(
            "etc/group",
            "dba:x:501:oracle,x\noinstall:x:500:\nother:x:502:\n",
        );
        write(
            "etc/security/limits.d/90-o.conf",
            "@dba soft memlock 2048\n",
        );
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn an_account_has_its_groups_and_what_they_may_lock() {
        let (_dir, root) = host();
        let by_name = read_user(&root, "oracle");
        assert_eq!(by_name, read_user(&root, "54321"));
        let user = by_name.known().unwrap();
        assert_eq!((user.gid, user.groups.as_slice()), (500, &[500, 501][..]));
        assert_eq!(user.memlock, Fact::Known(Bytes::from_kib(2048)));
        assert_eq!(user.memlock_hard, Fact::Absent);
        assert!(!user.ipc_lock);
        assert!(read_user(&root, "root").known().unwrap().ipc_lock);
        assert_eq!(read_user(&root, "nobody"), Fact::Absent);
        let denied = root.failing("etc/passwd", std::io::ErrorKind::PermissionDenied);
        assert!(read_user(&denied, "oracle").error().is_some());
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_not_the_kernels_default() {
        let (_dir, root) = host();
        let denied = root.failing(
            "etc/security/limits.d/90-o.conf",
            std::io::ErrorKind::PermissionDenied,
        );
        let user = read_user(&denied, "oracle");
        assert!(user.known().unwrap().memlock.error().is_some());
    }

    #[test]
    fn soft_and_hard() {
        let line = "Max locked memory         8192    unlimited   bytes";
        let limits = (Some(Bytes(8192)), Some(Bytes(u64::MAX)));
        assert_eq!(parse_memlock(line).unwrap(), limits);
        assert_eq!(parse_memlock("").unwrap(), (None, None));
        assert!(parse_memlock("Max locked memory  8192").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = (parse_passwd(&text), parse_group(&text), parse_memlock(&text));
        }
    }
}
