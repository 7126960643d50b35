//! Free memory by block size: `/proc/buddyinfo` (proc(5)).

use crate::model::{Buddy, FreeBlocks};
use crate::parse_helpers::ParseError;

/// Parses `Node 0, zone   Normal   8788   6022 …`. The kernel configuration decides the number of
/// columns (MAX_ORDER), so all are read.
///
/// # Errors
/// If a line that begins with `Node` is not of that shape. Other lines are skipped.
pub fn parse(text: &str) -> Result<Buddy, ParseError> {
    let lines = text.lines().enumerate();
    let zones = lines
        .filter(|(_, line)| line.starts_with("Node"))
        .map(|(i, line)| {
            zone(line)
                .ok_or_else(|| ParseError::new(i + 1, "expected 'Node N, zone NAME COUNT…'", line))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Buddy { zones })
}

fn zone(line: &str) -> Option<FreeBlocks> {
    let (node, rest) = line.strip_prefix("Node")?.split_once(',')?;
    let mut words = rest.trim().strip_prefix("zone")?.split_ascii_whitespace();
    let zone = words.next()?.to_owned();
    let counts = words
        .map(|n| n.parse().ok())
        .collect::<Option<Vec<u64>>>()?;
    (!counts.is_empty()).then_some(FreeBlocks {
        node: node.trim().parse().ok()?,
        zone,
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_units::Bytes;
    use proptest::prelude::*;

    #[test]
    fn counts_by_order_whatever_their_number() {
        let text = "Node 0, zone      DMA      0      1\nPage block order: 9\n\
                    Node 1, zone   Normal   8 7 6 5 4 3 2 1 1 1 2 0 0 4\n";
        let buddy = parse(text).unwrap();
        assert_eq!(buddy.zones.len(), 2);
        assert_eq!((buddy.zones[1].node, buddy.zones[1].counts.len()), (1, 14));
        let size = |text: &str| text.parse().unwrap();
        // Order 13 of 64K pages is 512M: four such blocks.
        assert_eq!(buddy.free_for(size("512M"), size("64K")), Bytes(4 << 29));
        // No list holds blocks of 1G, so none is known to be free.
        assert_eq!(buddy.free_for(size("1G"), size("64K")), Bytes::ZERO);
    }

    #[test]
    fn a_cut_line_is_an_error_with_its_number() {
        for cut in [
            "Node 0, zo",
            "Node 0, zone Normal",
            "Node x, zone Normal 1",
            "Node 0",
        ] {
            let error = parse(&format!("Node 0, zone DMA 1 2\n{cut}")).unwrap_err();
            assert_eq!(error.line, 2, "{cut}");
        }
        assert_eq!(parse("").unwrap().zones, []);
    }

    proptest! {
        #[test]
        fn never_panics(text in "(Node [0-9a-z, ]*\n?)*") {
            let _ = parse(&text);
        }
    }
}
