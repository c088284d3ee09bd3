//! What elements of network interfaces are told alike.
use ringway_click::{Context, Failed};

/// Refuses a METHOD that there is not, and a BURST of nothing.
pub(super) fn check_device(method: &str, burst: u32, cx: &mut Context<'_>) -> Result<(), Failed> {
    if !matches!(method, "" | "LINUX" | "PCAP" | "DEFAULT") {
        return Err(cx.error(format!("bad METHOD '{method}'; there is LINUX")));
    }
    if burst == 0 {
        return Err(cx.error("BURST must be >= 1"));
    }
    Ok(())
}
