//! Valid values in a plan. Errors name the expected form. Values that could damage a derived file
//! are refused here, where line and column are still known.

use std::ops::Range;
use std::path::Path;

use hugeleaf_host::demand::ServiceKind;
use hugeleaf_units::PageSize;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::DeValue;

use super::allowlist;
use super::managed_files::is_ours;
use super::name_syntax::{is_text, is_unit, is_user, is_variable, need};
use hugeleaf_verdict::list;

/// The schema version of plan files that this program writes and reads.
pub const SCHEMA: u64 = 1;

/// Checks a value at a place such as `service.demand.what`, and all values inside it.
///
/// # Errors
/// The position of the first invalid value, and the expected form.
pub(super) fn check(at: &str, value: &Spanned<DeValue<'_>>) -> Result<(), (Range<usize>, String)> {
    let checked = match value.get_ref() {
        DeValue::String(text) => string(at, text),
        DeValue::Integer(number) => integer(at, number.as_str()),
        DeValue::Array(items) => return items.iter().try_for_each(|item| check(at, item)),
        DeValue::Table(table) => {
            let mut values = table.iter();
            return values.try_for_each(|(key, value)| {
                check(format!("{at}.{}", key.get_ref()).trim_matches('.'), value)
            });
        }
        _ => Ok(()),
    };
    checked.map_err(|what| (value.span(), what))
}

fn string(at: &str, text: &str) -> Result<(), String> {
    match at {
        "service.kind" => kind(text),
        "service.demand.from" => need(matches!(text, "pool" | "thp"), || {
            format!("'{text}' is not a source of pages; expected pool or thp")
        }),
        "service.unit" | "unit.unit" => is_unit(text),
        "knob.path" => is_knob(text),
        "knob.was" | "knob.now" => is_value(text),
        "limit.user" => is_user(text),
        "mount.path" => is_mount_point(text),
        "unit.environment" => is_variable(text),
        "unit.exec_start" => is_text(text).and_then(|()| allowlist::is_command(text)),
        "keep.path" => need(is_path(text).map(is_ours)?, || {
            format!("'{text}' is not a file that hugeleaf writes")
        }),
        _ => is_text(text),
    }
}

/// Checks a number. Counts must not be negative, and others have limits of their own.
fn integer(at: &str, number: &str) -> Result<(), String> {
    let what = match at.rsplit('.').next().unwrap_or(at) {
        "schema" if !matches!(number.parse(), Ok(SCHEMA)) && !number.starts_with('-') => {
            return Err(format!(
                "the plan has schema {number}; this version of hugeleaf reads schema {SCHEMA}"
            ));
        }
        "schema" => "a schema number",
        "pages" | "others" | "promised" | "idle" => "a number of pages",
        "was" if at == "pool.was" => "a number of pages",
        "count" => "a number of mappings",
        key if key.ends_with("bytes") => "a number of bytes",
        _ => return Ok(()),
    };
    need(!number.starts_with('-'), || {
        format!("{number} is negative; expected {what}")
    })
}

fn kind(text: &str) -> Result<(), String> {
    let names = ServiceKind::ALL.map(ServiceKind::name);
    need(names.contains(&text), || {
        let all = list(names);
        format!("'{text}' is not a kind of service; expected one of {all}")
    })
}

/// Checks an absolute path without `..`.
fn is_path(text: &str) -> Result<&Path, String> {
    let path = Path::new(text);
    is_text(text)?;
    if text.contains(['"', '\\']) || !path.is_absolute() || !allowlist::is_plain(path) {
        return Err(format!(
            "'{text}' is not a valid path; expected an absolute path without .."
        ));
    }
    Ok(path)
}

fn is_mount_point(text: &str) -> Result<(), String> {
    match is_path(text)? {
        // fstab(5) needs escapes for blanks, and no path here needs blanks.
        _ if text.contains(char::is_whitespace) => {
            Err(format!("'{text}': expected a path without blanks"))
        }
        path if path.parent().is_none() => Err("expected a folder below /".to_owned()),
        path => allowlist::hides(path).map_or(Ok(()), Err),
    }
}

fn is_knob(text: &str) -> Result<(), String> {
    let path = is_path(text)?;
    let is_knob = ["/proc/sys", "/sys"]
        .iter()
        .any(|folder| path.starts_with(folder) && path != Path::new(folder));
    let is_plain = !text.contains(char::is_whitespace) && !text.contains('%');
    need(is_knob && is_plain, || {
        format!("'{text}' is not a kernel setting; expected a file below /proc/sys or /sys")
    })
}

/// Checks a value that sysctl.d and tmpfiles.d accept without quoting.
fn is_value(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_graphic() && !"%\\\"'#;".contains(c);
    need(!text.is_empty() && text.chars().all(plain), || {
        format!("'{text}' is not a value of a setting; expected one word or number")
    })
}

pub fn size<'de, D: Deserializer<'de>>(from: D) -> Result<PageSize, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// A page size in a list. An error names the element.
#[derive(Deserialize)]
struct ListedPageSize(#[serde(deserialize_with = "size")] PageSize);

pub fn sizes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PageSize>, D::Error> {
    let sizes = Vec::<ListedPageSize>::deserialize(from)?;
    Ok(sizes.into_iter().map(|s| s.0).collect())
}

pub fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    const MOST: u32 = 0o7777;
    let text = String::deserialize(from)?;
    let mode = u32::from_str_radix(&text, 8).ok().filter(|m| *m <= MOST);
    mode.ok_or_else(|| {
        D::Error::custom(format!(
            "'{text}' is not a file mode; expected octal digits, as in \"0770\""
        ))
    })
}
