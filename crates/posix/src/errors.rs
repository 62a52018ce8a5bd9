//! Names of errors.

use rustix::io::Errno;

/// `ENOENT` and so on.
pub fn name(errno: Errno) -> String {
    let names = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::INTR, "EINTR"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::NOEXEC, "ENOEXEC"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::FAULT, "EFAULT"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::SPIPE, "ESPIPE"),
        (Errno::ROFS, "EROFS"),
        (Errno::MLINK, "EMLINK"),
        (Errno::RANGE, "ERANGE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NODATA, "ENODATA"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::STALE, "ESTALE"),
        (Errno::ADDRINUSE, "EADDRINUSE"),
        (Errno::NOTCONN, "ENOTCONN"),
    ];
    let found = names.iter().find(|(e, _)| *e == errno).map(|(_, name)| (*name).to_owned());
    found.unwrap_or_else(|| format!("errno {}", errno.raw_os_error()))
}
