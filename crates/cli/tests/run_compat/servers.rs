//! Starting a server of another account under `hugeleaf run`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::under::{Mode, can_run, clean};
use crate::common::{is_root, not_run, public_copy};
use hugeleaf_testkit::find_program;
use hugeleaf_testkit::server::{ServerAccount, as_account};

/// The program and the library in a folder that every account may read.
pub struct Public {
    folder: TempDir,
    hugeleaf: PathBuf,
}

impl Public {
    /// Copies both.
    pub fn copy() -> Public {
        let (folder, hugeleaf) = public_copy();
        super::processes::public_library(folder.path());
        Public { folder, hugeleaf }
    }

    /// Returns a program of an account in this mode; it ends with the test.
    pub fn command(
        &self,
        way: Mode,
        account: ServerAccount,
        program: &Path,
        folder: &Path,
    ) -> Command {
        let words = way.words();
        let mut command = match words.split_first() {
            None => as_account(account, program, folder),
            Some((_, rest)) => {
                let mut command = as_account(account, &self.hugeleaf, folder);
                command.args(rest).arg(program);
                command
            }
        };
        clean(&mut command);
        command.env(
            "HUGELEAF_RUN_LIBRARY",
            self.folder.path().join("library.so"),
        );
        command
    }
}

/// Returns true if a server can be started here; otherwise prints the reason.
pub fn can_start(test: &str, server: &str, installed: bool) -> bool {
    if !is_root() || find_program(&["setpriv"]).is_none() {
        not_run(test, "needs root and setpriv (util-linux)");
        return false;
    }
    if !installed {
        not_run(test, &format!("needs {server}"));
        return false;
    }
    can_run(test)
}
