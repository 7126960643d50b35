use super::*;
use crate::tests::seen;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(&[("/etc/hugeleaf/guard.toml".into(), text.into())])
}

#[test]
fn without_a_file_everything_is_watched() {
    let config = Config::default();
    assert!(!config.acts());
    let rule = crate::rule::rule_of(&config.rules, &seen(7)).unwrap();
    assert_eq!(
        (rule.action, rule.label.as_str()),
        (RuleAction::Watch, "default")
    );
    let limits = &rule.limits;
    assert_eq!(limits.min_age, Duration::from_secs(30));
    assert_eq!(
        (limits.min_cpu, limits.min_bytes),
        (Share(0.1), Bytes::from_mib(256))
    );
    assert_eq!((limits.scans, config.every), (4, Duration::from_secs(5)));
    // A file without settings changes nothing.
    assert_eq!(parse("schema = 1").unwrap(), config);
}

#[test]
fn one_line_lets_it_act() {
    let config = parse("schema = 1\ndefault.action = \"promote\"").unwrap();
    assert!(config.acts());
    assert_eq!(config.rules[0].limits, PromotionLimits::default());
}

#[test]
fn all_that_a_rule_can_say() {
    let config = parse(
        r#"
schema = 1
every = "2s"
cpu = "0.5%"
at_once = 2
pause_memory = "5%"
pause_cpu = "50%"
listen = "[::1]:9000"
group = "dba"
textfile = "/var/lib/node/hugeleaf.prom"
log_bytes = "1M"
series = 20

[default]
min_bytes = "1G"
hours = "22:00-06:00"

[[rule]]
name = "redis-server"
unit = "redis*.service"
cgroup = "/system.slice/*"
user = "redis"
pod = "*"
action = "promote"
budget = "5%"
min_age = "10s"
min_cpu = "1%"
min_bytes = "64M"
min_resident = "90%"
scans = 2
at_once = 3
hours = ["08:00-12:00", "13:00-24:00"]
override = true
metric = "redis:127.0.0.1:6379"
prove = { pairs = 16, every = "1d", over = "0s", interval = "1s", hold = "0s" }
keep = "if-faster"
"#,
    )
    .unwrap();
    assert_eq!(
        (config.every, config.cpu, config.at_once),
        (Duration::from_secs(2), Share(0.005), 2)
    );
    assert_eq!(config.listen.unwrap().to_string(), "[::1]:9000");
    assert_eq!((config.group.as_deref(), config.series), (Some("dba"), 20));
    let rule = &config.rules[0];
    assert_eq!(
        rule.label,
        "guard.toml rule 1: name redis-server, unit redis*.service, cgroup /system.slice/*, user redis, pod *"
    );
    assert_eq!(
        (rule.limits.scans, rule.limits.at_once, rule.overrides),
        (2, 3, true)
    );
    assert_eq!(rule.keep, KeepCondition::IfFaster);
    let prove = rule.prove.unwrap();
    assert_eq!(
        (prove.pairs, prove.over, prove.hold),
        (16, Duration::ZERO, Duration::ZERO)
    );
    let hours: Vec<String> = rule
        .limits
        .hours
        .iter()
        .map(DailyWindow::to_string)
        .collect();
    assert_eq!(hours, ["08:00-12:00", "13:00-24:00"]);
    // The last rule matches everything else.
    let last = config.rules.last().unwrap();
    assert_eq!(
        (last.limits.min_bytes, last.limits.hours.len()),
        (Bytes::from_mib(1024), 1)
    );
}

#[test]
fn who_names_a_program_need_not_wait() {
    let rule = |text: &str| {
        parse(&format!("schema = 1\n[[rule]]\n{text}"))
            .unwrap()
            .rules
            .remove(0)
    };
    let named = rule("name = 'mariadbd'").limits;
    assert_eq!((named.min_age, named.min_cpu), (Duration::ZERO, Share(0.0)));
    // Other defaults stay, and the rule's own settings count.
    assert_eq!(named.min_bytes, PromotionLimits::default().min_bytes);
    assert_eq!(
        rule("name = 'a'\nmin_age = '5m'").limits.min_age,
        Duration::from_secs(300)
    );
    assert_eq!(
        rule("name = '*'").limits.min_age,
        PromotionLimits::default().min_age
    );
    assert_eq!(
        rule("user = 'mysql'").limits.min_cpu,
        PromotionLimits::default().min_cpu
    );
}

