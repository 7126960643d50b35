//! Selects the rule of a process tree. Pure.

use std::fmt;

use hugeleaf_host::process::proc_parsers::{is_service, unit_of};
use wildmatch::WildMatch;

use crate::observation::ObservedTree;
use crate::rule_settings::{KeepCondition, PromotionLimits, RuleAction, TestSettings};

/// Patterns of a rule: `*` stands for any characters and `?` for one. All given patterns must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matcher {
    /// The command's name, or the last part of the program's path.
    pub name: Option<String>,
    pub unit: Option<String>,
    pub cgroup: Option<String>,
    pub user: Option<String>,
    pub pod: Option<String>,
}

impl Matcher {
    pub fn is_empty(&self) -> bool {
        *self == Matcher::default()
    }

    pub fn names_a_program(&self) -> bool {
        let names = |pattern: &Option<String>| pattern.as_ref().is_some_and(|p| !p.contains('*'));
        names(&self.name) || names(&self.unit)
    }

    pub fn matches(&self, seen: &ObservedTree) -> bool {
        let says = |pattern: &Option<String>, texts: &[Option<&str>]| match pattern {
            None => true,
            Some(pattern) => {
                let pattern = WildMatch::new(pattern);
                texts.iter().flatten().any(|text| pattern.matches(text))
            }
        };
        let uid = seen.uid.to_string();
        says(
            &self.name,
            &[Some(&seen.name), seen.program_name.as_deref()],
        ) && says(&self.unit, &[seen.unit.as_deref()])
            && says(&self.cgroup, &[seen.cgroup.as_deref()])
            && says(&self.user, &[seen.user.as_deref(), Some(&uid)])
            && says(&self.pod, &[seen.pod.as_deref()])
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("everything");
        }
        let keys = [
            ("name", &self.name),
            ("unit", &self.unit),
            ("cgroup", &self.cgroup),
            ("user", &self.user),
            ("pod", &self.pod),
        ];
        let said = keys
            .iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?)));
        for (n, (key, value)) in said.enumerate() {
            write!(f, "{}{key} {value}", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub label: String,
    pub matcher: Matcher,
    pub action: RuleAction,
    pub limits: PromotionLimits,
    /// True if it overrides a THP setting made by prctl.
    pub overrides: bool,
    /// The metric for tests, as in `prove --metric`.
    pub metric: Option<String>,
    /// Settings of tests; `None` for no tests.
    pub prove: Option<TestSettings>,
    pub keep: KeepCondition,
}

/// First user id of ordinary users (UID_MIN in login.defs(5)).
const FIRST_USER: u32 = 1000;

impl Rule {
    /// Returns the metric if it measures this process tree. Any user can run a program of any name, and a pattern of
    /// units may match the user's session or a container. So a rule that matches by name and unit only does not apply
    /// its metric to processes of ordinary users outside the system's services.
    pub fn metric_of(&self, seen: &ObservedTree) -> Option<&String> {
        let without_names = Matcher {
            name: None,
            unit: None,
            ..self.matcher.clone()
        };
        let ordinary = seen.uid >= FIRST_USER && !seen.cgroup.as_deref().is_some_and(in_system);
        let metric = self.metric.as_ref();
        metric.filter(|_| !(without_names.is_empty() && ordinary))
    }
}

/// True if the cgroup belongs to a service of the system. Services in `machine.slice` are other systems.
fn in_system(cgroup: &str) -> bool {
    !cgroup.starts_with("/machine.slice/") && unit_of(cgroup).is_some_and(|unit| is_service(&unit))
}

/// Returns the first rule that matches.
pub fn rule_of<'a>(rules: &'a [Rule], seen: &ObservedTree) -> Option<&'a Rule> {
    rules.iter().find(|rule| rule.matcher.matches(seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::seen;

    fn matcher(change: impl FnOnce(&mut Matcher)) -> Matcher {
        let mut matcher = Matcher::default();
        change(&mut matcher);
        matcher
    }

    #[test]
    fn every_key_has_to_match() {
        let mut program = seen(7);
        program.name = "postgres".into();
        program.unit = Some("postgresql@15-main.service".into());
        program.cgroup = Some("/system.slice/system-postgresql.slice/x".into());
        program.user = Some("postgres".into());
        program.uid = 103;
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            (matcher(|_| {}), true),
            (matcher(|m| m.name = some("postgres")), true),
            (matcher(|m| m.name = some("postgre")), false),
            (matcher(|m| m.unit = some("postgresql@*.service")), true),
            (matcher(|m| m.cgroup = some("/system.slice/*")), true),
            (matcher(|m| m.cgroup = some("/user.slice/*")), false),
            (matcher(|m| m.user = some("103")), true),
            (matcher(|m| m.user = some("10?")), true),
            (matcher(|m| m.pod = some("*")), false),
        ];
        for (matcher, matches) in cases {
            assert_eq!(matcher.matches(&program), matches, "{matcher}");
        }
        let both = matcher(|m| {
            m.name = some("postgres");
            m.user = some("root");
        });
        assert!(!both.matches(&program));
        assert_eq!(both.to_string(), "name postgres, user root");
    }

    /// A user's own process with a server's name is not measured by the server's metric.
    #[test]
    fn a_name_or_a_unit_alone_makes_nobody_a_target_of_a_metric() {
        let mut rule = Rule {
            label: "redis".into(),
            matcher: Matcher::default(),
            action: RuleAction::Promote,
            limits: PromotionLimits::default(),
            overrides: false,
            metric: Some("redis:127.0.0.1:6379".into()),
            prove: None,
            keep: KeepCondition::default(),
        };
        let mut program = seen(7);
        let measured = |rule: &Rule, program: &ObservedTree, uid, cgroup: &str| {
            let program = ObservedTree {
                uid,
                cgroup: Some(cgroup.into()),
                ..program.clone()
            };
            rule.metric_of(&program).is_some()
        };
        program.name = "redis-server".into();
        let (name, unit) = (Some("redis-server".to_owned()), Some("*".to_owned()));
        for (name, unit) in [(name.clone(), None), (None, unit.clone()), (name, unit)] {
            (rule.matcher.name, rule.matcher.unit) = (name, unit);
            for (uid, cgroup, is) in [
                (0, "/user.slice/user-0.slice/session-1.scope", true),
                (112, "/", true),
                (1000, "/system.slice/redis.service", true),
                (1000, "/db.slice/redis.service", true),
                (1000, "/user.slice/user-1000.slice/session-3.scope", false),
                (
                    1000,
                    "/user.slice/user-1000.slice/user@1000.service/app.slice/redis.service",
                    false,
                ),
                (
                    1000,
                    "/machine.slice/systemd-nspawn@x.service/payload/system.slice/redis.service",
                    false,
                ),
                (
                    1000,
                    "/system.slice/docker-1.scope/system.slice/redis.service",
                    false,
                ),
                (1000, "/", false),
            ] {
                let matcher = &rule.matcher;
                assert_eq!(
                    measured(&rule, &program, uid, cgroup),
                    is,
                    "{matcher}: {uid} {cgroup}"
                );
            }
        }
        rule.matcher.user = Some("1000".into());
        assert!(measured(&rule, &program, 1000, "/"));
    }

    #[test]
    fn a_pattern_names_no_program() {
        assert!(matcher(|m| m.name = Some("redis-server".into())).names_a_program());
        assert!(matcher(|m| m.unit = Some("redis.service".into())).names_a_program());
        assert!(!matcher(|m| m.name = Some("*".into())).names_a_program());
        assert!(!matcher(|m| m.user = Some("redis".into())).names_a_program());
    }
}
