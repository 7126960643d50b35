//! What a network device does by itself: checksums, cutting and gathering of packets (`ETHTOOL_G…`, include/uapi/linux/ethtool.h).
//!
//! # Safety
//! ioctl(SIOCETHTOOL) reads and writes two structures of ours that outlive the call; the longer one is as long as every
//! command used here takes.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::{Errno, SysError, last_errno};

/// The name of a feature, and the command that asks for it.
const FEATURES: &[(&str, u32)] = &[
    ("checksums of what comes", 0x14),
    ("checksums of what goes", 0x16),
    ("cutting of TCP packets", 0x1e),
    ("gathering of packets", 0x2b),
];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Features of a network device by name, each on or off; those that the kernel does not know of it are left out.
///
/// # Errors
/// `EINVAL` for a name that cannot be one; those of socket(2) and of the ioctl: `ENODEV` where there is no such device,
/// `EOPNOTSUPP` where its driver answers nothing.
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
        let mut value = Value {
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