#[test]
fn a_metric_is_there_to_be_used() {
    let rule = |text: &str| {
        parse(&format!("schema = 1\n[[rule]]\nname = 'x'\n{text}"))
            .unwrap()
            .rules
            .remove(0)
    };
    assert_eq!(
        rule("metric = 'cmd:cat /x'").prove,
        Some(TestSettings::default())
    );
    assert_eq!(rule("").prove, None);
    assert_eq!(rule("prove = {}").prove, Some(TestSettings::default()));
}

#[test]
fn drop_ins_come_first() {
    let main = "schema = 1\nevery = '9s'\n[[rule]]\nname = '*'\naction = 'never'";
    let drop_in = "schema = 1\ncpu = '2%'\n[[rule]]\nname = 'db'\naction = 'promote'";
    let texts = [
        ("/a/guard.toml".into(), main.into()),
        ("/a/guard.d/10-db.toml".into(), drop_in.into()),
    ];
    let config = Config::parse(&texts).unwrap();
    assert_eq!(
        (config.every, config.cpu),
        (Duration::from_secs(9), Share(0.02))
    );
    let labels: Vec<&str> = config.rules.iter().map(|r| r.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "10-db.toml rule 1: name db",
            "guard.toml rule 1: name *",
            "default"
        ]
    );
}

