//! Numbers of traces, as people read them.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::Ending;
use hugeleaf_trace::tables::target_name;
use hugeleaf_units::Bytes;
use jiff::Timestamp;

use crate::bench::{duration, short};

/// A part of a whole with one decimal: `59.9 %`; `-` where there is no whole.
pub(super) fn part(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// The same without a sign, for narrow columns.
pub(super) fn whole_part(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0}", share * 100.0))
}

/// A count: thousands apart from 10,000 on.
pub(super) fn count(n: u64) -> String {
    crate::prove::number(float(n))
}

#[allow(clippy::cast_precision_loss)]
pub(super) const fn float(n: u64) -> f64 {
    n as f64
}

/// A count a second.
pub(super) fn rate(n: u64, seconds: f64) -> String {
    match seconds > 0.0 {
        true => crate::prove::number((float(n) / seconds * 10.0).round() / 10.0),
        false => "-".to_owned(),
    }
}

/// A length of time in nanoseconds: `12.3 µs`.
pub(super) fn nanos(n: u64) -> String {
    duration(float(n) / 1e9)
}

/// Bytes a second, as drives are sold: in units of a million bytes.
pub(super) fn megabytes(bytes_a_second: f64) -> String {
    format!("{} MB/s", short(bytes_a_second / 1e6))
}

/// `2M thp`, `4K base`.
pub(super) fn page(page_bytes: u64, kind: &str) -> String {
    format!("{} {kind}", Bytes(page_bytes))
}

/// Bytes, or what stands for "not read".
pub(super) fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or("-".to_owned(), |b| Bytes(b).to_string())
}

/// What was traced: `mover`, or the whole host.
pub(super) fn who(trace: &Trace) -> String {
    target_name(trace).unwrap_or("the whole host".to_owned())
}

/// When it was started, in UTC.
pub(super) fn when(trace: &Trace) -> String {
    let seconds = i64::try_from(trace.started_unix).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or("at an unknown time".to_owned(), |t| t.to_string())
}

/// The host in a line.
pub(super) fn host(trace: &Trace) -> String {
    let host = &trace.host;
    let mut words = vec![match host.cpus {
        1 => "1 CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    }];
    words.extend(host.memory_bytes.map(|b| Bytes(b).to_string()));
    if host.base_page_bytes > 0 {
        words.push(format!("base page {}", Bytes(host.base_page_bytes)));
    }
    if host.virtual_machine == Some(true) {
        words.push("virtual".to_owned());
    }
    let kernel = [host.name.as_str(), &host.kernel, &host.arch];
    let kernel: Vec<&str> = kernel.into_iter().filter(|w| !w.is_empty()).collect();
    format!("{}: {}", kernel.join(" "), words.join(", "))
}

/// Why it is shorter than it was to be; nothing where it is not.
pub(super) const fn ending(trace: &Trace) -> Option<&'static str> {
    match trace.ending {
        Ending::Done => None,
        Ending::Interrupted => Some("interrupted"),
        Ending::TargetEnded => Some("the target ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(part(Some(0.5988)), "59.9 %");
        assert_eq!(
            (part(None), whole_part(Some(0.5988))),
            ("-".to_owned(), "60".to_owned())
        );
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(
            (rate(30, 10.0), rate(1, 0.0)),
            ("3".to_owned(), "-".to_owned())
        );
        assert_eq!(megabytes(378e6), "378 MB/s");
    }

    #[test]
    fn an_empty_trace_has_words_too() {
        let trace = Trace::default();
        assert_eq!(who(&trace), "the whole host");
        assert_eq!(when(&trace), "1970-01-01T00:00:00Z");
        assert_eq!(host(&trace), ": 0 CPUs");
    }
}
