//! Parses files below /etc with settings of the kernel and of services: tmpfiles.d, limits.d, the boot loader, unit
//! files. The first byte selects the parser.
#![no_main]

use hugeleaf_host::demand::user_account::parse_memlock;
use hugeleaf_host::system::{pam_limits, settings_files, unit_files};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let text = hugeleaf_fuzz::text(data);
    let lines = text.lines().count();
    match choice % 5 {
        0 => {
            assert!(settings_files::parse_tmpfiles(&text, "/etc/tmpfiles.d/x.conf").len() <= lines)
        }
        1 => assert!(settings_files::parse_grub(&text, "/etc/default/grub").len() <= lines),
        2 => {
            let found = pam_limits::parse(&text, "/etc/security/limits.conf");
            assert!(found.len() <= lines && found.iter().all(|line| line.soft || line.hard));
            let _ = pam_limits::limits_of(&found, "postgres", &["dba".to_owned()]);
        }
        3 => {
            let mut unit = unit_files::UnitFile {
                unit: "a@b.service".to_owned(),
                ..unit_files::UnitFile::default()
            };
            unit.add(&text, "etc/systemd/system/a@.service", "b");
            assert!(unit.exec_start.len() <= lines);
        }
        _ => {
            let _ = parse_memlock(&text);
        }
    }
});
