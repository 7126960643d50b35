//! NIC offloads: checksums, segmentation and aggregation of packets (`ETHTOOL_G…`, include/uapi/linux/ethtool.h).
//!
//! # Safety
//! ioctl(SIOCETHTOOL) reads and writes two structures of ours that outlive the call.
//! The second one has the size that all commands used here require.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::{Errno, SysError, last_errno};

/// Names of the offloads, each with the command that reads it.
const FEATURES: &[(&str, u32)] = &[
    ("RX checksums", 0x14),
    ("TX checksums", 0x16),
    ("TCP segmentation (TSO)", 0x1e),
    ("RX aggregation (GRO)", 0x2b),
];

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Returns the offloads of a network device by name, each on or off. Offloads that the kernel does not report for it are omitted.
///
/// # Errors
/// `EINVAL` for an invalid name. The errors of socket(2) and of the ioctl: `ENODEV` if there is no such device, `EOPNOTSUPP` if
/// its driver answers no command.
pub fn offloads(device: &str) -> Result<Vec<(&'static str, bool)>, SysError> {
    const CALL: &str = "ioctl(SIOCETHTOOL)";
    let error = |errno| SysError::new(CALL, device, errno);
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|errno| SysError::new("socket", device, errno))?;
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    if device.is_empty() || device.len() >= request.ifr_name.len() {
        return Err(error(Errno::INVAL));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let mut known = Vec::new();
    let mut refused = None;
    for (name, command) in FEATURES {
        let mut value = EthtoolValue {
            command: *command,
            data: 0,
        };
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request and the value that it points at live until the call is over; the kernel writes no more than
        // a `struct ethtool_value` for these commands.
        let done =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        match done {
            0 => known.push((*name, value.data != 0)),
            _ => refused = Some(last_errno()),
        }
    }
    match (known.is_empty(), refused) {
        (true, Some(errno)) => Err(error(errno)),
        _ => Ok(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_and_nobody_does_not() {
        match offloads("lo") {
            Ok(known) => assert!(!known.is_empty()),
            Err(error) => println!("not run: the_loopback_answers_and_nobody_does_not: {error}"),
        }
        assert_eq!(offloads("").unwrap_err().errno, Errno::INVAL);
        assert_eq!(offloads(&"x".repeat(16)).unwrap_err().errno, Errno::INVAL);
        assert!(offloads("no-such-device").is_err());
    }
}