#[test]
fn metrics_for_other_hosts_need_permission() {
    let metrics = |text: &str| parse(&format!("schema = 1\n{text}")).map(|c| c.metrics);
    assert_eq!(metrics("listen_beyond_host = true"), Ok(None));
    let loopback = "127.0.0.1:9647".parse().unwrap();
    assert_eq!(metrics("metrics = '127.0.0.1:9647'"), Ok(Some(loopback)));
    let all = "[::]:9646".parse().unwrap();
    let text = "listen = 'off'\nlisten_beyond_host = true\nmetrics = '[::]:9646'";
    assert_eq!(metrics(text), Ok(Some(all)));
    assert_eq!(metrics("metrics = 'off'"), Ok(None));
    // A later file may give the permission, take it away, or set another address. An error names the file with the address.
    let files = |texts: &[&str]| {
        let texts = texts.iter().enumerate();
        let texts =
            texts.map(|(n, text)| (format!("/{n}.toml").into(), format!("schema = 1\n{text}")));
        Config::parse(&texts.collect::<Vec<_>>())
    };
    let (at, permitted) = ("metrics = '0.0.0.0:9647'", "listen_beyond_host = true");
    assert!(files(&[at, permitted]).is_ok());
    assert!(files(&[at, "metrics = 'off'"]).is_ok());
    for texts in [
        &[at, ""][..],
        &[permitted, at, "listen_beyond_host = false"],
    ] {
        let error = files(texts).unwrap_err();
        let place = texts.iter().position(|text| *text == at).unwrap();
        let expected = format!("/{place}.toml:2:11: other hosts reach 0.0.0.0:9647");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

/// Every kind of error, with its position and a word of its message.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn errors_say_where() {
    let cases: &[(&str, (usize, usize), &str)] = &[
        ("", (1, 1), "schema"),
        ("schema = 2", (1, 10), "schema 1"),
        ("schema = 'x'", (1, 10), "whole number"),
        ("schema = 1\nevery = '0s'", (2, 9), "time"),
        ("schema = 1\nevery = '100ms'", (2, 9), "between"),
        ("schema = 1\nevery = 5", (2, 9), "string"),
        ("schema = 1\ncpu = '1'", (2, 7), "percentage"),
        ("schema = 1\ncpu = '-1%'", (2, 7), "percentage"),
        ("schema = 1\nat_once = 0", (2, 11), "from 1"),
        ("schema = 1\nlisten = '0.0.0.0:80'", (2, 10), "loopback"),
        ("schema = 1\nlisten = 'localhost'", (2, 10), "address"),
        (
            "schema = 1\nmetrics = '0.0.0.0:9647'",
            (2, 11),
            "add listen_beyond_host = true",
        ),
        (
            "schema = 1\nlisten_beyond_host = false\nmetrics = '[::]:9647'",
            (3, 11),
            "other hosts reach [::]:9647",
        ),
        (
            "schema = 1\nlisten_beyond_host = true\nmetrics = '0.0.0.0:9646'",
            (3, 11),
            "another port, or add listen = \"off\"",
        ),
        ("schema = 1\nmetrics = '127.0.0.1:9646'", (2, 11), "already"),
        ("schema = 1\nmetrics = 'node:9647'", (2, 11), "address"),
        ("schema = 1\nmetrics = 9647", (2, 11), "string"),
        // Permission for the metrics is none for the page.
        (
            "schema = 1\nlisten_beyond_host = true\nlisten = '0.0.0.0:80'",
            (3, 10),
            "use metrics = \"0.0.0.0:80\"",
        ),
        ("schema = 1\ntextfile = 'a.prom'", (2, 12), "absolute"),
        ("schema = 1\nlog_bytes = '1K'", (2, 13), "too small"),
        ("schema = 1\nevry = '5s'", (2, 1), "evry"),
        ("schema = 1\nevery = ", (2, 9), "string"),
        (
            "schema = 1\n[[rule]]\nname = ''",
            (3, 8),
            "matches everything",
        ),
        ("schema = 1\n[[rule]]\nnam = 'x'", (3, 1), "nam"),
        ("schema = 1\n[[rule]]\naction = 'yes'", (3, 10), "promote"),
        ("schema = 1\n[[rule]]\nbudget = '0%'", (3, 10), "percentage"),
        ("schema = 1\n[[rule]]\nmin_bytes = 'lots'", (3, 13), "lots"),
        ("schema = 1\n[[rule]]\nlooks = -1", (3, 9), "-1"),
        (
            "schema = 1\n[[rule]]\nhours = '22-06'",
            (3, 9),
            "22:00-06:00",
        ),
        (
            "schema = 1\n[[rule]]\nhours = ['25:00-01:00']",
            (3, 9),
            "25:00",
        ),
        (
            "schema = 1\n[[rule]]\nhours = '06:00-06:00'",
            (3, 9),
            "its start is its end",
        ),
        (
            "schema = 1\n[[rule]]\nname='x'\nmetric = 'nonsense'",
            (4, 10),
            "nonsense",
        ),
        (
            "schema = 1\n[[rule]]\nname='x'\nprove = { pairs = 2 }",
            (4, 19),
            "8 to",
        ),
        (
            "schema = 1\n[[rule]]\nname='x'\nprove = { pear = 9 }",
            (4, 11),
            "pear",
        ),
        ("schema = 1\n[[rule]]\nkeep = 'always'", (3, 8), "if-faster"),
        ("schema = 1\n[[rule]]\noverride = true", (2, 1), "a pattern"),
        (
            "schema = 1\n[[rule]]\nmetric = 'cmd:x'",
            (2, 1),
            "metric needs a pattern",
        ),
        ("schema = 1\n[default]\nname = 'x'", (2, 1), "[[rule]]"),
        ("schema = 1\n[rule]\nname = 'x'", (2, 1), "sequence"),
        ("schema = 1\nschema = 1", (2, 1), "duplicate"),
        ("schéma = 1", (1, 4), "key"),
    ];
    let mut wrong = Vec::new();
    for (text, at, word) in cases {
        let error = parse(text).expect_err(text);
        if !error.what.contains(word) || error.at != Some(*at) {
            wrong.push(format!("{text:?}: {error}"));
        }
        let place = format!("/etc/hugeleaf/guard.toml:{}:{}: ", at.0, at.1);
        assert!(error.to_string().starts_with(&place) || !wrong.is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nights_pass_midnight() {
    let has = |text: &str, minute| text.parse::<DailyWindow>().unwrap().has(minute);
    assert!(has("22:00-06:00", 23 * 60) && has("22:00-06:00", 0) && has("22:00-06:00", 359));
    assert!(!has("22:00-06:00", 360) && !has("22:00-06:00", 12 * 60));
    assert!(has("08:30-09:00", 510) && !has("08:30-09:00", 540));
}

proptest! {
    #[test]
    fn never_panics(text in ".*", tail in "(name|every|hours|prove|listen|metrics|listen_beyond_host) = ('[^']*'|[0-9.{}a-z= ]*)") {
        let _ = parse(&text);
        let _ = parse(&format!("schema = 1\n{tail}"));
        let _ = parse(&format!("schema = 1\n[[rule]]\n{tail}"));
    }

    #[test]
    fn shares_and_hours_read_back(n in 0u32..200_000, from in 0u16..1440, long in 1u16..1440) {
        let share = Share(f64::from(n) / 1e5);
        let again: Share = share.to_string().parse().unwrap();
        prop_assert!((again.0 - share.0).abs() < 1e-9);
        let hours = DailyWindow { from, to: (from + long) % 1440 };
        prop_assert_eq!(hours.to_string().parse::<DailyWindow>().unwrap(), hours);
    }
}

const TARGET: &str = r#"schema = 1
[[balance]]
name = "databases"
target = "4G"
action = "balance"
every = "2s"
pages = "huge"
  [[balance.component]]
  name = "orders"
  kind = "mariadb"
  address = "mysql://root:secret@localhost/?socket=/run/a.sock"
  least = "256M"
  most = "3G"
  [[balance.component]]
  name = "sessions"
  kind = "redis"
  address = "localhost:6379"
  least = "64M"
  most = "2G"
  miss = "2ms"
"#;

#[test]
fn a_memory_target_of_servers() {
    use hugeleaf_balancer::{BalanceAction, PagePreference};
    let config = parse(TARGET).unwrap();
    assert!(config.acts());
    let target = &config.targets[0];
    assert_eq!(target.target, Bytes::from_mib(4096));
    assert_eq!(
        (target.action, target.pages, target.every),
        (
            BalanceAction::Balance,
            PagePreference::Huge,
            Duration::from_secs(2)
        )
    );
    let [orders, sessions] = target.components.as_slice() else {
        panic!("{target:?}");
    };
    assert_eq!(
        (orders.kind.name(), orders.shown.as_str()),
        ("mariadb", "/run/a.sock")
    );
    assert_eq!(sessions.miss, Duration::from_millis(2));
    let short = parse(&TARGET.replace("2ms", "250us")).unwrap();
    let miss = short.targets[0].components[1].miss;
    assert_eq!(miss, Duration::from_micros(250));
    // The default action is to watch.
    let watches = parse(&TARGET.replace("action = \"balance\"\n", "")).unwrap();
    assert!(!watches.acts());
}

#[test]
fn what_is_wrong_with_a_target_has_its_place() {
    let cases = [
        (
            "kind = \"mariadb\"",
            "kind = \"oracle\"",
            10,
            "unknown kind 'oracle'; kinds are mariadb, mysql, redis, valkey, memcached, jvm",
        ),
        (
            "name = \"sessions\"",
            "name = \"orders\"",
            15,
            "two components of the target are named 'orders'",
        ),
        (
            "target = \"4G\"",
            "target = \"300M\"",
            4,
            "more than the target of 300M",
        ),
        (
            "most = \"3G\"",
            "most = \"100M\"",
            13,
            "'orders': least (256M) is more than most (100M)",
        ),
        ("every = \"2s\"", "every = \"1ms\"", 6, "between 1s and 1h"),
        (
            "least = \"64M\"",
            "least = \"0\"",
            18,
            "must be above 0, as in",
        ),
        (
            "localhost:6379",
            "ftp://x",
            17,
            "only redis:// and unix:// are supported",
        ),
        (
            "name = \"databases\"",
            "name = \"a b\"",
            3,
            "'a b' is not a valid name",
        ),
        ("pages = \"huge\"", "pages = \"big\"", 7, "unknown variant"),
        ("miss = \"2ms\"", "mis = \"2ms\"", 20, "unknown field"),
        ("miss = \"2ms\"", "miss = \"0us\"", 20, "write 200us"),
    ];
    for (from, to, line, words) in cases {
        let error = parse(&TARGET.replace(from, to)).unwrap_err();
        assert!(error.what.contains(words), "{to}: {error}");
        assert_eq!(error.at.map(|(line, _)| line), Some(line), "{to}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let twice = format!("{TARGET}{}", TARGET.replace("schema = 1\n", ""));
    let error = parse(&twice).unwrap_err();
    assert!(error.what.contains("two targets are named"), "{error}");
    let alone = "schema = 1\n[[balance]]\nname = \"a\"\ntarget = \"1G\"\n";
    let error = parse(alone).unwrap_err();
    assert!(error.what.contains("has no components"), "{error}");
}

#[test]
fn names_of_earlier_builds_still_work_and_are_reported() {
    use hugeleaf_balancer::PagePreference;
    let new = format!("{TARGET}\n[[rule]]\nname = \"redis-server\"\nscans = 2\n");
    let old = new.replace("scans", "looks").replace("huge", "large");
    let (new, old) = (parse(&new).unwrap(), parse(&old).unwrap());
    assert_eq!(
        (old.rules[0].limits.scans, old.targets[0].pages),
        (2, PagePreference::Huge)
    );
    assert_eq!((&old.rules, new.old_names), (&new.rules, Vec::new()));
    let [scans, pages] = &*old.old_names else {
        panic!("{:?}", old.old_names);
    };
    assert!(scans.contains("looks is now scans"), "{scans}");
    assert!(pages.contains("is now \"huge\""), "{pages}");
}
