//! What people see: for each load, what both sides wrote to each device, and the priorities shown.
use crate::loads::{Devices, Load, Phase, Side, name_of};
use std::fmt::Write;

/// The whole table.
pub fn table(loads: &[Load], devices: &Devices) -> String {
    let mut text = String::from("MiB written (priority)\n");
    let names: Vec<&String> = devices.keys().collect();
    let _ = write!(text, "{:<10}{:<5}{:<11}{:<10}", "case", "CPU", "phase", "side");
    for name in &names {
        let _ = write!(text, "{:<13}", format!("{name} (node {})", devices[*name].node));
    }
    text.push('\n');
    for kernel in loads.iter().filter(|load| load.side == Side::Kernel) {
        let same = |load: &&Load| load.case == kernel.case && load.cpu == kernel.cpu;
        for phase in &kernel.phases {
            for load in loads.iter().filter(same) {
                let Some(phase) = load.phase(&phase.name) else { continue };
                let side = format!("{:?}", load.side).to_lowercase();
                let head = (&load.case, load.cpu, &phase.name);
                let _ = write!(text, "{:<10}{:<5}{:<11}{side:<10}", head.0, head.1, head.2);
                for name in &names {
                    let _ = write!(text, "{:<13}", cell(phase, name, devices));
                }
                text.push('\n');
            }
        }
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// What was written to a device, with its priority if it is in use.
fn cell(phase: &Phase, name: &str, devices: &Devices) -> String {
    let kernel = phase.swaps.iter().find(|swap| swap.device == name).map(|swap| swap.priority);
    let status = phase.status.iter().flat_map(|status| &status.devices);
    let own = status
        .filter(|device| name_of(&device.name, devices).as_deref() == Some(name))
        .map(|device| device.priority)
        .next();
    let kb = phase.written_kb.get(name).copied().unwrap_or_default();
    match kernel.or(own) {
        Some(priority) => format!("{:.1} ({priority})", kb as f64 / 1024.0),
        None => "-".into(),
    }
}
