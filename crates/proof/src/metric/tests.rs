use super::*;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

#[test]
fn reads_what_people_type() {
    for (text, shown) in [
        (
            "postgres:host=/run/pg dbname=a",
            "postgres:host=/run/pg dbname=a",
        ),
        ("postgres://u:p@h/db", "postgres:host=h user=u dbname=db"),
        ("redis:localhost:6379", "redis://localhost:6379"),
        ("redis:/run/redis.sock", "unix:///run/redis.sock"),
        ("redis://h:1/0", "redis://h:1"),
        ("redis:redis://h:1", "redis://h:1"),
        ("mysql:root@h:3306", "mysql://root@h"),
        ("mysql://root@h/x", "mysql://root@h/x"),
        (
            "mysql:/run/my.sock#Com_commit+Com_rollback",
            "mysql://localhost?socket=/run/my.sock#Com_commit+Com_rollback",
        ),
        ("cmd:cat /tmp/n", "cmd:cat /tmp/n"),
        ("cpi", "cpi"),
        ("walk-cycles", "walk-cycles"),
        ("walk-cycles:r1001008", "walk-cycles:r1001008"),
        ("http://h:9/metrics#a_total", "http://h:9/metrics#a_total"),
        ("http:h:9/metrics#a_total", "http://h:9/metrics#a_total"),
        (
            "http:http://h:9/metrics#a_total",
            "http://h:9/metrics#a_total",
        ),
    ] {
        let spec: MetricSpec = text.parse().unwrap();
        assert_eq!(spec.shown(), shown, "{text}");
    }
}

#[test]
fn gauges_have_a_direction_in_either_order() {
    for (text, better) in [
        ("gauge:lower:cmd:echo 1", BetterDirection::Lower),
        ("gauge:cmd:echo 1; : a:b:lower", BetterDirection::Lower),
        ("gauge:higher:cmd:echo 1", BetterDirection::Higher),
    ] {
        let spec: MetricSpec = text.parse().unwrap();
        let mut metric = spec.open(&[], &AtomicBool::new(false)).unwrap();
        assert_eq!(metric.better, better, "{text}");
        assert_eq!(
            metric.read(&AtomicBool::new(false)),
            Ok(Reading::Gauge(1.0)),
            "{text}"
        );
    }
}

#[test]
fn refuses_the_rest_by_name() {
    for (text, want) in [
        ("", "not one of"),
        ("tps", "not one of postgres:, redis:, "),
        ("oracle:x", "not one of"),
        ("redis", "not one of"),
        ("cmd:", "lacks a value after the colon, as in cmd:"),
        ("gauge:cmd:x", "direction"),
        ("gauge:lower:redis:x", "only cmd: and http: can be gauges"),
        ("gauge:lower:cmd:", "lacks"),
        ("http://h/metrics", "which metric"),
        ("http://#a", "address"),
        ("https://h/metrics#a", "https"),
        ("http:https://h/metrics#a", "https"),
        ("cpi:x", "no argument"),
        ("walk-cycles:x", "raw event"),
        ("mysql:h#a;b", "status variable"),
    ] {
        let e = text.parse::<MetricSpec>().unwrap_err().to_string();
        assert!(e.contains(want), "{text}: {e}");
    }
}

#[test]
fn every_kind_has_an_example_that_is_of_its_form() {
    for kind in metrics() {
        let form: String = kind.form.chars().take_while(|c| *c != '[').collect();
        let start = form.split_inclusive(':').next().unwrap();
        assert!(kind.example.starts_with(start), "{kind:?}");
        assert!(
            kind.names.contains(&start.trim_end_matches(':')),
            "{kind:?}"
        );
        assert!(kind.example.parse::<MetricSpec>().is_ok(), "{kind:?}");
    }
}

/// `HUGELEAF_BLESS=1` rewrites the tables of the documents.
#[test]
fn documents_list_these_metrics() {
    const HEAD: &str = "| `--metric` | measures |\n|---|---|\n";
    let cell = |text: &str| text.replace('|', "\\|");
    let rows = forms_and_help().into_iter();
    let table: String = rows
        .map(|(form, help)| format!("| `{}` | {} |\n", cell(&form), cell(&help)))
        .collect();
    for name in ["reference/commands.md", "guide/prove.md"] {
        let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(HEAD).expect("a table of metrics");
        let (_, after) = rest.split_once("\n\n").unwrap();
        let want = format!("{before}{HEAD}{table}\n{after}");
        if std::env::var_os("HUGELEAF_BLESS").is_some() {
            std::fs::write(&path, &want).unwrap();
        }
        assert!(
            text == want || std::env::var_os("HUGELEAF_BLESS").is_some(),
            "{name} lists other metrics; HUGELEAF_BLESS=1 writes it anew"
        );
    }
}

proptest! {
    #[test]
    fn never_panics(text in ".*", kind in "(postgres|redis|mysql|cmd|http|gauge|walk-cycles):.*") {
        let _ = text.parse::<MetricSpec>();
        let _ = kind.parse::<MetricSpec>();
    }
}

