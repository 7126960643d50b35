//! Draws [`FlameGraph`]. The crate `inferno` lays out the frames; its other output needs a script and is dropped.

use std::collections::BTreeMap;

use inferno::flamegraph::{Options, TextTruncateDirection, color, from_lines};
use maud::{PreEscaped, html};

use crate::chart::STYLE;
use crate::document::{FlameGraph, StackFrame};
use crate::terminal_escape::{clean, cut};

/// Frames have two light colours, for the kernel and for the rest, so that text contrasts in every colour scheme.
const FRAMES: &str = "
.flame svg text{font:12px monospace;fill:#111}.flame rect{stroke:#fff8;stroke-width:.5}
";
const USER: (u8, u8, u8) = (244, 184, 96);
const KERNEL: (u8, u8, u8) = (142, 182, 247);

/// Width of the drawing in its own pixels, about that of a page, and height of the part above the frames.
const WIDTH: usize = 960;
const HEAD: f64 = 30.0;
/// Maximum length of a frame's name, which is untrusted.
const NAME: usize = 160;

/// Returns the graph as one `<svg>` element, usable in a page or as a file. `None` without samples.
pub fn svg(flames: &FlameGraph) -> Option<String> {
    let mut colours = color::PaletteMap::default();
    let lines = folded(flames, &mut colours);
    let (frames, height) = frames(&lines, &mut colours)?;
    let title = clean(&flames.title);
    let drawn = html! {
        svg.chart.flame xmlns="http://www.w3.org/2000/svg" xmlns:fg="inferno" role="img"
            aria-label=(title) viewBox=(format!("0 0 {WIDTH} {height}")) {
            style { (PreEscaped(STYLE)) (PreEscaped(FRAMES)) }
            text x="10" y="20" fill="currentColor" {
                (title) ". Blue: the kernel. The lowest frame is the process; callees are above their callers."
            }
            (PreEscaped(frames))
        }
    };
    Some(drawn.into_string())
}

/// Returns a line for each stack from the lowest frame upward, with its number of samples: `mover;read;pin 60`.
/// Also sets the colour of each frame.
fn folded(flames: &FlameGraph, colours: &mut color::PaletteMap) -> Vec<String> {
    // The root frame has no name.
    let (r, g, b) = USER;
    colours.insert("", color::Color { r, g, b });
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, samples) in &flames.stacks {
        let mut name = |frame: &StackFrame| {
            let name = safe(&frame.name);
            let (r, g, b) = if frame.kernel { KERNEL } else { USER };
            colours.insert(name.clone(), color::Color { r, g, b });
            name
        };
        let names: Vec<String> = frames.iter().map(&mut name).collect();
        *stacks.entry(names.join(";")).or_default() += samples;
    }
    let line = |(stack, samples)| format!("{stack} {samples}");
    stacks.into_iter().map(line).collect()
}

/// Escapes separators of [`folded`] in a name: blanks become no-break spaces until the frames are drawn. A
/// trailing `]` is protected too, because other tools annotate names with `_[k]` and the like.
fn safe(name: &str) -> String {
    let name = cut(&clean(name), NAME)
        .replace(';', ",")
        .replace(' ', "\u{a0}");
    let bare = name.trim_matches('\u{a0}');
    match (bare, bare.ends_with(']')) {
        ("", _) => "?".to_owned(),
        (bare, true) => format!("{bare}\u{a0}"),
        (bare, false) => bare.to_owned(),
    }
}

/// Returns the frames as SVG, and their height.
fn frames(lines: &[String], colours: &mut color::PaletteMap) -> Option<(String, f64)> {
    let mut options = Options::default();
    options.no_javascript = true;
    options.deterministic = true;
    options.image_width = Some(WIDTH);
    options.palette_map = Some(colours);
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut drawn = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn).ok()?;
    let drawn = String::from_utf8(drawn).ok()?;
    let (_, rest) = drawn.split_once("height=\"")?;
    let height: f64 = rest.split_once('"')?.0.parse().ok()?;
    // Keep the inner drawing; drop the outer element's end.
    let frames = &drawn[drawn.find("<svg id=\"frames\"")?..];
    let frames = frames.strip_suffix("</svg>")?;
    Some((frames.replace('\u{a0}', " "), height - HEAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::flames;
    use crate::trace::tests::testing;
    use hugeleaf_trace::Trace;
    use hugeleaf_trace::model::Symbol;

    fn flame_graph(trace: &Trace) -> Option<String> {
        svg(&flames(trace))
    }

    fn named(name: &str) -> Trace {
        let mut trace = testing::pinning();
        trace.symbols[0] = Symbol {
            name: name.to_owned(),
            ..Symbol::default()
        };
        trace.processes[1].name = name.to_owned();
        trace
    }

    #[test]
    fn frames_are_as_wide_as_they_were_sampled() {
        let svg = flame_graph(&testing::pinning()).unwrap();
        // 600 of 900 samples, in the kernel.
        for part in [
            "mlock_pte_range (600 samples, 66.67%)",
            "checksum (300 samples, 33.33%)",
            "mover (900 samples",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert_eq!(svg.matches("rgb(142,182,247)").count(), 2, "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        let rest = svg.replace("http://www.w3.org/2000/svg", "");
        for sign in ["http", "<script", "href", "url(", "<!", "onload"] {
            assert!(!rest.contains(sign), "{sign}");
        }
        assert_eq!(flame_graph(&Trace::default()), None);
    }

    #[test]
    fn names_are_somebody_elses() {
        let hostile = [
            "</title><script>alert(1)</script>",
            "a;b;c",
            "operator new 5",
            "x 1 2",
            "",
            " ",
            ";",
            "\u{1b}[2J\n\r\0",
            "</svg>\"'&<",
            "ends_[k]",
            "_[k]",
            "\u{202e}txet",
            "]]>",
            "-- comment",
            "12",
            "12.5",
        ];
        let long = "x".repeat(100_000);
        for name in hostile.into_iter().chain([long.as_str()]) {
            let svg = flame_graph(&named(name)).unwrap_or_else(|| panic!("{name:?}"));
            assert!(!svg.contains("<script") && svg.len() < 60_000, "{name:?}");
            assert!(!svg.contains(['\u{1b}', '\0', '\u{202e}']), "{name:?}");
            assert_eq!(
                svg.matches("<svg").count(),
                svg.matches("</svg>").count(),
                "{name:?}"
            );
            // No stack is lost and none is split.
            assert!(svg.contains("all (900 samples, 100%)"), "{name:?}: {svg}");
            assert_eq!(
                svg.matches("<title>").count(),
                1 + 1 + 3 + 1,
                "{name:?}: {svg}"
            );
        }
    }
}
