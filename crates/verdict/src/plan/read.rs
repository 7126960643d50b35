//! How single values of a plan are read: each says what it expects, and what could harm a file
//! that follows from the plan is refused here, where line and column are still known.

use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use hugeleaf_host::demand::{Piece, Place, ServiceKind};
use hugeleaf_units::{Bytes, PageSize, Pages};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::allowed;
use super::kinds::{KINDS, SCHEMA, kind_name, place_name};
use super::named::{is_text, is_unit, is_user, is_variable};

/// A text that passes a test, or the error that says what was expected.
fn checked<'de, D: Deserializer<'de>, T>(
    from: D,
    test: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    test(&text).map_err(D::Error::custom)
}

/// A whole number that is not negative.
fn number<'de, D: Deserializer<'de>>(from: D, what: &str) -> Result<u64, D::Error> {
    let number = i64::deserialize(from)?;
    u64::try_from(number).map_err(|_| {
        D::Error::custom(format!(
            "{number} is below zero; expected a number of {what}"
        ))
    })
}

pub fn schema<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match number(from, "the schema")? {
        SCHEMA => Ok(SCHEMA),
        other => Err(D::Error::custom(format!(
            "a plan of schema {other}; this version of hugeleaf reads schema {SCHEMA}"
        ))),
    }
}

pub fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    number(from, "bytes").map(Bytes)
}

pub fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    bytes(from).map(Some)
}

pub fn pages<'de, D: Deserializer<'de>>(from: D) -> Result<Pages, D::Error> {
    number(from, "pages").map(Pages)
}

pub fn some_pages<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Pages>, D::Error> {
    pages(from).map(Some)
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: T::Err| e.to_string())
}

pub fn size<'de, D: Deserializer<'de>>(from: D) -> Result<PageSize, D::Error> {
    checked(from, parsed)
}

pub fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PageSize>, D::Error> {
    size(from).map(Some)
}

/// A page size in a list: an error names the element.
#[derive(Deserialize)]
struct Size(#[serde(deserialize_with = "size")] PageSize);

pub fn sizes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PageSize>, D::Error> {
    let sizes = Vec::<Size>::deserialize(from)?;
    Ok(sizes.into_iter().map(|s| s.0).collect())
}

pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, is_text)
}

pub fn some_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    text(from).map(Some)
}

/// A text in a list: an error names the element.
#[derive(Deserialize)]
struct Text(#[serde(deserialize_with = "text")] String);

pub fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<Text>::deserialize(from)?;
    Ok(texts.into_iter().map(|t| t.0).collect())
}

pub fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<ServiceKind, D::Error> {
    checked(from, |text| {
        let found = KINDS.into_iter().find(|kind| kind_name(*kind) == text);
        let names: Vec<&str> = KINDS.into_iter().map(kind_name).collect();
        found.ok_or_else(|| {
            format!(
                "'{text}' is no kind of service; expected one of {}",
                names.join(", ")
            )
        })
    })
}

pub fn place<'de, D: Deserializer<'de>>(from: D) -> Result<Place, D::Error> {
    checked(from, |text| {
        let found = [Place::Pool, Place::Thp]
            .into_iter()
            .find(|place| place_name(*place) == text);
        found.ok_or_else(|| format!("'{text}' is no place for memory; expected pool or thp"))
    })
}

/// An entry of `pieces`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPiece {
    #[serde(deserialize_with = "count")]
    count: u64,
    #[serde(deserialize_with = "bytes")]
    bytes: Bytes,
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    number(from, "pieces")
}

pub fn pieces<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Piece>, D::Error> {
    let pieces = Vec::<RawPiece>::deserialize(from)?;
    let piece = |raw: RawPiece| Piece {
        bytes: raw.bytes,
        count: raw.count,
    };
    Ok(pieces.into_iter().map(piece).collect())
}

/// An absolute path that goes only down.
fn is_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let plain = |c: Component<'_>| matches!(c, Component::RootDir | Component::Normal(_));
    is_text(text)?;
    if text.contains(['"', '\\']) || !path.is_absolute() || !path.components().all(plain) {
        return Err(format!(
            "'{text}' is no path for a plan; expected an absolute one without .. in it"
        ));
    }
    Ok(path.to_owned())
}

/// A mount point.
pub fn path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    checked(from, |text| match is_path(text)? {
        // fstab(5) takes blanks only as escapes, and nothing here needs them.
        _ if text.contains(char::is_whitespace) => {
            Err(format!("'{text}': expected a path without blanks"))
        }
        path if path.parent().is_none() => Err("expected a folder below /".to_owned()),
        path => match allowed::hides(&path) {
            Some(why) => Err(why),
            None => Ok(path),
        },
    })
}

pub fn some_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    checked(from, |text| is_text(text).map(PathBuf::from)).map(Some)
}

/// Folders that hold settings of the kernel.
const KNOBS: [&str; 2] = ["/proc/sys", "/sys"];

pub fn knob_path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    checked(from, |text| {
        let path = is_path(text)?;
        let is_knob = KNOBS
            .iter()
            .any(|folder| path.starts_with(folder) && path != Path::new(folder));
        match is_knob && !text.contains(char::is_whitespace) && !text.contains('%') {
            true => Ok(path),
            false => Err(format!(
                "'{text}' is no setting of the kernel; expected a file below /proc/sys or /sys"
            )),
        }
    })
}

/// A value that sysctl.d and tmpfiles.d take as it stands.
fn is_value(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && !"%\\\"'#;".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no value of a setting; expected one word or number"
        )),
    }
}

pub fn value<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, is_value)
}

pub fn some_value<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    value(from).map(Some)
}

pub fn user<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, is_user)
}

pub fn unit<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, is_unit)
}

pub fn some_unit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    unit(from).map(Some)
}

/// A variable in a list: an error names the element.
#[derive(Deserialize)]
struct Variable(#[serde(deserialize_with = "variable")] String);

fn variable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, is_variable)
}

pub fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let variables = Vec::<Variable>::deserialize(from)?;
    Ok(variables.into_iter().map(|v| v.0).collect())
}

/// A command of one line: the unit's own through `hugeleaf run`.
pub fn some_command<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| {
        let text = is_text(text)?;
        allowed::is_command(&text).map(|()| Some(text))
    })
}

pub fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    const MOST: u32 = 0o7777;
    checked(from, |text| {
        let mode = u32::from_str_radix(text, 8).ok().filter(|m| *m <= MOST);
        mode.ok_or_else(|| format!("'{text}' is no mode; expected octal digits as in \"0770\""))
    })
}

/// One of the files that hugeleaf writes.
pub fn our_file<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    checked(from, |text| {
        let path = is_path(text)?;
        match super::files::is_ours(&path) {
            true => Ok(path),
            false => Err(format!("'{text}' is no file that hugeleaf writes")),
        }
    })
}
