//! The manual work that remains after an apply or an undo.

use hugeleaf_plan::FollowUp;
use hugeleaf_plan::host_changes::{StepOutcome, StepState};

fn is_changed(step: &StepOutcome) -> bool {
    matches!(
        step.state,
        StepState::WouldChange
            | StepState::Done
            | StepState::Short
            | StepState::InUse
            | StepState::Differs
            | StepState::Restored
    )
}

/// Returns the remaining work in the order of execution, as commands where possible.
pub fn todo(steps: &[StepOutcome], systemd: bool) -> Vec<String> {
    let changed = || steps.iter().filter(|step| is_changed(step));
    let below = |folder: &str| changed().any(|step| step.path.starts_with(folder));
    let mut lines = Vec::new();
    if systemd && (below("/etc/systemd") || below("/etc/fstab")) {
        lines.push("systemctl daemon-reload".to_owned());
    }
    let mut add = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for step in changed() {
        if let FollowUp::Reboot { first } = &step.needs {
            add(format!(
                "{first}    # then reboot to apply {}",
                step.path.display()
            ));
        }
    }
    for step in changed() {
        if let FollowUp::Restart(services) = &step.needs {
            for service in services {
                add(match systemd {
                    true => format!("systemctl restart {service}"),
                    false => format!("restart {service}"),
                });
            }
        }
    }
    if changed().any(|step| step.needs == FollowUp::Login) {
        add(
            "log in again as each user with a new limit: limits apply at the next login".to_owned(),
        );
    }
    if !systemd && below("/etc/tmpfiles.d") {
        add(
            "write the values of /etc/tmpfiles.d/hugeleaf.conf at boot by other means: systemd \
             does not run here"
                .to_owned(),
        );
    }
    lines
}
