//! The program `hugeleaf-lab`.

fn main() -> std::process::ExitCode {
    hugeleaf_lab::run()
}
