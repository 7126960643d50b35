//! Parses the texts of knobs, and compares them and the options of mounts. Pure.

use hugeleaf_units::Bytes;

/// Returns the value in a knob's text: the one in brackets if the knob lists its choices.
pub fn value(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(chosen, _)| chosen.trim())
}

/// Returns the values that a knob offers; empty if it does not list them.
pub fn choices(text: &str) -> Vec<&str> {
    if !(text.contains('[') && text.contains(']')) {
        return Vec::new();
    }
    text.split_ascii_whitespace()
        .map(|word| word.trim_matches(['[', ']']))
        .collect()
}

/// True if two values are equal, regardless of the number of blanks between their parts.
pub fn same(a: &str, b: &str) -> bool {
    a.split_ascii_whitespace().eq(b.split_ascii_whitespace())
}

/// True if a mount that the kernel shows with the options `shown` has all of `wanted`.
pub fn mount_has(shown: &str, wanted: &str) -> bool {
    let shown: Vec<String> = shown.split(',').map(normal).collect();
    wanted
        .split(',')
        .filter(|option| !["", "defaults", "rw"].contains(option))
        .map(normal)
        // The kernel does not show defaults.
        .filter(|option| !["uid=0", "gid=0"].contains(&option.as_str()))
        .all(|option| shown.contains(&option))
}

/// Normalises an option: `1G` is shown as `1024M`, `0770` as `770`.
fn normal(option: &str) -> String {
    let Some((name, value)) = option.split_once('=') else {
        return option.to_owned();
    };
    match name {
        "mode" => format!("mode={}", value.trim_start_matches('0')),
        "pagesize" | "size" | "min_size" => match value.parse::<Bytes>() {
            Ok(bytes) => format!("{name}={}", bytes.get()),
            Err(_) => option.to_owned(),
        },
        _ => option.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_chosen_value_and_its_choices() {
        let text = "always within_size advise [never] deny force\n";
        assert_eq!(value(text), "never");
        assert_eq!(choices(text)[3..], ["never", "deny", "force"]);
        assert_eq!((value("12\n"), choices("12\n").len()), ("12", 0));
        assert!(same("4\t32 7", "4 32  7\n") && !same("4 32", "4 3 2"));
    }

    #[test]
    fn mounts_and_their_options() {
        let shown = "rw,relatime,rw,gid=26,mode=770,pagesize=1024M";
        assert!(mount_has(shown, "pagesize=1G,mode=0770,uid=0,gid=26"));
        assert!(!mount_has(shown, "pagesize=2M"));
        assert!(!mount_has(shown, "uid=26"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[ \\[\\]\\\\0-9a-z,=/-]{0,60}") {
            let _ = (value(&text), choices(&text), mount_has(&text, &text));
        }
    }
}