#[test]
fn what_is_no_secret_is_shown() {
    for (text, want) in [
        (
            "postgres:host=h password=se user=x",
            "postgres:host=h user=x",
        ),
        ("postgres:password = 'a b' host=h", "postgres:host=h"),
        (r"postgres:password='it\'s a b' host=h", "postgres:host=h"),
        (
            r"postgres:host=h password=a\ b dbname=d",
            "postgres:host=h dbname=d",
        ),
        (
            "postgres://u:se%2Fcr%40t@h:5433/db",
            "postgres:host=h port=5433 user=u dbname=db",
        ),
        (
            "postgres:host=/run/pg dbname='a b'",
            "postgres:host=/run/pg dbname='a b'",
        ),
        ("postgres:host=h password=my secret", "postgres:…"),
        (
            "postgres://u:p@ss@h/db",
            "postgres:host=*** user=u dbname=db",
        ),
        ("redis://:se@h:1", "redis://h:1"),
        ("redis://me:se@h:1/3", "redis://me@h:1/3"),
        ("redis:/run/redis.sock", "unix:///run/redis.sock"),
        ("redis:h:1?x", "redis://h:1"),
        ("mysql://root@h", "mysql://root@h"),
        (
            "mysql:root:s%40e@h:3307/d#Com_commit",
            "mysql://root@h:3307/d#Com_commit",
        ),
        (
            "mysql:/run/my.sock",
            "mysql://localhost?socket=/run/my.sock",
        ),
        (
            "http://u:se@h:9/m?token=se#a_total",
            "http://h:9/m?…#a_total",
        ),
        (
            "gauge:lower:http://u:se@h:9/m#a",
            "gauge:lower:http://h:9/m#a",
        ),
        ("cmd:echo 1", "cmd:echo …"),
        ("cmd:/usr/bin/served", "cmd:/usr/bin/served"),
        ("cmd:cat /run/n", "cmd:cat /run/n"),
        ("gauge:cmd:cat a$B:lower", "gauge:lower:cmd:cat …"),
        ("cmd:MYSQL_PWD=se mysql", "cmd:…"),
        ("cmd:mysql -pse", "cmd:mysql …"),
        ("cpi", "cpi"),
        ("tps", "tps"),
        ("oracle:u/se@h", "oracle:…"),
        ("gauge:cmd:true", "gauge:cmd:true"),
        ("https://u:se@h/x#a", "https:…"),
    ] {
        assert_eq!(shown(text), want, "{text}");
    }
}

#[test]
fn commands_lose_their_passwords() {
    for (text, want) in [
        ("psql 'host=h password=se'", "psql 'host=h password=***"),
        ("PGPASSWORD=se psql -c x", "PGPASSWORD=*** psql -c x"),
        ("MYSQL_PWD='a b' mysql", "MYSQL_PWD=*** mysql"),
        ("mysql -uroot -pse -e x", "mysql -uroot -p*** -e x"),
        ("redis-cli -a se info", "redis-cli -a *** info"),
        ("curl http://u:se@h/x", "curl http://u:***@h/x"),
        (
            r#"psql "host=h password = 'it\'s' user=x""#,
            r#"psql "host=h password=*** user=x""#,
        ),
        ("echo 1", "echo 1"),
    ] {
        assert_eq!(redact(text), want, "{text}");
    }
}

#[test]
fn a_command_line_is_kept_without_them() {
    let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    let line =
        words("hugeleaf|prove|1|--metric|postgres:host=h password=a b|--metric=redis://:se@h");
    let want = words("hugeleaf|prove|1|--metric|postgres:…|--metric=redis://h:6379");
    assert_eq!(shown_command(&line), want);
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    /// Any password in any notation is hidden.
    #[test]
    fn no_password_is_shown(secret in "[A-Z][-A-Z0-9 '\"\\\\@/:#?&=%;ä]{5,20}[A-Z]", broken: bool) {
        let quoted = secret.replace('\\', "\\\\").replace('\'', "\\'");
        let coded = percent(&secret);
        let tail = if broken { " 'x" } else { "" };
        for text in [
            format!("postgres:host=h password='{quoted}' user=u{tail}"),
            format!("postgres:host=h password = '{quoted}'{tail}"),
            format!("postgres://u:{coded}@h/d{tail}"),
            format!("redis://:{coded}@h:1/2{tail}"),
            format!("redis:redis://me:{coded}@h{tail}"),
            format!("mysql://u:{coded}@h/d{tail}"),
            format!("mysql:u:{coded}@h#Com_commit{tail}"),
            format!("http://u:{coded}@h/m#a{tail}"),
            format!("gauge:lower:http://u:{coded}@h/m?key={coded}#a{tail}"),
            format!("cmd:tool '{quoted}'{tail}"),
            format!("gauge:lower:cmd:TOKEN={secret} tool --header={coded}{tail}"),
        ] {
            let mut all = shown(&text);
            all += &shown_command(&["--metric".to_owned(), text.clone()]).concat();
            all += &shown_command(&[format!("--metric={text}")]).concat();
            if let Err(error) = text.parse::<MetricSpec>() {
                all += &error.to_string();
            }
            prop_assert!(!all.contains(&secret) && !all.contains(&coded), "{text}: {all}");
        }
    }

    #[test]
    fn nothing_shown_panics(text in "(?s).*", kind in "(postgres|redis|mysql|cmd|http|gauge|walk-cycles):.*") {
        let _ = (shown(&text), shown(&kind), redact(&text), redact(&kind));
    }
}
