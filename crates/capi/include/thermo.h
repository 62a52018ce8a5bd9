/* libthermo: files of a Thermocline namespace for programs, without a mount.
 *
 * Link with -lthermo (pkg-config libthermo). Paths are those of the namespace, absolute, as `thermo ls` shows them.
 *
 * Where the node is on the same host, it hands out the descriptor of a file's object, and bytes do not pass through it. Elsewhere, and while
 * a file comes back from tape, bytes travel over several connections at once, are read ahead, and are written later than a program
 * writes them: thermo_flush and thermo_close say what became of them.
 *
 * Functions return -1 or NULL on failure, set errno, and thermo_error() has a sentence for people. All may be called by any number of threads
 * at once, also with the same session or file; closing is for one thread, when no other uses the object any more. Objects do not survive fork(2).
 */
#ifndef THERMO_H
#define THERMO_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct thermo_session thermo_session;
typedef struct thermo_file thermo_file;
typedef struct thermo_dir thermo_dir;
typedef struct thermo_op thermo_op;

/* Sentence of this thread's last failure; valid until its next one. */
const char *thermo_error(void);

/* ---- Sessions ---- */

/* All 0: the defaults. */
struct thermo_options {
    uint32_t patience_ms;  /* wait so long for a node that is starting, and whenever it is started anew */
    uint32_t streams;      /* connections for the bytes of one file */
    int64_t read_ahead;    /* bytes; -1: none */
    int64_t write_behind;  /* bytes; -1: none */
    int32_t no_descriptors; /* not 0: bytes always pass through the node */
};

/* The node whose control socket this is (STATE_DIR/control.sock). options may be NULL. What the caller may do is what his
 * user may do. */
thermo_session *thermo_connect(const char *socket, const struct thermo_options *options);
/* After all files and directories of the session are closed. */
void thermo_disconnect(thermo_session *session);
/* All names and attributes that were changed, and content that was flushed, survive a power failure from now on. */
int thermo_sync(const thermo_session *session);

/* ---- Files ---- */

/* O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NONBLOCK of open(2); other flags that change what happens are refused.
 * mode is taken as it is, without the umask. Opening never waits for tape. O_NONBLOCK: reading what is only on tape fails with EAGAIN and
 * starts the recall. */
thermo_file *thermo_open(const thermo_session *session, const char *path, int flags, mode_t mode);
/* Flushes and closes. The file is gone also when that fails; errno then says what was not written. */
int thermo_close(thermo_file *file);

/* Reads until the buffer is full or the file ends; waits for tape. */
ssize_t thermo_pread(const thermo_file *file, void *buffer, size_t len, off_t offset);
/* Writes all of it. A failure may belong to an earlier write. */
ssize_t thermo_pwrite(const thermo_file *file, const void *buffer, size_t len, off_t offset);
ssize_t thermo_preadv(const thermo_file *file, const struct iovec *list, int count, off_t offset);
ssize_t thermo_pwritev(const thermo_file *file, const struct iovec *list, int count, off_t offset);

/* `count` blocks of `block` bytes, the first at `offset`, each `step` bytes after the beginning of the one before; in memory they lie one
 * after the other. */
ssize_t thermo_read_strided(const thermo_file *file, void *buffer, off_t offset, size_t block, off_t step, size_t count);
ssize_t thermo_write_strided(const thermo_file *file, const void *buffer, off_t offset, size_t block, off_t step, size_t count);

/* Begin, go on with other work, and wait. Each operation must be waited for once, before its file is closed. Operations that overlap are done
 * in any order. What is written is copied at once; what was read goes to the buffer of thermo_wait (NULL for a write). */
thermo_op *thermo_pread_start(const thermo_file *file, size_t len, off_t offset);
thermo_op *thermo_pwrite_start(const thermo_file *file, const void *buffer, size_t len, off_t offset);
int thermo_ready(const thermo_op *op); /* 1: thermo_wait would return at once */
ssize_t thermo_wait(thermo_op *op, void *buffer, size_t len);

/* What was written is seen by everybody who reads from now on. */
int thermo_flush(const thermo_file *file);
/* What was written, and the name, survive a power failure from now on. */
int thermo_fsync(const thermo_file *file);
int thermo_ftruncate(const thermo_file *file, off_t len);
/* 1: bytes go to the object on this host without passing through the node. */
int thermo_is_direct(const thermo_file *file);

/* ---- Locks ---- */

/* They hold between all programs that ask: with this library, at the mounts of the node, and on other hosts. A lock belongs to the open file, as one of
 * fcntl(2) with F_OFD_SETLK; it ends when it is given back, with thermo_close, and when the program ends. What somebody wrote before he gave a lock back
 * is read by who gets it next: giving back flushes, and says what failed of that (the lock is given back all the same).
 *
 * wait_ms: how long to wait (milliseconds); 0: not at all, -1: however long it takes.
 * EAGAIN: somebody else has it still. EINTR: a signal handler ran while it waited. EBADF: F_RDLCK needs a file that is open for reading, F_WRLCK one that
 * is open for writing. EINVAL: bytes that no file can have. ENOLCK: there are too many. EOPNOTSUPP: the node leaves locks to the kernel (`locks = true` in
 * its configuration changes that). ESTALE, ECONNRESET: the node was started anew, and nothing is locked by this file any more; open it again. */

