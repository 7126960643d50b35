use std::fmt;
use std::str::FromStr;

use crate::{PageKind, PageSize, ParseError};

/// One step of a ladder: a page size, and optionally the kind of page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rung {
    /// The size to try.
    pub size: PageSize,
    /// The kind that `hugetlb:` or `thp:` forces. Without it, the use decides.
    pub kind: Option<PageKind>,
}

/// An ordered list of page sizes to try, as in `1G,2M,64K`. Every ladder ends in base pages, unless
/// it ends in `!`. Then all memory is on the named sizes, or the request fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ladder {
    rungs: Vec<Rung>,
    mandatory: bool,
}

impl Ladder {
    /// Creates a ladder of at least one rung.
    pub fn new(rungs: Vec<Rung>, mandatory: bool) -> Ladder {
        Ladder { rungs, mandatory }
    }

    /// Returns the sizes to try, in order; at least one.
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// True if base pages are not acceptable.
    pub const fn is_mandatory(&self) -> bool {
        self.mandatory
    }
}

impl FromStr for Ladder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Ladder, ParseError> {
        let error = |reason: String| {
            ParseError(format!(
                "'{text}' is not a ladder of page sizes: {reason}; write 1G,2M,64K"
            ))
        };
        let (list, mandatory) = match text.strip_suffix('!') {
            Some(list) => (list, true),
            None => (text, false),
        };
        let mut rungs: Vec<Rung> = Vec::new();
        for item in list.split(',') {
            let (kind, size) = match item.split_once(':') {
                None => (None, item),
                Some(("hugetlb", size)) => (Some(PageKind::Hugetlb), size),
                Some(("thp", size)) => (Some(PageKind::Thp), size),
                Some((other, _)) => return Err(error(format!("'{other}' is not a kind of page"))),
            };
            let size: PageSize = size.parse().map_err(|e: ParseError| error(e.to_string()))?;
            let rung = Rung { size, kind };
            if rungs.contains(&rung) {
                return Err(error(format!("{size} is listed twice")));
            }
            rungs.push(rung);
        }
        Ok(Ladder { rungs, mandatory })
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rung = |rung: &Rung| {
            let kind = rung.kind.map_or(String::new(), |kind| format!("{kind}:"));
            format!("{kind}{}", rung.size)
        };
        let rungs: Vec<String> = self.rungs.iter().map(rung).collect();
        let mark = if self.mandatory { "!" } else { "" };
        write!(f, "{}{mark}", rungs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_read() {
        for text in ["2M", "1G,2M,64K", "hugetlb:2M,thp:2M", "1G,2M!"] {
            assert_eq!(text.parse::<Ladder>().unwrap().to_string(), text);
        }
        for text in ["", "2M,", "3M", "2M,2M", "foo:2M", "!"] {
            assert!(text.parse::<Ladder>().is_err(), "{text}");
        }
    }
}
