//! Locates and reads the files with rules.

use std::path::{Path, PathBuf};

use hugeleaf_host::Root;

use crate::config::{Config, ConfigError, RuleAction};
use hugeleaf_balancer::BalanceAction;

/// Maximum length of a configuration file, in bytes.
const LONGEST: u64 = 1 << 20;
/// Maximum number of drop-ins.
const MOST: usize = 1000;

/// The main file and its drop-in folder, next to it with `.d` instead of `.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFiles {
    main: PathBuf,
    /// True if the main file was named by the user, so that its absence is an error.
    named: bool,
    watching: bool,
}

impl ConfigFiles {
    pub fn usual() -> ConfigFiles {
        ConfigFiles {
            main: "/etc/hugeleaf/guard.toml".into(),
            named: false,
            watching: false,
        }
    }

    pub fn named(path: impl Into<PathBuf>) -> ConfigFiles {
        ConfigFiles {
            main: path.into(),
            named: true,
            watching: false,
        }
    }

    /// Returns the same files with all rules set to watch only.
    #[must_use]
    pub fn watching(mut self) -> ConfigFiles {
        self.watching = true;
        self
    }

    pub fn found(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = (self.main.exists() || self.named)
            .then(|| self.main.clone())
            .into_iter()
            .collect();
        let folder = self.main.with_extension("d");
        let mut drop_ins: Vec<PathBuf> =
            (std::fs::read_dir(folder).into_iter().flatten().flatten())
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|e| e == "toml"))
                .filter(|path| {
                    !path
                        .file_name()
                        .is_some_and(|n| n.to_string_lossy().starts_with('.'))
                })
                .take(MOST)
                .collect();
        drop_ins.sort();
        found.extend(drop_ins);
        found
    }

    pub fn read(&self) -> Result<Config, ConfigError> {
        let texts: Result<Vec<(PathBuf, String)>, ConfigError> = (self.found().into_iter())
            .map(|path| Ok((path.clone(), read(&path)?)))
            .collect();
        let mut config = match texts? {
            texts if texts.is_empty() => Config::default(),
            texts => Config::parse(&texts)?,
        };
        config.is_dry = self.watching;
        if self.watching {
            for rule in &mut config.rules {
                if rule.action == RuleAction::Promote {
                    rule.action = RuleAction::Watch;
                }
            }
            for target in &mut config.targets {
                target.action = BalanceAction::Watch;
            }
        }
        Ok(config)
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    use std::io::Read;
    let error = |what: String| ConfigError {
        path: path.to_owned(),
        at: None,
        what,
    };
    let file = hugeleaf_sys::open_regular(path).map_err(|e| error(e.to_string()))?;
    let mut text = String::new();
    let read = file.take(LONGEST + 1).read_to_string(&mut text);
    match read {
        Ok(n) if n as u64 > LONGEST => Err(error("longer than 1M".into())),
        Ok(_) => Ok(text),
        Err(e) => Err(error(e.to_string())),
    }
}

/// Returns a group's number (`/etc/group`, group(5)), from its name or number.
pub(crate) fn group_id(root: &Root, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let text = root.read("etc/group");
    text.known()?.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next()? == name)
            .then(|| parts.nth(1)?.parse().ok())
            .flatten()
    })
}