/* Locks `len` bytes from `start` on, 0: to the end of the file, wherever that will be. F_RDLCK: others may have it in this way too; F_WRLCK: alone;
 * F_UNLCK: gives back what this file holds of it. What it holds already changes its kind, and stays as it is until then. */
int thermo_lock(const thermo_file *file, int kind, off_t start, off_t len, int64_t wait_ms);
/* Looks whether a lock of somebody else is in the way of this one (l_type, l_start, l_len, and SEEK_SET as l_whence), and writes it there; l_type is F_UNLCK
 * if there is none. l_pid is 0 for a process of another host. */
int thermo_test_lock(const thermo_file *file, struct flock *lock);
/* Locks the file as flock(2) does, which knows nothing of thermo_lock: LOCK_SH, LOCK_EX or LOCK_UN. A lock of another kind is given up first. */
int thermo_flock(const thermo_file *file, int operation, int64_t wait_ms);

/* ---- Names and attributes ---- */

struct thermo_time {
    int64_t s;   /* seconds since 1970 */
    uint32_t ns; /* nanoseconds within the second */
};

struct thermo_stat {
    uint64_t ino;
    uint64_t size;       /* bytes */
    uint64_t disk_bytes; /* bytes on disk, 0 when offline */
    uint64_t rdev;
    uint32_t mode; /* kind and permission bits, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    struct thermo_time atime, mtime, ctime, btime;
};

int thermo_stat(const thermo_session *session, const char *path, struct thermo_stat *stat);
int thermo_lstat(const thermo_session *session, const char *path, struct thermo_stat *stat);
int thermo_fstat(const thermo_file *file, struct thermo_stat *stat);
int thermo_mkdir(const thermo_session *session, const char *path, mode_t mode);
int thermo_rmdir(const thermo_session *session, const char *path);
int thermo_unlink(const thermo_session *session, const char *path);
int thermo_chmod(const thermo_session *session, const char *path, mode_t mode);
/* UINT32_MAX leaves the owner or group as it is. */
int thermo_chown(const thermo_session *session, const char *path, uint32_t uid, uint32_t gid);
int thermo_utimes(const thermo_session *session, const char *path, struct thermo_time atime, struct thermo_time mtime);
/* To 0 an offline file is cut without a recall. */
int thermo_truncate(const thermo_session *session, const char *path, off_t len);
/* flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE of renameat2(2). */
int thermo_rename(const thermo_session *session, const char *from, const char *to, unsigned flags);
int thermo_symlink(const thermo_session *session, const char *target, const char *path);
int thermo_link(const thermo_session *session, const char *existing, const char *path);

/* These give the length (bytes), also with size 0; a buffer that is too short is EINVAL. No NUL is added. */
ssize_t thermo_readlink(const thermo_session *session, const char *path, char *buffer, size_t size);
ssize_t thermo_getxattr(const thermo_session *session, const char *path, const char *name, char *buffer, size_t size);
/* Names, each ended by a NUL. */
ssize_t thermo_listxattr(const thermo_session *session, const char *path, char *buffer, size_t size);
int thermo_setxattr(const thermo_session *session, const char *path, const char *name, const char *value, size_t size);
int thermo_removexattr(const thermo_session *session, const char *path, const char *name);

struct thermo_dirent {
    char name[256]; /* ended by a NUL; never "." or ".." */
    struct thermo_stat stat;
};

thermo_dir *thermo_opendir(const thermo_session *session, const char *path);
/* 1: an entry; 0: no more; -1: failed. */
int thermo_readdir(thermo_dir *dir, struct thermo_dirent *entry);
void thermo_closedir(thermo_dir *dir);

/* ---- Disk and tape ---- */

enum thermo_residency {
    THERMO_NOT_A_FILE = 0, /* a directory, symlink or device */
    THERMO_RESIDENT = 1,   /* wholly on disk, not yet with all copies on tape */
    THERMO_DUAL = 2,       /* wholly on disk and on tape */
    THERMO_OFFLINE = 3,    /* only on tape: reading waits */
    THERMO_STAGING = 4     /* coming back */
};

struct thermo_state {
    int residency; /* enum thermo_residency */
    uint32_t copies; /* on tape */
    uint32_t copies_required;
    int32_t percent; /* that has come back; -1: it does not come back */
    int64_t eta_s;   /* seconds until it is back; -1: not known */
    uint64_t request; /* that brings it back; 0: none */
};

enum thermo_request_state {
    THERMO_QUEUED = 0,
    THERMO_ACTIVE = 1,
    THERMO_DONE = 2,
    THERMO_FAILED = 3,
    THERMO_CANCELLED = 4
};

struct thermo_request {
    uint64_t id;
    int state; /* enum thermo_request_state */
    uint32_t percent;
    uint64_t queue_position; /* from 1; 0: it does not wait */
    uint64_t bytes;          /* moved */
    int64_t eta_s;           /* seconds until it is done; -1: not known */
};

int thermo_state(const thermo_session *session, const char *path, struct thermo_state *state);
/* Brings files back; all of them are planned as one request. */
int thermo_stage(const thermo_session *session, const char *const *paths, size_t count, int recursive, struct thermo_request *request);
int thermo_request(const thermo_session *session, uint64_t id, struct thermo_request *request);

#ifdef __cplusplus
}
#endif

#endif
